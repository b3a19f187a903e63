//! Whether glibc takes a free mutex as we know it, so that an entry may do it in its place.
//!
//! The fields are part of glibc's ABI, for static initialisers in every program have them; what it writes there is not. So it
//! is watched doing it once. Where it does anything else, entries call it for each lock.

use core::ffi::CStr;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, Release},
};

use libc::pthread_mutex_t;
use lockmeter_meter::writer;

use crate::mutex::Layout;
use crate::real::originals;
use crate::swap;

/// Where glibc keeps the id of a thread, from what the fs register points to: in this place since it has had threads.
const THREAD_ID: usize = 0x2d0;

/// [`THREAD_ID`], or 0 where entries must call glibc. Public for entries written in assembly.
// With what else is written when the library is loaded.
#[unsafe(link_section = ".data.lockmeter_start")]
pub(crate) static THREAD_ID_AT: AtomicUsize = AtomicUsize::new(0);

/// Called once, when the library is loaded.
pub(crate) fn look() {
    // Elision marks each mutex when it is first locked.
    let has_elision = variable(c"GLIBC_TUNABLES").is_some_and(|tunables| contains(tunables, b"elision"));
    let is_off = variable(c"LOCKMETER_NO_FAST_PATHS").is_some_and(|text| !text.is_empty());
    let is_swapped = swap::in_place_of("pthread_mutex_lock").is_some();
    let takes_as_we_know = || {
        takes_as_we_know(libc::PTHREAD_MUTEX_INITIALIZER)
            && takes_as_we_know(libc::PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP)
    };
    let knows_thread_id = id_in_descriptor() == writer::thread_id();
    if !has_elision && !is_swapped && !is_off && knows_thread_id && takes_as_we_know() {
        THREAD_ID_AT.store(THREAD_ID, Relaxed);
    }
}

/// Whether it is one that entries take and release themselves: normal or adaptive and nothing else.
#[inline(always)]
pub(crate) fn is_plain(mutex: &Layout) -> bool {
    let kind = mutex.kind.load(Relaxed).cast_signed();
    (kind == libc::PTHREAD_MUTEX_NORMAL || kind == libc::PTHREAD_MUTEX_ADAPTIVE_NP) && THREAD_ID_AT.load(Relaxed) != 0
}

/// Releases a mutex that [`is_plain`] as glibc does it. Must be called by its holder.
#[inline(always)]
pub(crate) fn release_plain(mutex: &Layout) {
    mutex.owner.store(0, Relaxed);
    mutex.users.store(mutex.users.load(Relaxed).wrapping_sub(1), Relaxed);
    if mutex.word.swap(0, Release) > 1 {
        writer::wake_one(&raw const mutex.word);
    }
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name ends with a NUL; nobody changes the environment while libraries are loaded.
    let text = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: the environment's text ends with a NUL.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Finds where glibc keeps the ids of threads, without a system call: a mutex that a thread has taken holds its id, too.
pub(crate) fn find_thread_id() {
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    let mutex = &raw mut mutex;
    // SAFETY: a mutex of this frame, which is free.
    let is_taken = unsafe { originals::pthread_mutex_lock(mutex) } == 0;
    // SAFETY: a valid mutex begins like this.
    let owner = unsafe { &*mutex.cast::<Layout>() }.owner.load(Relaxed);
    // SAFETY: it was just locked, if at all.
    if is_taken && unsafe { originals::pthread_mutex_unlock(mutex) } == 0 && owner != 0 && owner == id_in_descriptor() {
        writer::set_thread_id_at(THREAD_ID);
    }
}

fn id_in_descriptor() -> u32 {
    let there: u32;
    // SAFETY: reads what belongs to the thread's descriptor, which is more than twice as long.
    unsafe {
        core::arch::asm!(
            "mov {there:e}, dword ptr fs:[{at}]",
            at = in(reg) THREAD_ID,
            there = out(reg) there,
            options(nostack, preserves_flags, readonly)
        );
    }
    there
}

fn takes_as_we_know(mut mutex: pthread_mutex_t) -> bool {
    let mutex = &raw mut mutex;
    let fields = || {
        // SAFETY: a valid mutex begins like this.
        let layout = unsafe { &*mutex.cast::<Layout>() };
        layout.fields()
    };
    let free @ [.., kind] = fields();
    let taken = [1, 0, writer::thread_id(), 1, kind];
    let is_free = free == [0, 0, 0, 0, kind];
    // SAFETY: a mutex of this frame, which is free.
    let is_taken = unsafe { originals::pthread_mutex_lock(mutex) } == 0 && fields() == taken;
    // SAFETY: it was just locked.
    let is_free_again = unsafe { originals::pthread_mutex_unlock(mutex) } == 0 && fields() == free;
    is_free && is_taken && is_free_again && releases_as_we_know(mutex, free)
}

/// Whether glibc releases a mutex as we do if a thread waits for it: the word of one that somebody waits for is 2.
fn releases_as_we_know(mutex: *mut pthread_mutex_t, free: [u32; 5]) -> bool {
    const WAITED_FOR: u32 = 2;
    // SAFETY: a mutex of the caller's frame, which is free.
    if unsafe { originals::pthread_mutex_lock(mutex) } != 0 {
        return false;
    }
    // SAFETY: a valid mutex begins like this.
    let layout = unsafe { &*mutex.cast::<Layout>() };
    layout.word.store(WAITED_FOR, Relaxed);
    // SAFETY: it was just locked. Nobody waits in truth: glibc wakes nobody.
    unsafe { originals::pthread_mutex_unlock(mutex) == 0 && layout.fields() == free }
}
