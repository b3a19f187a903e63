//! Whether this kernel allows hooks on its functions, and which policy forbids them if not.

use std::fs;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::error::may_load_programs;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/try.skel.rs"));
}
use skeleton::TrySkelBuilder;

/// Why functions cannot be hooked, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HooksRefused {
    /// The policy, in words.
    pub why: String,
    /// The mend.
    pub mend: &'static str,
}

/// Attaches a hook to a function made for it, and detaches it again.
pub fn try_hooks() -> Result<(), HooksRefused> {
    crate::contention::quiet_libbpf();
    let mut storage = MaybeUninit::uninit();
    let attached = TrySkelBuilder::default()
        .open(&mut storage)
        .and_then(OpenSkel::load)
        .and_then(|skeleton| skeleton.progs.try_hook.attach().map(drop));
    attached.map_err(|error| policy(&error.to_string()))
}

/// The policy that is in the way; what the kernel answered tells little.
fn policy(answer: &str) -> HooksRefused {
    let refused = |why: &str, mend| HooksRefused { why: why.to_owned(), mend };
    if !may_load_programs() {
        return refused("CAP_BPF or CAP_PERFMON is missing", "run as root, or with both capabilities");
    }
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if let Some(level) =
        ["integrity", "confidentiality"].into_iter().find(|level| lockdown.contains(&format!("[{level}]")))
    {
        return refused(
            &format!("the kernel is locked down ({level})"),
            "boot without lockdown= (and with Secure Boot off, where that turns it on)",
        );
    }
    if fs::read_to_string("/proc/sys/kernel/ftrace_enabled").is_ok_and(|text| text.trim() == "0") {
        return refused("hooks are switched off (kernel.ftrace_enabled=0)", "sysctl kernel.ftrace_enabled=1");
    }
    if answer.contains("Operation not permitted") {
        return refused(
            "a security policy (an LSM, or a sandbox's filter) forbids to attach to functions, whatever the privileges",
            "ask whoever runs this machine or container to allow fentry hooks",
        );
    }
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    if !symbols.contains(" ftrace_set_filter_ip") {
        return refused(
            "this kernel was built without dynamic function tracing and so without fentry hooks",
            "use a kernel with CONFIG_DYNAMIC_FTRACE and CONFIG_BPF_JIT (Debian's have them)",
        );
    }
    refused(
        &format!("the kernel refuses to attach to functions ({answer})"),
        "use a kernel that allows fentry hooks; LOCKMETER_DEBUG=1 shows what this one says",
    )
}
