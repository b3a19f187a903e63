//! What is switched on and off: empty programs, lockmeter in its settings, and other tools.

use std::io::Read;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject};
use lockmeter_kernel::contention::{ContentionSource, Metered, Options, Scope, StackBudget};
use lockmeter_profile::Source;
use serde::Serialize;

use crate::loads::Load;
use crate::programs::{self, OwnPrograms};

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::pedantic)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/empty.skel.rs"));
}
use skeleton::{EmptySkel, EmptySkelBuilder};

/// Something that can be switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeterName {
    /// Programs that do nothing, on the same three tracepoints
    Empty,
    /// lockmeter with a stack budget of 0
    NoStacks,
    /// lockmeter as it comes, with its default budget for stacks
    Default,
    /// lockmeter --every: a stack for each wait
    Every,
    /// lockmeter mmap: waits and holds of mmap_lock (only when named)
    Mmap,
    /// lockmeter mmap --no-hold (only when named)
    MmapWaits,
    /// lockmeter record --hold, without function hooks (only when named)
    Hold,
    /// bpftrace with the usual script: begin stores nsecs in a map by tid, end makes a histogram
    Bpftrace,
    /// perf lock contention -b -a
    Perf,
}

impl MeterName {
    pub const ALL: [Self; 6] = [Self::Empty, Self::NoStacks, Self::Default, Self::Every, Self::Bpftrace, Self::Perf];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Empty => "empty programs",
            Self::NoStacks => "lockmeter, no stacks",
            Self::Default => "lockmeter, default",
            Self::Every => "lockmeter --every",
            Self::Mmap => "lockmeter mmap",
            Self::MmapWaits => "lockmeter mmap --no-hold",
            Self::Hold => "lockmeter --hold, no hooks",
            Self::Bpftrace => "bpftrace, two probes",
            Self::Perf => "perf lock contention -b",
        }
    }

    pub const fn is_other_tool(self) -> bool {
        matches!(self, Self::Bpftrace | Self::Perf)
    }

    const fn metered(self) -> Metered {
        match self {
            Self::Mmap => Metered::MmapLock { holds: true },
            Self::MmapWaits => Metered::MmapLock { holds: false },
            Self::Hold => Metered::Holds { hooks: None },
            _ => Metered::Waits,
        }
    }

    const fn stack_budget(self) -> StackBudget {
        match self {
            Self::NoStacks => StackBudget::Share { ppm: 0 },
            Self::Every => StackBudget::Every,
            _ => StackBudget::DEFAULT,
        }
    }
}

/// What there is to switch on, loaded as far as that can be done beforehand.
pub struct Meters {
    empty: EmptySkel<'static>,
    perf: String,
    /// Until the stack budget has found its period.
    budget_settles: Duration,
    own_programs: OwnPrograms,
}

/// A meter that is on; dropping it switches it off.
#[expect(dead_code, reason = "held for what dropping it does")]
pub enum Running {
    Programs(Vec<Link>),
    Lockmeter(Box<ContentionSource>),
    Tool(Tool),
}

impl Meters {
    pub fn load(perf: String, budget_settles: Duration) -> Result<Self> {
        libbpf_rs::set_print(None);
        let refused = "cannot load BPF programs: run as root, or with the capabilities CAP_BPF and CAP_PERFMON";
        // The skeleton borrows its storage for as long as it lives, which is as long as the process.
        let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let empty = EmptySkelBuilder::default().open(storage).context(refused)?.load().context(refused)?;
        Ok(Self { empty, perf, budget_settles, own_programs: OwnPrograms::default() })
    }

    /// Switches a meter on and waits until it works as it will go on working under the load.
    pub fn start(&mut self, name: MeterName, load: &Load) -> Result<Running> {
        let running = match name {
            MeterName::Empty => {
                let programs = &mut self.empty.progs;
                Running::Programs(vec![
                    programs.empty_end.attach().context("cannot attach the empty programs")?,
                    programs.empty_waking.attach().context("cannot attach the empty programs")?,
                    programs.empty_begin.attach().context("cannot attach the empty programs")?,
                ])
            }
            MeterName::NoStacks
            | MeterName::Default
            | MeterName::Every
            | MeterName::Mmap
            | MeterName::MmapWaits
            | MeterName::Hold => Running::Lockmeter(Box::new(self.start_lockmeter(name, load)?)),
            MeterName::Bpftrace => Running::Tool(Tool::start("bpftrace", &["-e", BPFTRACE_SCRIPT])?),
            MeterName::Perf => Running::Tool(Tool::start(&self.perf, &["lock", "contention", "-b", "-a"])?),
        };
        self.own_programs.remember_own();
        if let Running::Tool(tool) = &running {
            self.own_programs.remember_child(tool.child.id());
        }
        Ok(running)
    }

    /// Whether somebody else meters contention now.
    pub fn disturbed(&self) -> bool {
        self.own_programs.foreign_meters() > 0
    }

    /// lockmeter, switched on and its stack budget settled.
    pub fn start_lockmeter(&self, name: MeterName, load: &Load) -> Result<ContentionSource> {
        let mut source = attach_lockmeter(name)?;
        load.at_work(|| std::thread::sleep(self.budget_settles));
        // It times its own programs at first, which is slower; this ends that.
        source.tick();
        Ok(source)
    }

    /// Contended acquisitions on the whole machine in a stretch of time.
    pub fn count_ends(&mut self, during: impl FnOnce()) -> Result<u64> {
        let link = self.empty.progs.count_end.attach().context("cannot attach the counting program")?;
        let before = self.ends();
        during();
        let after = self.ends();
        drop(link);
        Ok(after - before)
    }

    fn ends(&self) -> u64 {
        let values = self.empty.maps.ends.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let word = |value: Vec<u8>| value.first_chunk::<8>().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        values.unwrap_or_default().into_iter().map(word).sum()
    }
}

/// lockmeter, just switched on.
pub fn attach_lockmeter(name: MeterName) -> Result<ContentionSource> {
    let options = Options { scope: Scope::Machine, stacks: name.stack_budget(), metered: name.metered() };
    ContentionSource::start(&options).map_err(|error| anyhow!("{error}"))
}

const BPFTRACE_SCRIPT: &str = "tracepoint:lock:contention_begin { @begin[tid] = nsecs; } \
     tracepoint:lock:contention_end /@begin[tid]/ { @wait_ns = hist(nsecs - @begin[tid]); delete(@begin[tid]); }";

/// Another tool, running; dropping it ends it.
pub struct Tool {
    child: Child,
}

/// Such a tool holds a program for the begin and one for the end.
const PROGRAMS_OF_A_TOOL: usize = 2;
/// From having its programs loaded to having them attached.
const TOOL_ATTACHES: Duration = Duration::from_millis(150);
const TOOL_LOADS: Duration = Duration::from_secs(15);
const TOOL_ENDS: Duration = Duration::from_secs(3);

impl Tool {
    fn start(program: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // SAFETY: between fork and exec only system calls that allocate nothing and touch no lock.
        unsafe { command.pre_exec(show_it_the_tracepoints) };
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                bail!("{program} is not installed (`scripts/setup bench` installs it)")
            }
            Err(error) => return Err(error).with_context(|| format!("cannot start {program}")),
        };
        let mut tool = Self { child };
        let begin = Instant::now();
        while programs::held_by(tool.child.id()) < PROGRAMS_OF_A_TOOL {
            if tool.child.try_wait().context("cannot wait for another tool")?.is_some() {
                bail!("{program} refuses: {}", tool.complaint());
            }
            if begin.elapsed() > TOOL_LOADS {
                bail!("{program} loaded no programs within {TOOL_LOADS:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(TOOL_ATTACHES);
        Ok(tool)
    }

    /// The line of what it said that tells most.
    fn complaint(&mut self) -> String {
        let mut text = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // What cannot be read is shown as far as it could.
            let _ = stderr.read_to_string(&mut text);
        }
        let telling = |line: &&str| line.to_lowercase().contains("error") || line.contains("fail");
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.clone().find(telling).or_else(|| lines.next()).unwrap_or("it printed nothing").to_owned()
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let begin = Instant::now();
        while begin.elapsed() < TOOL_ENDS {
            if let Ok(pid) = i32::try_from(self.child.id()) {
                // SAFETY: a child that was not waited for yet, so the number is still its own.
                unsafe { libc::kill(pid, libc::SIGINT) };
            }
            std::thread::sleep(Duration::from_millis(50));
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
        }
        // Sometimes bpftrace misses the signal for ever. What ends with it is gone either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where tracefs is not mounted, other tools cannot see the tracepoints: mounts it for the child alone, and sees to it that
/// the child ends with us.
fn show_it_the_tracepoints() -> std::io::Result<()> {
    // SAFETY: system calls with constant strings and integers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT);
        if libc::access(c"/sys/kernel/tracing/events".as_ptr(), libc::F_OK) == 0 {
            return Ok(());
        }
        if libc::unshare(libc::CLONE_NEWNS) != 0 {
            return Ok(()); // The tool itself says what it misses.
        }
        let none = std::ptr::null();
        libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast());
        let tracefs = c"tracefs".as_ptr();
        libc::mount(tracefs, c"/sys/kernel/tracing".as_ptr(), tracefs, 0, none.cast());
        let debugfs = c"debugfs".as_ptr();
        libc::mount(debugfs, c"/sys/kernel/debug".as_ptr(), debugfs, 0, none.cast());
    }
    Ok(())
}
