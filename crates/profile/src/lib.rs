//! lockmeter's data model.
//!
//! Everything that is measured, anywhere, is a *sample*: a key that says what happened to whom, and a value that says
//! how often and for how long. Sources produce [`Interval`]s, the [`recording`] file stores them, a [`view`] groups them
//! into a [`Report`], a [`diff`] compares two, and sinks show it. This crate knows no operating system.
//!
//! All durations are integers in nanoseconds and their names end in `_ns`.

pub mod diff;
mod filesystem;
mod has_half;
mod interval;
mod interval_clock;
pub mod latency;
mod lengths;
mod limits;
mod lock;
pub mod lock_functions;
mod loss;
pub mod merge;
mod own_cpu;
mod quantile;
pub mod recording;
mod report;
pub mod rules;
mod sample;
mod slow_hold;
mod source;
mod swap;
mod switched_off;
mod system_call;
mod thread_time;
pub mod view;

pub use filesystem::{Filesystem, OfFilesystem};
pub use has_half::has_half;
pub use interval::{
    Basis, Blocker, BlockerSource, Cgroup, CgroupId, FilesystemId, Frame, FrameId, Interval, LockId, LongRun, Overhead,
    Root, RunWait, Sampled, StackId, Tables, Task, TaskId, Total,
};
pub use interval_clock::{IntervalClock, unix_now_ns};
pub use lengths::Lengths;
pub use limits::{Limits, TooLarge};
pub use lock::{Lock, Naming, Space, Unnamed};
pub use loss::{Loss, Losses};
pub use own_cpu::OwnCpu;
pub use report::{
    About, ChainLink, Dimension, Goroutines, OpenWaitRow, ParkedTime, RecordingKind, Report, Row, RowBlocker,
    RowHolder, RowRoot, RowTask, RowWaker, SampledSpin, SleepRow, SlowHoldRow, SpinRow, Spinning, StateTime,
    ThreadsReport, TimedOut, UNKNOWN_FILESYSTEM, Worst,
};
pub use sample::{Bucket, Context, Happened, HoldBasis, Key, Kind, Mode, Value};
pub use slow_hold::{HolderTime, NextLock, SlowHold};
pub use source::Source;
pub use swap::{Swap, Swaps};
pub use switched_off::{OffTime, SwitchedOff};
pub use system_call::SystemCall;
pub use thread_time::{
    HolderState, LockHolder, OpenWait, Parked, SampledWait, Sleep, Spin, SpinLoop, ThreadActivity, ThreadState,
    ThreadTime,
};

/// The README's example, which tests run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
