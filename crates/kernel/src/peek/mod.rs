//! Reads kernel memory through a program that is run once for each read and attached to nothing.

use std::cell::RefCell;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput};
use lockmeter_symbols::{KernelMemory, Unreadable};

use crate::error::KernelError;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/peek.skel.rs"));
}
use skeleton::{PeekSkel, PeekSkelBuilder};

/// What the program reads at once, `PEEK_LENGTH` in `peek.bpf.c`.
const PEEK_LENGTH: usize = 256;

/// Reads kernel memory, a system call for each 256 bytes.
pub struct KernelReader {
    skeleton: RefCell<PeekSkel<'static>>,
}

/// Where this thread and its slab object lie: two addresses from which everything else can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnTask {
    /// Address of this thread's `task_struct`.
    pub task: u64,
    /// Address of the `kmem_cache` it was allocated from, if this kernel tells.
    pub cache: Option<u64>,
}

impl KernelReader {
    /// Loads the reading program.
    pub fn load(has_get_kmem_cache: bool) -> Result<Self, KernelError> {
        let refused = |error| KernelError::from_libbpf("cannot load the program that reads kernel memory", &error);
        // The skeleton borrows its storage for as long as it lives, which is as long as the process.
        let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = PeekSkelBuilder::default().open(storage).map_err(refused)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.has_get_kmem_cache = u8::from(has_get_kmem_cache);
        }
        Ok(Self { skeleton: RefCell::new(open.load().map_err(refused)?) })
    }

    /// Finds this thread's `task_struct`.
    pub fn own_task(&self) -> Result<OwnTask, KernelError> {
        let skeleton = self.skeleton.borrow_mut();
        skeleton
            .progs
            .find_task
            .test_run(ProgramInput::default())
            .map_err(|error| KernelError::from_libbpf("cannot run the program that reads kernel memory", &error))?;
        let found = skeleton.maps.bss_data.as_deref();
        Ok(OwnTask {
            task: found.map_or(0, |bss| bss.current_task),
            cache: found.map(|bss| bss.current_task_cache).filter(|cache| *cache != 0),
        })
    }
}

impl KernelMemory for KernelReader {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let mut skeleton = self.skeleton.borrow_mut();
        let mut at = address;
        for chunk in into.chunks_mut(PEEK_LENGTH) {
            let Some(bss) = skeleton.maps.bss_data.as_deref_mut() else { return Err(Unreadable { address }) };
            bss.address = at;
            bss.length = u32::try_from(chunk.len()).unwrap_or(0);
            // Read back only if the program ran: a refused run must not look like memory full of old bytes.
            bss.failed = -1;
            let ran = skeleton.progs.peek.test_run(ProgramInput::default());
            let Some(bss) = skeleton.maps.bss_data.as_deref() else { return Err(Unreadable { address }) };
            if ran.is_err() || bss.failed != 0 {
                return Err(Unreadable { address: at });
            }
            chunk.copy_from_slice(&bss.bytes[..chunk.len()]);
            at += chunk.len() as u64;
        }
        Ok(())
    }
}
