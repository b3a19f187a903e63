//! The session's memory in this process, and how it takes pages of it. No page is touched that the recorder has not reserved.

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

use super::syscalls;
use crate::layout::{
    AWAITED_PAGE, Awaited, CachedStack, Class, Comm, FIRST_PAGE, GROUP, LockEntry, MAGIC, Module, PAGE, PAGES,
    PageKind, Process, RECYCLED, RECYCLED_PAGE, RUN, RUNS_OF_A_PAGE, RUNS_PAGE, Recycled, Releases, Runs, SESSION_PAGE,
    SHARED_LOCKS, SHARED_LOCKS_PAGE, SessionHead, SharedLock, Slot, Stack, Tags, Thread, VERSION, pack_run, unpack_run,
};

// With what else is written when the library is loaded.
#[unsafe(link_section = ".data.lockmeter_start")]
static BASE: AtomicUsize = AtomicUsize::new(0);
/// Pages of which the addresses are this process's; 0: none.
#[unsafe(link_section = ".data.lockmeter_start")]
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// What the recorder's `refills` was, and one more, when there was no page to take.
#[unsafe(link_section = ".data.lockmeter_child")]
static NONE_SINCE: AtomicU32 = AtomicU32::new(0);

/// Addresses that are left to the libraries of a program, which are mapped below this one.
const BELOW_LIBRARIES: usize = 1 << 30;

/// A process may have no more than a part of its addresses used up by this.
const PART_OF_ADDRESSES: u64 = 16;

/// What pages are divided into: atomics alone, so that any bytes are valid and others may write at the same time.
///
/// # Safety
/// It must be that, and a page must hold a whole number of them.
pub(super) unsafe trait InPages {
    /// Threads that begin by the thousand have many of these. They leave the last pages to the others: what a thread finds no page for is
    /// counted with other threads, but a lock without a place is not told from others.
    const IS_OF_THREADS: bool = false;
}
// SAFETY: made of atomics, and of sizes that divide a page; see the tests of the layout.
unsafe impl InPages for Process {}
// SAFETY: as above.
unsafe impl InPages for Thread {
    const IS_OF_THREADS: bool = true;
}
// SAFETY: as above.
unsafe impl InPages for Slot {
    const IS_OF_THREADS: bool = true;
}
// SAFETY: as above.
unsafe impl InPages for CachedStack {
    const IS_OF_THREADS: bool = true;
}
// SAFETY: as above.
unsafe impl InPages for Tags {}
// SAFETY: as above.
unsafe impl InPages for LockEntry {}
// SAFETY: as above.
unsafe impl InPages for Releases {}
// SAFETY: as above.
unsafe impl InPages for Class {}
// SAFETY: as above.
unsafe impl InPages for Stack {}
// SAFETY: as above.
unsafe impl InPages for Module {}
// SAFETY: as above.
unsafe impl InPages for Comm {}
// SAFETY: as above.
unsafe impl InPages for AtomicU32 {}

/// Maps the session's memory, whose file has this path (ending with a NUL), once. Says whether it is there.
pub(super) fn map(path: &[u8]) -> bool {
    let Some(descriptor) = syscalls::open(path, libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0) else {
        return false;
    };
    let limit = syscalls::own_limit(libc::RLIMIT_AS) / PART_OF_ADDRESSES / PAGE as u64;
    let pages = usize::try_from(limit).unwrap_or(PAGES).clamp(GROUP, PAGES);
    let base = syscalls::map(descriptor, pages * PAGE, wanted_base(pages * PAGE));
    syscalls::close(descriptor);
    let Some(base) = base else { return false };
    // SAFETY: the recorder has reserved the first group before it tells anybody of the file.
    let head = unsafe { &*((base + SESSION_PAGE * PAGE) as *const SessionHead) };
    if head.magic.load(Acquire) != MAGIC || head.version.load(Relaxed) != VERSION {
        return false;
    }
    BASE.store(base, Relaxed);
    MAPPED.store(pages, Release);
    true
}

/// The program is about to have no more addresses than this many bytes: gives those back that it then needs more. What is used stays.
pub(super) fn leave_addresses_to_program(limit: u64) {
    /// One at a time: a mapping is given back once.
    static IS_LEAVING: AtomicBool = AtomicBool::new(false);
    let (Some(head), mapped) = (session(), MAPPED.load(Relaxed)) else { return };
    // A program that counts what it has mapped has counted this, too.
    if limit > (mapped * PAGE) as u64 || IS_LEAVING.swap(true, Acquire) {
        return;
    }
    let wanted = usize::try_from(limit / PART_OF_ADDRESSES / PAGE as u64).unwrap_or(PAGES);
    let wanted = wanted.clamp(GROUP, mapped.max(GROUP)) / RUN * RUN;
    // Threads that have seen the old number take no page beyond what is taken by now.
    MAPPED.store(wanted, SeqCst);
    fence(SeqCst);
    let used = (head.taken.load(SeqCst) as usize).saturating_add(RUN).next_multiple_of(RUN);
    let kept = wanted.max(used);
    if kept < mapped {
        MAPPED.store(kept, SeqCst);
        // SAFETY: no page from there on was taken by this process, nor will be.
        unsafe { syscalls::unmap(BASE.load(Relaxed) + kept * PAGE, (mapped - kept) * PAGE) };
    } else {
        MAPPED.store(mapped, SeqCst);
    }
    IS_LEAVING.store(false, Release);
}

/// Where this many bytes are best mapped, if nothing else is there: a group has one page table then, and a run of pages is mapped together.
fn wanted_base(bytes: usize) -> usize {
    let own = (&raw const BASE).addr();
    own.saturating_sub(BELOW_LIBRARIES + bytes) / (GROUP * PAGE) * (GROUP * PAGE)
}

/// The session's head; `None` where there is no session.
pub(super) fn session() -> Option<&'static SessionHead> {
    special(SESSION_PAGE)
}

/// Programs that were executed and have not begun so far; `None` where there is no session.
pub(super) fn awaited() -> Option<&'static Awaited> {
    special(AWAITED_PAGE)
}

/// The lock that processes share with this number; `None` of 0 and of what is no such number.
#[inline]
pub(super) fn shared_lock(number: u16) -> Option<&'static SharedLock> {
    const OF_A_PAGE: usize = PAGE / size_of::<SharedLock>();
    let place = usize::from(number).checked_sub(1).filter(|place| *place < SHARED_LOCKS)?;
    let page: &[SharedLock; OF_A_PAGE] = special(SHARED_LOCKS_PAGE + place / OF_A_PAGE)?;
    page.get(place % OF_A_PAGE)
}

fn special<T>(page: usize) -> Option<&'static T> {
    let is_there = page < MAPPED.load(Acquire);
    // SAFETY: mapped, never unmapped, and reserved before a process takes a page of that group; all such pages are atomics.
    is_there.then(|| unsafe { &*((BASE.load(Relaxed) + page * PAGE) as *const T) })
}

/// The entry at this place of a page; `None` if that is none that can be taken. The number may be any: others write to the memory
/// that it comes from.
#[inline(always)]
pub(super) fn entry_of_page<T: InPages>(page: u32, place: usize) -> Option<&'static T> {
    let is_there = (FIRST_PAGE..MAPPED.load(Relaxed)).contains(&(page as usize)) && place < PAGE / size_of::<T>();
    let address = BASE.load(Relaxed) + page as usize * PAGE + place * size_of::<T>();
    // SAFETY: in the mapping, which stays; atomics of any value. Its number came from `take`, so that memory is behind it.
    is_there.then(|| unsafe { &*(address as *const T) })
}

/// The number of the page that this lies on.
pub(super) fn number_of<T: InPages>(entry: &'static T) -> u32 {
    ((core::ptr::from_ref(entry) as usize - BASE.load(Relaxed)) / PAGE) as u32
}

/// The entry at this place of a table, given by its pages; `None` if that page was not needed so far.
#[inline(always)]
pub(super) fn entry<T: InPages>(table: &[AtomicU32], place: usize) -> Option<&'static T> {
    let entries = PAGE / size_of::<T>();
    entry_of_page(table.get(place / entries)?.load(Acquire), place % entries)
}

/// As [`entry`]; takes the page if it was not needed so far. `None` if there is none to take.
#[inline]
pub(super) fn entry_or_take<T: InPages>(process: &Process, table: &[AtomicU32], place: usize) -> Option<&'static T> {
    entry(table, place).or_else(|| {
        take_for(process, table.get(place / (PAGE / size_of::<T>()))?, T::IS_OF_THREADS)?;
        entry(table, place)
    })
}

/// Takes all pages of a table, as far as there are any.
pub(super) fn take_all(process: &Process, table: &[AtomicU32]) {
    for page in table {
        take_for(process, page, false);
    }
}

#[cold]
#[inline(never)]
fn take_for(process: &Process, page: &AtomicU32, is_of_threads: bool) -> Option<()> {
    let taken = take(process, PageKind::Table, is_of_threads)?;
    // If another thread was first, or the signal handler of this one, what was taken stays unused.
    let _ = page.compare_exchange(0, taken, AcqRel, Relaxed);
    Some(())
}

/// Takes a page of zeros for this process; `None` if there is none now.
pub(super) fn take(process: &Process, kind: PageKind, is_of_threads: bool) -> Option<u32> {
    let head = session()?;
    let takes_new = !is_of_threads || !is_nearly_used_up(head);
    if !takes_new && is_none_recycled(head) {
        return None;
    }
    let number = process.number.load(Relaxed);
    // Others write to that memory, too.
    let is_reserved = |page: &u32| *page < head.reserved.load(Acquire);
    let page = next_of_run(&process.left).filter(is_reserved).or_else(|| {
        let (page, left) = take_run(head, number, takes_new)?;
        // If another thread has taken one meanwhile, the rest of that stays unused.
        process.left.store(left, Release);
        Some(page)
    })?;
    change_kind(page, PageKind::Table, kind);
    Some(page)
}

/// Takes a page for the head of the process with this number, and what that is to have as [`Process::left`].
pub(super) fn take_head(number: u32) -> Option<(u32, u64)> {
    let (page, left) = take_run(session()?, number, true)?;
    change_kind(page, PageKind::Table, PageKind::NewProcess);
    Some((page, left))
}

/// The next page of the run that was taken last, if one is left. In memory that all see: a child of a fork that called no handlers takes
/// its parent's pages as well.
fn next_of_run(run: &AtomicU64) -> Option<u32> {
    let mut left = run.load(Relaxed);
    loop {
        let (page, end) = (left as u32, (left >> 32) as u32);
        if page >= end {
            return None;
        }
        match run.compare_exchange_weak(left, left + 1, AcqRel, Relaxed) {
            Ok(_) => return Some(page),
            Err(now) => left = now,
        }
    }
}

/// Takes a run: its first page, and what is left of it, as [`Process::left`].
#[cold]
fn take_run(head: &SessionHead, process: u32, takes_new: bool) -> Option<(u32, u64)> {
    // First what ended processes had: else a session would grow with each process that it has seen.
    let first = take_recycled(head, process).or_else(|| if takes_new { take_new(head) } else { None })?;
    // A read has the kernel map those beside it as well; a write would not.
    // SAFETY: a page that was just taken.
    unsafe { core::ptr::read_volatile((BASE.load(Relaxed) + first as usize * PAGE) as *const u64) };
    run_of(first)?.store(pack_run(process), Release);
    Some((first, u64::from(first + 1) | u64::from(first + RUN as u32) << 32))
}

fn is_nearly_used_up(head: &SessionHead) -> bool {
    head.taken.load(Relaxed).saturating_add(LEFT_FOR_TABLES) >= head.reserved.load(Acquire)
}

/// Pages that are left to the tables of processes by those of threads.
const LEFT_FOR_TABLES: u32 = 128;

/// Calls this for each page that this process has for such a purpose: what fills one.
pub(super) fn each_of<T: InPages + 'static>(process: u32, kind: PageKind, mut what: impl FnMut(&'static T)) {
    let Some(head) = session() else { return };
    for first in (FIRST_PAGE..(head.taken.load(Acquire) as usize).min(MAPPED.load(Relaxed))).step_by(RUN) {
        let Some((owner, kinds)) = run_of(first as u32).and_then(|run| unpack_run(run.load(Acquire))) else { continue };
        let pages = (first..).zip(kinds).filter(|(_, of_page)| owner == process && *of_page == kind);
        pages.filter_map(|(page, _)| entry_of_page(page as u32, 0)).for_each(&mut what);
    }
}

fn take_new(head: &SessionHead) -> Option<u32> {
    let mut next = head.taken.load(Relaxed);
    loop {
        let end = next.checked_add(RUN as u32)?;
        if end > head.reserved.load(Acquire) || !is_run(next) {
            return None;
        }
        match head.taken.compare_exchange_weak(next, end, AcqRel, Relaxed) {
            Ok(_) => return Some(next),
            Err(now) => next = now,
        }
    }
}

/// Whether a run that this process can use begins at this page.
fn is_run(page: u32) -> bool {
    let page = page as usize;
    page.is_multiple_of(RUN) && page >= FIRST_PAGE && page + RUN <= MAPPED.load(Relaxed)
}

/// Whether it is known that no run of an ended process is left.
fn is_none_recycled(head: &SessionHead) -> bool {
    NONE_SINCE.load(Relaxed) == head.refills.load(Acquire).wrapping_add(1)
}

/// How far from each other two processes with numbers that follow each other begin to look: a prime number.
const PLACES_BETWEEN: usize = 389;

fn take_recycled(head: &SessionHead, process: u32) -> Option<u32> {
    let refills = head.refills.load(Acquire).wrapping_add(1);
    if head.offered.load(Relaxed) == 0 || NONE_SINCE.load(Relaxed) == refills {
        return None;
    }
    let recycled: &Recycled = special(RECYCLED_PAGE)?;
    // Each process looks at other places first: many take some at the same time, those before this one have emptied the first places.
    let (last, first) = recycled.runs.split_at(process as usize * PLACES_BETWEEN % RECYCLED);
    let taken = first.iter().chain(last).find_map(|place| {
        let page = place.load(Acquire);
        (is_run(page) && place.compare_exchange(page, 0, AcqRel, Relaxed).is_ok()).then_some(page)
    });
    if taken.is_none() {
        NONE_SINCE.store(refills, Relaxed);
    }
    taken
}

/// Says what a page is for, when that changes. Others may do so of other pages of its run at the same time.
pub(super) fn change_kind(page: u32, from: PageKind, to: PageKind) {
    let changed = from.of_page(page) ^ to.of_page(page);
    if changed != 0
        && let Some(run) = run_of(page)
    {
        run.fetch_xor(changed, Release);
    }
}

/// What says whose the run of this page is.
fn run_of(page: u32) -> Option<&'static AtomicU64> {
    let run = page as usize / RUN;
    special::<Runs>(RUNS_PAGE + run / RUNS_OF_A_PAGE)?.runs.get(run % RUNS_OF_A_PAGE)
}
