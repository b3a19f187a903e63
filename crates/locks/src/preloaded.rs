//! For a library that is preloaded into other programs, where a lock may be contended inside the program's own allocator, or while the loader
//! holds its lock, or the program forbids itself system calls. All that needs memory, the loader or another system call than a futex is done
//! once, in [`prepare`].

use crate::thread_record::ThreadRecord;
use crate::{current_thread, sync};

pub use crate::generation::Generation;

/// To be called once, when the library is loaded.
pub fn prepare() {
    current_thread::prepare_for_preload();
    sync::usable_cpus();
}

/// To be called in a forked child, before anything else runs there.
pub fn after_fork_in_child() {
    ThreadRecord::forget_threads_of_the_parent(current_thread::registered_number());
}
