//! Other programs executed: those that will not find this library are not told of it (see [`writer::execute`]).
//!
//! These functions are called in children of `vfork`, too, on their parent's stack and in its memory: they change nothing there.

use core::ffi::{c_char, c_int, c_void};

use lockmeter_meter::writer::{self, Environment, Program};

use crate::real;

type Text = *const c_char;
type Arguments = *const *const c_char;

unsafe extern "C" {
    /// The program's environment.
    static environ: Environment;
}

/// That of now.
pub(crate) fn own_environment() -> Environment {
    // SAFETY: a word that libc keeps; a program that changes it in another thread meanwhile would lose by itself.
    unsafe { (&raw const environ).read() }
}

unsafe fn execute_path(path: Text, arguments: Arguments, environment: Environment) -> c_int {
    // SAFETY: what the caller was given to execute.
    unsafe {
        writer::execute(Program::Path(path), environment, |environment| real::execve(path, arguments, environment))
    }
}

unsafe fn execute_file(file: Text, arguments: Arguments, environment: Environment) -> c_int {
    let program = Program::Name(file, own_environment());
    // SAFETY: what the caller was given to execute.
    unsafe { writer::execute(program, environment, |environment| real::execvpe(file, arguments, environment)) }
}

/// Exports functions that execute something.
macro_rules! interpose_executing {
    ($($name:ident($($argument:ident: $type:ty),*) $body:block)+) => {
        $(
            /// Takes the place of the function of this name; see the manual page of that.
            ///
            /// # Safety
            /// As the function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: what the caller gives to execute.
                unsafe { $body }
            }
        )+
    };
}

interpose_executing! {
    execve(path: Text, arguments: Arguments, environment: Environment) {
        execute_path(path, arguments, environment)
    }
    execv(path: Text, arguments: Arguments) {
        execute_path(path, arguments, own_environment())
    }
    execvpe(file: Text, arguments: Arguments, environment: Environment) {
        execute_file(file, arguments, environment)
    }
    execvp(file: Text, arguments: Arguments) {
        execute_file(file, arguments, own_environment())
    }
    execveat(folder: usize, path: Text, arguments: Arguments, environment: Environment, flags: usize) {
        let program = Program::At(folder as c_int, path, flags as c_int);
        writer::execute(program, environment, |environment| real::execveat(folder, path, arguments, environment, flags))
    }
    fexecve(file: usize, arguments: Arguments, environment: Environment) {
        let program = Program::Open(file as c_int);
        writer::execute(program, environment, |environment| real::fexecve(file, arguments, environment))
    }
    posix_spawn(
        pid: *mut libc::pid_t,
        path: Text,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: Arguments,
        environment: Environment
    ) {
        writer::execute(Program::Path(path), environment, |environment| {
            real::posix_spawn(pid, path, actions, attributes, arguments, environment)
        })
    }
    posix_spawnp(
        pid: *mut libc::pid_t,
        file: Text,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: Arguments,
        environment: Environment
    ) {
        writer::execute(Program::Name(file, own_environment()), environment, |environment| {
            real::posix_spawnp(pid, file, actions, attributes, arguments, environment)
        })
    }
}

/// Exports a function that is given arguments one by one, with a null pointer behind them: those in registers are pushed where
/// the return address was, below those on the stack, and `$inner` gets all of them as one list.
macro_rules! interpose_listed {
    ($name:ident, $inner:path) => {
        /// Takes the place of the function of this name; see the manual page of that.
        ///
        /// # Safety
        /// As the function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "pop rax",
                ".cfi_def_cfa_offset 0",
                ".cfi_register 16, 0", // The return address is in rax.
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                ".cfi_def_cfa_offset 48",
                ".cfi_offset 16, -48",
                "call {inner}",
                "pop rcx",
                ".cfi_def_cfa_offset 40",
                ".cfi_register 16, 2",
                "add rsp, 40",
                "push rcx",
                ".cfi_def_cfa_offset 8",
                ".cfi_offset 16, -8",
                "ret",
                ".cfi_endproc",
                inner = sym $inner
            )
        }
    };
}

interpose_listed!(execl, execute_path_listed);
interpose_listed!(execlp, execute_file_listed);
interpose_listed!(execle, execute_path_listed_with_environment);

unsafe extern "C-unwind" fn execute_path_listed(path: Text, arguments: Arguments) -> c_int {
    // SAFETY: what the caller gives to execute.
    unsafe { execute_path(path, arguments, own_environment()) }
}

unsafe extern "C-unwind" fn execute_file_listed(file: Text, arguments: Arguments) -> c_int {
    // SAFETY: what the caller gives to execute.
    unsafe { execute_file(file, arguments, own_environment()) }
}

/// The environment comes behind the null pointer.
unsafe extern "C-unwind" fn execute_path_listed_with_environment(path: Text, arguments: Arguments) -> c_int {
    let mut place = arguments;
    // SAFETY: a null pointer ends the list.
    while unsafe { !(*place).is_null() } {
        // SAFETY: as above.
        place = unsafe { place.add(1) };
    }
    // SAFETY: the argument behind the list.
    let environment = unsafe { *place.add(1).cast::<Environment>() };
    // SAFETY: what the caller gives to execute.
    unsafe { execute_path(path, arguments, environment) }
}
