//! The results as tables.

use std::fmt::Write as _;

use lockmeter_experiments::published::{self, OneThread};
use lockmeter_experiments::step_by_step::Costs;
use lockmeter_statistics::{Disturbances, Estimate};

use super::recorded::Recorded;
use super::{AIM, PUBLISHED_CPUS, Point, Results, Verdict};

pub fn of(results: &Results) -> String {
    let mut text = "Acquisitions of the global mutex a second. PREDICTED: simulated step by step, from one thread's times and the costs of \
                    single steps.\nQUEUE: by the queueing model, from one thread's times and the cost of a handoff in another load\n"
        .to_owned();
    points(&mut text, &results.points);
    summary(&mut text, results);
    if let Some(costs) = &results.steps {
        steps(&mut text, costs);
    }
    recorded(&mut text, results);
    published(&mut text, results);
    text
}

fn points(text: &mut String, points: &[Point]) {
    let mut lock = "";
    for point in points {
        if point.lock != lock {
            lock = point.lock;
            let _ = writeln!(
                text,
                "\n{lock}\n{:>8} {:>9} {:>8} {:>23} {:>10} {:>10}  {:<28} ERROR OF QUEUE",
                "HOLD", "THINK", "THREADS", "MEASURED, 95 % BETWEEN", "PREDICTED", "QUEUE", "ERROR"
            );
        }
        let us = |ns: f64| format!("{:.2} µs", ns / 1e3);
        let Estimate { low, high, .. } = point.measured;
        let verdict = match point.verdict {
            Verdict::Within => "",
            Verdict::Undecided => "  undecided",
            Verdict::Missed => "  missed",
        };
        let _ = writeln!(
            text,
            "{:>8} {:>9} {:>8} {:>23} {:>10.0} {:>10.0}  {:<28} {:+.0} %",
            us(point.hold_ns),
            us(point.think_ns),
            point.threads,
            format!("{low:.0} … {high:.0}"),
            point.predicted.median,
            point.queued.median,
            format!("{}{verdict}", percent(&point.error)),
            point.queue_error.median * 100.0
        );
    }
}

fn percent(share: &Estimate) -> String {
    let Estimate { median, low, high, .. } = share.map(|share| share * 100.0);
    format!("{median:+.0} % [{low:+.0}, {high:+.0}]")
}

fn summary(text: &mut String, results: &Results) {
    let count = |of: &dyn Fn(&Point) -> bool| results.points.iter().filter(|point| of(point)).count();
    let verdicts = |verdict_on: &dyn Fn(&Point) -> Verdict| {
        let [within, missed] =
            [Verdict::Within, Verdict::Missed].map(|verdict| count(&|point| verdict_on(point) == verdict));
        format!(
            "{within} of the {} points that can decide are within {:.0} %, {} undecided",
            within + missed,
            AIM * 100.0,
            results.points.len() - within - missed
        )
    };
    let _ = writeln!(
        text,
        "\nStep by step: {}; {} of all {} by their medians.\nBy the queueing model: {}",
        verdicts(&|point| point.verdict),
        count(&|point| point.error.median.abs() <= AIM),
        results.points.len(),
        verdicts(&|point| Verdict::on(&point.queue_error))
    );
    let Disturbances { runs, repeated, kept, .. } = results.disturbances;
    let _ = writeln!(
        text,
        "Of {runs} slices {repeated} were repeated because other processes took a CPU, and {kept} were kept after too many tries;\n\
         {} were repeated because one thread's time or the cost of a cache line changed meanwhile, and {} were kept after too many tries",
        results.drifts.repeated, results.drifts.kept
    );
}

fn steps(text: &mut String, costs: &Costs) {
    let middle = |values: &mut dyn Iterator<Item = f64>| {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values.get(values.len() * part / 10).copied().unwrap_or(0.0) / 1e3;
        format!("{:.1} µs [{:.1}, {:.1}]", at(5), at(1), at(9))
    };
    let _ = writeln!(
        text,
        "\nSteps, as measured: a cache line from another CPU {:.0} ns, a pause {:.0} ns, a refused futex wait {:.0} ns, a \
        wake-up without a sleeper {:.0} ns, a context switch {:.0} ns.\n\
         To wake a sleeper whose CPU is idle takes, median [10 %, 90 %]: the waker {}, the sleeper {};\n\
         if its CPU runs another thread: the waker {}, the sleeper {}",
        costs.line_ns,
        costs.pause_ns,
        costs.refused_ns,
        costs.nobody_ns,
        costs.switch_ns,
        middle(&mut costs.wakes.iter().map(|wake| wake.waker_ns)),
        middle(&mut costs.wakes.iter().map(|wake| wake.sleeper_ns)),
        middle(&mut costs.busy_wakes.iter().map(|wake| wake.waker_ns)),
        middle(&mut costs.busy_wakes.iter().map(|wake| wake.sleeper_ns))
    );
}

fn recorded(text: &mut String, results: &Results) {
    if let Some(why) = &results.recorded_missing {
        let _ = writeln!(text, "\nNot checked from recordings: {why}");
    }
    if results.recorded.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nFrom recordings (`record --hold`, then `predict`): threads that contend for a pthread_mutex, predicted from a recording of\n\
         one thread with the typical handoff cost, and from a recording of these threads\n{:>8} {:>8} {:>8} {:>12}  {:<26} FROM THEIR OWN",
        "WORK", "HOLD", "THREADS", "MEASURED", "FROM ONE THREAD"
    );
    for Recorded { work, threads, hold_ns, measured, from_one, from_own } in &results.recorded {
        let hold = format!("{:.2} µs", hold_ns / 1e3);
        let measured = format!("{:.0}/s", measured.median);
        let (from_one, from_own) = (percent(from_one), percent(from_own));
        let _ = writeln!(text, "{work:>8} {hold:>8} {threads:>8} {measured:>12}  {from_one:<26} {from_own}");
    }
}

fn published(text: &mut String, results: &Results) {
    let OneThread { before_ns, after_ns, handoff_ns } = results.one_thread;
    let _ = writeln!(
        text,
        "\nThe published figures of {PUBLISHED_CPUS} CPUs with {} workers, predicted from this machine: {before_ns:.0} ns of \
        one thread for a slot under the global\nmutex, {after_ns:.0} ns under a mutex of its own; {handoff_ns:.0} ns to hand over a mutex \
         with a cache line of each of {PUBLISHED_CPUS} CPUs; and the published\n35.3 µs of everything else\n",
        published::WORKERS
    );
    let _ = writeln!(text, "{:<32} {:>12} {:>12} {:>8}", "DESIGN", "PUBLISHED", "PREDICTED", "ERROR");
    for row in &results.published {
        let _ = writeln!(
            text,
            "{:<32} {:>9.1} µs {:>9.1} µs {:>+6.0} %",
            row.design,
            row.published_us,
            row.predicted_us,
            row.error() * 100.0
        );
    }
    let _ = writeln!(
        text,
        "The first published figure needs {:.0} ns for a slot and its handoff; here they take {:.0} ns. The published machine's \
        time was not published.",
        published::implied_slot_ns(),
        before_ns + handoff_ns
    );
}
