//! Waits for `mmap_lock`, and its holds.

mod tracepoints;

pub use tracepoints::MmapTracepoints;
pub(super) use tracepoints::{attach, needed_tracepoints};
