//! What measuring needs: random order, medians with their confidence interval, and the machine of a run.

mod estimate;
mod machine;

pub use estimate::{Estimate, Random};
pub use machine::Machine;
