//! Locks that known programs build for themselves, of whatever the kernel offers to sleep in: recognised by the function that waits.

use lockmeter_profile::rules::{Is, Rule, RuleId, installed};
use lockmeter_profile::{Frame, Kind, Lock, Mode};

/// A lock with a name of its own, which a rule knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramLock(RuleId);

/// Whether threads that run code of a file of this name may sleep for its own locks in any call.
pub fn has_own_locks(file: &str) -> bool {
    installed().watches_any_call(file)
}

/// The lock that a thread waits for whose stack this is, innermost frame first, whatever it sleeps in; `of` is the kind of the primitive
/// inside, if it is known. `None` if it is none with a name.
pub fn program_lock(stack: &[Frame], of: Option<Kind>) -> Option<ProgramLock> {
    ProgramLock::of(installed().built(stack, of)?.id)
}

impl ProgramLock {
    /// `None` if the rule is of no lock, or names none.
    pub(crate) fn of(id: RuleId) -> Option<Self> {
        let rule = installed().get(id)?;
        (rule.is == Is::Lock && rule.name.is_some()).then_some(Self(id))
    }

    fn rule(self) -> Option<&'static Rule> {
        installed().get(self.0)
    }

    /// What its users call it.
    pub fn name(self) -> &'static str {
        self.rule().and_then(|rule| rule.name.as_deref()).unwrap_or_default()
    }

    /// Its kind.
    pub fn kind(self) -> Kind {
        self.rule().map_or(Kind::Mutex, |rule| rule.kind)
    }

    /// In which mode it is asked for.
    pub fn mode(self) -> Mode {
        self.rule().map_or(Mode::Exclusive, |rule| rule.mode)
    }

    /// Whether the lock itself says which thread has it.
    pub fn names_owner(self) -> bool {
        self.rule().is_some_and(|rule| rule.owner.is_some())
    }

    /// As a lock of the model. Which of several it is, an argument of the function says.
    pub fn lock(self, stack: &[Frame]) -> Option<Lock> {
        self.rule()?.lock(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(functions: &[&str]) -> Option<&'static str> {
        let frame = |name: &&str| Frame {
            address: 0,
            function: Some((*name).to_owned()),
            offset: 0,
            module: Some("postgres".to_owned()),
        };
        program_lock(&functions.iter().map(frame).collect::<Vec<_>>(), None).map(ProgramLock::name)
    }

    #[test]
    fn locks_of_known_programs_are_told_by_the_innermost_of_their_functions() {
        let heavyweight = ["epoll_wait", "WaitEventSetWait", "WaitLatch", "ProcSleep", "LockAcquireExtended"];
        assert_eq!(told(&heavyweight), Some("PostgreSQL heavyweight lock"));
        assert_eq!(told(&["sem_wait", "PGSemaphoreLock", "LWLockAcquire", "ProcSleep"]), Some("PostgreSQL LWLock"));
        assert_eq!(told(&["pthread_cond_timedwait", "lock_wait(que_thr_t*)", "x"]), Some("InnoDB row lock"));
        let monitor = "ObjectMonitor::EnterI(JavaThread*)";
        assert_eq!(told(&["pthread_cond_wait", "os::PlatformEvent::park()", monitor]), Some("Java monitor"));
        let notified =
            ["pthread_cond_wait", "os::PlatformEvent::park()", "ObjectMonitor::wait(long, bool, JavaThread*)"];
        assert_eq!(told(&notified), None, "Object.wait waits for a condition");
        let atomics =
            "v8::internal::Object v8::internal::FutexEmulation::WaitSync<int>(v8::internal::Isolate*, unsigned long)";
        assert_eq!(told(&["pthread_cond_wait", &format!("{atomics} [clone .isra.0]")]), Some("Atomics.wait"));
        let group = "rocksdb::WriteThread::AwaitState(rocksdb::WriteThread::Writer*, unsigned char)";
        assert_eq!(told(&["pthread_cond_wait", group]), Some("RocksDB write group"));
    }

    #[test]
    fn a_row_lock_of_a_stripped_mariadb_is_told_by_its_time_limit_and_its_caller() {
        let stack = |wait: &str, nameless: usize, caller: &str| {
            let frame = |name: Option<&str>, module: &str| Frame {
                address: 0,
                function: name.map(str::to_owned),
                offset: 0,
                module: Some(module.to_owned()),
            };
            let mut stack = vec![frame(Some(wait), "libc.so.6")];
            stack.extend((0..nameless).map(|_| frame(None, "mariadbd")));
            stack.push(frame(Some(caller), "mariadbd"));
            program_lock(&stack, Some(Kind::Condvar)).map(ProgramLock::name)
        };
        let caller =
            "handler::ha_index_read_map(unsigned char*, unsigned char const*, unsigned long, ha_rkey_function)";
        assert_eq!(stack("pthread_cond_timedwait", 4, caller), Some("InnoDB row lock"));
        assert_eq!(stack("pthread_cond_wait", 4, caller), None, "without a time limit");
        assert_eq!(stack("pthread_cond_timedwait", 9, caller), None, "deep in InnoDB");
        assert_eq!(stack("pthread_cond_timedwait", 0, caller), None, "in the function itself");
        assert_eq!(stack("pthread_cond_timedwait", 2, "handle_manager(void*)"), None, "a thread of the server's own");
    }

    #[test]
    fn locks_inside_the_c_library_have_the_names_of_what_they_guard() {
        let stack = |functions: &[(&str, &str)]| {
            let frame = |(name, module): &(&str, &str)| Frame {
                address: 0,
                function: Some((*name).to_owned()),
                offset: 0,
                module: Some((*module).to_owned()),
            };
            program_lock(&functions.iter().map(frame).collect::<Vec<_>>(), Some(Kind::Mutex)).map(ProgramLock::name)
        };
        let arena = [("__lll_lock_wait_private", "libc.so.6"), ("malloc", "libc.so.6"), ("churn", "server")];
        assert_eq!(stack(&arena), Some("malloc arena"));
        assert_eq!(stack(&[("__vfprintf_internal", "libc.so.6"), ("log_line", "server")]), Some("stdio stream"));
        let own =
            [("__lll_lock_wait", "libc.so.6"), ("pthread_mutex_lock", "libc.so.6"), ("malloc", "libjemalloc.so.2")];
        assert_eq!(stack(&own), None, "another library's malloc");
        let callback = [("pthread_mutex_lock", "libc.so.6"), ("visit", "server"), ("dl_iterate_phdr", "libc.so.6")];
        assert_eq!(stack(&callback), None, "the program's own lock, in a callback");
    }

    #[test]
    fn functions_of_other_programs_are_not_taken_for_them() {
        assert_eq!(told(&["epoll_wait", "WaitEventSetWait", "WaitLatch", "CheckpointerMain"]), None);
        assert_eq!(told(&["__lll_lock_wait", "pthread_mutex_lock", "main"]), None);
        assert_eq!(told(&["mine::lock_wait()", "main"]), None);
    }
}
