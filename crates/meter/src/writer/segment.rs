//! This process's segment: made when the library is loaded, or in a forked child with its first event.

use core::mem::{offset_of, size_of};
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

use super::{clock, syscalls, thread};
use crate::layout::{
    Header, LOSSES, Lost, MAGIC, OFF, SEGMENT_BYTES, SEGMENT_PREFIX, SWAPS, Segment, Session, Swap, UNMETERED_PREFIX,
    VERSION,
};

/// Stands in while there is no segment. A process that has one from its start writes nothing here, which would take a page. Its
/// level is [`OFF`] before the library is loaded, and that of the parent in a forked child that has recorded nothing yet.
static STAND_IN: Header = Header {
    magic: AtomicU64::new(0),
    version: AtomicU32::new(0),
    pid: AtomicU32::new(0),
    start_ns: AtomicU64::new(0),
    tick_ns_shifted: AtomicU64::new(0),
    level: AtomicU32::new(OFF),
    epoch: AtomicU32::new(0),
    threads: AtomicU32::new(0),
    modules: AtomicU32::new(0),
    comms: AtomicU32::new(0),
    timed_holds: AtomicU32::new(0),
    level_at_start: AtomicU32::new(OFF),
    losses: [const { AtomicU64::new(0) }; LOSSES],
    swaps: [const { AtomicU64::new(0) }; SWAPS],
    switches: AtomicU32::new(0),
};

/// The head of the segment, or what stands in for it. Public for entries written in assembly.
pub static HEADER: AtomicPtr<Header> = AtomicPtr::new((&raw const STAND_IN).cast_mut());

/// Longest path of the directory.
const DIRECTORY_BYTES: usize = 1024;
// With what else is written when the library is loaded.
#[unsafe(link_section = ".data.lockmeter_start")]
static DIRECTORY: [AtomicU8; DIRECTORY_BYTES] = [const { AtomicU8::new(0) }; DIRECTORY_BYTES];
#[unsafe(link_section = ".data.lockmeter_start")]
static DIRECTORY_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// The segment of the parent, in a forked child, or of the last forefather that had one. It stays mapped.
static PARENT: AtomicPtr<Header> = AtomicPtr::new(ptr::null_mut());

/// No segment could be made: the directory is out of reach after a `chroot`, or as another user, or files may not be that large.
static IS_UNMETERED: AtomicBool = AtomicBool::new(false);

/// The thread that makes the segment; 0: none does.
static MAKING: AtomicU32 = AtomicU32::new(0);

/// Making takes 0.1 ms where nothing else runs. A thread that gave way for longer sleeps in between: the maker may have the lower
/// priority.
const MAKING_TAKES_NS: u64 = 1_000_000;
/// How long it sleeps.
const GIVING_WAY_NS: u64 = 200_000;
/// So long a thread gives way before it goes on unmetered: on a busy machine the maker may get no CPU for tens of milliseconds.
const MAKER_IS_STUCK_NS: u64 = 1_000_000_000;

/// A thread gave way for as long in vain, and no other does. The maker may have been cancelled.
static MAKER_IS_STUCK: AtomicBool = AtomicBool::new(false);

/// Head of the segment or its stand-in.
#[inline]
pub(super) fn header() -> &'static Header {
    // SAFETY: points to a static or to a mapping that is never unmapped.
    unsafe { &*HEADER.load(Relaxed) }
}

/// The segment, if there is one.
#[inline]
pub(super) fn current() -> Option<&'static Segment> {
    let header = HEADER.load(Acquire);
    if ptr::eq(header, &raw const STAND_IN) {
        return None;
    }
    // SAFETY: anything but the stand-in is the start of a mapped segment that is never unmapped.
    Some(unsafe { &*header.cast::<Segment>() })
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
        hand_over_losses(&segment.header);
    }
}

/// What was lost before there was a segment, or while it was made.
fn hand_over_losses(header: &Header) {
    fence(SeqCst);
    add_to(&header.losses, &STAND_IN.losses);
}

/// Moves what is there; where there is nothing, neither side is touched.
fn add_to(sums: &[AtomicU64], counts: &[AtomicU64]) {
    for (sum, count) in sums.iter().zip(counts) {
        if count.load(Relaxed) != 0 {
            sum.fetch_add(count.swap(0, Relaxed), Relaxed);
        }
    }
}

/// Counts what became of a lock that was to be swapped.
pub(super) fn count_swap(swap: Swap) {
    // Whatever the level: this is counted even where nothing is metered, and in children that record nothing else.
    let can_make = current().is_none() && DIRECTORY_LENGTH.load(Relaxed) > 0;
    if can_make && MAKING.compare_exchange(0, 1, AcqRel, Relaxed).is_ok() {
        make(stand_in());
        MAKING.store(0, Release);
    }
    header().swaps[swap as usize].fetch_add(1, Relaxed);
}

/// Begins metering as the session in this directory wants it. Called once, when the library is loaded.
pub(super) fn start(directory: &[u8], session: Session) {
    if directory.is_empty() || directory.len() > DIRECTORY_BYTES {
        return;
    }
    for (to, from) in DIRECTORY.iter().zip(directory) {
        to.store(*from, Relaxed);
    }
    DIRECTORY_LENGTH.store(directory.len(), Relaxed);
    clock::calibrate(session.tick_ns_shifted);
    if make(session).is_none() {
        STAND_IN.timed_holds.store(session.timed_holds, Relaxed);
        say_unmetered();
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
    let parent = HEADER.load(Relaxed);
    if !ptr::eq(parent, &raw const STAND_IN) {
        PARENT.store(parent, Relaxed);
    } else if IS_UNMETERED.load(Relaxed) {
        say_unmetered();
    }
    let level = header().level.load(Relaxed);
    STAND_IN.timed_holds.store(header().timed_holds.load(Relaxed), Relaxed);
    STAND_IN.level.store(level, Relaxed);
    for count in STAND_IN.losses.iter().chain(&STAND_IN.swaps) {
        count.store(0, Relaxed);
    }
    HEADER.store((&raw const STAND_IN).cast_mut(), Release);
    MAKING.store(0, Relaxed);
    MAKER_IS_STUCK.store(false, Relaxed);
    thread::forget();
    if level == OFF && !ptr::eq(parent, &raw const STAND_IN) {
        make(stand_in());
    }
}

/// The segment, made if there is none. While another thread makes it, this one gives way: in a forked child the second thread
/// would otherwise miss its first wait, which is for the lock that the maker holds.
#[cold]
pub(super) fn current_or_new() -> Option<&'static Segment> {
    let (me, begin_ns) = (syscalls::thread_id(), clock::monotonic_ns());
    loop {
        // Each time round: another thread may have made it since, and there must not be a second one.
        if let Some(segment) = current() {
            return Some(segment);
        }
        let making = MAKING.compare_exchange(0, me, AcqRel, Acquire);
        // Looked at when nobody else can fail any more.
        let is_off = STAND_IN.level.load(Relaxed) == OFF;
        match making {
            Ok(_) if is_off => MAKING.store(0, Release),
            Ok(_) => return make_alone(),
            // Not in a signal handler that interrupted the maker itself.
            Err(maker) if !is_off && maker != me && !MAKER_IS_STUCK.load(Relaxed) => {
                let waited_ns = clock::monotonic_ns().saturating_sub(begin_ns);
                match waited_ns {
                    0..MAKING_TAKES_NS => syscalls::give_way(),
                    MAKING_TAKES_NS..MAKER_IS_STUCK_NS => syscalls::sleep(GIVING_WAY_NS),
                    _ => MAKER_IS_STUCK.store(true, Relaxed),
                }
                continue;
            }
            Err(_) => {}
        }
        lose(Lost::Threads);
        return None;
    }
}

/// As [`current_or_new`], by the thread whose id is in [`MAKING`].
fn make_alone() -> Option<&'static Segment> {
    let made = current().or_else(|| make(stand_in()));
    if made.is_none() {
        STAND_IN.level.store(OFF, Relaxed);
        say_unmetered();
    }
    MAKING.store(0, Release);
    made
}

/// Says that this process has no segment: in that of the forefather who has one, else by an empty file.
fn say_unmetered() {
    IS_UNMETERED.store(true, Relaxed);
    if count_program(Lost::Child).is_none() {
        let path = Path::of_process(UNMETERED_PREFIX, syscalls::process_id(), clock::monotonic_ns());
        if let Some(descriptor) = path.and_then(create) {
            syscalls::close(descriptor);
        }
    }
}

/// Counts a process that has, or will have, no segment: in ours, else in that of the forefather who has one. Says in which.
pub(super) fn count_program(lost: Lost) -> Option<&'static Header> {
    // SAFETY: null, or the start of a segment that is never unmapped.
    let parent = || unsafe { PARENT.load(Relaxed).as_ref() };
    let header = current().map(|segment| &segment.header).or_else(parent)?;
    header.losses[lost as usize].fetch_add(1, Relaxed);
    Some(header)
}

/// It was counted there and is none: a recorder that looked in between, for a microsecond or two, has one too many.
pub(super) fn uncount_program(header: &Header, lost: Lost) {
    header.losses[lost as usize].fetch_sub(1, Relaxed);
}

/// Whether a file can be made in the session's directory. Where there is no session nothing is missing.
pub(super) fn is_directory_in_reach() -> bool {
    let Some(mut path) = Path::in_directory() else { return true };
    path.with_nul().is_some_and(|path| syscalls::may_access(path, libc::W_OK | libc::X_OK))
}

fn create(mut path: Path) -> Option<i32> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    syscalls::open(path.with_nul()?, flags, 0o600)
}

fn make(session: Session) -> Option<&'static Segment> {
    // To try would end the process, by a signal.
    if syscalls::largest_file() < SEGMENT_BYTES as u64 {
        return None;
    }
    let pid = syscalls::process_id();
    let start_ns = clock::monotonic_ns();
    let path = || Path::of_process(SEGMENT_PREFIX, pid, start_ns);
    let descriptor = path().and_then(create)?;
    let address = write_and_map(descriptor, pid, start_ns, session);
    syscalls::close(descriptor);
    if address.is_none()
        && let Some(mut path) = path()
        && let Some(path) = path.with_nul()
    {
        syscalls::remove(path);
    }
    let address = address?;
    // SAFETY: just mapped, of this size, page-aligned, zeroed but for its head; atomics are valid with any bytes.
    let segment = unsafe { &*(address as *const Segment) };
    // Locks are swapped from the first on, and some are used before this library is ready.
    add_to(&segment.header.swaps, &STAND_IN.swaps);
    HEADER.store(address as *mut Header, Release);
    hand_over_losses(&segment.header);
    Some(segment)
}

/// Writes what a segment begins with, by system calls: a process that uses no lock never touches its mapping, and needs no
/// page tables for it. A file system without room says so here, not with a SIGBUS later.
fn write_and_map(descriptor: i32, pid: u32, start_ns: u64, session: Session) -> Option<usize> {
    const MAGIC_BYTES: usize = size_of::<u64>();
    const _: () = assert!(offset_of!(Header, magic) == 0, "it is written apart");
    let mut head = [0_u8; offset_of!(Header, losses)];
    let mut put = |at: usize, bytes: &[u8]| {
        for (to, from) in head.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    };
    put(offset_of!(Header, version), &VERSION.to_ne_bytes());
    put(offset_of!(Header, pid), &pid.to_ne_bytes());
    put(offset_of!(Header, start_ns), &start_ns.to_ne_bytes());
    put(offset_of!(Header, tick_ns_shifted), &session.tick_ns_shifted.to_ne_bytes());
    put(offset_of!(Header, level), &session.level.to_ne_bytes());
    put(offset_of!(Header, timed_holds), &session.timed_holds.to_ne_bytes());
    put(offset_of!(Header, level_at_start), &session.level.to_ne_bytes());
    if !syscalls::write(descriptor, &head[MAGIC_BYTES..], MAGIC_BYTES) {
        return None;
    }
    let address = syscalls::map_new(descriptor, SEGMENT_BYTES)?;
    // Last what says that it is complete.
    syscalls::write(descriptor, &MAGIC.to_ne_bytes(), 0).then_some(address)
}

/// A path on the stack.
struct Path {
    bytes: [u8; DIRECTORY_BYTES + 64],
    length: usize,
}

impl Path {
    /// Of a file that tells by its name which process it is from; `None` if there is no directory.
    fn of_process(prefix: &str, pid: u32, start_ns: u64) -> Option<Self> {
        let mut path = Self::in_directory()?;
        path.push(prefix.as_bytes());
        path.push_number(u64::from(pid));
        path.push(b"-");
        path.push_number(start_ns);
        Some(path)
    }

    /// The directory and a slash; `None` if there is none.
    fn in_directory() -> Option<Self> {
        let mut path = Self { bytes: [0; DIRECTORY_BYTES + 64], length: 0 };
        let length = DIRECTORY_LENGTH.load(Relaxed);
        for byte in DIRECTORY.iter().take(length) {
            path.push(&[byte.load(Relaxed)]);
        }
        path.push(b"/");
        (length > 0).then_some(path)
    }

    /// Leaves no room for the NUL if the path is too long, which [`Self::with_nul`] notices.
    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = *byte;
            }
            self.length = self.length.saturating_add(1);
        }
    }

    fn push_number(&mut self, number: u64) {
        let mut divisor = 1;
        while number / divisor >= 10 {
            divisor *= 10;
        }
        while divisor > 0 {
            self.push(&[b'0' + (number / divisor % 10) as u8]);
            divisor /= 10;
        }
    }

    fn with_nul(&mut self) -> Option<&[u8]> {
        *self.bytes.get_mut(self.length)? = 0;
        self.bytes.get(..=self.length)
    }
}
