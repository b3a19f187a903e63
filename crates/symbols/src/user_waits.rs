//! What a program waited for in a futex: told from the functions on its stack.
//!
//! The kernel sees a word of memory and nothing of what it means. The functions of the C library, of Rust's standard library,
//! of parking_lot and of Go's runtime say it: by the [rules](lockmeter_profile::rules). Where a library is stripped of the names of its
//! inner functions, what the call asked of the kernel says the rest.

use lockmeter_profile::rules::{DEEPEST, Is, Match, Rule, RuleId, Word, installed, is_of_c_library};
use lockmeter_profile::{Frame, Happened, Kind, Mode};

use crate::ProgramLock;
use crate::condition_locks::by_shape;

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

    /// Whether other processes may map the word.
    pub const fn is_shared(self) -> bool {
        self.operation & FUTEX_PRIVATE == 0
    }
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
    /// How far behind the lock's begin the id of the thread stands that has it; `None` if it does not say.
    pub owner: Option<u64>,
    start: Word,
    /// What the program has built of it.
    built: Option<RuleId>,
    /// Whether the thread waits for work, and is at rest.
    for_work: bool,
}

impl UserWait {
    const fn lock(function: &'static str, owner: Option<u64>) -> Self {
        Self { happened: Happened::Wait, kind: Kind::Mutex, function: Some(function), owner, ..Self::UNTOLD }
    }

    const fn condition(kind: Kind, function: &'static str, word: Word) -> Self {
        Self { kind, function: Some(function), start: word, ..Self::UNTOLD }
    }

    /// What a primitive is.
    fn of_primitive(rule: &'static Rule) -> Self {
        Self {
            happened: rule.is.happened(),
            kind: rule.kind,
            mode: rule.mode,
            function: rule.called.as_deref(),
            owner: rule.owner,
            start: rule.word.unwrap_or(Word::Start),
            built: None,
            for_work: rule.is == Is::Idle,
        }
    }

    /// What a program has built of it.
    fn built(self, found: Match<'static>) -> Self {
        let Match { rule, id, .. } = found;
        Self {
            happened: rule.is.happened(),
            kind: rule.kind,
            mode: rule.mode,
            owner: rule.owner,
            start: rule.word.unwrap_or(self.start),
            built: Some(id),
            for_work: rule.is == Is::Idle,
            ..self
        }
    }

    /// A wait of which nothing is known. It may be an idle one, so it counts as such.
    pub const UNTOLD: Self = Self {
        happened: Happened::Idle,
        kind: Kind::Futex,
        mode: Mode::Exclusive,
        function: None,
        owner: None,
        start: Word::Start,
        built: None,
        for_work: false,
    };

    /// The same as a wait for a mutex: of a lock that is made of what was waited for.
    pub const fn for_a_lock(self) -> Self {
        self.for_lock_of(Kind::Mutex, Mode::Exclusive)
    }

    /// The same as a wait for a lock of this kind, which the program has built of what was waited for.
    pub const fn for_lock_of(self, kind: Kind, mode: Mode) -> Self {
        Self { happened: Happened::Wait, kind, mode, ..self }
    }

    /// The same as a wait until a thread has ended.
    pub const fn for_end_of_thread(self) -> Self {
        Self { happened: Happened::Idle, kind: Kind::Join, ..self }
    }

    /// This, unless the program has built something else of it.
    fn as_used_in(self, frames: &[Frame], call: FutexCall) -> Self {
        if let Some(found) = installed().built_of(frames, Some(self.kind), Some(call.expected)) {
            return self.built(found);
        }
        match by_shape(frames) {
            Some((kind, mode)) if self.kind == Kind::Condvar => self.for_lock_of(kind, mode),
            _ => self,
        }
    }

    /// The lock that the program has built, if that has a name.
    pub fn program_lock(&self) -> Option<ProgramLock> {
        ProgramLock::of(self.built?)
    }

    /// Whether the thread waits for work, and is at rest.
    pub const fn is_for_work(&self) -> bool {
        self.for_work
    }

    /// Whether what is waited for is made of a condition: the word lies in one, whatever lock the stack makes of it.
    pub fn is_made_of_condition(self) -> bool {
        self.start == CONDVAR.start
    }

    /// The address of the lock in which this futex word lies; `None` if the word is not part of it.
    pub const fn lock_address(&self, word: u64) -> Option<u64> {
        match self.start {
            Word::Start => Some(word),
            Word::Behind(bytes) => Some((word & !7).wrapping_sub(bytes)),
            Word::At(bytes) => Some(word.wrapping_sub(bytes)),
            Word::OfThread => None,
        }
    }

    /// The same of a thread of a language's own, which its runtime put to sleep without a futex call.
    pub fn tell_parked(frames: &[Frame]) -> Option<Self> {
        Self::tell(frames, FutexCall { operation: FUTEX_WAIT | FUTEX_PRIVATE, expected: 0 })
    }

    /// Tells from a stack, innermost frame first. `None`: neither its functions nor the call say it.
    pub fn tell(frames: &[Frame], call: FutexCall) -> Option<Self> {
        match Self::primitive(frames, call) {
            Some(primitive) => Some(primitive.as_used_in(frames, call)),
            // A program may build a lock of nothing but the call.
            None => {
                let found = installed().built_of(frames, Some(Kind::Futex), Some(call.expected));
                found.map(|found| Self::UNTOLD.built(found))
            }
        }
    }

    /// What the C library, or a language, has the thread wait for.
    fn primitive(frames: &[Frame], call: FutexCall) -> Option<Self> {
        let rules = installed();
        let mut floor = None;
        for frame in frames.iter().take(DEEPEST) {
            let Some(function) = frame.function.as_deref() else { continue };
            if let Some(rule) = rules.primitive(function) {
                let wait = Self::of_primitive(rule);
                return Some(if is_relock(frames, wait, call) { MUTEX } else { wait });
            }
            // It is the floor of many locks: the frames further out say which.
            floor = floor.or_else(|| rules.floor(function).map(Self::of_primitive));
        }
        floor
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
        // The word stands behind the mutex's type.
        (is_musl && call.command() == FUTEX_WAIT && is_held).then_some(Self { start: Word::At(4), ..MUTEX })
    }

    /// The C library is rarely installed with the names of its inner functions, and jumps from its outer ones to them.
    fn by_frames_without_names(frames: &[Frame], call: FutexCall) -> Option<Self> {
        let innermost = frames.first()?;
        if innermost.function.is_some() || !is_of_c_library(innermost) {
            return None;
        }
        let is_wait = matches!(call.command(), FUTEX_WAIT | FUTEX_WAIT_BITSET);
        if is_wait && call.is_shared() && call.expected > LOCKED_WITH_WAITERS {
            // The kernel wakes the word that held an ended thread's id, and knows no private ones there.
            return Some(JOIN);
        }
        let named = frames.iter().find(|frame| frame.function.is_some())?;
        let is_lock = call.command() == FUTEX_WAIT && call.expected == LOCKED_WITH_WAITERS;
        (is_lock && is_of_c_library(named)).then_some(LIBC_INTERNAL)
    }
}

// What a call says where no function does. A test makes sure that the rules say the same of the functions.
const MUTEX: UserWait = UserWait::lock("pthread_mutex_lock", Some(8));
/// A lock that the C library uses inside, such as that of a heap.
const LIBC_INTERNAL: UserWait = UserWait::lock("__lll_lock_wait_private", None);
const CONDVAR: UserWait = UserWait::condition(Kind::Condvar, "pthread_cond_wait", Word::Behind(40));
const JOIN: UserWait = UserWait::condition(Kind::Join, "pthread_join", Word::Start);

/// Whether a thread with this stack, innermost frame first, waits for work, whatever it sleeps in.
pub fn waits_for_work(stack: &[Frame]) -> bool {
    installed().built(stack, None).is_some_and(|found| found.rule.is == Is::Idle)
}

/// Whether a wait in a function of condition variables is one for the mutex that it takes again.
fn is_relock(frames: &[Frame], wait: UserWait, call: FutexCall) -> bool {
    wait == CONDVAR
        && call.command() == FUTEX_WAIT
        && call.expected == LOCKED_WITH_WAITERS
        && frames.first().is_some_and(|frame| frame.function.is_none() && is_of_c_library(frame))
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
        assert!(waits_for_work(&stack(&["runtime.futex", "runtime.notesleep", "runtime.stopm", "runtime.mcall"])));
        assert!(!waits_for_work(&stack(&["runtime.futex", "runtime.futexsleep", "runtime.lock2", "main.work"])));
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
        assert_eq!(UserWait::primitive(&frames, PRIVATE_WAIT), Some(LIBC_INTERNAL));
        let told = UserWait::tell(&frames, PRIVATE_WAIT).and_then(|wait| wait.program_lock());
        assert_eq!(told.map(|lock| lock.name()), Some("malloc arena"));
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
        let of = |function: &str| UserWait::tell(&stack(&[function, "main"]), PRIVATE_BITSET).unwrap();
        for (function, word, begin) in [
            ("pthread_cond_wait", 0x1028, Some(0x1000)),
            ("pthread_cond_wait", 0x102c, Some(0x1000)),
            ("pthread_rwlock_rdlock", 0x1008, Some(0x1000)),
            ("pthread_rwlock_wrlock", 0x100c, Some(0x1000)),
            ("pthread_barrier_wait", 0x1004, Some(0x1000)),
            ("std::sys::sync::thread_parking::futex::Parker::park", 0x1004, None),
        ] {
            assert_eq!(of(function).lock_address(word), begin, "{function}");
        }
    }

    #[test]
    fn the_rules_say_of_a_function_what_its_call_says() {
        let of = |function: &str| UserWait::primitive(&stack(&[function, "main"]), PRIVATE_BITSET);
        assert_eq!(of("__lll_lock_wait_private"), Some(LIBC_INTERNAL));
        assert_eq!(of("___pthread_mutex_lock"), Some(MUTEX));
        assert_eq!(of("pthread_cond_timedwait"), Some(CONDVAR));
        assert_eq!(of("__pthread_clockjoin_ex"), Some(JOIN));
    }
}
