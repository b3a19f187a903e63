//! A second witness of contention: the kernel's own tracing, with counters and raw events of its own.
//!
//! Each thing counted is a tracing instance with a filter: its per-CPU statistics say how many events passed, whether or
//! not the ring buffer kept them. (Histogram triggers would do it in one, but not every kernel has them.)

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Folder, run, text};

/// Small: a counter needs no events kept.
const COUNTER_BUFFER_KB: &str = "64";
/// Room for some hundred thousand events a CPU.
const RAW_BUFFER_KB: &str = "16384";

/// Tracing, mounted for this test alone.
pub struct Witness {
    mount: Folder,
    instances: Vec<PathBuf>,
    raw: Option<PathBuf>,
}

/// One event of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub task: String,
    pub time_us: u64,
    pub is_end: bool,
    pub lock: String,
}

impl Witness {
    /// Mounts tracefs in a folder of its own. `Err` says why it cannot be.
    pub fn come() -> Result<Self, String> {
        let mount = Folder::new();
        let mut command = Command::new("mount");
        command.args(["-t", "tracefs", "none"]).arg(mount.path());
        let mounted = run(command);
        if !mounted.status.success() {
            return Err(format!("tracefs cannot be mounted: {}", text(&mounted.stderr).trim()));
        }
        Ok(Self { mount, instances: Vec::new(), raw: None })
    }

    fn instance(&mut self, buffer_kb: &str) -> PathBuf {
        let name = format!("lockmeter-test-{}-{}", std::process::id(), self.instances.len());
        let instance = self.mount.path().join("instances").join(name);
        fs::create_dir(&instance).unwrap();
        self.instances.push(instance.clone());
        set(&instance, "buffer_size_kb", buffer_kb);
        instance
    }

    /// Counts events, as `lock/contention_begin`, that pass the filter, from now on. The number is for [`count`](Self::count).
    pub fn watch(&mut self, event: &str, filter: &str) -> usize {
        let instance = self.instance(COUNTER_BUFFER_KB);
        set(&instance, &format!("events/{event}/filter"), filter);
        set(&instance, &format!("events/{event}/enable"), "1");
        self.instances.len() - 1
    }

    /// How many events passed.
    pub fn count(&self, watched: usize) -> u64 {
        let mut events = 0;
        for cpu in fs::read_dir(self.instances[watched].join("per_cpu")).unwrap() {
            let stats = fs::read_to_string(cpu.unwrap().path().join("stats")).unwrap();
            for line in stats.lines() {
                if let Some((name, value)) = line.split_once(':') {
                    let value = value.trim().parse().unwrap_or(0);
                    match name {
                        "entries" | "overrun" => events += value,
                        "commit overrun" | "dropped events" => {
                            assert_eq!(value, 0, "the witness itself lost events:\n{stats}");
                        }
                        _ => {}
                    }
                }
            }
        }
        events
    }

    /// Keeps the begin and end events of this command's threads, from now on.
    pub fn keep_events_of(&mut self, comm: &str) {
        let instance = self.instance(RAW_BUFFER_KB);
        for event in ["contention_begin", "contention_end"] {
            set(&instance, &format!("events/lock/{event}/filter"), &format!("comm == \"{comm}\""));
            set(&instance, &format!("events/lock/{event}/enable"), "1");
        }
        self.raw = Some(instance);
    }

    /// The kept events, oldest first.
    pub fn events(&self) -> Vec<Event> {
        let instance = self.raw.as_ref().expect("events were asked for");
        set(instance, "tracing_on", "0");
        let trace = fs::read_to_string(instance.join("trace")).unwrap();
        assert!(!trace.contains("LOST"), "the witness itself lost events");
        trace.lines().filter(|line| !line.starts_with('#')).filter_map(parse).collect()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        for instance in &self.instances {
            let _ = fs::remove_dir(instance);
        }
        let mut command = Command::new("umount");
        command.arg(self.mount.path());
        run(command);
    }
}

fn set(instance: &Path, file: &str, value: &str) {
    let path = instance.join(file);
    fs::write(&path, value).unwrap_or_else(|error| panic!("{} = {value}: {error}", path.display()));
}

/// `known-wait-123   [001] d..2.  812.123456: contention_begin: 000000001 (flags=MUTEX)`
fn parse(line: &str) -> Option<Event> {
    let (before, after) = line.split_once(": contention_")?;
    let (time, is_end) = (before.rsplit(' ').next()?, after.starts_with("end"));
    let (seconds, fraction) = time.split_once('.')?;
    Some(Event {
        task: before.split('[').next()?.trim().to_owned(),
        time_us: seconds.parse::<u64>().ok()? * 1_000_000 + fraction.parse::<u64>().ok()?,
        is_end,
        lock: after.split_once(": ")?.1.split(' ').next()?.to_owned(),
    })
}
