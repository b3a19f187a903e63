//! What the benches share: how they begin and end, their random order and priority, and where the preloaded library is.

mod preloaded_library;
pub mod priority;
mod program;
mod seed;

pub use preloaded_library::preloaded_library;
pub use program::{run, run_in_own_session};
pub use seed::SeedArguments;

/// A count, for rates and means.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub const fn as_f64(count: u64) -> f64 {
    count as f64
}
