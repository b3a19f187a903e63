//! What it takes to find the slab object of an address: where the fields lie, and where `struct page`s are.
//!
//! `page_of(address) = constant + (address >> page_shift) * sizeof(struct page)` holds for the whole direct map. The
//! constant hides behind address randomisation, and its two halves are variables that most kernels do not list. But
//! every partly used slab tells one pair: its `struct slab` lies where its `struct page` does, and its free list points
//! into its page.

use std::ops::Range;

use crate::btf::{Btf, TypeKind};
use crate::error::{SymbolsError, SymbolsErrorKind};
use crate::kernel_symbols::KernelSymbols;
use crate::memory::KernelMemory;
use crate::types::KernelTypes;

/// How a page says that it belongs to the slab allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlabMark {
    /// This bit of `page.flags` is set (before Linux 6.10).
    FlagBit(u8),
    /// This bit of the 32-bit `page.page_type` is clear and its upper four bits are set (6.10 and 6.11).
    TypeBitClear {
        /// Offset of `page_type` in `struct page`.
        offset: u32,
        /// The bit, as a mask.
        mask: u32,
    },
    /// The upper byte of the 32-bit `page.page_type` is this value (from 6.12).
    TypeByte {
        /// Offset of `page_type` in `struct page`.
        offset: u32,
        /// The byte.
        value: u8,
    },
}

/// Offsets in bytes, sizes in bytes: what a BPF program needs to go from an address to its slab cache and object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabLayout {
    /// Size of `struct page`.
    pub page_struct_bytes: u32,
    /// Binary logarithm of the size of a page.
    pub page_shift: u32,
    /// Offset of `page.flags`.
    pub page_flags: u32,
    /// Offset of the word whose bit 0 marks a tail page. The rest of it points to the head page, or (from 7.1, where
    /// [`SlabLayout::head_may_be_mask`]) is a mask to apply to the tail page's address.
    pub compound_head: u32,
    /// Whether the head page may be given as a mask (all upper bits set) instead of a pointer.
    pub head_may_be_mask: bool,
    /// How slab pages are told from others.
    pub slab_mark: SlabMark,
    /// Offset of `slab_cache` in the head page (`struct slab`).
    pub slab_cache: u32,
    /// Offset of `kmem_cache.size`, the distance between objects.
    pub cache_size: u32,
    /// Offset of `kmem_cache.object_size`.
    pub cache_object_size: u32,
    /// Offset of `kmem_cache.name`.
    pub cache_name: u32,
    /// Offset of `kmem_cache.red_left_pad`, the bytes before each object's start; absent without `CONFIG_SLUB_DEBUG`.
    pub cache_red_left_pad: Option<u32>,
}

impl SlabLayout {
    /// The layout of the kernel with these types.
    ///
    /// # Errors
    ///
    /// [`SymbolsErrorKind::MissingField`] on kernels before 5.17, which have no `struct slab`.
    pub fn new(types: &KernelTypes) -> Result<Self, SymbolsError> {
        let compound_head = types.offset_of("page", "compound_head");
        let head_may_be_mask = compound_head.is_err();
        Ok(Self {
            page_struct_bytes: types.size_of("page")?,
            page_shift: page_shift(),
            page_flags: types.offset_of("page", "flags")?,
            compound_head: compound_head.or_else(|_| types.offset_of("page", "compound_info"))?,
            head_may_be_mask,
            slab_mark: slab_mark(types)?,
            slab_cache: types.offset_of("slab", "slab_cache")?,
            cache_size: types.offset_of("kmem_cache", "size")?,
            cache_object_size: types.offset_of("kmem_cache", "object_size")?,
            cache_name: types.offset_of("kmem_cache", "name")?,
            cache_red_left_pad: types.offset_of("kmem_cache", "red_left_pad").ok(),
        })
    }
}

fn slab_mark(types: &KernelTypes) -> Result<SlabMark, SymbolsError> {
    let value_of = |enumeration, name| {
        let btf = &types.vmlinux;
        let id = btf.by_name(TypeKind::Enum, enumeration).next()?;
        btf.get(id)?.enumerators().find(|(known, _)| *known == name).map(|(_, value)| value)
    };
    let page_type = || types.offset_of("page", "page_type");
    if let Some(value) = value_of("pagetype", "PGTY_slab").and_then(|value| u8::try_from(value).ok()) {
        return Ok(SlabMark::TypeByte { offset: page_type()?, value });
    }
    if let Some(mask) = value_of("pagetype", "PG_slab") {
        return Ok(SlabMark::TypeBitClear { offset: page_type()?, mask });
    }
    let bit = value_of("pageflags", "PG_slab").and_then(|bit| u8::try_from(bit).ok());
    bit.map(SlabMark::FlagBit).ok_or_else(|| {
        SymbolsError::new(SymbolsErrorKind::MissingField, "this kernel's types do not say how slab pages are marked")
    })
}

/// Where the `struct page` of an address is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageAnchor {
    /// `page_of(0)`, wrapped.
    pub constant: u64,
    /// Size of `struct page` in bytes.
    pub page_struct_bytes: u64,
    /// Binary logarithm of the size of a page.
    pub page_shift: u32,
    /// Where all `struct page`s lie. On machines with more than 64 GiB of memory this is wider than they are, by at
    /// most their own size; nothing else lies there.
    pub vmemmap: Range<u64>,
}

impl PageAnchor {
    /// The `struct page` of an address in the direct map.
    pub const fn page_of(&self, address: u64) -> u64 {
        self.constant.wrapping_add((address >> self.page_shift).wrapping_mul(self.page_struct_bytes))
    }

    /// The address in the direct map of the page that a `struct page` describes.
    pub const fn address_of(&self, page: u64) -> u64 {
        // The direct map lies in the upper half, whose top bits the shift back loses.
        let number = (page.wrapping_sub(self.constant) as i64).wrapping_div(self.page_struct_bytes as i64) as u64;
        number << self.page_shift
    }

    /// How far into a `struct page` this address lies; `None` if it lies in none.
    pub fn offset_in_struct_page(&self, address: u64) -> Option<u32> {
        let offset = address.wrapping_sub(self.constant) % self.page_struct_bytes;
        self.vmemmap.contains(&address).then_some(offset as u32)
    }
}

/// Caches looked at for partly used slabs before giving up.
const MOST_CACHES: usize = 512;

/// Slabs that must tell the same constant.
const AGREEING_SLABS: usize = 3;

/// Finds where `struct page`s are, from the address of any `struct kmem_cache`.
///
/// # Errors
///
/// [`SymbolsErrorKind::MissingField`] on kernels before 5.17, [`SymbolsErrorKind::UnexpectedMemory`] if fewer than
/// three slabs agree.
pub fn struct_page_anchor(
    types: &KernelTypes,
    symbols: &KernelSymbols,
    memory: &impl KernelMemory,
    cache: u64,
) -> Result<PageAnchor, SymbolsError> {
    let page_struct_bytes = u64::from(types.size_of("page")?);
    let page_shift = page_shift();
    if let Some((direct_map, start)) = listed_bases(symbols, memory) {
        let constant = start.wrapping_sub((direct_map >> page_shift).wrapping_mul(page_struct_bytes));
        let end = start.saturating_add(highest_page_number().saturating_mul(page_struct_bytes));
        return Ok(PageAnchor { constant, page_struct_bytes, page_shift, vmemmap: start..end });
    }
    let walk = CacheWalk::new(types, memory, page_struct_bytes, page_shift)?;
    let mut told: Vec<(u64, usize, u64)> = Vec::new();
    for cache in walk.caches_from(cache) {
        let Some((constant, slab)) = walk.first_partial_slab(cache) else { continue };
        let at = told.iter().position(|(known, ..)| *known == constant).unwrap_or_else(|| {
            told.push((constant, 0, slab));
            told.len() - 1
        });
        told[at].1 += 1;
        if told[at].1 == AGREEING_SLABS {
            let vmemmap = range_around(slab, page_struct_bytes);
            return Ok(PageAnchor { constant, page_struct_bytes, page_shift, vmemmap });
        }
    }
    Err(SymbolsError::new(
        SymbolsErrorKind::UnexpectedMemory,
        "the kernel's page table of struct pages was not found: no three slabs agree on where it is",
    ))
}

/// The two variables that say it all, where the kernel lists them.
fn listed_bases(symbols: &KernelSymbols, memory: &impl KernelMemory) -> Option<(u64, u64)> {
    let value = |name| memory.read_u64(symbols.address_of(name)?).ok().filter(|value| *value != 0);
    Some((value("page_offset_base")?, value("vmemmap_base")?))
}

/// Where the `struct page`s around this one are.
fn range_around(page: u64, page_struct_bytes: u64) -> Range<u64> {
    /// The kernel places its regions at multiples of this (`arch/x86/mm/kaslr.c`).
    const REGION_ALIGNMENT: u64 = 1 << 30;
    let span = highest_page_number().saturating_mul(page_struct_bytes);
    let start = if span <= REGION_ALIGNMENT { page & !(REGION_ALIGNMENT - 1) } else { page.saturating_sub(span) };
    let end = if span <= REGION_ALIGNMENT { start.saturating_add(span) } else { page.saturating_add(span) };
    start..end.max(page.saturating_add(page_struct_bytes))
}

/// One more than the number of the last page of memory, from `/proc/zoneinfo`.
fn highest_page_number() -> u64 {
    let text = std::fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
    highest_page_number_in(&text)
}

fn highest_page_number_in(zoneinfo: &str) -> u64 {
    let (mut highest, mut spanned) = (0, 0_u64);
    for line in zoneinfo.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next().and_then(|number| number.parse::<u64>().ok())) {
            (Some("spanned"), Some(pages)) => spanned = pages,
            (Some("start_pfn:"), Some(start)) => highest = highest.max(start.saturating_add(spanned)),
            _ => {}
        }
    }
    highest
}

/// Binary logarithm of the page size, from the auxiliary vector.
fn page_shift() -> u32 {
    const AT_PAGESZ: usize = 6;
    const COMMON_SHIFT: u32 = 12;
    let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let words: Vec<usize> = vector.as_chunks().0.iter().map(|word| usize::from_ne_bytes(*word)).collect();
    let size = words.as_chunks::<2>().0.iter().find(|[key, _]| *key == AT_PAGESZ).map(|[_, size]| *size);
    size.filter(|size| size.is_power_of_two()).map_or(COMMON_SHIFT, usize::trailing_zeros)
}

/// Walks the allocator's caches and their partly used slabs.
struct CacheWalk<'a, M> {
    memory: &'a M,
    page_struct_bytes: u64,
    page_shift: u32,
    cache_list: u64,
    cache_node: u64,
    node_partial: u64,
    slab_list: u64,
    slab_free: u64,
    slab_objects: u64,
    cache_order: u64,
    cache_least_order: u64,
}

impl<'a, M: KernelMemory> CacheWalk<'a, M> {
    fn new(types: &KernelTypes, memory: &'a M, page_struct_bytes: u64, page_shift: u32) -> Result<Self, SymbolsError> {
        let at = |name, path| types.offset_of(name, path).map(u64::from);
        Ok(Self {
            memory,
            page_struct_bytes,
            page_shift,
            cache_list: at("kmem_cache", "list")?,
            cache_node: first_node(&types.vmlinux).map_or_else(|| at("kmem_cache", "node"), Ok)?,
            node_partial: at("kmem_cache_node", "partial")?,
            slab_list: at("slab", "slab_list")?,
            slab_free: at("slab", "freelist")?,
            slab_objects: at("slab", "objects")?,
            cache_order: at("kmem_cache", "oo")?,
            cache_least_order: at("kmem_cache", "min")?,
        })
    }

    fn read(&self, address: u64) -> Option<u64> {
        self.memory.read_u64(address).ok().filter(|value| *value != 0)
    }

    /// This cache and those after it in the kernel's list. The list's head is among them and looks like a cache that
    /// makes no sense, which is why several slabs must agree.
    fn caches_from(&self, first: u64) -> impl Iterator<Item = u64> + '_ {
        let next = move |cache: &u64| {
            let entry = self.read(cache.wrapping_add(self.cache_list))?;
            Some(entry.wrapping_sub(self.cache_list)).filter(|next| *next != first)
        };
        std::iter::successors(Some(first), next).take(MOST_CACHES)
    }

    /// What the cache's first partly used slab tells: the constant, and the slab.
    fn first_partial_slab(&self, cache: u64) -> Option<(u64, u64)> {
        let node = self.read(cache.wrapping_add(self.cache_node))?;
        let head = node.wrapping_add(self.node_partial);
        let entry = self.read(head).filter(|entry| *entry != head)?;
        let slab = entry.wrapping_sub(self.slab_list);
        let free = self.read(slab.wrapping_add(self.slab_free))?;
        let mut objects = [0; 2];
        self.memory.read(slab.wrapping_add(self.slab_objects), &mut objects).ok()?;
        // The top bit of these 16 is another field.
        let objects = u32::from(u16::from_ne_bytes(objects) & 0x7fff);
        let orders = [self.cache_order, self.cache_least_order];
        let order = orders.into_iter().find_map(|offset| {
            // `struct kmem_cache_order_objects`: the order above 16 bits of objects in a slab of that order.
            let packed = self.memory.read_u32(cache.wrapping_add(offset)).ok()?;
            (packed & 0xffff == objects && packed >> 16 < u32::BITS).then_some(packed >> 16)
        })?;
        let slab_bytes = 1_u64.checked_shl(self.page_shift + order)?;
        let first_page = (free & !(slab_bytes - 1)) >> self.page_shift;
        Some((slab.wrapping_sub(first_page.wrapping_mul(self.page_struct_bytes)), slab))
    }
}

/// Offset of the first node's pointer where each node has a record of several (from Linux 7.0).
fn first_node(btf: &Btf) -> Option<u64> {
    let (offset, records) = btf.field(btf.struct_named("kmem_cache")?, "per_node")?;
    let (record, _) = btf.strip(records)?.1.array()?;
    let (inside, _) = btf.field(record, "node")?;
    Some(u64::from(offset) + u64::from(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_addresses_lead_to_each_other() {
        let (direct_map, start) = (0xffff_8880_0000_0000_u64, 0xffff_ea00_0000_0000_u64);
        let constant = start.wrapping_sub((direct_map >> 12).wrapping_mul(64));
        let anchor = PageAnchor { constant, page_struct_bytes: 64, page_shift: 12, vmemmap: start..start + (1 << 30) };
        for page_number in [0, 1, 77, 0x12_3456] {
            let address = direct_map + (page_number << 12);
            assert_eq!(anchor.page_of(address + 8), start + page_number * 64);
            assert_eq!(anchor.address_of(anchor.page_of(address)), address);
        }
        assert_eq!(anchor.offset_in_struct_page(start + 64 * 5 + 40), Some(40));
        assert_eq!(anchor.offset_in_struct_page(direct_map), None);
    }

    #[test]
    fn the_last_page_is_that_of_the_highest_zone() {
        let zoneinfo = "Node 0, zone      DMA\n        spanned  4095\n  start_pfn:           1\n\
                        Node 0, zone   Normal\n        spanned  1000\n  start_pfn:           5000\n\
                        Node 0, zone  Movable\n        spanned  0\n  start_pfn:           0\n";
        assert_eq!(highest_page_number_in(zoneinfo), 6000);
    }

    #[test]
    fn pages_have_a_size() {
        assert!((12..=16).contains(&page_shift()));
    }
}
