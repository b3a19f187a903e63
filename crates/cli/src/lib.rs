//! What lockmeter's programs share at the command line: how they begin and end, what they say, where their output goes, and how
//! values are written.

pub mod completions;
pub mod durations;
pub mod exit;
pub mod manual_pages;
pub mod messages;
pub mod output;
mod program;
pub mod progress;
mod result_format;
pub mod swaps;
mod version;

pub use program::run;
pub use result_format::ResultFormat;
pub use version::long_version;
