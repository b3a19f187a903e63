//! The description that heads a recording.

use std::ffi::CStr;

use lockmeter_kernel::contention::StackBudget;
use lockmeter_profile::{About, RecordingKind, rules, unix_now_ns};

/// Describes this machine and this run.
pub fn describe(kind: RecordingKind, scope: &str, stacks: StackBudget) -> About {
    // SAFETY: all-zero is a valid utsname, and uname fills it with NUL-terminated text.
    let mut system: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: writes to `system`, which is ours.
    unsafe { libc::uname(&raw mut system) };
    // SAFETY: both fields end with a NUL, from uname or from the zeroes.
    let text = |field: &[libc::c_char]| unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned();
    About {
        lockmeter_version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel_release: text(&system.release),
        machine: text(&system.machine),
        // Waits are those of the whole machine.
        cpus: lockmeter_kernel::online_cpus(),
        kind: Some(kind),
        scope: scope.to_owned(),
        command_line: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        start_unix_ns: unix_now_ns(),
        stack_budget_ppm: match stacks {
            StackBudget::Share { ppm } => Some(ppm),
            StackBudget::Every => None,
        },
        recorder_tgid: std::process::id(),
        rules: rules::installed().sets().to_vec(),
        reason: String::new(),
    }
}
