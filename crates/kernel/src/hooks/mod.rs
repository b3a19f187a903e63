//! Whether and how this kernel allows hooks on its functions, and which policy forbids them if not.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::error::may_load_programs;
use crate::libbpf_log::quiet_libbpf;
use crate::lockdown;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/hooks.skel.rs"));
}
use skeleton::HooksSkelBuilder;

/// Where the kernel offers kprobes.
const PROBES: &str = "/sys/bus/event_source/devices/kprobe";

/// How functions of the kernel are hooked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookWay {
    /// By BPF trampolines, fentry and fexit: the cheaper way.
    Fentry,
    /// By kprobes and kretprobes: for locks that sleep only.
    Kprobe,
}

impl HookWay {
    /// All, the better first.
    pub const ALL: [Self; 2] = [Self::Fentry, Self::Kprobe];

    /// What users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Kprobe => "kprobe",
        }
    }
}

/// Why functions cannot be hooked, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HooksRefused {
    /// The policy, in words.
    pub why: String,
    /// The mend.
    pub mend: &'static str,
}

impl HooksRefused {
    fn new(why: impl Into<String>, mend: &'static str) -> Self {
        Self { why: why.into(), mend }
    }
}

/// Attaches a hook to a function made for it, and detaches it again.
pub fn try_hooks(way: HookWay) -> Result<(), HooksRefused> {
    quiet_libbpf();
    let mut storage = MaybeUninit::uninit();
    let attached = HooksSkelBuilder::default().open(&mut storage).and_then(|mut open| {
        open.progs.try_fentry.set_autoload(way == HookWay::Fentry);
        open.progs.try_kprobe.set_autoload(way == HookWay::Kprobe);
        let skeleton = open.load()?;
        match way {
            HookWay::Fentry => skeleton.progs.try_fentry.attach().map(drop),
            HookWay::Kprobe => skeleton.progs.try_kprobe.attach().map(drop),
        }
    });
    match attached {
        // A kprobe can be attached and yet never be hit.
        Ok(()) if way == HookWay::Kprobe && reads("/sys/kernel/debug/kprobes/enabled", "0") => Err(HooksRefused::new(
            "kprobes are switched off (/sys/kernel/debug/kprobes/enabled)",
            "echo 1 >/sys/kernel/debug/kprobes/enabled",
        )),
        Ok(()) => Ok(()),
        Err(error) => Err(policy(way, &error.to_string())),
    }
}

/// The best way that this kernel allows; else why not.
pub fn best_hooks() -> Result<HookWay, HooksRefused> {
    let Err(fentry) = try_hooks(HookWay::Fentry) else { return Ok(HookWay::Fentry) };
    let Err(kprobe) = try_hooks(HookWay::Kprobe) else { return Ok(HookWay::Kprobe) };
    Err(refused_all(&fentry, &kprobe))
}

/// Why neither way is allowed, said once if that is the same.
pub(crate) fn refused_all(fentry: &HooksRefused, kprobe: &HooksRefused) -> HooksRefused {
    if kprobe.why == fentry.why {
        return fentry.clone();
    }
    HooksRefused { why: format!("no fentry: {}; no kprobes: {}", fentry.why, kprobe.why), mend: fentry.mend }
}

fn reads(path: &str, text: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|read| read.trim() == text)
}

/// The policy that is in the way; what the kernel answered tells little.
fn policy(way: HookWay, answer: &str) -> HooksRefused {
    if !may_load_programs() {
        return HooksRefused::new("CAP_BPF or CAP_PERFMON is missing", "run as root, or with both capabilities");
    }
    if let Some(level) = lockdown::level().filter(|level| *level != lockdown::Level::None) {
        return HooksRefused::new(
            format!("the kernel is locked down ({})", level.name()),
            "boot without lockdown= (and with Secure Boot off, where that turns it on)",
        );
    }
    if reads("/proc/sys/kernel/ftrace_enabled", "0") {
        return HooksRefused::new("hooks are switched off (kernel.ftrace_enabled=0)", "sysctl kernel.ftrace_enabled=1");
    }
    if answer.contains("Operation not permitted") {
        return HooksRefused::new(
            "a security policy (an LSM or a sandbox's filter) forbids attaching to functions, whatever the privileges",
            "ask the administrator of this machine or container to allow fentry hooks or kprobes",
        );
    }
    not_built_in(way).unwrap_or_else(|| {
        HooksRefused::new(
            format!("the kernel refuses to attach to functions ({answer})"),
            "use a kernel that allows fentry hooks; LOCKMETER_DEBUG=1 shows what this one says",
        )
    })
}

/// A way that this kernel was built without.
fn not_built_in(way: HookWay) -> Option<HooksRefused> {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    match way {
        HookWay::Fentry if !symbols.contains(" ftrace_set_filter_ip") => Some(HooksRefused::new(
            "this kernel was built without dynamic function tracing and so without fentry hooks",
            "use a kernel with CONFIG_DYNAMIC_FTRACE and CONFIG_BPF_JIT (Debian's have them)",
        )),
        HookWay::Kprobe if !symbols.contains(" register_kretprobe") || !Path::new(PROBES).exists() => {
            Some(HooksRefused::new(
                "this kernel was built without kprobes",
                "use a kernel with CONFIG_KPROBES, CONFIG_KPROBE_EVENTS and CONFIG_PERF_EVENTS (Debian's have them)",
            ))
        }
        _ => None,
    }
}
