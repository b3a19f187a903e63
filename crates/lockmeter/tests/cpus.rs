//! With `--per-cpu`, waits for kernel locks are told apart by the CPU on which they ended.

mod support;

use std::collections::BTreeMap;
use std::mem::MaybeUninit;

use support::recorder::Recorder;
use support::report::{report, sum};
use support::{Folder, lockmeter, machine, run, run_workload, skip, text};

/// Fewer waits than this prove nothing.
const ENOUGH: u64 = 20;

/// What this thread, and the processes that it starts, may run on.
fn allowed() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the kernel writes into the set, of whose size it is told; zeroes are an empty one.
    let set = unsafe {
        assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()), 0);
        set.assume_init()
    };
    // SAFETY: the set is large enough for this number.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Has this thread, and the processes that it starts, run on one CPU alone.
fn stay_on(cpu: usize) {
    // SAFETY: zeroes are an empty set, which is large enough for a CPU of it.
    unsafe {
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set), 0);
    }
}

/// Makes sure that what processes waited on one CPU each is told of these CPUs, and that rows by CPU add up to those without.
#[test]
fn waits_are_told_of_the_cpu_on_which_they_ended() {
    const TEST: &str = "waits by CPU";
    let Some(_machine) = machine(TEST) else { return };
    let cpus: Vec<usize> = allowed().into_iter().take(2).collect();
    let [first, second] = cpus[..] else { return skip(TEST, "one CPU alone") };
    let folder = Folder::new();
    let recorder = Recorder::start(&folder, "recording", &["-a", "--per-cpu"]);
    for cpu in [first, second] {
        stay_on(cpu);
        if let Err(why) = run_workload("dir-churn", &["--seconds", "1"]) {
            return skip(TEST, &why);
        }
    }
    let recording = recorder.stop().recording();
    let by_cpu = report(&recording, &["--by", "task,cpu"]);
    let mut of_processes = BTreeMap::<u32, BTreeMap<Option<u32>, u64>>::new();
    for row in by_cpu.rows.iter().filter(|row| row.task() == "dir-churn" && row.happened == "wait") {
        let tgid = row.tgid.unwrap_or_else(|| panic!("a wait of no process\n{}", by_cpu.shown));
        *of_processes.entry(tgid).or_default().entry(row.cpu).or_default() += row.count;
    }
    let counts: Vec<_> = of_processes.into_values().filter(|counts| counts.values().sum::<u64>() >= ENOUGH).collect();
    let told: Vec<Vec<Option<u32>>> = counts.iter().map(|counts| counts.keys().copied().collect()).collect();
    let mut expected = [first, second].map(|cpu| vec![Some(u32::try_from(cpu).unwrap())]);
    let mut told_in_order = told.clone();
    told_in_order.sort();
    expected.sort();
    assert_eq!(told_in_order, expected, "{}", by_cpu.shown);
    let by_lock = report(&recording, &["--by", "lock"]);
    let cpus = report(&recording, &["--by", "cpu,lock"]);
    assert_eq!(sum(&cpus.rows), sum(&by_lock.rows), "{}\n{}", cpus.shown, by_lock.shown);
    assert!(by_cpu.rows.iter().all(|row| !row.estimated), "CPUs are counted, not sampled\n{}", by_cpu.shown);
}

/// Makes sure that nobody takes a recording without CPUs for one of a machine whose CPUs all waited alike.
#[test]
fn a_recording_without_cpus_says_how_to_get_them() {
    const TEST: &str = "a recording without CPUs";
    let Some(_machine) = machine(TEST) else { return };
    let folder = Folder::new();
    let recorder = Recorder::start(&folder, "recording", &["-a"]);
    if let Err(why) = run_workload("dir-churn", &["--seconds", "1"]) {
        return skip(TEST, &why);
    }
    let recording = recorder.stop().recording();
    let output = run(lockmeter(["report", &recording, "--by", "cpu"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert_eq!(said.matches("record with --per-cpu").count(), 1, "{said}");
}
