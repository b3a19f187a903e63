//! Programs of ours, in languages and with libraries of others: they answer each line on their standard input with the time, the work
//! done, and the time waited so far (all threads together, in nanoseconds), and end with their input.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

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
    /// All that it waits for this reason, and on this lock if it is for one, by its own sum.
    Waits(Reason, &'static str),
    /// The threads that its first line numbers have nothing but this lock to be blocked for; how long they are, the scheduler tells.
    Threads(&'static str),
    /// Threads asleep in futexes wait for this lock, by construction.
    HeldLock(&'static str),
    /// It waits for no lock, by construction; what else, the kernel tells.
    NoLock,
}

struct Ours {
    program: Conversation,
    /// Those that its first line numbers.
    threads: Vec<u32>,
    /// Before it was started.
    begun: Instant,
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
        let begun = Instant::now();
        let mut program = Conversation::start(&mut command)?;
        // Its first words say that its threads are there.
        let threads = program.line()?.split(' ').filter_map(|number| number.parse().ok()).collect();
        std::thread::sleep(WARM_UP);
        Ok(Box::new(Self { program, threads, begun, knows, metered_by_command }))
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

    /// How long its threads were neither running nor waiting for a CPU, since this program was started. It is not asked: the thread
    /// that answers would want the lock, too.
    fn blocked(&self) -> Result<Sum> {
        let (mut at_ns, mut waited_ns) = (0, 0);
        for thread in &self.threads {
            let scheduled_ns = thread_states::scheduled_ns(self.program.pid(), *thread)?;
            at_ns = u64::try_from(self.begun.elapsed().as_nanos())?;
            waited_ns += at_ns.saturating_sub(scheduled_ns);
        }
        Ok(Sum { at_ns, work: 0, waited_ns })
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
            Knows::Waits(reason, lock) => {
                let sum = self.sum()?;
                looks.sum(reason, lock, sum);
            }
            Knows::Threads(lock) => looks.sum(Reason::UserLock, lock, self.blocked()?),
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
            Knows::Lock(_) | Knows::Waits(..) | Knows::Threads(_) => Ok(Some(self.sum()?.work)),
            _ => Ok(None),
        }
    }

    fn end(self: Box<Self>) -> Result<()> {
        let by_command = self.metered_by_command;
        self.program.end().with_context(|| if by_command { "lockmeter record" } else { "a program" })
    }
}

const WAITS_FOR_EVER: &str = include_str!("../../../workloads/user/waits-for-ever.c");

/// Which some of the programs include.
const CLOCKED_WAITS: &str = include_str!("../programs/clocked-waits.h");

fn in_c(folder: &Path, name: &str, source: &str) -> Result<PathBuf> {
    in_c_with(folder, name, source, &[])
}

fn in_c_with(folder: &Path, name: &str, source: &str, options: &[&str]) -> Result<PathBuf> {
    std::fs::write(folder.join("clocked-waits.h"), CLOCKED_WAITS).context("cannot write a program")?;
    let file = format!("{name}.c");
    let how = ["gcc", "-O2", "-g", "-pthread", &file, "-o", name];
    build(folder, (&file, source), name, &[&how, options].concat())
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

fn ruby(folder: &Path, mode: &str, knows: Knows) -> Result<Box<dyn Load>> {
    let script = folder.join("ruby-locks.rb");
    std::fs::write(&script, include_str!("../programs/ruby-locks.rb")).context("cannot write a program")?;
    Ours::start(&find("ruby")?, &[&script.to_string_lossy(), mode], None, knows)
}

pub fn ruby_threads(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    ruby(folder, "threads", Knows::Threads("GVL|Global VM Lock"))
}

pub fn ruby_mutex(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    ruby(folder, "mutex", Knows::Lock("Mutex|rb_mutex"))
}

pub fn idle_ruby(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    ruby(folder, "pool", Knows::NoLock)
}

fn sqlite(folder: &Path, mode: &str, knows: Knows) -> Result<Box<dyn Load>> {
    anyhow::ensure!(
        Path::new("/usr/include/sqlite3.h").exists(),
        "libsqlite3-dev is not installed (scripts/setup bench installs it)"
    );
    let source = include_str!("../programs/sqlite-writers.c");
    let program = in_c_with(folder, "sqlite-writers", source, &["-lsqlite3"])?;
    Ours::start(&program, &[mode, &folder.join("shop.db").to_string_lossy()], None, knows)
}

/// The lock is one of the database: a POSIX record lock on a file beside it, for which SQLite sleeps and tries again.
pub fn sqlite_processes(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    sqlite(folder, "processes", Knows::Waits(Reason::FileLock, "SQLite|sqlite3|shop.db"))
}

pub fn sqlite_threads(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    sqlite(folder, "threads", Knows::Lock("SQLite|sqlite3"))
}

fn openmp(folder: &Path, mode: &str, knows: Knows) -> Result<Box<dyn Load>> {
    let program = in_c_with(folder, "openmp-team", include_str!("../programs/openmp-team.c"), &["-fopenmp"])?;
    Ours::start(&program, &[mode], None, knows)
}

pub fn openmp_critical(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    openmp(folder, "critical", Knows::Lock("ledger|critical"))
}

pub fn openmp_barrier(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    openmp(folder, "barrier", Knows::Waits(Reason::Condition, ""))
}
