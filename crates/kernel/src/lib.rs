//! lockmeter's kernel source: eBPF programs that meter lock contention, and their loader.
//!
//! One folder per collector, the `.bpf.c` beside its loader. [`contention`] counts every contended acquisition of a
//! kernel lock from the `lock:contention_begin/end` tracepoints and finds the blocker in `sched:sched_waking`; it needs
//! no function hooks, so it works on kernels that forbid them. [`futex`] counts the futex waits of running programs, which
//! are the waits for their own locks. [`latency`] times interrupts, timers and work items. [`probe`] tells what this kernel and these privileges
//! allow.

pub mod contention;
pub mod futex;
pub mod latency;
pub mod probe;
pub mod threads;

mod attaching;
mod cgroups;
mod clock;
#[cfg(test)]
mod codes;
mod comm;
mod confinement;
mod cost;
mod double_buffer;
mod error;
mod followed_processes;
mod hooks;
mod kernel_names;
mod libbpf_log;
mod lock_codes;
mod lock_shares;
mod lockdown;
mod peek;
mod spinning;
mod stack_budget;
mod switches;
mod thread_states;

pub use cgroups::{CgroupScope, CgroupTree};
pub use confinement::{Confinement, confinement_of};
pub use cost::online_cpus;
pub use error::{ErrorKind, KernelError, may_load_programs};
pub use hooks::{HookWay, HooksRefused, best_hooks, try_hooks};
pub use kernel_names::{SharedNames, prepare as prepare_kernel_names};
pub use lockmeter_symbols::SystemMap;
pub use peek::KernelReader;
