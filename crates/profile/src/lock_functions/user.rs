//! Functions of programs that belong to a lock: recognised by name, and by the shape of the name.
//!
//! Every program and library wraps the C library's locks once more (`uv_mutex_lock`, `Mutex::Lock`, `item_lock`), so no list is ever
//! complete. What a function that only wraps a lock is called tells it: at most one word that is not about locks, and it
//! stands first.

use std::cell::RefCell;
use std::collections::HashMap;

use super::kernel::{Role, has_role};
use super::skip_while;
use crate::rules::{DEEPEST, installed};

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

/// What the installed rules say of a function.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// It is part of a lock that programs build.
    is_of_rule: bool,
    /// It takes or releases locks for others.
    is_lock: bool,
}

/// Functions whose answers are kept; a recording has some thousands.
const MOST_KEPT: usize = 100_000;

/// Every stack of every interval asks of the same functions, and each answer takes dozens of patterns. Rules are installed once.
fn told(name: &str) -> Told {
    thread_local! { static TOLD: RefCell<HashMap<Box<str>, Told>> = RefCell::default(); }
    TOLD.with_borrow_mut(|all| {
        if let Some(told) = all.get(name) {
            return *told;
        }
        let rules = installed();
        let is_of_rule = rules.is_function_of_rule(name);
        let told = Told { is_of_rule, is_lock: rules.is_lock_function(name) && !rules.is_user(name) };
        if all.len() >= MOST_KEPT {
            all.clear();
        }
        all.insert(name.into(), told);
        told
    })
}

/// Whether a function of a program takes or releases locks for others.
pub fn is_user_lock_function(name: &str) -> bool {
    told(name).is_lock
}

/// Whether a function of a program stands between a lock and the code that uses it: a lock function, a function that only
/// wraps one, or a part of a language's own library.
pub fn is_user_machinery(name: &str) -> bool {
    let rules = installed();
    rules.is_lock_function(name) || rules.is_wrapper_or_machinery(name) || is_called_like_a_lock(name)
}

/// The length of the run of frames at a stack's inner end that belong to a program's lock; `None` if it is not the stack of one. The
/// functions of a program may be called what they like, `up` and `schedule` included.
pub(super) fn lock_frames(stack: &[&str]) -> Option<usize> {
    let innermost = stack.first()?;
    let is_of_kernel = || has_role(innermost, Role::ALL);
    // All that a lock calls is part of it, such as a timed sleep.
    let inside = stack.iter().take(DEEPEST).position(|name| told(name).is_of_rule);
    let inside = inside.filter(|_| is_user_lock_function(innermost) || !is_of_kernel());
    let begin = match inside {
        Some(at) => at,
        None if is_user_lock_function(innermost) => 0,
        None => return None,
    };
    Some(begin + stack[begin..].iter().take_while(|name| is_user_lock_function(name)).count())
}

/// Whether a stack is that of a program's lock.
pub(super) fn is_of_user_lock(stack: &[&str]) -> bool {
    lock_frames(stack).is_some()
}

/// A program's stack from the code on that somebody wrote to use the lock.
pub(super) fn users<'a, 'name>(stack: &'a [&'name str]) -> &'a [&'name str] {
    skip_while(stack, |name| is_user_machinery(name) && !installed().is_user(name))
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
