//! Functions of which glibc keeps an older version, for programs that were linked when it was the only one.
//!
//! A condition variable was one pointer then, to memory that glibc allocates at first use. Who takes such a variable for one of today
//! writes over what lies behind it. So the old names have entries of their own (`symbol-versions` says so to the linker), which pass the
//! variable of today on that the old one points to.

use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed},
};

use libc::{ENOSYS, pthread_cond_t, pthread_mutex_t, timespec};
use lockmeter_meter::writer::{self, Program};

use crate::execute::own_environment;
use crate::{condition, creation};

/// Exports a function under an old version. It jumps to `$inner`; what stands in brackets goes first.
macro_rules! interpose_old {
    ($($name:ident, $inner:path, [$($instruction:literal),*];)+) => {
        $(
            global_asm!(
                concat!(".pushsection .text.lockmeter_old_", stringify!($name), ",\"ax\",@progbits"),
                concat!(".globl lockmeter_old_", stringify!($name)),
                concat!(".type lockmeter_old_", stringify!($name), ", @function"),
                concat!("lockmeter_old_", stringify!($name), ":"),
                ".cfi_startproc",
                "endbr64",
                $($instruction,)*
                "jmp {inner}",
                ".cfi_endproc",
                concat!(".size lockmeter_old_", stringify!($name), ", . - lockmeter_old_", stringify!($name)),
                concat!(".symver lockmeter_old_", stringify!($name), ", ", stringify!($name), "@GLIBC_2.2.5"),
                ".popsection",
                inner = sym $inner
            );
        )+
    };
}

interpose_old! {
    pthread_cond_init, init_condition, [];
    pthread_cond_destroy, destroy_condition, ["mov rsi, rsp", "mov rdx, rbp"];
    pthread_cond_wait, wait, ["mov rdx, rsp", "mov rcx, rbp"];
    pthread_cond_timedwait, timedwait, ["mov rcx, rsp", "mov r8, rbp"];
    pthread_cond_signal, signal, ["mov rsi, rsp", "mov rdx, rbp"];
    pthread_cond_broadcast, broadcast, ["mov rsi, rsp", "mov rdx, rbp"];
    posix_spawn, spawn_path, [];
    posix_spawnp, spawn_file, [];
}

const VERSION: &CStr = c"GLIBC_2.2.5";

/// An old version of libc's.
struct Old {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Old {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Null where this libc does not have it: then nobody was linked with it either.
    fn function(&self) -> *mut c_void {
        let known = self.found.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: both end with a NUL.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), VERSION.as_ptr()) };
        self.found.store(found, Relaxed);
        found
    }
}

static INIT: Old = Old::new(c"pthread_cond_init");
static DESTROY: Old = Old::new(c"pthread_cond_destroy");
static SIGNAL: Old = Old::new(c"pthread_cond_signal");
static SPAWN: Old = Old::new(c"posix_spawn");
static SPAWN_FILE: Old = Old::new(c"posix_spawnp");

/// Called once, when the library is loaded.
pub(crate) fn resolve_all() {
    for old in [&INIT, &DESTROY, &SIGNAL, &SPAWN, &SPAWN_FILE] {
        old.function();
    }
}

/// A condition variable as it was: null until it is first used.
type Condition = AtomicPtr<pthread_cond_t>;

/// The variable of today; allocated as glibc does it, if it is not there yet.
///
/// # Safety
/// A valid condition variable of the old kind.
unsafe fn of_today(condition: *const Condition) -> Result<*mut pthread_cond_t, c_int> {
    // SAFETY: the caller's obligation.
    let condition = unsafe { &*condition };
    let there = condition.load(Acquire);
    if !there.is_null() {
        return Ok(there);
    }
    let signal = SIGNAL.function();
    if signal.is_null() {
        return Err(ENOSYS);
    }
    // Nobody waits for one that was never used.
    // SAFETY: the function of this type, with the caller's variable.
    let status =
        unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*const Condition) -> c_int>(signal)(condition) };
    let there = condition.load(Acquire);
    if there.is_null() { Err(if status == 0 { ENOSYS } else { status }) } else { Ok(there) }
}

unsafe extern "C-unwind" fn init_condition(condition: *mut Condition, attributes: *const c_void) -> c_int {
    type Function = unsafe extern "C" fn(*mut Condition, *const c_void) -> c_int;
    let function = INIT.function();
    if function.is_null() {
        return ENOSYS;
    }
    // SAFETY: the function of this type, with the caller's arguments.
    unsafe { transmute::<*mut c_void, Function>(function)(condition, attributes) }
}

unsafe extern "C-unwind" fn destroy_condition(condition: *mut Condition, sp: *const usize, fp: usize) -> c_int {
    // SAFETY: the caller's variable.
    let there = unsafe { (*condition).load(Acquire) };
    if !there.is_null() {
        // SAFETY: the variable of today; glibc's function for the old kind frees it and does no more.
        let status = unsafe { creation::destroy_condition(there, sp, fp) };
        if status != 0 {
            return status;
        }
    }
    let function = DESTROY.function();
    if function.is_null() {
        return ENOSYS;
    }
    // SAFETY: the function of this type, with the caller's variable.
    unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut Condition) -> c_int>(function)(condition) }
}

unsafe extern "C-unwind" fn wait(
    condition: *mut Condition,
    mutex: *mut pthread_mutex_t,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's variable.
    match unsafe { of_today(condition) } {
        // SAFETY: the variable of today, the caller's mutex, and our own entry.
        Ok(condition) => unsafe { condition::wait(condition, mutex, sp, fp) },
        Err(status) => status,
    }
}

unsafe extern "C-unwind" fn timedwait(
    condition: *mut Condition,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's variable.
    match unsafe { of_today(condition) } {
        // SAFETY: the variable of today, the caller's mutex and time, and our own entry.
        Ok(condition) => unsafe { condition::timedwait(condition, mutex, until, sp, fp) },
        Err(status) => status,
    }
}

unsafe extern "C-unwind" fn signal(condition: *mut Condition, sp: *const usize, fp: usize) -> c_int {
    // SAFETY: the caller's variable.
    match unsafe { of_today(condition) } {
        // SAFETY: the variable of today, and our own entry.
        Ok(condition) => unsafe { condition::signal(condition, sp, fp) },
        Err(status) => status,
    }
}

unsafe extern "C-unwind" fn broadcast(condition: *mut Condition, sp: *const usize, fp: usize) -> c_int {
    // SAFETY: the caller's variable.
    match unsafe { of_today(condition) } {
        // SAFETY: the variable of today, and our own entry.
        Ok(condition) => unsafe { condition::broadcast(condition, sp, fp) },
        Err(status) => status,
    }
}

type Text = *const c_char;
type Texts = *const *const c_char;
type Spawn = unsafe extern "C-unwind" fn(*mut libc::pid_t, Text, *const c_void, *const c_void, Texts, Texts) -> c_int;

/// The old ones have a file without an interpreter's name run by the shell.
#[expect(clippy::too_many_arguments, reason = "those of posix_spawn, and which")]
unsafe fn spawn(
    old: &Old,
    program: Program,
    pid: *mut libc::pid_t,
    path: Text,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    let function = old.function();
    if function.is_null() {
        return ENOSYS;
    }
    // SAFETY: the function of this type.
    let function = unsafe { transmute::<*mut c_void, Spawn>(function) };
    // SAFETY: what the caller was given to execute.
    unsafe {
        writer::execute(program, environment, |environment| {
            function(pid, path, actions, attributes, arguments, environment)
        })
    }
}

unsafe extern "C-unwind" fn spawn_path(
    pid: *mut libc::pid_t,
    path: Text,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    // SAFETY: what the caller gives to execute.
    unsafe { spawn(&SPAWN, Program::Path(path), pid, path, actions, attributes, arguments, environment) }
}

unsafe extern "C-unwind" fn spawn_file(
    pid: *mut libc::pid_t,
    file: Text,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    // SAFETY: what the caller gives to execute.
    unsafe {
        spawn(
            &SPAWN_FILE,
            Program::Name(file, own_environment()),
            pid,
            file,
            actions,
            attributes,
            arguments,
            environment,
        )
    }
}
