//! The words of thread-local storage: which table the current thread has, what entries written in assembly ask of it, and what it is
//! called. And the thread's id, where glibc keeps it.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::syscalls;
use crate::layout::{HELD, Thread};

// Initial-exec storage of eight words, which Rust cannot ask for: the general model would call `__tls_get_addr`, which may
// allocate, and a large block would make `pthread_create` fail for small stacks.
global_asm!(
    ".pushsection .tbss.lockmeter_thread,\"awT\",@nobits",
    ".balign 32",
    ".hidden lockmeter_thread",
    ".globl lockmeter_thread",
    ".type lockmeter_thread, @object",
    ".size lockmeter_thread, 64",
    "lockmeter_thread:",
    ".zero 64",
    ".popsection",
);

/// The word that points to the table.
pub const TABLE: usize = 0;
/// The word with one bit for each group of locks: set while the next hold of that group is not to be timed.
pub const QUIET: usize = 8;
/// The word with the place of the thread's name, from 1; 0: that of its process. Above it, whether the thread must not read the clock,
/// whether somebody is called when it ends, and how many locks it holds as a forked child that its parent's thread acquired.
const COMM: usize = 16;
const HAS_NO_CLOCK: u64 = 1 << 32;
const IS_WATCHED: u64 = 1 << 33;
const INHERITED_SHIFT: u32 = 34;
const INHERITED: u64 = 0x3f << INHERITED_SHIFT;
const FLAGS: u64 = HAS_NO_CLOCK | IS_WATCHED | INHERITED;
const _: () = assert!(HELD as u64 <= INHERITED >> INHERITED_SHIFT);

/// The words of the semaphores that the thread has taken and not posted since, the newest first; 0: none.
const TAKEN: usize = 24;
/// Of more that are taken at a time, the oldest are forgotten.
const MOST_TAKEN: usize = 5;

fn taken() -> &'static [AtomicU64; MOST_TAKEN] {
    let at: usize;
    // SAFETY: reads where the thread's own words lie; the first word of its control block is its own address.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) at,
            options(nostack, readonly)
        );
        &*((at + TAKEN) as *const [AtomicU64; MOST_TAKEN])
    }
}

/// The thread has taken a semaphore.
pub(super) fn take_semaphore(semaphore: usize) {
    let taken = taken();
    let known = taken.iter().position(|known| known.load(Relaxed) == semaphore as u64);
    for at in (1..=known.unwrap_or(MOST_TAKEN - 1)).rev() {
        taken[at].store(taken[at - 1].load(Relaxed), Relaxed);
    }
    taken[0].store(semaphore as u64, Relaxed);
}

/// The thread posts a semaphore, or was handed work by it. Whether it had taken it.
pub(super) fn give_semaphore(semaphore: usize) -> bool {
    let taken = taken();
    let Some(known) = taken.iter().position(|known| known.load(Relaxed) == semaphore as u64) else { return false };
    for at in known..MOST_TAKEN {
        let next = taken.get(at + 1).map_or(0, |next| next.load(Relaxed));
        taken[at].store(next, Relaxed);
    }
    true
}

#[inline(always)]
fn word<const AT: usize>() -> u64 {
    let word: u64;
    // SAFETY: reads a word of the thread's own.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0} + {at}]",
            out(reg) word,
            at = const AT,
            options(nostack, preserves_flags, readonly)
        );
    }
    word
}

#[inline(always)]
fn set_word<const AT: usize>(word: u64) {
    // SAFETY: writes a word of the thread's own.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
            "mov qword ptr fs:[{0} + {at}], {1}",
            out(reg) _,
            in(reg) word,
            at = const AT,
            options(nostack, preserves_flags)
        );
    }
}

/// The current thread's table, or null.
#[inline(always)]
pub(super) fn table() -> *const Thread {
    word::<TABLE>() as *const Thread
}

pub(super) fn set_table(table: *const Thread) {
    set_word::<TABLE>(table as u64);
    set_word::<QUIET>(0);
}

/// Whether the next hold of this group of locks is not to be timed.
#[inline(always)]
pub(super) fn is_quiet(group: usize) -> bool {
    word::<QUIET>() >> (group % 64) & 1 != 0
}

/// Has the next hold of this group timed, or not. A signal handler may do so in between for another group, whose bit is then
/// as before: that hold is timed or not by mistake, and counted all the same.
#[inline(always)]
pub(super) fn set_quiet(group: usize, is_quiet: bool) {
    let bit = 1 << (group % 64);
    let word = word::<QUIET>();
    set_word::<QUIET>(if is_quiet { word | bit } else { word & !bit });
}

/// The place of the current thread's name, from 1.
pub(super) fn comm() -> u32 {
    (word::<COMM>() as u32).max(1)
}

/// `place` 0: that of its process.
pub(super) fn set_comm(place: u32) {
    set_word::<COMM>(word::<COMM>() & FLAGS | u64::from(place));
}

/// Whether reading the clock would end this thread.
#[inline(always)]
pub(super) fn has_no_clock() -> bool {
    word::<COMM>() & HAS_NO_CLOCK != 0
}

/// Whether the end of this thread is watched.
pub(super) fn is_watched() -> bool {
    word::<COMM>() & IS_WATCHED != 0
}

pub(super) fn set_watched(so: bool) {
    let word = word::<COMM>() & !IS_WATCHED;
    set_word::<COMM>(if so { word | IS_WATCHED } else { word });
}

/// How many locks this thread holds that it did not acquire in this process.
pub(super) fn inherited_holds() -> u64 {
    (word::<COMM>() & INHERITED) >> INHERITED_SHIFT
}

pub(super) fn set_inherited_holds(holds: u64) {
    let word = word::<COMM>();
    let changed = word & !INHERITED | (holds << INHERITED_SHIFT).min(INHERITED);
    // What a forked child does not write to need not be copied.
    if changed != word {
        set_word::<COMM>(changed);
    }
}

/// Reading the clock ends this thread from now on, or, if not `so`, no longer: no hold of any group is timed.
pub(super) fn set_no_clock(so: bool) {
    let comm = word::<COMM>() & !HAS_NO_CLOCK;
    set_word::<COMM>(if so { comm | HAS_NO_CLOCK } else { comm });
    set_word::<QUIET>(if so { u64::MAX } else { 0 });
}

/// As [`set_comm`], of the living thread that the fs register of points there; and that thread's table, if it has one.
///
/// # Safety
/// The thread lives, and goes on living meanwhile.
pub(super) unsafe fn set_comm_of(descriptor: usize, place: u32) -> Option<&'static Thread> {
    let offset: usize;
    // SAFETY: reads where the words are, which is the same for all threads.
    unsafe {
        asm!("mov {0}, qword ptr [rip + lockmeter_thread@GOTTPOFF]", out(reg) offset, options(nostack, preserves_flags, readonly))
    };
    let word = |at: usize| (descriptor.wrapping_add(offset) + at) as *const AtomicU64;
    // SAFETY: words of a thread that lives; it may read and write them at the same time.
    unsafe {
        let comm = &*word(COMM);
        comm.store(comm.load(Relaxed) & FLAGS | u64::from(place), Relaxed);
        ((*word(TABLE)).load(Relaxed) as *const Thread).as_ref()
    }
}

/// Where glibc keeps the id of a thread, from what the fs register points to; 0 while that is not known.
// With what else is written when the library is loaded.
#[unsafe(link_section = ".data.lockmeter_start")]
static THREAD_ID_AT: AtomicUsize = AtomicUsize::new(0);

/// To be called by one that has found it out.
pub(super) fn set_thread_id_at(offset: usize) {
    THREAD_ID_AT.store(offset, Relaxed);
}

/// This thread's id. A system call only where glibc keeps it in another place than any that is known.
#[inline]
pub(super) fn thread_id() -> u32 {
    let at = THREAD_ID_AT.load(Relaxed);
    if at == 0 {
        return syscalls::thread_id();
    }
    let id: u32;
    // SAFETY: reads what belongs to the thread's descriptor, which is longer, as who set the offset has made sure of.
    unsafe {
        asm!("mov {0:e}, dword ptr fs:[{1}]", out(reg) id, in(reg) at, options(nostack, preserves_flags, readonly))
    };
    id
}
