//! The state of a reader-writer semaphore.
//!
//! In the high half, the number of the writer that owns it, on which its successor sleeps. In the low half, on which all others sleep:
//!
//! | readers | WRITERS | READERS | HANDOFF | WRITER | meaning                                                               |
//! |---------|---------|---------|---------|--------|-----------------------------------------------------------------------|
//! | 0       |         |         |         |        | free                                                                  |
//! | 0       | any     | any     |         | x      | a writer holds it; writers, readers may sleep                         |
//! | n       | any     | any     |         |        | n readers hold it                                                     |
//! | 0       | x or    | x       |         |        | free; the reader that released it wakes one writer, all readers       |
//! | any     | any     | any     | x       | any    | as without HANDOFF, but the successor alone may take it               |
//!
//! A reader that comes is counted before it has read the state, and is taken off the count again where a writer holds the lock, or the
//! lock is reserved. So beside WRITER or HANDOFF some of the n may be readers that are about to leave; the last of all
//! to be taken off the count wakes the threads that are next, whether it had the lock or not.
//!
//! A thread that goes to sleep sets the mark of its kind. A writer that releases the lock takes both marks off and wakes one writer and all readers.
//! A last reader may not touch the lock after its release, and leaves the marks; the thread that takes the free lock next takes them off. The
//! woken writer sets its mark again when it takes the lock or goes back to sleep: others may still sleep.
//!
//! Without stealing ([`Policy::STEAL`](super::Policy::STEAL)) a writer's release leaves the marks, too, and a free lock with marks may be taken
//! by threads that were woken alone. A thread that takes it leaves the marks as they are. A release that has woken nobody takes them off.

/// A writer holds it: the low half of an owner word.
pub(super) const WRITER: u64 = crate::thread_number::OWNED;
/// Which, and [`WRITER`]: an owner word.
pub(super) const OWNER: u64 = WRITER | !(u32::MAX as u64);
/// Writers may sleep.
pub(super) const WRITERS: u64 = 2;
/// Readers may sleep.
pub(super) const READERS: u64 = 4;
/// Both marks of threads that sleep.
pub(super) const SLEEPERS: u64 = WRITERS | READERS;
/// Reserved for the successor: the waiter that has set this.
pub(super) const HANDOFF: u64 = 8;
/// One reader that holds it; the bits from here to the half's end are their number.
pub(super) const READER: u64 = 16;
/// The number of readers.
pub(super) const READER_COUNT: u64 = 0xffff_fff0;

/// Whether any thread holds it.
pub(super) fn is_held(state: u64) -> bool {
    state & (WRITER | READER_COUNT) != 0
}

/// Whether readers hold it.
pub(super) fn is_read(state: u64) -> bool {
    state & WRITER == 0 && state & READER_COUNT != 0
}
