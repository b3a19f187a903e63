//! One run of the command: its output kept, its time taken, its failure shown.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_cli::messages::say;
use lockmeter_experiments::overhead::whole_runs::Run;
use lockmeter_experiments::work_folder::TempDir;
use lockmeter_kernel::contention::open_process;
use lockmeter_recorder::target::{Target, spawn};
use lockmeter_recorder::{StopSignals, Woken};
use lockmeter_render::escape::escaped;

/// So much of a failed command's output is shown.
const SHOWN_LINES: usize = 30;

/// Waits for a command's end are cut into pieces of this, for no reason but that they must have a length.
const A_LONG_TIME: Duration = Duration::from_secs(3600);

/// A place of our own for what commands print and recorders write; removed at the end.
pub struct Scratch(TempDir);

impl Scratch {
    pub fn create() -> Result<Self> {
        crate::scratch::folder("lockmeter-overhead-").map(Self)
    }

    pub fn recording(&self) -> PathBuf {
        self.0.path().join("recording")
    }

    fn output(&self) -> PathBuf {
        self.0.path().join("output")
    }

    /// What the last command printed.
    pub fn output_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.output()).unwrap_or_default()).into_owned()
    }

    /// The end of what the last command printed. Its tabs stay.
    pub fn show_output(&self) {
        let text = fs::read(self.output()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
            let parts: Vec<_> = line.split('\t').map(escaped).collect();
            let _ = writeln!(io::stderr(), "{}", parts.join("\t"));
        }
    }
}

/// A command that runs.
pub struct Running {
    pid: u32,
    target: Target,
    begin: Instant,
}

/// A command that ran.
pub struct Ended {
    pub status: ExitStatus,
    pub run: Run,
    /// Whether it was to be interrupted: by a signal to this process, or by Ctrl-C, which a terminal sends to both.
    pub interrupted: bool,
}

impl Running {
    /// Starts it; what it prints goes to the scratch folder. `group`: the `cgroup.procs` it is to enter.
    pub fn start(
        command: &[OsString],
        environment: &[(&'static str, OsString)],
        scratch: &Scratch,
        group: Option<File>,
    ) -> Result<Self> {
        let [program, arguments @ ..] = command else { anyhow::bail!("no command") };
        let output = File::create(scratch.output()).context("cannot keep what the command prints")?;
        let mut starting = Command::new(program);
        let variables = environment.iter().map(|(name, value)| (name, value));
        starting.args(arguments).envs(variables).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        if let Some(mut group) = group {
            let enter = move || group.write_all(b"0");
            // SAFETY: between fork and exec only a write to an open descriptor.
            unsafe { starting.pre_exec(enter) };
        }
        let begin = Instant::now();
        let child = spawn(&mut starting)?;
        let pid = child.id();
        let process = open_process(pid)?;
        Ok(Self { pid, target: Target::Command(child, process), begin })
    }

    /// Its process, whose end ends what follows it.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Waits a while for its end or a signal.
    pub fn wait(&self, signals: &mut StopSignals, timeout: Duration) -> io::Result<Woken> {
        signals.wait(timeout, self.target.end(), None)
    }

    /// Waits for its end, and passes a signal on to it; the second one ends it at once.
    pub fn run_to_end(self, signals: &mut StopSignals) -> io::Result<Ended> {
        let mut interrupted = false;
        loop {
            match self.wait(signals, A_LONG_TIME)? {
                Woken::Exited => break,
                Woken::Signal(_) if interrupted => {
                    self.kill();
                    break;
                }
                Woken::Signal(signal) => {
                    interrupted = true;
                    self.target.pass_on(signal);
                }
                Woken::Timeout | Woken::News => {}
            }
        }
        self.finish(Instant::now(), interrupted)
    }

    /// How long it has run.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Ends it and all that it has started: a process that hangs does not end when it is asked to.
    pub fn kill(&self) {
        let mut processes = vec![self.pid];
        let mut seen = 0;
        while let Some(&process) = processes.get(seen) {
            // Stopped, so that it starts no more while its children are read.
            signal(process, libc::SIGSTOP);
            processes.extend(children(process));
            seen += 1;
        }
        // Children first: those of an ended process would no longer be known as its own.
        processes.iter().rev().for_each(|process| signal(*process, libc::SIGKILL));
    }

    /// Asks it to end, and waits until it has. What it did does not count.
    pub fn end(self) -> io::Result<()> {
        self.finish(Instant::now(), true).map(drop)
    }

    /// Takes its times. Its end was seen at `end`, or else it is asked to end, and waited for.
    pub fn finish(self, end: Instant, interrupted: bool) -> io::Result<Ended> {
        use std::os::unix::process::ExitStatusExt;
        if self.target.command_goes_on() {
            signal(self.pid, libc::SIGTERM);
        }
        let pid = i32::try_from(self.pid).map_err(|_| io::Error::other("a process id is a number"))?;
        let mut status = 0;
        // SAFETY: all-zero is a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a child of ours that nobody waited for; both places are ours.
        while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let wall_ns = u64::try_from((end - self.begin).as_nanos()).unwrap_or(u64::MAX);
        let cpu_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
        let status = ExitStatus::from_raw(status);
        let interrupted = interrupted || status.signal() == Some(libc::SIGINT);
        Ok(Ended { status, run: Run { wall_ns, cpu_ns }, interrupted })
    }
}

fn signal(process: u32, signal: libc::c_int) {
    if let Ok(process) = libc::pid_t::try_from(process) {
        // SAFETY: takes numbers.
        unsafe { libc::kill(process, signal) };
    }
}

fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

fn nanoseconds(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_usec).unwrap_or(0) * 1_000
}

/// Shows what a failed command printed and how it ended, and gives the status to end with.
pub fn failed(command: &[OsString], status: ExitStatus, scratch: &Scratch) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    scratch.show_output();
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    say(format_args!(
        "lockmeter-lab: `{}` failed ({status}), so there is nothing to compare; its last output is above",
        words.join(" ")
    ));
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}
