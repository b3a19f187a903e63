//! The state of a reader-writer semaphore.
//!
//! In the high half, the number of the writer that owns it. In the low half, on which waiters sleep:
//!
//! | readers | WRITERS | READERS | HEIR | WRITER | meaning                                                              |
//! |---------|---------|---------|------|--------|----------------------------------------------------------------------|
//! | 0       |         |         |      |        | free                                                                 |
//! | 0       | any     | any     |      | x      | a writer holds it; writers, readers sleep                            |
//! | n       | any     | any     |      |        | n readers hold it                                                    |
//! | 0       | x or    | x       |      |        | free; whoever released it wakes one writer, all readers              |
//! | any     | any     | any     | x    | any    | as without HEIR, but only the heir may take it, and is woken for it  |
//!
//! A reader that comes is counted before it has looked, and is taken off the count again where a writer holds the lock, or the
//! lock is reserved. So beside WRITER or HEIR some of the n may be readers that are about to go; whoever is the last of all
//! to be taken off wakes those who are to be woken, whether it had the lock or not.
//!
//! A release leaves the marks of the sleepers, and wakes by what it saw in the result: for each mark, because a mark may be
//! older than its sleeper, who gave up. Whoever takes the free lock next takes the marks off in the same exchange, because
//! those wake-ups are under way; nobody sleeps on a free lock that is not reserved, so nobody comes to rely on them meanwhile.
//! A writer that lets go beside a reader just counted wakes nobody; that reader takes READERS off, and wakes, if it stays.

/// A writer holds it: the low half of an owner word.
pub(super) const WRITER: u64 = crate::threads::OWNED;
/// Who, and [`WRITER`]: an owner word.
pub(super) const OWNER: u64 = WRITER | !(u32::MAX as u64);
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

/// Whether readers hold it.
pub(super) fn is_read(state: u64) -> bool {
    state & WRITER == 0 && state & READER_COUNT != 0
}

/// The state of a free lock once it is taken: without the marks of those who are being woken.
pub(super) fn taken_from(state: u64) -> u64 {
    if state & HEIR != 0 { state } else { state & !(READERS | WRITERS) }
}
