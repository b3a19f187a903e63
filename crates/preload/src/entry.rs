//! The first instructions of an interposed function.

pub(crate) use lockmeter_meter::layout::{CountedSlot, HELD, HELD_UNTIMED, HeldLock, Thread, pack_held};

/// Exports `$name`, which has `$arguments` arguments of a word each, and jumps to `$inner`, which gets two more: where the
/// stack pointer stood (it points to the return address), and the frame pointer.
macro_rules! interpose {
    ($name:ident, 1, $inner:path) => {
        $crate::entry::interpose!(@ $name, $inner, "mov rsi, rsp", "mov rdx, rbp");
    };
    ($name:ident, 2, $inner:path) => {
        $crate::entry::interpose!(@ $name, $inner, "mov rdx, rsp", "mov rcx, rbp");
    };
    ($name:ident, 3, $inner:path) => {
        $crate::entry::interpose!(@ $name, $inner, "mov rcx, rsp", "mov r8, rbp");
    };
    ($name:ident, 4, $inner:path) => {
        $crate::entry::interpose!(@ $name, $inner, "mov r8, rsp", "mov r9, rbp");
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

/// As [`interpose`] for a function of one argument that takes a lock of this `$kind` and `$mode`. It tries the lock itself, so that a
/// free lock costs little more than without a meter: nothing, but at level `hold` a line in the list of locks that the thread
/// holds, or, if this hold is one to be timed, the call of `$timed`. For all else it jumps to `$inner`, which may try again. Locks
/// with one of the bits `$special` in the byte at `$at` are left to `$inner`, too.
///
/// What stands in the first brackets may take the lock in place of `$try`, with operands from the last, and goes on in the second
/// where it seldom must: it leaves the lock to `$try` (while metering is off to the real function) at `6`, has it at `7`, and lets it
/// be waited for at `2`. `rdi` is the lock, `r9d` the level.
macro_rules! interpose_acquire {
    ($name:ident, $kind:expr, $mode:expr, $inner:path, $try:path, $real:path, $timed:path, $at:literal, $special:literal) => {
        $crate::entry::interpose_acquire!(
            $name, $kind, $mode, $inner, $try, $real, $timed, $at, $special, ["jmp 6f",], [], []
        );
    };
    (
        $name:ident,
        $kind:expr,
        $mode:expr,
        $inner:path,
        $try:path,
        $real:path,
        $timed:path,
        $at:literal,
        $special:literal,
        [$($instead:expr,)*],
        [$($seldom:expr,)*],
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
                $($instead,)*
                "7:",
                "cmp r9d, {hold}",
                "jne 3f",
                // The bit of the lock's group.
                "mov rcx, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
                "imul edx, edi, {cell_multiplier}",
                "shr edx, {cell_shift}",
                "mov rsi, qword ptr fs:[rcx + {quiet}]",
                "bt rsi, rdx",
                "jnc 4f",
                // One more lock that the thread holds. First the number, so that a signal handler's are above it.
                "mov r8, qword ptr fs:[rcx + {table}]",
                "test r8, r8",
                "jz 3f",
                "mov ecx, dword ptr [r8 + {held_count}]",
                "cmp ecx, {most_held}",
                "jae 4f",
                "lea edx, [rcx + 1]",
                "mov dword ptr [r8 + {held_count}], edx",
                "shl ecx, {held_shift}",
                "add r8, rcx",
                "mov rsi, qword ptr [rip + {tick}]",
                "mov esi, dword ptr [rsi]",
                "shl rsi, 32",
                "or rsi, {how}",
                // The return address is the site.
                "mov rdx, qword ptr [rsp]",
                "mov qword ptr [r8 + {held_lock}], rdi",
                "mov qword ptr [r8 + {held_site}], rdx",
                "mov qword ptr [r8 + {held_how}], rsi",
                "3:",
                "ret",
                "4:",
                // The return address is the site.
                "mov rsi, qword ptr [rsp]",
                "jmp {timed}",
                "5:",
                "jmp qword ptr [rip + {real}]",
                $($seldom,)*
                "6:",
                "test r9d, r9d", // OFF
                "jz 5b",
                concat!("test byte ptr [rdi + ", $at, "], ", $special),
                "jnz 2f",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {try_it}]",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "mov rcx, qword ptr [rip + {header}]",
                "mov r9d, dword ptr [rcx + {level}]",
                "test eax, eax",
                "je 7b",
                "2:",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "jmp {inner}",
                ".cfi_endproc",
                header = sym lockmeter_meter::writer::HEADER,
                level = const core::mem::offset_of!(lockmeter_meter::layout::Process, level),
                hold = const lockmeter_meter::writer::HOLD,
                quiet = const lockmeter_meter::writer::QUIET,
                table = const lockmeter_meter::writer::TABLE,
                tick = sym lockmeter_meter::writer::TICK,
                how = const ($crate::entry::pack_held($kind, $mode, 0) | $crate::entry::HELD_UNTIMED),
                most_held = const $crate::entry::HELD,
                held_shift = const core::mem::size_of::<$crate::entry::HeldLock>().ilog2(),
                held_count = const core::mem::offset_of!($crate::entry::Thread, held_count),
                held_lock = const core::mem::offset_of!($crate::entry::Thread, held)
                    + core::mem::offset_of!($crate::entry::HeldLock, lock),
                held_site = const core::mem::offset_of!($crate::entry::Thread, held)
                    + core::mem::offset_of!($crate::entry::HeldLock, site),
                held_how = const core::mem::offset_of!($crate::entry::Thread, held)
                    + core::mem::offset_of!($crate::entry::HeldLock, how),
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
/// lock, it calls the real function: at levels `off` and `wait` nothing follows. At level `hold`, if the lock is the one that the
/// thread acquired last, that hold is neither timed nor a long one, and nobody watches the lock, it takes it off the list of locks
/// that the thread holds, and adds one to the sample of who acquired it, or calls `$count` if that is not found at once. If
/// that hold is timed, it jumps to `$timed`, which gets the thread's table and the word of the lock's place in `WAITERS` beside what
/// `$inner` gets. For all else, and where there is no `$count` (the lock has modes), it jumps to `$inner`.
///
/// What stands in the first brackets looks at the lock before anything is changed, and what stands in the second may release it in place
/// of the real function, with operands from the last; both go on in the third where they seldom must. The first may leave all to
/// `$inner` at `35`, and the release to the real function at `36`; the second leaves that to it at `26`, and has released the lock at
/// `7`. `rdi` is the lock; `rcx`, before the second, `r8` and `r10` must stay. It stands here once for `hold` and once for the other
/// levels. Locks with one of the bits `$shared` in the byte at `$at`, which other processes may wait for, are left to `$inner`.
macro_rules! interpose_release {
    ($name:ident, $kind:expr, $inner:path, $real:path) => {
        $crate::entry::interpose_release!(@ $name, $kind, $inner, $real, $inner, $inner, "jmp 2f", [], ["jmp 26f",], [], []);
    };
    ($name:ident, $kind:expr, $inner:path, $real:path, @ $at:literal, $shared:literal) => {
        $crate::entry::interpose_release!(
            @ $name, $kind, $inner, $real, $inner, $inner, "jmp 2f",
            [concat!("test byte ptr [rdi + ", $at, "], ", $shared), "jnz 35f",], ["jmp 26f",], [], []
        );
    };
    ($name:ident, $kind:expr, $inner:path, $real:path, $count:path) => {
        $crate::entry::interpose_release!(@ $name, $kind, $inner, $real, $count, $inner, "", [], ["jmp 26f",], [], []);
    };
    (
        $name:ident,
        $kind:expr,
        $inner:path,
        $real:path,
        $count:path,
        $timed:path,
        [$($first:expr,)*],
        [$($instead:expr,)*],
        [$($seldom:expr,)*],
        [$($operands:tt)*]
    ) => {
        $crate::entry::interpose_release!(
            @ $name, $kind, $inner, $real, $count, $timed, "", [$($first,)*], [$($instead,)*], [$($seldom,)*],
            [$($operands)*]
        );
    };
    (
        @ $name:ident,
        $kind:expr,
        $inner:path,
        $real:path,
        $count:path,
        $timed:path,
        $at_hold:literal,
        [$($first:expr,)*],
        [$($instead:expr,)*],
        [$($seldom:expr,)*],
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
                "imul ecx, edi, {multiplier}",
                "mov edx, dword ptr [rax + {level}]",
                "shr ecx, {waiters_shift}",
                "lea rax, [rip + {waiters}]",
                "mov rax, qword ptr [rax + 8*rcx]",
                "cmp edx, {hold}",
                "jne 32f",
                $at_hold,
                // Somebody waits for a lock of this place, or one is watched.
                "test rax, rax",
                "jnz 33f",
                "8:",
                "mov rcx, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
                "mov r8, qword ptr fs:[rcx + {table}]",
                "test r8, r8",
                "jz 2f",
                // The lock that the thread acquired last.
                "mov ecx, dword ptr [r8 + {held_count}]",
                "mov edx, ecx",
                "shl edx, {held_shift}",
                "add rdx, r8",
                "cmp qword ptr [rdx + {last_lock}], rdi",
                "jne 2f",
                "mov r9, qword ptr [rip + {tick}]",
                "mov r9d, dword ptr [r9]",
                "shl r9, 32",
                "or r9, {untimed}",
                "cmp qword ptr [rdx + {last_how}], r9",
                "jne 9f",
                // The return address of its acquisition is the site, and leads to its sample.
                "mov r10, qword ptr [rdx + {last_site}]",
                $($first,)*
                "dec ecx",
                "mov dword ptr [r8 + {held_count}], ecx",
                $($instead,)*
                "7:",
                "mov rsi, r10",
                "imul ecx, esi, {multiplier}",
                $crate::entry::unless_counted_here!("24f", "23f"),
                "22:",
                // One instruction, for a signal handler may count here, too.
                "add qword ptr [rcx + {counted}], 1",
                "imul ecx, edi, {multiplier}",
                "shr ecx, {cell_shift}",
                "xor eax, eax",
                "sub dword ptr [r8 + 4*rcx + {until_timed}], 1",
                "jle 25f",
                "4:",
                "ret",
                "23:",
                $crate::entry::if_in_row!("22b"),
                "24:",
                // A second place, for callers that release several locks.
                "mov ecx, esi",
                "xor ecx, edi",
                "imul ecx, ecx, {multiplier}",
                $crate::entry::unless_counted_here!("31f", "21f"),
                "jmp 22b",
                "21:",
                $crate::entry::if_in_row!("22b"),
                "31:",
                "jmp {count}",
                "25:",
                "mov rsi, r8",
                "jmp {time_next}",
                $($seldom,)*
                "35:",
                "jmp 2f",
                "36:",
                "dec ecx",
                "mov dword ptr [r8 + {held_count}], ecx",
                "26:",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "push r10",
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {real}]",
                "pop r10",
                ".cfi_adjust_cfa_offset -8",
                "pop r8",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test eax, eax",
                "je 7b",
                "ret",
                "33:",
                "test eax, eax",
                "jnz 2f",
                "mov rdx, rax",
                "shr rdx, 32",
                "lea ecx, [rdi + 1]",
                "cmp edx, ecx",
                "jne 8b",
                // It is watched: only a timed hold is ended in few instructions.
                "mov rcx, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
                "mov r8, qword ptr fs:[rcx + {table}]",
                "test r8, r8",
                "jz 2f",
                "mov edx, dword ptr [r8 + {held_count}]",
                "shl edx, {held_shift}",
                "add rdx, r8",
                "cmp qword ptr [rdx + {last_lock}], rdi",
                "je 9f",
                "2:",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "jmp {inner}",
                // It is timed, if it does not nest; or long, if the tick is another.
                "9:",
                "cmp qword ptr [rdx + {last_how}], {held}",
                "jne 2b",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "mov rcx, r8",
                "mov r8, rax",
                "jmp {timed}",
                // Not at level `hold`. On a line of its own: a pair takes 0.6 ns more where this lies across two.
                ".p2align 6",
                "32:",
                "test edx, edx", // OFF
                "jz 34f",
                "test eax, eax",
                "jnz 2b",
                "34:",
                $($first,)*
                $($instead,)*
                "7:",
                "xor eax, eax",
                "ret",
                $($seldom,)*
                "35:",
                "jmp 2b",
                "36:",
                "26:",
                "jmp qword ptr [rip + {real}]",
                ".cfi_endproc",
                header = sym lockmeter_meter::writer::HEADER,
                level = const core::mem::offset_of!(lockmeter_meter::layout::Process, level),
                release_cache = const core::mem::offset_of!($crate::entry::Thread, release_cache),
                release_cache_shift = const lockmeter_meter::writer::RELEASE_CACHE_SHIFT,
                sample_shift = const core::mem::size_of::<$crate::entry::CountedSlot>().ilog2(),
                site = const core::mem::offset_of!($crate::entry::CountedSlot, site),
                changes = const core::mem::offset_of!($crate::entry::CountedSlot, changes),
                all_changes = sym lockmeter_meter::writer::CHANGES,
                base = const core::mem::offset_of!($crate::entry::CountedSlot, base),
                inverse = const core::mem::offset_of!($crate::entry::CountedSlot, inverse),
                limit = const core::mem::offset_of!($crate::entry::CountedSlot, limit),
                row = const core::mem::offset_of!($crate::entry::CountedSlot, row),
                row_count_shift = const lockmeter_meter::layout::ROW_COUNT_SHIFT,
                counted = const core::mem::offset_of!($crate::entry::CountedSlot, count),
                until_timed = const core::mem::offset_of!($crate::entry::Thread, until_timed),
                cell_shift = const lockmeter_meter::writer::CELL_SHIFT,
                time_next = sym lockmeter_meter::writer::time_next,
                hold = const lockmeter_meter::writer::HOLD,
                multiplier = const lockmeter_meter::writer::CELL_MULTIPLIER.cast_signed(),
                waiters_shift = const lockmeter_meter::writer::WAITERS_SHIFT,
                waiters = sym lockmeter_meter::writer::WAITERS,
                table = const lockmeter_meter::writer::TABLE,
                tick = sym lockmeter_meter::writer::TICK,
                held = const $crate::entry::pack_held($kind, lockmeter_meter::writer::mode::EXCLUSIVE, 0),
                untimed = const ($crate::entry::pack_held($kind, lockmeter_meter::writer::mode::EXCLUSIVE, 0)
                    | $crate::entry::HELD_UNTIMED),
                held_count = const core::mem::offset_of!($crate::entry::Thread, held_count),
                held_shift = const core::mem::size_of::<$crate::entry::HeldLock>().ilog2(),
                last_lock = const core::mem::offset_of!($crate::entry::Thread, none_held)
                    + core::mem::offset_of!($crate::entry::HeldLock, lock),
                last_how = const core::mem::offset_of!($crate::entry::Thread, none_held)
                    + core::mem::offset_of!($crate::entry::HeldLock, how),
                last_site = const core::mem::offset_of!($crate::entry::Thread, none_held)
                    + core::mem::offset_of!($crate::entry::HeldLock, site),
                real = sym $real,
                count = sym $count,
                timed = sym $timed,
                inner = sym $inner,
                $($operands)*
            )
        }
    };
}

/// Goes on with the sample in `rcx` if that of the place in `ecx` (a product with the multiplier) is of the caller in `rsi`,
/// whose table is in `r8`, and stands for the lock in `rdi`: see `Span`. If it is of another caller, goes to `$other`; if it is of
/// another lock, or of a row that takes a longer look, to `$far`, with `rax` for that.
macro_rules! unless_counted_here {
    ($other:literal, $far:literal) => {
        concat!(
            "shr ecx, {release_cache_shift}\n",
            // A sample's distance from the table.
            "movsxd rcx, dword ptr [r8 + 4*rcx + {release_cache}]\n",
            "shl rcx, {sample_shift}\n",
            "add rcx, r8\n",
            "cmp qword ptr [rcx + {site}], rsi\n",
            "jne ",
            $other,
            "\nmov eax, dword ptr [rcx + {changes}]\n",
            "cmp eax, dword ptr [rip + {all_changes}]\n",
            "jne ",
            $other,
            "\nmov rax, rdi\n",
            "sub rax, qword ptr [rcx + {base}]\n",
            "imul rax, qword ptr [rcx + {inverse}]\n",
            "mov edx, dword ptr [rcx + {limit}]\n",
            "cmp rax, rdx\n",
            "jae ",
            $far
        )
    };
}

/// Goes to `$counted` if the lock is in a row of which [`unless_counted_here`] could not tell.
macro_rules! if_in_row {
    ($counted:literal) => {
        concat!(
            "mov r9, rcx\n",
            "mov edx, dword ptr [r9 + {row}]\n",
            "mov ecx, edx\n",
            "ror rax, cl\n",
            "mov rcx, r9\n",
            "shr edx, {row_count_shift}\n",
            "cmp rax, rdx\n",
            "jb ",
            $counted
        )
    };
}

/// [`interpose_acquire`] for a mutex. A normal or adaptive one that is free is taken right here, as glibc does it, where
/// [`glibc_mutex`](crate::glibc_mutex) has seen that it does it so: the lock word, the owner, and one more user.
///
/// `$real`, like `$inner`, gives what the function of this name gives; all take 0 for having the lock.
macro_rules! interpose_mutex_lock {
    ($name:ident, $inner:path, $real:path) => {
        $crate::entry::interpose_acquire!(
            $name,
            lockmeter_meter::writer::kind::MUTEX,
            lockmeter_meter::writer::mode::EXCLUSIVE,
            $inner,
            $crate::real::slots::pthread_mutex_trylock,
            $real,
            $crate::mutex::acquired_timed,
            16,
            0xf1,
            [
                "cmp dword ptr [rdi + 16], 0",
                "jne 27f",
                "28:",
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
            ],
            ["27:", "cmp dword ptr [rdi + 16], {adaptive}", "je 28b",],
            [
                thread_id = sym $crate::glibc_mutex::THREAD_ID_AT,
                adaptive = const libc::PTHREAD_MUTEX_ADAPTIVE_NP,
            ]
        );
    };
}

/// [`interpose_release`] for a mutex. A normal or adaptive one is released right here, as glibc does it, where
/// [`glibc_mutex`](crate::glibc_mutex) has seen that it does it so: no owner, one user less, the lock word, and if that says
/// that somebody sleeps, one is woken.
macro_rules! interpose_mutex_unlock {
    ($name:ident, $inner:path, $real:path, $timed:path) => {
        $crate::entry::interpose_release!(
            $name,
            lockmeter_meter::writer::kind::MUTEX,
            $inner,
            $real,
            $crate::mutex::count_untimed,
            $timed,
            [
                "cmp dword ptr [rdi + 16], 0",
                "jne 27f",
                "28:",
            ],
            [
                "cmp qword ptr [rip + {thread_id}], 0",
                "je 26f",
                "mov dword ptr [rdi + 8], 0",
                "dec dword ptr [rdi + 12]",
                "xor eax, eax",
                "xchg dword ptr [rdi], eax",
                "cmp eax, 1",
                "jg 29f",
            ],
            [
                "27:",
                "cmp dword ptr [rdi + 16], {adaptive}",
                "je 28b",
                "test byte ptr [rdi + 16], {shared}",
                "jnz 35f",
                "jmp 36f",
                // From here on the mutex may be gone. The kernel keeps all registers but rax, rcx and r11.
                "29:",
                "mov esi, {wake}",
                "mov edx, 1",
                "mov eax, {futex}",
                "syscall",
                "jmp 7b",
            ],
            [
                thread_id = sym $crate::glibc_mutex::THREAD_ID_AT,
                adaptive = const libc::PTHREAD_MUTEX_ADAPTIVE_NP,
                shared = const $crate::mutex::SHARED,
                wake = const libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                futex = const libc::SYS_futex,
            ]
        );
    };
}
pub(crate) use {
    if_in_row, interpose, interpose_acquire, interpose_mutex_lock, interpose_mutex_unlock, interpose_release,
    unless_counted_here,
};
