//! What the programs themselves cost.
//!
//! The kernel can time every run of every program, but timing costs more than a third of what it measures. So it is
//! switched on for a tenth of a second now and then, and the mean run time found there is multiplied by the number of
//! runs, which the programs count themselves.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::skeleton::ContentionSkel;

/// Ticks between two timed slices; the first slice is the first tick.
const TICKS_BETWEEN_SLICES: u32 = 100;

/// Programs, in the order of `enum program` in `contention.h`.
const PROGRAMS: usize = 3;

#[derive(Debug, Clone, Copy, Default)]
struct Runs {
    count: u64,
    time_ns: u64,
    misses: u64,
}

/// Keeps the account of the programs' run time.
pub struct ProgramCost {
    ticks: u32,
    /// While a slice is being timed: the switch, and what the counters said when it began.
    slice: Option<(OwnedFd, [Runs; PROGRAMS])>,
    timed: [Runs; PROGRAMS],
}

impl ProgramCost {
    pub fn new(skeleton: &ContentionSkel<'_>) -> Self {
        let slice = switch_on_statistics().map(|switch| (switch, runs(skeleton)));
        Self { ticks: 0, slice, timed: [Runs::default(); PROGRAMS] }
    }

    /// Ends a timed slice, or begins one when it is time.
    pub fn tick(&mut self, skeleton: &ContentionSkel<'_>) {
        if let Some((switch, before)) = self.slice.take() {
            for ((sum, after), before) in self.timed.iter_mut().zip(runs(skeleton)).zip(before) {
                sum.count += after.count - before.count;
                sum.time_ns += after.time_ns - before.time_ns;
            }
            drop(switch);
        } else if self.ticks % TICKS_BETWEEN_SLICES == 0 {
            self.slice = switch_on_statistics().map(|switch| (switch, runs(skeleton)));
        }
        self.ticks = self.ticks.wrapping_add(1);
    }

    /// What so many runs of each program cost, by the mean of the timed ones.
    pub fn estimate_ns(&self, runs: &[u64; PROGRAMS]) -> u64 {
        let cost = |(runs, timed): (&u64, &Runs)| match timed.count {
            0 => 0,
            count => u64::try_from(u128::from(*runs) * u128::from(timed.time_ns) / u128::from(count)).unwrap_or(u64::MAX),
        };
        runs.iter().zip(&self.timed).map(cost).sum()
    }
}

/// Events that came while the same program was already running on that CPU, and so were not seen.
pub fn recursion_misses(skeleton: &ContentionSkel<'_>) -> u64 {
    runs(skeleton).iter().map(|runs| runs.misses).sum()
}

fn runs(skeleton: &ContentionSkel<'_>) -> [Runs; PROGRAMS] {
    let programs = &skeleton.progs;
    [programs.contention_begin.as_fd(), programs.contention_end.as_fd(), programs.sched_waking.as_fd()].map(|program| {
        // SAFETY: all-zero is a valid value of this struct of integers.
        let mut info: libbpf_sys::bpf_prog_info = unsafe { std::mem::zeroed() };
        let mut length = u32::try_from(size_of_val(&info)).unwrap_or(0);
        // SAFETY: writes at most `length` bytes to `info`, which is that long.
        let result = unsafe {
            libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut length)
        };
        if result == 0 {
            Runs { count: info.run_cnt, time_ns: info.run_time_ns, misses: info.recursion_misses }
        } else {
            Runs::default()
        }
    })
}

/// Times every program on the machine until the descriptor is closed. `None` where the kernel refuses.
fn switch_on_statistics() -> Option<OwnedFd> {
    // SAFETY: takes an integer and returns a new descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    // SAFETY: a descriptor just opened, owned by nobody else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
