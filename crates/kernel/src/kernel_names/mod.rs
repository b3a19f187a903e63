//! Names of the kernel's functions and locks, for all collectors.

mod frames;
mod kernel_layout;
mod lock_class;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use lockmeter_profile::{Filesystem, Kind, Lock, OfFilesystem, StackId, Tables, lock_functions};
use lockmeter_symbols::{KernelMemory, KernelSymbols, KernelTypes, LockNamer, SystemMap, WHOLE_PPM};

use frames::Frames;
pub use frames::Functions;
pub use kernel_layout::KernelLayout;
pub(crate) use kernel_layout::tell_programs;
pub use lock_class::{MMAP_LOCK, is_of_slab};

use crate::error::KernelError;
use crate::peek::KernelReader;
use crate::threads::Lists;

/// The kernel's own way from an address to its slab cache, since Linux 6.13.
const SLAB_CACHE_FUNCTION: &str = "bpf_get_kmem_cache";

/// From here up x86-64 keeps the kernel's image and its modules, `IMAGE_BEGIN_X86` in `lock_class.bpf.h`.
const IMAGE_BEGIN: u64 = 0xffff_ffff_8000_0000;

/// The names of all collectors that run at a time: reading them takes a while.
pub type SharedNames = Rc<RefCell<KernelNames>>;

/// Everything that turns addresses into names.
pub struct KernelNames {
    symbols: Arc<KernelSymbols>,
    frames: Frames,
    namer: LockNamer<KernelReader>,
    memory: KernelLayout,
    waiter_lists: Lists,
    has_get_kmem_cache: bool,
}

/// Reads the kernel's symbols and types, and what a map adds to them.
pub fn prepare(map: Option<&SystemMap>) -> Result<SharedNames, KernelError> {
    KernelError::unless_privileged("cannot meter kernel locks")?;
    Ok(Rc::new(RefCell::new(KernelNames::prepare(map)?)))
}

impl KernelNames {
    /// Reads the kernel's symbols and types.
    pub fn prepare(map: Option<&SystemMap>) -> Result<Self, KernelError> {
        let listed = KernelSymbols::from_proc();
        let symbols = match map {
            Some(map) => listed.and_then(|symbols| symbols.with_map(map)),
            None => listed,
        };
        let symbols = Arc::new(symbols.map_err(|error| KernelError::from_symbols(&error))?);
        let types = KernelTypes::from_sys().map_err(|error| KernelError::from_symbols(&error))?;
        let has_get_kmem_cache = symbols.address_of(SLAB_CACHE_FUNCTION).is_some();
        let reader = KernelReader::load(has_get_kmem_cache)?;
        let own = reader.own_task()?;
        let memory = KernelLayout::find(&types, &symbols, &reader, own.cache.unwrap_or(0));
        let waiter_lists = Lists::find(|of, field| types.offset_of(of, field).ok());
        let namer = LockNamer::new(Arc::clone(&symbols), types, reader, own.task)
            .map_err(|error| KernelError::from_symbols(&error))?;
        Ok(Self { frames: Frames::new(Arc::clone(&symbols)), symbols, namer, memory, waiter_lists, has_get_kmem_cache })
    }

    /// To be called once functions are hooked: their stacks lead through trampolines that were made for it.
    pub fn learn_programs(&mut self) {
        self.frames.learn_programs();
    }

    /// The kernel's functions.
    pub fn symbols(&self) -> &KernelSymbols {
        &self.symbols
    }

    /// Where slab objects and struct pages lie in this kernel, for the programs: see [`tell_programs`].
    pub const fn memory(&self) -> (bool, &KernelLayout) {
        (self.has_get_kmem_cache, &self.memory)
    }

    /// Where locks keep their lists of waiters.
    pub(crate) const fn waiter_lists(&self) -> &Lists {
        &self.waiter_lists
    }

    /// A word of the kernel's memory.
    pub fn read_word(&self, address: u64) -> Option<u64> {
        self.namer.memory().read_u64(address).ok()
    }

    /// Where each CPU keeps its `preempt_count`, by its number; 0 where that is not known.
    pub fn preempt_counts(&self) -> Vec<u64> {
        self.namer.preempt_counts()
    }

    /// Whether an address lies in the kernel's or a module's image.
    pub fn is_in_image(&self, address: u64) -> bool {
        address >= IMAGE_BEGIN
    }

    /// The name of a lock that was waited for at one place; innermost frame first, none where the stack is not known.
    pub fn name_by_stack(&mut self, class: u64, kind: Kind, addresses: &[u64], caches: &[u64]) -> Option<Lock> {
        let functions = self.functions(addresses);
        let stacks = if functions.is_empty() { Vec::new() } else { vec![(functions, 1)] };
        self.name_locks(class, kind, &stacks, caches).into_iter().next().map(|(lock, _)| lock)
    }

    /// The locks of a class with the share of each in millionths, by the functions on stacks that took them, each with its weight;
    /// several only where one class holds objects of several types.
    pub fn name_locks(
        &mut self,
        class: u64,
        kind: Kind,
        stacks: &[(Functions, u64)],
        caches: &[u64],
    ) -> Vec<(Lock, u64)> {
        if let Some(lock) = lock_class::told_by_tracepoint(class) {
            return vec![(lock, WHOLE_PPM)];
        }
        let stacks: Vec<(Vec<&str>, u64)> =
            stacks.iter().map(|(names, weight)| (names.iter().map(|name| &**name).collect(), *weight)).collect();
        self.namer.name(&lock_class::identity(class, caches), kind, &stacks)
    }

    /// To be called before the file systems of an interval's locks are looked up.
    pub fn renew_filesystems(&mut self) {
        self.namer.renew_filesystems();
    }

    /// The file system of a single lock of a class, which was named before: as its object says now.
    pub fn filesystem(
        &mut self,
        lock: &Lock,
        class: u64,
        kind: Kind,
        address: u64,
        caches: &[u64],
    ) -> OfFilesystem<Filesystem> {
        self.namer.filesystem(lock, &lock_class::identity(class, caches), kind, address)
    }

    /// The functions on a stack, innermost first.
    pub fn functions(&mut self, addresses: &[u64]) -> Functions {
        self.frames.functions(addresses)
    }

    /// A stack in an interval's tables, without the frames of metering itself; `None` if there is none.
    pub fn site(&mut self, addresses: &[u64], tables: &mut Tables) -> Option<StackId> {
        if addresses.is_empty() {
            return None;
        }
        let frames = self.frames.of_stack(addresses);
        let metering = lock_functions::metering_frames(frames.iter().map(|frame| frame.function.as_deref()));
        let frames = frames.iter().skip(metering).map(|frame| tables.intern_frame(frame.recorded())).collect();
        Some(tables.intern_stack(frames))
    }
}
