//! Where this kernel keeps slab objects and the records of its pages.

use std::ops::Range;

use lockmeter_symbols::{KernelMemory, KernelSymbols, KernelTypes, PageAnchor, struct_page_anchor};

use crate::peek::KernelReader;

/// Where this kernel keeps what the programs look up.
pub struct KernelLayout {
    /// Where the struct page of an address is; `None` where it could not be found: slabs made short of memory are then
    /// misjudged, and page-table locks have no name.
    pub anchor: Option<PageAnchor>,
    /// The direct map, where slab objects live; empty where only the kernel's own function can tell.
    pub direct_map: Range<u64>,
}

impl KernelLayout {
    pub fn find(types: &KernelTypes, symbols: &KernelSymbols, reader: &KernelReader, cache: u64) -> Self {
        let anchor = struct_page_anchor(types, symbols, reader, cache).ok();
        let base = symbols.address_of("page_offset_base").and_then(|address| reader.read_u64(address).ok());
        let pages = anchor
            .as_ref()
            .map_or(0, |anchor| (anchor.vmemmap.end - anchor.vmemmap.start) / anchor.page_struct_bytes.max(1));
        let direct_map = base.map_or(0..0, |base| {
            base..base.saturating_add(pages << anchor.as_ref().map_or(0, |anchor| anchor.page_shift))
        });
        Self { anchor, direct_map }
    }
}

/// Tells the programs of a collector where slab objects and struct pages lie: the settings of `lock_class.bpf.h`.
macro_rules! tell_programs {
    ($names:expr, $rodata:expr) => {{
        let (has_get_kmem_cache, memory) = $names.memory();
        $rodata.has_get_kmem_cache = u8::from(has_get_kmem_cache);
        $rodata.direct_map_begin = memory.direct_map.start;
        $rodata.direct_map_end = memory.direct_map.end;
        if let Some(anchor) = &memory.anchor {
            $rodata.page_anchor = anchor.constant;
            $rodata.struct_page_size = u32::try_from(anchor.page_struct_bytes).unwrap_or(0);
            $rodata.struct_pages_begin = anchor.vmemmap.start;
            $rodata.struct_pages_end = anchor.vmemmap.end;
        }
    }};
}
pub(crate) use tell_programs;
