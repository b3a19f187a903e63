//! What a program's lock on the heap is called: by the code that made it, or that was first seen to use it.

use lockmeter_profile::lock_functions::is_user_machinery;
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

/// The functions that a lock is named by: `at Pool::Pool < Server::start`, `by Python code`.
fn users(stack: &[Frame]) -> Option<String> {
    let is_user = |frame: &Frame| !is_machinery(frame);
    // Better a wrapper's name than none.
    let begin = stack.iter().position(is_user).or(stack.len().checked_sub(1))?;
    let users = stack.get(begin..)?;
    let innermost = users.first()?;
    let evaluates = innermost.function.as_deref().is_some_and(|function| function.starts_with(EVALUATOR));
    if evaluates || (!is_user(innermost) && is_of(innermost, PYTHON)) {
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
        (None, Some(_)) => is_of(frame, RUNTIMES) || is_of(frame, PYTHON),
        (None, None) => true,
    }
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

    #[test]
    fn a_stack_of_nothing_but_wrappers_names_the_outermost() {
        assert_eq!(named(&["Mutex::Mutex()", "uv_mutex_init"]), "heap, created at uv_mutex_init");
        assert_eq!(named(&[]), "heap");
    }
}
