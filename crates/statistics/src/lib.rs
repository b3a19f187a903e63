//! What measuring needs: random order, medians with their confidence interval, runs that others have not disturbed,
//! threads that begin together and stay on their CPUs, and the machine of a run.

pub mod cpus;
mod disturbances;
mod estimate;
mod machine;
mod random;
mod resource_usage;
mod threads_in_step;

pub use disturbances::{Disturbances, Patience};
pub use estimate::{Estimate, median};
pub use machine::Machine;
pub use random::Random;
pub use resource_usage::ResourceUsage;
pub use threads_in_step::{ThreadResults, ThreadsInStep};

/// `1 CPU`, `2 CPUs`.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
