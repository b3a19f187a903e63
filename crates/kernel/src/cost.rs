//! What the programs themselves cost.
//!
//! The kernel can time every run of every program, but timing costs more than a third of what it measures. So it is
//! switched on for a tenth of a second now and then, and the mean run time found there is multiplied by the number of
//! runs, which the programs count themselves. Stacks would spoil that mean, for how many are taken changes all the time;
//! the programs time each of them, so they are left out of it and added as measured.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Ticks between two timed slices; the first slice is the first tick.
const TICKS_BETWEEN_SLICES: u32 = 100;

/// The programs of a collector.
pub trait Programs<const N: usize> {
    /// In the order of the collector's `enum program`; `None` for those that are not loaded.
    fn programs(&self) -> [Option<BorrowedFd<'_>>; N];

    /// What they themselves measured of their stacks so far.
    fn stack_ns(&self) -> u64;
}

#[derive(Debug, Clone, Copy, Default)]
struct Runs {
    count: u64,
    time_ns: u64,
    misses: u64,
}

/// Keeps the account of the programs' run time.
pub struct ProgramCost<const N: usize> {
    ticks: u32,
    /// While a slice is being timed: the switch, and what the counters said when it began.
    slice: Option<Slice<N>>,
    timed: [Runs; N],
    /// The part of the timed run time that went into stacks.
    timed_stack_ns: u64,
}

struct Slice<const N: usize> {
    _switch: OwnedFd,
    runs: [Runs; N],
    stack_ns: u64,
}

impl<const N: usize> Slice<N> {
    fn begin(programs: &impl Programs<N>) -> Option<Self> {
        let switch = switch_on_statistics()?;
        Some(Self { _switch: switch, runs: runs(programs), stack_ns: programs.stack_ns() })
    }
}

impl<const N: usize> ProgramCost<N> {
    pub fn new(programs: &impl Programs<N>) -> Self {
        Self { ticks: 0, slice: Slice::begin(programs), timed: [Runs::default(); N], timed_stack_ns: 0 }
    }

    /// Ends a timed slice, or begins one when it is time.
    pub fn tick(&mut self, programs: &impl Programs<N>) {
        if self.slice.is_some() {
            (self.timed, self.timed_stack_ns) = self.timed_so_far(programs);
            self.slice = None;
        } else if self.ticks.is_multiple_of(TICKS_BETWEEN_SLICES) {
            self.slice = Slice::begin(programs);
        }
        self.ticks = self.ticks.wrapping_add(1);
    }

    /// The timed runs and the time of their stacks, with those of the slice that is being timed: a recording may end in its first.
    fn timed_so_far(&self, programs: &impl Programs<N>) -> ([Runs; N], u64) {
        let Some(slice) = &self.slice else { return (self.timed, self.timed_stack_ns) };
        let mut timed = self.timed;
        for ((sum, after), before) in timed.iter_mut().zip(runs(programs)).zip(slice.runs) {
            sum.count += after.count.saturating_sub(before.count);
            sum.time_ns += after.time_ns.saturating_sub(before.time_ns);
        }
        (timed, self.timed_stack_ns + programs.stack_ns().saturating_sub(slice.stack_ns))
    }

    /// What this many runs of the programs cost, with the stacks taken in them: these as measured, the rest by the mean of
    /// the timed runs.
    pub fn estimate_ns(&self, programs: &impl Programs<N>, runs: &[u64; N], stack_ns: u64) -> u64 {
        let (timed, timed_stack_ns) = self.timed_so_far(programs);
        let whole: u64 = runs.iter().zip(&timed).map(|(runs, timed)| scaled(timed.time_ns, *runs, timed.count)).sum();
        let timed_ns: u64 = timed.iter().map(|timed| timed.time_ns).sum();
        let without_stacks_ns = timed_ns.saturating_sub(timed_stack_ns);
        scaled(whole, without_stacks_ns, timed_ns) + stack_ns
    }
}

/// CPUs online on the machine, whatever this process may use of them.
pub fn online_cpus() -> u32 {
    // SAFETY: takes a constant and returns a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(cpus).unwrap_or(1).max(1)
}

/// `amount * part / whole`, 0 of nothing.
pub fn scaled(amount: u64, part: u64, whole: u64) -> u64 {
    match whole {
        0 => 0,
        _ => u64::try_from(u128::from(amount) * u128::from(part) / u128::from(whole)).unwrap_or(u64::MAX),
    }
}

/// Events that came while the same program was already running on that CPU, and so were not seen.
pub fn recursion_misses<const N: usize>(programs: &impl Programs<N>) -> u64 {
    runs(programs).iter().map(|runs| runs.misses).sum()
}

/// As [`recursion_misses`], of one program.
pub fn recursion_misses_of(program: BorrowedFd<'_>) -> u64 {
    runs_of(program).misses
}

/// As the kernel counts them for the kprobe or kretprobe behind a link; 0 where it does not, before Linux 6.7.
pub fn missed_by_probe(link: BorrowedFd<'_>) -> u64 {
    // SAFETY: all-zero is a valid value of this struct of integers and unions of such.
    let mut info: libbpf_sys::bpf_link_info = unsafe { std::mem::zeroed() };
    let mut length = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: writes at most `length` bytes to `info`, which is that long.
    let result = unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut length) };
    if result != 0 || info.type_ != libbpf_sys::BPF_LINK_TYPE_PERF_EVENT {
        return 0;
    }
    // SAFETY: what the kernel tells of a link on a perf event, by its type checked above; all of them are integers.
    let event = unsafe { info.__bindgen_anon_1.perf_event };
    match event.type_ {
        // SAFETY: the kernel fills this member for these two types.
        libbpf_sys::BPF_PERF_EVENT_KPROBE | libbpf_sys::BPF_PERF_EVENT_KRETPROBE => unsafe {
            event.__bindgen_anon_1.kprobe.missed
        },
        _ => 0,
    }
}

fn runs<const N: usize>(programs: &impl Programs<N>) -> [Runs; N] {
    programs.programs().map(|program| program.map_or_else(Runs::default, runs_of))
}

fn runs_of(program: BorrowedFd<'_>) -> Runs {
    // SAFETY: all-zero is a valid value of this struct of integers.
    let mut info: libbpf_sys::bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut length = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: writes at most `length` bytes to `info`, which is that long.
    let result =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut length) };
    if result == 0 {
        Runs { count: info.run_cnt, time_ns: info.run_time_ns, misses: info.recursion_misses }
    } else {
        Runs::default()
    }
}

/// Times every program on the machine until the descriptor is closed. `None` where the kernel refuses.
fn switch_on_statistics() -> Option<OwnedFd> {
    // SAFETY: takes an integer and returns a new descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    // SAFETY: a descriptor just opened, owned by nobody else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
