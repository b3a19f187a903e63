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

/// As [`interpose`] for a function of one argument that takes a lock. While metering is off it jumps to the real function. Else
/// it tries the lock itself, so that a free lock costs little more than without a meter: at level `wait` nothing; at level
/// `hold`, if this hold is not one to be timed, a count, else the call of `$timed`. For all else it jumps to `$inner`,
/// which may try again. Locks with one of the bits `$special` in the byte at `$at` are left to `$inner`, too.
///
/// What stands in the first brackets comes before the call of `$try`, with operands from the second: it leaves the lock to that
/// at `6`, has it with 0 in `eax` at `7`, and lets it be waited for at `2`. `rdi` is the lock, `r9d` the level.
macro_rules! interpose_acquire {
    ($name:ident, $inner:path, $try:path, $real:path, $timed:path, $at:literal, $special:literal) => {
        interpose_acquire!($name, $inner, $try, $real, $timed, $at, $special, [], []);
    };
    (
        $name:ident,
        $inner:path,
        $try:path,
        $real:path,
        $timed:path,
        $at:literal,
        $special:literal,
        [$($before:literal,)*],
        [$($operands:tt)*]
    ) => {
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
                "mov rax, qword ptr [rip + {header}]",
                "mov r9d, dword ptr [rax + {level}]",
                "test r9d, r9d", // OFF
                "jz 5f",
                $($before,)*
                "6:",
                concat!("test byte ptr [rdi + ", $at, "], ", $special),
                "jnz 2f",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {try_it}]",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test eax, eax",
                "jne 2f",
                "mov rcx, qword ptr [rip + {header}]",
                "mov r9d, dword ptr [rcx + {level}]",
                "7:",
                "cmp r9d, {hold}",
                "jne 3f",
                // The thread's table and the lock's group.
                "mov rcx, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
                "mov rcx, qword ptr fs:[rcx]",
                "test rcx, rcx",
                "jz 4f",
                "imul edx, edi, {cell_multiplier}",
                "shr edx, {cell_shift}",
                "sub dword ptr [rcx + 4*rdx + {until_timed}], 1",
                "js 4f",
                "inc dword ptr [rcx + {untimed_open}]",
                "3:",
                "ret",
                "4:",
                // The return address is the site.
                "mov rsi, qword ptr [rsp]",
                "jmp {timed}",
                "5:",
                "jmp qword ptr [rip + {real}]",
                "2:",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "jmp {inner}",
                ".cfi_endproc",
                header = sym lockmeter_meter::writer::HEADER,
                level = const core::mem::offset_of!(lockmeter_meter::layout::Header, level),
                hold = const lockmeter_meter::writer::HOLD,
                until_timed = const core::mem::offset_of!(lockmeter_meter::layout::Thread, until_timed),
                untimed_open = const core::mem::offset_of!(lockmeter_meter::layout::Thread, untimed_open),
                cell_multiplier = const lockmeter_meter::writer::CELL_MULTIPLIER.cast_signed(),
                cell_shift = const lockmeter_meter::writer::CELL_SHIFT,
                try_it = sym $try,
                real = sym $real,
                timed = sym $timed,
                inner = sym $inner,
                $($operands)*
            )
        }
    };
}

/// As [`interpose`] for a function of one argument that releases a lock. While metering is off, or when nobody waits for the
/// lock, it calls the real function: at level `wait` nothing follows; at level `hold`, if the thread times no hold now, `$count`, where there is one.
/// For all else it jumps to `$inner`.
macro_rules! interpose_release {
    ($name:ident, $inner:path, $real:path) => {
        interpose_release!(@ $name, $inner, $real, $inner, "je 2f");
    };
    ($name:ident, $inner:path, $real:path, $count:path) => {
        interpose_release!(@ $name, $inner, $real, $count, "je 3f");
    };
    (@ $name:ident, $inner:path, $real:path, $count:path, $at_hold:literal) => {
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
                "mov rax, qword ptr [rip + {header}]",
                "mov edx, dword ptr [rax + {level}]",
                "test edx, edx", // OFF
                "jz 5f",
                "mov eax, edi",
                "and eax, {mask}",
                "lea rcx, [rip + {waiters}]",
                "cmp qword ptr [rcx + rax], 0",
                "jne 2f",
                "cmp edx, {hold}",
                $at_hold,
                "cmp edx, {wait}",
                "jne 2f",
                "5:",
                "jmp qword ptr [rip + {real}]",
                "3:",
                "mov rcx, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
                "mov rcx, qword ptr fs:[rcx]",
                "test rcx, rcx",
                "jz 2f",
                "cmp dword ptr [rcx + {held_count}], 0",
                "jne 2f",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {real}]",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test eax, eax",
                "jne 4f",
                // The return address is the site.
                "mov rsi, qword ptr [rsp]",
                "jmp {count}",
                "4:",
                "ret",
                "2:",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "jmp {inner}",
                ".cfi_endproc",
                header = sym lockmeter_meter::writer::HEADER,
                level = const core::mem::offset_of!(lockmeter_meter::layout::Header, level),
                wait = const lockmeter_meter::writer::WAIT,
                hold = const lockmeter_meter::writer::HOLD,
                mask = const lockmeter_meter::writer::WAITERS_MASK,
                waiters = sym lockmeter_meter::writer::WAITERS,
                held_count = const core::mem::offset_of!(lockmeter_meter::layout::Thread, held_count),
                real = sym $real,
                count = sym $count,
                inner = sym $inner,
            )
        }
    };
}
/// [`interpose_acquire`] for a mutex. A normal or adaptive one that is free is taken right here, as glibc does it, where
/// [`glibc_mutex`](crate::glibc_mutex) has seen that it does it so: the lock word, the owner, and one more user.
macro_rules! interpose_mutex_lock {
    ($name:ident, $inner:path, $real:path) => {
        interpose_acquire!(
            $name,
            $inner,
            $crate::real::slots::pthread_mutex_trylock,
            $real,
            $crate::mutex::acquired_timed,
            16,
            0x71,
            [
                // Normal or adaptive, and nothing else said of it.
                "mov ecx, dword ptr [rdi + 16]",
                "test ecx, ecx",
                "jz 8f",
                "cmp ecx, {adaptive}",
                "jne 6f",
                "8:",
                "mov rdx, qword ptr [rip + {thread_id}]",
                "test rdx, rdx",
                "jz 6f",
                "xor eax, eax",
                "mov ecx, 1",
                "lock cmpxchg dword ptr [rdi], ecx",
                "jne 2f",
                "mov edx, dword ptr fs:[rdx]",
                "mov dword ptr [rdi + 8], edx",
                "inc dword ptr [rdi + 12]",
                "jmp 7f",
            ],
            [
                thread_id = sym $crate::glibc_mutex::THREAD_ID_AT,
                adaptive = const libc::PTHREAD_MUTEX_ADAPTIVE_NP,
            ]
        );
    };
}

/// [`interpose_release`] for a mutex.
macro_rules! interpose_mutex_unlock {
    ($name:ident, $inner:path, $real:path) => {
        interpose_release!($name, $inner, $real, $crate::mutex::count_untimed);
    };
}
pub(crate) use {interpose, interpose_acquire, interpose_mutex_lock, interpose_mutex_unlock, interpose_release};
