//! What `lockmeter agent` exports: intervals become counters of bounded number, which a small server hands out as Prometheus text,
//! OpenMetrics or protobuf. Nothing here needs BPF or privileges.

pub mod identity;
pub mod metrics;
pub mod runtime_names;
pub mod server;
