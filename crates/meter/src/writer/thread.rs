//! The table of the current thread.

use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    compiler_fence,
};

use super::{holds, pages, release_cache, segment, stack_cache, timing, tls};
use crate::layout::{PageKind, Process, Thread, thread_id_slot};

/// This thread's table, if it has one, to be read, or to be counted to as signal handlers may do in between.
#[inline(always)]
pub(super) fn table() -> Option<&'static Thread> {
    // SAFETY: null, or a table; those are never unmapped.
    unsafe { tls::table().as_ref() }
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

/// This thread's table, to be changed. `None` if there is no page for one, or if it is being changed: this is a signal handler that
/// interrupted a change, or a task by `clone(CLONE_VM)` that has the thread-local storage of another, which changes it. What cannot be
/// counted there is counted with others: see [`counts_with_others`].
#[inline]
pub(super) fn mine() -> Option<Mine> {
    let thread = match table() {
        Some(thread) => thread,
        None => take_table()?,
    };
    mine_if_idle(thread)
}

/// Whether what the current thread sees, for which [`mine`] gave nothing, goes to the samples that all threads share.
pub(super) fn counts_with_others() -> bool {
    table().is_some() || is_without_room()
}

/// As [`mine`], of a table of the thread's own.
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
    tls::set_table(ptr::null());
}

/// The current thread is called by this place's name from now on.
pub(super) fn renamed(comm: u32) {
    tls::set_comm(comm);
    let Some(mine) = table().and_then(mine_if_idle) else { return };
    let comm = comm as u16;
    if mine.thread.comm.swap(comm, Relaxed) != comm {
        release_cache::forget(mine.thread);
    }
    mine.done();
}

/// The living thread with this descriptor is called by this place's name from now on. What it counts at this moment may go to its old
/// one.
///
/// # Safety
/// It goes on living meanwhile.
pub(super) unsafe fn other_renamed(descriptor: usize, comm: u32) {
    // SAFETY: the caller's obligation.
    if let Some(table) = unsafe { tls::set_comm_of(descriptor, comm) } {
        table.comm.store(comm as u16, Relaxed);
        release_cache::forget(table);
    }
}

/// Whether the current thread is, from now on, one that reading the clock would end. What it acquires and releases is counted, and
/// nothing is timed.
pub(super) fn stop_clock(so: bool) {
    // Now, for a table that is claimed begins to time.
    if let Some(mine) = mine() {
        let never = if so { i32::MAX.cast_unsigned() } else { 0 };
        mine.thread.until_timed.iter().for_each(|until| until.store(never, Relaxed));
        mine.thread.held_count.store(0, Relaxed);
        mine.done();
    }
    tls::set_no_clock(so);
}

/// Some thread of this process found no page for a table.
#[unsafe(link_section = ".data.lockmeter_inherited")]
static IS_WITHOUT_ROOM: AtomicBool = AtomicBool::new(false);

/// Whether the current thread has no table because there was no page for one, as far as is known.
pub(super) fn is_without_room() -> bool {
    table().is_none() && IS_WITHOUT_ROOM.load(Relaxed)
}

/// The thread-specific key whose destructor gives the table back; `u32::MAX` while there is none.
#[unsafe(link_section = ".data.lockmeter_inherited")]
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// glibc keeps the values of the first keys inside the thread; later ones it would allocate.
const KEYS_WITHOUT_ALLOCATION: u32 = 32;

/// Asks for a call at the end of each thread.
pub(super) fn watch_ends() {
    let mut key = 0;
    // SAFETY: writes the key; the destructor lives as long as the library, which is never unloaded.
    let created = unsafe { libc::pthread_key_create(&raw mut key, Some(give_back)) };
    if created == 0 && key < KEYS_WITHOUT_ALLOCATION {
        KEY.store(key, Relaxed);
        // Also in the children that this thread forks, for which it would cost a page fault.
        watch_own_end();
    }
}

/// Asks for a call at the end of the current thread, once.
fn watch_own_end() {
    let key = KEY.load(Relaxed);
    if key != u32::MAX && !tls::is_watched() {
        // SAFETY: the key was created, and is one whose value needs no allocation; the value is only to be another than null.
        unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
        tls::set_watched(true);
    }
}

extern "C" fn give_back(_: *mut libc::c_void) {
    tls::set_watched(false);
    let Some(thread) = table() else { return };
    // A child of a fork that called no handlers ends a table that is its parent's.
    if thread.owner.load(Relaxed) != tls::thread_id() {
        return;
    }
    holds::end_with_owner(thread);
    tls::set_table(ptr::null());
    let waited_for = thread.waiting[0].swap(0, Relaxed);
    if waited_for != 0 {
        // Cancelled in its wait.
        super::waiters::gone(waited_for as usize);
    }
    thread.held_count.store(0, Relaxed);
    thread.busy.store(0, Relaxed);
    if let Some(segment) = segment::current() {
        remove_id(segment, thread);
        thread.owner.store(0, Release);
        push_free(segment, thread);
    }
}

#[cold]
#[inline(never)]
fn take_table() -> Option<&'static Thread> {
    let segment = segment::current_or_new()?;
    let id = tls::thread_id();
    let Some(thread) = pop_free(segment).or_else(|| new_table(segment)) else {
        IS_WITHOUT_ROOM.store(true, Relaxed);
        return None;
    };
    thread.held_count.store(0, Relaxed);
    thread.waiting[0].store(0, Relaxed);
    thread.busy.store(0, Relaxed);
    for word in thread.past_wait.iter().chain(&thread.timed_out) {
        word.store(0, Relaxed);
    }
    thread.last_of_past_wait.store(0, Relaxed);
    thread.comm.store(tls::comm() as u16, Relaxed);
    release_cache::forget(thread);
    stack_cache::forget(thread);
    thread.owner.store(id, Release);
    add_id(segment, thread, id);
    tls::set_table(thread);
    timing::begin(thread, id);
    watch_own_end();
    Some(thread)
}

fn new_table(segment: &'static Process) -> Option<&'static Thread> {
    pages::entry_of_page(pages::take(segment, PageKind::Thread, true)?, 0)
}

/// The list's number changes with each table that comes or goes: a table that went and came back in between is noticed.
const CHANGE: u64 = 1 << 32;

fn push_free(segment: &'static Process, thread: &'static Thread) {
    let page = pages::number_of(thread);
    let mut list = segment.free_threads.load(Relaxed);
    loop {
        thread.next_free.store(list as u32, Relaxed);
        let after = (list & !(CHANGE - 1)).wrapping_add(CHANGE) | u64::from(page);
        match segment.free_threads.compare_exchange_weak(list, after, AcqRel, Relaxed) {
            Ok(_) => return,
            Err(now) => list = now,
        }
    }
}

fn pop_free(segment: &'static Process) -> Option<&'static Thread> {
    let mut list = segment.free_threads.load(Acquire);
    loop {
        let thread = pages::entry_of_page::<Thread>(list as u32, 0)?;
        let next = thread.next_free.load(Relaxed);
        let after = (list & !(CHANGE - 1)).wrapping_add(CHANGE) | u64::from(next);
        match segment.free_threads.compare_exchange_weak(list, after, AcqRel, Acquire) {
            Ok(_) => return Some(thread),
            Err(now) => list = now,
        }
    }
}

/// How far from its own place a thread is looked for in the index.
const ID_PROBES: usize = 8;

fn id_slots(segment: &'static Process, id: u32) -> impl Iterator<Item = &'static AtomicU32> {
    let (table, first) = thread_id_slot(id);
    let page = segment.thread_ids[table].load(Acquire);
    (0..ID_PROBES)
        .filter_map(move |probe| pages::entry_of_page::<AtomicU32>(page, (first + probe) % crate::layout::THREAD_IDS))
}

/// A thread that finds no place is not found by its id: what waits for it does not know who that is.
fn add_id(segment: &'static Process, thread: &'static Thread, id: u32) {
    let (table, first) = thread_id_slot(id);
    let place = table * crate::layout::THREAD_IDS + first;
    pages::entry_or_take::<AtomicU32>(segment, &segment.thread_ids, place);
    let page = pages::number_of(thread);
    // Some thread may have ended without a call: its place serves again.
    let is_usable = |there: u32| {
        let table = pages::entry_of_page::<Thread>(there, 0);
        table.is_none_or(|table| table.owner.load(Relaxed) == 0 || table.owner.load(Relaxed) == id)
    };
    let mut slots = id_slots(segment, id).map(|place| (place, place.load(Relaxed)));
    let _ =
        slots.find(|(place, there)| is_usable(*there) && place.compare_exchange(*there, page, AcqRel, Relaxed).is_ok());
}

fn remove_id(segment: &'static Process, thread: &'static Thread) {
    let page = pages::number_of(thread);
    for place in id_slots(segment, thread.owner.load(Relaxed)) {
        let _ = place.compare_exchange(page, 0, AcqRel, Relaxed);
    }
}

/// The table of the thread with this id.
pub(super) fn of_id(segment: &'static Process, id: u32) -> Option<&'static Thread> {
    let tables = id_slots(segment, id).filter_map(|place| pages::entry_of_page::<Thread>(place.load(Acquire), 0));
    tables.into_iter().find(|table| table.owner.load(Relaxed) == id)
}
