//! A thread's number: what locks keep of an owner, and of a thread in a queue.

/// Threads that have a number at the same time. Those beyond wait without queueing, and are unknown as owners.
#[cfg(not(any(loom, shuttle)))]
pub(crate) const CAPACITY: usize = 8192;
#[cfg(any(loom, shuttle))]
pub(crate) const CAPACITY: usize = 8;

/// The number of no thread: the owner is not known.
pub(crate) const UNKNOWN: u32 = 0;

/// A thread's number, from 1: one more than its index in the table of [records](crate::thread_record).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadNumber(u32);

impl ThreadNumber {
    /// `None` for [`UNKNOWN`], and for threads that have no number.
    pub(crate) fn new(number: u32) -> Option<Self> {
        (number != UNKNOWN && number as usize <= CAPACITY).then_some(ThreadNumber(number))
    }

    pub(crate) fn at_index(index: usize) -> Self {
        ThreadNumber(index as u32 + 1)
    }

    pub(crate) fn get(self) -> u32 {
        self.0
    }

    /// The number in half the space.
    pub(crate) fn short(self) -> u16 {
        const { assert!(CAPACITY < u16::MAX as usize, "a number must fit") };
        self.0 as u16
    }

    /// Its index in tables, from 0.
    pub(crate) fn index(self) -> usize {
        self.0 as usize - 1
    }
}

/// [`UNKNOWN`] in half the space.
pub(crate) const SHORT_UNKNOWN: u16 = 0;

/// In the low half of an owner word.
pub(crate) const OWNED: u64 = 1;

/// What a lock's state is while a thread with this number owns it and nobody waits: the number in the high half, [`OWNED`] in the low one.
pub(crate) const fn owner_word_of(number: u32) -> u64 {
    (number as u64) << 32 | OWNED
}

/// The owner word of threads that have no number.
pub(crate) const ANONYMOUS: u64 = owner_word_of(u32::MAX);

/// The number of the owner that an owner word names.
pub(crate) fn owner_number(word: u64) -> u32 {
    (word >> 32) as u32
}
