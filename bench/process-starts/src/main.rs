//! What metering costs a process that is started and ends.
//!
//! In rounds, in random order, a command is started bare, under an empty library (the least that anything preloaded costs),
//! and under lockmeter's at each level. Printed are the median times from the start to the end with a 95 % confidence interval, the
//! differences within a round, and page faults; and for each level the CPU time that the recorder takes for a process.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use std::{env, fs, io};

use anyhow::{Context, Result, bail, ensure};
use bench_harness::preloaded_library;
use clap::Parser;
use lockmeter_meter::reader::{Level, Session, UserSource};
use lockmeter_statistics::{Estimate, Machine, Random, ResourceUsage, median};

/// Rounds between two readings: a build starts as many processes within a second.
const ROUNDS_A_READING: usize = 200;
/// Of the random order.
const SEED: u64 = 1;

/// Measures what metering costs a process that is started and ends: how much longer it takes, and what the recorder does for it
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  process-starts                        `true`, 2,000 times each way
  process-starts --rounds 200 -- gcc --version")]
struct Arguments {
    /// How often the command is started each way
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// The command to start
    #[arg(last = true, value_name = "COMMAND", default_value = "true", num_args = 1.., allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// A way to start a process.
struct Contender {
    name: &'static str,
    environment: Vec<(&'static str, OsString)>,
    /// From each start to the end, in microseconds.
    took_us: Vec<f64>,
    faults: Vec<f64>,
    recorder: Option<Recorder>,
}

/// What reads the segments of a level.
struct Recorder {
    source: UserSource,
    own_cpu_ns: u64,
    // Dropped after its reader.
    _session: Session,
}

fn main() -> ExitCode {
    bench_harness::run(run)
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (rounds, mut command) = (arguments.rounds as usize, arguments.command.clone());
    // The shell's own search through PATH would be measured with it.
    command[0] = find(&command[0])?;
    let folder = tempfile::tempdir().context("no folder for an empty library")?;
    let mut contenders = contenders(folder.path())?;
    let mut random = Random::new(SEED);
    println!("{}", Machine::here(SEED));
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        random.shuffle(&mut order);
        for at in order {
            contenders[at].start(&command)?;
        }
        if (round + 1) % ROUNDS_A_READING == 0 || round + 1 == rounds {
            for recorder in contenders.iter_mut().filter_map(|contender| contender.recorder.as_mut()) {
                recorder.read();
            }
        }
    }
    print(&contenders, &mut random);
    Ok(ExitCode::SUCCESS)
}

fn find(program: &OsStr) -> Result<OsString> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Ok(program.to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    Ok(found.with_context(|| format!("no program {}", program.display()))?.into_os_string())
}

/// Bare first.
fn contenders(folder: &Path) -> Result<Vec<Contender>> {
    let library = preloaded_library()?;
    let empty = empty_library(folder)?;
    let contender =
        |name, environment| Contender { name, environment, took_us: Vec::new(), faults: Vec::new(), recorder: None };
    let mut contenders = vec![
        contender("bare", Vec::new()),
        contender("empty library", vec![("LD_PRELOAD", empty.into())]),
        contender("no session", vec![("LD_PRELOAD", library.clone().into())]),
    ];
    for (name, level) in [("wait", Level::Wait), ("hold", Level::Hold)] {
        let session = Session::create(level)?;
        let environment = session.environment(&library, None).into();
        let source = session.source()?;
        let recorder = Recorder { source, own_cpu_ns: 0, _session: session };
        contenders.push(Contender { recorder: Some(recorder), ..contender(name, environment) });
    }
    Ok(contenders)
}

fn empty_library(folder: &Path) -> Result<PathBuf> {
    let (source, library) = (folder.join("empty.c"), folder.join("empty.so"));
    fs::write(&source, "int lockmeter_empty_library;\n")?;
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    ensure!(compiled.context("cannot run cc")?.success(), "cc makes no library");
    Ok(library)
}

impl Contender {
    fn start(&mut self, command: &[OsString]) -> Result<()> {
        let mut start = Command::new(&command[0]);
        start.args(&command[1..]).envs(self.environment.iter().map(|(name, value)| (name, value)));
        start.stdin(Stdio::null()).stdout(Stdio::null()).arg0(&command[0]);
        let begin = Instant::now();
        let child = start.spawn().with_context(|| format!("cannot run {}", command[0].display()))?;
        let (status, faults) = wait(child.id())?;
        let took = begin.elapsed();
        ensure!(status == 0, "{} ended with {status}", command[0].display());
        self.took_us.push(took.as_secs_f64() * 1e6);
        self.faults.push(faults);
        Ok(())
    }
}

/// The status of a child, and its page faults.
fn wait(child: u32) -> Result<(i32, f64)> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: waits for a child of ours that nobody else waits for, and writes two values that are ours.
    let waited = unsafe { libc::wait4(child.cast_signed(), &raw mut status, 0, usage.as_mut_ptr()) };
    if waited < 0 {
        bail!("cannot wait for a child: {}", io::Error::last_os_error());
    }
    // SAFETY: zeroed, which is valid, and then filled.
    let usage = unsafe { usage.assume_init() };
    Ok((status, usage.ru_minflt as f64))
}

impl Recorder {
    fn read(&mut self) {
        let used_ns = || ResourceUsage::of(libc::RUSAGE_SELF).cpu_ns();
        let begin_ns = used_ns();
        self.source.drain();
        self.own_cpu_ns += used_ns() - begin_ns;
    }
}

fn print(contenders: &[Contender], random: &mut Random) {
    let bare = &contenders[0].took_us;
    println!("{} starts of each", bare.len());
    println!("{:<14} {:>8} {:>9} {:>24} {:>8}  recorder", "", "us", "ratio", "more us (95 % interval)", "faults");
    for contender in contenders {
        let more: Vec<f64> = contender.took_us.iter().zip(bare).map(|(took, bare)| took - bare).collect();
        let ratios: Vec<f64> = contender.took_us.iter().zip(bare).map(|(took, bare)| took / bare).collect();
        let (Some(more), Some(ratio)) = (Estimate::of(&more, random), Estimate::of(&ratios, random)) else { return };
        print!(
            "{:<14} {:>8.1} {:>9.3} {:>8.1} ({:>6.1} – {:>6.1}) {:>8.0}",
            contender.name,
            median(contender.took_us.clone()),
            ratio.median,
            more.median,
            more.low,
            more.high,
            median(contender.faults.clone()),
        );
        match &contender.recorder {
            Some(recorder) => {
                let seen = recorder.source.processes_seen();
                let each_us = recorder.own_cpu_ns as f64 / 1e3 / seen.max(1) as f64;
                println!("  {each_us:.1} us of CPU for each of {seen}");
            }
            None => println!(),
        }
    }
}
