//! How often and how long this process's BPF programs ran, as the kernel counts it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{FromRawFd, OwnedFd};

use anyhow::{Result, bail};
use bench_harness::as_f64;
use libbpf_rs::query::ProgInfoIter;

/// Runs of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Runs {
    /// How many.
    pub count: u64,
    /// How long, all together.
    pub time_ns: u64,
}

/// Runs of this process's programs by name. They grow only while statistics are on.
pub fn own() -> BTreeMap<String, Runs> {
    let own = own_ids();
    ProgInfoIter::default()
        .filter(|program| own.contains(&program.id))
        .map(|program| {
            let runs = Runs { count: program.run_cnt, time_ns: program.run_time_ns };
            (program.name.to_string_lossy().into_owned(), runs)
        })
        .collect()
}

impl Runs {
    /// The mean of a run; 0 of none.
    pub fn mean_ns(self) -> f64 {
        as_f64(self.time_ns) / as_f64(self.count.max(1))
    }
}

impl std::ops::Sub for Runs {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { count: self.count - earlier.count, time_ns: self.time_ns - earlier.time_ns }
    }
}

/// What ran between two looks.
pub fn between(before: &BTreeMap<String, Runs>, after: &BTreeMap<String, Runs>) -> BTreeMap<String, Runs> {
    let ran = after.iter().map(|(name, after)| (name.clone(), *after - before.get(name).copied().unwrap_or_default()));
    ran.collect()
}

fn own_ids() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path()).ok()?;
            text.contains("prog_jited:").then_some(())?;
            text.lines().find_map(|line| line.strip_prefix("prog_id:"))?.trim().parse().ok()
        })
        .collect()
}

/// Times every program on the machine until it is dropped.
pub fn switch_on_statistics() -> Result<OwnedFd> {
    // SAFETY: takes an integer and returns a new descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        let error = std::io::Error::from_raw_os_error(-fd);
        bail!("cannot switch on BPF statistics ({error}): run as root, or with the capability CAP_SYS_ADMIN");
    }
    // SAFETY: a descriptor just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_subtract_part_by_part_and_have_a_mean() {
        let ran = Runs { count: 10, time_ns: 900 } - Runs { count: 4, time_ns: 300 };
        assert_eq!(ran, Runs { count: 6, time_ns: 600 });
        assert!((ran.mean_ns() - 100.0).abs() < 1e-9);
        assert!(Runs::default().mean_ns().abs() < 1e-9);
    }
}
