//! Locks that processes share: who waits, who has them, and who had them last stand where all processes of the session see it, once the
//! recorder has told which locks of which processes are one.

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use super::hash::CELL_MULTIPLIER;
use super::holder::Holder;
use super::{Waiting, Wanted, locks, pages, releases, segment, stacks, tls};
use crate::layout::{
    ENTRY_NUMBER_SHIFT, ENTRY_SHARED, LockEntry, Process, SHARED_LOCKS, SITE_IS_STACK, SharedLock, Thread, blocked,
    mode, pack_elsewhere, unpack_elsewhere,
};

/// This process, or one that forked it, has used a lock that processes may share. Else nothing here costs more than to read this.
#[unsafe(link_section = ".data.lockmeter_inherited")]
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether this process may use any such lock.
#[inline(always)]
pub(super) fn any() -> bool {
    ANY.load(Relaxed)
}

/// Locks by a hash of the address: the address, and from bit [`ADDRESS_BITS`] the number. Saves the search in the table of locks at each
/// use.
#[unsafe(link_section = ".data.lockmeter_inherited")]
static KNOWN: [AtomicU64; KNOWN_LOCKS] = [const { AtomicU64::new(0) }; KNOWN_LOCKS];
/// A power of two.
const KNOWN_LOCKS: usize = 64;
const ADDRESS_BITS: u32 = 48;

/// In place of a number: the lock does not say that processes may share it. No lock has this number.
const PRIVATE: u16 = u16::MAX;
const _: () = assert!(SHARED_LOCKS < PRIVATE as usize);

/// What `shared_changes` of the process was when [`KNOWN`] was empty.
#[unsafe(link_section = ".data.lockmeter_inherited")]
static KNOWN_SINCE: AtomicU32 = AtomicU32::new(0);

fn known_at(lock: usize) -> &'static AtomicU64 {
    &KNOWN[((lock as u32).wrapping_mul(CELL_MULTIPLIER) >> (u32::BITS - KNOWN_LOCKS.ilog2())) as usize % KNOWN_LOCKS]
}

/// The number of a lock that was looked up before.
#[inline]
fn known(lock: usize) -> Option<u16> {
    let changes = segment::header().shared_changes.load(Acquire);
    if KNOWN_SINCE.load(Relaxed) != changes {
        KNOWN_SINCE.store(changes, Relaxed);
        forget_all();
        return None;
    }
    let word = known_at(lock).load(Relaxed);
    ((word ^ lock as u64) << (u64::BITS - ADDRESS_BITS) == 0).then_some((word >> ADDRESS_BITS) as u16)
}

/// Looks the number of a lock up.
#[cold]
#[inline(never)]
fn look_up(segment: &'static Process, lock: usize) -> u16 {
    let changes = segment.shared_changes.load(Acquire);
    let Some(entry) = locks::entry(segment, lock) else { return 0 };
    let flags = entry.flags.load(Acquire);
    let number = if flags & ENTRY_SHARED == 0 { PRIVATE } else { (flags >> ENTRY_NUMBER_SHIFT) as u16 };
    if (lock as u64) < 1 << ADDRESS_BITS {
        known_at(lock).store(lock as u64 | u64::from(number) << ADDRESS_BITS, SeqCst);
        if segment.shared_changes.load(SeqCst) != changes {
            // Too late: others have forgotten all before.
            known_at(lock).store(0, Relaxed);
        }
    }
    number
}

/// The lock at this address is no more.
pub(super) fn forget(lock: usize) {
    if any() {
        known_at(lock).store(0, Relaxed);
    }
}

/// All numbers are to be looked up again: in a forked child they are others.
pub(super) fn forget_all() {
    if !any() {
        return;
    }
    for known in KNOWN.iter().filter(|known| known.load(Relaxed) != 0) {
        known.store(0, Relaxed);
    }
}

/// This lock says that processes may share it: the recorder is to find out. To be called before it is acquired, waited for or posted, by a
/// call that returns to `site`, while metering is on.
#[inline]
pub fn may_be_shared(wanted: Wanted, site: u64) {
    if known(wanted.lock).is_none_or(|number| number == PRIVATE) {
        note(wanted, site, inherited);
    }
}

/// As [`may_be_shared`], of a lock that was just initialised. The recorder knows it then before children are forked that use it.
pub(super) fn was_made(wanted: Wanted, site: u64) {
    let made = segment::current().map_or(0, |segment| segment.shared_locks.load(Relaxed));
    if made < MOST_MADE {
        note(wanted, site, |_| 0);
    }
}

/// Programs may make more locks than they use: no more than this many get an entry before they are used.
const MOST_MADE: u32 = 256;

#[cold]
#[inline(never)]
fn note(wanted: Wanted, site: u64, number: impl FnOnce(usize) -> u16) {
    if !any() {
        ANY.store(true, Relaxed);
    }
    if let Some(segment) = segment::current_or_new() {
        locks::note_shared(segment, wanted, site, number);
        look_up(segment, wanted.lock);
    }
}

/// The number that this lock has in the process that forked this one: until the recorder has looked, it is believed to be the same here.
/// 0: it has none, or that process is no more.
fn inherited(lock: usize) -> u16 {
    let number = |parent| locks::entry(parent, lock).map_or(0, number_of_entry);
    let found = segment::parent().map_or(0, number);
    // Others may have its pages since.
    if segment::parent().is_some() { found } else { 0 }
}

/// The number of a lock among those of the session; 0 or [`PRIVATE`]: the recorder knows it for none.
#[inline]
pub(super) fn number(segment: &'static Process, lock: usize) -> u16 {
    if any() { known(lock).unwrap_or_else(|| look_up(segment, lock)) } else { 0 }
}

fn number_of_entry(entry: &LockEntry) -> u16 {
    (entry.flags.load(Acquire) >> ENTRY_NUMBER_SHIFT) as u16
}

/// What the session knows of the lock with this entry.
pub(super) fn of_entry(entry: &LockEntry) -> Option<&'static SharedLock> {
    pages::shared_lock(number_of_entry(entry))
}

/// What the session knows of a lock.
pub(super) fn of(segment: &'static Process, lock: usize) -> Option<&'static SharedLock> {
    pages::shared_lock(number(segment, lock))
}

/// A thread begins to wait for the lock with this number. Who has it, if that is the thread with this id.
pub(super) fn came(number: u16, thread: u32) -> Option<Holder> {
    let lock = pages::shared_lock(number)?;
    lock.waiting.fetch_add(1, Relaxed);
    holder(lock, thread)
}

/// As [`blame`](super::blame), by what all processes know; `None` if that is no more than this one knows: in this manner, from a release
/// at `own_at` if from one.
pub(super) fn blame(lock: &SharedLock, waiting: &Waiting, own: u8, own_at: u64) -> Option<(u8, u64, u64)> {
    let (at, by) = match waiting.wanted.mode {
        mode::READ => (&lock.writer_at, &lock.writer),
        _ => (&lock.released_at, &lock.releaser),
    };
    if at.load(Acquire) >= waiting.begun.max(own_at) {
        return Some((blocked::RELEASER, by.load(Relaxed), 0));
    }
    // It was killed, or its number was not known when the wait began.
    let holder = if own == blocked::RELEASER { None } else { holder(lock, waiting.named) };
    holder.map(|holder| (blocked::HOLDER, holder.site, 0))
}

/// Who has the lock, if that is the thread with this id: a holder that was killed, or is not metered, has left what another wrote.
pub(super) fn holder(lock: &SharedLock, thread: u32) -> Option<Holder> {
    let is_it = thread != 0 && lock.holder_thread.load(Acquire) == thread;
    let site = if is_it { lock.holder.load(Relaxed) } else { 0 };
    (site != 0).then_some(Holder { site, comm: 0 })
}

/// It waits no more.
pub(super) fn gone(number: u16) {
    if let Some(lock) = pages::shared_lock(number) {
        lock.waiting.fetch_sub(1, Relaxed);
    }
}

/// Whether anybody waits for the lock, in this process or another; `is_contended` as in [`releasing`](super::releasing).
pub(super) fn is_waited_for(lock: usize, is_contended: impl FnOnce() -> bool) -> bool {
    let lock = segment::current().and_then(|segment| of(segment, lock));
    lock.is_some_and(|lock| lock.waiting.load(Relaxed) > 0 || is_contended())
}

/// This thread has acquired a lock, by a call that returns to `site`, as no reader.
pub(super) fn acquired(segment: &'static Process, thread: &'static Thread, wanted: Wanted, site: u64) {
    if wanted.mode == mode::READ {
        return;
    }
    if let Some(lock) = of(segment, wanted.lock) {
        lock.holder.store(elsewhere(segment, thread, site), Relaxed);
        lock.holder_thread.store(tls::thread_id(), Release);
    }
}

/// This thread is about to release a lock, as no reader.
pub(super) fn releases(wanted: Wanted) {
    if wanted.mode == mode::READ {
        return;
    }
    if let Some(lock) = segment::current().and_then(|segment| of(segment, wanted.lock)) {
        lock.holder_thread.store(0, Relaxed);
    }
}

/// Leaves word for all processes of who releases a lock.
pub(super) fn note_releaser(
    lock: &SharedLock,
    segment: &'static Process,
    thread: &'static Thread,
    (site, is_writer, now): (u64, bool, u64),
) {
    let site = elsewhere(segment, thread, site);
    releases::note_elsewhere(lock, site, is_writer, now);
    lock.releaser.store(site, Relaxed);
    if is_writer {
        lock.writer.store(site, Relaxed);
        lock.writer_at.store(now, Release);
    }
    lock.released_at.store(now, Release);
}

/// The thread that has this table, among all of the session.
fn thread_of(thread: &'static Thread) -> u64 {
    u64::from(pages::number_of(thread)) << u32::BITS | u64::from(thread.owner.load(Relaxed))
}

/// Whether the lock is watched, and was this thread's.
pub(super) fn is_mine(lock: &SharedLock, thread: &'static Thread) -> bool {
    lock.watched.load(Relaxed) == thread_of(thread)
}

/// As [`Sampled::watch`](locks::Sampled::watch), whatever process the thread before was of.
pub(super) fn watch(lock: &SharedLock, thread: &'static Thread, watches: bool) -> Option<bool> {
    let me = thread_of(thread);
    let after = if watches { me } else { 0 };
    let before = lock.watched.load(Relaxed);
    if before != after {
        lock.watched.store(after, Relaxed);
    }
    (before != 0).then_some(before != me)
}

/// Whether it is to be seen who has this lock next.
pub(super) fn is_watched(lock: usize) -> bool {
    let lock = segment::current().and_then(|segment| of(segment, lock));
    lock.is_some_and(|lock| lock.watched.load(Relaxed) != 0)
}

/// A site of this process as others understand it; 0 if there is no room for it.
fn elsewhere(segment: &'static Process, thread: &'static Thread, site: u64) -> u64 {
    let comm = thread.comm.load(Relaxed).into();
    stacks::number_of(segment, site).map_or(0, |place| pack_elsewhere(segment.number.load(Relaxed), place, comm))
}

/// A site, and the place of a thread's name: if they are this process's own, as it alone understands them.
pub(super) fn if_own(segment: &'static Process, site: u64, comm: u64) -> (u64, u64) {
    match unpack_elsewhere(site) {
        Some((process, stack, comm)) if process == segment.number.load(Relaxed) => {
            (SITE_IS_STACK | u64::from(stack), comm.into())
        }
        Some(_) => (site, 0),
        None => (site, comm),
    }
}
