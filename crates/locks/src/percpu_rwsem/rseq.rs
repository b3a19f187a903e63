//! Counting on the CPU this thread happens to run on, without an atomic instruction: a restartable sequence (`rseq`).
//!
//! A sequence looks at the gate, finds the CPU's counter and, with its last instruction, changes it. If the kernel moves or
//! interrupts the thread before that last instruction, or another thread calls [`barrier`], the sequence starts again. So
//! after a gate was shut and `barrier` has returned, no thread changes a counter behind it any more: either its change is
//! there to see, or its sequence starts again and finds the gate shut.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicU64};

use super::slots::{AREA_SHIFT, MOST_CPUS};
use crate::glibc_rseq;

/// Where a thread's `struct rseq` lies, from its thread pointer. 0: there is none, or nobody has asked.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Writes [`OFFSET`] when the program or library that this is linked into is loaded: before any lock is used, but by those that
/// are loaded earlier.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn write_offset() {
        find_offset();
    }
    write_offset
};

/// [`OFFSET`], as a constant: the compiler may read it once and keep it, from an acquisition to its release or over a whole
/// loop. Read by every sequence it took a third of a pair's time. Who read it before it was written, and keeps the 0, counts in
/// the slow paths.
#[inline(always)]
fn constant_offset() -> isize {
    let offset: isize;
    // SAFETY: reads a static.
    unsafe {
        core::arch::asm!(
            "mov {offset}, qword ptr [rip + {OFFSET}@GOTPCREL]",
            "mov {offset}, qword ptr [{offset}]",
            offset = lateout(reg) offset,
            OFFSET = sym OFFSET,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}

// Of `struct rseq`, and of the instruction that marks an abort handler as one.
const CPU_ID: usize = 4;
/// Two bytes before `cpu_id` lies the upper half of `cpu_id_start`, which is 0 because no kernel numbers this many CPUs. So four
/// bytes from here read as the CPU's number times 65536, which is how far its counter lies from CPU 0's.
const CPU_ID_SHIFTED: usize = CPU_ID - 2;
const _: () = assert!(AREA_SHIFT == 16, "the area of a CPU is found by reading its number shifted");
const MOST_AREA_BYTES: u32 = MOST_CPUS << AREA_SHIFT;
const RSEQ_CS: usize = 8;
const RSEQ_SIG: u32 = 0x5305_3053;

// Commands of membarrier(2).
const REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;
const PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;

/// One sequence: `$operation` on this CPU's counter behind `$gate`, true; or false, nothing changed, if the gate is shut or
/// this thread has no CPU number.
macro_rules! count {
    ($gate:expr, $offset:expr, $operation:literal) => {{
        // SAFETY: an offset that is not 0 leads to this thread's own area, which glibc registered. Behind an open gate lie
        // counters of all CPUs, `1 << AREA_SHIFT` apart, and a registered thread's CPU number is one of them. The address of the
        // counter is kept in one register: with base and index in two, each pair waited for the last one's store (4.4 ns, not 1.5).
        unsafe {
            core::arch::asm!(
                "test {offset}, {offset}",
                "jz {shut}",
                "2:",
                "lea {counter}, [rip + 3f]",
                "mov qword ptr fs:[{offset} + {RSEQ_CS}], {counter}",
                "4:",
                "mov {counter}, qword ptr [{gate}]",
                "test {counter}, {counter}",
                "jz {shut}",
                "mov {area:e}, dword ptr fs:[{offset} + {CPU_ID_SHIFTED}]",
                "cmp {area:e}, {MOST_AREA_BYTES}",
                "jae {shut}",
                "add {counter}, {area}",
                concat!($operation, " qword ptr [{counter}], 1"),
                "5:",
                // What the kernel reads: version and flags, the first instruction, how long, where to go instead.
                ".pushsection __rseq_cs, \"aw\"",
                ".balign 32",
                "3:",
                ".long 0, 0",
                ".quad 4b, 5b - 4b, 6f",
                ".popsection",
                // The signature before the handler reads as one instruction, `ud1 edi, [rip + RSEQ_SIG]`.
                ".pushsection __rseq_failure, \"ax\"",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long {RSEQ_SIG}",
                "6:",
                "jmp 2b",
                ".popsection",
                gate = in(reg) $gate.as_ptr(),
                offset = in(reg) $offset,
                counter = out(reg) _,
                area = out(reg) _,
                RSEQ_CS = const RSEQ_CS,
                CPU_ID_SHIFTED = const CPU_ID_SHIFTED,
                MOST_AREA_BYTES = const MOST_AREA_BYTES,
                RSEQ_SIG = const RSEQ_SIG,
                shut = label { return false },
                options(nostack),
            );
        }
        true
    }};
}

/// One more on this CPU, if the gate is open.
#[inline(always)]
pub(super) fn increment_at_once(gate: &AtomicPtr<AtomicU64>) -> bool {
    count!(gate, constant_offset(), "add")
}

/// One less on this CPU, if the gate is open.
#[inline(always)]
pub(super) fn decrement_at_once(gate: &AtomicPtr<AtomicU64>) -> bool {
    count!(gate, constant_offset(), "sub")
}

/// The same as [`increment_at_once`], for callers that know the gate to have been open.
pub(super) fn increment(gate: &AtomicPtr<AtomicU64>) -> bool {
    count!(gate, OFFSET.load(Relaxed), "add")
}

/// The same as [`decrement_at_once`], for callers that know the gate to have been open.
pub(super) fn decrement(gate: &AtomicPtr<AtomicU64>) -> bool {
    count!(gate, OFFSET.load(Relaxed), "sub")
}

/// Whether the kernel numbers CPUs for this thread.
pub(super) fn registered_here() -> bool {
    if !is_available() {
        return false;
    }
    let cpu: u32;
    // SAFETY: reads this thread's own area, which glibc reserved.
    unsafe {
        core::arch::asm!(
            "mov {cpu:e}, dword ptr fs:[{offset} + {CPU_ID}]",
            offset = in(reg) OFFSET.load(Relaxed),
            cpu = out(reg) cpu,
            CPU_ID = const CPU_ID,
            options(nostack, readonly, preserves_flags),
        );
    }
    cpu < MOST_CPUS
}

/// Whether both halves are there: glibc (2.35 or newer) registered rseq, and the kernel (5.10 or newer) has the barrier.
pub(super) fn is_available() -> bool {
    const UNKNOWN: u32 = 0;
    const NO: u32 = 1;
    const YES: u32 = 2;
    static AVAILABLE: AtomicU32 = AtomicU32::new(UNKNOWN);
    match AVAILABLE.load(Acquire) {
        UNKNOWN => {
            let available = find_offset() && membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ);
            AVAILABLE.store(if available { YES } else { NO }, Release);
            available
        }
        known => known == YES,
    }
}

fn find_offset() -> bool {
    let offset = glibc_rseq::offset();
    OFFSET.store(offset.unwrap_or(0), Relaxed);
    offset.is_some()
}

/// When it returns, each thread of this process has gone through a full memory barrier since the call, and a sequence that it
/// was in the midst of starts again.
pub(super) fn barrier() {
    // A child of fork may have to register again.
    if membarrier(PRIVATE_EXPEDITED_RSEQ)
        || membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ) && membarrier(PRIVATE_EXPEDITED_RSEQ)
    {
        return;
    }
    // Granted before, and refused now, as by a new seccomp filter. Going on would let a writer in beside readers.
    const WHY: &[u8] = b"lockmeter-locks: membarrier(2) worked and now is refused: readers cannot be seen any more\n";
    // SAFETY: writes a constant; ends the process.
    unsafe {
        libc::write(libc::STDERR_FILENO, WHY.as_ptr().cast(), WHY.len());
        libc::abort();
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
