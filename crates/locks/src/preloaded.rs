//! For a library that is preloaded into other programs, where a lock may be contended inside the program's own allocator, or while the loader
//! holds its lock. All that needs memory or the loader is done once, in [`prepare`].

use crate::current_thread;
use crate::thread_record::ThreadRecord;

pub use crate::generation::Generation;

/// To be called once, when the library is loaded.
pub fn prepare() {
    current_thread::prepare_for_preload();
}

/// To be called in a forked child, before anything else runs there.
pub fn after_fork_in_child() {
    ThreadRecord::forget_threads_of_the_parent(current_thread::registered_number());
}
