//! What metering costs a workload, and the published experiments, as commands that anyone can repeat. One file, or folder, an
//! experiment.

mod arithmetic;
pub mod breakpoint;
mod cache_padded;
pub mod contention;
pub mod fork_mail;
pub mod fork_tree;
pub mod kernel_waits;
pub mod locks_under_test;
pub mod mixed;
pub mod overhead;
pub mod processes;
pub mod pthread_locks;
pub mod published;
pub mod step_by_step;
pub mod step_costs;
pub mod work_folder;
