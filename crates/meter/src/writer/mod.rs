//! What runs inside the metered program.
//!
//! Nothing here allocates, takes a lock, panics by design, or calls a function of libc that could come back to an interposed
//! one. Everything may run in a signal handler, on a small stack, before and after `main`.
//!
//! No value here has a destructor: a thread that is cancelled in its wait unwinds through the callers.

mod awaited;
mod build_id;
mod clock;
mod creation;
mod executed;
mod hash;
mod holder;
mod holds;
mod locks;
mod names;
mod newest_hold;
mod pages;
mod release_cache;
mod releases;
mod rows;
mod samples;
mod segment;
mod shared_locks;
mod shared_samples;
mod spinning;
mod stack_cache;
mod stacks;
mod stops;
pub mod swap_filter;
mod syscalls;
mod thread;
mod ticks;
mod timing;
mod tls;
mod unloaded;
mod unwind;
mod waiters;

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

pub use crate::layout::{HOLD, OFF, WAIT, kind, mode};
use crate::layout::{
    LockEntry, Lost, Meta, Process, Releaser, SITE_IS_THREAD, Session, Swap, Thread, blocked, happened, pack_part,
};
#[cfg(feature = "reader")]
pub(crate) use clock::monotonic_ns;
pub use executed::{Environment, Program, execute};
pub use hash::CELL_MULTIPLIER;
use holder::Holder;
pub use holds::{Releasing, acquired, begin_inner_release, begin_release, count_untimed, ends_with_owner, released};
use locks::Sampled;
pub use newest_hold::{acquired_timed, end_newest_hold};
pub use release_cache::RELEASE_CACHE_SHIFT;
use releases::{By, Part, Parts};
pub use rows::CHANGES;
use samples::Key;
pub use segment::HEADER;
pub use shared_locks::may_be_shared;
pub use spinning::spin;
pub use ticks::TICK;
pub use timing::{CELL_SHIFT, time_next};
pub use tls::{QUIET, TABLE};
pub use unwind::Registers;
use waiters::Waiters;
pub use waiters::{WAITERS, WAITERS_SHIFT};

/// Begins metering for the session in this directory, which says in text how. Called once, when the library is loaded; before,
/// everything is off.
pub fn start(directory: &[u8], session: &[u8]) {
    let Some(session) = Session::parse(session) else { return };
    let Some(memory) = names::keep_memory_path(directory) else { return };
    names::prepare();
    unwind::prepare();
    thread::watch_ends();
    segment::start(memory, session);
}

/// To be called in a process that is about to fork, after all else that runs there.
pub fn before_fork() {
    holds::note_inherited();
    segment::before_fork();
}

/// To be called in it when it has forked.
pub fn after_fork_in_parent() {
    holds::forget_inherited();
}

/// To be called in a forked child, before anything else runs there.
pub fn after_fork_in_child() {
    executed::after_fork_in_child();
    segment::after_fork_in_child();
    thread::forget();
    waiters::forget();
    shared_locks::forget_all();
    rows::forget();
}

/// Where glibc keeps the id of a thread, from what the fs register points to. To be called first of all, by one that has seen that it
/// is there; else each thread that records asks the kernel for its id.
pub fn set_thread_id_at(offset: usize) {
    tls::set_thread_id_at(offset);
}

/// The current thread enters the strict mode of seccomp, which forbids the time stamp counter; or, if not `so`, could not.
pub fn forbid_clock(so: bool) {
    thread::stop_clock(so);
}

/// The process is about to limit its address space to this many bytes, of which it is to have most for itself.
pub fn addresses_limited(bytes: u64) {
    pages::leave_addresses_to_program(bytes);
}

/// The process is about to lock all of its memory, which may be limited.
pub fn addresses_locked() {
    pages::leave_addresses_to_program(syscalls::own_limit(libc::RLIMIT_MEMLOCK));
}

/// Whether anything can be read at this address, as far as it can be told without touching it.
pub fn is_readable(address: *const core::ffi::c_void) -> bool {
    !address.is_null() && syscalls::is_readable(address.cast())
}

/// Whether a process has this id that is the current one.
pub fn is_own_process(pid: i32) -> bool {
    pid == 0 || segment::process_id() == pid.cast_unsigned()
}

/// The current thread has this name from now on.
pub fn thread_renamed(name: &[u8]) {
    if let Some(segment) = segment::current() {
        thread::renamed(names::comm(segment, name));
    }
}

/// As [`thread_renamed`], of another thread, to whose descriptor its fs register points.
///
/// # Safety
/// It goes on living meanwhile.
pub unsafe fn other_thread_renamed(descriptor: usize, name: &[u8]) {
    if let Some(segment) = segment::current() {
        // SAFETY: the caller's obligation.
        unsafe { thread::other_renamed(descriptor, names::comm(segment, name)) };
    }
}

/// To be called when a library was unloaded.
pub fn library_unloaded() {
    unwind::forget();
    creation::library_unloaded();
    names::forget_inherited();
    if let Some(segment) = segment::current() {
        unloaded::move_away(segment);
    }
}

/// What is metered now: [`OFF`], [`WAIT`] or [`HOLD`].
#[inline]
pub fn level() -> u32 {
    segment::header().level.load(Relaxed)
}

/// Counts what became of a lock that was to be swapped.
pub fn count_swap(swap: Swap) {
    segment::count_swap(swap);
}

/// This thread's id.
pub fn thread_id() -> u32 {
    tls::thread_id()
}

/// Wakes one of those of this process that sleep until this word changes. Only its address counts: the word may be gone.
pub fn wake_one(word: *const AtomicU32) {
    syscalls::wake_one(word);
}

/// A lock, and how it is wanted.
#[derive(Debug, Clone, Copy)]
#[repr(C)] // Two registers hold it.
pub struct Wanted {
    /// Its address.
    pub lock: usize,
    /// One of [`kind`].
    pub kind: u8,
    /// One of [`mode`].
    pub mode: u8,
}

/// A wait that has begun.
#[derive(Debug)]
#[must_use]
pub struct Waiting {
    wanted: Wanted,
    begun: u64,
    site: u64,
    holder: Holder,
    /// The thread that the lock named; 0: none.
    named: u32,
    /// As one that processes share the lock has this number, and counts those who wait; 0: it does not.
    shared: u16,
    /// Not counted, but the counter of waiters was raised, if false.
    counted: bool,
    /// In ticks: for how long of it the thread, which spins, had no CPU.
    off_cpu: u64,
}

/// A lock could not be had at once: the wait begins.
pub fn begin_wait(wanted: Wanted, registers: &Registers) -> Waiting {
    begin_wait_for(wanted, 0, registers)
}

/// As [`begin_wait`], where the lock names the thread that has it (0: it does not).
#[cold]
#[inline(never)]
pub fn begin_wait_for(wanted: Wanted, holder: u32, registers: &Registers) -> Waiting {
    let has_clock = !tls::has_no_clock();
    let begun = if has_clock { clock::ticks() } else { 0 };
    waiters::came(wanted.lock);
    let mut waiting = Waiting {
        wanted,
        begun,
        site: 0,
        holder: Holder::default(),
        named: holder,
        shared: 0,
        counted: false,
        off_cpu: 0,
    };
    if !has_clock {
        return waiting;
    }
    let Some(mine) = thread::mine() else {
        waiting.counted = thread::counts_with_others();
        return waiting;
    };
    if let Some(segment) = segment::current() {
        // The stack is taken while there is nothing to do but wait.
        waiting.site = stack_cache::site(segment, mine.thread, registers, 0);
        waiting.shared = shared_locks::number(segment, wanted.lock);
        waiting.holder =
            shared_locks::came(waiting.shared, holder).unwrap_or_else(|| holder::look(segment, wanted.lock, holder));
        waiting.counted = true;
    }
    mine.thread.waiting[1].store(begun, Relaxed);
    mine.thread.waiting[0].store(wanted.lock as u64, Relaxed);
    mine.done();
    waiting
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With the lock.
    Acquired,
    /// Its time was up. The thread that has the lock then; 0: the lock does not say.
    TimedOut(u32),
    /// With neither: the call failed, or was interrupted.
    Failed,
}

/// The wait is over. Returns whether it was one for work: nobody had the semaphore meanwhile.
#[cold]
#[inline(never)]
pub fn end_wait(waiting: Waiting, outcome: Outcome) -> bool {
    let ended = if tls::has_no_clock() { waiting.begun } else { clock::ticks() };
    waiters::gone(waiting.wanted.lock);
    shared_locks::gone(waiting.shared);
    record_wait(&waiting, ended, outcome)
}

fn record_wait(waiting: &Waiting, ended: u64, outcome: Outcome) -> bool {
    if !waiting.counted {
        return false;
    }
    let Some(mine) = thread::mine() else {
        if let Some(thread) = thread::table() {
            // Another task may have written what that one waits for since.
            let waited_for = waiting.wanted.lock as u64;
            let _ = thread.waiting[0].compare_exchange(waited_for, 0, Relaxed, Relaxed);
        }
        if outcome != Outcome::Failed && thread::counts_with_others() {
            let ns = stops::between_ns_running(waiting.begun, ended);
            count_without_table(waiting, happened_by(waiting.wanted.kind, outcome), ns);
        }
        return false;
    };
    let mut is_for_work = false;
    mine.thread.waiting[0].store(0, Relaxed);
    if mine.thread.held_count.load(Relaxed) == 0 {
        mine.thread.clock_read.store(ended, Relaxed);
    }
    if outcome != Outcome::Failed
        && let Some(segment) = segment::current()
    {
        let ns = stops::between_ns_running(waiting.begun, ended);
        count_off_cpu(segment, mine.thread, waiting, ns);
        is_for_work = count_wait(segment, mine.thread, waiting, (ended, ns), outcome);
    }
    mine.done();
    is_for_work
}

/// Counts for how long of a wait the thread did not spin.
fn count_off_cpu(segment: &'static Process, thread: &'static Thread, waiting: &Waiting, ns: u64) {
    let off_ns = clock::between_ns(0, waiting.off_cpu).min(ns);
    if off_ns > 0 {
        let lock = locks::find_or_make(segment, waiting.wanted.lock, waiting.wanted.kind, || waiting.site);
        let lock = lock.map_or(0, |found| u64::from(found.place));
        let meta = meta(happened::OFF_CPU, waiting.wanted, ns, blocked::UNKNOWN);
        samples::count_part(segment, thread, Key { meta, lock, site: waiting.site, blocker: 0 }, off_ns);
    }
}

#[cold]
fn count_without_table(waiting: &Waiting, happened: u8, ns: u64) {
    let Some(segment) = segment::current() else { return };
    segment::lose(Lost::Site);
    let Wanted { lock, kind, .. } = waiting.wanted;
    let place = locks::find_or_make(segment, lock, kind, || 0).map_or(0, |found| found.place);
    shared_samples::count(segment, meta(happened, waiting.wanted, ns, blocked::UNKNOWN), place, ns);
}

/// What a wait for this kind is.
const fn happened_by(kind: u8, outcome: Outcome) -> u8 {
    match (kind, outcome) {
        (kind::CONDVAR | kind::BARRIER, _) => happened::IDLE,
        (_, Outcome::TimedOut(_)) => happened::TIMED_OUT,
        _ => happened::WAIT,
    }
}

fn count_wait(
    segment: &'static Process,
    thread: &'static Thread,
    waiting: &Waiting,
    (ended, ns): (u64, u64),
    outcome: Outcome,
) -> bool {
    let Wanted { lock, kind, mode } = waiting.wanted;
    let found = locks::find_or_make(segment, lock, kind, || waiting.site);
    if let Some(found) = found.as_ref().filter(|_| kind == kind::CONDVAR) {
        count_timed_out(segment, thread, found.place);
        if matches!(outcome, Outcome::TimedOut(_)) && shared_locks::of_entry(found.entry()).is_none() {
            let meta = meta(happened::IDLE, waiting.wanted, ns, blocked::DIVIDED);
            remember_timed_out(segment, thread, (waiting, ended), found.place);
            let key = Key { meta, lock: found.place.into(), site: waiting.site, blocker: 0 };
            samples::count(segment, thread, key, ns);
            return false;
        }
    }
    let is_for_work = kind == kind::SEMAPHORE && found.as_ref().is_some_and(|found| hands_out_work(found.entry()));
    if let Some(found) = found.as_ref().filter(|_| is_divided(kind) && !is_for_work) {
        let times = (waiting.begun, ended);
        let shared = shared_locks::of_entry(found.entry());
        let parts = match shared {
            Some(shared) => releases::divide_elsewhere(shared, mode, times),
            None => releases::divide(segment, found.place, mode, times),
        };
        if shared.is_none() {
            releases::waited(thread, times, &parts);
        }
        if !parts.is_empty() {
            count_divided(segment, thread, waiting, (found, ns), (&parts, outcome));
            return false;
        }
    }
    let named = if matches!(outcome, Outcome::TimedOut(_)) { waiting.named } else { 0 };
    let (known, site, comm) = blame(waiting, found.map(|found| found.entry()), named);
    let (blocker, comm) = shared_locks::if_own(segment, site, comm);
    let place = found.map_or(0, |found| u64::from(found.place));
    let happened = if is_for_work { happened::IDLE } else { happened_by(kind, outcome) };
    let meta = meta(happened, waiting.wanted, ns, known);
    samples::count(segment, thread, Key { meta, lock: place | comm << 32, site: waiting.site, blocker }, ns);
    is_for_work
}

/// Whether a semaphore was last posted, while somebody waited for it, by a thread that had not taken it: then it guards nothing, and hands
/// out work.
fn hands_out_work(entry: &LockEntry) -> bool {
    let (released, by_a_taker) = match shared_locks::of_entry(entry) {
        Some(shared) => (&shared.released_at, &shared.writer_at),
        None => (&entry.released_at, &entry.writer_at),
    };
    released.load(Acquire) > by_a_taker.load(Acquire)
}

/// Whether a wait ends when holders have released the lock, and not by one event.
const fn is_divided(kind: u8) -> bool {
    !matches!(kind, kind::CONDVAR | kind::BARRIER)
}

/// A wait for the condition at this place has timed out. Who is to blame is known when somebody signals it. Waits that timed out before
/// and nobody has signalled since are put together with it, without the time between.
fn remember_timed_out(
    segment: &'static Process,
    thread: &'static Thread,
    (waiting, ended): (&Waiting, u64),
    condition: u32,
) {
    let [from, until, waited_for, waited_at] = &thread.timed_out;
    let goes_on = waited_for.load(Relaxed) == u64::from(condition) && waited_at.load(Relaxed) == waiting.site;
    let before = if goes_on { until.load(Relaxed).saturating_sub(from.load(Relaxed)) } else { 0 };
    from.store(waiting.begun.saturating_sub(before), Relaxed);
    until.store(ended, Relaxed);
    waited_for.store(condition.into(), Relaxed);
    waited_at.store(waiting.site, Relaxed);
    releases::keep(segment, condition);
}

/// Counts who is to blame for the last waits of this thread for this condition that timed out, if it has been signalled since.
#[inline(never)]
fn count_timed_out(segment: &'static Process, thread: &'static Thread, condition: u32) {
    let [from, until, waited_for, site] = thread.timed_out.each_ref().map(|word| word.load(Relaxed));
    if waited_for != u64::from(condition) {
        return;
    }
    let parts = releases::divide_timed_out(segment, condition, (from, until));
    if parts.is_empty() {
        return;
    }
    let wanted = Wanted { lock: 0, kind: kind::CONDVAR, mode: mode::EXCLUSIVE };
    let meta = meta(happened::IDLE, wanted, 0, blocked::DIVIDED);
    let mut left_ns = u64::MAX;
    count_parts(segment, thread, (Key { meta, lock: condition.into(), site, blocker: 0 }, &mut left_ns), &parts);
    thread.timed_out[2].store(0, Relaxed);
}

/// Counts what each holder had of waits.
fn count_parts(segment: &'static Process, thread: &'static Thread, (whole, left_ns): (Key, &mut u64), parts: &Parts) {
    for Part { by, ticks } in parts.iter() {
        let (blocked, by) = match by {
            By::Earlier => (blocked::EARLIER, (0, 0)),
            By::Own(by, root) => (blocked::RELEASER, pack_part(by, root)),
            By::Elsewhere(by) => (blocked::RELEASER, packed(shared_locks::if_own(segment, by, 0))),
        };
        count_part(segment, thread, (whole, left_ns), (blocked, by, clock::between_ns(0, ticks)));
    }
}

/// Counts what one of them had, at most what is left.
fn count_part(
    segment: &'static Process,
    thread: &'static Thread,
    (whole, left_ns): (Key, &mut u64),
    (blocked, (names, blocker), ns): (u8, (u64, u64), u64),
) {
    let ns = ns.min(*left_ns);
    *left_ns -= ns;
    let happened = happened::part_of(whole.meta.happened).unwrap_or(whole.meta.happened);
    let meta = Meta { happened, blocked, ..whole.meta };
    samples::count_part(segment, thread, Key { meta, lock: whole.lock | names, blocker, ..whole }, ns);
}

const fn packed((site, comm): (u64, u64)) -> (u64, u64) {
    (comm << 32, site)
}

/// Counts a wait for this lock, and what each holder had of it.
fn count_divided(
    segment: &'static Process,
    thread: &'static Thread,
    waiting: &Waiting,
    (lock, ns): (&Sampled, u64),
    (parts, outcome): (&Parts, Outcome),
) {
    let happened = happened_by(waiting.wanted.kind, outcome);
    let meta = meta(happened, waiting.wanted, ns, blocked::DIVIDED);
    let whole = Key { meta, lock: lock.place.into(), site: waiting.site, blocker: 0 };
    let mut left_ns = ns;
    count_parts(segment, thread, (whole, &mut left_ns), parts);
    if let Outcome::TimedOut(named) = outcome {
        // After the last release somebody else had it.
        let holder = match shared_locks::of_entry(lock.entry()) {
            Some(shared) => shared_locks::holder(shared, named).unwrap_or_default(),
            None => holder::look(segment, waiting.wanted.lock, named),
        };
        let (known, site, comm) = blame_holder(holder, named);
        let by = packed(shared_locks::if_own(segment, site, comm));
        count_part(segment, thread, (whole, &mut left_ns), (known, by, u64::MAX));
    }
    samples::count(segment, thread, whole, ns);
}

/// This holder as who made a thread wait: how that is known, the site, and the place of the thread's name. Of one that is not known, the
/// id by which the lock names it stands for the site; 0: it is not to be told.
const fn blame_holder(holder: Holder, named: u32) -> (u8, u64, u64) {
    match (holder, named) {
        (Holder { site: 0, comm: 0 }, 0) => (blocked::UNKNOWN, 0, 0),
        (Holder { site: 0, comm: 0 }, named) => (blocked::HOLDER, SITE_IS_THREAD | named as u64, 0),
        (Holder { site, comm }, _) => (blocked::HOLDER, site, comm as u64),
    }
}

/// Who made a thread wait for the lock with this entry, as [`blame_holder`] has it.
fn blame(waiting: &Waiting, entry: Option<&LockEntry>, named: u32) -> (u8, u64, u64) {
    let holder = blame_holder(waiting.holder, named);
    let Some(entry) = entry else { return holder };
    let (at, by, shift) = match waiting.wanted.mode {
        mode::READ => (&entry.writer_at, &entry.writer, 16),
        _ => (&entry.released_at, &entry.releaser, 0),
    };
    let at = at.load(Acquire);
    let comm = u64::from(entry.releaser_comm.load(Relaxed) >> shift & 0xffff);
    let own = if at < waiting.begun { holder } else { (blocked::RELEASER, by.load(Relaxed), comm) };
    let shared = shared_locks::of_entry(entry);
    shared.and_then(|shared| shared_locks::blame(shared, waiting, own.0, at)).unwrap_or(own)
}

#[inline]
fn meta(happened: u8, wanted: Wanted, ns: u64, blocked: u8) -> Meta {
    Meta { kind: wanted.kind, mode: wanted.mode, bucket: bucket(ns), blocked, ..Meta::of(happened) }
}

/// Power-of-two bucket of a duration.
#[inline(always)]
const fn bucket(ns: u64) -> u8 {
    (ns | 1).ilog2() as u8
}

/// A lock is about to be released: says who does it if somebody waits. `acquired` is where it was acquired (0: that is not known);
/// `is_contended` tells whether a lock that a thread in a condition wait may want back has a waiter.
#[inline]
pub fn releasing(held: Wanted, acquired: u64, registers: &Registers, is_contended: impl FnOnce() -> bool) {
    if is_waited_for(held.lock, is_contended) {
        note_releaser(held, held.mode == mode::WRITE, acquired, registers);
    }
}

/// Whether anybody waits for a lock; `is_contended` as in [`releasing`].
#[inline(always)]
fn is_waited_for(lock: usize, is_contended: impl FnOnce() -> bool) -> bool {
    match waiters::waiters(lock) {
        Waiters::Nobody => shared_locks::any() && shared_locks::is_waited_for(lock, is_contended),
        Waiters::InCondition => is_contended(),
        Waiters::Somebody => true,
    }
}

/// This thread has taken a semaphore.
pub fn semaphore_taken(semaphore: usize) {
    tls::take_semaphore(semaphore);
}

/// This thread waited for a semaphore, and was handed work by it.
pub fn semaphore_gave_work(semaphore: usize) {
    tls::give_semaphore(semaphore);
}

/// A semaphore is about to be posted: says who does it if somebody waits.
pub fn posting(semaphore: Wanted, registers: &Registers) {
    let had_it = tls::give_semaphore(semaphore.lock);
    if is_waited_for(semaphore.lock, || false) {
        note_releaser(semaphore, had_it, 0, registers);
    }
}

/// Leaves word of who releases a lock that somebody waits for; `is_writer`: it had the lock as a writer, or a semaphore at all.
#[cold]
#[inline(never)]
fn note_releaser(held: Wanted, is_writer: bool, acquired: u64, registers: &Registers) {
    if tls::has_no_clock() {
        return;
    }
    // Without a table the wait has no blocker, which its row says.
    let Some(mine) = thread::mine() else { return };
    if let Some(segment) = segment::current() {
        let site = stack_cache::site(segment, mine.thread, registers, acquired);
        if let Some(found) = locks::find_or_make(segment, held.lock, held.kind, || site) {
            let entry = found.entry();
            let comm = u32::from(mine.thread.comm.load(Relaxed));
            let writer_comm = entry.releaser_comm.load(Relaxed) & !0xffff;
            let now = clock::ticks();
            if let Some(shared) = shared_locks::of_entry(entry) {
                shared_locks::note_releaser(shared, segment, mine.thread, (site, is_writer, now));
            }
            entry.releaser.store(site, Relaxed);
            if is_writer {
                entry.writer.store(site, Relaxed);
                entry.releaser_comm.store(comm << 16 | comm, Relaxed);
                entry.writer_at.store(now, Release);
            } else {
                entry.releaser_comm.store(writer_comm | comm, Relaxed);
            }
            entry.released_at.store(now, Release);
            let is_condition = held.kind == kind::CONDVAR;
            if (is_divided(held.kind) || is_condition) && shared_locks::of_entry(entry).is_none() {
                let stack = stacks::number_of(segment, site).map_or(0, |place| place + 1);
                let by = Releaser { stack, comm: comm as u16, lock: found.place, is_writer: held.mode != mode::READ };
                releases::note(segment, mine.thread, (by, is_condition), now);
            }
        }
    }
    mine.done();
}

/// A condition wait that has begun.
#[derive(Debug)]
#[must_use]
pub struct InCondition {
    waiting: Waiting,
    mutex: usize,
}

/// A thread is about to wait for a condition, which gives its mutex back meanwhile.
#[inline(never)]
pub fn begin_condition(condition: usize, mutex: usize, registers: &Registers) -> InCondition {
    let wanted = Wanted { lock: condition, kind: kind::CONDVAR, mode: mode::EXCLUSIVE };
    waiters::condition_came(mutex);
    InCondition { waiting: begin_wait(wanted, registers), mutex }
}

/// It has its mutex again. What passed until the signal was a wait for the condition; if the mutex was contended after that,
/// the rest was a wait for the mutex. Of a wait that timed out all was for the condition: signals were for others.
#[inline(never)]
pub fn end_condition(condition: InCondition, has_timed_out: bool) {
    let InCondition { waiting, mutex } = condition;
    let ended = if tls::has_no_clock() { waiting.begun } else { clock::ticks() };
    waiters::condition_gone(mutex);
    waiters::gone(waiting.wanted.lock);
    shared_locks::gone(waiting.shared);
    let Some(segment) = segment::current() else { return };
    let released_at = |lock| {
        let own = locks::entry(segment, lock).map_or(0, |entry| entry.released_at.load(Acquire));
        shared_locks::of(segment, lock).map_or(own, |shared| own.max(shared.released_at.load(Acquire)))
    };
    let signalled = released_at(waiting.wanted.lock);
    let was_signalled = !has_timed_out && (waiting.begun..=ended).contains(&signalled);
    let woken = if was_signalled { signalled } else { ended };
    let given_back = released_at(mutex);
    let again =
        Waiting { wanted: Wanted { lock: mutex, kind: kind::MUTEX, mode: mode::EXCLUSIVE }, begun: woken, ..waiting };
    record_wait(&waiting, woken, if has_timed_out { Outcome::TimedOut(0) } else { Outcome::Acquired });
    if given_back > woken && woken < ended {
        record_wait(&again, ended, Outcome::Acquired);
    }
}

/// A lock was initialised. In few instructions: programs do so by the million.
#[inline(always)]
pub fn lock_created(lock: usize, kind: u8, registers: Registers) {
    let maker = creation::made(lock, registers);
    if creation::may_be_used(lock)
        && let Some(segment) = segment::current()
    {
        locks::made_again(segment, lock, kind, maker);
    }
}

/// As [`lock_created`], of a lock that says that processes may share it.
#[cold]
pub fn shared_lock_created(wanted: Wanted, registers: &Registers) {
    lock_created(wanted.lock, wanted.kind, *registers);
    shared_locks::was_made(wanted, stacks::address_site(registers));
}

/// A lock was destroyed.
#[inline]
pub fn lock_destroyed(lock: usize) {
    creation::forget(lock);
    if creation::may_be_used(lock)
        && let Some(segment) = segment::current()
    {
        locks::destroyed(segment, lock);
    }
}
