//! What metering costs a workload, and the published experiments, as commands that anyone can repeat. One file an experiment.

pub mod overhead;
