//! The table of the current thread: one word of thread-local storage points to it.

use core::arch::{asm, global_asm};
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    compiler_fence,
};

use super::{names, recent, rows, segment, syscalls, timing, waiters, watched};
use crate::layout::{Lost, Segment, THREADS, Thread};

// Initial-exec storage of eight bytes, which Rust cannot ask for: the general model would call `__tls_get_addr`, which may
// allocate, and a large block would make `pthread_create` fail for small stacks.
global_asm!(
    ".pushsection .tbss.lockmeter_thread,\"awT\",@nobits",
    ".balign 8",
    ".hidden lockmeter_thread",
    ".globl lockmeter_thread",
    ".type lockmeter_thread, @object",
    ".size lockmeter_thread, 8",
    "lockmeter_thread:",
    ".zero 8",
    ".popsection",
);

#[inline]
fn pointer() -> *const Thread {
    let pointer: *const Thread;
    // SAFETY: reads the thread's own word.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) pointer,
            options(nostack, preserves_flags, readonly)
        );
    }
    pointer
}

fn set_pointer(pointer: *const Thread) {
    // SAFETY: writes the thread's own word.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + lockmeter_thread@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) pointer,
            options(nostack, preserves_flags)
        );
    }
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
    let pointer = pointer();
    let thread = if pointer.is_null() {
        claim()?
    } else {
        // SAFETY: tables are never unmapped.
        unsafe { &*pointer }
    };
    if thread.busy.load(Relaxed) != 0 {
        segment::lose(Lost::Interrupted);
        return None;
    }
    thread.busy.store(1, Relaxed);
    compiler_fence(Acquire);
    Some(Mine { thread })
}

/// As [`mine`], but `None` without a word, too, if the thread has no table yet.
#[inline(always)]
pub(super) fn mine_already() -> Option<Mine> {
    let pointer = pointer();
    if pointer.is_null() {
        return None;
    }
    // SAFETY: tables are never unmapped.
    let thread = unsafe { &*pointer };
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
    watched::forget();
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
    recent::forget(thread);
    timing::begin(thread, id);
    set_pointer(thread);
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
