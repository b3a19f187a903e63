//! What single steps of waiting for a lock cost on this machine: lines that move between CPUs, futex calls, sleepers woken.
//!
//! Each is measured alone, by two threads that do nothing else. They are what the simulation of locks is told.

use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockmeter_statistics::{Random, cpus, median};

use crate::step_by_step::{Costs, Wake, shortest_sleep_first};

/// Calls of which the middle one counts.
const CALLS: usize = 2_001;
/// Spans of turns that two threads take.
const SPANS: usize = 301;
/// Sleepers woken at each length of sleep, in one look.
const WAKES: usize = 20;
/// Sleepers woken whose CPU has another thread. Each may take several slices.
const BUSY_WAKES: usize = 24;
const BUSY_ASLEEP_NS: u64 = 3_000;
/// From a sleeper that is still on its way to one whose CPU has long gone idle. What waking costs changes within a tenth of a microsecond, from
/// 2 to 9 and back to 1 in the first two, as the sleeper's CPU goes from one step to the next.
const ASLEEP_NS: [u64; 31] = [
    0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000, 1_100, 1_200, 1_300, 1_400, 1_500, 1_600, 1_700, 1_800,
    1_900, 2_000, 2_200, 2_400, 2_700, 3_000, 4_000, 5_000, 6_000, 9_000, 15_000, 40_000,
];
/// Between two sleeps the sleeper is at work for up to so long.
const LONGEST_COMPUTING_NS: usize = 30_000;
/// Any.
const SEED: u64 = 1;
/// How long two threads share a CPU, to see how they take turns.
const SHARING: Duration = Duration::from_millis(60);
/// A thread that does not see the clock for so long was not running.
const NOT_RUNNING_NS: u64 = 100_000;
/// Longer than any wake-up takes: who waits for so long gives up, or the machine would hang.
const LOST_NS: u64 = 100_000_000;
/// How long after threads were made a CPU goes to sleep as it does later: until the kernel has put away what ended threads left (RCU callbacks), an
/// idle CPU keeps its tick and is back at once; then it stops the tick first, which takes it 10 µs.
pub const SETTLING: Duration = Duration::from_millis(80);
/// This many wake-ups that came to nothing are enough to see that others have the CPUs.
const MOST_LOST: usize = 10;

/// All of them, but for what changes from one second to the next: what the data of a lock costs where another CPU changed it (see
/// [`passing`](crate::breakpoint::race::passing)), and [`wakes`].
pub fn measure() -> Costs {
    let word = AtomicU32::new(1);
    let nobody_ns = call_ns(|| futex_wake(&word));
    Costs {
        line_ns: line_ns(median(turns_ns(|_, _| {}, SPANS))),
        moved_ns: 0.0,
        pause_ns: pause_ns(),
        refused_ns: call_ns(|| futex_wait(&word, 0)),
        nobody_ns,
        switch_ns: (turn_on_one_cpu_ns() - nobody_ns).max(0.0),
        slice_ns: slice_ns(),
        wakes: Vec::new(),
        busy_wakes: wakes_of_pairs(BUSY_WAKES, &[BUSY_ASLEEP_NS], true),
    }
}

/// The middle one of many calls, the clock's own time taken off.
fn call_ns<T>(call: impl Fn() -> T) -> f64 {
    let call: &dyn Fn() = &|| {
        std::hint::black_box(call());
    };
    middle_of_calls(call).saturating_sub(middle_of_calls(&|| {})).as_secs_f64() * 1e9
}

fn middle_of_calls(call: &dyn Fn()) -> Duration {
    let mut took = [Duration::ZERO; CALLS];
    for took in &mut took {
        let begin = Instant::now();
        call();
        *took = begin.elapsed();
    }
    took.sort_unstable();
    took[CALLS / 2]
}

fn pause_ns() -> f64 {
    const PAUSES: u32 = 1_000;
    call_ns(|| (0..PAUSES).for_each(|_| spin_loop())) / f64::from(PAUSES)
}

/// What an atomic instruction takes on a line that another CPU wrote last, by the time of a turn in which nothing is done: the next one reads
/// the line from the other's cache, and its write takes it away from there.
pub fn line_ns(empty_turn_ns: f64) -> f64 {
    empty_turn_ns / 2.0
}

/// Two threads take turns, each told by a word that the other writes: the mean time of a turn in which `work` runs, span after span. It is told
/// the numbers of the thread and of the span. In some of many short spans one of the two has no CPU.
pub fn turns_ns(work: impl Fn(usize, usize) + Sync, spans: usize) -> Vec<f64> {
    const TURNS: u32 = 32;
    let turn = AtomicU32::new(0);
    let take_turns = |own: u32| {
        let mut took = Vec::with_capacity(spans);
        for span in 0..spans {
            let begin = Instant::now();
            for _ in 0..TURNS {
                let mut now = turn.load(Ordering::Acquire);
                while now % 2 != own {
                    spin_loop();
                    now = turn.load(Ordering::Acquire);
                }
                work(own as usize, span);
                turn.store(now.wrapping_add(1), Ordering::Release);
            }
            took.push(begin.elapsed());
        }
        took
    };
    let took = std::thread::scope(|scope| {
        scope.spawn(|| {
            cpus::stay_on(1);
            take_turns(1)
        });
        scope
            .spawn(|| {
                cpus::stay_on(0);
                take_turns(0)
            })
            .join()
            .unwrap_or_default()
    });
    took.iter().map(|took| took.as_secs_f64() * 1e9 / f64::from(TURNS) / 2.0).collect()
}

/// A sleeper and its waker on CPUs of their own.
struct Pair {
    since: Instant,
    /// [`MAY_SLEEP`], or the sleeper is not to sleep any more.
    word: AtomicU32,
    /// Which round the sleeper is to begin; [`OVER`] ends it.
    round: AtomicU64,
    /// When the sleeper calls, and when it was back; 0 for not yet.
    called_ns: AtomicU64,
    back_ns: AtomicU64,
    /// Starts the thread that computes on the sleeper's CPU.
    busy_thread: Barrier,
}

const OVER: u64 = u64::MAX;
const MAY_SLEEP: u32 = 1;
/// The sleeper says so long before that it will call: by then the line on which it says so is not on its way any more, and the call does not
/// wait for it.
const ANNOUNCED_NS: u64 = 500;

impl Pair {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            word: AtomicU32::new(MAY_SLEEP),
            round: AtomicU64::new(0),
            called_ns: AtomicU64::new(0),
            back_ns: AtomicU64::new(0),
            busy_thread: Barrier::new(2),
        }
    }

    /// Has the thread beside the sleeper compute from now on, and waits until it does.
    fn start_busy_thread(&self) {
        self.busy_thread.wait();
        self.busy_thread.wait();
    }

    /// Computes until the rounds are over. Takes no CPU before it is called.
    fn compute_until_over(&self) {
        self.busy_thread.wait();
        // Here, on the sleeper's CPU.
        self.busy_thread.wait();
        while self.round.load(Ordering::Relaxed) != OVER {
            spin_loop();
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(OVER)
    }

    fn sleep_each_round(&self) {
        let mut done = 0;
        loop {
            match self.round.load(Ordering::Acquire) {
                OVER => return,
                // The waker may have given up a round that came to nothing.
                round if round > done => {
                    done = round;
                    let call_ns = self.now_ns() + ANNOUNCED_NS;
                    self.called_ns.store(call_ns, Ordering::Release);
                    self.compute_until(call_ns);
                    // As long as it takes: with a limit the kernel starts a timer first, and the sleeper is half a microsecond
                    // later asleep than the waiters of a lock.
                    futex_wait(&self.word, MAY_SLEEP);
                    self.back_ns.store(self.now_ns(), Ordering::Release);
                }
                _ => spin_loop(),
            }
        }
    }

    /// Who calls is busy for so long.
    fn compute_until(&self, until_ns: u64) {
        while self.now_ns() < until_ns {
            spin_loop();
        }
    }

    /// No more rounds.
    fn end(&self) {
        self.round.store(OVER, Ordering::Release);
        self.send_back();
    }

    /// The one that sleeps is back, and who comes late for it is refused.
    fn send_back(&self) {
        self.word.store(!MAY_SLEEP, Ordering::Release);
        futex_wake(&self.word);
    }

    /// `None` if it came to nothing in time.
    fn wake_after(&self, round: u64, asleep_ns: u64) -> Option<Wake> {
        let wake = self.try_to_wake(round, asleep_ns);
        if wake.is_none() {
            self.send_back();
        }
        wake
    }

    fn try_to_wake(&self, round: u64, asleep_ns: u64) -> Option<Wake> {
        self.called_ns.store(0, Ordering::Relaxed);
        self.back_ns.store(0, Ordering::Relaxed);
        self.word.store(MAY_SLEEP, Ordering::Relaxed);
        self.round.store(round, Ordering::Release);
        let called_ns = self.wait_for(&self.called_ns)?;
        self.compute_until(called_ns + asleep_ns);
        let (begin_ns, end_ns) = loop {
            let begin_ns = self.now_ns();
            if futex_wake(&self.word) > 0 {
                break (begin_ns, self.now_ns());
            }
            if begin_ns > called_ns + LOST_NS {
                return None;
            }
        };
        let back_ns = self.wait_for(&self.back_ns)?;
        let ns = |from: u64, to: u64| to.saturating_sub(from) as f64;
        Some(Wake {
            asleep_ns: ns(called_ns, begin_ns),
            waker_ns: ns(begin_ns, end_ns),
            sleeper_ns: ns(begin_ns, back_ns),
        })
    }

    fn wait_for(&self, when_ns: &AtomicU64) -> Option<u64> {
        let begin_ns = self.now_ns();
        loop {
            let when = when_ns.load(Ordering::Acquire);
            if when != 0 {
                return Some(when);
            }
            if self.now_ns() > begin_ns + LOST_NS {
                return None;
            }
            spin_loop();
        }
    }
}

/// What waking a thread costs whose CPU had nothing else to do, shortest sleep first: some of each of many lengths.
pub fn wakes() -> Vec<Wake> {
    wakes_of_pairs(WAKES, &ASLEEP_NS, false)
}

/// What waking costs both sides, shortest sleep first; half of the wakers on either CPU, and `beside` the sleeper another thread
/// that computes all the time. Those that others' work drew out are left out: at each length of sleep, those that took the waker
/// or the sleeper ten times as long as the middle one.
fn wakes_of_pairs(count: usize, asleep_ns: &[u64], beside: bool) -> Vec<Wake> {
    // The first thread wakes the other in the first pair, and is woken in the second.
    let pairs = &[Pair::new(), Pair::new()];
    let act = move |own: usize| {
        cpus::stay_on(own);
        // Only of a CPU that goes idle does it matter.
        if !beside {
            std::thread::sleep(SETTLING);
        }
        let mut wakes = Vec::new();
        for (waker, pair) in pairs.iter().enumerate() {
            if waker == own {
                if beside {
                    pair.start_busy_thread();
                }
                wakes = wakes_of(pair, count / 2, asleep_ns);
                pair.end();
            } else {
                pair.sleep_each_round();
            }
        }
        wakes
    };
    let all = std::thread::scope(|scope| {
        if beside {
            for (waker, pair) in pairs.iter().enumerate() {
                scope.spawn(move || {
                    cpus::stay_on(1 - waker);
                    pair.compute_until_over();
                });
            }
        }
        let threads = [0, 1].map(|own| scope.spawn(move || act(own)));
        threads.map(|thread| thread.join().unwrap_or_default()).concat()
    });
    shortest_sleep_first(all)
}

fn wakes_of(pair: &Pair, count: usize, asleep_ns: &[u64]) -> Vec<Wake> {
    let mut round = 0;
    // One length after another, as it comes in a program: a host learns how long a CPU of ours is idle.
    let mut wakes = vec![Vec::new(); asleep_ns.len()];
    let (mut random, mut lost) = (Random::new(SEED), 0);
    for _ in 0..count {
        let mut order: Vec<usize> = (0..asleep_ns.len()).collect();
        random.shuffle(&mut order);
        for at in order {
            if lost >= MOST_LOST {
                break;
            }
            round += 1;
            pair.compute_until(pair.now_ns() + random.below(LONGEST_COMPUTING_NS) as u64);
            let wake = pair.wake_after(round, asleep_ns[at]);
            lost += usize::from(wake.is_none());
            wakes[at].extend(wake);
        }
    }
    wakes.iter_mut().for_each(leave_out_disturbed);
    wakes.concat()
}

fn leave_out_disturbed(wakes: &mut Vec<Wake>) {
    const FAR: f64 = 10.0;
    let middle = |of: fn(&Wake) -> f64| median(wakes.iter().map(of).collect());
    let (waker_ns, sleeper_ns) = (middle(|wake| wake.waker_ns), middle(|wake| wake.sleeper_ns));
    wakes.retain(|wake| wake.waker_ns <= waker_ns * FAR && wake.sleeper_ns <= sleeper_ns * FAR);
}

/// Two threads on one CPU wake each other in turn.
fn turn_on_one_cpu_ns() -> f64 {
    const TURNS: u32 = 5_000;
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    let take_turns = |own: usize| {
        for number in 1..=TURNS {
            // The first has the first turn.
            if own == 1 || number > 1 {
                let wanted = if own == 1 { number } else { number - 1 };
                while words[own].load(Ordering::Acquire) < wanted {
                    futex_wait(&words[own], wanted - 1);
                }
            }
            words[1 - own].store(number, Ordering::Release);
            futex_wake(&words[1 - own]);
        }
    };
    let ns = on_one_cpu(|| {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| take_turns(1));
            take_turns(0);
        });
        begin.elapsed().as_secs_f64() * 1e9
    });
    ns / f64::from(TURNS) / 2.0
}

/// Two threads compute on one CPU: the middle one of the spans in which one of them runs.
fn slice_ns() -> f64 {
    let stop = AtomicBool::new(false);
    let watch = || {
        let since = Instant::now();
        let now_ns = || u64::try_from(since.elapsed().as_nanos()).unwrap_or(OVER);
        let (mut spans, mut begin_ns, mut last_ns) = (Vec::new(), 0, 0);
        while !stop.load(Ordering::Relaxed) {
            let now = now_ns();
            if now - last_ns > NOT_RUNNING_NS {
                spans.push((last_ns - begin_ns) as f64);
                begin_ns = now;
            }
            last_ns = now;
        }
        spans
    };
    let spans = on_one_cpu(|| {
        std::thread::scope(|scope| {
            let other = scope.spawn(watch);
            let third = scope.spawn(watch);
            std::thread::sleep(SHARING);
            stop.store(true, Ordering::Relaxed);
            [other, third].into_iter().filter_map(|thread| thread.join().ok()).flatten().collect::<Vec<f64>>()
        })
    });
    // Beyond this no kernel lets a thread wait for its turn on a machine that is not overloaded.
    const TYPICAL_NS: f64 = 4e6;
    Some(median(spans)).filter(|ns| *ns > 0.0).unwrap_or(TYPICAL_NS)
}

/// In a thread that may run on one CPU only, as may those that it starts.
fn on_one_cpu<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let confined = scope.spawn(|| {
            cpus::stay_here();
            run()
        });
        match confined.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn futex_wait(word: &AtomicU32, value: u32) {
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the kernel only reads the word, which outlives the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, value, forever)
    };
}

/// How many were woken.
fn futex_wake(word: &AtomicU32) -> libc::c_long {
    // SAFETY: the kernel takes the word's address as a number.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes sure that it comes to an end also where the sleeper comes late, and that what it finds is ordered.
    #[test]
    fn every_step_costs_something() {
        let costs = measure();
        assert!(costs.line_ns > 0.0 && costs.pause_ns > 0.0 && costs.refused_ns > 0.0, "{costs:?}");
        assert!(costs.slice_ns > 0.0 && costs.nobody_ns > 0.0, "{costs:?}");
        let wakes = wakes();
        assert!(!wakes.is_empty() && wakes.is_sorted_by(|one, other| one.asleep_ns <= other.asleep_ns));
    }
}
