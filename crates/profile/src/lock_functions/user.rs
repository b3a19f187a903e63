//! Functions of programs that belong to a lock: told by name, and by the shape of the name.
//!
//! Every program and library wraps the C library's locks once more (`uv_mutex_lock`, `Mutex::Lock`, `item_lock`), so no list is ever
//! complete. What a function that only wraps a lock is called tells it: at most one word that is not about locks, and it
//! stands first.

use super::pattern::matches_any;
use super::skip_while;

/// Taking and releasing a lock of a program. The innermost frame of each such stack is one of them. They say nothing about
/// who uses the lock, and are left out of every stack.
const LOCKING: &[&str] = &[
    // The C library, under its own names and those that it uses inside.
    "pthread_*",
    "__pthread_*",
    "___pthread_*",
    "__new_sem_*",
    "__old_sem_*",
    "sem_*",
    "mtx_*",
    "cnd_*",
    "do_futex_wait",
    "futex_wait*",
    "__futex_abstimed_wait*",
    "__lll_lock_*",
    "__lll_unlock_*",
    "lll_*",
    "__GI_*",
    "__timedwait*",
    "__cxa_guard_*",
    "syscall",
    // C++.
    "__gthread_*",
    "std::mutex::*",
    "std::__mutex_base::*",
    "std::recursive_mutex::*",
    "std::__recursive_mutex_base::*",
    "std::timed_mutex::*",
    "std::shared_mutex::*",
    "std::__shared_mutex_*",
    "std::unique_lock<*",
    "std::shared_lock<*",
    "std::lock_guard<*",
    "std::scoped_lock<*",
    "std::__condvar::*",
    "std::condition_variable::*",
    "std::__atomic_*",
    "void std::__atomic_*",
    "bool std::__atomic_*",
    "std::__detail::__*",
    "std::__semaphore_*",
    "std::counting_semaphore<*",
    // PostgreSQL.
    "LWLock*",
    "PGSemaphore*",
    // Rust's standard library and parking_lot.
    "std::sys::*",
    "std::sys_common::*",
    "std::sync::*",
    "std::thread::park*",
    "std::thread::Thread::unpark",
    "std::thread::thread::Thread::*",
    "<std::thread::thread::Thread>::*",
    "<std::thread::Thread>::*",
    "<std::sys::*",
    "<std::sync::*",
    "<parking_lot*",
    "parking_lot*",
    "lock_api::*",
    "<lock_api::*",
    "lockmeter_locks::*",
    "<lockmeter_locks::*",
    // CPython's locks, which are semaphores, and its interpreter lock, which is a mutex and a condition.
    "PyThread_*lock*",
    "PyThread_*_sem",
    "_PySemaphore_*",
    "_PyParkingLot_*",
    "_PyMutex_*",
    "PyMutex_*",
    "_PyRawMutex_*",
    "PyEvent_Wait*",
    "_PyEvent_Notify",
    "acquire_timed",
    "lock_PyThread_*",
    "rlock_acquire*",
    "rlock_release*",
    "take_gil*",
    "drop_gil*",
    "PyCOND_*",
    "PyMUTEX_*",
    // GLib, which asks the kernel itself.
    "g_mutex_*",
    "g_cond_*",
    "g_rec_mutex_*",
    "g_rw_lock_*",
    "g_futex_*",
    // Go's runtime.
    "runtime.futex*",
    "runtime.lock",
    "runtime.lock2",
    "runtime.lockWithRank",
    "runtime.unlock*",
    "runtime.notesleep",
    "runtime.notetsleep*",
    "runtime.notewakeup",
    "runtime.semasleep",
    "runtime.semawakeup",
];

/// Functions that the other lists name too broadly: where what they call was inlined or jumped out of, they are all that is left
/// of the code that uses the lock. Rust's is where a thread or `main` begins.
const USERS: &[&str] = &[
    "std::sys::backtrace::__rust_begin_short_backtrace*",
    "std::sys_common::backtrace::__rust_begin_short_backtrace*",
];

/// Functions that wrap a lock under names that do not have the shape of it.
const WRAPPERS: &[&str] = &[
    // NSPR, SDL, OpenSSL, APR, libevent, Windows' names.
    "PR_Enter*",
    "PR_Exit*",
    "PR_Wait*",
    "SDL_CreateMutex",
    "CRYPTO_THREAD_*",
    "apr_thread_*",
    "evthread_posix_*",
    "EnterCriticalSection",
    "LeaveCriticalSection",
    // MariaDB, MySQL and InnoDB.
    "inline_mysql_*",
    "psi_*_lock*",
    "psi_*_wait*",
    "srw_*",
    "ssux_lock_*",
    "safe_mutex_*",
    // Abseil, Boost, folly, Qt.
    "absl::*Mutex*",
    "absl::*CondVar*",
    "absl::*synchronization_internal::*",
    "boost::*mutex*",
    "boost::*_lock<*",
    "boost::*lock_guard<*",
    "boost::*condition_variable*",
    "folly::*Mutex*",
    "folly::*Synchronized*",
    "QBasicMutex::*",
    "QReadWriteLock::*",
    "QWaitCondition::*",
];

/// Functions of languages and their libraries that stand between a lock and the code that somebody wrote.
const MACHINERY: &[&str] = &[
    // C++'s allocation and construction.
    "operator new*",
    "std::*",
    "void std::*",
    "decltype*std::*",
    "__gnu_cxx::*",
    "void __gnu_cxx::*",
    // Rust's.
    "core::*",
    "alloc::*",
    "<core::*",
    "<alloc::*",
    "<std::*",
    "<*as core::*",
    "<*as alloc::*",
    // How CPython's interpreter calls a function that is written in C.
    "cfunction_*",
    "method_vectorcall*",
    "method_call",
    "vectorcall_*",
    "slot_tp_*",
    "type_call*",
    "partial_*call*",
    "PyObject_Vectorcall*",
    "_PyObject_Vectorcall*",
    "PyObject_Call*",
    "_PyObject_Call*",
    "_PyObject_MakeTpCall*",
    "PyCFunction_Call",
    "PyVectorcall_Call",
    "_PyVectorcall_Call*",
    "PyEval_AcquireThread",
    "PyEval_ReleaseThread",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyGILState_*",
    "_PyThreadState_Attach",
    "_PyThreadState_Detach",
    "new_threading_lock",
    "newlockobject",
    "thread_PyThread_allocate_lock",
    "PyThreadHandleObject_join",
    "ThreadHandle_join",
    "lock__enter__",
    "lock__exit__",
];

/// Words for what is waited for, in names of functions.
const LOCKS: &[&str] = &[
    "lock",
    "unlock",
    "trylock",
    "timedlock",
    "rdlock",
    "wrlock",
    "rlock",
    "wlock",
    "rwlock",
    "rwlocks",
    "spinlock",
    "mutex",
    "mtx",
    "semaphore",
    "sem",
    "futex",
    "cond",
    "condvar",
    "latch",
];

/// Words for what is done to it, and how.
const DEALINGS: &[&str] = &[
    "acquire",
    "release",
    "enter",
    "leave",
    "exit",
    "wait",
    "timedwait",
    "signal",
    "broadcast",
    "notify",
    "post",
    "try",
    "timed",
    "for",
    "until",
    "rd",
    "wr",
    "rw",
    "read",
    "reader",
    "write",
    "writer",
    "shared",
    "exclusive",
    "recursive",
    "spin",
    "init",
    "create",
    "new",
    "make",
    "alloc",
    "allocate",
    "construct",
    "guard",
    "holder",
    "locker",
    "scoped",
    "auto",
    "fast",
    "slow",
    "path",
    "slowpath",
    "contended",
    "blocking",
    "internal",
    "impl",
    "inline",
    "raw",
    "np",
    "variable",
];

/// Whether a function of a program takes or releases locks for others.
pub fn is_user_lock_function(name: &str) -> bool {
    matches_any(LOCKING, name) && !matches_any(USERS, name)
}

/// Whether a function of a program stands between a lock and the code that uses it: a lock function, a function that only
/// wraps one, or a part of a language's own library.
pub fn is_user_machinery(name: &str) -> bool {
    [LOCKING, WRAPPERS, MACHINERY].iter().any(|list| matches_any(list, name)) || is_called_like_a_lock(name)
}

/// Whether a stack is that of a program's lock: its functions may be called what they like, `up` and `schedule` included.
pub(super) fn is_of_user_lock(stack: &[&str]) -> bool {
    stack.first().is_some_and(|function| is_user_lock_function(function))
}

/// A program's stack without the lock functions at its inner end.
pub(super) fn strip<'a, 'name>(stack: &'a [&'name str]) -> &'a [&'name str] {
    skip_while(stack, is_user_lock_function)
}

/// A program's stack from the code on that somebody wrote to use the lock.
pub(super) fn users<'a, 'name>(stack: &'a [&'name str]) -> &'a [&'name str] {
    skip_while(stack, |name| is_user_machinery(name) && !matches_any(USERS, name))
}

/// Whether the name has the shape of one that only wraps a lock: `uv_mutex_lock`, `Mutex::Lock`, `item_lock`, `sync.(*Mutex).Lock`.
pub fn is_called_like_a_lock(name: &str) -> bool {
    let words = words(&own_name(name));
    let is_known = |word: &String| LOCKS.contains(&word.as_str()) || DEALINGS.contains(&word.as_str());
    let about_locks = match words.first() {
        Some(first) if !is_known(first) => &words[1..],
        _ => &words[..],
    };
    about_locks.iter().all(is_known) && about_locks.iter().any(|word| LOCKS.contains(&word.as_str()))
}

/// Words for what every program does and has: two functions that have one of them in common need have nothing else in common.
const EVERYWHERE: &[&str] = &[
    "a",
    "add",
    "all",
    "alloc",
    "allocate",
    "at",
    "base",
    "begin",
    "bool",
    "build",
    "call",
    "calloc",
    "char",
    "clear",
    "close",
    "cold",
    "const",
    "constprop",
    "ctor",
    "data",
    "delete",
    "destroy",
    "do",
    "end",
    "false",
    "fn",
    "free",
    "from",
    "function",
    "get",
    "handle",
    "handler",
    "impl",
    "in",
    "initialise",
    "initialize",
    "int",
    "internal",
    "isra",
    "library",
    "long",
    "loop",
    "m",
    "main",
    "malloc",
    "namespace",
    "of",
    "on",
    "op",
    "open",
    "operator",
    "part",
    "process",
    "prepare",
    "proc",
    "ptr",
    "put",
    "reset",
    "run",
    "s",
    "set",
    "setup",
    "short",
    "size",
    "start",
    "static",
    "std",
    "stop",
    "t",
    "task",
    "the",
    "thread",
    "threads",
    "to",
    "true",
    "type",
    "unsigned",
    "up",
    "update",
    "void",
    "volatile",
    "with",
    "work",
    "worker",
    "workers",
];

/// Words of a function's name, its class and its parameters that say what it is about. `Pool::take(Request*)`: pool, take, request.
pub fn telling_words(name: &str) -> impl Iterator<Item = String> {
    let lists = [LOCKS, DEALINGS, EVERYWHERE];
    // Of several locks, too.
    let says_nothing =
        move |word: &str| lists.iter().any(|list| list.contains(&word) || list.contains(&word.trim_end_matches('s')));
    words(name).into_iter().filter(move |word| !says_nothing(word))
}

/// A function's own name, without its parameters, its template's arguments, and what it is part of.
pub fn own_name(name: &str) -> String {
    let (mut depth, mut last) = (0_u32, String::new());
    for letter in name.chars() {
        match letter {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth = depth.saturating_sub(1),
            ':' | '.' | '~' | ' ' if depth == 0 => last.clear(),
            letter if depth == 0 => last.push(letter),
            _ => {}
        }
    }
    last
}

/// The words that a name is made of, in lower case, without numbers: `item_lock2` and `ItemLock` are two words each.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = '_';
    for letter in name.chars() {
        if letter.is_ascii_alphabetic() {
            let is_hump = letter.is_ascii_uppercase() && !before.is_ascii_uppercase();
            if !before.is_ascii_alphabetic() || is_hump {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.push(letter.to_ascii_lowercase());
            }
        }
        before = letter;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::{main_function, strip_lock_functions};
    use super::*;

    #[test]
    fn a_program_may_call_its_functions_what_it_likes() {
        assert_eq!(strip_lock_functions(&["pthread_mutex_lock", "std::mutex::lock()", "schedule"]), ["schedule"]);
        assert_eq!(main_function(&["pthread_mutex_unlock", "up", "main"]), Some("up"));
        let rust = [
            "syscall",
            "std::sys::pal::unix::futex::futex_wait",
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "std::sync::poison::mutex::Mutex<T>::lock",
            "server::serve",
        ];
        assert_eq!(main_function(&rust), Some("server::serve"));
    }

    /// Regression: whatever a thread ran, it was blamed on `start_thread`.
    #[test]
    fn where_a_thread_of_rust_begins_is_a_user_of_what_was_inlined_there() {
        let begin = "std::sys::backtrace::__rust_begin_short_backtrace";
        let stack = ["syscall", begin, "core::ops::function::FnOnce::call_once{{vtable.shim}}", "start_thread"];
        assert_eq!(strip_lock_functions(&stack), &stack[1..]);
        assert_eq!(main_function(&stack), Some(begin));
        assert!(is_user_machinery(begin), "it says nothing of who made a lock");
    }

    #[test]
    fn a_lock_of_gos_runtime_is_used_by_who_takes_it() {
        let waiter =
            ["runtime.futex.abi0", "runtime.futexsleep", "runtime.semasleep", "runtime.lock2", "runtime.semrelease1"];
        assert_eq!(main_function(&waiter), Some("runtime.semrelease1"));
        let releaser = [
            "runtime.futex.abi0",
            "runtime.futexwakeup",
            "runtime.semawakeup",
            "runtime.unlock2Wake",
            "runtime.semrelease1",
        ];
        assert_eq!(main_function(&releaser), Some("runtime.semrelease1"));
    }

    #[test]
    fn wrappers_of_locks_are_told_by_the_shape_of_their_names() {
        for name in [
            "uv_mutex_lock",
            "item_lock",
            "Mutex::Lock()",
            "leveldb::port::Mutex::Unlock()",
            "SDL_LockMutex",
            "pthreadMutexEnter",
            "sqlite3_mutex_enter",
            "SpinLock::SpinLock()",
            "ns::SpinLock<int>::lock(bool)",
            "sync.(*Mutex).Lock",
            "sync.(*RWMutex).RLock",
            "apr_thread_mutex_lock",
            "do_lock",
            "ScopedLock::ScopedLock",
            "folly::Synchronized<int>::wlock()",
        ] {
            assert!(is_user_machinery(name), "{name} only wraps a lock");
        }
    }

    #[test]
    fn functions_that_merely_speak_of_locks_are_users() {
        for name in [
            "make_locks",
            "lock_table",
            "unlock_all_pages",
            "read_config",
            "wait",
            "block",
            "often",
            "Server::handle(Mutex&)",
            "process_item",
            "release_memory",
            "init",
            "notify_all_waiters",
            "deadlock",
            "main",
        ] {
            assert!(!is_user_machinery(name), "{name} is a user of a lock");
        }
    }

    #[test]
    fn code_that_somebody_wrote_is_found_behind_wrappers_and_languages() {
        let stack = ["pthread_mutex_init", "uv_mutex_init", "std::make_unique<Pool>()", "Server::start()", "main"];
        assert_eq!(main_function(&stack), Some("Server::start()"));
        let python = ["sem_clockwait", "PyThread_acquire_lock_timed", "cfunction_call", "_PyEval_EvalFrameDefault"];
        assert_eq!(main_function(&python), Some("_PyEval_EvalFrameDefault"));
        // In the stack that is shown they stay: they say how the lock is used.
        assert_eq!(strip_lock_functions(&stack)[0], "uv_mutex_init");
    }
}
