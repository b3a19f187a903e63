//! A thread of the recorder's that looks after the session's memory while programs begin: it keeps pages ready, asks the kernel for
//! each program's file while the process lives, sees when processes are stopped, and tells them which of their locks are one.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::EventfdFlags;

use super::background::{Background, Ending};
use super::before_others::BeforeOthers;
use super::living::{HeldFiles, ProgramFile};
use super::memory::{Memory, Reserve, u32_at};
use super::shared_locks::{self, SharedLocks};
use super::stops::Stops;
use crate::layout::{PageKind, Process};

/// How often it looks while pages are taken, and while none are. A process that begins takes two pages, and there are always a few hundred.
const BUSY: Duration = Duration::from_millis(2);
const IDLE: Duration = Duration::from_millis(20);

/// Programs' files that are kept for the source to fetch.
const MOST_PROGRAMS: usize = 1 << 14;

/// What the keeper and the source share.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) reserve: Reserve,
    /// By a process's number.
    pub(super) programs: HashMap<u32, ProgramFile>,
    pub(super) held: Arc<Mutex<HeldFiles>>,
    pub(super) stops: Stops,
}

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    kept: Arc<Mutex<Kept>>,
    /// Readable when the source should be drained before its time.
    wants_drain: Arc<OwnedFd>,
    shared_locks: Arc<Mutex<SharedLocks>>,
    _thread: Background,
}

pub(super) fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper {
    /// Begins to keep the memory of a new session.
    pub(super) fn start(memory: &Memory) -> std::io::Result<Self> {
        let kept = Kept {
            reserve: Reserve::new(memory.try_clone()?),
            programs: HashMap::new(),
            held: Arc::default(),
            stops: Stops::new(memory.inode()?),
        };
        let wants_drain = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let held = Arc::clone(&kept.held);
        let kept = Arc::new(Mutex::new(kept));
        let shared_locks = SharedLocks::new(memory.inode()?);
        let (shared, memory) = (Arc::clone(&kept), memory.try_clone()?);
        let (of_all, asks) = (Arc::clone(&shared_locks), Arc::clone(&wants_drain));
        let run = move |ending: Ending| {
            let _before_others = BeforeOthers::begin();
            let (mut wait, mut newest) = (BUSY, 0);
            while ending.goes_on_after(wait) {
                let was_taken = lock(&shared).reserve.refill().unwrap_or(false);
                if was_taken {
                    newest = find_programs(&memory, &shared, &held, newest);
                }
                if lock(&shared).reserve.wants_drain() {
                    // Refused where the source was asked often and did not answer.
                    let _ = rustix::io::write(&*asks, &1_u64.to_ne_bytes());
                }
                let is_any_shared = shared_locks::lock(&of_all).look(&memory);
                let is_any_stopped = lock(&shared).stops.look(&memory);
                let loaded = lock(&shared).stops.take_loaded();
                if let Some(pid) = loaded {
                    lock(&held).hold_libraries(pid);
                }
                wait = if was_taken || is_any_shared || is_any_stopped { BUSY } else { (wait * 2).min(IDLE) };
            }
        };
        Ok(Self { kept, wants_drain, shared_locks, _thread: Background::start("lockmeter-pages", run)? })
    }

    pub(super) fn shared_locks(&self) -> Arc<Mutex<SharedLocks>> {
        Arc::clone(&self.shared_locks)
    }

    pub(super) fn wants_drain(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wants_drain)
    }

    pub(super) fn kept(&self) -> Arc<Mutex<Kept>> {
        Arc::clone(&self.kept)
    }
}

/// Asks for the files of processes with numbers above this one; returns the highest number.
fn find_programs(memory: &Memory, kept: &Mutex<Kept>, held: &Mutex<HeldFiles>, newest: u32) -> u32 {
    let owned = memory.owned().unwrap_or_default();
    let begun = owned.iter().filter(|owned| owned.kind == PageKind::Process && owned.process > newest);
    let mut last = newest;
    for owned in begun {
        last = last.max(owned.process);
        let pid = memory.read(owned.page as usize, std::mem::offset_of!(Process, pid), 4);
        let Ok(pid) = pid.map(|pid| u32_at(&pid, 0)) else { continue };
        // Files are opened while nobody waits for what is kept.
        let program = ProgramFile::of(pid, &mut lock(held));
        let mut kept = lock(kept);
        kept.stops.begin(owned.process, owned.page, pid);
        if let Some(program) = program
            && kept.programs.len() < MOST_PROGRAMS
        {
            kept.programs.insert(owned.process, program);
        }
    }
    last
}
