//! Recordings as Parquet. docs/reference/parquet.md describes the tables.

mod export;
mod failure;
mod sample;
mod store;
mod tables;
mod workload;

pub use export::{Options, Written, export};
pub use failure::{Failure, say};
pub use workload::WorkloadBy;
