//! What lockmeter's programs share at the command line: how they begin and end, what they say, where their output goes, and how
//! values are written.

pub mod durations;
pub mod exit;
pub mod messages;
pub mod output;
mod program;
pub mod progress;
mod result_format;
pub mod swaps;

pub use program::run;
pub use result_format::ResultFormat;
