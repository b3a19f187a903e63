//! Locks that known programs build for themselves, of whatever the kernel offers to sleep in: told by the function that waits.

use lockmeter_profile::lock_functions::own_name;
use lockmeter_profile::{Frame, Kind, Lock, Mode, Naming};

/// How far from its inner end a stack is looked at: beyond it are callers.
const DEEPEST: usize = 16;

/// A lock of a known program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramLock {
    /// The function in which threads wait for it.
    pub function: &'static str,
    /// What its users call it.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
}

const fn lock(function: &'static str, name: &'static str, kind: Kind) -> ProgramLock {
    ProgramLock { function, name, kind }
}

/// A function's name stands for itself alone, one with a class for all of its templates.
const LOCKS: &[ProgramLock] = &[
    // A semaphore of each backend, or a latch.
    lock("LWLockAcquire", "PostgreSQL LWLock", Kind::Rwlock),
    lock("LWLockAcquireOrWait", "PostgreSQL LWLock", Kind::Rwlock),
    lock("ProcSleep", "PostgreSQL heavyweight lock", Kind::Mutex),
    lock("LockBufferForCleanup", "PostgreSQL buffer pin", Kind::Mutex),
    // Conditions.
    lock("lock_wait", "InnoDB row lock", Kind::Mutex),
    lock("lock_wait_suspend_thread", "InnoDB row lock", Kind::Mutex),
    lock("MDL_context::acquire_lock", "metadata lock", Kind::Rwlock),
    lock("rocksdb::WriteThread::AwaitState", "RocksDB write group", Kind::Mutex),
    lock("rocksdb::WriteThread::BlockingAwaitState", "RocksDB write group", Kind::Mutex),
];

/// The lock that a thread waits for whose stack this is, innermost frame first; `None` if it is none of these.
pub fn program_lock(stack: &[Frame]) -> Option<ProgramLock> {
    let functions = stack.iter().take(DEEPEST).filter_map(|frame| frame.function.as_deref());
    functions.flat_map(|function| LOCKS.iter().find(|lock| is_called(function, lock.function))).next().copied()
}

fn is_called(function: &str, name: &str) -> bool {
    let plain = function.split_once('(').map_or(function, |(name, _)| name);
    let plain = plain.split_once('.').map_or(plain, |(name, _)| name);
    plain == name || (!name.contains("::") && !plain.contains("::") && own_name(plain) == name)
}

impl ProgramLock {
    /// In which mode it is asked for, as far as one knows.
    pub const fn mode(&self) -> Mode {
        Mode::Exclusive
    }

    /// As a lock of the model. Which of several it is, an argument of the function says.
    pub fn lock(&self, stack: &[Frame]) -> Lock {
        let file =
            stack.iter().find(|frame| frame.function.as_deref().is_some_and(|name| is_called(name, self.function)));
        let file = file.and_then(|frame| frame.module.clone()).unwrap_or_default();
        Lock {
            name: self.name.to_owned(),
            object: None,
            naming: Naming::UserFirstSite,
            detail: format!("any of those that {file} waits for in {}", self.function),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(functions: &[&str]) -> Option<&'static str> {
        let frame = |name: &&str| Frame { address: 0, function: Some((*name).to_owned()), offset: 0, module: None };
        program_lock(&functions.iter().map(frame).collect::<Vec<_>>()).map(|lock| lock.name)
    }

    #[test]
    fn locks_of_known_programs_are_told_by_the_innermost_of_their_functions() {
        let heavyweight = ["epoll_wait", "WaitEventSetWait", "WaitLatch", "ProcSleep", "LockAcquireExtended"];
        assert_eq!(told(&heavyweight), Some("PostgreSQL heavyweight lock"));
        assert_eq!(told(&["sem_wait", "PGSemaphoreLock", "LWLockAcquire", "ProcSleep"]), Some("PostgreSQL LWLock"));
        assert_eq!(told(&["pthread_cond_timedwait", "lock_wait(que_thr_t*)", "x"]), Some("InnoDB row lock"));
        let group = "rocksdb::WriteThread::AwaitState(rocksdb::WriteThread::Writer*, unsigned char)";
        assert_eq!(told(&["pthread_cond_wait", group]), Some("RocksDB write group"));
    }

    #[test]
    fn functions_of_other_programs_are_not_taken_for_them() {
        assert_eq!(told(&["epoll_wait", "WaitEventSetWait", "WaitLatch", "CheckpointerMain"]), None);
        assert_eq!(told(&["__lll_lock_wait", "pthread_mutex_lock", "main"]), None);
        assert_eq!(told(&["mine::lock_wait()", "main"]), None);
    }
}
