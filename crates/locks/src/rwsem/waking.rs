//! Who is woken when the semaphore is released.

use super::state::{HEIR, READERS, WRITERS, is_held};
use super::{Policy, RawRwSem};
use crate::instrument::Instrument;
use crate::sync::Bed;

impl<P: Policy, I: Instrument> RawRwSem<P, I> {
    /// Wakes those who are to be woken when a lock was released to this state. Its memory may be gone by now: somebody else may
    /// have had the lock, and freed it. The address alone is used.
    #[cold]
    #[inline(never)]
    pub(super) fn wake(&self, state: u64) {
        if is_held(state) {
            return;
        }
        if state & HEIR != 0 {
            return self.state.wake(Bed::Heir, 1);
        }
        if state & READERS != 0 {
            self.state.wake(Bed::Readers, u32::MAX);
        }
        if state & WRITERS != 0 {
            self.state.wake(Bed::Line, 1);
        }
    }

    /// Wakes those whom the last reader would wake, if there ever were one: readers slept because the lock was reserved, and a
    /// writer has it reserved in the place of the one that gave up.
    pub(super) fn wake_beside_readers(&self, state: u64) {
        if state & READERS != 0 {
            self.state.wake(Bed::Readers, u32::MAX);
        }
        if state & WRITERS != 0 {
            self.state.wake(Bed::Line, 1);
        }
    }
}
