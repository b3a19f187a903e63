//! The key and the value of a sample.

use crate::interval::{CgroupId, LockId, TaskId};
use crate::lock::Space;

/// Declares a fieldless enum together with the stable names that files, JSON and the command line use for it.
macro_rules! named_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $code:literal, $text:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_meta])* $variant = $code,)+ }

        impl $name {
            /// Every value, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable name used in files, JSON and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The stable number used in files.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The value whose number is `code`, or `None` if this version knows none.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                Self::ALL.iter().copied().find(|value| value.name() == text).ok_or(())
            }
        }
    };
}
pub(crate) use named_enum;

named_enum! {
    /// What a sample says happened.
    Happened {
        /// From the first failed try to having the lock.
        Wait = 1, "wait";
        /// From having the lock to releasing it.
        Hold = 2, "hold";
        /// Something ran and kept the CPU from everyone else (interrupt, timer, work item).
        Run = 3, "run";
        /// Waited for something that is no lock: a condition, a barrier, the end of a thread, work.
        Idle = 4, "idle";
        /// The part of a hold during which somebody waited: from the moment a waiter went to sleep, or the lock was seen to change
        /// hands if that is later, to the release.
        ContendedHold = 5, "contended-hold";
        /// A hold of a kernel lock whose acquisition was contended. It is one of the holds, too.
        ContendedAcquisition = 7, "contended-acquisition";
        /// Waited for a lock and did not get it: the time limit came first.
        TimedOut = 6, "timed-out";
        /// A try to get the lock that failed: a trylock, or one that was killed or interrupted.
        Failed = 16, "failed";
        /// The part of a contended hold during which the holder ran on a CPU.
        HolderRunning = 17, "holder-running";
        /// The part of a contended hold during which the holder could run, but did not.
        HolderRunnable = 18, "holder-runnable";
        /// The part of a contended hold during which the holder slept for input or output.
        HolderIo = 19, "holder-io";
        /// The part of a contended hold during which the holder slept for another lock.
        HolderLock = 20, "holder-lock";
        /// The part of a contended hold during which the holder slept while it reclaimed memory.
        HolderReclaim = 21, "holder-reclaim";
        /// The part of a contended hold during which the holder slept for anything else.
        HolderAsleep = 22, "holder-asleep";
        /// From being due (raised, queued, expired) to the run.
        Delay = 8, "delay";
    }
}

named_enum! {
    /// The kind of a lock, or of what ran.
    Kind {
        /// A spinning lock without readers.
        Spin = 1, "spin";
        /// A spinning reader-writer lock.
        Rwlock = 2, "rwlock";
        /// A sleeping lock with one holder; it may spin on a running owner first.
        Mutex = 3, "mutex";
        /// A sleeping reader-writer semaphore.
        Rwsem = 4, "rwsem";
        /// A reader-writer semaphore whose readers touch only their own CPU's counter.
        PercpuRwsem = 5, "percpu-rwsem";
        /// A mutex with priority inheritance.
        RtMutex = 6, "rt-mutex";
        /// A counting semaphore.
        Semaphore = 7, "semaphore";
        /// Contention flags that this version does not know.
        Unknown = 8, "unknown";
        /// A condition variable.
        Condvar = 9, "condvar";
        /// A barrier.
        Barrier = 10, "barrier";
        /// The end of a thread.
        Join = 11, "join";
        /// A thread that parked itself until somebody has work for it.
        Park = 12, "park";
        /// A futex of a program of which nothing more is known.
        Futex = 13, "futex";
        /// A lock on a file.
        File = 14, "file";
        /// What ran: the handler of a hard interrupt.
        Irq = 32, "irq";
        /// What ran: a softirq.
        Softirq = 33, "softirq";
        /// What ran: a tasklet.
        Tasklet = 34, "tasklet";
        /// What ran: the function of a timer of the timer wheel.
        Timer = 35, "timer";
        /// What ran: the function of a high-resolution timer.
        Hrtimer = 36, "hrtimer";
        /// What ran: a work item of a workqueue.
        Work = 37, "work";
    }
}

named_enum! {
    /// The mode in which a lock was asked for.
    Mode {
        /// The lock knows no readers.
        Exclusive = 1, "exclusive";
        /// As a reader.
        Read = 2, "read";
        /// As a writer.
        Write = 3, "write";
    }
}

named_enum! {
    /// What ran on the CPU of a wait.
    Context {
        /// A task.
        Task = 1, "task";
        /// A softirq, also in `ksoftirqd`.
        Softirq = 2, "softirq";
        /// A hard interrupt.
        Hardirq = 3, "hardirq";
        /// A non-maskable interrupt.
        Nmi = 4, "nmi";
    }
}

/// Power-of-two bucket of a duration: bucket `n` holds durations in `[2^n, 2^(n+1))` ns; bucket 0 also holds 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bucket(pub u8);

impl Bucket {
    /// The bucket that `duration_ns` falls into.
    pub const fn of(duration_ns: u64) -> Self {
        Self(if duration_ns == 0 { 0 } else { duration_ns.ilog2() as u8 })
    }

    /// The shortest duration of this bucket.
    pub const fn lower_ns(self) -> u64 {
        match self.0 {
            0 => 0,
            exponent @ 1..=63 => 1 << exponent,
            _ => u64::MAX,
        }
    }

    /// The first duration beyond this bucket (saturating).
    pub const fn upper_ns(self) -> u64 {
        if self.0 >= 63 { u64::MAX } else { 1 << (self.0 + 1) }
    }
}

/// What is counted exactly, on every event. The bucket is part of the key, so a histogram is several samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Wait, hold, run, …
    pub happened: Happened,
    /// Which lock (class), or what ran.
    pub lock: LockId,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it was asked for.
    pub mode: Mode,
    /// Whose wait it was; `None` where the source ran out of room for tasks (counted in the losses).
    pub task: Option<TaskId>,
    /// In which cgroup that task was.
    pub cgroup: Option<CgroupId>,
    /// Of a wait for a lock of the kernel that spins: what waited. `None`: not known, or any other lock ([`Key::waited_in`]).
    pub context: Option<Context>,
    /// The CPU on which it ended; `None` unless the recording keeps CPUs apart.
    pub cpu: Option<u32>,
    /// Power-of-two bucket of the duration.
    pub bucket: Bucket,
}

impl Key {
    /// Of durations in the shortest bucket, of nobody known, nowhere known.
    pub const fn of(happened: Happened, lock: LockId, kind: Kind, mode: Mode) -> Self {
        Self { happened, lock, kind, mode, task: None, cgroup: None, context: None, cpu: None, bucket: Bucket(0) }
    }

    /// What waited: only for locks of the kernel that spin it may be anything but a task.
    pub const fn waited_in(&self, space: Space) -> Option<Context> {
        match (space, self.kind) {
            (Space::Kernel, Kind::Spin | Kind::Rwlock | Kind::Unknown) => self.context,
            _ => Some(Context::Task),
        }
    }
}

/// How often and for how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Value {
    /// How many contended acquisitions.
    pub count: u64,
    /// Sum of their durations.
    pub total_ns: u64,
    /// The longest of them.
    pub max_ns: u64,
    /// The part of `total_ns` during which the waiter burned a CPU; the rest it slept. Of a run: the part that it ran itself; the
    /// rest is that of what it called and what is counted by itself (the timers of a softirq).
    pub spin_ns: u64,
}

impl Value {
    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Value) {
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.spin_ns = self.spin_ns.saturating_add(other.spin_ns);
    }

    /// The part of `total_ns` during which the waiter was asleep.
    pub const fn sleep_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.spin_ns)
    }

    /// Mean duration, 0 when nothing was counted.
    pub const fn mean_ns(&self) -> u64 {
        match self.total_ns.checked_div(self.count) {
            Some(mean_ns) => mean_ns,
            None => 0,
        }
    }
}

/// What the numbers of holds rest on, where not every hold was timed. Of what ran the same: there the totals hold only what was
/// timed, and a view scales them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HoldBasis {
    /// How many of the holds were counted and not timed: their time is an estimate, in proportion to those that were.
    pub untimed: u64,
    /// Of how many it was seen which thread acquired the lock next.
    pub watched: u64,
    /// How many times that was another.
    pub moved: u64,
    /// The variance of what the time of those not timed is estimated at, in square nanoseconds; 0 if it is not known. Estimates of groups are drawn apart
    /// from each other, so that theirs add up.
    pub variance_ns2: f64,
}

impl HoldBasis {
    /// Standard deviations about the mean of a normal distribution that hold 95 % of it.
    pub const OF_95_PERCENT: f64 = 1.96;

    /// Adds what another group rests on.
    pub fn merge(&mut self, other: &HoldBasis) {
        self.untimed = self.untimed.saturating_add(other.untimed);
        self.watched = self.watched.saturating_add(other.watched);
        self.moved = self.moved.saturating_add(other.moved);
        self.variance_ns2 += other.variance_ns2;
    }

    /// How far the time may be from the truth, either way, in 95 of 100 cases; `None` if that is not known.
    pub fn error_ns(&self) -> Option<u64> {
        let is_known = self.untimed == 0 || self.variance_ns2 > 0.0;
        is_known.then_some((Self::OF_95_PERCENT * self.variance_ns2.max(0.0).sqrt()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_exactly_the_durations_between_its_bounds() {
        for duration_ns in [0, 1, 2, 3, 4, 1023, 1024, 1025, u64::MAX] {
            let bucket = Bucket::of(duration_ns);
            assert!(bucket.lower_ns() <= duration_ns, "{duration_ns} ns lies below {bucket:?}");
            assert!(duration_ns < bucket.upper_ns() || bucket.0 == 63, "{duration_ns} ns lies above {bucket:?}");
        }
    }

    #[test]
    fn codes_and_names_read_back_as_the_value_they_were_made_from() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_code(kind.code()), Some(*kind));
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
    }
}
