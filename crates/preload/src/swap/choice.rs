//! Which locks are swapped: what the environment asks for, and the one look that each lock gets.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub(super) use lockmeter_meter::layout::Swap;
use lockmeter_meter::layout::{SWAP_FILTER_VARIABLE, SWAP_VARIABLE};
use lockmeter_meter::writer::{self, Registers, swap_filter};

use crate::environment::{self, variable};

/// Mutexes become our mutex.
pub(super) const MUTEX: u32 = 1;
/// Reader-writer locks become our reader-writer semaphore.
pub(super) const RWSEM: u32 = 2;
/// Reader-writer locks become our per-CPU reader-writer semaphore.
pub(super) const PERCPU_RWSEM: u32 = 4;
/// One of the two.
pub(super) const RWLOCK: u32 = RWSEM | PERCPU_RWSEM;
/// Spin locks become our spin lock.
pub(super) const SPIN: u32 = 8;

/// The environment was read.
const READ: u32 = 1 << 31;

// With what else is written when the library is loaded.
#[unsafe(link_section = ".data.lockmeter_start")]
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// Whether any lock is to be swapped.
pub(super) fn is_any() -> bool {
    chosen() != READ
}

/// What the environment asks for. Read at first use, which may be before any constructor ran.
pub(super) fn chosen() -> u32 {
    let chosen = CHOSEN.load(Relaxed);
    if chosen & READ != 0 {
        return chosen;
    }
    if !environment::is_known() {
        // No lock is swapped yet: one that is free again by the time that this library is initialised is swapped then.
        return READ;
    }
    let value = variable::<{ SWAP_VARIABLE.len() + 1 }>(SWAP_VARIABLE);
    let mut read = READ;
    if let Some(value) = value {
        let value = value.to_bytes();
        for choice in value.split(|byte| *byte == b',') {
            read |= match choice {
                b"mutex=mutex" => MUTEX,
                b"rwlock=rwsem" => RWSEM,
                b"rwlock=percpu-rwsem" => PERCPU_RWSEM,
                b"spin=spin" => SPIN,
                // `std`, and what only another version of lockmeter knows: the recorder has checked it.
                _ => 0,
            };
        }
    }
    if read != READ
        && let Some(path) = variable::<{ SWAP_FILTER_VARIABLE.len() + 1 }>(SWAP_FILTER_VARIABLE)
    {
        swap_filter::read(path.to_bytes_with_nul());
    }
    CHOSEN.store(read, Relaxed);
    read
}

/// Counts what became of a lock.
pub(super) fn count(swap: Swap) {
    writer::count_swap(swap);
}

/// Whether only some locks are to be swapped: then who makes one counts, and it is looked at when it is made.
pub(super) fn is_selective() -> bool {
    swap_filter::is_there()
}

/// Whether a lock that could be swapped is not one of those that were asked for.
pub(super) fn is_left_out(lock: usize) -> bool {
    // SAFETY: takes a number.
    is_selective() && unsafe { is_left_out_here(lock) } != 0
}

/// Takes the stack from here.
#[unsafe(naked)]
unsafe extern "C" fn is_left_out_here(lock: usize) -> u32 {
    core::arch::naked_asm!("mov rsi, rsp", "mov rdx, rbp", "jmp {inner}", inner = sym is_left_out_at)
}

unsafe extern "C" fn is_left_out_at(lock: usize, sp: *const usize, fp: usize) -> u32 {
    // SAFETY: our own entry, which has not returned.
    let registers = unsafe { Registers::at_entry(sp, fp) };
    u32::from(!swap_filter::is_chosen(lock, &registers))
}
