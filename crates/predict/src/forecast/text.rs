//! A forecast as a table.

use std::fmt;

use lockmeter_render::escape::escaped;
use lockmeter_statistics::counted;

use super::{Forecast, Waiting};
use crate::callers::{ByCaller, CallerForecast, Threads};

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} ({}, {}): held {} a time, {:.1} % of the time; waited for {} a time; {} elsewhere for each acquisition",
            escaped(&self.lock),
            self.kind,
            self.mode,
            time(self.hold_ns),
            self.utilization * 100.0,
            time(self.wait_ns),
            time(self.think_ns)
        )?;
        let how = if self.waiting == Waiting::Sleeping { "slept" } else { "spun" };
        match self.fitted_handoff_ns {
            Some(price) => writeln!(f, "its waiters {how}; judging by their waits, a handoff costs {}", time(price))?,
            None => writeln!(f, "too few waits to measure what a handoff costs; the forecast uses typical costs")?,
        }
        writeln!(
            f,
            "recorded {}/s with {} on {}; the model is off by {:+.1} % ({:+.1} % with free handoffs), the simulation by {:+.1} %\n",
            rate(self.recorded_per_second),
            counted(self.threads, "thread", "threads"),
            counted(self.cpus, "CPU", "CPUs"),
            self.check.with_handoff * 100.0,
            self.check.free_handoff * 100.0,
            self.check.simulated * 100.0
        )?;
        if let Some(reason) = &self.refused {
            let what =
                if self.points.is_empty() { "no forecast for other CPUs" } else { "only a part of the forecast" };
            writeln!(f, "{what}: {reason}")?;
        }
        if self.points.is_empty() {
            return self.by_caller.iter().try_for_each(|callers| write!(f, "\n{callers}"));
        }
        writeln!(
            f,
            "{:>6} {:>12} {:>12} {:>12} {:>12} {:>12}",
            "CPUS", "SPINNING", "SLEEPING", "SIMULATED", "SHARDED", "REMOVED"
        )?;
        for point in &self.points {
            let cells = [point.spinning, point.sleeping, point.simulated, point.sharded, Some(point.removed)];
            write!(f, "{:>6}", point.cpus)?;
            for cell in cells {
                write!(f, " {:>12}", cell.map_or_else(|| "-".to_owned(), |cell| format!("{}/s", rate(cell))))?;
            }
            writeln!(f)?;
        }
        if self.has_readers {
            writeln!(f, "only the simulation knows that readers share the lock: rely on the column SIMULATED")?;
        }
        self.by_caller.iter().try_for_each(|callers| write!(f, "\n{callers}"))
    }
}

impl fmt::Display for ByCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match &self.threads {
            _ if self.is_ambiguous => "it is not known which threads call from where: from .. to covers both",
            Threads::OfTheirOwn(_) => "each caller has threads of its own",
            Threads::ForAll(_) => "each thread calls from all of them",
        };
        let who = match self.wake_ns {
            None => "the lock is handed to waiters in order".to_owned(),
            Some(wake_ns) => {
                format!(
                    "the lock goes to the first that tries, a woken waiter tries {} after the release",
                    time(wake_ns)
                )
            }
        };
        match &self.refused {
            Some(reason) => writeln!(f, "its callers; no forecast without one of them: {reason}")?,
            None => {
                let off = self.off * 100.0;
                writeln!(f, "its callers, here and without one of them ({whose}, {who}; off by {off:+.1} % at most):")?;
            }
        }
        let head = ["THREADS", "HELD", "WAITED", "HERE", "MODEL", "OTHERS HERE", "WITHOUT IT", "TIMES"];
        let line = |cells: [String; 8], caller: &str| {
            let [threads, held, waited, here, model, others, without, times] = cells;
            format!(
                "{threads:>7} {held:>8} {waited:>8} {here:>10} {model:>10} {others:>12} {without:>22} {times:>12}  {caller}"
            )
        };
        writeln!(f, "{}", line(head.map(str::to_owned), "CALLER"))?;
        for (at, caller) in self.callers.iter().enumerate() {
            let threads = match &self.threads {
                Threads::OfTheirOwn(threads) => threads.get(at).map_or_else(String::new, ToString::to_string),
                Threads::ForAll(_) => "all".to_owned(),
            };
            let others = caller.others_recorded_per_second;
            let without = caller.others_without_it_per_second;
            let cells = [
                threads,
                time(caller.hold_ns),
                time(caller.wait_ns),
                format!("{}/s", rate(caller.recorded_per_second)),
                format!("{}/s", rate(caller.modelled_per_second)),
                format!("{}/s", rate(others)),
                range(without, |without| format!("{}/s", rate(without))),
                range(without, |without| three_digits(without / others, "")),
            ];
            writeln!(f, "{}", line(cells, &escaped(&caller.caller)))?;
        }
        let has_range =
            |caller: &CallerForecast| caller.others_without_it_per_second.is_some_and(|(low, high)| low < high);
        if self.callers.iter().any(has_range) {
            writeln!(
                f,
                "from .. to: if the others wait for a CPU twice as long as here .. if they do not wait for one"
            )?;
        }
        Ok(())
    }
}

/// What lies between two numbers that may be the same.
fn range(of: Option<(f64, f64)>, show: impl Fn(f64) -> String) -> String {
    match of.map(|(low, high)| (show(low), show(high))) {
        None => "-".to_owned(),
        Some((low, high)) if low == high => low,
        Some((low, high)) => format!("{low} .. {high}"),
    }
}

/// A rate with three digits.
fn rate(per_second: f64) -> String {
    let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, letter) = steps.into_iter().find(|(unit, _)| per_second >= *unit).unwrap_or((1.0, ""));
    three_digits(per_second / unit, letter)
}

/// A duration with three digits.
fn time(ns: f64) -> String {
    let steps = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let (unit, name) = steps.into_iter().find(|(unit, _)| ns >= *unit).unwrap_or((1.0, "ns"));
    three_digits(ns / unit, name)
}

fn three_digits(value: f64, unit: &str) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_three_digits() {
        assert_eq!(
            (time(999.0).as_str(), time(1_234.0).as_str(), rate(2.5e6).as_str()),
            ("999 ns", "1.23 µs", "2.50 M")
        );
    }
}
