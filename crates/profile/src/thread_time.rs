//! Where the time of threads went, and who still waits.

use crate::interval::{CgroupId, LockId, StackId, TaskId};
use crate::sample::{Happened, Kind, Mode, named_enum};
use crate::system_call::SystemCall;

named_enum! {
    /// What a thread does: it runs, could run, or is blocked for a reason.
    ThreadState {
        /// On a CPU.
        Running = 1, "running";
        /// Could run, but another thread has the CPU.
        Runnable = 2, "runnable";
        /// Was woken, and has not come to a CPU yet.
        Woken = 3, "woken";
        /// Asleep for a lock of the kernel.
        KernelLock = 4, "kernel-lock";
        /// Asleep for a lock of the program.
        UserLock = 5, "user-lock";
        /// Asleep for a condition, a semaphore, a barrier, another thread's end, or work: what is no lock by itself.
        Condition = 6, "condition";
        /// Asleep for a lock on a file.
        FileLock = 7, "file-lock";
        /// Asleep for a disk or a file system.
        DiskIo = 8, "disk-io";
        /// Asleep in a page fault.
        PageFault = 9, "page-fault";
        /// Asleep for the network, or for any of several files.
        NetworkOrPoll = 10, "network-or-poll";
        /// Asleep for a pipe, or for a socket on this machine.
        PipeOrSocket = 11, "pipe-or-socket";
        /// Asleep for a time, or for a signal.
        Sleep = 12, "sleep";
        /// Asleep for the end of a child.
        Child = 13, "child";
        /// Asleep for anything else, or stopped.
        Other = 14, "other";
        /// Asleep in a futex call, of which no stack tells what it is for.
        Futex = 15, "futex";
        /// Asleep while it reclaims memory.
        Reclaim = 16, "reclaim";
    }
}

impl ThreadState {
    /// Whether the thread could do nothing, had it a CPU.
    pub const fn is_blocked(self) -> bool {
        !matches!(self, Self::Running | Self::Runnable | Self::Woken)
    }

    /// Whether the thread waits for a lock.
    pub const fn is_lock(self) -> bool {
        matches!(self, Self::KernelLock | Self::UserLock | Self::FileLock)
    }
}

/// What a holder did with the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HolderState {
    /// It ran, could run, or slept for this reason.
    pub state: ThreadState,
    /// In this call, if it slept for something that the call tells more of.
    pub call: Option<SystemCall>,
}

impl HolderState {
    /// In no call.
    pub const fn of(state: ThreadState) -> Self {
        Self { state, call: None }
    }
}

/// The time of the threads of one task: exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadTime {
    /// Whose.
    pub task: TaskId,
    /// Where they are.
    pub cgroup: Option<CgroupId>,
    /// How many they are.
    pub threads: u64,
    /// What they did, each state once.
    pub spent: Vec<(ThreadState, u64)>,
}

/// What threads slept for, told from their stacks at regular looks: an estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sleep {
    /// Whose.
    pub task: TaskId,
    /// As what the exact time counts it: by the system call.
    pub counted_as: ThreadState,
    /// What it is, by its stack.
    pub reason: ThreadState,
    /// For which lock, if it is one that the program has built for itself.
    pub lock: Option<LockId>,
    /// Whether the threads are at rest: they did nearly nothing else, and it is no lock.
    pub at_rest: bool,
    /// Where, innermost frame first; `None` if no stack was taken.
    pub site: Option<StackId>,
    /// How many looks found it.
    pub looks: u64,
    /// The time that they stand for.
    pub estimate_ns: u64,
    /// The variance of that, in square nanoseconds; sleeps that were seen from look to look add nothing to it.
    pub variance_ns2: f64,
}

named_enum! {
    /// How a thread was seen to spin.
    SpinLoop {
        /// In a loop with the instruction that is made for it.
        Pause = 1, "pause";
        /// It gave its CPU up, to come back at once.
        Yield = 2, "yield";
        /// It went to sleep for a short time, in a function that is known to.
        Sleep = 3, "sleep";
        /// In a function that is known to spin.
        Function = 4, "function";
    }
}

/// CPU time that threads spent spinning, told from samples of what CPUs ran: an estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spin {
    /// Whose.
    pub task: TaskId,
    /// Where they are.
    pub cgroup: Option<CgroupId>,
    /// By what it was seen.
    pub how: SpinLoop,
    /// What for; `None` if nothing says so.
    pub wait: Option<SampledWait>,
    /// Whether it is a part of waits that are in the totals, which count all of their time as slept.
    pub is_part: bool,
    /// Where, innermost frame first; `None` if no stack could be taken.
    pub site: Option<StackId>,
    /// How many samples met it.
    pub samples: u64,
    /// The CPU time that they stand for.
    pub estimate_ns: u64,
    /// The variance of that, in square nanoseconds.
    pub variance_ns2: f64,
}

/// Time for which threads of a language's own were parked, which its runtime switches without the kernel: an estimate from regular
/// looks at them. So far goroutines are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parked {
    /// The process, by the name of its program: goroutines have none.
    pub task: TaskId,
    /// Where the process is.
    pub cgroup: Option<CgroupId>,
    /// What for.
    pub wait: SampledWait,
    /// Where, innermost frame first; `None` if the stack could not be read.
    pub site: Option<StackId>,
    /// How many looks found any there.
    pub looks: u64,
    /// The time that they stand for, that of all goroutines added up.
    pub estimate_ns: u64,
    /// The variance of that, in square nanoseconds.
    pub variance_ns2: f64,
}

/// What a thread spins for, or a goroutine is parked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledWait {
    /// [`Happened::Wait`] for a lock, [`Happened::Idle`] for anything else.
    pub happened: Happened,
    /// For which.
    pub lock: LockId,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it is asked for.
    pub mode: Mode,
    /// The lock's address.
    pub instance: Option<u64>,
}

/// A thread that waits for a lock when an interval ends, or that has ended in the interval while it waited for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWait {
    /// Who.
    pub task: TaskId,
    /// Its thread.
    pub tid: u32,
    /// For a lock of the kernel, of the program, or on a file.
    pub reason: ThreadState,
    /// For which.
    pub lock: LockId,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it was asked for.
    pub mode: Mode,
    /// The lock's address.
    pub instance: Option<u64>,
    /// Where, innermost frame first.
    pub site: Option<StackId>,
    /// For how long already.
    pub age_ns: u64,
    /// Whether it began before the recording: then the age is the least that it can be.
    pub is_older: bool,
    /// Whether it ends by itself after some time.
    pub is_timed: bool,
    /// Whether its thread has ended in it: killed, or with its process.
    pub is_cut: bool,
    /// Who has the lock, if the lock tells.
    pub holder: Option<LockHolder>,
    /// The thread that the lock names, if that has ended: nobody will release it.
    pub ended_holder: Option<u32>,
    /// Waits with the same number wait for each other in a circle, and never end.
    pub deadlock: Option<u32>,
}

/// Who has a lock for which others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHolder {
    /// Who.
    pub task: TaskId,
    /// Its thread; the first of its process where no more is known.
    pub tid: u32,
    /// What it does.
    pub state: Option<ThreadState>,
    /// Where it sleeps, if it does.
    pub site: Option<StackId>,
}

/// What is known of the threads in scope in an interval; nothing if they were not watched.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadActivity {
    /// Exact times.
    pub times: Vec<ThreadTime>,
    /// How long threads were watched: each that was there throughout has so much time. Other sources' intervals end a moment sooner or
    /// later.
    pub watched_ns: u64,
    /// What the sleeps among them were for.
    pub sleeps: Vec<Sleep>,
    /// Who still waits at the end, or ended waiting.
    pub open_waits: Vec<OpenWait>,
    /// How much of the running was spinning.
    pub spins: Vec<Spin>,
    /// How many samples of threads that ran that rests on; 0: none were taken.
    pub run_samples: u64,
    /// Where goroutines waited.
    pub parked: Vec<Parked>,
    /// How many looks at all that wait that rests on; 0: there was no process with any, or they could not be seen.
    pub goroutine_looks: u64,
}
