//! A reader-writer semaphore after the design of 2013 (Linux's `kernel/locking/rwsem.c`, Tim Chen's and Waiman Long's work):
//! writers are known as owners, waiters spin in a queue while the owner runs, the free lock may be stolen from those who sleep,
//! and is handed over to who waited too long.

mod holds;
mod policy;
mod state;

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::time::Duration;

use crate::instrument::{Contended, HoldStart, Instrument, Kind, Mode, Unmetered, metered_wait};
use crate::lockdep::Ordered;
use crate::mutex::{NotAcquired, Until, is_past, low_us};
use crate::spin_queue::{SpinQueue, Turn};
use crate::spinning::{SPIN_NS, Spinning};
use crate::sync::{
    AtomicU16, AtomicU32, Bed, Deadline, FutexDouble, WaitEnd, const_unless_model, fence, mutated, now_ns, yield_now,
};
use crate::threads::{UNKNOWN, own_slot, owner_number, owner_word, short};

pub use policy::{NoHandoff, NoReaderSpin, NoSpin, NoSteal, Policy, Standard};
use state::{HEIR, READER, READER_COUNT, READERS, WRITER, WRITERS, is_held, is_read, taken_from};

/// Waiting longer makes an heir of a waiter; more often than once in this time nobody inherits, because a lock that is always
/// handed over runs at the speed of the scheduler.
const HANDOFF_AFTER_NS: u64 = 1_000_000;

/// Spinners may pass writers that sleep for this long; then one of those is woken all the same.
const PASSING_NS: u64 = 1_000_000;

/// How long a writer waits awake for readers, of whom it is not known whether they run.
const READER_SPIN_NS: u64 = 10_000;

/// How often a thread stands back for those who slept, where the lock may not be stolen, before it takes them for gone.
const STAND_BACK: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 100 };

/// The semaphore without its data: see [`RwLock`](crate::RwLock) for the one with.
#[derive(Debug)]
pub struct RawRwSem<P: Policy = Standard, I: Instrument = Unmetered> {
    state: FutexDouble,
    spinners: SpinQueue,
    /// Writers that sleep, or are about to, or have woken up and not looked around yet.
    sleeping_writers: AtomicU32,
    /// The reader that took it last after a wait: a hint, for spinners.
    last_reader: AtomicU16,
    /// When a writer that slept was sent a wake-up last, and when it was last reserved: the low bits of the clock in microseconds.
    woken_at_us: AtomicU32,
    reserved_at_us: AtomicU32,
    hold_start: I::HoldStart,
    instrument: I,
    order: Ordered,
    policy: PhantomData<P>,
}

/// A thread in the slow path.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    mode: Mode,
    /// Has set [`HEIR`].
    heir: bool,
    /// Has slept.
    slept: bool,
    /// Has to see to it that writers that sleep are woken one day: it was woken in their place, or took [`WRITERS`] off.
    on_duty: bool,
    stood_back: u32,
    begun_ns: Option<u64>,
}

impl Waiter {
    fn new(mode: Mode) -> Self {
        Waiter { mode, heir: false, slept: false, on_duty: false, stood_back: 0, begun_ns: None }
    }

    fn reads(&self) -> bool {
        self.mode == Mode::Read
    }
}

impl RawRwSem {
    const_unless_model! {
        /// A free semaphore.
        #[must_use]
        #[allow(clippy::new_without_default)]
        #[track_caller]
        pub const fn new() -> Self {
            Self::with_order(Unmetered, Ordered::made_here())
        }
    }
}

impl<P: Policy, I: Instrument> RawRwSem<P, I> {
    const_unless_model! {
        /// A free semaphore with its policy and hooks.
        #[must_use]
        #[track_caller]
        pub const fn with(instrument: I) -> Self {
            Self::with_order(instrument, Ordered::made_here())
        }
    }

    const_unless_model! {
        /// A free one of which nobody knows where it is made.
        pub(crate) const fn nameless(instrument: I) -> Self {
            Self::with_order(instrument, Ordered::nameless())
        }
    }

    const_unless_model! {
        const fn with_order(instrument: I, order: Ordered) -> Self {
            RawRwSem {
                state: FutexDouble::new(0),
                spinners: SpinQueue::new(),
                sleeping_writers: AtomicU32::new(0),
                last_reader: AtomicU16::new(short(UNKNOWN)),
                woken_at_us: AtomicU32::new(0),
                reserved_at_us: AtomicU32::new(0),
                hold_start: I::HoldStart::INIT,
                instrument,
                order,
                policy: PhantomData,
            }
        }
    }

    /// A free one with a name, for reports and for the order of locks.
    #[must_use]
    #[track_caller]
    pub fn named(name: &'static str) -> Self {
        Self::with_order(I::named(name), Ordered::named(name))
    }

    /// Locks it for writing.
    #[inline]
    #[track_caller]
    pub fn write(&self) {
        self.write_nested(0);
    }

    /// Locks it for writing inside of another of its class: `subclass` makes a class of its own, for the order of locks.
    #[inline]
    #[track_caller]
    pub fn write_nested(&self, subclass: u8) {
        self.order.acquire(subclass);
        if !self.write_at_once() {
            let _acquired = self.lock_slow(Mode::Write, Until::default());
        }
    }

    /// Locks it for writing if it can be had at once.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> bool {
        let locked = self.write_at_once() || self.take_first();
        if locked {
            self.order.acquired_by_try();
        }
        locked
    }

    /// Locks it for writing unless `timeout` is over before.
    ///
    /// # Errors
    ///
    /// [`NotAcquired::TimedOut`].
    #[inline]
    #[track_caller]
    pub fn write_for(&self, timeout: Duration) -> Result<(), NotAcquired> {
        self.write_until(|| Until { deadline: Some(Deadline::after(timeout)), interruptible: false })
    }

    /// Locks it for writing unless a signal handler runs in this thread while it sleeps.
    ///
    /// # Errors
    ///
    /// [`NotAcquired::Interrupted`].
    #[inline]
    #[track_caller]
    pub fn write_interruptible(&self) -> Result<(), NotAcquired> {
        self.write_until(|| Until { deadline: None, interruptible: true })
    }

    #[inline(always)]
    #[track_caller]
    fn write_until(&self, until: impl FnOnce() -> Until) -> Result<(), NotAcquired> {
        self.order.acquire(0);
        if self.write_at_once() {
            return Ok(());
        }
        let result = self.lock_slow(Mode::Write, until());
        if result.is_err() {
            self.order.release();
        }
        result
    }

    /// Locks it for reading.
    #[inline]
    #[track_caller]
    pub fn read(&self) {
        self.read_nested(0);
    }

    /// Locks it for reading inside of another of its class: `subclass` makes a class of its own, for the order of locks.
    #[inline]
    #[track_caller]
    pub fn read_nested(&self, subclass: u8) {
        self.order.acquire(subclass);
        if !self.read_at_once() {
            let _acquired = self.lock_slow(Mode::Read, Until::default());
        }
    }

    /// Locks it for reading if it can be had at once.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> bool {
        let locked = self.read_at_once() || self.keep_count();
        if locked {
            self.order.acquired_by_try();
        }
        locked
    }

    /// Joins readers that hold it, whoever waits: for a thread that may hold it for reading already, and would wait for itself
    /// if it waited for a writer. Where nobody reads, as [`try_read`](Self::try_read).
    pub fn try_read_again(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while state & WRITER == 0 && state & READER_COUNT != 0 {
            match self.state.compare_exchange_weak(state, state + READER, Acquire, Relaxed) {
                Ok(_) => {
                    self.order.acquired_by_try();
                    return true;
                }
                Err(now) => state = now,
            }
        }
        self.try_read()
    }

    /// Locks it for reading unless `timeout` is over before.
    ///
    /// # Errors
    ///
    /// [`NotAcquired::TimedOut`].
    #[inline]
    #[track_caller]
    pub fn read_for(&self, timeout: Duration) -> Result<(), NotAcquired> {
        self.read_until(|| Until { deadline: Some(Deadline::after(timeout)), interruptible: false })
    }

    /// Locks it for reading unless a signal handler runs in this thread while it sleeps.
    ///
    /// # Errors
    ///
    /// [`NotAcquired::Interrupted`].
    #[inline]
    #[track_caller]
    pub fn read_interruptible(&self) -> Result<(), NotAcquired> {
        self.read_until(|| Until { deadline: None, interruptible: true })
    }

    #[inline(always)]
    #[track_caller]
    fn read_until(&self, until: impl FnOnce() -> Until) -> Result<(), NotAcquired> {
        self.order.acquire(0);
        if self.read_at_once() {
            return Ok(());
        }
        let result = self.lock_slow(Mode::Read, until());
        if result.is_err() {
            self.order.release();
        }
        result
    }

    /// Whether anybody holds it.
    pub fn is_locked(&self) -> bool {
        is_held(self.state.load(Relaxed))
    }

    /// Whether a writer holds it.
    pub fn is_locked_for_writing(&self) -> bool {
        self.state.load(Relaxed) & WRITER != 0
    }

    /// Unlocks it after writing.
    ///
    /// # Safety
    ///
    /// This thread holds it for writing.
    #[inline]
    pub unsafe fn unlock_write(&self) {
        self.end_write_hold();
        let own = owner_word();
        let state = self.state.fetch_sub(own, mutated!("rwsem-write-release", Relaxed, Release));
        if state != own {
            self.wake(state - own);
        }
    }

    /// Unlocks it after writing, in the place of the thread that holds it.
    ///
    /// # Safety
    ///
    /// A thread holds it for writing and has left the unlocking to the caller.
    pub unsafe fn unlock_write_for_owner(&self) {
        self.end_write_hold();
        let owner = self.state.load(Relaxed) & (WRITER | !u64::from(u32::MAX));
        let state = self.state.fetch_sub(owner, Release);
        if state != owner {
            self.wake(state - owner);
        }
    }

    /// Unlocks it after reading.
    ///
    /// # Safety
    ///
    /// The caller holds it for reading.
    #[inline]
    pub unsafe fn unlock_read(&self) {
        self.end_read_hold();
        let state = self.state.fetch_sub(READER, mutated!("rwsem-read-release", Relaxed, Release));
        if state & !READER_COUNT != 0 && !mutated!("rwsem-last-reader-wakes-nobody", true, false) {
            self.wake(state - READER);
        }
    }

    /// Makes a reader of the writer that holds it; no writer gets in between.
    ///
    /// # Safety
    ///
    /// This thread holds it for writing.
    pub unsafe fn downgrade(&self) {
        self.tell_write_hold();
        let own = owner_word();
        let mut state = self.state.load(Relaxed);
        loop {
            let wakes_readers = state & (READERS | HEIR) == READERS;
            let mut shared = state - own + mutated!("rwsem-downgrade-unlocks", 0, READER);
            if wakes_readers {
                shared &= !READERS;
            }
            match self.state.compare_exchange_weak(state, shared, Release, Relaxed) {
                Ok(_) if wakes_readers => return self.state.wake(Bed::Readers, u32::MAX),
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }

    fn contended(&self, mode: Mode) -> Contended {
        Contended { lock: core::ptr::from_ref(self).addr(), kind: Kind::RwSem, mode }
    }

    #[inline(always)]
    fn end_write_hold(&self) {
        self.order.release();
        self.tell_write_hold();
    }

    #[inline(always)]
    fn tell_write_hold(&self) {
        #[cfg(not(lockmeter_without_hooks))]
        if let Some(since) = self.hold_start.end() {
            self.instrument.released(self.contended(Mode::Write), now_ns().saturating_sub(since));
        }
    }

    #[inline(always)]
    fn end_read_hold(&self) {
        self.order.release();
        #[cfg(not(lockmeter_without_hooks))]
        if I::HoldStart::IS_TIMED
            && let Some(since) = holds::end(core::ptr::from_ref(self).addr())
        {
            self.instrument.released(self.contended(Mode::Read), now_ns().saturating_sub(since));
        }
    }

    #[inline(always)]
    fn write_at_once(&self) -> bool {
        let own = owner_word();
        own != 0 && self.state.compare_exchange(0, own, Acquire, Relaxed).is_ok()
    }

    /// Counts a reader, whatever the state: an addition never fails, where two threads that read at the same time make each
    /// other's compare-and-swap fail. True if that is all; otherwise the reader is counted, and [`keep_count`](Self::keep_count)
    /// says whether it may stay.
    #[inline(always)]
    fn read_at_once(&self) -> bool {
        let state = self.state.fetch_add(READER, mutated!("rwsem-read-acquire", Relaxed, Acquire));
        state & !READER_COUNT == 0
    }

    /// Whether the reader that this thread has counted may stay; otherwise it is counted no more.
    fn keep_count(&self) -> bool {
        let mut state = self.state.load(Acquire);
        loop {
            let passes_nobody = P::STEAL || state & (WRITERS | READERS) == 0;
            if state & (WRITER | HEIR) == 0 && passes_nobody {
                self.call_readers(state);
                return true;
            }
            match self.state.compare_exchange_weak(state, state - READER, Relaxed, Acquire) {
                Ok(_) => {
                    // Others may have taken us for one who holds it.
                    if !mutated!("rwsem-uncounted-reader-wakes-nobody", true, false) {
                        self.wake(state - READER);
                    }
                    return false;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Wakes the readers that sleep, where a reader was counted before the writer let go, who then saw no free lock and woke nobody:
    /// readers may now hold it one after another for ever. Takes off a mark that wakes readers in vain, too. The caller has the
    /// lock, in this state.
    fn call_readers(&self, state: u64) {
        if state & READERS != 0
            && !mutated!("rwsem-staying-reader-calls-nobody", true, false)
            && self.state.fetch_and(!READERS, Relaxed) & READERS != 0
        {
            self.state.wake(Bed::Readers, u32::MAX);
        }
    }

    /// Whether this waiter may take a lock in this state.
    fn may_take(state: u64, waiter: &Waiter) -> bool {
        let readers = mutated!("rwsem-writer-ignores-readers", 0, READER_COUNT);
        let in_the_way = if waiter.reads() { WRITER } else { WRITER | readers };
        let passes_nobody = P::STEAL || waiter.slept || waiter.heir || state & (WRITERS | READERS) == 0;
        state & in_the_way == 0 && (state & HEIR == 0 || waiter.heir) && passes_nobody
    }

    /// Takes it if this waiter may.
    fn take(&self, waiter: &Waiter) -> bool {
        let mut state = self.state.load(Relaxed);
        while Self::may_take(state, waiter) {
            // A reader that joins others wakes nobody, and takes no mark off.
            let mut taken = if is_held(state) { state } else { taken_from(state) };
            if waiter.heir {
                taken &= !HEIR;
            }
            if waiter.on_duty
                && self.sleeping_writers.load(SeqCst) != 0
                && !mutated!("rwsem-duty-forgotten", true, false)
            {
                taken |= WRITERS;
            }
            taken += if waiter.reads() { READER } else { owner_word() };
            match self.state.compare_exchange_weak(state, taken, Acquire, Relaxed) {
                Ok(_) => {
                    if state & WRITERS != 0 && !is_held(state) {
                        // One of them is being woken.
                        self.woken_at_us.store(low_us(now_ns()), Relaxed);
                    }
                    return true;
                }
                Err(now) => state = now,
            }
        }
        false
    }

    /// The same for the first of the spinners, who leaves its duty to the next.
    fn take_in_turn(&self, waiter: &Waiter, turn: &mut Option<Turn<'_>>) -> bool {
        if !waiter.on_duty || turn.is_none() || self.is_overdue() {
            return self.take(waiter);
        }
        let taken = self.take(&Waiter { on_duty: false, ..*waiter });
        let duty_is_left = taken && turn.take().is_some_and(Turn::leave_on_duty);
        if taken
            && !duty_is_left
            && self.sleeping_writers.load(SeqCst) != 0
            && !mutated!("rwsem-last-spinner-forgets", true, false)
        {
            // Nobody is behind us. As long as we hold it, the mark comes in time.
            self.state.fetch_or(WRITERS, Relaxed);
        }
        taken
    }

    /// Whether writers that sleep were passed by spinners for too long.
    fn is_overdue(&self) -> bool {
        is_past(&self.woken_at_us, now_ns(), PASSING_NS)
    }

    /// While spinners are queued there is always one to take the lock, so the owner need wake no writer: `turn` takes their mark off,
    /// and with it the duty to have them woken.
    fn relieve_the_owner(&self, state: u64, waiter: &mut Waiter, turn: Option<&Turn<'_>>) {
        if state & (WRITERS | WRITER | HEIR) == WRITERS | WRITER
            && P::STEAL
            && turn.is_some_and(Turn::has_successor)
            && !self.is_overdue()
            && self.state.compare_exchange(state, state & !WRITERS, SeqCst, Relaxed).is_ok()
        {
            fence(SeqCst);
            waiter.on_duty = true;
        }
    }

    /// The first try of a writer that has not waited.
    fn take_first(&self) -> bool {
        own_slot();
        self.take(&Waiter::new(Mode::Write))
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, mode: Mode, until: Until) -> Result<(), NotAcquired> {
        let at_once = if mode == Mode::Read { self.keep_count() } else { self.take_first() };
        if at_once {
            return Ok(());
        }
        metered_wait(
            &self.instrument,
            self.contended(mode),
            || self.wait(mode, until),
            |now| match mode {
                Mode::Read if I::HoldStart::IS_TIMED => holds::begin(core::ptr::from_ref(self).addr(), now),
                Mode::Read => {}
                _ => self.hold_start.begin(now),
            },
        )
    }

    fn wait(&self, mode: Mode, until: Until) -> Result<(), NotAcquired> {
        let mut waiter = Waiter::new(mode);
        let result = loop {
            if self.spin(&mut waiter) {
                break Ok(());
            }
            if P::HANDOFF {
                self.inherit(&mut waiter);
            }
            // Counted before WRITERS is looked at, so that whoever takes the mark off knows of us.
            if !waiter.reads() {
                self.sleeping_writers.fetch_add(1, SeqCst);
            }
            let slept = self.sleep(&mut waiter, until);
            if !waiter.reads() {
                self.sleeping_writers.fetch_sub(1, SeqCst);
            }
            if let Err(why) = slept {
                self.give_up(&waiter);
                break Err(why);
            }
        };
        if result.is_ok() && mode == Mode::Read {
            self.last_reader.store(short(owner_number(owner_word())), Relaxed);
        }
        result
    }

    /// Spins in the queue of spinners while it may pay; true with the lock.
    fn spin(&self, waiter: &mut Waiter) -> bool {
        if !P::SPIN {
            return self.take(waiter);
        }
        let by_readers = is_read(self.state.load(Relaxed));
        let budget_ns = if by_readers && !waiter.reads() { READER_SPIN_NS } else { SPIN_NS };
        let Some(mut spinning) = Spinning::new(budget_ns) else { return self.take(waiter) };
        let mut turn = None;
        // The heir is alone in wanting it, and needs no turn.
        if !waiter.heir {
            turn = self.spinners.enter(|before| !spinning.pause(before.number()));
            let Some(turn) = &turn else {
                // Those before us, or the owner, take too long.
                return self.take(waiter);
            };
            waiter.on_duty |= turn.is_on_duty();
        }
        loop {
            if self.take_in_turn(waiter, &mut turn) {
                return true;
            }
            let state = self.state.load(Relaxed);
            let reserved = state & HEIR != 0 && !waiter.heir;
            let owner = match is_read(state) {
                false => owner_number(state),
                true if P::READER_SPIN => self.last_reader.load(Relaxed).into(),
                true => return false,
            };
            self.relieve_the_owner(state, waiter, turn.as_ref());
            if reserved || !spinning.pause(owner) {
                return false;
            }
        }
    }

    /// Has the lock reserved, if this waiter was passed for too long.
    fn inherit(&self, waiter: &mut Waiter) {
        let now = now_ns();
        let begun_ns = *waiter.begun_ns.get_or_insert(now);
        let passed_for_long = waiter.slept
            && now.saturating_sub(begun_ns) > HANDOFF_AFTER_NS
            && is_past(&self.reserved_at_us, now, HANDOFF_AFTER_NS);
        let mut state = self.state.load(Relaxed);
        while !waiter.heir && state & HEIR == 0 && is_held(state) {
            // A writer that sleeps is woken by the last reader, and while readers may come there need not be a last one.
            let kept_out_by_readers = !waiter.reads() && is_read(state);
            if !kept_out_by_readers && !passed_for_long {
                return;
            }
            // Readers that come and go change the state all the time.
            match self.state.compare_exchange_weak(state, state | HEIR, Relaxed, Relaxed) {
                Ok(_) => {
                    waiter.heir = true;
                    self.reserved_at_us.store(low_us(now), Relaxed);
                }
                Err(now) => state = now,
            }
        }
    }

    /// Sleeps, unless the lock could be had, until there is a reason to look again or none to wait any longer.
    fn sleep(&self, waiter: &mut Waiter, until: Until) -> Result<(), NotAcquired> {
        let (bed, mark) = match (waiter.heir, waiter.reads()) {
            // The heir is woken for its own mark.
            (true, _) => (Bed::Heir, 0),
            (false, true) => (Bed::Readers, READERS),
            (false, false) => (Bed::Line, WRITERS),
        };
        loop {
            let state = self.state.load(Relaxed);
            if Self::may_take(state, waiter) {
                return Ok(());
            }
            if !is_held(state) && state & HEIR == 0 {
                // For those who slept. Nobody may sleep on a free lock: they may have given up.
                waiter.stood_back += 1;
                waiter.slept |= waiter.stood_back > STAND_BACK;
                yield_now();
                return Ok(());
            }
            // The mark of the writers stays if an heir goes to bed with their duty.
            let marked = state | mark | if waiter.on_duty { WRITERS } else { 0 };
            if marked != state && self.state.compare_exchange(state, marked, SeqCst, Relaxed).is_err() {
                continue;
            }
            waiter.on_duty = false;
            let end = self.state.wait(marked as u32, bed, until.deadline);
            waiter.slept = true;
            waiter.on_duty = bed == Bed::Line && end == WaitEnd::LookAgain;
            return until.ended(end);
        }
    }

    /// Leaves without the lock, and without a trace.
    fn give_up(&self, waiter: &Waiter) {
        let mut state = self.state.load(Relaxed);
        loop {
            // We may have been woken in the place of another writer. No mark is taken off: somebody may fall asleep by it now.
            let others = if self.sleeping_writers.load(SeqCst) == 0 { 0 } else { WRITERS };
            let left = (state | others) & if waiter.heir { !HEIR } else { !0 };
            if left == state && state & (WRITER | HEIR) != 0 {
                return;
            }
            match self.state.compare_exchange_weak(state, left, Relaxed, Relaxed) {
                Ok(_) => {
                    self.wake(left);
                    if left & (WRITER | HEIR) == 0 && is_held(left) {
                        self.wake_beside_readers(left);
                    }
                    return;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Wakes those whom the last reader would wake, if there ever were one: readers slept because the lock was reserved, and a
    /// writer has it reserved in the place of the one that gave up.
    fn wake_beside_readers(&self, state: u64) {
        if state & READERS != 0 {
            self.state.wake(Bed::Readers, u32::MAX);
        }
        if state & WRITERS != 0 {
            self.state.wake(Bed::Line, 1);
        }
    }

    /// Wakes those who are to be woken when a lock was released to this state. Its memory may be gone by now: somebody else may
    /// have had the lock, and freed it. The address alone is used.
    #[cold]
    #[inline(never)]
    fn wake(&self, state: u64) {
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
}
