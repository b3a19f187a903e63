//! What ran and kept CPUs from their tasks, as tables, JSON and CSV.

mod columns;
mod headline;
mod histogram;
mod json;
mod long_runs;
mod table;

pub use columns::{COLUMNS, LatencySortKey};
pub use headline::LatencyHeadline;
pub use table::LatencyTable;
pub(crate) use table::{about, foot};
