//! What a program waited for in a futex: told from the functions on its stack.
//!
//! The kernel sees a word of memory and nothing of what it means. The functions of the C library, of Rust's standard library,
//! of parking_lot and of Go's runtime say it. Where a library is stripped of the names of its inner functions, what the call
//! asked of the kernel says the rest.

use lockmeter_profile::{Frame, Happened, Kind, Mode};

use crate::work_semaphores::{is_of_libc, is_wait_for_work};
use crate::{lock_made_of_condition, program_lock};

/// How far from its inner end a stack is looked at: beyond it are callers.
const DEEPEST: usize = 24;

const FUTEX_WAIT: u32 = 0;
const FUTEX_LOCK_PI: u32 = 6;
const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_WAIT_REQUEUE_PI: u32 = 11;
const FUTEX_LOCK_PI2: u32 = 13;
const FUTEX_COMMAND: u32 = 0x7f;
const FUTEX_PRIVATE: u32 = 0x80;

/// What glibc and musl keep in a lock that has waiters.
const LOCKED_WITH_WAITERS: u64 = 2;

/// A futex call that slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FutexCall {
    /// With its flags.
    pub operation: u32,
    /// The value that the word had to have.
    pub expected: u64,
}

impl FutexCall {
    const fn command(self) -> u32 {
        self.operation & FUTEX_COMMAND
    }
}

/// Where the lock begins, as seen from the futex word in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LockStart {
    /// At the word.
    Word,
    /// glibc's reader-writer lock: two words behind the first eight bytes.
    Rwlock,
    /// glibc's condition variable: two words behind the first forty bytes.
    Condvar,
    /// glibc's barrier: the second half of eight bytes.
    Barrier,
    /// musl's mutex: behind its type.
    MuslMutex,
    /// The word belongs to the thread, which waits on it for any lock.
    Elsewhere,
}

/// What a program waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserWait {
    /// Waits for locks are `Wait`, all others `Idle`.
    pub happened: Happened,
    /// The kind of lock.
    pub kind: Kind,
    /// In which mode it was asked for.
    pub mode: Mode,
    /// The function of the C library that was called; `None` if the lock is another library's.
    pub function: Option<&'static str>,
    start: LockStart,
}

impl UserWait {
    const fn lock(kind: Kind, mode: Mode, function: &'static str, start: LockStart) -> Self {
        Self { happened: Happened::Wait, kind, mode, function: Some(function), start }
    }

    const fn idle(kind: Kind, function: &'static str, start: LockStart) -> Self {
        Self { happened: Happened::Idle, kind, mode: Mode::Exclusive, function: Some(function), start }
    }

    const fn at(self, start: LockStart) -> Self {
        Self { start, ..self }
    }

    const fn of_others(self, start: LockStart) -> Self {
        Self { function: None, start, ..self }
    }

    /// A wait of which nothing is known. It may be an idle one, so it counts as such.
    pub const UNTOLD: Self = Self {
        happened: Happened::Idle,
        kind: Kind::Futex,
        mode: Mode::Exclusive,
        function: None,
        start: LockStart::Word,
    };

    /// The same as a wait for a mutex: of a lock that is made of what was waited for.
    pub const fn for_a_lock(self) -> Self {
        self.for_lock_of(Kind::Mutex, Mode::Exclusive)
    }

    /// The same as a wait for a lock of this kind, which the program has built of what was waited for.
    pub const fn for_lock_of(self, kind: Kind, mode: Mode) -> Self {
        Self { happened: Happened::Wait, kind, mode, ..self }
    }

    /// This, unless it is the wait for a condition that a lock is made of, or for a semaphore that is none.
    fn as_used_in(self, frames: &[Frame]) -> Self {
        let own = (self.kind == Kind::Condvar).then(|| program_lock(frames)).flatten();
        if own.is_some_and(|own| own.kind == Kind::Semaphore) {
            return self.for_lock_of(Kind::Semaphore, Mode::Exclusive);
        }
        if self.kind == Kind::Semaphore && is_wait_for_work(frames) {
            return Self { happened: Happened::Idle, ..self };
        }
        match lock_made_of_condition(frames) {
            Some((kind, mode)) if self.kind == Kind::Condvar => Self { happened: Happened::Wait, kind, mode, ..self },
            _ => self,
        }
    }

    /// Whether what is waited for is made of a condition: the word lies in one, whatever lock the stack makes of it.
    pub const fn is_made_of_condition(self) -> bool {
        matches!(self.start, LockStart::Condvar)
    }

    /// The address of the lock in which this futex word lies; `None` if the word is not part of it.
    pub const fn lock_address(&self, word: u64) -> Option<u64> {
        match self.start {
            LockStart::Word => Some(word),
            LockStart::Rwlock => Some((word & !7).wrapping_sub(8)),
            LockStart::Condvar => Some((word & !7).wrapping_sub(40)),
            LockStart::Barrier => Some(word & !7),
            LockStart::MuslMutex => Some(word.wrapping_sub(4)),
            LockStart::Elsewhere => None,
        }
    }

    /// Tells from a stack, innermost frame first. `None`: neither its functions nor the call say it.
    pub fn tell(frames: &[Frame], call: FutexCall) -> Option<Self> {
        let mut parked = None;
        for frame in frames.iter().take(DEEPEST) {
            let Some(function) = frame.function.as_deref() else { continue };
            if let Some(wait) = of_c_library(function) {
                return Some(if is_relock(frames, wait, call) { MUTEX } else { wait.as_used_in(frames) });
            }
            if let Some(wait) = of_other_library(function) {
                return Some(wait.as_used_in(frames));
            }
            // A parking lot is the floor of many locks: the frames further out say which.
            parked = parked.or_else(|| is_parking_lot(function).then_some(PARKED));
        }
        parked
            .or_else(|| Self::by_frames_without_names(frames, call))
            .or_else(|| Self::by_musls_value(frames, call))
            .or_else(|| Self::by_call(call))
    }

    /// Tells by what was asked of the kernel alone.
    pub const fn by_call(call: FutexCall) -> Option<Self> {
        match call.command() {
            FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => Some(MUTEX),
            FUTEX_WAIT_REQUEUE_PI => Some(CONDVAR),
            _ => None,
        }
    }

    /// musl is built without unwind information, so that its stacks end where they begin. Of its futex words only a mutex holds
    /// its owner (or `EBUSY`) and the bit for waiters.
    fn by_musls_value(frames: &[Frame], call: FutexCall) -> Option<Self> {
        const WAITERS: u64 = 0x8000_0000;
        const NOBODY: u64 = 0xffff_ffff;
        let is_musl = frames.first().and_then(|frame| frame.module.as_deref()).is_some_and(|module| {
            module == "libc.so" || module.starts_with("ld-musl") || module.starts_with("libc.musl")
        });
        let expected = call.expected & 0xffff_ffff;
        let is_held = expected & WAITERS != 0 && expected & !WAITERS != 0 && expected != NOBODY;
        (is_musl && call.command() == FUTEX_WAIT && is_held).then_some(MUTEX.at(LockStart::MuslMutex))
    }

    /// The C library is rarely installed with the names of its inner functions, and jumps from its outer ones to them.
    fn by_frames_without_names(frames: &[Frame], call: FutexCall) -> Option<Self> {
        let innermost = frames.first()?;
        if innermost.function.is_some() || !is_of_libc(innermost) {
            return None;
        }
        let is_wait = matches!(call.command(), FUTEX_WAIT | FUTEX_WAIT_BITSET);
        if is_wait && call.operation & FUTEX_PRIVATE == 0 && call.expected > LOCKED_WITH_WAITERS {
            // The kernel wakes the word that held an ended thread's id, and knows no private ones there.
            return Some(JOIN);
        }
        let named = frames.iter().find(|frame| frame.function.is_some())?;
        let is_lock = call.command() == FUTEX_WAIT && call.expected == LOCKED_WITH_WAITERS;
        (is_lock && is_of_libc(named)).then_some(LIBC_INTERNAL)
    }
}

const MUTEX: UserWait = UserWait::lock(Kind::Mutex, Mode::Exclusive, "pthread_mutex_lock", LockStart::Word);
/// A lock that the C library uses inside, such as that of a heap.
const LIBC_INTERNAL: UserWait =
    UserWait::lock(Kind::Mutex, Mode::Exclusive, "__lll_lock_wait_private", LockStart::Word);
const READ: UserWait = UserWait::lock(Kind::Rwlock, Mode::Read, "pthread_rwlock_rdlock", LockStart::Rwlock);
const WRITE: UserWait = UserWait::lock(Kind::Rwlock, Mode::Write, "pthread_rwlock_wrlock", LockStart::Rwlock);
const SEMAPHORE: UserWait = UserWait::lock(Kind::Semaphore, Mode::Exclusive, "sem_wait", LockStart::Word);
const ONCE: UserWait = UserWait::lock(Kind::Mutex, Mode::Exclusive, "pthread_once", LockStart::Word);
const CONDVAR: UserWait = UserWait::idle(Kind::Condvar, "pthread_cond_wait", LockStart::Condvar);
const BARRIER: UserWait = UserWait::idle(Kind::Barrier, "pthread_barrier_wait", LockStart::Barrier);
const JOIN: UserWait = UserWait::idle(Kind::Join, "pthread_join", LockStart::Word);
const PARKED: UserWait = UserWait::idle(Kind::Park, "", LockStart::Elsewhere).of_others(LockStart::Elsewhere);
const ATOMIC: UserWait = UserWait::idle(Kind::Futex, "", LockStart::Word).of_others(LockStart::Word);

/// Beginnings of the C library's function names, without their leading underscores.
const C_LIBRARY: &[(&str, UserWait)] = &[
    ("lll_lock_wait_private", LIBC_INTERNAL),
    ("lll_lock_wait", MUTEX),
    ("pthread_mutex_", MUTEX),
    ("pthread_rwlock_rd", READ),
    ("pthread_rwlock_timedrd", READ),
    ("pthread_rwlock_clockrd", READ),
    ("pthread_rwlock_", WRITE),
    // These wait for the last waiters of a generation to leave, on another word of the condition.
    ("pthread_cond_signal", CONDVAR.at(LockStart::Word)),
    ("pthread_cond_broadcast", CONDVAR.at(LockStart::Word)),
    ("pthread_cond_destroy", CONDVAR.at(LockStart::Word)),
    ("pthread_cond_", CONDVAR),
    ("new_sem_", SEMAPHORE),
    ("sem_wait", SEMAPHORE),
    ("sem_timedwait", SEMAPHORE),
    ("sem_clockwait", SEMAPHORE),
    ("mtx_", MUTEX),
    ("cnd_", CONDVAR),
    ("pthread_barrier_wait", BARRIER),
    ("pthread_join", JOIN),
    ("pthread_clockjoin", JOIN),
    ("pthread_timedjoin", JOIN),
    ("pthread_once", ONCE),
    ("cxa_guard_acquire", ONCE),
];

/// Parts that a function's name has, all of them, and what it waits for. The first that fits decides.
const OTHER_LIBRARIES: &[(&[&str], UserWait)] = &[
    // Rust's standard library, today's and older names of its modules.
    (&["sync::mutex::futex::Mutex"], MUTEX.of_others(LockStart::Word)),
    (&["futex_mutex::Mutex"], MUTEX.of_others(LockStart::Word)),
    (&["rwlock::futex::RwLock", "read"], READ.of_others(LockStart::Word)),
    (&["rwlock::futex::RwLock"], WRITE.of_others(LockStart::Word)),
    (&["futex_rwlock::RwLock", "read"], READ.of_others(LockStart::Word)),
    (&["futex_rwlock::RwLock"], WRITE.of_others(LockStart::Word)),
    (&["condvar::futex::Condvar"], CONDVAR.of_others(LockStart::Word)),
    (&["futex_condvar::Condvar"], CONDVAR.of_others(LockStart::Word)),
    (&["once::futex::Once"], ONCE.of_others(LockStart::Word)),
    (&["thread_parking::futex::Parker"], PARKED),
    (&["thread_parker::futex::Parker"], PARKED),
    (&["std::thread::", "park"], PARKED),
    // parking_lot: a thread waits on a word of its own.
    (&["parking_lot::raw_mutex::RawMutex"], MUTEX.of_others(LockStart::Elsewhere)),
    (&["parking_lot::raw_fair_mutex::RawFairMutex"], MUTEX.of_others(LockStart::Elsewhere)),
    (&["parking_lot::raw_rwlock::RawRwLock", "shared"], READ.of_others(LockStart::Elsewhere)),
    (&["parking_lot::raw_rwlock::RawRwLock"], WRITE.of_others(LockStart::Elsewhere)),
    (&["parking_lot::condvar::Condvar"], CONDVAR.of_others(LockStart::Elsewhere)),
    (&["parking_lot::once::Once"], ONCE.of_others(LockStart::Elsewhere)),
    // C++.
    (&["std::counting_semaphore"], SEMAPHORE.of_others(LockStart::Word)),
    (&["std::__atomic_semaphore"], SEMAPHORE.of_others(LockStart::Word)),
    (&["std::__semaphore_impl"], SEMAPHORE.of_others(LockStart::Word)),
    (&["std::__atomic_wait"], ATOMIC),
    (&["std::__atomic_base", "wait"], ATOMIC),
    (&["std::latch"], BARRIER.of_others(LockStart::Word)),
    // GLib.
    (&["g_mutex_lock"], MUTEX.of_others(LockStart::Word)),
    (&["g_cond_wait"], CONDVAR.of_others(LockStart::Word)),
    // Abseil: as parking_lot.
    (&["absl::", "CondVar::"], CONDVAR.of_others(LockStart::Elsewhere)),
    (&["absl::", "Mutex::Lock"], MUTEX.of_others(LockStart::Elsewhere)),
    (&["absl::", "Mutex::ReaderLock"], READ.of_others(LockStart::Elsewhere)),
    (&["absl::", "Mutex::Await"], CONDVAR.of_others(LockStart::Elsewhere)),
    // Go's runtime: its own mutexes; everything else is a thread without work.
    // Since Go 1.24 a thread waits for every lock of the runtime on a word of its own.
    (&["runtime.semasleep"], MUTEX.of_others(LockStart::Elsewhere)),
    (&["runtime.lock2"], MUTEX.of_others(LockStart::Word)),
    (&["runtime.notesleep"], PARKED),
    (&["runtime.notetsleep"], PARKED),
    (&["runtime.mPark"], PARKED),
    (&["runtime.stopm"], PARKED),
    (&["runtime.findRunnable"], PARKED),
    (&["runtime.findrunnable"], PARKED),
];

/// Whether a thread with this stack, innermost frame first, is one of Go's runtime that has no goroutine to run.
pub fn has_no_goroutine(stack: &[Frame]) -> bool {
    const WITHOUT_WORK: [&str; 3] = ["runtime.mPark", "runtime.stopm", "runtime.findRunnable"];
    let functions = stack.iter().take(DEEPEST).filter_map(|frame| frame.function.as_deref());
    functions
        .map(|function| function.strip_suffix(".abi0").unwrap_or(function))
        .any(|function| WITHOUT_WORK.contains(&function))
}

fn of_c_library(function: &str) -> Option<UserWait> {
    let plain = function.trim_start_matches("__GI_").trim_start_matches('_');
    C_LIBRARY.iter().find(|(start, _)| plain.starts_with(start)).map(|(_, wait)| *wait)
}

fn of_other_library(function: &str) -> Option<UserWait> {
    OTHER_LIBRARIES.iter().find(|(parts, _)| parts.iter().all(|part| function.contains(part))).map(|(_, wait)| *wait)
}

fn is_parking_lot(function: &str) -> bool {
    ["parking_lot_core::", "std::__detail::__platform_wait", "absl::"].iter().any(|part| function.contains(part))
}

/// Whether a wait in a function of condition variables is one for the mutex that it takes again.
fn is_relock(frames: &[Frame], wait: UserWait, call: FutexCall) -> bool {
    wait == CONDVAR
        && call.command() == FUTEX_WAIT
        && call.expected == LOCKED_WITH_WAITERS
        && frames.first().is_some_and(|frame| frame.function.is_none() && is_of_libc(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE_WAIT: FutexCall = FutexCall { operation: 0x80, expected: 2 };
    const PRIVATE_BITSET: FutexCall = FutexCall { operation: 0x189, expected: 0 };

    fn stack(functions: &[&str]) -> Vec<Frame> {
        let frame = |function: &&str| Frame {
            address: 0,
            function: (!function.is_empty()).then(|| (*function).to_owned()),
            offset: 0,
            module: Some(
                if function.contains("::") || function.contains('.') { "program" } else { "libc.so.6" }.into(),
            ),
        };
        functions.iter().map(frame).collect()
    }

    fn told(functions: &[&str], call: FutexCall) -> (Happened, Kind, Mode) {
        let wait = UserWait::tell(&stack(functions), call).unwrap_or(UserWait::UNTOLD);
        (wait.happened, wait.kind, wait.mode)
    }

    /// A stack and what it tells.
    type Known = (&'static [&'static str], (Happened, Kind, Mode));

    #[test]
    fn locks_are_waits_and_everything_else_is_idle() {
        use Happened::{Idle, Wait};
        use Mode::{Exclusive, Read, Write};
        let known: &[Known] = &[
            (&["__lll_lock_wait", "___pthread_mutex_lock", "main"], (Wait, Kind::Mutex, Exclusive)),
            (&["", "pthread_mutex_lock", "main"], (Wait, Kind::Mutex, Exclusive)),
            (&["__lll_lock_wait_private", "malloc", "main"], (Wait, Kind::Mutex, Exclusive)),
            (&["", "__pthread_rwlock_rdlock", "main"], (Wait, Kind::Rwlock, Read)),
            (&["", "pthread_rwlock_timedwrlock", "main"], (Wait, Kind::Rwlock, Write)),
            (&["__new_sem_wait_slow64.constprop.0", "sem_wait", "main"], (Wait, Kind::Semaphore, Exclusive)),
            (
                &["syscall", "std::sys::sync::mutex::futex::Mutex::lock_contended", "program::main"],
                (Wait, Kind::Mutex, Exclusive),
            ),
            (
                &["syscall", "std::sys::sync::rwlock::futex::RwLock::read_contended", "program::main"],
                (Wait, Kind::Rwlock, Read),
            ),
            (
                &[
                    "syscall",
                    "<parking_lot_core::thread_parker::imp::ThreadParker>::park",
                    "parking_lot::raw_mutex::RawMutex::lock_slow",
                ],
                (Wait, Kind::Mutex, Exclusive),
            ),
            (&["runtime.futex", "runtime.futexsleep", "runtime.lock2"], (Wait, Kind::Mutex, Exclusive)),
            (
                &["runtime.futex", "runtime.notesleep", "runtime.stopm", "runtime.findRunnable"],
                (Idle, Kind::Park, Exclusive),
            ),
            (&["syscall", "std::sys::sync::thread_parking::futex::Parker::park"], (Idle, Kind::Park, Exclusive)),
            (&["syscall", "parking_lot_core::parking_lot::park", "pool::wait"], (Idle, Kind::Park, Exclusive)),
            (&["syscall", "pool::wait"], (Idle, Kind::Futex, Exclusive)),
        ];
        for (functions, expected) in known {
            assert_eq!(told(functions, PRIVATE_WAIT), *expected, "{functions:?}");
        }
        assert_eq!(told(&["", "pthread_cond_wait", "main"], PRIVATE_BITSET), (Idle, Kind::Condvar, Exclusive));
        assert_eq!(told(&["", "pthread_barrier_wait", "main"], PRIVATE_WAIT), (Idle, Kind::Barrier, Exclusive));
    }

    #[test]
    fn a_condition_whose_mutex_or_lock_is_waited_for_is_a_lock() {
        let gil = told(&["", "pthread_cond_timedwait", "take_gil", "PyEval_RestoreThread"], PRIVATE_BITSET);
        assert_eq!(gil, (Happened::Wait, Kind::Mutex, Mode::Exclusive));
        let is_condition = |functions: &[&str]| {
            UserWait::tell(&stack(functions), PRIVATE_BITSET).is_some_and(UserWait::is_made_of_condition)
        };
        assert!(is_condition(&["", "pthread_cond_timedwait", "take_gil", "PyEval_RestoreThread"]));
        assert!(!is_condition(&["", "pthread_mutex_lock", "take_gil", "PyEval_RestoreThread"]));
        let relock = told(&["", "", "pthread_cond_wait", "consume"], PRIVATE_WAIT);
        assert_eq!(relock, (Happened::Wait, Kind::Mutex, Mode::Exclusive));
    }

    #[test]
    fn threads_of_gos_runtime_without_a_goroutine_are_told() {
        assert!(has_no_goroutine(&stack(&["runtime.futex", "runtime.notesleep", "runtime.stopm", "runtime.mcall"])));
        assert!(!has_no_goroutine(&stack(&["runtime.futex", "runtime.futexsleep", "runtime.lock2", "main.work"])));
    }

    #[test]
    fn atomics_wait_is_a_semaphore_made_of_a_condition() {
        let wait = "v8::internal::FutexEmulation::WaitJs32(v8::internal::Isolate*, int, double)";
        let frames = stack(&["", "pthread_cond_wait", "v8::base::ConditionVariable::Wait(v8::base::Mutex*)", wait]);
        let told = UserWait::tell(&frames, PRIVATE_BITSET).unwrap();
        assert_eq!((told.happened, told.kind), (Happened::Wait, Kind::Semaphore));
        assert!(told.is_made_of_condition(), "so that its address is found");
    }

    #[test]
    fn who_waits_for_a_semaphore_of_the_java_machine_is_idle() {
        let mut frames = stack(&["", "sem_wait", "PosixSemaphore::wait()", "GangWorker::loop()"]);
        frames[2].module = Some("libjvm.so".to_owned());
        let told = UserWait::tell(&frames, PRIVATE_BITSET).unwrap();
        assert_eq!((told.happened, told.kind), (Happened::Idle, Kind::Semaphore));
    }

    #[test]
    fn a_stripped_library_is_told_by_its_calls() {
        let join = FutexCall { operation: 0x109, expected: 4242 };
        let mut frames = stack(&["", "program::main"]);
        assert_eq!(UserWait::tell(&frames, join), Some(JOIN));
        assert_eq!(UserWait::tell(&frames, PRIVATE_WAIT), None);
        frames = stack(&["", "malloc", "program::main"]);
        assert_eq!(UserWait::tell(&frames, PRIVATE_WAIT), Some(LIBC_INTERNAL));
        frames = vec![Frame { module: Some("libc.so".to_owned()), ..frames.swap_remove(0) }];
        let held = FutexCall { operation: 0x80, expected: 0x8000_0010 };
        let told = UserWait::tell(&frames, held).unwrap();
        assert_eq!((told.kind, told.lock_address(0x1004)), (Kind::Mutex, Some(0x1000)));
        assert_eq!(UserWait::tell(&frames, FutexCall { operation: 0x80, expected: 0xffff_ffff }), None);
        assert_eq!(UserWait::by_call(FutexCall { operation: 0x86, expected: 0 }), Some(MUTEX));
    }

    /// Regression: the word that a thread of Go's first seen waits on was taken for a lock, under the name of the runtime's `m0`.
    #[test]
    fn locks_of_gos_runtime_are_waited_for_on_a_word_of_the_threads() {
        let since_1_24 = stack(&["runtime.futex", "runtime.futexsleep", "runtime.semasleep", "runtime.lock2"]);
        let told = UserWait::tell(&since_1_24, PRIVATE_WAIT).unwrap();
        assert_eq!((told.kind, told.lock_address(0x1000)), (Kind::Mutex, None));
        let before = UserWait::tell(&stack(&["runtime.futex", "runtime.lock2"]), PRIVATE_WAIT).unwrap();
        assert_eq!(before.lock_address(0x1000), Some(0x1000));
    }

    #[test]
    fn a_lock_begins_before_the_word_that_is_waited_on() {
        assert_eq!(CONDVAR.lock_address(0x1028), Some(0x1000));
        assert_eq!(CONDVAR.lock_address(0x102c), Some(0x1000));
        assert_eq!(READ.lock_address(0x1008), Some(0x1000));
        assert_eq!(WRITE.lock_address(0x100c), Some(0x1000));
        assert_eq!(BARRIER.lock_address(0x1004), Some(0x1000));
        assert_eq!(PARKED.lock_address(0x1004), None);
    }
}
