//! Programs of ours, in languages and with libraries of others: they answer each line on their standard input with the time, the work
//! done, and the time waited so far (all threads together, in nanoseconds), and end with their input.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::load::{AFTER_LIST, Load, command, process};
use crate::processes::{Conversation, build, find};
use crate::reason::Reason;
use crate::thread_states::{self, Thread};
use crate::truth::{Looks, Sum};

/// What is known of a program of ours.
#[derive(Clone, Copy)]
enum Knows {
    /// All that it waits for on this lock, by its own sum.
    Lock(&'static str),
    /// Threads asleep in futexes wait for this lock, by construction.
    HeldLock(&'static str),
    /// It waits for no lock, by construction; what else, the kernel tells.
    NoLock,
}

struct Ours {
    program: Conversation,
    knows: Knows,
    metered_by_command: bool,
}

/// Until a program that just began is in its stride.
const WARM_UP: Duration = Duration::from_millis(500);

impl Ours {
    fn start(program: &Path, arguments: &[&str], under: Option<Command>, knows: Knows) -> Result<Box<dyn Load>> {
        let metered_by_command = under.is_some();
        let mut command = command(program, under);
        command.args(arguments);
        if !metered_by_command {
            command.stderr(std::process::Stdio::null());
        }
        let mut program = Conversation::start(&mut command)?;
        // Its first words say that its threads are there.
        program.line()?;
        std::thread::sleep(WARM_UP);
        Ok(Box::new(Self { program, knows, metered_by_command }))
    }

    fn threads(&self) -> Vec<Thread> {
        let threads = thread_states::list(&[self.program.pid()]);
        std::thread::sleep(AFTER_LIST);
        thread_states::of(&threads)
    }

    fn sum(&mut self) -> Result<Sum> {
        self.program.ask("")?;
        let line = self.program.line()?;
        let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
        let [at_ns, work, waited_ns] = numbers[..] else {
            anyhow::bail!("a program answered `{line}`");
        };
        Ok(Sum { at_ns, work, waited_ns })
    }
}

impl Load for Ours {
    fn scope(&self) -> Vec<String> {
        process(self.program.pid())
    }

    fn look(&mut self, looks: &mut Looks) -> Result<()> {
        match self.knows {
            Knows::Lock(lock) => {
                let sum = self.sum()?;
                looks.sum(Reason::UserLock, lock, sum);
            }
            Knows::HeldLock(lock) => {
                let threads = self.threads();
                looks.threads(&threads, |_, reason| (reason == Reason::Condition).then_some((Reason::UserLock, lock)));
            }
            Knows::NoLock => looks.threads(&self.threads(), |_, _| None),
        }
        Ok(())
    }

    fn work(&mut self) -> Result<Option<u64>> {
        match self.knows {
            Knows::Lock(_) => Ok(Some(self.sum()?.work)),
            _ => Ok(None),
        }
    }

    fn end(self: Box<Self>) -> Result<()> {
        let by_command = self.metered_by_command;
        self.program.end().with_context(|| if by_command { "lockmeter record" } else { "a program" })
    }
}

const WAITS_FOR_EVER: &str = include_str!("../../../workloads/user/waits-for-ever.c");

fn in_c(folder: &Path, name: &str, source: &str) -> Result<PathBuf> {
    let file = format!("{name}.c");
    build(folder, (&file, source), name, &["gcc", "-O2", "-g", "-pthread", &file, "-o", name])
}

pub fn deadlock(folder: &Path, under: Option<Command>) -> Result<Box<dyn Load>> {
    let program = in_c(folder, "waits-for-ever", WAITS_FOR_EVER)?;
    Ours::start(&program, &["deadlock"], under, Knows::HeldLock("debit_lock|credit_lock"))
}

pub fn held_lock(folder: &Path, under: Option<Command>) -> Result<Box<dyn Load>> {
    let program = in_c(folder, "waits-for-ever", WAITS_FOR_EVER)?;
    Ours::start(&program, &["held"], under, Knows::HeldLock("big_lock"))
}

const LIBRARY_LOCKS: &str = include_str!("../programs/c-library-locks.c");

pub fn malloc_arena(folder: &Path, under: Option<Command>) -> Result<Box<dyn Load>> {
    let program = in_c(folder, "c-library-locks", LIBRARY_LOCKS)?;
    Ours::start(&program, &["arena"], under, Knows::Lock("malloc arena"))
}

pub fn stdio_stream(folder: &Path, under: Option<Command>) -> Result<Box<dyn Load>> {
    let program = in_c(folder, "c-library-locks", LIBRARY_LOCKS)?;
    Ours::start(&program, &["stdio"], under, Knows::Lock("stdio stream"))
}

fn python(folder: &Path, name: &str, source: &str, knows: Knows) -> Result<Box<dyn Load>> {
    let script = folder.join(name);
    std::fs::write(&script, source).context("cannot write a program")?;
    // The distribution's, before any other.
    let packaged = Path::new("/usr/bin/python3");
    let python = if packaged.exists() { packaged.to_owned() } else { find("python3")? };
    Ours::start(&python, &[&script.to_string_lossy()], None, knows)
}

pub fn python_processes(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    let source = include_str!("../programs/shared_lock.py");
    python(folder, "shared_lock.py", source, Knows::Lock("SemLock|_multiprocessing|Python code"))
}

pub fn python_threads(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    let source = include_str!("../programs/interpreter_lock.py");
    python(folder, "interpreter_lock.py", source, Knows::Lock("GIL"))
}

pub fn idle_python_pool(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    python(folder, "idle_pool.py", include_str!("../programs/idle_pool.py"), Knows::NoLock)
}

pub fn go_mutex(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    let source = include_str!("../programs/hot_mutex.go");
    let how = ["go", "build", "-o", "hot-mutex", "hot_mutex.go"];
    let program = build(folder, ("hot_mutex.go", source), "hot-mutex", &how)?;
    Ours::start(&program, &[], None, Knows::Lock("main.workUnderLock|sync.Mutex|semacquire"))
}

fn java(folder: &Path, class: &str, source: &str, arguments: &[&str], knows: Knows) -> Result<Box<dyn Load>> {
    let file = format!("{class}.java");
    build(folder, (&file, source), &format!("{class}.class"), &["javac", &file])?;
    let folder = folder.to_string_lossy();
    Ours::start(&find("java")?, &[&["-cp", &folder, class], arguments].concat(), None, knows)
}

const HOT_LOCKS: &str = include_str!("../programs/HotLocks.java");

pub fn java_monitor(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    java(folder, "HotLocks", HOT_LOCKS, &["synchronized"], Knows::Lock("Java monitor"))
}

pub fn java_reentrant_lock(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    java(folder, "HotLocks", HOT_LOCKS, &["lock"], Knows::Lock("ReentrantLock|Parker|park"))
}

pub fn idle_java(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    java(folder, "IdlePool", include_str!("../programs/IdlePool.java"), &[], Knows::NoLock)
}

pub fn rocksdb(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    let source = include_str!("../programs/rocksdb-writers.cc");
    anyhow::ensure!(
        Path::new("/usr/include/rocksdb/db.h").exists(),
        "librocksdb-dev is not installed (scripts/setup bench installs it)"
    );
    let how =
        ["g++", "-std=c++17", "-O2", "-g", "-pthread", "rocksdb-writers.cc", "-o", "rocksdb-writers", "-lrocksdb"];
    let program = build(folder, ("rocksdb-writers.cc", source), "rocksdb-writers", &how)?;
    let data = folder.join("data");
    Ours::start(&program, &[&data.to_string_lossy()], None, Knows::Lock("RocksDB write group"))
}

pub fn node(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    let script = folder.join("worker-lock.js");
    std::fs::write(&script, include_str!("../programs/worker-lock.js")).context("cannot write a program")?;
    Ours::start(&find("node")?, &[&script.to_string_lossy()], None, Knows::Lock("Atomics.wait|FutexEmulation::Wait"))
}

pub fn idle_pool(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    let source = include_str!("../programs/idle-pool.cc");
    let how = ["g++", "-std=c++20", "-O2", "-g", "-pthread", "idle-pool.cc", "-o", "idle-pool"];
    let program = build(folder, ("idle-pool.cc", source), "idle-pool", &how)?;
    Ours::start(&program, &[], None, Knows::NoLock)
}
