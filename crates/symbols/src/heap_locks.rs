//! What a program's lock on the heap is called: by the code that made it, or that was first seen to use it.

use std::collections::HashSet;

use lockmeter_profile::lock_functions::{is_user_machinery, telling_words};
use lockmeter_profile::{Frame, Lock, Naming, Unnamed};

/// Functions that are named: one is often a constructor or a `new`, and its caller says whose.
const FUNCTIONS: usize = 2;

/// Files whose nameless functions are no code that anybody wants to hear of.
const RUNTIMES: &[&str] = &["libc.so", "libc-", "libpthread", "libstdc++", "ld-linux"];
const PYTHON: &[&str] = &["python", "libpython"];

/// The outer end of every stack.
const ENTRIES: &[&str] = &[
    "main",
    "_start",
    "start_thread",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "call_init",
    "_dl_init",
    "_dl_start_user",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
];

/// Evaluates Python's own code, of which no more is known.
const EVALUATOR: &str = "_PyEval_EvalFrame";

/// How a stack came to name a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The lock was initialised there.
    Created,
    /// It was contended there, and nothing was known of it before.
    FirstSeen,
}

/// The lock that this stack, innermost frame first, made or was first seen to use.
pub fn heap_lock(stack: &[Frame], origin: Origin) -> Lock {
    let (naming, verb) = match origin {
        Origin::Created => (Naming::UserCreated, "created"),
        Origin::FirstSeen => (Naming::UserFirstSite, "first seen"),
    };
    let whole: Vec<String> = stack.iter().map(Frame::label).collect();
    match users(stack) {
        None => Lock {
            name: "heap".to_owned(),
            object: None,
            naming: Naming::Unnamed(Unnamed::NoUserSite),
            detail: "no stack of its users was taken".to_owned(),
        },
        Some(users) => Lock { name: format!("heap, {verb} {users}"), object: None, naming, detail: whole.join(" < ") },
    }
}

/// The kernel maps nothing else so close below the end of a process's first stack, however large that may become.
const BELOW_STACK_END: u64 = 128 << 20;

/// Whether an address lies on the stack of a process's first thread, which ends there.
pub const fn is_on_main_stack(address: u64, stack_end: u64) -> bool {
    address < stack_end && stack_end - address < BELOW_STACK_END
}

/// A [`heap_lock`] that lies on a stack.
pub fn on_stack(lock: Lock) -> Lock {
    Lock { name: lock.name.replacen("heap", "stack", 1), ..lock }
}

/// As [`heap_lock`] of a lock that these threads wait for while nothing says where it lies.
pub fn lock_without_address(user: &[Frame]) -> Lock {
    let heap = heap_lock(user, Origin::FirstSeen);
    let name = format!("unknown address{}", heap.name.strip_prefix("heap").unwrap_or(""));
    Lock { name, ..heap }
}

/// Whether the lock that code with one of these stacks has made may be the one that code with the other uses. Nothing marks that memory
/// is used again, for a lock that no call makes. So what both do is compared by their names: two functions that say what they are about,
/// in words of which they have none in common, are taken to be about two things.
pub fn may_be_the_lock_of(maker: &[Frame], user: &[Frame]) -> bool {
    let program: HashSet<String> =
        maker.iter().filter_map(|frame| frame.module.as_deref()).flat_map(telling_words).collect();
    let words = |stack: &[Frame]| -> HashSet<String> {
        let outside = |frame: &&Frame| !frame.function.as_deref().is_some_and(|name| ENTRIES.contains(&name));
        let frames = stack.iter().take_while(outside).filter(|frame| !is_machinery(frame));
        let names = frames.filter_map(|frame| frame.function.as_deref());
        names.flat_map(telling_words).filter(|word| !program.contains(word)).collect()
    };
    let (made_by, used_by) = (words(maker), words(user));
    made_by.is_empty() || used_by.is_empty() || !made_by.is_disjoint(&used_by)
}

/// The functions that a lock is named by: `at Pool::Pool < Server::start`, `by Python code`.
fn users(stack: &[Frame]) -> Option<String> {
    let is_entry = |name: &str| name != "main" && ENTRIES.contains(&name);
    let is_user = |frame: &Frame| !is_machinery(frame) && !frame.function.as_deref().is_some_and(is_entry);
    // Better a wrapper's name than none, or than that every thread begins somewhere.
    let is_inside_of_entry = |frame: &Frame| frame.function.as_deref().is_some_and(|name| !is_entry(name));
    let begin = stack.iter().position(is_user).or_else(|| stack.iter().rposition(is_inside_of_entry));
    let begin = begin.or(stack.len().checked_sub(1))?;
    let users = stack.get(begin..)?;
    let innermost = users.first()?;
    if evaluates_python(innermost) || (!is_user(innermost) && is_of_python(innermost)) {
        return Some("by Python code".to_owned());
    }
    let is_entry = |frame: &&Frame| frame.function.as_deref().is_some_and(|name| ENTRIES.contains(&name));
    let (first, outer) = users.split_first()?;
    let outer = outer.iter().take_while(|frame| !is_entry(frame)).filter(|frame| !is_machinery(frame));
    let functions: Vec<String> = [first].into_iter().chain(outer).take(FUNCTIONS).map(Frame::label).collect();
    Some(format!("at {}", functions.join(" < ")))
}

fn is_machinery(frame: &Frame) -> bool {
    match (&frame.function, &frame.module) {
        (Some(function), _) => is_user_machinery(function),
        (None, Some(_)) => is_of(frame, RUNTIMES) || is_of_python(frame),
        (None, None) => true,
    }
}

/// Whether the frame runs Python's own code.
pub(crate) fn evaluates_python(frame: &Frame) -> bool {
    frame.function.as_deref().is_some_and(|function| function.starts_with(EVALUATOR))
}

/// Whether it lies in Python's interpreter.
pub(crate) fn is_of_python(frame: &Frame) -> bool {
    is_of(frame, PYTHON)
}

fn is_of(frame: &Frame, files: &[&str]) -> bool {
    frame.module.as_deref().is_some_and(|module| files.iter().any(|file| module.starts_with(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(stack: &[&str]) -> String {
        let frame = |text: &&str| {
            let (module, function) = text.split_once('!').unwrap_or(("program", text));
            let function = (!function.is_empty()).then(|| function.to_owned());
            Frame { address: 0, function, offset: 0x10, module: Some(module.to_owned()) }
        };
        heap_lock(&stack.iter().map(frame).collect::<Vec<_>>(), Origin::Created).name
    }

    #[test]
    fn a_lock_is_named_by_its_maker_and_who_had_it_made() {
        let stack = ["Mutex::Mutex()", "std::make_unique<Pool>()", "Pool::Pool()", "Server::start()", "main"];
        assert_eq!(named(&stack), "heap, created at Pool::Pool() < Server::start()");
        assert_eq!(named(&["make_locks", "main", "__libc_start_call_main"]), "heap, created at make_locks");
        assert_eq!(named(&["main", "__libc_start_call_main"]), "heap, created at main");
    }

    #[test]
    fn a_lock_is_not_that_of_its_maker_if_its_users_are_about_something_else() {
        let stack = |functions: &[&str]| -> Vec<Frame> {
            let frame = |name: &&str| Frame {
                address: 0,
                function: Some((*name).to_owned()),
                offset: 0,
                module: Some("cached".into()),
            };
            functions.iter().map(frame).collect()
        };
        let fits = |maker: &[&str], user: &[&str]| may_be_the_lock_of(&stack(maker), &stack(user));
        assert!(!fits(&["connection_new()", "main"], &["cache_lookup(Cache*)", "start_thread"]));
        // The same object, the same class, a parameter of it, or one function above both.
        assert!(fits(&["connection_new()", "main"], &["connection_free(Conn*)", "main"]));
        assert!(fits(&["Pool::Pool()", "Server::Server()"], &["Pool::take()", "handle_request"]));
        assert!(fits(&["Pool::Pool()"], &["drain(Pool*)"]));
        assert!(fits(&["Pool::Pool()", "Server::start()"], &["refill", "Server::serve()"]));
        // Names that say nothing, and those that begin with the program's.
        assert!(fits(&["make_locks", "main"], &["cache_lookup"]) && fits(&["connection_new"], &["worker"]));
        assert!(fits(&["cached_thread_init", "main"], &["item_get"]));
        assert!(fits(&[], &["cache_lookup"]) && fits(&["connection_new"], &[]));
    }

    #[test]
    fn a_nameless_function_of_the_program_is_a_place_in_its_file() {
        let stack = ["libstdc++.so.6!", "program!", "__libc_start_call_main"];
        assert_eq!(named(&stack), "heap, created at program+0x10");
    }

    #[test]
    fn python_code_is_not_called_after_the_interpreters_functions() {
        let stack =
            ["PyThread_allocate_lock", "python3.11!", "PyObject_Vectorcall", "_PyEval_EvalFrameDefault", "main"];
        assert_eq!(named(&stack), "heap, created by Python code");
        let cut = ["libpython3.13.so.1.0!PyThread_allocate_lock", "libpython3.13.so.1.0!method_vectorcall_VARARGS"];
        assert_eq!(named(&cut), "heap, created by Python code");
        assert_eq!(named(&["PyThread_allocate_lock", "PyInit__ssl"]), "heap, created at PyInit__ssl");
    }

    /// Regression: "at start_thread < __clone3".
    #[test]
    fn where_all_threads_begin_names_nothing_but_that_of_a_language_may() {
        let begin = "std::sys::backtrace::__rust_begin_short_backtrace";
        let stack = ["syscall", "parking_lot::raw_mutex::RawMutex::lock_slow", begin, "start_thread", "__clone3"];
        assert_eq!(named(&stack), format!("heap, created at {begin}"));
    }

    #[test]
    fn a_stack_of_nothing_but_wrappers_names_the_outermost() {
        assert_eq!(named(&["Mutex::Mutex()", "uv_mutex_init"]), "heap, created at uv_mutex_init");
        assert_eq!(named(&[]), "heap");
    }
}
