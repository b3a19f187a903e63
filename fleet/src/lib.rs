//! Recordings of many machines as Parquet, and the questions about them. docs/reference/parquet.md describes the tables.

mod answer;
mod by;
mod diff;
mod export;
mod failure;
mod files;
mod fleet;
mod sample;
mod significance;
mod store;
mod tables;
mod top;
mod trend;
mod values;
mod window;
mod workload;

pub use answer::{Answer, Format};
pub use by::By;
pub use diff::diff;
pub use export::{Options, Written, export};
pub use failure::{Failure, say};
pub use fleet::Fleet;
pub use store::Store;
pub use top::{query, top};
pub use trend::trend;
pub use window::{Window, moment_ns};
pub use workload::WorkloadBy;
