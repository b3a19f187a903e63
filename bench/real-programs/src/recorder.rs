//! `lockmeter record`, and what `lockmeter report` says of what it wrote.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::processes::end_with_this_process;
use crate::reason::Reason;

/// What it prints when its programs are attached.
const METERING: &str = "lockmeter: metering ";
/// To attach, and to write when it is told to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program that is tried.
#[derive(Debug, Clone)]
pub struct Lockmeter {
    pub program: PathBuf,
}

/// A recorder that meters, and ends with this value.
pub struct Recorder {
    child: Child,
    said: PathBuf,
}

impl Lockmeter {
    /// The command that records into a file. Its messages go to `said`.
    pub fn record(&self, recording: &Path) -> Result<(Command, PathBuf)> {
        let said = recording.with_extension("said.txt");
        let mut command = Command::new(&self.program);
        command.args(["record", "-o"]).arg(recording);
        command.stderr(File::create(&said).context("cannot write to the output folder")?);
        Ok((command, said))
    }

    /// Starts to meter what runs already; returns when it does.
    pub fn watch(&self, scope: &[String], recording: &Path) -> Result<Recorder> {
        let (mut command, said) = self.record(recording)?;
        command.args(scope).stdin(Stdio::null()).stdout(Stdio::null());
        end_with_this_process(&mut command, libc::SIGINT);
        let child = command.spawn().with_context(|| format!("cannot run {}", self.program.display()))?;
        let mut recorder = Recorder { child, said };
        recorder.wait_until_it_meters()?;
        Ok(recorder)
    }

    fn report(&self, arguments: &[&str], recording: &Path) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.arg("report").args(arguments).arg(recording).env("COLUMNS", "10000").stdin(Stdio::null());
        let output = command.output().with_context(|| format!("cannot run {}", self.program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "lockmeter report failed: {}", said.lines().last().unwrap_or_default());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What it says of a recording: of all, or of the tasks of one name.
    pub fn says(&self, recording: &Path, task: Option<&str>) -> Result<Said> {
        let text = self.report(&[], recording)?;
        std::fs::write(recording.with_extension("report.txt"), &text).context("cannot write to the output folder")?;
        let mut arguments = vec!["--format", "json"];
        arguments.extend(task.iter().flat_map(|task| ["--task", task]));
        let report: Value = serde_json::from_str(&self.report(&arguments, recording)?)?;
        let mut said = Said::of(&text, &report).context("lockmeter's report has no account of the threads' time")?;
        arguments.extend(["--by", "lock,caller"]);
        let by_caller: Value = serde_json::from_str(&self.report(&arguments, recording)?)?;
        said.add_locks(&by_caller);
        if task.is_some() {
            // The head is of everybody.
            said.asleep_for_locks = 0.0;
        }
        Ok(said)
    }
}

impl Recorder {
    fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap_or_default()
    }

    fn wait_until_it_meters(&mut self) -> Result<()> {
        let begin = Instant::now();
        while !self.said().contains(METERING) {
            if let Some(status) = self.child.try_wait()? {
                bail!("lockmeter record ended with {status}: {}", self.said().lines().last().unwrap_or_default());
            }
            ensure!(begin.elapsed() < PATIENCE, "lockmeter record does not meter after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// As Ctrl-C does.
    pub fn end(mut self) -> Result<()> {
        // SAFETY: takes integers only; the child is ours and not waited for yet.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGINT) };
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                let said = self.said();
                ensure!(status.success(), "lockmeter record: {}", said.lines().last().unwrap_or_default());
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "lockmeter record does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What lockmeter says.
#[derive(Debug, Serialize)]
pub struct Said {
    /// The first two sentences of the report.
    pub sentences: [String; 2],
    /// Mean number of threads.
    pub threads: f64,
    /// Mean number of threads that were blocked, by what for; those at rest among them.
    pub blocked: BTreeMap<Reason, f64>,
    /// The part of it that was not at rest.
    pub active: BTreeMap<Reason, f64>,
    /// Mean number that had been woken and did not run yet.
    pub woken: f64,
    /// Mean number of tasks asleep for locks, by the table of locks.
    pub asleep_for_locks: f64,
    /// The same, by the lock and the functions that wait for it.
    pub locks: Vec<WaitedLock>,
    /// The same by the account of threads, which has locks that the table has not.
    pub sleeps: Vec<WaitedLock>,
    /// Of one CPU.
    pub own_cpu: f64,
}

/// How many threads wait for a lock.
#[derive(Debug, Serialize)]
pub struct WaitedLock {
    /// The lock, and the functions of the waiters.
    pub names: Vec<String>,
    pub threads: f64,
}

impl WaitedLock {
    fn new(lock: &Value, functions: &Value, total_ns: &Value, wall_ns: f64) -> Self {
        let functions = functions.as_array().into_iter().flatten();
        let names = std::iter::once(lock).chain(functions).filter_map(Value::as_str).map(str::to_owned).collect();
        Self { names, threads: total_ns.as_f64().unwrap_or(0.0) / wall_ns }
    }
}

impl Said {
    fn of(text: &str, report: &Value) -> Option<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with("warning"));
        let threads = &report["threads"];
        let wall_ns = report["duration_ns"].as_f64()?;
        // They are in no account of threads, and the program counts them as such.
        let goroutines = report["head"]["goroutines"].as_f64().unwrap_or(0.0);
        let mut said = Self {
            sentences: [lines.next()?.to_owned(), lines.next()?.to_owned()],
            threads: threads["total_ns"].as_f64()? / wall_ns,
            blocked: BTreeMap::new(),
            active: BTreeMap::new(),
            woken: 0.0,
            asleep_for_locks: report["head"]["asleep"].as_f64().unwrap_or(0.0) + goroutines,
            locks: Vec::new(),
            sleeps: Vec::new(),
            own_cpu: report["overhead"]["one_cpu_ppm"].as_f64().unwrap_or(0.0) / 1e6,
        };
        let at_rest = threads["sleeps"].as_array()?.iter().filter(|sleep| sleep["at_rest"] == true);
        let active = threads["states"].as_array()?.iter().map(|time| (time, true));
        for (time, is_active) in active.chain(at_rest.map(|time| (time, false))) {
            let (state, mean) = (time["state"].as_str()?, time["total_ns"].as_f64()? / wall_ns);
            match Reason::of_name(state) {
                Some(reason) => {
                    *said.blocked.entry(reason).or_default() += mean;
                    *said.active.entry(reason).or_default() += if is_active { mean } else { 0.0 };
                }
                None if state == "woken" => said.woken += mean,
                None => {}
            }
        }
        if goroutines > 0.0 {
            *said.blocked.entry(Reason::UserLock).or_default() += goroutines;
            *said.active.entry(Reason::UserLock).or_default() += goroutines;
        }
        Some(said)
    }

    fn add_locks(&mut self, by_caller: &Value) {
        let wall_ns = by_caller["duration_ns"].as_f64().unwrap_or(1.0).max(1.0);
        // A wait that timed out or goes on was one for the lock as well.
        let is_wait = |row: &&Value| row["happened"] == "wait" || row["happened"] == "timed-out";
        let rows = by_caller["rows"].as_array().into_iter().flatten().filter(is_wait);
        self.locks = rows.map(|row| WaitedLock::new(&row["lock"], &row["caller"], &row["total_ns"], wall_ns)).collect();
        let sleeps = by_caller["threads"]["sleeps"].as_array().into_iter().flatten();
        let of_locks = sleeps.filter(|sleep| !sleep["lock"].is_null());
        self.sleeps = of_locks
            .map(|sleep| WaitedLock::new(&sleep["lock"], &sleep["stack"], &sleep["total_ns"], wall_ns))
            .collect();
    }
}
