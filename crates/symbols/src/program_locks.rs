//! Locks that known programs build for themselves, of whatever the kernel offers to sleep in: told by the function that waits.

use lockmeter_profile::lock_functions::own_name;
use lockmeter_profile::{Frame, Kind, Lock, Mode, Naming};

use crate::work_semaphores::is_of_libc;

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
    // Of OpenJDK: each thread parks on a condition of its own.
    lock("ObjectMonitor::EnterI", "Java monitor", Kind::Mutex),
    lock("ObjectMonitor::ReenterI", "Java monitor", Kind::Mutex),
    lock("ObjectMonitor::enter_internal", "Java monitor", Kind::Mutex),
    lock("ObjectMonitor::reenter_internal", "Java monitor", Kind::Mutex),
    // What JavaScript and WebAssembly build locks of, and queues of work: who ends the waits says which.
    lock("v8::internal::FutexEmulation::WaitSync", "Atomics.wait", Kind::Semaphore),
    lock("v8::internal::FutexEmulation::WaitJs32", "Atomics.wait", Kind::Semaphore),
    lock("v8::internal::FutexEmulation::WaitJs64", "Atomics.wait", Kind::Semaphore),
    lock("v8::internal::FutexEmulation::WaitWasm32", "Atomics.wait", Kind::Semaphore),
    lock("v8::internal::FutexEmulation::WaitWasm64", "Atomics.wait", Kind::Semaphore),
    lock("v8::internal::FutexEmulation::Wait", "Atomics.wait", Kind::Semaphore),
];

/// The program in which a stripped `lock_wait` is told by what stands about it.
const STRIPPED_DATABASE: &str = "mariadbd";

/// Functions that MariaDB exports, through which it asks InnoDB for a row.
const ROW_FUNCTIONS: &[&str] = &[
    "handler::ha_index_read_map",
    "handler::ha_index_read_idx_map",
    "handler::ha_index_next",
    "handler::ha_index_next_same",
    "handler::ha_index_prev",
    "handler::ha_index_first",
    "handler::ha_index_last",
    "handler::ha_rnd_next",
    "handler::ha_rnd_pos",
    "handler::ha_write_row",
    "handler::ha_update_row",
    "handler::ha_delete_row",
];

/// `lock_wait` and its callers in InnoDB. Other waits (for a free page, for the log) lie deeper.
const MOST_STRIPPED_FRAMES: usize = 5;

/// Locks inside the C library, by those of its functions that take them.
const OF_C_LIBRARY: &[(&str, &[&str])] = &[
    (
        "malloc arena",
        &[
            "malloc",
            "free",
            "calloc",
            "realloc",
            "memalign",
            "aligned_alloc",
            "posix_memalign",
            "valloc",
            "_int_malloc",
            "_int_free",
            "malloc_consolidate",
            "arena_get2",
            "malloc_trim",
        ],
    ),
    (
        "stdio stream",
        &[
            "printf",
            "fprintf",
            "__fprintf",
            "vfprintf",
            "__vfprintf_internal",
            "puts",
            "_IO_puts",
            "fputs",
            "_IO_fputs",
            "putc",
            "_IO_putc",
            "fputc",
            "putchar",
            "fwrite",
            "_IO_fwrite",
            "fflush",
            "_IO_fflush",
            "getc",
            "_IO_getc",
            "fgetc",
            "fgets",
            "_IO_fgets",
            "getline",
            "_IO_getdelim",
            "fread",
            "_IO_fread",
            "fseek",
            "ftell",
            "fclose",
            "_IO_new_fclose",
            "flockfile",
        ],
    ),
    ("time zone", &["__tz_convert", "tzset", "__tzset", "localtime", "localtime_r", "mktime", "timelocal", "strftime"]),
    ("dynamic loader", &["dlopen", "dlsym", "dlclose", "dlerror", "dl_iterate_phdr", "_dl_open", "_dl_addr"]),
];

/// Files of programs whose threads sleep for locks in other calls than futexes.
const PROGRAMS_WITHOUT_FUTEXES: &[&str] = &["postgres"];

/// Whether threads that run code of a file of this name may sleep for its own locks in any call.
pub fn has_own_locks(file: &str) -> bool {
    PROGRAMS_WITHOUT_FUTEXES.contains(&file)
}

/// The lock that a thread waits for whose stack this is, innermost frame first; `None` if it is none of these.
pub fn program_lock(stack: &[Frame]) -> Option<ProgramLock> {
    let functions = stack.iter().take(DEEPEST).filter_map(|frame| frame.function.as_deref());
    functions.flat_map(|function| LOCKS.iter().find(|lock| is_called(function, lock.function))).next().copied()
}

/// Of a stack that waits for a condition: whether it is a row lock in a MariaDB without symbols. Of all that InnoDB waits for, only row
/// locks have a time limit and are asked for so near to the function that wants the row.
pub fn stripped_row_lock(stack: &[Frame]) -> Option<ProgramLock> {
    let (inside, outside) = stack.split_at(stack.iter().take_while(|frame| is_of_libc(frame)).count());
    let is_timed = |frame: &Frame| frame.function.as_deref().is_some_and(|name| name.contains("cond_timedwait"));
    let is_stripped = |frame: &Frame| frame.function.is_none() && frame.module.as_deref() == Some(STRIPPED_DATABASE);
    let stripped = outside.iter().take_while(|frame| is_stripped(frame)).count();
    let caller = outside.get(stripped)?.function.as_deref()?;
    let function = ROW_FUNCTIONS.iter().find(|function| is_called(caller, function))?;
    let is_near = (1..=MOST_STRIPPED_FRAMES).contains(&stripped);
    (is_near && inside.iter().any(is_timed)).then(|| lock(function, "InnoDB row lock", Kind::Mutex))
}

/// Of a stack that waits for a lock: which one, if the C library takes it for itself. No frame of anything else stands between the wait
/// and the function.
pub fn c_library_lock(stack: &[Frame]) -> Option<ProgramLock> {
    let inside = stack.iter().take_while(|frame| is_of_libc(frame)).filter_map(|frame| frame.function.as_deref());
    let functions: Vec<&'static str> = inside
        .flat_map(|function| OF_C_LIBRARY.iter().flat_map(|(_, all)| *all).find(|known| is_called(function, known)))
        .copied()
        .collect();
    let function = *functions.first()?;
    let (name, _) = OF_C_LIBRARY.iter().find(|(_, all)| all.contains(&function))?;
    Some(lock(function, name, Kind::Mutex))
}

fn is_called(function: &str, name: &str) -> bool {
    let plain = function.split_once('(').map_or(function, |(name, _)| name);
    let plain = plain.split_once('.').map_or(plain, |(name, _)| name);
    // A template's name begins with what it returns.
    let template = plain.strip_suffix('>').and_then(|plain| plain.rsplit_once('<'));
    let plain = template.map_or(plain, |(name, _)| name.rsplit_once(' ').map_or(name, |(_, name)| name));
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
            stripped_row_lock(&stack).map(|lock| lock.name)
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
            c_library_lock(&functions.iter().map(frame).collect::<Vec<_>>()).map(|lock| lock.name)
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
