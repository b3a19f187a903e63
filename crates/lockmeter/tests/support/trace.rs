//! A second opinion on what ran: the same tracepoints through tracefs, put together by other code.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

/// Room for the events of one CPU.
const BUFFER_KB: &str = "32768";

/// A tracefs of this test's own, with an instance in it that nobody else uses. Both are gone when this is dropped.
pub struct Trace {
    mount: PathBuf,
    instance: PathBuf,
}

/// How often something ran and for how long, interrupts apart.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ran {
    pub count: u64,
    pub total_ns: u64,
}

impl Trace {
    /// Begins to trace these events (`irq/softirq_entry`). `Err` says why that is not possible here.
    pub fn start(folder: &Path, events: &[&str]) -> Result<Self, String> {
        let mount = folder.join("tracefs");
        fs::create_dir_all(&mount).map_err(|error| error.to_string())?;
        let target = CString::new(mount.to_str().unwrap()).unwrap();
        // SAFETY: NUL-terminated strings that outlive the call.
        let mounted =
            unsafe { libc::mount(c"tracefs".as_ptr(), target.as_ptr(), c"tracefs".as_ptr(), 0, std::ptr::null()) };
        if mounted != 0 {
            return Err(format!("cannot mount tracefs: {}", std::io::Error::last_os_error()));
        }
        let instance = mount.join("instances").join(format!("lockmeter-test-{}", process::id()));
        let trace = Self { mount, instance };
        fs::create_dir(&trace.instance).map_err(|error| format!("cannot make an instance of tracefs: {error}"))?;
        trace.set("trace_clock", "mono")?;
        trace.set("buffer_size_kb", BUFFER_KB)?;
        for event in events {
            trace.set(&format!("events/{event}/enable"), "1")?;
        }
        Ok(trace)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), String> {
        fs::write(self.instance.join(file), value).map_err(|error| format!("cannot write {value} to {file}: {error}"))
    }

    /// Stops tracing, and gives every event in the order of its CPU's time: `(cpu, ns, event, its fields)`.
    pub fn stop(&self) -> Vec<(u32, u64, String, String)> {
        self.set("tracing_on", "0").unwrap();
        let text = fs::read(self.instance.join("trace")).unwrap();
        let text = String::from_utf8_lossy(&text);
        let lost = text.lines().find(|line| line.contains("LOST"));
        assert!(lost.is_none(), "the trace buffer is too small: {lost:?}");
        text.lines().filter(|line| !line.starts_with('#')).filter_map(event).collect()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // An instance with enabled events may be removed; the kernel switches them off.
        let _ = fs::remove_dir(&self.instance);
        let target = CString::new(self.mount.to_str().unwrap()).unwrap();
        // SAFETY: a NUL-terminated string that outlives the call.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}

/// `  python3-123  [001] d.h1. 12345.123456: hrtimer_expire_entry: hrtimer=… function=timerfd_tmrproc now=…`
fn event(line: &str) -> Option<(u32, u64, String, String)> {
    let (_, rest) = line.split_once(" [")?;
    let (cpu, rest) = rest.split_once("] ")?;
    let (_, rest) = rest.trim_start().split_once(' ')?;
    let (time, rest) = rest.trim_start().split_once(": ")?;
    let (name, fields) = rest.split_once(": ")?;
    let (seconds, fraction) = time.split_once('.')?;
    let fraction_ns =
        fraction.parse::<u64>().ok()? * 10_u64.pow(9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?);
    Some((
        cpu.parse().ok()?,
        seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction_ns,
        name.to_owned(),
        fields.to_owned(),
    ))
}

/// The value of a field: `function=timerfd_tmrproc`.
pub fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    let words = fields.split(['[', ']', ' ']).filter(|word| !word.is_empty());
    words.filter_map(|word| word.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// What ran by `kind name`, from the events of softirqs, timers, high-resolution timers, devices' interrupts and those of the CPU:
/// a bracket for each, and what lies inside of one that began in a hard interrupt is taken from all that it interrupted.
pub fn runs(events: &[(u32, u64, String, String)]) -> HashMap<String, Ran> {
    struct Open {
        key: String,
        begin_ns: u64,
        interrupted_ns: u64,
        hard: bool,
    }
    let mut open: HashMap<u32, Vec<Open>> = HashMap::new();
    let mut runs: HashMap<String, Ran> = HashMap::new();
    for (cpu, now_ns, event, fields) in events {
        let stack = open.entry(*cpu).or_default();
        if let Some(key) = begins(event, fields) {
            let hard = key.starts_with("irq") || key.starts_with("hrtimer");
            stack.push(Open { key, begin_ns: *now_ns, interrupted_ns: 0, hard });
        } else if let Some(kind) = ends(event) {
            // The trace begins in the middle of something.
            if !stack.last().is_some_and(|top| top.key.starts_with(kind)) {
                stack.clear();
                continue;
            }
            let ended = stack.pop().unwrap();
            let wall_ns = now_ns - ended.begin_ns;
            if ended.hard && !stack.last().is_some_and(|outer| outer.hard) {
                for outer in stack.iter_mut() {
                    outer.interrupted_ns += wall_ns;
                }
            }
            let ran = runs.entry(ended.key).or_default();
            ran.count += 1;
            ran.total_ns += wall_ns.saturating_sub(ended.interrupted_ns);
        }
    }
    runs
}

fn begins(event: &str, fields: &str) -> Option<String> {
    Some(match event {
        "softirq_entry" => format!("softirq {}", field(fields, "action")?),
        "hrtimer_expire_entry" => format!("hrtimer {}", field(fields, "function")?),
        "timer_expire_entry" => format!("timer {}", field(fields, "function")?),
        "irq_handler_entry" => format!("irq {} {}", field(fields, "irq")?, field(fields, "name")?),
        "local_timer_entry" => "irq LOC".to_owned(),
        _ => return None,
    })
}

fn ends(event: &str) -> Option<&'static str> {
    Some(match event {
        "softirq_exit" => "softirq ",
        "hrtimer_expire_exit" => "hrtimer ",
        "timer_expire_exit" => "timer ",
        "irq_handler_exit" => "irq ",
        "local_timer_exit" => "irq LOC",
        _ => return None,
    })
}
