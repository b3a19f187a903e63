//! What Rust's standard library asks of an unwinder, answered here, so that no program gets libgcc_s loaded for our sake: that
//! alone costs a process that is started 0.1 ms.
//!
//! Nothing here unwinds by design. If it panics all the same, `_Unwind_RaiseException` says that nobody catches it, and the
//! library aborts as it would anyhow: there is no Rust below it. The program's own unwinder (a cancelled thread, an exception) needs
//! no more than the tables of our functions to pass through them; none of those that it can meet has anything to clean up. For one
//! that had, Rust's personality routine would ask here what there is, and learn that there is nothing: the private state of
//! whichever unwinder the program has (libgcc_s or another, of any version) is never looked into.
//!
//! The symbols are hidden: nobody else is answered here.

use core::arch::global_asm;

/// Defines functions of these instructions.
macro_rules! define {
    ($($name:literal: $instructions:literal,)+) => {
        $(
            global_asm!(
                concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
                concat!(".hidden ", $name),
                concat!(".globl ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                ".cfi_startproc",
                "endbr64",
                $instructions,
                ".cfi_endproc",
                concat!(".size ", $name, ", . - ", $name),
                ".popsection",
            );
        )+
    };
}

define! {
    // _URC_END_OF_STACK: nobody catches it, and there is nobody else.
    "_Unwind_RaiseException": "mov eax, 5; ret",
    "_Unwind_Backtrace": "mov eax, 5; ret",
    // Ends a landing pad, and none is ever reached.
    "_Unwind_Resume": "ud2",
    "_Unwind_DeleteException": "ret",
    "_Unwind_GetLanguageSpecificData": "xor eax, eax; ret",
    "_Unwind_GetRegionStart": "xor eax, eax; ret",
    "_Unwind_GetTextRelBase": "xor eax, eax; ret",
    "_Unwind_GetDataRelBase": "xor eax, eax; ret",
    "_Unwind_GetIP": "xor eax, eax; ret",
    "_Unwind_GetIPInfo": "xor eax, eax; ret",
    "_Unwind_GetCFA": "xor eax, eax; ret",
    "_Unwind_FindEnclosingFunction": "xor eax, eax; ret",
    "_Unwind_SetGR": "ret",
    "_Unwind_SetIP": "ret",
}
