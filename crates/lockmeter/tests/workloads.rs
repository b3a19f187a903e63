//! Each workload's contended lock, its kind and mode, its main caller and its main blocker are found, and nearly all of
//! the waited time has a name.
//!
//! The answers stand beside the workloads, in `NAME.expect.toml`. The whole machine is metered; judged are the waits of the
//! workload's own tasks, among all their locks, for somebody else's waits (another build, another lockmeter that ends) prove
//! nothing about it. The machine may be busy with something else, so a workload gets a second try, which is said.

mod support;

use std::fs;

use serde::Deserialize;

use support::bystanders::Bystanders;
use support::recorder::Recorder;
use support::report::{Report, Row, report, sum};
use support::witness::Witness;
use support::{Folder, is_emulated, machine, run_workload, say, skip, too_busy, workload_sources};

/// Design §5: so much of the waited time has a name, in percent.
const LEAST_NAMED_PERCENT: f64 = 95.0;

/// Below this share of a lock's waited time, sleep is a side effect: there may be no blocker worth naming.
const SLEEPS_PERCENT: u64 = 10;

/// A machine whose tracepoints see spinlocks sees far more of them than this during a workload that is about one.
const FEW_SPINS: u64 = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectations {
    #[serde(rename = "summary")]
    _summary: String,
    args: Vec<String>,
    min_kernel: Option<String>,
    expect: Vec<Expectation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    lock: Vec<String>,
    kind: String,
    mode: Vec<String>,
    caller: Vec<String>,
    blocker: Vec<String>,
    rank: Rank,
    only_on: Option<System>,
    /// In a guest whose CPUs are emulated, where what contends most is a matter of luck.
    emulated_rank: Option<Rank>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rank {
    Top,
    Present,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum System {
    /// The kernel's tracepoints see spinlocks that two CPUs contend for.
    TracedSpinlocks,
}

macro_rules! workloads {
    ($($test:ident: $name:literal,)+) => {
        const TESTED: &[&str] = &[$($name),+];
        $(#[test]
        fn $test() {
            finds_the_contended_lock_of($name);
        })+
    };
}

workloads! {
    the_writers_of_cgroup_threadgroup_rwsem_are_blamed_when_processes_move_between_cgroups: "cgroup-move",
    the_rename_mutex_of_the_file_system_is_found_when_threads_move_files: "cross-rename",
    the_directory_is_found_when_threads_create_and_remove_files_in_it: "dir-churn",
    the_epoll_instance_is_found_when_threads_change_and_collect_its_events: "epoll-crowd",
    the_file_offset_is_found_when_threads_read_through_one_description: "file-pos",
    the_root_anon_vma_is_found_in_a_fork_storm: "fork-storm",
    the_futex_hash_bucket_is_found_when_threads_search_it: "futex-bucket",
    the_breakpoint_constraints_are_found_when_breakpoints_come_and_go: "hw-breakpoint",
    the_holder_inside_read_is_blamed_for_the_waits_of_known_length: "known-wait",
    the_lru_lock_is_found_when_processes_move_pages_between_lists: "lru-churn",
    the_mmap_lock_is_found_when_threads_map_and_unmap: "mmap-fault",
    the_spinlocks_on_the_way_to_a_priority_inheriting_futex_are_found: "pi-futex",
    the_pipe_is_found_when_many_write_to_it: "pipe-crowd",
    the_directories_and_the_file_position_are_found_in_a_chain_behind_a_slow_file_system: "slow-dir",
    the_tasklist_lock_is_found_when_processes_change_groups: "tasklist",
}

/// Makes sure that a new workload gets a test.
#[test]
fn every_workload_with_an_expected_answer_has_a_test() {
    let mut expected: Vec<String> = fs::read_dir(workload_sources())
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().into_string().unwrap().strip_suffix(".expect.toml").map(str::to_owned)
        })
        .collect();
    expected.sort();
    assert_eq!(expected, TESTED, "workloads/*.expect.toml and the tests in {} differ", file!());
}

fn finds_the_contended_lock_of(name: &str) {
    let Some(_machine) = machine(name) else { return };
    let file = workload_sources().join(format!("{name}.expect.toml"));
    let expected: Expectations = toml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    if let Some(oldest) = expected.min_kernel.as_deref().filter(|oldest| kernel_version() < version(oldest)) {
        return skip(name, &format!("needs Linux {oldest}"));
    }
    let arguments: Vec<&str> = expected.args.iter().map(String::as_str).collect();
    let about_spinlocks = expected.expect.iter().all(|expect| expect.only_on == Some(System::TracedSpinlocks));
    let are_untraced = || about_spinlocks && spins_traced(name, &arguments).is_some_and(|spins| spins < FEW_SPINS);
    let skip_untraced =
        || skip(name, "this machine's tracepoints do not see spinlocks (traced-spinlocks in workloads/README.md)");
    // Emulated CPUs have none to be seen, and take their time for each run.
    if is_emulated() && are_untraced() {
        return skip_untraced();
    }
    let Some(first) = differences(name, &arguments, &expected.expect) else { return };
    if first.is_empty() {
        return;
    }
    let bystanders = Bystanders::watch();
    say(&format!("{name}: second try, for the machine may have been busy; the first gave: {}", first[0]));
    let Some(second) = differences(name, &arguments, &expected.expect) else { return };
    if second.is_empty() {
        return;
    }
    if bystanders.took_much() {
        return too_busy(name, &format!("others took {} % of its CPU time", bystanders.percent()));
    }
    if are_untraced() {
        return skip_untraced();
    }
    panic!("{name}, twice:\n{}", second.join("\n"));
}

/// Meters the workload once; what is not as expected. `None` if the workload cannot run here.
fn differences(name: &str, arguments: &[&str], expected: &[Expectation]) -> Option<Vec<String>> {
    let folder = Folder::new();
    let recorder = Recorder::start(&folder, "recording", &["-a"]);
    if let Err(why) = run_workload(name, arguments) {
        skip(name, &why);
        return None;
    }
    let recording = recorder.stop().recording();
    let about = |by| report(&recording, &["--by", by, "--task", name, "-n", "8"]);
    let (by_lock, by_caller, by_blocker) = (about("lock"), about("lock,caller"), about("lock,blocker"));
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let named = percent(sum(by_lock.rows.iter().filter(|row| row.is_named())).1, sum(&by_lock.rows).1);
    say(&format!(
        "{name}: {named:.2} % of the waited time has a name ({:.2} % on the whole machine); top lock {}; {} waits, {} stacks, lost {:?}",
        percent(by_lock.head.named_ns, by_lock.head.waits.total_ns),
        by_lock.rows.first().map_or("none", Row::lock),
        sum(&by_lock.rows).0,
        by_lock.sampling.stacks,
        by_lock.lost
    ));
    let mut differences = Vec::new();
    if named < LEAST_NAMED_PERCENT {
        differences.push(format!("only {named:.2} % of the waited time has a name\n{}", by_lock.shown));
    }
    if !by_lock.shown.contains("The time of ") {
        differences.push(format!(
            "the threads' time is missing, whose programs this kernel may have refused\n{}",
            by_lock.shown
        ));
    }
    for expect in expected {
        differences.extend(expect.lock_difference(&by_lock));
        differences.extend(expect.caller_difference(&by_caller));
        differences.extend(expect.blocker_difference(&by_lock, &by_blocker));
    }
    Some(differences)
}

impl Expectation {
    /// Whether a row is about the expected lock, whatever the mode.
    fn is_about(&self, row: &Row) -> bool {
        self.lock.iter().any(|lock| lock == row.lock()) && row.kind.as_deref() == Some(&self.kind)
    }

    /// The row with most waited time that is about this lock and passes a filter.
    fn main<'a>(&self, report: &'a Report, also: impl Fn(&Row) -> bool) -> Option<&'a Row> {
        report.rows.iter().filter(|row| self.is_about(row) && also(row)).max_by_key(|row| row.total_ns)
    }

    fn rank(&self) -> Rank {
        self.emulated_rank.filter(|_| is_emulated()).unwrap_or(self.rank)
    }

    fn lock_difference(&self, by_lock: &Report) -> Option<String> {
        let Some(row) = self.main(by_lock, |_| true) else {
            return Some(format!("no {} {} among the locks\n{}", self.kind, self.lock.join(" or "), by_lock.shown));
        };
        let mode = row.mode.as_deref().unwrap_or_default();
        if !self.mode.iter().any(|expected| expected == mode) {
            return Some(format!(
                "{} is waited for in mode {mode}, not {:?}\n{}",
                row.lock(),
                self.mode,
                by_lock.shown
            ));
        }
        let most = by_lock.rows.iter().max_by_key(|row| row.total_ns).expect("one row there is");
        match self.rank() {
            Rank::Top if !self.is_about(most) => {
                Some(format!("the top lock is {}, not {}\n{}", most.lock(), row.lock(), by_lock.shown))
            }
            _ => None,
        }
    }

    fn caller_difference(&self, by_caller: &Report) -> Option<String> {
        // Where stacks are expensive the budget is used up at times; what waits then has a row of its own, without a stack.
        let Some(row) = self.main(by_caller, |row| row.stacks > 0) else {
            return Some(format!("no stack of a wait for {}\n{}", self.lock.join(" or "), by_caller.shown));
        };
        let stack = row.caller.clone().unwrap_or_default();
        (!names_one_of(&stack, &self.caller)).then(|| {
            format!("the main caller of {} is {stack:?}, none of {:?}\n{}", row.lock(), self.caller, by_caller.shown)
        })
    }

    fn blocker_difference(&self, by_lock: &Report, by_blocker: &Report) -> Option<String> {
        let about: Vec<&Row> = by_lock.rows.iter().filter(|row| self.is_about(row)).collect();
        let total_ns: u64 = about.iter().map(|row| row.total_ns).sum();
        let sleep_ns: u64 = about.iter().map(|row| row.sleep_ns).sum();
        let sleeps = sleep_ns * 100 >= total_ns * SLEEPS_PERCENT && sleep_ns > 0;
        let Some(row) = self.main(by_blocker, |row| row.blocker_source.as_deref() == Some("releaser")) else {
            // Where stacks are expensive, the few that would tell may be among those that the budget leaves out.
            let lost = by_blocker.rows.iter().any(|row| {
                self.is_about(row) && row.blocker_source.as_deref() == Some("stack-lost") && row.sleep_ns * 2 > sleep_ns
            });
            return (sleeps && !self.blocker.is_empty() && !(is_emulated() && lost)).then(|| {
                format!(
                    "nobody is blamed for {}, though its waiters sleep\n{}",
                    self.lock.join(" or "),
                    by_blocker.shown
                )
            });
        };
        let stack = row.blocker.clone().unwrap_or_default();
        (!names_one_of(&stack, &self.blocker)).then(|| {
            format!("the main blocker of {} is {stack:?}, none of {:?}\n{}", row.lock(), self.blocker, by_blocker.shown)
        })
    }
}

fn names_one_of(stack: &[String], functions: &[String]) -> bool {
    // Compilers and modules put things after a name: `ksys_read.isra.0`, `ext4_create [ext4]`.
    stack.iter().any(|frame| functions.iter().any(|name| frame.split(['.', ' ']).next() == Some(name)))
}

/// How many contended spinlocks the kernel's own tracing sees during the workload; `None` if that cannot be told.
fn spins_traced(name: &str, arguments: &[&str]) -> Option<u64> {
    const SPIN: &str = "flags == 1";
    let mut witness = Witness::come().ok()?;
    let spins = witness.watch("lock/contention_begin", &format!("{SPIN} && comm == \"{name}\""));
    run_workload(name, arguments).ok()?;
    Some(witness.count(spins))
}

fn kernel_version() -> (u32, u32) {
    version(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap())
}

fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
