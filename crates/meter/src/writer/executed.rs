//! Programs that this one executes where they cannot report: under another root, or among other mounts, the preloaded library is
//! not to be found, and the session's directory may be out of reach there, or for another user.
//!
//! Nor may some have the library at all (see [`incompatible`](crate::incompatible)).
//!
//! Nothing is kept from one to the next, nor is the program's own environment changed: what a program will find is asked when it
//! is executed, so it does not matter by which system call the root changed, in which process, or whether it changes back.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use super::{awaited, names, segment, syscalls};
use crate::incompatible::{self, Loader, ReadAt, Room};
use crate::layout::{DIRECTORY_VARIABLE, PAGE, SESSION_VARIABLE, SWAP_FILTER_VARIABLE, SWAP_VARIABLE, Unmetered};

/// Variables `NAME=value`, and a null pointer behind them.
pub type Environment = *const *const c_char;

const PRELOADED: &[u8] = b"LD_PRELOAD=";

/// This many variables can be passed on without ours. More are passed on as they are: the stack is the only place to copy them
/// to, for a child of `vfork` shares its parent's memory.
const VARIABLES: usize = 1024;
/// With the null pointer behind them.
const PLACES: usize = VARIABLES + 1;
/// And as many bytes of other libraries to preload.
const LIBRARIES_BYTES: usize = 4096;
/// Most programs have less, and some execute others on small stacks.
const FEW_PLACES: usize = 64;
const FEW_BYTES: usize = 256;

/// What is to be executed, as the functions that do so are given it.
#[derive(Debug, Clone, Copy)]
pub enum Program {
    /// A file.
    Path(*const c_char),
    /// A file, or if there is no slash in it, one of this name in the folders that this environment's `PATH` names.
    Name(*const c_char, Environment),
    /// A file, from this folder, with `execveat`'s flags.
    At(c_int, *const c_char, c_int),
    /// An open file.
    Open(c_int),
}

impl Program {
    fn is_readable(self) -> bool {
        match self {
            Self::Path(text) | Self::Name(text, _) | Self::At(_, text, _) => {
                text.is_null() || syscalls::is_readable(text)
            }
            Self::Open(_) => true,
        }
    }
}

/// Whether everything of an environment can be read.
///
/// # Safety
/// What can be read of it stays as it is meanwhile.
unsafe fn is_readable(environment: Environment) -> bool {
    let mut readable = ReadablePages::default();
    let mut place = environment;
    while !place.is_null() {
        if !readable.has(place.addr()) {
            return false;
        }
        // SAFETY: it lies in one page, which can be read.
        let text = unsafe { *place };
        if text.is_null() {
            break;
        }
        // SAFETY: the caller's obligation.
        if !unsafe { readable.has_text(text) } {
            return false;
        }
        place = place.wrapping_add(1);
    }
    true
}

/// Pages that can be read, as the kernel says. The texts of an environment lie in few.
#[derive(Default)]
struct ReadablePages {
    pages: [usize; 8],
    asked: usize,
}

impl ReadablePages {
    fn has(&mut self, address: usize) -> bool {
        let page = address / PAGE;
        if page != 0 && self.pages.contains(&page) {
            return true;
        }
        let is_readable = syscalls::is_readable(address as *const c_char);
        if is_readable && let Some(place) = self.pages.get_mut(self.asked % 8) {
            *place = page;
            self.asked += 1;
        }
        is_readable
    }

    /// # Safety
    /// What can be read of it stays as it is meanwhile.
    unsafe fn has_text(&mut self, text: *const c_char) -> bool {
        let mut at = text;
        while self.has(at.addr()) {
            let left = PAGE - at.addr() % PAGE;
            // SAFETY: these bytes are those up to the end of a page that can be read.
            if unsafe { core::slice::from_raw_parts(at.cast::<u8>(), left) }.contains(&0) {
                return true;
            }
            at = at.wrapping_add(left);
        }
        false
    }
}

/// Executes a program by `execute`, which is given its environment and returns 0 if it did (or never). Where the library that
/// this is part of will not be found, it and lockmeter's variables are left out: the loader would complain. A program that is
/// to be metered and cannot report is counted, and one that can is awaited.
///
/// # Safety
/// The environment must be null or one that `execve` takes, and the program's texts must end with a NUL.
pub unsafe fn execute(program: Program, environment: Environment, execute: impl FnOnce(Environment) -> c_int) -> c_int {
    let Some(library) = own_path() else { return execute(environment) };
    // Addresses where nothing is are for the kernel to refuse.
    // SAFETY: the caller's environment.
    if !program.is_readable() || !unsafe { is_readable(environment) } {
        return execute(environment);
    }
    // SAFETY: the caller's environment.
    let preloaded = unsafe { variables(environment) }.find_map(|variable| variable.strip_prefix(PRELOADED));
    let is_named = |preloaded: &[u8]| preloaded.split(is_separator).any(|entry| entry == library.to_bytes());
    // SAFETY: the caller's environment.
    let directory = unsafe { variables(environment) }
        .find_map(|variable| variable.strip_prefix(DIRECTORY_VARIABLE.as_bytes())?.strip_prefix(b"="));
    if !preloaded.is_some_and(is_named) || directory != names::directory() {
        return counted(Unmetered::OwnEnvironment, || execute(environment));
    }
    let is_found = syscalls::may_access(library.to_bytes_with_nul(), libc::R_OK);
    // SAFETY: the caller's program.
    let expected = with_scratch(|scratch| unsafe { look_at(program, scratch) });
    let why = match expected {
        Expected::Unmetered(why) => why,
        _ if !is_found || !segment::is_memory_in_reach() => Unmetered::OutOfReach,
        Expected::Unknown => return execute(environment),
        Expected::Metered(path) => return awaited(path, || execute(environment)),
    };
    // What is linked statically passes the library on to those that are not.
    let is_harmless = is_found && why != Unmetered::Incompatible;
    counted(why, || match is_harmless {
        true => execute(environment),
        // SAFETY: the caller's environment.
        false => unsafe { without_library(environment, library.to_bytes(), execute) },
    })
}

/// Executes by `execute` a program that will not be metered.
fn counted(why: Unmetered, execute: impl FnOnce() -> c_int) -> c_int {
    // Before, for success does not return.
    let is_counted = segment::count_program(why);
    let status = execute();
    if status != 0 && is_counted {
        segment::uncount_program(why);
    }
    status
}

/// Executes by `execute` a program that is to begin with the library.
fn awaited(path: awaited::Path, execute: impl FnOnce() -> c_int) -> c_int {
    awaited::expect(path);
    let status = execute();
    if status != 0 {
        awaited::came(path);
    }
    status
}

/// What will become of a program.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// It will begin with the library, unless something keeps that from it which cannot be seen here: rights of its own, or the system's
    /// policy. With the path that it knows itself by.
    Metered(awaited::Path),
    /// It must not have the library, or its loader does not load it.
    Unmetered(Unmetered),
    /// It may begin by another path than this, or not at all.
    Unknown,
}

/// A file that is open for reading.
struct Opened(c_int);

impl ReadAt for Opened {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> usize {
        syscalls::read_at(self.0, bytes, at)
    }
}

/// Scripts whose interpreters are scripts: more are a loop, for the kernel, too.
const MOST_INTERPRETERS: usize = 5;
/// As much of a script is looked at, as the kernel does.
const SCRIPT_BYTES: usize = 256;
const PATH_BYTES: usize = libc::PATH_MAX as usize;

/// What a program's path and its file are read to. Programs execute others on small stacks: in a signal handler's, or in a child's.
struct Scratch {
    path: [u8; PATH_BYTES],
    room: Room,
}

impl Scratch {
    const fn new() -> Self {
        Self { path: [0; PATH_BYTES], room: Room::new() }
    }
}

struct Shared(UnsafeCell<Scratch>);

// SAFETY: only who has taken it uses what is in it.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared(UnsafeCell::new(Scratch::new()));
#[unsafe(link_section = ".data.lockmeter_child")]
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Another thread of the parent may have taken it.
pub(super) fn after_fork_in_child() {
    IS_TAKEN.store(false, Release);
}

/// Calls this with room to read to, which is given back before anything is executed: a child of `vfork` takes its parent's. Who finds it
/// taken, by another thread or by what a signal has interrupted, has it on its stack.
fn with_scratch<T>(look: impl FnOnce(&mut Scratch) -> T) -> T {
    if IS_TAKEN.swap(true, Acquire) {
        return on_stack(look);
    }
    // SAFETY: nobody else has taken it.
    let result = look(unsafe { &mut *SHARED.0.get() });
    IS_TAKEN.store(false, Release);
    result
}

#[cold]
#[inline(never)]
fn on_stack<T>(look: impl FnOnce(&mut Scratch) -> T) -> T {
    look(&mut Scratch::new())
}

/// What will become of this program, where the library is found. What cannot be read is believed to load it.
///
/// # Safety
/// As [`execute`].
unsafe fn look_at(program: Program, scratch: &mut Scratch) -> Expected {
    let Scratch { path: place, room } = scratch;
    let (from, path, flags) = match program {
        Program::Path(path) => (libc::AT_FDCWD, path, 0),
        Program::At(from, path, flags) => (from, path, flags),
        Program::Open(file) => (file, c"".as_ptr(), libc::AT_EMPTY_PATH),
        // SAFETY: the caller's name and environment.
        Program::Name(name, environment) => match unsafe { find(name, environment, place) } {
            Some(path) => (libc::AT_FDCWD, path, 0),
            None => return Expected::Unknown,
        },
    };
    if path.is_null() {
        return Expected::Unknown;
    }
    // SAFETY: the caller's text.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    if incompatible::is_valgrind(name) {
        return Expected::Unmetered(Unmetered::Incompatible);
    }
    // SAFETY: the same text.
    match unsafe { look_at_file(from, path, flags, room) } {
        Some(Some(why)) => Expected::Unmetered(why),
        Some(None) => Expected::Metered(known_as(from, name)),
        None => Expected::Unknown,
    }
}

/// The path that the kernel tells a program that is executed from there.
fn known_as(from: c_int, path: &[u8]) -> awaited::Path {
    if from == libc::AT_FDCWD || path.starts_with(b"/") {
        return awaited::Path::of(&[path]);
    }
    let descriptor = path_of_descriptor(b"/dev/fd/", from);
    let descriptor = descriptor.split(|byte| *byte == 0).next().unwrap_or_default();
    let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
    awaited::Path::of(&[descriptor, separator, path])
}

/// Why the program with this file will not be metered, if that can be seen; `None` of what is no program, or one that runs another.
///
/// # Safety
/// The path ends with a NUL.
unsafe fn look_at_file(from: c_int, path: *const c_char, flags: c_int, room: &mut Room) -> Option<Option<Unmetered>> {
    let mut script = [0; SCRIPT_BYTES];
    let (mut from, mut path, mut flags) = (from, path, flags);
    for _ in 0..MOST_INTERPRETERS {
        let is_open = flags & libc::AT_EMPTY_PATH != 0 && is_empty(path);
        let opened = if is_open {
            // It may be open for nothing but to be executed.
            let mut again = path_of_descriptor(b"/proc/self/fd/", from);
            // SAFETY: a text that ends with a NUL.
            unsafe { syscalls::open_regular(libc::AT_FDCWD, again.as_mut_ptr().cast(), 0) }.flatten()
        } else {
            // SAFETY: the caller's path, or the interpreter's below.
            unsafe { syscalls::open_regular(from, path, flags) }?
        };
        let Some(descriptor) = opened.or(is_open.then_some(from)) else { return Some(None) };
        let length = syscalls::read_at(descriptor, &mut script, 0);
        let begin = script.get(..length).unwrap_or_default();
        if begin.is_empty() && is_open {
            // Not open to be read.
            return Some(None);
        }
        let is_binary = begin.starts_with(b"\x7fELF");
        let range = incompatible::interpreter(begin)
            .map(|interpreter| (interpreter.as_ptr().addr() - script.as_ptr().addr(), interpreter.len()));
        // SAFETY: the caller's path, or the interpreter's.
        let name = unsafe { CStr::from_ptr(path) }.to_bytes();
        let seen = if is_binary { look_at_binary(&Opened(descriptor), name, room) } else { None };
        if descriptor != from {
            syscalls::close(descriptor);
        }
        // What is neither is run by a shell, if by anything.
        let Some((begin, length)) = range else { return seen };
        // One that fills all of what was read may go on behind it.
        *script.get_mut(begin + length)? = 0;
        (from, path, flags) = (libc::AT_FDCWD, script[begin..].as_ptr().cast(), 0);
    }
    None
}

/// As [`look_at_file`].
fn look_at_binary(file: &Opened, name: &[u8], room: &mut Room) -> Option<Option<Unmetered>> {
    if incompatible::needs_runtime_first(file, room) {
        return Some(Some(Unmetered::Incompatible));
    }
    match incompatible::loader(file, room) {
        Loader::Foreign => Some(Some(Unmetered::Incompatible)),
        // It tells the program that it runs that program's own path.
        Loader::None if incompatible::is_loader(name) => None,
        Loader::None => Some(Some(Unmetered::NotPreloaded)),
        Loader::Own => Some(None),
    }
}

/// The path of an open file in a folder of those; ends with a NUL.
fn path_of_descriptor(folder: &[u8], descriptor: c_int) -> [u8; 32] {
    /// Those of the largest number.
    const DIGITS: usize = 10;
    let mut path = [0; 32];
    path[..folder.len()].copy_from_slice(folder);
    let mut rest = descriptor.unsigned_abs();
    // Leading zeroes are no name there.
    let digits = (1..=DIGITS).find(|digits| u64::from(rest) < 10_u64.pow(*digits as u32)).unwrap_or(DIGITS);
    for place in (folder.len()..folder.len() + digits).rev() {
        path[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    path
}

fn is_empty(path: *const c_char) -> bool {
    // SAFETY: a text that ends with a NUL.
    unsafe { *path == 0 }
}

/// Where libc finds a program of this name.
///
/// # Safety
/// As [`execute`].
unsafe fn find(name: *const c_char, environment: Environment, place: &mut [u8; PATH_BYTES]) -> Option<*const c_char> {
    /// Where no `PATH` is, as in libc.
    const DEFAULT: &[u8] = b"/bin:/usr/bin";
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's text.
    let name = unsafe { CStr::from_ptr(name) };
    if name.to_bytes().contains(&b'/') {
        return Some(name.as_ptr());
    }
    // SAFETY: the caller's environment.
    let folders = unsafe { variables(environment) }.find_map(|variable| variable.strip_prefix(b"PATH="));
    for folder in folders.unwrap_or(DEFAULT).split(|byte| *byte == b':') {
        let separator: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        let mut length = 0;
        let fits = [folder, separator, name.to_bytes_with_nul()].into_iter().all(|part| {
            let room = place.get_mut(length..).and_then(|rest| rest.get_mut(..part.len()));
            length += part.len();
            room.map(|room| room.copy_from_slice(part)).is_some()
        });
        if fits && syscalls::may_access(place.get(..length).unwrap_or_default(), libc::X_OK) {
            return Some(place.as_ptr().cast());
        }
    }
    None
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
    let (mut count, mut bytes) = (0, 0);
    // SAFETY: the caller's environment.
    for variable in unsafe { variables(environment) } {
        count += 1;
        if variable.starts_with(PRELOADED) {
            bytes = variable.len() + 1;
        }
    }
    let is_small = count < FEW_PLACES && bytes <= FEW_BYTES;
    // SAFETY: the caller's environment.
    unsafe {
        match is_small {
            true => with_copy::<FEW_PLACES, FEW_BYTES>(environment, library, execute),
            false => with_copy::<PLACES, LIBRARIES_BYTES>(environment, library, execute),
        }
    }
}

/// As [`without_library`], with a copy on the stack that has room for `PLACES` variables and `BYTES` of libraries to preload.
///
/// # Safety
/// As [`execute`].
#[inline(never)]
unsafe fn with_copy<const PLACES: usize, const BYTES: usize>(
    environment: Environment,
    library: &[u8],
    execute: impl FnOnce(Environment) -> c_int,
) -> c_int {
    let mut copy = Copy { variables: [ptr::null(); PLACES], libraries: [0; BYTES] };
    // SAFETY: the caller's environment.
    let copied = unsafe { copy.fill(environment, library) };
    execute(copied.unwrap_or(environment))
}

/// Room for an environment: its variables' texts stay where they are, but for the libraries to preload.
struct Copy<const PLACES: usize, const BYTES: usize> {
    variables: [*const c_char; PLACES],
    libraries: [u8; BYTES],
}

impl<const PLACES: usize, const BYTES: usize> Copy<PLACES, BYTES> {
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
            *self.variables.get_mut(..PLACES - 1)?.get_mut(count)? = text.cast();
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
    fn a_descriptor_has_a_path() {
        for (descriptor, path) in [(0, "0"), (9, "9"), (10, "10"), (1023, "1023"), (i32::MAX, "2147483647")] {
            let text = path_of_descriptor(b"/proc/self/fd/", descriptor);
            let text = CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap();
            assert_eq!(text, format!("/proc/self/fd/{path}"));
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
        for places in FEW_PLACES - 2..FEW_PLACES + 2 {
            assert_eq!(count(many[many.len() - 1 - places..].as_ptr()), places);
        }
        assert_eq!(count(many[1..].as_ptr()), VARIABLES);
        assert_eq!(count(many.as_ptr()), VARIABLES + 1);
    }
}
