//! Numbers of threads for a library that is preloaded into programs of others.
//!
//! There a lock may be contended inside the program's own allocator, or while the loader holds its lock: a number is given
//! without allocating, without a lock and without a call of the loader. What needs those is done once, in [`prepare`].

use core::arch::{asm, global_asm};
use core::ffi::c_void;
use core::sync::atomic::{AtomicIsize, AtomicU32, Ordering::Relaxed};

use crate::threads::{Record, Slot, UNKNOWN, record};
use crate::{generation, glibc_rseq};

pub use crate::generation::Generation;

// Initial-exec storage of sixteen bytes, which Rust cannot ask for: the general model would call `__tls_get_addr`, which costs
// more than an uncontended lock, and may allocate. The thread's owner word, its number, and the state of its draws.
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

/// Reads the thread's own word at `$place`, into a register named as assembly does.
macro_rules! read {
    ($place:literal, $register:literal) => {{
        let value;
        // SAFETY: reads the thread's own storage.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + lockmeter_locks_thread@GOTTPOFF]",
                concat!("mov ", $register, ", fs:[{at} + ", $place, "]"),
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
    ($place:literal, $register:literal, $value:expr) => {
        // SAFETY: writes the thread's own storage.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + lockmeter_locks_thread@GOTTPOFF]",
                concat!("mov fs:[{at} + ", $place, "], ", $register),
                at = out(reg) _,
                value = in(reg) $value,
                options(nostack, preserves_flags)
            )
        }
    };
}

/// Where a thread keeps its owner word, its number and the state of its draws.
pub(crate) mod cells {
    use super::*;

    #[inline(always)]
    pub(crate) fn word() -> u64 {
        read!("0", "{value}")
    }

    pub(crate) fn set_word(word: u64) {
        write!("0", "{value}", word);
    }

    pub(crate) fn number() -> u32 {
        read!("8", "{value:e}")
    }

    pub(crate) fn set_number(number: u32) {
        write!("8", "{value:e}", number);
    }

    #[inline(always)]
    pub(crate) fn draws() -> u32 {
        read!("12", "{value:e}")
    }

    #[inline(always)]
    pub(crate) fn set_draws(draws: u32) {
        write!("12", "{value:e}", draws);
    }
}

/// The thread-specific key whose destructor gives a number back; `u32::MAX` while there is none.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// glibc keeps the values of the first keys inside the thread; later ones it would allocate.
const KEYS_WITHOUT_ALLOCATION: u32 = 32;

/// Of `cpu_id` in the thread's rseq area, from the thread pointer; `isize::MIN` where it is not known.
static CPU_FROM_THREAD: AtomicIsize = AtomicIsize::new(isize::MIN);

/// To be called once, when the library is loaded. Locks that are contended before have waiters without numbers.
pub fn prepare() {
    // Asks for memory, which no wait is to do.
    generation::claim();
    let mut key = 0;
    // SAFETY: writes the key; the destructor lives as long as the library, which is never unloaded.
    let created = unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) };
    if created != 0 || key >= KEYS_WITHOUT_ALLOCATION {
        return;
    }
    /// Of `cpu_id` in `struct rseq`.
    const CPU_ID: isize = 4;
    if let Some(offset) = glibc_rseq::offset() {
        CPU_FROM_THREAD.store(offset + CPU_ID, Relaxed);
    }
    KEY.store(key, Relaxed);
}

/// To be called in a forked child, before anything else runs there.
pub fn after_fork_in_child() {
    Record::forget_threads_of_the_parent(own());
}

/// Whether [`prepare`] was called.
#[cfg(feature = "std")]
pub(crate) fn gives_numbers() -> bool {
    KEY.load(Relaxed) != u32::MAX
}

fn own() -> Option<Slot> {
    Slot::from_number(cells::number())
}

/// The thread ends. Its owner word stays, so that it gets no number again, which nobody would give back.
unsafe extern "C" fn leave(_: *mut c_void) {
    let slot = own();
    cells::set_number(UNKNOWN);
    if let Some(slot) = slot {
        record(slot).give_back();
    }
}

pub(crate) mod registration {
    use super::*;

    #[cold]
    pub(crate) fn register() -> Option<Slot> {
        let key = KEY.load(Relaxed);
        if key == u32::MAX {
            return None;
        }
        let thread: usize;
        // SAFETY: the first word of a thread's control block is its own address.
        unsafe {
            asm!("mov {}, qword ptr fs:[0]", out(reg) thread, options(nostack, preserves_flags, readonly));
        }
        let cpu = match CPU_FROM_THREAD.load(Relaxed) {
            isize::MIN => core::ptr::null_mut(),
            offset => thread.wrapping_add_signed(offset) as *mut u32,
        };
        let slot = Record::claim(cpu)?;
        // SAFETY: the key was created, and is one whose value needs no allocation.
        unsafe { libc::pthread_setspecific(key, (slot.number() as usize) as *const c_void) };
        Some(slot)
    }
}
