//! What is counted of one kind of event.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What a thread counted of one kind of event.
///
/// The owning thread alone writes, except to those that threads share. `count` is written after `total_ns`, so a reader that sees an event counted sees its time.
#[repr(C, align(64))]
pub struct Slot {
    /// What, as [`Meta`] packs it; 0: free. Written last.
    pub meta: AtomicU64,
    /// Place of the lock, and from bit 32 the releaser's thread name.
    pub lock: AtomicU64,
    /// Return address, or place of a stack with [`SITE_IS_STACK`](super::SITE_IS_STACK); 0: not kept.
    pub site: AtomicU64,
    /// The blocker's site in the same manner; 0: not known.
    pub blocker: AtomicU64,
    /// How many.
    pub count: AtomicU64,
    /// How long together.
    pub total_ns: AtomicU64,
    /// The longest since `epoch`.
    pub max_ns: AtomicU64,
    /// The collector's epoch of `max_ns`.
    pub epoch: AtomicU64,
}

/// A [`Slot`] of holds that are not timed. It needs no blocker and no times: in their place it has the addresses of the locks
/// that it stands for, so that a release that is only counted reads and writes this line alone. The first fields and `count`
/// are those of [`Slot`].
#[repr(C, align(64))]
pub struct CountedSlot {
    /// As in [`Slot`].
    pub meta: AtomicU64,
    /// As in [`Slot`].
    pub lock: AtomicU64,
    /// As in [`Slot`].
    pub site: AtomicU64,
    /// The first address.
    pub base: AtomicU64,
    /// As in [`Slot`].
    pub count: AtomicU64,
    /// Inverse of the odd factor of the distance from one address to the next.
    pub inverse: AtomicU64,
    /// What comes out too large for all other addresses: they less the base, times the inverse. 0 where that does not tell.
    pub limit: AtomicU32,
    /// The power of two in that distance, and from bit [`ROW_COUNT_SHIFT`] how many addresses.
    pub row: AtomicU32,
    /// How often addresses had come to mean other locks, when these were found.
    pub changes: AtomicU32,
    /// The sample that the last timed hold of the same lock and caller was counted to; 0: none.
    pub timed: AtomicU16,
    /// The sample that counts for how many of its holds it was seen who came next; 0: none.
    pub watched: AtomicU16,
}

/// Where the number of addresses is in [`CountedSlot::row`].
pub const ROW_COUNT_SHIFT: u32 = 6;

impl CountedSlot {
    /// How many addresses it stands for.
    #[inline(always)]
    pub fn addresses(&self) -> u32 {
        self.row.load(Relaxed) >> ROW_COUNT_SHIFT
    }
}

impl Slot {
    /// Itself, if it is one of holds that are not timed.
    #[inline(always)]
    pub const fn counted(&self) -> &CountedSlot {
        // SAFETY: both are atomics alone, of one size and alignment; any bytes are valid.
        unsafe { &*core::ptr::from_ref(self).cast::<CountedSlot>() }
    }
}

/// What happened, as a sample's key has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Code of `Happened` in the data model.
    pub happened: u8,
    /// One of [`kind`].
    pub kind: u8,
    /// Code of `Mode` in the data model.
    pub mode: u8,
    /// Power-of-two bucket of the duration.
    pub bucket: u8,
    /// How the blocker is known: one of [`blocked`]. Of a [hold](happened::HOLD) one of how many it was drawn of, as a power of two.
    pub blocked: u8,
    /// Place of the thread's name, from 1.
    pub comm: u16,
}

impl Meta {
    /// This happened, and nothing else is known.
    pub const fn of(happened: u8) -> Self {
        Self { happened, kind: 0, mode: 0, bucket: 0, blocked: 0, comm: 0 }
    }

    /// Packed, and never 0.
    pub const fn pack(self) -> u64 {
        1 | (self.happened as u64) << 8
            | (self.kind as u64) << 16
            | (self.mode as u64) << 24
            | (self.bucket as u64) << 32
            | (self.blocked as u64) << 40
            | (self.comm as u64) << 48
    }

    /// What was packed.
    pub const fn unpack(packed: u64) -> Self {
        Self {
            happened: (packed >> 8) as u8,
            kind: (packed >> 16) as u8,
            mode: (packed >> 24) as u8,
            bucket: (packed >> 32) as u8,
            blocked: (packed >> 40) as u8,
            comm: (packed >> 48) as u16,
        }
    }
}

/// Codes of `Happened` in the data model.
pub mod happened {
    /// A wait.
    pub const WAIT: u8 = 1;
    /// A hold.
    pub const HOLD: u8 = 2;
    /// A wait for a condition or a barrier.
    pub const IDLE: u8 = 4;
    /// A wait for a lock that timed out.
    pub const TIMED_OUT: u8 = 6;
    /// A hold that was so long that it would have been seen whether or not it was to be timed. Not in the data model.
    pub const LONG_HOLD: u8 = 0x43;
    /// A hold that was not timed: such a sample is a [`CountedSlot`](super::CountedSlot). Not in the data model.
    pub const UNTIMED: u8 = 0x40;
    /// An acquisition by another thread than that of the last hold, which was watched: a count only. Not in the data model.
    pub const MOVED: u8 = 0x41;
    /// An acquisition after a watched hold, by the same thread or another: a count only. Not in the data model.
    pub const WATCHED: u8 = 0x42;
    /// The part of waits that one holder had: a time, by the site and the bucket of the waits, which are counted as
    /// [divided](super::blocked::DIVIDED). Not in the data model.
    pub const PART: u8 = 0x44;
    /// As [`PART`], of waits that [timed out](TIMED_OUT). Not in the data model.
    pub const PART_OF_TIMED_OUT: u8 = 0x45;
    /// As [`PART`], of waits for a condition that timed out, of any duration: one after the other they are divided together. Not in
    /// the data model.
    pub const PART_OF_IDLE: u8 = 0x47;
    /// The part of waits for a spinning lock during which the thread had no CPU: a time, by the site and the bucket of the waits. Not in
    /// the data model.
    pub const OFF_CPU: u8 = 0x46;

    /// What parts of this are counted as; `None` if it has none.
    pub const fn part_of(whole: u8) -> Option<u8> {
        match whole {
            WAIT => Some(PART),
            TIMED_OUT => Some(PART_OF_TIMED_OUT),
            IDLE => Some(PART_OF_IDLE),
            _ => None,
        }
    }

    /// What this is a part of; `None` if it is whole.
    pub const fn whole_of(part: u8) -> Option<u8> {
        match part {
            PART | OFF_CPU => Some(WAIT),
            PART_OF_TIMED_OUT => Some(TIMED_OUT),
            PART_OF_IDLE => Some(IDLE),
            _ => None,
        }
    }
}

/// Codes of `Mode` in the data model.
pub mod mode {
    /// The lock knows no readers.
    pub const EXCLUSIVE: u8 = 1;
    /// As a reader.
    pub const READ: u8 = 2;
    /// As a writer.
    pub const WRITE: u8 = 3;
}

/// Kinds of locks, as codes of `Kind` in the data model.
pub mod kind {
    /// `pthread_spinlock_t`.
    pub const SPIN: u8 = 1;
    /// `pthread_rwlock_t`.
    pub const RWLOCK: u8 = 2;
    /// `pthread_mutex_t`.
    pub const MUTEX: u8 = 3;
    /// `sem_t`.
    pub const SEMAPHORE: u8 = 7;
    /// `pthread_cond_t`.
    pub const CONDVAR: u8 = 9;
    /// `pthread_barrier_t`.
    pub const BARRIER: u8 = 10;
}

/// How a blocker is known.
pub mod blocked {
    /// It is not.
    pub const UNKNOWN: u8 = 0;
    /// It released the lock while we waited.
    pub const RELEASER: u8 = 1;
    /// It had acquired the lock when we came; its release was not seen.
    pub const HOLDER: u8 = 2;
    /// [Parts](super::happened::PART) of it had holders; what is left, nobody had.
    pub const DIVIDED: u8 = 3;
    /// Holders whose releases are no longer kept.
    pub const EARLIER: u8 = 4;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let meta = Meta { happened: 2, kind: 10, mode: 3, bucket: 63, blocked: 2, comm: 65535 };
        assert_eq!(Meta::unpack(meta.pack()), meta);
        assert_ne!(Meta { happened: 0, kind: 0, mode: 0, bucket: 0, blocked: 0, comm: 0 }.pack(), 0);
    }
}
