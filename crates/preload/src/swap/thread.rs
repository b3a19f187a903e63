//! What is kept of a thread: how many locks it holds for reading, and who it is.

use core::arch::{asm, global_asm};

use lockmeter_meter::writer;

// Initial-exec storage, which Rust cannot ask for: the general model would call `__tls_get_addr`, which may allocate.
global_asm!(
    ".pushsection .tbss.lockmeter_reads,\"awT\",@nobits",
    ".balign 8",
    ".hidden lockmeter_reads",
    ".globl lockmeter_reads",
    ".type lockmeter_reads, @object",
    ".size lockmeter_reads, 8",
    "lockmeter_reads:",
    ".zero 8",
    ".popsection",
);

/// This thread's id, by which glibc knows the owner of a mutex. A forked child's thread has another than the thread that forked.
#[inline(always)]
pub(super) fn id() -> usize {
    writer::thread_id() as usize
}

/// This thread, as a number that no other living thread has; never 0. It stays the same in a forked child.
#[inline(always)]
pub(super) fn identity() -> usize {
    let identity: usize;
    // SAFETY: the first word of a thread's control block is its own address.
    unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) identity, options(nostack, preserves_flags, readonly, pure)) };
    identity
}

/// This thread has one more lock for reading.
#[inline(always)]
pub(super) fn reads_more() {
    // SAFETY: changes the thread's own word.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + lockmeter_reads@GOTTPOFF]",
            "inc qword ptr fs:[{0}]",
            out(reg) _,
            options(nostack)
        );
    }
}

/// This thread has one less.
#[inline(always)]
pub(super) fn reads_less() {
    // SAFETY: changes the thread's own word.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + lockmeter_reads@GOTTPOFF]",
            "dec qword ptr fs:[{0}]",
            out(reg) _,
            options(nostack)
        );
    }
}

/// Whether this thread may hold a lock for reading. A program that unlocks in another thread than it locks makes this say yes
/// for nothing, which is unfair to writers, and does no other harm.
pub(super) fn may_read() -> bool {
    let reads: usize;
    // SAFETY: reads the thread's own word.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + lockmeter_reads@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) reads,
            options(nostack, preserves_flags, readonly)
        );
    }
    reads != 0
}
