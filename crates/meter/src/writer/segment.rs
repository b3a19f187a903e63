//! This process's segment: begun when the library is loaded, or in a forked child with its first event.

use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

use super::{awaited, clock, names, pages, syscalls, ticks, tls};
use crate::layout::{LOSSES, Lost, OFF, PageKind, Process, STOPS, SWAPS, Session, Stop, Swap, Unmetered};

/// What a [`Process`] begins with, up to where its tables are.
macro_rules! stand_in {
    ($($table:ident),*) => {
        Process {
            pid: AtomicU32::new(0),
            level: AtomicU32::new(OFF),
            start_ns: AtomicU64::new(0),
            tick_ns_shifted: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            timed_holds: AtomicU32::new(0),
            level_at_start: AtomicU32::new(OFF),
            switches: AtomicU32::new(0),
            running_per_mille: AtomicU32::new(0),
            module_count: AtomicU32::new(0),
            comm_count: AtomicU32::new(0),
            number: AtomicU32::new(0),
            stop_count: AtomicU32::new(0),
            shared_locks: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            shared_changes: AtomicU32::new(0),
            stack_end: AtomicU64::new(0),
            stops: [const { Stop { since_ns: AtomicU64::new(0), until_ns: AtomicU64::new(0) } }; STOPS],
            left: AtomicU64::new(0),
            free_threads: AtomicU64::new(0),
            losses: [const { AtomicU64::new(0) }; LOSSES],
            swaps: [const { AtomicU64::new(0) }; SWAPS],
            $($table: [const { AtomicU32::new(0) }; _],)*
            releases: AtomicU32::new(0),
        }
    };
}

/// Stands in while there is no segment. A process that has one from its start writes nothing here, which would take a page. Its
/// level is [`OFF`] before the library is loaded, and that of the parent in a forked child that has recorded nothing yet.
// What a forked child writes lies on one page: each costs a page fault.
#[unsafe(link_section = ".data.lockmeter_child_stand_in")]
static STAND_IN: Process = stand_in!(comms, modules, tags, locks, classes, stacks, thread_ids, shared);

/// The head of the segment, or what stands in for it. Public for entries written in assembly.
#[unsafe(link_section = ".data.lockmeter_child")]
pub static HEADER: AtomicPtr<Process> = AtomicPtr::new((&raw const STAND_IN).cast_mut());

/// This process's id, as it knows itself.
#[unsafe(link_section = ".data.lockmeter_child")]
static PROCESS_ID: AtomicU32 = AtomicU32::new(0);

/// No page was left when this process began.
#[unsafe(link_section = ".data.lockmeter_child")]
static IS_UNMETERED: AtomicBool = AtomicBool::new(false);

/// The segment of the process that forked this one; null: none.
#[unsafe(link_section = ".data.lockmeter_child")]
static PARENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// What a child needs to know of the process that forks it, noted before: to read that one's segment would cost the child a page fault.
struct AtFork {
    number: AtomicU32,
    level: AtomicU32,
    timed_holds: AtomicU32,
    modules: AtomicU32,
}

#[unsafe(link_section = ".data.lockmeter_inherited")]
static AT_FORK: AtFork = AtFork {
    number: AtomicU32::new(0),
    level: AtomicU32::new(OFF),
    timed_holds: AtomicU32::new(0),
    modules: AtomicU32::new(0),
};

/// To be called in a process that is about to fork.
pub(super) fn before_fork() {
    let Some(segment) = current() else { return };
    let notes = [
        (&AT_FORK.number, &segment.number),
        (&AT_FORK.level, &segment.level),
        (&AT_FORK.timed_holds, &segment.timed_holds),
        (&AT_FORK.modules, &segment.module_count),
    ];
    for (note, now) in notes {
        let now = now.load(Acquire);
        // After each fork the first write to a page copies it.
        if note.load(Relaxed) != now {
            note.store(now, Relaxed);
        }
    }
    clock::keep_reading();
}

/// The segment of the process that forked this one, while it has not become another's.
pub(super) fn parent() -> Option<&'static Process> {
    // SAFETY: null, or in a mapping that is never unmapped.
    let parent = unsafe { PARENT.load(Relaxed).as_ref() }?;
    (parent.number.load(Acquire) == STAND_IN.parent.load(Relaxed)).then_some(parent)
}

/// This process's id, as it knows itself; 0 before the library is loaded.
pub(super) fn process_id() -> u32 {
    PROCESS_ID.load(Relaxed)
}

/// Head of the segment or its stand-in.
#[inline]
pub(super) fn header() -> &'static Process {
    // SAFETY: points to a static or to a mapping that is never unmapped.
    unsafe { &*HEADER.load(Relaxed) }
}

/// The segment, if there is one.
#[inline]
pub(super) fn current() -> Option<&'static Process> {
    let header = HEADER.load(Acquire);
    // SAFETY: anything but the stand-in is in a mapping that is never unmapped.
    (!ptr::eq(header, &raw const STAND_IN)).then(|| unsafe { &*header })
}

/// Counts a loss.
pub(super) fn lose(lost: Lost) {
    let header = header();
    header.losses[lost as usize].fetch_add(1, Relaxed);
    fence(SeqCst);
    if ptr::eq(header, &raw const STAND_IN)
        && let Some(segment) = current()
    {
        // It was made between the two looks, and nobody reads what stood in for it.
        hand_over(&segment.losses, &STAND_IN.losses);
    }
}

/// Moves what was counted before there was a segment, or while it was made; where there is nothing, neither side is touched.
fn hand_over(sums: &[AtomicU64], counts: &[AtomicU64]) {
    fence(SeqCst);
    for (sum, count) in sums.iter().zip(counts) {
        if count.load(Relaxed) != 0 {
            sum.fetch_add(count.swap(0, Relaxed), Relaxed);
        }
    }
}

/// Counts what became of a lock that was to be swapped.
pub(super) fn count_swap(swap: Swap) {
    // Whatever the level: this is counted even where nothing is metered, and in children that record nothing else.
    let header = current().or_else(|| make(stand_in())).unwrap_or(&STAND_IN);
    header.swaps[swap as usize].fetch_add(1, Relaxed);
}

/// Begins metering as the session in this directory wants it. Called once, when the library is loaded. `memory` is the path of its
/// memory, with a NUL.
pub(super) fn start(memory: &[u8], session: Session) {
    PROCESS_ID.store(tls::thread_id(), Relaxed);
    clock::calibrate(session.tick_ns_shifted);
    let is_mapped = pages::map(memory);
    if let Some(session) = pages::session() {
        ticks::begin(session);
    }
    if !is_mapped {
        return;
    }
    awaited::begun();
    match make(session) {
        // For forked children, which inherit what is known: they would look it up by many page faults.
        Some(segment) => names::see_program(segment),
        None => {
            STAND_IN.timed_holds.store(session.timed_holds, Relaxed);
            count_unmetered();
        }
    }
}

/// How a process without a segment meters.
fn stand_in() -> Session {
    Session {
        level: STAND_IN.level.load(Relaxed),
        tick_ns_shifted: clock::tick_ns_shifted(),
        timed_holds: STAND_IN.timed_holds.load(Relaxed),
    }
}

/// In a forked child: the parent's segment is not ours. A new one is made with the first event, for most children only
/// run another program; at once if the parent is switched off, for then no event comes until the child's own is switched on.
pub(super) fn after_fork_in_child() {
    PROCESS_ID.store(tls::thread_id(), Relaxed);
    let parent = current();
    names::inherit(parent, AT_FORK.modules.load(Relaxed));
    if parent.is_none() && IS_UNMETERED.load(Relaxed) {
        count_unmetered();
    }
    // Of one that has recorded nothing itself, what it inherited holds.
    if let Some(parent) = parent {
        STAND_IN.parent.store(AT_FORK.number.load(Relaxed), Relaxed);
        PARENT.store(ptr::from_ref(parent).cast_mut(), Relaxed);
        STAND_IN.timed_holds.store(AT_FORK.timed_holds.load(Relaxed), Relaxed);
        STAND_IN.level.store(AT_FORK.level.load(Relaxed), Relaxed);
    }
    let level = STAND_IN.level.load(Relaxed);
    for count in STAND_IN.losses.iter().chain(&STAND_IN.swaps).filter(|count| count.load(Relaxed) != 0) {
        count.store(0, Relaxed);
    }
    HEADER.store((&raw const STAND_IN).cast_mut(), Release);
    if level == OFF && parent.is_some() {
        make(stand_in());
    }
}

/// The segment, made if there is none.
#[cold]
pub(super) fn current_or_new() -> Option<&'static Process> {
    let made = match current() {
        Some(segment) => return Some(segment),
        None if STAND_IN.level.load(Relaxed) == OFF => None,
        None => make(stand_in()),
    };
    if made.is_none() && STAND_IN.level.swap(OFF, Relaxed) != OFF {
        count_unmetered();
    }
    made
}

/// Counts that this process has no segment, if there is a session at all.
fn count_unmetered() {
    IS_UNMETERED.store(true, Relaxed);
    count_program(Unmetered::OutOfReach);
}

/// Counts a process that has, or will have, no segment.
pub(super) fn count_program(why: Unmetered) -> bool {
    pages::session().map(|session| session.unmetered[why as usize].fetch_add(1, Relaxed)).is_some()
}

/// It was counted and is none: a recorder that looked in between, for a microsecond or two, has one too many.
pub(super) fn uncount_program(why: Unmetered) {
    if let Some(session) = pages::session() {
        session.unmetered[why as usize].fetch_sub(1, Relaxed);
    }
}

/// Makes a segment. Two threads of a child may both do so: one of them is used, and the other's page serves others.
fn make(session: Session) -> Option<&'static Process> {
    let processes = &pages::session()?.processes;
    // A read has the kernel map the pages beside it as well.
    processes.load(Relaxed);
    let number = processes.fetch_add(1, Relaxed).wrapping_add(1);
    let (page, left) = pages::take_head(number)?;
    let made = pages::entry_of_page::<Process>(page, 0)?;
    made.number.store(number, Relaxed);
    made.left.store(left, Relaxed);
    made.parent.store(STAND_IN.parent.load(Relaxed), Relaxed);
    made.pid.store(PROCESS_ID.load(Relaxed), Relaxed);
    made.start_ns.store(clock::coarse_ns(), Relaxed);
    // SAFETY: takes an integer. The path of the program lies behind everything else there.
    made.stack_end.store(unsafe { libc::getauxval(libc::AT_EXECFN) }, Relaxed);
    made.tick_ns_shifted.store(session.tick_ns_shifted, Relaxed);
    made.level.store(session.level, Relaxed);
    made.timed_holds.store(session.timed_holds, Relaxed);
    made.level_at_start.store(session.level, Relaxed);
    names::name_process(made);
    // For threads that find no page of their own: later there may be none for this either.
    pages::take_all(made, &made.shared);
    let stand_in = (&raw const STAND_IN).cast_mut();
    let others = HEADER.compare_exchange(stand_in, ptr::from_ref(made).cast_mut(), AcqRel, Acquire);
    if let Err(other) = others {
        // SAFETY: the stand-in is replaced once; what is there now is in a mapping that is never unmapped.
        return Some(unsafe { &*other });
    }
    // Locks are swapped from the first on, and some are used before this library is ready.
    hand_over(&made.swaps, &STAND_IN.swaps);
    hand_over(&made.losses, &STAND_IN.losses);
    pages::change_kind(page, PageKind::NewProcess, PageKind::Process);
    Some(made)
}

/// Whether the session's memory can be opened by a program that begins now. Where there is no session nothing is missing.
pub(super) fn is_memory_in_reach() -> bool {
    let may_change = |path| syscalls::may_access(path, libc::R_OK | libc::W_OK);
    pages::session().is_none() || names::memory_path().is_none_or(may_change)
}
