//! Programs that this one executes where they cannot report: under another root, or among other mounts, the preloaded library is
//! not to be found, and the session's directory may be out of reach there, or for another user.
//!
//! Nothing is kept from one to the next, nor is the program's own environment changed: what a program will find is asked when it
//! is executed, so it does not matter by which system call the root changed, in which process, or whether it changes back.

use core::ffi::{CStr, c_char, c_int};
use core::ptr;

use super::{names, segment, syscalls};
use crate::layout::{DIRECTORY_VARIABLE, SESSION_VARIABLE, SWAP_FILTER_VARIABLE, SWAP_VARIABLE};

/// Variables `NAME=value`, and a null pointer behind them.
pub type Environment = *const *const c_char;

const PRELOADED: &[u8] = b"LD_PRELOAD=";

/// So many variables can be passed on without ours. More are passed on as they are: the stack is the only place to copy them
/// to, for a child of `vfork` shares its parent's memory.
const VARIABLES: usize = 1024;
/// And as many bytes of other libraries to preload.
const LIBRARIES_BYTES: usize = 4096;

/// Executes a program by `execute`, which is given its environment and returns 0 if it did (or never). Where the library that
/// this is part of will not be found, it and lockmeter's variables are left out: the loader would complain. A program that is
/// to be metered and cannot report is counted.
///
/// # Safety
/// The environment must be null or one that `execve` takes.
pub unsafe fn execute(environment: Environment, execute: impl FnOnce(Environment) -> c_int) -> c_int {
    // SAFETY: the caller's environment.
    let preloaded = unsafe { variables(environment) }.find_map(|variable| variable.strip_prefix(PRELOADED));
    let (Some(preloaded), Some(library)) = (preloaded, own_path()) else { return execute(environment) };
    if !preloaded.split(is_separator).any(|entry| entry == library.to_bytes()) {
        return execute(environment);
    }
    let is_found = syscalls::may_access(library.to_bytes_with_nul(), libc::R_OK);
    if is_found && segment::is_memory_in_reach() {
        return execute(environment);
    }
    // Before, for success does not return.
    let is_counted = segment::count_program();
    let status = if is_found {
        execute(environment)
    } else {
        // SAFETY: the caller's environment.
        unsafe { without_library(environment, library.to_bytes(), execute) }
    };
    if status != 0 && is_counted {
        segment::uncount_program();
    }
    status
}

/// Where the library that this is part of was loaded from.
fn own_path() -> Option<&'static CStr> {
    names::module_of(own_path as fn() -> Option<&'static CStr> as usize).map(|(path, _)| path)
}

const fn is_separator(byte: &u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// The variables of an environment.
///
/// # Safety
/// It must be null or end with a null pointer, and its texts with a NUL.
unsafe fn variables<'a>(environment: Environment) -> impl Iterator<Item = &'a [u8]> {
    let places = if environment.is_null() { 0 } else { usize::MAX };
    (0..places).map_while(move |place| {
        // SAFETY: no place before it was null, which is the last.
        let text = unsafe { *environment.add(place) };
        // SAFETY: a text that ends with a NUL.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
    })
}

/// Calls `execute` with an environment that names neither this library nor lockmeter's session.
///
/// # Safety
/// As [`execute`].
#[cold]
#[inline(never)]
unsafe fn without_library(
    environment: Environment,
    library: &[u8],
    execute: impl FnOnce(Environment) -> c_int,
) -> c_int {
    let mut copy = Copy { variables: [ptr::null(); VARIABLES + 1], libraries: [0; LIBRARIES_BYTES] };
    // SAFETY: the caller's environment.
    let copied = unsafe { copy.fill(environment, library) };
    execute(copied.unwrap_or(environment))
}

/// Room for an environment: its variables' texts stay where they are, but for the libraries to preload.
struct Copy {
    variables: [*const c_char; VARIABLES + 1],
    libraries: [u8; LIBRARIES_BYTES],
}

impl Copy {
    /// `None` if there is not room enough.
    ///
    /// # Safety
    /// As [`execute`].
    unsafe fn fill(&mut self, environment: Environment, library: &[u8]) -> Option<Environment> {
        let mut count = 0;
        // SAFETY: the caller's environment.
        for variable in unsafe { variables(environment) } {
            let text = match leave_out(variable, library, &mut self.libraries) {
                Variable::Kept => variable.as_ptr(),
                Variable::Changed => self.libraries.as_ptr(),
                Variable::LeftOut => continue,
                Variable::TooLong => return None,
            };
            // The last place stays null.
            *self.variables[..VARIABLES].get_mut(count)? = text.cast();
            count += 1;
        }
        Some(self.variables.as_ptr())
    }
}

/// What becomes of a variable where the library is not found.
#[derive(Debug, PartialEq, Eq)]
enum Variable {
    Kept,
    /// Its text is that in the buffer now.
    Changed,
    LeftOut,
    TooLong,
}

/// Leaves the library out of those to preload, which are written to `changed` then, and all that is lockmeter's.
fn leave_out(variable: &[u8], library: &[u8], changed: &mut [u8]) -> Variable {
    let ours = [DIRECTORY_VARIABLE, SESSION_VARIABLE, SWAP_VARIABLE, SWAP_FILTER_VARIABLE];
    let is_called = |name: &str| variable.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    if ours.into_iter().any(is_called) {
        return Variable::LeftOut;
    }
    let Some(entries) = variable.strip_prefix(PRELOADED) else { return Variable::Kept };
    let mut length = 0;
    let mut push = |bytes: &[u8]| {
        let place = changed.get_mut(length..).and_then(|rest| rest.get_mut(..bytes.len()));
        length += bytes.len();
        place.map(|place| place.copy_from_slice(bytes)).is_some()
    };
    let mut fits = push(PRELOADED);
    let (mut begin, mut is_empty) = (0, true);
    for entry in entries.split(is_separator) {
        let end = begin + entry.len();
        if entry != library {
            // With what stands before it, unless it is the first.
            let from = if is_empty { begin } else { begin.saturating_sub(1) };
            fits &= push(entries.get(from..end).unwrap_or_default());
            is_empty = false;
        }
        begin = end + 1;
    }
    fits &= push(&[0]);
    match (is_empty, fits) {
        (true, _) => Variable::LeftOut,
        (false, true) => Variable::Changed,
        (false, false) => Variable::TooLong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &[u8] = b"/opt/liblockmeter_preload.so";

    fn changed(variable: &str, room: usize) -> (Variable, String) {
        let mut buffer = vec![1; room];
        let what = leave_out(variable.as_bytes(), OURS, &mut buffer);
        let text = buffer.split(|byte| *byte == 0).next().unwrap();
        (what, String::from_utf8(text.to_owned()).unwrap())
    }

    #[test]
    fn libraries_of_the_users_own_stay_in_order_with_what_stands_between() {
        let ours = "/opt/liblockmeter_preload.so";
        for (before, after) in [
            (format!("a.so:{ours}"), "a.so"),
            (format!("a.so b.so:{ours}"), "a.so b.so"),
            (format!("a.so::{ours}"), "a.so:"),
            (format!("{ours}:a.so"), "a.so"),
            (format!("a.so:{ours} {ours} /b{ours}"), "a.so /b/opt/liblockmeter_preload.so"),
        ] {
            let after = format!("LD_PRELOAD={after}");
            assert_eq!(changed(&format!("LD_PRELOAD={before}"), 100), (Variable::Changed, after.clone()), "{before}");
            assert_eq!(changed(&format!("LD_PRELOAD={before}"), after.len()).0, Variable::TooLong, "{before}");
        }
        assert_eq!(changed(&format!("LD_PRELOAD={ours}"), 100).0, Variable::LeftOut);
    }

    #[test]
    fn lockmeters_variables_alone_are_left_out() {
        for ours in
            ["LOCKMETER_DIR=/tmp/x", "LOCKMETER_SESSION=", "LOCKMETER_SWAP=mutex=mutex", "LOCKMETER_SWAP_ONLY=/x"]
        {
            assert_eq!(changed(ours, 100).0, Variable::LeftOut, "{ours}");
        }
        for other in ["LOCKMETER_DIRECTORY=/tmp/x", "LOCKMETER_DIR", "PATH=/bin", "LD_PRELOADED=/opt/x", ""] {
            assert_eq!(changed(other, 100).0, Variable::Kept, "{other}");
        }
    }

    #[test]
    fn an_environment_may_be_null_empty_or_too_large_to_be_copied() {
        let text = c"LOCKMETER_DIR=/x";
        let many: Vec<*const c_char> = (0..=VARIABLES).map(|_| c"A=b".as_ptr()).chain([ptr::null()]).collect();
        let few = [c"A=b".as_ptr(), text.as_ptr(), ptr::null()];
        let count = |environment: Environment| {
            let mut seen = 0;
            // SAFETY: null, or ends with a null pointer.
            unsafe {
                without_library(environment, OURS, |given| {
                    seen = variables(given).count();
                    0
                })
            };
            seen
        };
        assert_eq!(count(ptr::null()), 0);
        assert_eq!(count([ptr::null()].as_ptr()), 0);
        assert_eq!(count(few.as_ptr()), 1);
        assert_eq!(count(many[1..].as_ptr()), VARIABLES);
        assert_eq!(count(many.as_ptr()), VARIABLES + 1);
    }
}
