//! Processes that end with what started them, and what they print.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bench_harness::priority;

/// Until a program ends that is to end.
const ENDS: Duration = Duration::from_secs(60);

/// A process that ends with this value.
pub struct Running {
    child: Child,
    signal: libc::c_int,
}

impl Running {
    /// `signal` asks it to end.
    pub fn start(command: &mut Command, signal: libc::c_int) -> Result<Self> {
        end_with_this_process(command, libc::SIGTERM);
        let name = command.get_program().to_string_lossy().into_owned();
        Ok(Self { child: command.spawn().with_context(|| format!("cannot run {name}"))?, signal })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> Result<()> {
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(begin.elapsed() < ENDS, "a program does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // SAFETY: takes integers only; the child is not waited for yet.
        unsafe { libc::kill(self.child.id().cast_signed(), self.signal) };
        let begin = Instant::now();
        while begin.elapsed() < ENDS && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that answers each line on its standard input.
pub struct Conversation {
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    running: Running,
}

impl Conversation {
    /// It ends with its input, also when this process is killed: then it can end its own children, which a signal does not let it.
    pub fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut running =
            Running { child: child.with_context(|| format!("cannot run {name}"))?, signal: libc::SIGTERM };
        let asks = running.child.stdin.take();
        let answers = running.child.stdout.take().context("a program has no output")?;
        Ok(Self { asks, answers: BufReader::new(answers), running })
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Its next line.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line).context("cannot read what a program says")? == 0 {
            bail!("a program ended that should have answered");
        }
        Ok(line.trim_end().to_owned())
    }

    pub fn ask(&mut self, question: &str) -> Result<()> {
        let asks = self.asks.as_mut().context("a program is ending")?;
        writeln!(asks, "{question}").and_then(|()| asks.flush()).context("cannot ask a program")
    }

    /// The rows of a query, their columns apart.
    pub fn rows(&mut self, query: &str) -> Result<Vec<Vec<String>>> {
        self.ask(query)?;
        self.ask("select 'END';")?;
        let mut rows = Vec::new();
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(rows);
            }
            rows.push(line.split('\t').map(str::to_owned).collect());
        }
    }

    /// Closes its input and waits until it ends.
    pub fn end(mut self) -> Result<()> {
        drop(self.asks.take());
        self.running.wait()
    }
}

impl Drop for Conversation {
    /// The end of its input lets it end its own children, a signal may not.
    fn drop(&mut self) {
        drop(self.asks.take());
        let _ = self.running.wait();
    }
}

/// Has the kernel send this signal to a program when this process ends, however it does.
pub fn end_with_this_process(command: &mut Command, signal: libc::c_int) {
    // SAFETY: between fork and exec one system call that takes integers.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, signal);
            Ok(())
        });
    }
}

/// Has a thread run before others of this session, so that what it is asked or asks is of that moment and not of one when the CPUs had
/// nothing else to do. What it starts runs as others do. Other sessions keep their share of the CPUs, where the kernel groups tasks by
/// session.
pub fn hurry(thread: u32) -> Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    let policy = libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK;
    // SAFETY: reads what is ours.
    let is_reset = unsafe { libc::sched_setscheduler(thread.cast_signed(), policy, &raw const none) } == 0;
    // SAFETY: takes integers only.
    let is_set = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, priority::HIGHEST.into()) } == 0;
    ensure!(is_reset && is_set, "cannot set a thread's priority: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Where a program is.
pub fn find(program: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&folders).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut found = folders.map(|folder| folder.join(program)).filter(|path| path.is_file());
    found.next().with_context(|| format!("{program} is not installed (scripts/setup bench installs it)"))
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().find(|line| line.contains("rror")).or_else(|| said.lines().last());
        bail!("{name} ended with {}: {}", output.status, said.unwrap_or_default());
    }
    Ok(output)
}

/// Writes a source file and runs what makes a program of it, once a folder.
pub fn build(folder: &Path, source: (&str, &str), made: &str, how: &[&str]) -> Result<PathBuf> {
    let program = folder.join(made);
    if !program.exists() {
        std::fs::write(folder.join(source.0), source.1).context("cannot write a program")?;
        let (compiler, arguments) = how.split_first().context("no compiler")?;
        run(Command::new(find(compiler)?).args(arguments).current_dir(folder))?;
        ensure!(program.exists(), "{compiler} made no {made}");
    }
    Ok(program)
}
