//! What metering costs an uncontended lock + unlock pair, pthread's and C11's, as a ratio to bare glibc; a mutex that is made; and a child
//! that is forked and takes a lock.
//!
//! One process, so that both sides see the same machine: it runs itself under the preloaded library and calls, in random
//! order and in slices of time, libc's own functions and the interposed ones at each level. The ratio is taken within a round;
//! printed are its median with a 95 % confidence interval, and the fastest slice of each. What is made is measured by whole runs of
//! a program (see [`made`]).

mod made;

use std::env;
use std::ffi::CStr;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bench_harness::preloaded_library;
use clap::Parser;
use lockmeter_meter::layout::DIRECTORY_VARIABLE;
use lockmeter_meter::reader::{Level, Session, TIMED_HOLDS};
use lockmeter_statistics::{Estimate, Machine, Random};

/// Long enough that switching the level and warming up do not count.
const SLICE: Duration = Duration::from_millis(25);
/// A thread has found out by then how many holds it may time.
const SETTLE: Duration = Duration::from_millis(60);
/// Pairs between two looks at the clock.
const BATCH: u32 = 2_000;
/// Of the random order.
const SEED: u64 = 1;

/// Measures what metering costs an uncontended pair of pthread's and of C11's functions, a mutex that is made, and a forked child that
/// takes one
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  user-overhead               all of it, about a minute
  user-overhead --rounds 5    does it all work? the numbers mean little")]
struct Arguments {
    /// Rounds of a slice of each level
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

type Function = unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> libc::c_int;

unsafe extern "C" {
    fn mtx_lock(mutex: *mut libc::pthread_mutex_t) -> libc::c_int;
    fn mtx_unlock(mutex: *mut libc::pthread_mutex_t) -> libc::c_int;
}

/// Functions that lock and unlock, by their names and as this program is linked to them. glibc's `mtx_t` is a `pthread_mutex_t`.
struct Family {
    names: [&'static CStr; 2],
    interposed: [Function; 2],
}

const FAMILIES: [Family; 2] = [
    Family {
        names: [c"pthread_mutex_lock", c"pthread_mutex_unlock"],
        interposed: [libc::pthread_mutex_lock, libc::pthread_mutex_unlock],
    },
    Family { names: [c"mtx_lock", c"mtx_unlock"], interposed: [mtx_lock, mtx_unlock] },
];

/// A way to lock and unlock.
struct Contender {
    name: &'static str,
    level: Level,
    /// Holds a second that are timed; 0: all.
    timed_holds: u32,
    lock: Function,
    unlock: Function,
    /// Mean of a pair in each round, in picoseconds.
    pair_ps: Vec<u64>,
}

fn main() -> ExitCode {
    bench_harness::run(run)
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let rounds = arguments.rounds as usize;
    if env::var_os(DIRECTORY_VARIABLE).is_none() {
        return run_under_meter(rounds);
    }
    measure(rounds)?;
    Ok(ExitCode::SUCCESS)
}

fn run_under_meter(rounds: usize) -> Result<ExitCode> {
    let program = env::current_exe().context("cannot tell where this program is")?;
    let library = preloaded_library()?;
    let session = Session::create(Level::Hold)?;
    let status = Command::new(program)
        .args(env::args_os().skip(1))
        .envs(session.environment(&library, None))
        .status()
        .context("cannot run myself under the meter")?;
    if let Some(code @ 1..) = status.code() {
        // It has said why.
        return Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from));
    }
    ensure!(status.success(), "the metered run ended with {status}");
    drop(session);
    made::measure(rounds, &library)?;
    Ok(ExitCode::SUCCESS)
}

/// libc's own function, behind whatever was preloaded.
fn real(name: &CStr) -> Result<Function> {
    // SAFETY: loads what is loaded already; the name ends with a NUL.
    let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW) };
    ensure!(!library.is_null(), "no libc.so.6");
    // SAFETY: the handle is good, the name ends with a NUL.
    let function = unsafe { libc::dlsym(library, name.as_ptr()) };
    ensure!(!function.is_null(), "libc.so.6 has no {}", name.to_string_lossy());
    // SAFETY: a function of this type.
    Ok(unsafe { std::mem::transmute::<*mut libc::c_void, Function>(function) })
}

fn measure(rounds: usize) -> Result<()> {
    let mut contenders = Vec::new();
    for family in &FAMILIES {
        contenders.extend(contenders_of(family)?);
    }
    // glibc takes locks without atomics while there is one thread only, which no program that needs a lock has.
    let (keep, end) = std::sync::mpsc::channel::<()>();
    let second = std::thread::spawn(move || end.recv().is_err());
    let mut random = Random::new(SEED);
    println!("{}", Machine::here(SEED));
    for _ in 0..rounds {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        random.shuffle(&mut order);
        for at in order {
            let contender = &mut contenders[at];
            Session::switch(std::process::id(), Some(contender.level))?;
            Session::time_holds(std::process::id(), contender.timed_holds)?;
            let pair_ps = slice(contender.lock, contender.unlock);
            contender.pair_ps.push(pair_ps);
        }
    }
    drop(keep);
    let _ = second.join();
    for (family, contenders) in FAMILIES.iter().zip(contenders.chunks(contenders.len() / FAMILIES.len())) {
        print(family, contenders, &mut random);
    }
    Ok(())
}

/// Bare glibc first.
fn contenders_of(family: &Family) -> Result<[Contender; 5]> {
    let [lock, unlock] = family.names.map(real);
    let bare = [lock?, unlock?];
    if family.interposed[0] as usize == bare[0] as usize {
        bail!("the library is not preloaded");
    }
    let contender = |name, level, timed_holds, [lock, unlock]: [Function; 2]| Contender {
        name,
        level,
        timed_holds,
        lock,
        unlock,
        pair_ps: Vec::new(),
    };
    Ok([
        contender("bare glibc", Level::Off, 0, bare),
        contender("off", Level::Off, 0, family.interposed),
        contender("wait", Level::Wait, 0, family.interposed),
        contender("hold", Level::Hold, TIMED_HOLDS, family.interposed),
        contender("hold, all", Level::Hold, 0, family.interposed),
    ])
}

fn slice(lock: Function, unlock: Function) -> u64 {
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    let mutex = black_box(&raw mut mutex);
    let pairs = || {
        for _ in 0..BATCH {
            // SAFETY: a mutex of this frame, locked and unlocked in turn.
            unsafe {
                lock(mutex);
                unlock(mutex);
            }
        }
    };
    let warming = Instant::now();
    while warming.elapsed() < SETTLE {
        pairs();
    }
    let begin = Instant::now();
    let mut batches = 0_u64;
    while begin.elapsed() < SLICE {
        pairs();
        batches += 1;
    }
    let elapsed_ps = begin.elapsed().as_nanos() * 1000 / u128::from(batches * u64::from(BATCH));
    u64::try_from(elapsed_ps).unwrap_or(u64::MAX)
}

fn print(family: &Family, contenders: &[Contender], random: &mut Random) {
    let bare = &contenders[0].pair_ps;
    let [lock, unlock] = family.names.map(CStr::to_string_lossy);
    println!("uncontended {lock} + {unlock}, {} rounds of {SLICE:?} each", bare.len());
    println!("{:<12} {:>12} {:>12} {:>24}", "", "fastest ns", "median ns", "ratio (95 % interval)");
    for contender in contenders {
        let ratios: Vec<f64> =
            contender.pair_ps.iter().zip(bare).map(|(pair, bare)| *pair as f64 / *bare as f64).collect();
        let Some(ratio) = Estimate::of(&ratios, random) else { return };
        let mut pairs = contender.pair_ps.clone();
        pairs.sort_unstable();
        println!(
            "{:<12} {:>12.2} {:>12.2} {:>8.3} ({:.3} – {:.3})",
            contender.name,
            pairs[0] as f64 / 1000.0,
            pairs[pairs.len() / 2] as f64 / 1000.0,
            ratio.median,
            ratio.low,
            ratio.high,
        );
    }
}
