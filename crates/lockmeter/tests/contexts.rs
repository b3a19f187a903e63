//! A wait for a lock that spins is that of what waited: a task, a softirq or an interrupt.
//!
//! The kernel's count says which; the second witness is the stack that was taken of the wait, in which each has functions of
//! its own.

mod support;

use std::collections::BTreeMap;

use support::recorder::Recorder;
use support::report::{Row, report, sum};
use support::{Folder, machine, run_workload, skip, too_busy};

/// Fewer waits of a context than this prove nothing.
const ENOUGH: u64 = 20;

/// No shorter stack was cut.
const DEEPEST_WHOLE: usize = 40;

/// What waited, by its stack; `None` where the stack does not tell: the functions around an interrupt also run before the kernel
/// counts it, and after.
fn context_of(stack: &[String]) -> Option<&'static str> {
    const SOFTIRQ: [&str; 2] = ["handle_softirqs", "__do_softirq"];
    const HARDIRQ: [&str; 4] = ["hrtimer_interrupt", "__sysvec_", "__common_interrupt", "handle_irq_event"];
    const AROUND: [&str; 6] = ["sysvec_", "asm_", "common_interrupt", "irqentry_", "irq_exit", "exc_"];
    for function in stack {
        let begins = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
        if begins(&SOFTIRQ) {
            return Some("softirq");
        }
        if begins(&HARDIRQ) {
            return Some("hardirq");
        }
        if begins(&AROUND) {
            return None;
        }
    }
    (!stack.is_empty() && stack.len() < DEEPEST_WHOLE).then_some("task")
}

fn context(row: &Row) -> &str {
    row.context.as_deref().unwrap_or_default()
}

/// Makes sure that waits in softirqs and in tasks, for one lock too, are told apart as their stacks tell them.
#[test]
fn waits_in_softirqs_and_in_tasks_are_told_apart() {
    const TEST: &str = "contexts of waits";
    let Some(_machine) = machine(TEST) else { return };
    let folder = Folder::new();
    let recorder = Recorder::start(&folder, "recording", &["-a", "--every"]);
    if let Err(why) = run_workload("udp-crowd", &["--seconds", "2"]) {
        return skip(TEST, &why);
    }
    let recording = recorder.stop().recording();
    let by_stack = report(&recording, &["--by", "context,caller,kind"]);
    let mut judged = BTreeMap::<&str, u64>::new();
    for row in by_stack.rows.iter().filter(|row| row.happened == "wait" && row.stacks > 0) {
        let is_spun = matches!(row.kind.as_deref(), Some("spin" | "rwlock"));
        let expected = if is_spun { context_of(row.caller.as_deref().unwrap_or_default()) } else { Some("task") };
        let Some(expected) = expected else { continue };
        assert_eq!(context(row), expected, "{:?} of {:?}", row.caller, row.kind);
        *judged.entry(if is_spun { expected } else { "asleep" }).or_default() += row.stacks;
    }
    let by_context = report(&recording, &["--by", "context"]);
    let by_mode = report(&recording, &["--by", "mode,context,kind"]);
    let waits = |rows: &[Row]| sum(rows.iter().filter(|row| row.happened == "wait"));
    assert_eq!(waits(&by_context.rows), waits(&by_mode.rows), "{}\n{}", by_context.shown, by_mode.shown);
    assert!(by_context.rows.iter().all(|row| context(row) != "unknown"), "{}", by_context.shown);
    assert!(
        by_context.rows.iter().all(|row| !row.estimated),
        "contexts are counted, not sampled\n{}",
        by_context.shown
    );
    for context in ["softirq", "task"] {
        let count = judged.get(context).copied().unwrap_or(0);
        if count < ENOUGH {
            return too_busy(TEST, &format!("{count} stacks of waits in a {context}"));
        }
    }
}
