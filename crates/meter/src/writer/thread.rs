//! The table of the current thread: a word of thread-local storage points to it, and two say what entries written in assembly
//! ask of it.

use core::arch::{asm, global_asm};
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    compiler_fence,
};

use super::{names, near, rows, segment, syscalls, timing, waiters};
use crate::layout::{Lost, Segment, THREADS, Thread};

// Initial-exec storage of three words, which Rust cannot ask for: the general model would call `__tls_get_addr`, which may
// allocate, and a large block would make `pthread_create` fail for small stacks.
global_asm!(
    ".pushsection .tbss.lockmeter_thread,\"awT\",@nobits",
    ".balign 32",
    ".hidden lockmeter_thread",
    ".globl lockmeter_thread",
    ".type lockmeter_thread, @object",
    ".size lockmeter_thread, 24",
    "lockmeter_thread:",
    ".zero 24",
    ".popsection",
);

/// The word that points to the table.
const TABLE: usize = 0;
/// The word with one bit for each group of locks: set while the next hold of that group is not to be timed.
pub const QUIET: usize = 8;
/// The word that points to the table, too, while the thread has no hold that is timed; 0 else.
pub const UNTIMED_TABLE: usize = 16;

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

#[inline(always)]
fn pointer() -> *const Thread {
    word::<TABLE>() as *const Thread
}

fn set_pointer(pointer: *const Thread) {
    set_word::<TABLE>(pointer as u64);
    set_word::<QUIET>(0);
    set_word::<UNTIMED_TABLE>(pointer as u64);
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

/// The thread holds so many locks with their holds timed.
#[inline(always)]
pub(super) fn set_held(thread: &'static Thread, held: usize) {
    thread.held_count.store(held as u32, Relaxed);
    set_word::<UNTIMED_TABLE>(if held == 0 { ptr::from_ref(thread) as u64 } else { 0 });
}

/// This thread's table, if it has one, to be read, or to be counted to as signal handlers may do in between.
#[inline(always)]
pub(super) fn table() -> Option<&'static Thread> {
    // SAFETY: null, or a table; those are never unmapped.
    unsafe { pointer().as_ref() }
}

/// A thread's table while this thread changes it.
pub(super) struct Mine {
    pub(super) thread: &'static Thread,
}

impl Mine {
    /// Ends the change. There is no destructor: a cancelled thread unwinds through callers that must have none.
    #[inline]
    pub(super) fn done(self) {
        compiler_fence(Release);
        self.thread.busy.store(0, Relaxed);
    }
}

/// This thread's table, to be changed; `None` if there is no room, or if this is a signal handler that interrupted a change.
#[inline]
pub(super) fn mine() -> Option<Mine> {
    let mine = mine_unless_interrupting();
    if mine.is_none() && !pointer().is_null() {
        segment::lose(Lost::Interrupted);
    }
    mine
}

/// As [`mine`], for a signal handler that loses nothing if it interrupted a change.
#[inline]
pub(super) fn mine_unless_interrupting() -> Option<Mine> {
    // SAFETY: null, or a table; those are never unmapped.
    let thread = match unsafe { pointer().as_ref() } {
        Some(thread) => thread,
        None => claim()?,
    };
    mine_if_idle(thread)
}

/// This table of the thread's own, to be changed; `None` if this is a signal handler that interrupted a change.
#[inline(always)]
pub(super) fn mine_if_idle(thread: &'static Thread) -> Option<Mine> {
    if thread.busy.load(Relaxed) != 0 {
        return None;
    }
    thread.busy.store(1, Relaxed);
    compiler_fence(Acquire);
    Some(Mine { thread })
}

/// After a fork: the parent's table is not ours.
pub(super) fn forget() {
    set_pointer(ptr::null());
    waiters::forget();
    rows::forget();
}

/// The thread-specific key whose destructor gives the table back; `u32::MAX` while there is none.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// glibc keeps the values of the first keys inside the thread; later ones it would allocate.
const KEYS_WITHOUT_ALLOCATION: u32 = 32;

/// Asks to be told of the ends of threads.
pub(super) fn watch_ends() {
    let mut key = 0;
    // SAFETY: writes the key; the destructor lives as long as the library, which is never unloaded.
    let created = unsafe { libc::pthread_key_create(&raw mut key, Some(give_back)) };
    if created == 0 && key < KEYS_WITHOUT_ALLOCATION {
        KEY.store(key, Relaxed);
    }
}

extern "C" fn give_back(table: *mut libc::c_void) {
    // SAFETY: the value is the table that `claim` set.
    let thread = unsafe { &*table.cast_const().cast::<Thread>() };
    set_pointer(ptr::null());
    let waited_for = thread.waiting[0].swap(0, Relaxed);
    if waited_for != 0 {
        // Cancelled in its wait.
        waiters::gone(waited_for as usize);
    }
    thread.held_count.store(0, Relaxed);
    thread.busy.store(0, Relaxed);
    thread.owner.store(0, Release);
}

#[cold]
#[inline(never)]
fn claim() -> Option<&'static Thread> {
    let segment = segment::current_or_new()?;
    let id = syscalls::thread_id();
    let Some(thread) = free_table(segment, id).or_else(|| new_table(segment, id)).or_else(|| orphan(segment, id))
    else {
        segment::lose(Lost::Threads);
        return None;
    };
    thread.held_count.store(0, Relaxed);
    thread.waiting[0].store(0, Relaxed);
    thread.busy.store(0, Relaxed);
    thread.comm.store(names::comm(segment), Relaxed);
    near::forget(thread);
    set_pointer(thread);
    timing::begin(thread, id);
    let key = KEY.load(Relaxed);
    if key != u32::MAX {
        // SAFETY: the key was created, and is one whose value needs no allocation.
        unsafe { libc::pthread_setspecific(key, ptr::from_ref(thread).cast()) };
    }
    Some(thread)
}

/// A table whose thread ended.
fn free_table(segment: &'static Segment, id: u32) -> Option<&'static Thread> {
    let used = (segment.header.threads.load(Acquire) as usize).min(THREADS);
    segment.threads.iter().take(used).find(|thread| {
        thread.owner.load(Relaxed) == 0
            && thread.place.load(Acquire) != 0
            && thread.owner.compare_exchange(0, id, AcqRel, Relaxed).is_ok()
    })
}

fn new_table(segment: &'static Segment, id: u32) -> Option<&'static Thread> {
    if segment.header.threads.load(Relaxed) as usize >= THREADS {
        return None;
    }
    let place = segment.header.threads.fetch_add(1, AcqRel);
    let thread = segment.threads.get(place as usize)?;
    if !syscalls::populate(ptr::from_ref(thread) as usize, size_of::<Thread>()) {
        return None;
    }
    thread.owner.store(id, Relaxed);
    thread.place.store(place + 1, Release);
    Some(thread)
}

/// A table whose thread ended without telling (by the system call, or after its last destructor).
fn orphan(segment: &'static Segment, id: u32) -> Option<&'static Thread> {
    segment.threads.iter().find(|thread| {
        let owner = thread.owner.load(Relaxed);
        thread.place.load(Acquire) != 0
            && (owner == 0 || !syscalls::thread_lives(owner))
            && thread.owner.compare_exchange(owner, id, AcqRel, Relaxed).is_ok()
    })
}
