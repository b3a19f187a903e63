//! The first instructions of an interposed function.

/// Exports `$name`, which has `$arguments` arguments of a word each, and jumps to `$inner`, which gets two more: where the
/// stack pointer stood (it points to the return address), and the frame pointer.
macro_rules! interpose {
    ($name:ident, 1, $inner:path) => {
        interpose!(@ $name, $inner, "mov rsi, rsp", "mov rdx, rbp");
    };
    ($name:ident, 2, $inner:path) => {
        interpose!(@ $name, $inner, "mov rdx, rsp", "mov rcx, rbp");
    };
    ($name:ident, 3, $inner:path) => {
        interpose!(@ $name, $inner, "mov rcx, rsp", "mov r8, rbp");
    };
    ($name:ident, 4, $inner:path) => {
        interpose!(@ $name, $inner, "mov r8, rsp", "mov r9, rbp");
    };
    (@ $name:ident, $inner:path, $stack:literal, $frame:literal) => {
        /// Takes the place of the function of this name; see the manual page of that.
        ///
        /// # Safety
        /// As the function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!("endbr64", $stack, $frame, "jmp {inner}", inner = sym $inner)
        }
    };
}

/// As [`interpose`] for a function of one argument that takes a lock. At level `wait` it tries the lock itself, so that a free
/// lock costs little more than without a meter; for all else it jumps to `$inner`, which may try again. Locks with one of
/// the bits `$special` in the byte at `$at` are left to `$inner`, too.
macro_rules! interpose_acquire {
    ($name:ident, $inner:path, $try:path, $at:literal, $special:literal) => {
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
                "mov rax, qword ptr [rip + {header}@GOTPCREL]",
                "mov rax, qword ptr [rax]",
                "cmp dword ptr [rax + {level}], {wait}",
                "jne 2f",
                concat!("test byte ptr [rdi + ", $at, "], ", $special),
                "jnz 2f",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {try_it}]",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test eax, eax",
                "jne 2f",
                "ret",
                "2:",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "jmp {inner}",
                ".cfi_endproc",
                header = sym lockmeter_meter::writer::HEADER,
                level = const core::mem::offset_of!(lockmeter_meter::layout::Header, level),
                wait = const lockmeter_meter::writer::WAIT,
                try_it = sym $try,
                inner = sym $inner,
            )
        }
    };
}

/// As [`interpose`] for a function of one argument that releases a lock. At level `wait`, when nobody waits for the lock, it
/// jumps to the real function; for all else to `$inner`.
macro_rules! interpose_release {
    ($name:ident, $inner:path, $real:path) => {
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
                "mov rax, qword ptr [rip + {header}@GOTPCREL]",
                "mov rax, qword ptr [rax]",
                "cmp dword ptr [rax + {level}], {wait}",
                "jne 2f",
                "mov eax, edi",
                "and eax, {mask}",
                "mov rcx, qword ptr [rip + {waiters}@GOTPCREL]",
                "cmp qword ptr [rcx + rax], 0",
                "jne 2f",
                "jmp qword ptr [rip + {real}]",
                "2:",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "jmp {inner}",
                ".cfi_endproc",
                header = sym lockmeter_meter::writer::HEADER,
                level = const core::mem::offset_of!(lockmeter_meter::layout::Header, level),
                wait = const lockmeter_meter::writer::WAIT,
                mask = const lockmeter_meter::writer::WAITERS_MASK,
                waiters = sym lockmeter_meter::writer::WAITERS,
                real = sym $real,
                inner = sym $inner,
            )
        }
    };
}
pub(crate) use {interpose, interpose_acquire, interpose_release};
