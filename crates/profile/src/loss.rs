//! Every way of losing data, counted.

use std::collections::BTreeMap;

use crate::sample::named_enum;

named_enum! {
    /// A way in which something measured was lost or is less certain than it looks.
    Loss {
        /// Waits counted under their lock but without task and cgroup: the table of tasks was full.
        TaskFolded = 1, "task_folded";
        /// Waits not counted at all: even the table of locks was full.
        TotalsFull = 2, "totals_full";
        /// Sampled stacks dropped because the table of samples was full.
        SamplesFull = 3, "samples_full";
        /// Stacks dropped because the table of stacks was full.
        StacksFull = 4, "stacks_full";
        /// Stacks deeper than the recorder keeps: the outermost frames are missing.
        StackTooDeep = 5, "stack_too_deep";
        /// Stacks that the kernel could not unwind.
        StackFailed = 6, "stack_failed";
        /// Stacks not taken because a burst had used up the budget (totals are not affected).
        OverBudget = 7, "over_budget";
        /// Waits whose begin was not seen (they began before the recording did).
        EndWithoutBegin = 8, "end_without_begin";
        /// Waits whose end was not seen although a later wait proves that they ended.
        BeginWithoutEnd = 9, "begin_without_end";
        /// Spinning waits nested deeper than the recorder follows.
        NestedTooDeep = 10, "nested_too_deep";
        /// Waits for which the kernel gave no task-local storage.
        NoTaskStorage = 11, "no_task_storage";
        /// Objects whose slab cache did not fit into the table of caches.
        CachesFull = 12, "caches_full";
        /// Events that came while the same program was already running on that CPU.
        ProgramRecursion = 13, "program_recursion";
        /// Waits still going on when the recording ended: they are not in the totals.
        Unfinished = 14, "unfinished";
        /// Intervals of the recording that could not be read.
        DamagedInterval = 15, "damaged_interval";
        /// Bytes at the end of the recording that belong to no whole interval.
        CutBytes = 16, "cut_bytes";
        /// Samples that name something their interval does not hold.
        DanglingReference = 17, "dangling_reference";
        /// Names and samples of a recording whose codes only a newer lockmeter knows.
        UnknownCode = 18, "unknown_code";
        /// Losses whose cause only a newer lockmeter knows.
        UnknownLoss = 19, "unknown_loss";
        /// Events of threads for which a program's segment had no room. Nothing counts these any more.
        UserThreadsFull = 20, "user_threads_full";
        /// Events of a program counted under their lock but without callers and blockers: the thread's table was full.
        UserSitesFull = 21, "user_sites_full";
        /// Events of a program not counted at all: the thread's table was full.
        UserSamplesFull = 22, "user_samples_full";
        /// Stacks of a program cut to the return address: the table of stacks was full.
        UserStacksFull = 23, "user_stacks_full";
        /// Stacks of a program that could not be followed to their end.
        UserStackFailed = 24, "user_stack_failed";
        /// Events of a program counted under "other locks": the table of locks was full.
        UserLocksFull = 25, "user_locks_full";
        /// Events in a signal handler that interrupted the recorder.
        UserInterrupted = 26, "user_interrupted";
        /// Holds not timed: the thread held more locks at a time than the recorder keeps.
        UserHeldTooMany = 27, "user_held_too_many";
        /// Releases of a program whose acquisition was not seen.
        UserReleaseUnmatched = 28, "user_release_unmatched";
        /// Addresses without names: the table of a program's modules was full.
        UserModulesFull = 29, "user_modules_full";
        /// Segments, or parts of them, that made no sense.
        UserSegmentDamaged = 30, "user_segment_damaged";
        /// Stacks of a running program dropped: the ring buffer was full.
        RingFull = 32, "ring_full";
        /// Waits of a running program on futexes of which no stack told what they are.
        FutexUntold = 33, "futex_untold";
        /// Stacks of a process that ended before its mappings could be read.
        ProcessGone = 34, "process_gone";
        /// Files of a program of which another build had taken the place: nothing in them is named.
        FileReplaced = 35, "file_replaced";
        /// Programs, or children of one, that could not report: no segment could be made, or the library was not to be found.
        UserChildUnmetered = 36, "user_child_unmetered";
        /// Files of a program whose symbols or unwind information are larger than lockmeter reads.
        FileReadInPart = 37, "file_read_in_part";
        /// Segments refused: what they say cannot have happened in that time, or is more than any program counts.
        UserSegmentImplausible = 38, "user_segment_implausible";
        /// Intervals that held more than a recording can hold of one.
        IntervalTooLarge = 39, "interval_too_large";
        /// Releases of a kernel lock whose acquisition was not seen.
        HoldUnmatched = 40, "hold_unmatched";
        /// Holds of a kernel lock whose release was not seen although a later acquisition proves it.
        HoldReleaseUnseen = 41, "hold_release_unseen";
        /// Holds of a kernel lock not timed: the table of locks held at the same time was full.
        HeldFull = 42, "held_full";
        /// Kernel locks still held when the recording ended.
        HoldUnfinished = 43, "hold_unfinished";
        /// Holds of a kernel lock that ended in an interrupt while the same CPU was counting another.
        HoldInterrupted = 44, "hold_interrupted";
        /// Kprobes that were hit while one was running already, or for whose function's return there was no place to wait.
        ProbeMissed = 45, "probe_missed";
        /// Programs executed by a metered one that must not be metered from inside: linked with a sanitizer, valgrind, or of another
        /// architecture or C library.
        UserIncompatible = 46, "user_incompatible";
        /// Runs not counted: the table of what ran was full.
        RunsFull = 48, "runs_full";
        /// Runs of which only the begin or the end was seen.
        RunUnpaired = 49, "run_unpaired";
        /// Runs still going on when the recording ended.
        RunUnfinished = 50, "run_unfinished";
        /// Runs of work items that nobody saw queued: they have no delay.
        QueueingNotSeen = 51, "queueing_not_seen";
        /// Long runs not listed one by one: more than fit between two drains.
        LongRunsFull = 52, "long_runs_full";
        /// Waits and holds of a program during which it was stopped by a signal: the time of the stop is not part of them.
        UserStopped = 53, "user_stopped";
        /// Programs executed by a metered one that did not begin with the library: linked statically, with privileges of their own, or
        /// confined.
        UserNotPreloaded = 54, "user_not_preloaded";
        /// Programs executed by a metered one with an environment that does not name lockmeter's library.
        UserOwnEnvironment = 55, "user_own_environment";
        /// Ticks of the recorder's that came late: long holds in a program that begin and end between two ticks are not seen as such.
        UserTickLate = 56, "user_tick_late";
        /// Threads whose time was not kept.
        ThreadsUntracked = 57, "threads_untracked";
        /// Threads whose last time is missing: too many ended at once.
        ThreadExitsLost = 58, "thread_exits_lost";
        /// Samples of what CPUs ran dropped: the ring buffer was full.
        RunSamplesLost = 62, "run_samples_lost";
        /// Recordings without samples of what CPUs ran, though they were asked for.
        CpusNotSampled = 63, "cpus_not_sampled";
        /// Waits for a program's spinlocks of which it is not known whether the threads had a CPU all the while: there is no time stamp
        /// counter to see it by.
        UserSpinUndivided = 61, "user_spin_undivided";
    }
}

impl Loss {
    /// What this many of them mean for the report, for people: begins with a noun, to stand behind the number.
    pub fn meaning(self, count: u64) -> String {
        let (one, many, rest) = self.words();
        format!("{}{rest}", if count == 1 { one } else { many })
    }

    /// One, several, and what of them.
    const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::TaskFolded => {
                ("wait", "waits", " counted without a task (too many tasks in one interval); lock totals are exact")
            }
            Self::TotalsFull => ("wait", "waits", " not counted (lock table full)"),
            Self::SamplesFull => ("stack", "stacks", " dropped (sample table full); totals are exact"),
            Self::StacksFull => ("stack", "stacks", " dropped (stack table full); totals are exact"),
            Self::StackTooDeep => ("stack", "stacks", " too deep: their outermost callers are missing"),
            Self::StackFailed => ("stack", "stacks", " the kernel could not unwind"),
            Self::OverBudget => ("stack", "stacks", " not taken in bursts (stack budget used up); totals are exact"),
            Self::EndWithoutBegin => ("wait", "waits", " that began before the recording: not counted"),
            Self::BeginWithoutEnd => ("wait", "waits", " whose end was not seen: not counted"),
            Self::NestedTooDeep => ("wait", "waits", " nested too deep in interrupts: not counted"),
            Self::NoTaskStorage => ("wait", "waits", " not counted (the kernel gave no memory for the task)"),
            Self::CachesFull => ("lock", "locks", " left unnamed (slab cache table full)"),
            Self::ProgramRecursion => {
                ("event", "events", " while another of lockmeter's eBPF programs ran: not counted")
            }
            Self::Unfinished => ("wait", "waits", " still going on at the end: not counted"),
            Self::DamagedInterval => ("damaged interval", "damaged intervals", " skipped"),
            Self::CutBytes => ("byte", "bytes", " of an unfinished interval at the end skipped"),
            Self::DanglingReference => ("sample", "samples", " with a missing name or stack"),
            Self::UnknownCode => ("name or sample", "names or samples", " that only a newer lockmeter can read"),
            Self::UnknownLoss => ("loss", "losses", " whose cause only a newer lockmeter can name"),
            Self::UserThreadsFull => ("event", "events", " in a program not counted (too many threads)"),
            Self::UserSitesFull => (
                "event",
                "events",
                " in a program counted without caller and blocker (a thread's table full or in use, or no memory ready for one); lock totals are exact",
            ),
            Self::UserSamplesFull => ("event", "events", " in a program not counted (a thread's table full)"),
            Self::UserStacksFull => ("stack", "stacks", " of a program cut to the return address (stack table full)"),
            Self::UserStackFailed => ("stack", "stacks", " of a program that could not be unwound to the end"),
            Self::UserLocksFull => ("event", "events", " in a program counted under \"other locks\" (lock table full)"),
            Self::UserInterrupted => (
                "event in a signal handler",
                "events in signal handlers",
                " that interrupted the recorder: not counted",
            ),
            Self::UserHeldTooMany => ("hold", "holds", " not timed (too many locks held at a time)"),
            Self::UserReleaseUnmatched => {
                ("release", "releases", " in a program whose acquisition was not seen: hold not counted")
            }
            Self::UserModulesFull => ("address", "addresses", " in a program left without a name (module table full)"),
            Self::UserSegmentDamaged => (
                "segment of a program, or part of one,",
                "segments of programs, or parts of them,",
                " with damaged contents: not counted",
            ),
            Self::UserSegmentImplausible => (
                "process",
                "processes",
                " with implausible records, which cannot have happened in that time: not counted",
            ),
            Self::IntervalTooLarge => (
                "interval",
                "intervals",
                " too large for a recording (too many locks, tasks and stacks): not counted; record a shorter --interval",
            ),
            Self::RingFull => ("stack", "stacks", " of a running program dropped (ring buffer full); totals are exact"),
            Self::FutexUntold => (
                "wait on a futex of unknown use, perhaps idle",
                "waits on futexes of unknown use, perhaps idle",
                ": shown only with --kind futex",
            ),
            Self::ProcessGone => ("stack", "stacks", " of a process that ended before its mappings could be read"),
            Self::FileReplaced => {
                ("file", "files", " of a program replaced by another build during the recording: no names from there")
            }
            Self::UserChildUnmetered => (
                "process",
                "processes",
                " of the program not metered: lockmeter's library or directory is out of reach (after chroot, in another mount namespace, or as \
                 another user), or no memory was left for its records",
            ),
            Self::UserIncompatible => (
                "program",
                "programs",
                " that the preloaded library would disturb, not metered from inside: linked with a sanitizer's shared runtime, run \
                 under valgrind, or of another architecture or C library; no holds of it, and waits only where lockmeter may look from outside",
            ),
            Self::FileReadInPart => (
                "file",
                "files",
                " of a program read in part (symbols or unwind information too large): names or callers may be missing there",
            ),
            Self::HoldUnmatched => (
                "release of a kernel lock",
                "releases of kernel locks",
                " whose acquisition was not seen: hold not counted",
            ),
            Self::HoldReleaseUnseen => {
                ("hold of a kernel lock", "holds of kernel locks", " whose release was not seen: not counted")
            }
            Self::HeldFull => {
                ("hold of a kernel lock", "holds of kernel locks", " not counted (too many held at a time)")
            }
            Self::HoldUnfinished => {
                ("kernel lock", "kernel locks", " still held when counting ended: hold not counted")
            }
            Self::HoldInterrupted => (
                "hold of a kernel lock",
                "holds of kernel locks",
                " that ended while another was being counted: not counted",
            ),
            Self::ProbeMissed => (
                "kprobe",
                "kprobes",
                " that the kernel skipped: these acquisitions and releases of kernel locks were not seen",
            ),
            Self::UserStopped => (
                "wait or hold",
                "waits and holds",
                " during which the program was stopped (SIGSTOP): the time of the stop is left out",
            ),
            Self::UserNotPreloaded => (
                "program",
                "programs",
                " not metered from inside: linked statically, with privileges of its own (setuid, setgid or file capabilities), or kept \
                 from lockmeter's library by the system's policy (SELinux, AppArmor); no holds of it, and waits only where lockmeter may look from outside (as root)",
            ),
            Self::UserOwnEnvironment => (
                "program",
                "programs",
                " not metered from inside: executed with an environment of its own (`env -i`, sudo, su), without lockmeter's library; no holds \
                 of it, and waits only where lockmeter may look from outside; put `lockmeter record --` after that command",
            ),
            Self::UserTickLate => (
                "tick of the recorder",
                "ticks of the recorder",
                " late by a millisecond or more: a long hold in a program may be counted with the mean length of that lock's holds",
            ),
            Self::ThreadsUntracked => {
                ("thread", "threads", " not in the threads' time: the kernel gave no memory for them")
            }
            Self::ThreadExitsLost => (
                "thread",
                "threads",
                " that ended in a burst: their time since the last reading is not in the threads' time",
            ),
            Self::RunSamplesLost => (
                "sample",
                "samples",
                " of what CPUs ran dropped (ring buffer full): the printed error (±) of spinning is larger",
            ),
            Self::CpusNotSampled => (
                "recording",
                "recordings",
                " without samples of what CPUs ran (the kernel refused them): programs' spinning is shown only where it is counted",
            ),
            Self::UserSpinUndivided => (
                "wait",
                "waits",
                " for a program's spinlock counted as spinning, though the thread may have been preempted: this machine's time stamp counter \
                 cannot be used",
            ),
            Self::RunsFull => ("run", "runs", " not counted (table of interrupts, timers and work items full)"),
            Self::RunUnpaired => {
                ("run", "runs", " of which only one end was seen (the other came before the recording): not counted")
            }
            Self::RunUnfinished => ("run", "runs", " still going on at the end: not counted"),
            Self::QueueingNotSeen => {
                ("work item", "work items", " whose queueing was not seen: counted without a delay")
            }
            Self::LongRunsFull => {
                ("long run", "long runs", " not listed one by one (too many at a time); totals are exact")
            }
        }
    }
}

/// How much was lost, by cause. Causes that never happened are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<Loss, u64>);

impl Losses {
    /// Counts `count` more losses of this cause.
    pub fn add(&mut self, loss: Loss, count: u64) {
        if count > 0 {
            let sum = self.0.entry(loss).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Takes back losses of this cause that were no losses after all.
    pub fn settle(&mut self, loss: Loss, count: u64) {
        if let Some(sum) = self.0.get_mut(&loss) {
            *sum = sum.saturating_sub(count);
            if *sum == 0 {
                self.0.remove(&loss);
            }
        }
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Losses) {
        for (loss, count) in other.iter() {
            self.add(loss, count);
        }
    }

    /// How often this cause occurred.
    pub fn get(&self, loss: Loss) -> u64 {
        self.0.get(&loss).copied().unwrap_or(0)
    }

    /// The causes that occurred, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        self.0.iter().map(|(loss, count)| (*loss, *count))
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loss_is_told_in_the_singular() {
        assert_eq!(Loss::EndWithoutBegin.meaning(1), "wait that began before the recording: not counted");
        assert_eq!(Loss::EndWithoutBegin.meaning(2), "waits that began before the recording: not counted");
        for loss in Loss::ALL {
            assert_ne!(loss.meaning(1), loss.meaning(2), "{loss}");
        }
    }
}
