//! What measuring needs: random order, medians with their confidence interval, runs that others have not disturbed or
//! hardly can, threads that begin together, and the machine of a run.

mod disturbances;
mod estimate;
mod machine;
pub mod priority;
mod resource_usage;
mod threads_in_step;

pub use disturbances::{Disturbances, Patience};
pub use estimate::{Estimate, Random, median};
pub use machine::Machine;
pub use resource_usage::ResourceUsage;
pub use threads_in_step::{Done, Together};

/// `1 CPU`, `2 CPUs`.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
