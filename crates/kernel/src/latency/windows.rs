//! Timing only now and then what comes so often that timing all of it would cost too much.
//!
//! On a CPU with hundreds of thousands of softirqs a second, already an empty program on each of their tracepoints costs a tenth
//! of its time, so what is not to be timed must not be hooked at all. A thread looks how often the programs run. Where that takes
//! more than its share of the busiest CPU's time, it detaches them, and attaches them again for windows of some milliseconds,
//! at random, so long and so often that the share is kept. How many there were in between, the kernel counts itself.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::programs::{PROGRAMS, Windowed, WindowedProgram};
use super::tables::runs_by_cpu;
use crate::error::{ErrorKind, KernelError};

/// What a run of a program takes of a CPU all together: the program, the way into it, what it pushes out of caches. Measured were 88
/// (docs/results/latency.md); slower machines need some more.
const RUN_NS: u64 = 140;

/// What it takes of every CPU to attach and detach the programs of one kind: the kernel patches its code, and interrupts them for
/// it some dozens of times.
const SWITCH_NS: u64 = 1_000_000;

/// How long to look before the first verdict.
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// How often to look whether what is timed all the time still may be, and how often where it takes less than a part of its budget: a look
/// at a machine at rest would be more expensive than what it looks at.
const LOOK: Duration = Duration::from_millis(100);
const CALM_LOOK: Duration = Duration::from_secs(1);
const CALM_PART: u64 = 8;

/// From the beginning of a window to that of the next, about.
const PERIOD: Duration = Duration::from_millis(500);

/// A window shorter than that would mostly be its edges.
const SHORTEST: Duration = Duration::from_millis(4);

/// However expensive a window was, the next is not farther away than this.
const LONGEST_GAP: Duration = Duration::from_secs(1);

/// How long a run that has begun in a window may take to end in it.
const GRACE: Duration = Duration::from_millis(1);

/// `enum window_state` in `tables.h`.
const OPEN: u32 = 1;
const CLOSING: u32 = 2;
const STATE_BITS: u32 = 2;

/// `windows` in `state.bpf.h`: what is timed always, and then each of [`Windowed`].
const STATES: usize = Windowed::ALL.len() + 1;

/// In millionths of the busiest CPU's time.
const fn budget_ppm(windowed: Windowed) -> u64 {
    match windowed {
        Windowed::Softirqs => 3_000,
        Windowed::Vectors | Windowed::Irqs => 1_500,
    }
}

/// Which of [`Windowed::ALL`].
pub type Each<T> = [T; Windowed::ALL.len()];

/// The thread that opens and closes windows. Dropping it detaches everything.
pub struct Windows {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stopped: bool,
    open: Each<bool>,
    /// Since this was last asked for.
    interrupted: Each<bool>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Windows {
    /// Attaches the programs. Unless `every` run is to be timed, whatever it costs, looks after what they take.
    pub fn open(
        programs: Vec<WindowedProgram>,
        states: MapHandle,
        counters: MapHandle,
        every: bool,
    ) -> Result<Self, KernelError> {
        let shared = Arc::new(Shared::default());
        let mut keeper = Keeper::new(programs, states, counters, Arc::clone(&shared));
        for kind in &mut keeper.kinds {
            kind.attach()?;
            shared.state().open[kind.at()] = true;
        }
        let keeper = thread::Builder::new().name("lockmeter-windows".to_owned()).spawn(move || keeper.run(every));
        let keeper =
            keeper.map_err(|error| KernelError::new(ErrorKind::Refused, format!("cannot start a thread: {error}")))?;
        Ok(Self { shared, keeper: Some(keeper) })
    }

    /// What was not timed all the time since this was last asked.
    pub fn interrupted(&self) -> Each<bool> {
        let mut state = self.shared.state();
        let shut = state.open.map(|open| !open);
        std::mem::replace(&mut state.interrupted, shut)
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_all();
        if let Some(keeper) = self.keeper.take() {
            // It panics nowhere; should it, its links are gone all the same.
            let _ = keeper.join();
        }
    }
}

struct Keeper {
    kinds: Vec<KindOfRuns>,
    states: MapHandle,
    words: [u32; STATES],
    counters: MapHandle,
    shared: Arc<Shared>,
}

/// What is opened and closed together.
struct KindOfRuns {
    windowed: Windowed,
    programs: Vec<WindowedProgram>,
    links: Vec<OwnedFd>,
    /// When the programs were attached, or last looked at, and how often they had run by then.
    since: Instant,
    runs: Vec<u64>,
    /// When to do something about it.
    due: Instant,
    /// How long the next window is to be.
    length: Duration,
}

impl KindOfRuns {
    const fn at(&self) -> usize {
        self.windowed as usize - 1
    }

    /// Ends before begins, so that every begin has its end.
    fn attach(&mut self) -> Result<(), KernelError> {
        self.since = Instant::now();
        self.programs.sort_by_key(|program| program.begins);
        for program in &self.programs {
            // SAFETY: takes no name, for the program was loaded for its tracepoint, and a descriptor that is open.
            let fd = unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.program.as_raw_fd()) };
            if fd < 0 {
                self.links.clear();
                let error = std::io::Error::from_raw_os_error(-fd);
                let message = format!("cannot attach to {}: {error}", program.tracepoint);
                return Err(KernelError::new(ErrorKind::Refused, message));
            }
            // SAFETY: a descriptor just opened, owned by nobody else.
            self.links.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(())
    }

    /// On each CPU, how often its programs ran.
    fn counted(&self, by_cpu: &[[u64; PROGRAMS]]) -> Vec<u64> {
        by_cpu.iter().map(|runs| self.programs.iter().map(|program| runs[program.at]).sum()).collect()
    }
}

impl Keeper {
    fn new(programs: Vec<WindowedProgram>, states: MapHandle, counters: MapHandle, shared: Arc<Shared>) -> Self {
        let now = Instant::now();
        let mut kinds: Vec<KindOfRuns> = Windowed::ALL
            .into_iter()
            .map(|windowed| KindOfRuns {
                windowed,
                programs: Vec::new(),
                links: Vec::new(),
                since: now,
                runs: Vec::new(),
                due: now + FIRST_LOOK,
                length: FIRST_LOOK,
            })
            .collect();
        for program in programs {
            kinds[program.windowed as usize - 1].programs.push(program);
        }
        kinds.retain(|kind| !kind.programs.is_empty());
        Self { kinds, states, words: [OPEN; STATES], counters, shared }
    }

    fn run(mut self, every: bool) {
        loop {
            let due = self.kinds.iter().map(|kind| kind.due).min().filter(|_| !every);
            if self.stopped_before(due) {
                return;
            }
            let now = Instant::now();
            let by_cpu = runs_by_cpu(&self.counters).unwrap_or_default();
            for at in 0..self.kinds.len() {
                if self.kinds[at].due > now {
                    continue;
                }
                if self.kinds[at].links.is_empty() {
                    self.open(at, &by_cpu);
                } else {
                    self.look(at, now, &by_cpu);
                }
            }
        }
    }

    /// Waits until something is due, forever if nothing ever is, and tells whether to stop.
    fn stopped_before(&self, due: Option<Instant>) -> bool {
        let mut state = self.shared.state();
        while !state.stopped {
            let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
            state = match wait {
                Some(Duration::ZERO) => return false,
                Some(wait) => self.shared.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
                None => self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        true
    }

    /// What is shut and fails to open again stays so for a while; the kernel counts it meanwhile.
    fn open(&mut self, at: usize, by_cpu: &[[u64; PROGRAMS]]) {
        let kind = &mut self.kinds[at];
        kind.runs = kind.counted(by_cpu);
        if kind.attach().is_err() {
            kind.due = Instant::now() + PERIOD;
            return;
        }
        kind.due = Instant::now() + kind.length;
        let number = (self.words[kind.windowed as usize] >> STATE_BITS) + 1;
        self.tell(at, number << STATE_BITS | OPEN);
        let at = self.kinds[at].at();
        self.shared.state().open[at] = true;
    }

    /// Is what these programs took within the budget? Closes the window if not, and says when the next is due.
    fn look(&mut self, at: usize, now: Instant, by_cpu: &[[u64; PROGRAMS]]) {
        let kind = &mut self.kinds[at];
        let runs = kind.counted(by_cpu);
        let ran = runs.iter().zip(kind.runs.iter().chain(std::iter::repeat(&0)));
        let busiest = ran.map(|(after, before)| after.saturating_sub(*before)).max().unwrap_or(0);
        let elapsed = now - kind.since;
        let allowed_ppm = budget_ppm(kind.windowed);
        if within(busiest * RUN_NS, elapsed, allowed_ppm) {
            let is_calm = within(busiest * RUN_NS * CALM_PART, elapsed, allowed_ppm);
            // All by the same clock, so that one look is enough for all.
            (kind.runs, kind.since, kind.due) = (runs, now, now + if is_calm { CALM_LOOK } else { LOOK });
            return;
        }
        let next = next_window(busiest * RUN_NS, elapsed, allowed_ppm);
        kind.length = next.length;
        kind.due = Instant::now() + next.gap.mul_f64(0.5 + random_share());
        self.close(at);
    }

    fn close(&mut self, at: usize) {
        {
            let mut state = self.shared.state();
            state.interrupted[self.kinds[at].at()] = true;
            state.open[self.kinds[at].at()] = false;
        }
        let number = self.words[self.kinds[at].windowed as usize] >> STATE_BITS;
        self.tell(at, number << STATE_BITS | CLOSING);
        thread::sleep(GRACE);
        self.tell(at, number << STATE_BITS);
        self.kinds[at].links.clear();
    }

    /// Tells the programs of a window's state.
    fn tell(&mut self, at: usize, word: u32) {
        self.words[self.kinds[at].windowed as usize] = word;
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // The map is there and has one value of this length, so this cannot fail.
        let told = self.states.update(&0_u32.to_ne_bytes(), &bytes, MapFlags::ANY);
        debug_assert!(told.is_ok(), "{told:?}");
    }
}

/// Whether so much work in that time is within a share of it.
fn within(work_ns: u64, elapsed: Duration, allowed_ppm: u64) -> bool {
    u128::from(work_ns) * 1_000_000 <= elapsed.as_nanos() * u128::from(allowed_ppm)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NextWindow {
    gap: Duration,
    length: Duration,
}

/// What keeps the budget after a window in which the programs took `work_ns`: how long to wait, and how long the next may be.
fn next_window(work_ns: u64, elapsed: Duration, allowed_ppm: u64) -> NextWindow {
    let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).max(1);
    let paid_ns = (work_ns + SWITCH_NS).saturating_mul(1_000_000) / allowed_ppm;
    let gap = Duration::from_nanos(paid_ns.saturating_sub(elapsed_ns)).min(LONGEST_GAP);
    let share_ppm = u128::from(work_ns.max(1)) * 1_000_000 / u128::from(elapsed_ns);
    let period_ns = PERIOD.as_nanos();
    let length_ns = period_ns * u128::from(allowed_ppm) / share_ppm.max(u128::from(allowed_ppm));
    let length = Duration::from_nanos(u64::try_from(length_ns).unwrap_or(u64::MAX)).clamp(SHORTEST, LOOK);
    NextWindow { gap, length }
}

/// From 0 to 1, so that no load that repeats itself keeps in step with the windows.
fn random_share() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_takes_less_than_its_budget_is_timed_all_the_time() {
        assert!(within(40_000, 10 * MS, 4_000));
        assert!(!within(41_000, 10 * MS, 4_000));
    }

    #[test]
    fn windows_and_gaps_keep_the_budget() {
        // 13 % of a CPU while attached.
        let next = next_window(1_300_000, 10 * MS, 4_000);
        let cost_ns = (1_300_000 + SWITCH_NS) as f64;
        let share = cost_ns / (10 * MS + next.gap).as_nanos() as f64;
        assert!((0.003_9..0.004_1).contains(&share), "{share}");
        assert!((15 * MS..16 * MS).contains(&next.length), "{next:?}");
    }

    #[test]
    fn a_window_is_never_shorter_than_worth_its_switching() {
        let next = next_window(9_000_000, 10 * MS, 2_000);
        assert_eq!(next.length, SHORTEST);
        assert_eq!(next_window(u64::from(u32::MAX), 10 * MS, 2_000).gap, LONGEST_GAP);
    }

    #[test]
    fn the_states_are_those_of_the_programs() {
        let tables = include_str!("tables.h");
        let states = tables.split("enum window_state {").nth(1).expect("the states are declared");
        let order: Vec<usize> =
            ["WINDOW_SHUT", "WINDOW_OPEN", "WINDOW_CLOSING"].iter().filter_map(|state| states.find(state)).collect();
        assert!(order.len() == 3 && order.is_sorted(), "{order:?}");
        assert!(tables.contains(&format!("#define WINDOW_BITS {STATE_BITS}")));
    }
}
