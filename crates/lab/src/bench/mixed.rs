//! `lockmeter-lab bench mixed`: jobs a minute as users are added, and what waiting for locks takes of them.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use lockmeter_experiments::mixed::{Step, Workshop};
use lockmeter_render::escape::escaped;
use lockmeter_statistics::Machine;
use serde::Serialize;

use super::{Stop, cores, write};
use crate::arguments::bench::MixedArguments;
use crate::time_left::TimeLeft;

/// Users for each core.
const USERS_PER_CORE: [usize; 5] = [1, 2, 4, 8, 16];

#[derive(Debug, Serialize)]
struct Results {
    steps: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    jobs_per_minute: f64,
    spinning: Option<f64>,
    sleep_per_job_ns: Option<f64>,
    /// Of kernel locks that sleep; `None` where the kernel refuses function hooks.
    acquired_per_second: Option<f64>,
    /// The share of these acquisitions that had to wait.
    contention: Option<f64>,
    #[serde(flatten)]
    step: Step,
}

pub fn run(arguments: &MixedArguments) -> Result<ExitCode> {
    // Nothing is drawn at random here.
    let machine = Machine::here(0);
    let workshop = Workshop::open().context("cannot make a directory to work in; set TMPDIR")?;
    let users = match &arguments.users[..] {
        [] => USERS_PER_CORE.map(|each| each * cores()).to_vec(),
        given => given.to_vec(),
    };
    let mut stop = Stop::catch()?;
    let mut time_left = TimeLeft::new();
    let mut steps = Vec::new();
    let all: usize = users.iter().sum();
    let mut done = 0;
    for users in users {
        time_left.step(&format!("{users} users at work"), all - done);
        if !stop.go_on() {
            break;
        }
        let step = workshop.step(&arguments.mix(), users, arguments.jobs).context("the mix cannot go on")?;
        done += users;
        steps.push(Row {
            jobs_per_minute: step.jobs_per_minute(),
            spinning: step.spinning(),
            sleep_per_job_ns: step.sleep_per_job_ns(),
            acquired_per_second: step.acquired_per_second(),
            contention: step.contention(),
            step,
        });
    }
    time_left.clear();
    let results = Results { steps };
    write(arguments.format, machine, &results, &text(&results))
}

fn text(results: &Results) -> String {
    let mut text = format!(
        "{:>6} {:>12} {:>10} {:>16} {:>14} {:>10} {:>9}  WORST LOCK: CONTENDED A JOB, MEAN AND LONGEST WAIT\n",
        "USERS", "JOBS/MIN", "SPINNING", "SLEEP A JOB", "CONTENDED/JOB", "ACQUIRED/S", "CONT %"
    );
    for Row { jobs_per_minute, spinning, sleep_per_job_ns, acquired_per_second, contention, step } in &results.steps {
        let _ = write!(text, "{:>6} {jobs_per_minute:>12.0}", step.users);
        match (&step.seen, spinning, sleep_per_job_ns) {
            (Ok(seen), Some(spinning), Some(sleep_ns)) => {
                let a_job = |count: u64| count as f64 / step.jobs.max(1) as f64;
                let _ = write!(
                    text,
                    " {:>8.2} % {:>13.2} ms {:>14.1}",
                    spinning * 100.0,
                    sleep_ns / 1e6,
                    a_job(seen.contended)
                );
                let or_dash = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
                let _ = write!(
                    text,
                    " {:>10} {:>9}",
                    or_dash(acquired_per_second.map(|count| format!("{count:.0}"))),
                    or_dash(contention.map(|share| format!("{:.3} %", share * 100.0)))
                );
                if let Some(worst) = seen.locks.first() {
                    let mean_us = worst.waited_ns as f64 / worst.contended.max(1) as f64 / 1e3;
                    let longest_us = worst.max_ns as f64 / 1e3;
                    let _ = write!(
                        text,
                        "  {}: {:.1}, {mean_us:.0} µs, {longest_us:.0} µs",
                        escaped(&worst.name),
                        a_job(worst.contended)
                    );
                }
            }
            (Err(why), ..) => {
                let _ = write!(text, "  not metered: {why}");
            }
            _ => {}
        }
        text.push('\n');
    }
    match results.steps.iter().find_map(|row| row.step.uncounted.as_ref()) {
        Some(why) => {
            let _ = writeln!(text, "\nNot every acquisition was counted, only those that waited: {}", escaped(why));
        }
        None => text.push_str(
            "\nACQUIRED/S and CONT %: of locks that sleep (mutexes, semaphores), all counted by function hooks\n",
        ),
    }
    text
}

#[cfg(test)]
mod tests {
    use lockmeter_experiments::kernel_waits::{KernelWaits, WaitedLock};

    use super::*;

    #[test]
    fn the_name_of_the_worst_lock_forges_no_line() {
        let worst = WaitedLock {
            name: "a\x1b[31m\nb".into(),
            kind: "mutex".into(),
            contended: 1,
            waited_ns: 2,
            max_ns: 3,
            histogram: Vec::new(),
        };
        let seen = Ok(KernelWaits { locks: vec![worst], ..KernelWaits::default() });
        let uncounted = Some("no\nhooks".to_owned());
        let step = Step { users: 1, jobs: 1, elapsed_ns: 1, cpu_ns: 1, seen, uncounted };
        let row = Row {
            jobs_per_minute: 1.0,
            spinning: Some(0.0),
            sleep_per_job_ns: Some(0.0),
            acquired_per_second: None,
            contention: None,
            step,
        };
        let text = text(&Results { steps: vec![row] });
        assert!(text.contains("a\\u{1b}[31m\\nb: ") && text.lines().count() == 4, "{text}");
    }
}
