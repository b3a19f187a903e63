//! Loads that run for a slice at a time, in threads of their own, and count their operations.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bench_harness::as_f64;
use clap::ValueEnum;
use lockmeter_statistics::cpus;

/// A load has settled by then: its threads run.
const SETTLE: Duration = Duration::from_millis(30);

/// Threads that fight for the mutex: more than CPUs, so that some always sleep.
const FIGHTERS: usize = 8;
/// Steps of computing inside and outside of the mutex: about 2 and 1 µs.
const INSIDE: u64 = 2_000;
const OUTSIDE: u64 = 1_000;

/// One of the loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// A bystander: two threads on one CPU pass a byte to and fro through a socket; nothing but switches and wake-ups
    Bystander,
    /// A bystander that sleeps in futex calls: the two pass a turn to and fro by a condition variable
    FutexBystander,
    /// The metered program: eight threads fight for a mutex
    Metered,
}

impl Load {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bystander, Self::FutexBystander, Self::Metered];

    /// How it is called in results.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Bystander => "bystander, a byte through a socket",
            Self::FutexBystander => "bystander, a turn by a condition variable",
            Self::Metered => "metered program, 8 threads and a mutex",
        }
    }

    /// What it counts.
    pub const fn operation(self) -> &'static str {
        match self {
            Self::Bystander | Self::FutexBystander => "round trips",
            Self::Metered => "acquisitions",
        }
    }

    /// Whether the load is what is metered.
    pub const fn is_metered(self) -> bool {
        matches!(self, Self::Metered)
    }

    /// Runs for a while, and `measure` in the midst of it. Returns its operations a second meanwhile.
    pub fn run(self, measure: impl FnOnce()) -> f64 {
        let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
        let turns = Turns::default();
        let mutex = Mutex::new(0);
        thread::scope(|scope| {
            let (stop, operations, turns, mutex) = (&stop, &operations, &turns, &mutex);
            match self {
                Self::Bystander => {
                    let (here, there) = UnixStream::pair().expect("a process may have two more descriptors");
                    scope.spawn(move || answer(there));
                    scope.spawn(move || ask(here, stop, operations));
                }
                Self::FutexBystander => {
                    for player in [false, true] {
                        scope.spawn(move || turns.play(player, stop, operations));
                    }
                }
                Self::Metered => {
                    for _ in 0..FIGHTERS {
                        scope.spawn(move || fight(mutex, stop, operations));
                    }
                }
            }
            thread::sleep(SETTLE);
            let (begin, before) = (Instant::now(), operations.load(Relaxed));
            measure();
            let (elapsed, after) = (begin.elapsed(), operations.load(Relaxed));
            stop.store(true, Relaxed);
            as_f64(after - before) / elapsed.as_secs_f64()
        })
    }
}

/// Both stay on one CPU: where two that wait for each other run is then not left to chance. Closes the socket when it is told to stop, which ends the other side.
fn ask(mut socket: UnixStream, stop: &AtomicBool, operations: &AtomicU64) {
    cpus::stay_on(0);
    let mut byte = [0];
    while !stop.load(Relaxed) && socket.write_all(&byte).is_ok() && socket.read_exact(&mut byte).is_ok() {
        operations.fetch_add(1, Relaxed);
    }
}

fn answer(mut socket: UnixStream) {
    cpus::stay_on(0);
    let mut byte = [0];
    while socket.read_exact(&mut byte).is_ok() && socket.write_all(&byte).is_ok() {}
}

/// Whose turn it is.
#[derive(Default)]
struct Turns {
    second: Mutex<bool>,
    passed: Condvar,
}

impl Turns {
    fn play(&self, player: bool, stop: &AtomicBool, operations: &AtomicU64) {
        cpus::stay_on(0);
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            while *second != player && !stop.load(Relaxed) {
                second = self.passed.wait(second).unwrap_or_else(PoisonError::into_inner);
            }
            *second = !player;
            self.passed.notify_one();
            if stop.load(Relaxed) {
                return;
            }
            if player {
                operations.fetch_add(1, Relaxed);
            }
        }
    }
}

fn fight(mutex: &Mutex<u64>, stop: &AtomicBool, operations: &AtomicU64) {
    while !stop.load(Relaxed) {
        let mut value = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        *value = compute(*value, INSIDE);
        drop(value);
        std::hint::black_box(compute(1, OUTSIDE));
        operations.fetch_add(1, Relaxed);
    }
}

/// This many steps of something that neither memory nor the clock can slow down or speed up.
fn compute(mut value: u64, steps: u64) -> u64 {
    for _ in 0..steps {
        value = std::hint::black_box(value.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(13));
    }
    value
}
