//! Single contended holds, and what their holders did.

use crate::interval::{LockId, StackId, TaskId};
use crate::sample::{Happened, Kind, Mode};

/// What a holder did while others waited. What is missing to the whole is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HolderTime {
    /// On a CPU.
    pub running_ns: u64,
    /// Able to run, but not running.
    pub runnable_ns: u64,
    /// Asleep for input or output.
    pub io_ns: u64,
    /// Asleep, or spinning, for another lock.
    pub lock_ns: u64,
    /// Asleep while it reclaimed memory.
    pub reclaim_ns: u64,
    /// Asleep for anything else.
    pub asleep_ns: u64,
}

impl HolderTime {
    /// What the samples of each part say happened, in the order of the fields.
    pub const PARTS: [Happened; 6] = [
        Happened::HolderRunning,
        Happened::HolderRunnable,
        Happened::HolderIo,
        Happened::HolderLock,
        Happened::HolderReclaim,
        Happened::HolderAsleep,
    ];

    /// From the parts in the order of [`PARTS`](Self::PARTS).
    pub const fn from_parts(parts: [u64; 6]) -> Self {
        let [running_ns, runnable_ns, io_ns, lock_ns, reclaim_ns, asleep_ns] = parts;
        Self { running_ns, runnable_ns, io_ns, lock_ns, reclaim_ns, asleep_ns }
    }

    /// The parts, in the order of [`PARTS`](Self::PARTS).
    pub const fn parts(&self) -> [u64; 6] {
        [self.running_ns, self.runnable_ns, self.io_ns, self.lock_ns, self.reclaim_ns, self.asleep_ns]
    }

    /// All that is known.
    pub fn known_ns(&self) -> u64 {
        self.parts().into_iter().fold(0, u64::saturating_add)
    }
}

/// One contended hold that was long, and what its holder did meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowHold {
    /// When the lock was released, nanoseconds since the Unix epoch.
    pub end_unix_ns: u64,
    /// For how long it was held while somebody waited.
    pub total_ns: u64,
    /// The lock.
    pub lock: LockId,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it was held.
    pub mode: Mode,
    /// Who released it.
    pub task: TaskId,
    /// The thread.
    pub tid: u32,
    /// Where it was released; `None` if that stack was not taken.
    pub site: Option<StackId>,
    /// What the holder did.
    pub holder: HolderTime,
    /// The other lock that it waited for longest meanwhile.
    pub next: Option<NextLock>,
}

/// A lock that a holder of another one waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextLock {
    /// The lock.
    pub lock: LockId,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it was asked for.
    pub mode: Mode,
    /// For how long.
    pub waited_ns: u64,
    /// Who woke the waiter by releasing it, if anybody was seen to.
    pub task: Option<TaskId>,
    /// That one's thread; 0 where it is not known.
    pub tid: u32,
}
