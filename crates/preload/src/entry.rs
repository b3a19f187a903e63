//! The first instructions of an interposed function.

pub(crate) use lockmeter_meter::layout::{CountedSlot, HELD, HELD_UNTIMED, HeldLock, Thread, pack_held};

/// Exports `$name`, which has `$arguments` arguments of a word each, and jumps to `$function`, which gets two more: where the
/// stack pointer stood (it points to the return address), and the frame pointer.
macro_rules! interpose {
    ($name:ident, 1, $function:path) => {
        $crate::entry::interpose!(@ $name, $function, "mov rsi, rsp", "mov rdx, rbp");
    };
    ($name:ident, 2, $function:path) => {
        $crate::entry::interpose!(@ $name, $function, "mov rdx, rsp", "mov rcx, rbp");
    };
    ($name:ident, 3, $function:path) => {
        $crate::entry::interpose!(@ $name, $function, "mov rcx, rsp", "mov r8, rbp");
    };
    ($name:ident, 4, $function:path) => {
        $crate::entry::interpose!(@ $name, $function, "mov r8, rsp", "mov r9, rbp");
    };
    (@ $name:ident, $function:path, $stack:literal, $frame:literal) => {
        /// Takes the place of the function of this name; see the manual page of that.
        ///
        /// # Safety
        /// As the function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!("endbr64", $stack, $frame, "jmp {function}", function = sym $function)
        }
    };
}

/// As [`interpose`] for a function of one argument that takes a lock of this `kind` and `mode`. It calls `try_it` itself, so that a
/// free lock costs little more than without a meter. At level `hold` it adds the lock to those that the thread holds, or calls
/// `timed` if this hold is to be timed. A lock that cannot be taken so goes to `slow`, which may try again, and so does one with
/// one of the `special_bits` set in the byte at `special_byte`. While metering is off, `real` is called.
macro_rules! interpose_acquire {
    (
        $name:ident,
        kind: $kind:expr,
        mode: $mode:expr,
        slow: $slow:path,
        try_it: $try_it:path,
        real: $real:path,
        timed: $timed:path,
        special_byte: $special_byte:expr,
        special_bits: $special_bits:expr $(,)?
    ) => {
        $crate::entry::interpose_acquire!(
            $name,
            kind: $kind,
            mode: $mode,
            slow: $slow,
            try_it: $try_it,
            real: $real,
            timed: $timed,
            special_byte: $special_byte,
            special_bits: $special_bits,
            take: ["jmp {call_try}f",],
            rare: [],
            operands: []
        );
    };
    // `take` may take the lock in place of `try_it`, with the help of `rare`, which is code off the usual path, and of `operands`.
    // In both, `rdi` is the lock and `r9d` the level. They go to `call_try` to leave the lock to `try_it` (or to `real` while
    // metering is off), to `taken` with the lock taken, and to `wait` if another thread holds it.
    (
        $name:ident,
        kind: $kind:expr,
        mode: $mode:expr,
        slow: $slow:path,
        try_it: $try_it:path,
        real: $real:path,
        timed: $timed:path,
        special_byte: $special_byte:expr,
        special_bits: $special_bits:expr,
        take: [$($take:expr,)*],
        rare: [$($rare:expr,)*],
        operands: [$($operands:tt)*]
    ) => {
        /// Takes the place of the function of this name; see the manual page of that.
        ///
        /// # Safety
        /// As the function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(named_asm_labels, reason = "labels are numbers, which have names for the reader")]
        pub unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "mov rax, qword ptr [rip + {header}]",
                "mov r9d, dword ptr [rax + {level}]",
                $($take,)*
                "{taken}:",
                "cmp r9d, {hold}",
                "jne {done}f",
                // The bit of the lock's group.
                "mov rcx, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
                "imul edx, edi, {cell_multiplier}",
                "shr edx, {cell_shift}",
                "mov rsi, qword ptr fs:[rcx + {quiet}]",
                "bt rsi, rdx",
                "jnc {call_timed}f",
                // One more lock that the thread holds. First the number, so that a signal handler's are above it.
                "mov r8, qword ptr fs:[rcx + {table}]",
                "test r8, r8",
                "jz {done}f",
                "mov ecx, dword ptr [r8 + {held_count}]",
                "cmp ecx, {most_held}",
                "jae {call_timed}f",
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
                "{done}:",
                "ret",
                "{call_timed}:",
                // The return address is the site.
                "mov rsi, qword ptr [rsp]",
                "jmp {timed}",
                "{off}:",
                "jmp qword ptr [rip + {real}]",
                $($rare,)*
                "{call_try}:",
                "test r9d, r9d", // OFF
                "jz {off}b",
                "test byte ptr [rdi + {special_byte}], {special_bits}",
                "jnz {wait}f",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {try_it}]",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "mov rcx, qword ptr [rip + {header}]",
                "mov r9d, dword ptr [rcx + {level}]",
                "test eax, eax",
                "je {taken}b",
                "{wait}:",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "jmp {slow}",
                ".cfi_endproc",
                // Labels: the assembler has no other ones than numbers that may stand in several functions.
                call_timed = const 2,
                call_try = const 3,
                done = const 4,
                off = const 5,
                taken = const 6,
                wait = const 7,
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
                special_byte = const $special_byte,
                special_bits = const $special_bits,
                try_it = sym $try_it,
                real = sym $real,
                timed = sym $timed,
                slow = sym $slow,
                $($operands)*
            )
        }
    };
}

/// As [`interpose`] for a function of one argument that releases a lock with modes. While metering is off, or at level `wait` when
/// nobody waits for the lock, it calls `real`. All else goes to `slow`: holds, and locks with one of the `special_bits` set in the
/// byte at `special_byte`.
macro_rules! interpose_release_with_mode {
    (
        $name:ident,
        slow: $slow:path,
        real: $real:path,
        special_byte: $special_byte:expr,
        special_bits: $special_bits:expr $(,)?
    ) => {
        /// Takes the place of the function of this name; see the manual page of that.
        ///
        /// # Safety
        /// As the function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(named_asm_labels, reason = "labels are numbers, which have names for the reader")]
        pub unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "mov rax, qword ptr [rip + {header}]",
                "mov edx, dword ptr [rax + {level}]",
                "cmp edx, {hold}",
                "je {call_slow}f",
                "test edx, edx", // OFF
                "jz {nobody_waits}f",
                // The number of threads that wait for a lock of this group.
                "imul ecx, edi, {multiplier}",
                "shr ecx, {waiters_shift}",
                "lea rax, [rip + {waiters}]",
                "cmp dword ptr [rax + 8*rcx], 0",
                "jne {call_slow}f",
                "{nobody_waits}:",
                "test byte ptr [rdi + {special_byte}], {special_bits}",
                "jnz {call_slow}f",
                "jmp qword ptr [rip + {real}]",
                "{call_slow}:",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "jmp {slow}",
                ".cfi_endproc",
                // Labels.
                call_slow = const 2,
                nobody_waits = const 3,
                header = sym lockmeter_meter::writer::HEADER,
                level = const core::mem::offset_of!(lockmeter_meter::layout::Process, level),
                hold = const lockmeter_meter::writer::HOLD,
                multiplier = const lockmeter_meter::writer::CELL_MULTIPLIER.cast_signed(),
                waiters_shift = const lockmeter_meter::writer::WAITERS_SHIFT,
                waiters = sym lockmeter_meter::writer::WAITERS,
                special_byte = const $special_byte,
                special_bits = const $special_bits,
                real = sym $real,
                slow = sym $slow,
            )
        }
    };
}

/// As [`interpose`] for a function of one argument that releases a lock of this `kind`, which has no modes.
///
/// While metering is off, or at level `wait` when nobody waits for the lock, it calls `real`, and nothing follows. At level `hold`
/// it ends the hold itself if the lock is the one that the thread acquired last, the hold is neither timed nor a long one, and
/// nobody waits for the lock or watches it: it takes the lock off those that the thread holds, releases it, and adds one to the
/// sample of the call site that acquired it. If it does not find that sample at once, it calls `count`. If the hold is timed, it
/// jumps to `timed`, with the thread's table and the lock's entry in `WAITERS` beside what `slow` gets. All else goes to `slow`.
macro_rules! interpose_release {
    (
        $name:ident,
        kind: $kind:expr,
        slow: $slow:path,
        real: $real:path,
        count: $count:path,
        timed: $timed:path $(,)?
    ) => {
        $crate::entry::interpose_release!(
            $name,
            kind: $kind,
            slow: $slow,
            real: $real,
            count: $count,
            timed: $timed,
            check: [],
            release: ["jmp {call_real}f",],
            rare: [],
            operands: []
        );
    };
    // `check` looks at the lock before anything is changed: it may go to `leave_all` to leave all to `slow`, or to `leave_release`
    // to leave the release to `real`. `release` may release the lock in place of `real`: it goes to `call_real` to leave it to
    // that, and to `released` with the lock released. `rare` is code off the usual path for both, with `operands`.
    // `rdi` is the lock. `check` must keep `rcx`, and both `r8` and `r10`. At level `hold` and at the others they are two copies:
    // a program pays for each branch on these paths.
    (
        $name:ident,
        kind: $kind:expr,
        slow: $slow:path,
        real: $real:path,
        count: $count:path,
        timed: $timed:path,
        check: [$($check:expr,)*],
        release: [$($release:expr,)*],
        rare: [$($rare:expr,)*],
        operands: [$($operands:tt)*]
    ) => {
        /// Takes the place of the function of this name; see the manual page of that.
        ///
        /// # Safety
        /// As the function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(named_asm_labels, reason = "labels are numbers, which have names for the reader")]
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
                "jne {without_holds}f",
                // A thread waits for a lock of this group, or one of them is watched.
                "test rax, rax",
                "jnz {waited_for_or_watched}f",
                "{not_watched}:",
                "mov rcx, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
                "mov r8, qword ptr fs:[rcx + {table}]",
                "test r8, r8",
                "jz {call_slow}f",
                // The lock that the thread acquired last.
                "mov ecx, dword ptr [r8 + {held_count}]",
                "mov edx, ecx",
                "shl edx, {held_shift}",
                "add rdx, r8",
                "cmp qword ptr [rdx + {last_lock}], rdi",
                "jne {call_slow}f",
                "mov r9, qword ptr [rip + {tick}]",
                "mov r9d, dword ptr [r9]",
                "shl r9, 32",
                "or r9, {untimed}",
                "cmp qword ptr [rdx + {last_how}], r9",
                "jne {timed_nested_or_long}f",
                // The return address of its acquisition is the site, and leads to its sample.
                "mov r10, qword ptr [rdx + {last_site}]",
                $($check,)*
                "dec ecx",
                "mov dword ptr [r8 + {held_count}], ecx",
                $($release,)*
                "{released}:",
                "mov rsi, r10",
                "imul ecx, esi, {multiplier}",
                $crate::entry::unless_counted_here!("{second_sample}f", "{perhaps_in_row}f"),
                "{sample_found}:",
                // One instruction, for a signal handler may count here, too.
                "add qword ptr [rcx + {counted}], 1",
                "imul ecx, edi, {multiplier}",
                "shr ecx, {cell_shift}",
                "xor eax, eax",
                "sub dword ptr [r8 + 4*rcx + {until_timed}], 1",
                "jle {call_time_next}f",
                "ret",
                "{perhaps_in_row}:",
                $crate::entry::if_in_row!("{sample_found}b"),
                "{second_sample}:",
                // A second place, for callers that release several locks.
                "mov ecx, esi",
                "xor ecx, edi",
                "imul ecx, ecx, {multiplier}",
                $crate::entry::unless_counted_here!("{call_count}f", "{second_perhaps_in_row}f"),
                "jmp {sample_found}b",
                "{second_perhaps_in_row}:",
                $crate::entry::if_in_row!("{sample_found}b"),
                "{call_count}:",
                "jmp {count}",
                "{call_time_next}:",
                "mov rsi, r8",
                "jmp {time_next}",
                $($rare,)*
                "{leave_all}:",
                "jmp {call_slow}f",
                "{leave_release}:",
                "dec ecx",
                "mov dword ptr [r8 + {held_count}], ecx",
                "{call_real}:",
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
                "je {released}b",
                "ret",
                "{waited_for_or_watched}:",
                "test eax, eax",
                "jnz {call_slow}f",
                "mov rdx, rax",
                "shr rdx, 32",
                "lea ecx, [rdi + 1]",
                "cmp edx, ecx",
                "jne {not_watched}b",
                // This lock is watched: only a timed hold is ended in few instructions.
                "mov rcx, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
                "mov r8, qword ptr fs:[rcx + {table}]",
                "test r8, r8",
                "jz {call_slow}f",
                "mov edx, dword ptr [r8 + {held_count}]",
                "shl edx, {held_shift}",
                "add rdx, r8",
                "cmp qword ptr [rdx + {last_lock}], rdi",
                "je {timed_nested_or_long}f",
                "{call_slow}:",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "jmp {slow}",
                // It is timed, if it does not nest; or long, if the tick is another.
                "{timed_nested_or_long}:",
                "cmp qword ptr [rdx + {last_how}], {held}",
                "jne {call_slow}b",
                "mov rsi, rsp",
                "mov rdx, rbp",
                "mov rcx, r8",
                "mov r8, rax",
                "jmp {timed}",
                // Not at level `hold`. On a line of its own: a pair takes 0.6 ns more where this lies across two.
                ".p2align 6",
                "{without_holds}:",
                "test edx, edx", // OFF
                "jz {nobody_waits}f",
                "test eax, eax",
                "jnz {call_slow}b",
                "{nobody_waits}:",
                $($check,)*
                $($release,)*
                "{released}:",
                "xor eax, eax",
                "ret",
                $($rare,)*
                "{leave_all}:",
                "jmp {call_slow}b",
                "{leave_release}:",
                "{call_real}:",
                "jmp qword ptr [rip + {real}]",
                ".cfi_endproc",
                // Labels: the assembler has no other ones than numbers that may stand in several functions.
                call_count = const 2,
                call_real = const 3,
                call_slow = const 4,
                call_time_next = const 5,
                leave_all = const 6,
                leave_release = const 7,
                nobody_waits = const 8,
                not_watched = const 9,
                perhaps_in_row = const 20,
                released = const 21,
                sample_found = const 22,
                second_perhaps_in_row = const 23,
                second_sample = const 24,
                timed_nested_or_long = const 25,
                waited_for_or_watched = const 26,
                without_holds = const 27,
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
                slow = sym $slow,
                $($operands)*
            )
        }
    };
}

/// Finds the sample that counts this release, in one of its two places: `ecx` is a product with the multiplier that says which,
/// `rsi` the call site, `rdi` the lock, and `r8` the thread's table. Goes on with the sample in `rcx`: see `Span`. Goes to
/// `$other` if the sample there is another call site's, and to `$perhaps_in_row`, with `rax` for [`if_in_row`], if it is another lock's.
macro_rules! unless_counted_here {
    ($other:literal, $perhaps_in_row:literal) => {
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
            $perhaps_in_row
        )
    };
}

/// Goes to `$found` if the sample is of a row of locks, and the lock is one of them.
macro_rules! if_in_row {
    ($found:literal) => {
        concat!(
            "mov r9, rcx\n",
            "mov edx, dword ptr [r9 + {row}]\n",
            "mov ecx, edx\n",
            "ror rax, cl\n",
            "mov rcx, r9\n",
            "shr edx, {row_count_shift}\n",
            "cmp rax, rdx\n",
            "jb ",
            $found
        )
    };
}

/// [`interpose_acquire`] for a mutex. A normal or adaptive one that is free is taken right here, as glibc does it, where
/// [`glibc_mutex`](crate::glibc_mutex) has seen that it does it so: the state word, the owner, and one more user.
///
/// `real`, like `slow`, returns what the function of this name returns; for all of them 0 means that the lock is taken.
macro_rules! interpose_mutex_lock {
    ($name:ident, slow: $slow:path, real: $real:path $(,)?) => {
        $crate::entry::interpose_acquire!(
            $name,
            kind: lockmeter_meter::writer::kind::MUTEX,
            mode: lockmeter_meter::writer::mode::EXCLUSIVE,
            slow: $slow,
            try_it: $crate::real::slots::pthread_mutex_trylock,
            real: $real,
            timed: $crate::mutex::acquired_timed,
            special_byte: $crate::mutex::KIND_AT,
            special_bits: $crate::mutex::LEFT_TO_SLOW_PATH,
            take: [
                "cmp dword ptr [rdi + {kind_at}], {normal}",
                "jne {not_normal}f",
                "{plain}:",
                "mov rdx, qword ptr [rip + {thread_id}]",
                "test rdx, rdx",
                "jz {call_try}f",
                "xor eax, eax",
                "mov ecx, 1",
                "lock cmpxchg dword ptr [rdi], ecx",
                "jne {wait}f",
                "mov edx, dword ptr fs:[rdx]",
                "mov dword ptr [rdi + {owner_at}], edx",
                "inc dword ptr [rdi + {users_at}]",
            ],
            rare: [
                "{not_normal}:",
                "cmp dword ptr [rdi + {kind_at}], {adaptive}",
                "je {plain}b",
            ],
            operands: [
                not_normal = const 20,
                plain = const 21,
                thread_id = sym $crate::glibc_mutex::THREAD_ID_AT,
                normal = const libc::PTHREAD_MUTEX_NORMAL,
                adaptive = const libc::PTHREAD_MUTEX_ADAPTIVE_NP,
                kind_at = const $crate::mutex::KIND_AT,
                owner_at = const $crate::mutex::OWNER_AT,
                users_at = const $crate::mutex::USERS_AT,
            ]
        );
    };
}

/// [`interpose_release`] for a mutex. A normal or adaptive one is released right here, as glibc does it, where
/// [`glibc_mutex`](crate::glibc_mutex) has seen that it does it so: no owner, one user less, the state word, and a wake-up if that
/// says that a thread sleeps.
macro_rules! interpose_mutex_unlock {
    ($name:ident, slow: $slow:path, real: $real:path, timed: $timed:path $(,)?) => {
        $crate::entry::interpose_release!(
            $name,
            kind: lockmeter_meter::writer::kind::MUTEX,
            slow: $slow,
            real: $real,
            count: $crate::mutex::count_untimed,
            timed: $timed,
            check: [
                "cmp dword ptr [rdi + {kind_at}], {normal}",
                "jne {not_normal}f",
                "{plain}:",
            ],
            release: [
                "cmp qword ptr [rip + {thread_id}], 0",
                "je {call_real}f",
                "mov dword ptr [rdi + {owner_at}], 0",
                "dec dword ptr [rdi + {users_at}]",
                "xor eax, eax",
                "xchg dword ptr [rdi], eax",
                "cmp eax, 1",
                "jg {wake_one}f",
            ],
            rare: [
                "{not_normal}:",
                "cmp dword ptr [rdi + {kind_at}], {adaptive}",
                "je {plain}b",
                "test byte ptr [rdi + {kind_at}], {shared}",
                "jnz {leave_all}f",
                "jmp {leave_release}f",
                // From here on the mutex may be gone. The kernel keeps all registers but rax, rcx and r11.
                "{wake_one}:",
                "mov esi, {wake}",
                "mov edx, 1",
                "mov eax, {futex}",
                "syscall",
                "jmp {released}b",
            ],
            operands: [
                not_normal = const 30,
                plain = const 31,
                wake_one = const 32,
                thread_id = sym $crate::glibc_mutex::THREAD_ID_AT,
                normal = const libc::PTHREAD_MUTEX_NORMAL,
                adaptive = const libc::PTHREAD_MUTEX_ADAPTIVE_NP,
                shared = const $crate::mutex::SHARED,
                kind_at = const $crate::mutex::KIND_AT,
                owner_at = const $crate::mutex::OWNER_AT,
                users_at = const $crate::mutex::USERS_AT,
                wake = const libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                futex = const libc::SYS_futex,
            ]
        );
    };
}
pub(crate) use {
    if_in_row, interpose, interpose_acquire, interpose_mutex_lock, interpose_mutex_unlock, interpose_release,
    interpose_release_with_mode, unless_counted_here,
};
