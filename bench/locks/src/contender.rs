//! What a lock must offer to be measured, and the list of those that are.

use crate::lock_under_test::{LockUnderTest, Measured};
use crate::ours::{Alone, Shared};
use crate::peers;

/// A lock as the bench sees it.
pub trait Lock: Send + Sync + 'static {
    /// A free one.
    fn new() -> Self;
    /// Runs `section` alone.
    fn exclusive(&self, section: impl FnOnce());
    /// Runs `section` beside other readers; alone where the lock knows no readers.
    fn shared(&self, section: impl FnOnce()) {
        self.exclusive(section);
    }
}

/// Which locks can take each other's place in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Knows writers only; measured at a read share of 0.
    Exclusive,
    /// Knows readers, too.
    ReadWrite,
}

/// One lock in the race.
#[derive(Clone, Copy)]
pub struct Contender {
    /// In tables and pictures.
    pub name: &'static str,
    /// Whom it is compared with.
    pub families: &'static [Family],
    /// Ours, or a peer.
    pub ours: bool,
    /// Where its threads meet: a new lock and what it protects.
    pub lock: fn() -> Box<dyn Measured>,
}

impl Contender {
    const fn peer<L: Lock>(name: &'static str, families: &'static [Family]) -> Self {
        Self { name, families, ours: false, lock: LockUnderTest::<L>::boxed }
    }

    const fn ours<L: Lock>(name: &'static str, families: &'static [Family]) -> Self {
        Self { name, families, ours: true, lock: LockUnderTest::<L>::boxed }
    }

    /// Whether it takes part at this read share.
    pub fn runs_at(&self, read_percent: u32) -> bool {
        read_percent == 0 || self.families.contains(&Family::ReadWrite)
    }

    /// Whether the two can take each other's place at this read share.
    pub fn comparable(&self, other: &Self, read_percent: u32) -> bool {
        self.families
            .iter()
            .any(|family| other.families.contains(family) && (*family == Family::ReadWrite || read_percent == 0))
    }
}

const EXCLUSIVE: &[Family] = &[Family::Exclusive];
const READ_WRITE: &[Family] = &[Family::ReadWrite];

/// All that this build and machine have, ours first.
pub fn all() -> Vec<Contender> {
    let mut all = Vec::new();
    all.extend([
        Contender::ours::<Alone<lockmeter_locks::RawMutex>>("Mutex", EXCLUSIVE),
        Contender::ours::<Alone<lockmeter_locks::RawSpin>>("Spin", EXCLUSIVE),
        Contender::ours::<Shared<lockmeter_locks::RawRwSem>>("RwSem", READ_WRITE),
        Contender::ours::<Shared<lockmeter_locks::RawPercpuRwSem>>("PercpuRwSem", READ_WRITE),
        Contender::peer::<peers::GlibcMutex>("glibc mutex", EXCLUSIVE),
        Contender::peer::<peers::GlibcAdaptive>("glibc adaptive", EXCLUSIVE),
        Contender::peer::<std::sync::Mutex<()>>("std Mutex", EXCLUSIVE),
        Contender::peer::<parking_lot::Mutex<()>>("parking_lot Mutex", EXCLUSIVE),
        Contender::peer::<peers::GlibcRwLock>("glibc rwlock", READ_WRITE),
        Contender::peer::<std::sync::RwLock<()>>("std RwLock", READ_WRITE),
        Contender::peer::<parking_lot::RwLock<()>>("parking_lot RwLock", READ_WRITE),
    ]);
    #[cfg(abseil)]
    all.push(Contender::peer::<crate::abseil::Mutex>("absl Mutex", &[Family::Exclusive, Family::ReadWrite]));
    all
}

/// Peers that were asked for and are not here, and why.
pub fn absent() -> Vec<&'static str> {
    let mut absent = vec!["folly SharedMutex: Debian has no package of folly"];
    if cfg!(not(feature = "abseil")) {
        absent.push("absl Mutex: C++, so only the crate bench-locks has it (cargo run --release -p bench-locks)");
    } else if cfg!(not(abseil)) {
        absent.push("absl Mutex: libabsl-dev was not installed when the bench was built (scripts/setup bench)");
    }
    absent
}
