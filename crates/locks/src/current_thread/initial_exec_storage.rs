//! A thread's own variables on x86-64 with glibc: thread-local storage of the initial-exec model, which Rust cannot ask for. In a shared library
//! the general model would call `__tls_get_addr`, which costs more than an uncontended lock, and may allocate.

use core::arch::{asm, global_asm};

// The owner word at 0, the number at 8, and the state of read samples at 12.
global_asm!(
    ".pushsection .tbss.lockmeter_locks_thread,\"awT\",@nobits",
    ".balign 16",
    ".hidden lockmeter_locks_thread",
    ".globl lockmeter_locks_thread",
    ".type lockmeter_locks_thread, @object",
    ".size lockmeter_locks_thread, 16",
    "lockmeter_locks_thread:",
    ".zero 16",
    ".popsection",
);

/// Reads the variable at `$offset`, into a register named as assembly does.
macro_rules! read {
    ($offset:literal, $register:literal) => {{
        let value;
        // SAFETY: reads the thread's own storage.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + lockmeter_locks_thread@GOTTPOFF]",
                concat!("mov ", $register, ", fs:[{at} + ", $offset, "]"),
                at = out(reg) _,
                value = lateout(reg) value,
                options(nostack, preserves_flags, readonly)
            );
        }
        value
    }};
}

/// Writes it.
macro_rules! write {
    ($offset:literal, $register:literal, $value:expr) => {
        // SAFETY: writes the thread's own storage.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + lockmeter_locks_thread@GOTTPOFF]",
                concat!("mov fs:[{at} + ", $offset, "], ", $register),
                at = out(reg) _,
                value = in(reg) $value,
                options(nostack, preserves_flags)
            )
        }
    };
}

/// The owner word; 0 before the thread has one.
#[inline(always)]
pub(super) fn word() -> u64 {
    read!("0", "{value}")
}

pub(super) fn set_word(word: u64) {
    write!("0", "{value}", word);
}

/// The thread's number while it has one.
pub(super) fn number() -> u32 {
    read!("8", "{value:e}")
}

pub(super) fn set_number(number: u32) {
    write!("8", "{value:e}", number);
}

/// For [`read_samples`](crate::read_samples).
#[inline(always)]
pub(crate) fn sampling_state() -> u32 {
    read!("12", "{value:e}")
}

#[inline(always)]
pub(crate) fn set_sampling_state(reads: u32) {
    write!("12", "{value:e}", reads);
}
