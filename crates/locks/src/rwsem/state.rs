//! The state of a reader-writer semaphore.
//!
//! In the high half, the number of the writer that owns it. In the low half, on which waiters sleep:
//!
//! | readers | WRITERS | READERS | HEIR | WRITER | meaning                                                              |
//! |---------|---------|---------|------|--------|----------------------------------------------------------------------|
//! | 0       |         |         |      |        | free                                                                 |
//! | 0       | any     | any     |      | x      | a writer holds it; writers, readers sleep                            |
//! | n       | any     | any     |      |        | n readers hold it                                                    |
//! | 0       | any     | x       |      |        | free; whoever released it wakes all readers                          |
//! | 0       | x       |         |      |        | free; whoever released it wakes one writer                           |
//! | any     | any     | any     | x    | any    | as without HEIR, but only the heir may take it, and is woken for it  |
//!
//! A release leaves the marks of the sleepers, and wakes by what it saw in the result: [`State::wakes`]. Whoever takes the free
//! lock next takes off, in the same exchange, the mark of those who are being woken; nobody sleeps on a free lock that is not
//! reserved, so nobody comes to rely on that mark meanwhile.

use crate::sync::Bed;

/// A writer holds it: the low half of an owner word.
pub(super) const WRITER: u64 = crate::threads::OWNED;
/// Writers may sleep, and none that is awake is on duty for them.
pub(super) const WRITERS: u64 = 2;
/// Readers may sleep.
pub(super) const READERS: u64 = 4;
/// Reserved for the waiter that has set this.
pub(super) const HEIR: u64 = 8;
/// One reader that holds it; the bits from here to the half's end are their number.
pub(super) const READER: u64 = 16;
/// The number of readers.
pub(super) const READER_COUNT: u64 = 0xffff_fff0;

/// Whether anybody holds it.
pub(super) fn is_held(state: u64) -> bool {
    state & (WRITER | READER_COUNT) != 0
}

/// Who is woken when a lock was released to this state, and the mark that stands for them.
pub(super) fn wakes(state: u64) -> Option<(Bed, u32, u64)> {
    if is_held(state) {
        None
    } else if state & HEIR != 0 {
        Some((Bed::Heir, 1, 0))
    } else if state & READERS != 0 {
        Some((Bed::Readers, u32::MAX, READERS))
    } else if state & WRITERS != 0 {
        Some((Bed::Line, 1, WRITERS))
    } else {
        None
    }
}

/// The state without the mark of those who are being woken.
pub(super) fn taken_from(state: u64) -> u64 {
    match wakes(state) {
        Some((_, _, mark)) => state & !mark,
        None => state,
    }
}
