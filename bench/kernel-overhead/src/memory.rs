//! Kernel memory that metering takes.

use anyhow::{Context, Result};
use lockmeter_kernel::contention::table_bytes_per_cpu;
use serde::Serialize;

use crate::meters::{self, MeterName};
use crate::programs;

/// A machine large enough for "so much a CPU" to matter.
const LARGE_MACHINE_CPUS: usize = 256;

/// By the formula, and as the kernel accounts for it here.
#[derive(Debug, Clone, Serialize)]
pub struct Memory {
    pub bytes_per_cpu: usize,
    pub possible_cpus: usize,
    pub bytes_here: usize,
    pub large_machine_cpus: usize,
    pub bytes_on_large_machine: usize,
    /// The accounts of all maps of a running lockmeter, task storage apart: an element a task that ever slept on a lock.
    pub accounted_bytes_here: u64,
}

/// The formula, checked against the kernel's account.
pub fn measure() -> Result<Memory> {
    let bytes_per_cpu = table_bytes_per_cpu();
    let possible_cpus = libbpf_rs::num_possible_cpus().context("cannot find out how many CPUs there are")?;
    let before = programs::own_map_bytes();
    let source = meters::attach_lockmeter(MeterName::Default)?;
    let accounted_bytes_here = programs::own_map_bytes() - before;
    drop(source);
    Ok(Memory {
        bytes_per_cpu,
        possible_cpus,
        bytes_here: bytes_per_cpu * possible_cpus,
        large_machine_cpus: LARGE_MACHINE_CPUS,
        bytes_on_large_machine: bytes_per_cpu * LARGE_MACHINE_CPUS,
        accounted_bytes_here,
    })
}
