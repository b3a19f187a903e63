//! Every metric that the agent exports, once: its name, type, unit, meaning and labels. The reference page is checked against it.

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Only grows while the agent runs.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of durations by bucket; it only grows, too.
    Histogram,
}

impl Type {
    /// The word that expositions use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! catalog {
    ($($metric:ident = $kind:ident, $name:literal, $unit:literal, [$($label:literal),*], $help:literal;)+) => {
        /// A metric.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the help says what each is")]
        pub enum Metric { $($metric,)+ }

        impl Metric {
            /// All of them, in the order in which they are exported.
            pub const ALL: &'static [Self] = &[$(Self::$metric,)+];

            /// Its name as Prometheus text has it: that of a counter ends in `_total`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$metric => $name,)+ }
            }

            /// What it is.
            pub const fn kind(self) -> Type {
                match self { $(Self::$metric => Type::$kind,)+ }
            }

            /// Its unit; empty if it has none.
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$metric => $unit,)+ }
            }

            /// Its labels.
            pub const fn labels(self) -> &'static [&'static str] {
                match self { $(Self::$metric => &[$($label),*],)+ }
            }

            /// What it means.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$metric => $help,)+ }
            }
        }
    };
}

catalog! {
    LockWait = Histogram, "lockmeter_lock_wait_seconds", "seconds", ["lock", "space", "kind", "mode"],
        "Waits for a lock that have ended, from the first failed attempt to owning it.";
    LockSpin = Counter, "lockmeter_lock_spin_seconds_total", "seconds", ["lock", "space", "kind", "mode"],
        "The part of the waits during which the waiter used a CPU.";
    LockTimeouts = Counter, "lockmeter_lock_timeouts_total", "", ["lock", "space", "kind", "mode"],
        "Waits that ended because their time limit came first.";
    LockTimeoutWait = Counter, "lockmeter_lock_timeout_wait_seconds_total", "seconds", ["lock", "space", "kind", "mode"],
        "Time spent in waits that ended because their time limit came first.";
    LockHold = Histogram, "lockmeter_lock_hold_seconds", "seconds", ["lock", "space", "kind", "mode"],
        "Holds of a lock, from owning to releasing. Only with holds = true.";
    LockContendedHold = Histogram, "lockmeter_lock_contended_hold_seconds", "seconds", ["lock", "space", "kind", "mode"],
        "The parts of holds during which others waited. Only with holds = true.";
    Threads = Counter, "lockmeter_thread_seconds_total", "seconds", ["state", "reason"],
        "Time of all threads: running, runnable, blocked for a reason, or at rest.";
    WorkloadWaits = Counter, "lockmeter_workload_lock_waits_total", "", ["unit", "namespace", "pod", "container", "space"],
        "Waits for locks that have ended, by who waited. Only with workloads = true.";
    WorkloadWait = Counter, "lockmeter_workload_lock_wait_seconds_total", "seconds",
        ["unit", "namespace", "pod", "container", "space"],
        "Time spent in waits for locks that have ended, by who waited. Only with workloads = true.";
    OpenWaits = Gauge, "lockmeter_open_waits", "", ["space"],
        "Threads that waited for a lock when the last interval ended.";
    OldestOpenWait = Gauge, "lockmeter_oldest_open_wait_seconds", "seconds", ["space"],
        "Age of the oldest wait for a lock that had not ended when the last interval did.";
    Deadlocked = Gauge, "lockmeter_deadlocked_threads", "", [],
        "Threads that wait for each other in a circle, or for a lock whose holder has ended.";
    Interrupts = Counter, "lockmeter_interrupts_total", "", ["kind", "name"],
        "Runs of interrupt handlers, softirqs, tasklets, timers and work items.";
    InterruptTime = Counter, "lockmeter_interrupt_seconds_total", "seconds", ["kind", "name"],
        "Time of these runs, without the functions they called that have a series of their own.";
    Cpus = Gauge, "lockmeter_cpus", "", [], "CPUs that are online.";
    AgentInfo = Gauge, "lockmeter_agent_info", "", ["version", "kernel"], "Always 1; the labels say what runs.";
    AgentCpu = Counter, "lockmeter_agent_cpu_seconds_total", "seconds", ["part"],
        "CPU time of metering: of the agent's process, and of its programs in the kernel.";
    AgentMemory = Gauge, "lockmeter_agent_memory_bytes", "bytes", ["part"],
        "Memory of metering: of the agent's process without files, and of its tables in the kernel.";
    AgentBudgetUsed = Gauge, "lockmeter_agent_budget_used_ratio", "ratio", ["budget"],
        "How much of a budget is used; above 1 it is exceeded.";
    AgentDetail = Gauge, "lockmeter_agent_detail_metered", "", ["detail"],
        "1 while a detail that the configuration asks for is metered, 0 while it is shed.";
    AgentShed = Counter, "lockmeter_agent_details_shed_total", "", ["budget"],
        "How often a detail was shed to keep a budget.";
    AgentLost = Counter, "lockmeter_agent_lost_total", "", ["cause"],
        "Events, stacks and names that were lost, by cause.";
    AgentMerged = Counter, "lockmeter_agent_merged_total", "", ["into"],
        "Waits and holds counted in a series of several locks or workloads, because they had no series of their own.";
    AgentOwnWait = Counter, "lockmeter_agent_own_wait_seconds_total", "seconds", [],
        "Time that lockmeter itself waited for locks. It is in no other metric.";
    AgentIntervals = Counter, "lockmeter_agent_intervals_total", "", [], "Intervals metered.";
    AgentLastInterval = Gauge, "lockmeter_agent_last_interval_timestamp_seconds", "seconds", [],
        "When the last interval ended, in seconds since 1970.";
    AgentRecordings = Counter, "lockmeter_agent_recordings_total", "", ["trigger", "result"],
        "Recordings that triggers asked for: written, suppressed, or failed.";
    AgentRecorderKept = Gauge, "lockmeter_agent_recorder_kept_seconds", "seconds", [],
        "How far back the flight recorder has all detail.";
    AgentRecorderBytes = Gauge, "lockmeter_agent_recorder_memory_bytes", "bytes", [],
        "Memory that this detail takes, out of the process's memory.";
    AgentReloads = Counter, "lockmeter_agent_reloads_total", "", ["result"],
        "Reloads of the configuration, by result.";
    AgentRequests = Counter, "lockmeter_agent_http_requests_total", "", ["result"],
        "Requests to the agent's server, by how they ended.";
}
