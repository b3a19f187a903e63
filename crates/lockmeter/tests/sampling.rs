//! Stacks are taken on a budget: it is kept at every rate, the totals stay exact, and what is estimated from the stacks
//! that were taken agrees with what all of them say.

mod support;

use std::collections::HashMap;

use support::bystanders::Bystanders;
use support::recorder::Recorder;
use support::report::{Report, report, sum};
use support::witness::Witness;
use support::{Folder, machine, run_workload, say, skip, too_busy};

/// How far the share of a caller may be off, in percentage points.
///
/// A share estimated from n stacks has a standard error of at most 50 / √n points (a binomial at one half; sampling in
/// proportion to waited time does better). With [`ENOUGH_STACKS`] that is 2.2 points: five are beyond chance.
const SHARE_TOLERANCE: f64 = 5.0;
const ENOUGH_STACKS: u64 = 500;

/// This many waits of one load in three seconds are several times what one per cent of CPU time pays for.
const ENOUGH_TO_ESTIMATE: u64 = 200_000;

/// How much of its budget the time spent on stacks may be; what it can overshoot in while it adapts.
const BUDGET_TOLERANCE: f64 = 1.5;

/// How much of it is used at least where it does not pay for every stack: half of it is left right after the rate was
/// halved.
const LEAST_USE_OF_BUDGET: f64 = 0.4;

/// A rate at which taking every stack would cost tens of percent.
const HIGH_RATE: u64 = 150_000;

/// The waited time of a lock by the stack that waits, in percent of what has a stack. (A burst may use up the budget; what
/// waits then has a row of its own, without a stack.)
fn caller_shares(report: &Report, lock: &str) -> HashMap<String, f64> {
    let mut shares: HashMap<String, f64> = HashMap::new();
    let rows = || report.rows.iter().filter(|row| row.lock() == lock && row.stacks > 0);
    let (_, total_ns) = sum(rows());
    for row in rows() {
        let stack = row.caller.as_deref().unwrap_or_default();
        *shares.entry(stack.join(" < ")).or_default() += row.total_ns as f64 * 100.0 / total_ns as f64;
    }
    shares
}

/// Makes sure that the estimates agree with `--every`, by metering the very same waits with both at once.
fn estimates_agree(workload: &str, lock: &str) {
    let test = format!("estimates of {workload}");
    let Some(_machine) = machine(&test) else { return };
    let folder = Folder::new();
    // In this order: whose programs are attached first reads the clock first, so that the time that the other one spends
    // on stacks is in neither one's waits.
    let budgeted = Recorder::start(&folder, "budgeted", &["-a", "--stack-budget", "1%"]);
    let every = Recorder::start(&folder, "every", &["-a", "--every"]);
    let said = match run_workload(workload, &["--seconds", "3"]) {
        Ok(said) => said,
        Err(why) => return skip(&test, &why),
    };
    let flags = ["--by", "lock,caller", "--lock", lock, "-n", "10"];
    let budgeted = report(&budgeted.stop().recording(), &flags);
    let every = report(&every.stop().recording(), &flags);
    let stacks = |report: &Report| report.rows.iter().map(|row| row.stacks).sum::<u64>();
    let waits = sum(&every.rows).0;
    let shown = || format!("with --every:\n{}\nbudgeted:\n{}", every.shown, budgeted.shown);
    // Several times what the budget pays for, so that most waits are left to be estimated.
    if waits < ENOUGH_TO_ESTIMATE {
        return too_busy(&test, &format!("{waits} waits"));
    }
    if stacks(&budgeted) < ENOUGH_STACKS {
        // On some machines a stack is ten times as expensive. Then the budget is to be used.
        let used = share_of_budget(&budgeted, said["elapsed_ns"].as_u64().unwrap());
        assert!(used >= LEAST_USE_OF_BUDGET, "{:.0} % of the budget was used\n{}", used * 100.0, shown());
        return say(&format!(
            "SKIPPED: {test}: the budget pays here for {} stacks of {waits} waits",
            stacks(&budgeted)
        ));
    }
    assert!(stacks(&every) >= waits * 99 / 100, "--every took {} stacks of {waits}\n{}", stacks(&every), shown());
    let (truth, estimated) = (caller_shares(&every, lock), caller_shares(&budgeted, lock));
    let mut top: Vec<(&String, &f64)> = truth.iter().collect();
    top.sort_by(|a, b| b.1.total_cmp(a.1));
    for (caller, share) in top.into_iter().take(3) {
        let estimate = estimated.get(caller).copied().unwrap_or(0.0);
        say(&format!(
            "{workload}: {share:.1} % estimated as {estimate:.1} %: {}",
            caller.split(" < ").take(3).collect::<Vec<_>>().join(" < ")
        ));
        assert!(
            (share - estimate).abs() <= SHARE_TOLERANCE,
            "{caller}: {share:.1} % of the wait was estimated as {estimate:.1} %\n{}",
            shown()
        );
    }
}

/// Makes sure of it for a mutex whose waiters mostly spin and sometimes sleep.
#[test]
fn the_callers_of_a_mutex_have_the_shares_that_all_stacks_say() {
    estimates_agree("pipe-crowd", "pipe_inode_info.mutex");
}

/// Makes sure of it for a lock that only spins.
#[test]
fn the_callers_of_a_rwlock_have_the_shares_that_all_stacks_say() {
    estimates_agree("tasklist", "tasklist_lock");
}

/// Makes sure that at a thousand waits a second one percent is enough for all of them, once that has been found out, or is
/// used.
#[test]
fn at_a_thousand_waits_a_second_every_stack_is_taken_that_the_budget_pays_for() {
    let test = "every stack at 1 k/s";
    let Some(_machine) = machine(test) else { return };
    let folder = Folder::new();
    let program = support::workload_path("file-pos");
    let program = program.to_str().unwrap();
    let load = ["--", program, "--rate", "1000", "--threads", "2", "--seconds", "3"];
    let arguments = [&["--stack-budget", "1%"][..], &load].concat();
    let bystanders = Bystanders::watch();
    let recording = Recorder::start(&folder, "recording", &arguments).wait().recording();
    let flags = ["--by", "lock,caller", "--lock", "file.f_pos_lock", "--window"];
    // Intervals are taken whole: the first one ends a little after its second.
    let settled = report(&recording, &[&flags[..], &["1500ms.."]].concat());
    let (count, _) = sum(&settled.rows);
    let stacks: u64 = settled.rows.iter().map(|row| row.stacks).sum();
    say(&format!("file-pos --rate 1000: {stacks} stacks of {count} waits after the first second"));
    // A load that is kept from running makes up for it in bursts, which may be more than the budget pays for.
    if stacks != count && bystanders.took_much() || count < ENOUGH_STACKS {
        let percent = bystanders.percent();
        return too_busy(test, &format!("others took {percent} % of its CPU time, and the load waited {count} times"));
    }
    // A stack on a CPU that was idle finds nothing in its caches. On some machines that makes it ten times as expensive than one
    // of a busy load, and a thousand a second are more than the budget: then it is to be used.
    let used = share_of_budget(&settled, settled.duration_ns);
    assert!(
        stacks == count || used >= LEAST_USE_OF_BUDGET,
        "{stacks} of {count} stacks were taken, for {:.0} % of the budget\n{}",
        used * 100.0,
        settled.shown
    );
}

/// What the stacks of a report took, as a share of what was allowed in so much time.
fn share_of_budget(report: &Report, time_ns: u64) -> f64 {
    let machine_ns = time_ns * report.cpus;
    let allowed = report.sampling.budget_ppm.unwrap() as f64 / 1e6;
    report.overhead.stack_ns as f64 / machine_ns as f64 / allowed
}

/// Makes sure that hundreds of thousands of waits a second cost no more on stacks than was allowed, and that the totals
/// are those that the kernel's own tracing counts.
fn budget_holds(workload: &str, budget_percent: &str) {
    let test = format!("budget of {budget_percent} with {workload}");
    let Some(_machine) = machine(&test) else { return };
    let folder = Folder::new();
    let mut witness = match Witness::come() {
        Ok(witness) => witness,
        Err(why) => return skip(&test, &why),
    };
    let ends = witness.watch("lock/contention_end", &format!("comm == \"{workload}\""));
    let recorder = Recorder::start(&folder, "recording", &["-a", "--stack-budget", budget_percent]);
    if let Err(why) = run_workload(workload, &["--seconds", "3"]) {
        return skip(&test, &why);
    }
    let recording = recorder.stop().recording();
    let witnessed = witness.count(ends);
    let report = report(&recording, &["--by", "lock,task", "--task", workload, "-n", "5"]);
    let (count, _) = sum(report.rows.iter().filter(|row| row.task() == workload));
    let used = share_of_budget(&report, report.duration_ns);
    let per_second = count * 1_000_000_000 / report.duration_ns;
    say(&format!(
        "{workload}, budget {budget_percent}: {:.0} % of it on {} stacks at {per_second} waits a second; {count} counted, {witnessed} witnessed",
        used * 100.0,
        report.sampling.stacks
    ));
    let difference = (count as f64 - witnessed as f64).abs() / witnessed.max(1) as f64;
    assert!(
        difference <= 0.001,
        "{count} waits counted, {witnessed} witnessed: totals must be exact\n{}",
        report.shown
    );
    if per_second < HIGH_RATE {
        return too_busy(&test, &format!("{per_second} waits a second do not strain the budget"));
    }
    assert!(used <= BUDGET_TOLERANCE, "stacks took {:.0} % of their budget\n{}", used * 100.0, report.shown);
    assert!(report.sampling.stacks > 0, "a budget is there to be used\n{}", report.shown);
}

#[test]
fn stacks_of_a_hot_mutex_stay_within_one_percent_of_cpu_time() {
    budget_holds("file-pos", "1%");
}

#[test]
fn stacks_of_a_hot_mutex_stay_within_a_fifth_of_a_percent_of_cpu_time() {
    budget_holds("file-pos", "0.2%");
}

#[test]
fn stacks_of_a_hot_spinlock_stay_within_one_percent_of_cpu_time() {
    budget_holds("futex-bucket", "1%");
}

#[test]
fn stacks_of_a_hot_spinlock_stay_within_a_fifth_of_a_percent_of_cpu_time() {
    budget_holds("futex-bucket", "0.2%");
}
