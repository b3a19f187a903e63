//! From intervals to metrics, and from metrics to the forms that scrapers read.

mod catalog;
mod distribution;
mod exposition;
mod family;
mod protobuf;
mod store;
mod top_locks;

pub use catalog::{Metric, Type};
pub use exposition::{Format, encode, negotiate};
pub use family::{Exemplar, Family, Labels, Sample, Value};
pub use store::{AgentState, Limits, LockKey, Store};
