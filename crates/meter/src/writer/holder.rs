//! Who has the lock that a thread begins to wait for: the blocker of a wait whose end nobody was seen to make.
//!
//! Locks name the thread that has them, and the thread's table the place where it took the lock.

use core::sync::atomic::Ordering::Relaxed;

use super::thread;
use crate::layout::Process;

/// A thread that has a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Holder {
    /// Where it acquired the lock: a return address; 0: that is not known.
    pub(super) site: u64,
    /// Place of its name, from 1; 0: not known.
    pub(super) comm: u16,
}

/// What is known of the thread with this id as the holder of this lock. Read while it runs: if the lock is no longer in its
/// list, or there twice, its name is all that is said.
pub(super) fn look(segment: &'static Process, lock: usize, thread: u32) -> Holder {
    if thread == 0 {
        return Holder::default();
    }
    let Some(holder) = thread::of_id(segment, thread) else { return Holder::default() };
    let held = (holder.held_count.load(Relaxed) as usize).min(holder.held.len());
    let acquired = holder.held[..held].iter().rev().find(|held| held.lock.load(Relaxed) == lock as u64);
    let site = acquired.map_or(0, |held| held.site.load(Relaxed));
    Holder { site, comm: holder.comm.load(Relaxed) }
}
