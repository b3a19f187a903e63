//! A comparison as a table, as JSON, and as one line a run.

use std::io::{self, Write};

use lockmeter_profile::Swaps;
use lockmeter_render::escape::{Escaping, escaped};
use lockmeter_render::units::{self, counted};
use lockmeter_render::write_json;
use lockmeter_statistics::Estimate;
use serde_json::{Value, json};

use super::outcome::{Better, Comparison, Outcome, Verdict};
use crate::arguments::compare::CompareFormat;

pub fn write(comparison: &Comparison, format: CompareFormat, out: &mut dyn Write) -> io::Result<()> {
    match format {
        CompareFormat::Table => table(comparison, &mut Escaping::text(&mut *out))?,
        CompareFormat::Json => write_json(&object(comparison), &mut *out)?,
        CompareFormat::Csv => lines(comparison, &mut Escaping::text(&mut *out))?,
    }
    out.flush()
}

fn table(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let what = match (&comparison.measured.metric, comparison.measured.better) {
        (None, _) => "time, less is better".to_owned(),
        (Some(metric), Better::Higher) => format!("`{}` in its output, more is better", escaped(metric)),
        (Some(metric), Better::Lower) => format!("`{}` in its output, less is better", escaped(metric)),
    };
    writeln!(out, "{}\n", escaped(&comparison.machine.to_string()))?;
    let runs = counted(comparison.rounds() as u64, "run", "runs");
    writeln!(out, "{}: {what}; {runs} each, in random order, not metered\n", escaped(&comparison.command))?;
    let time = comparison.measured.metric.is_none();
    let mut rows = vec![["VARIANT", "MEDIAN", "95 %", "RATIO", "95 %", "VERDICT", "SWAPPED A RUN"].map(str::to_owned)];
    rows.extend(comparison.variants.iter().map(|variant| row(variant, time)));
    let widths: Vec<usize> =
        (0..rows[0].len()).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    for row in &rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Names stand left, numbers right.
            line += &if matches!(at, 0 | 5 | 6) { format!("{cell:<width$}  ") } else { format!("{cell:>width$}  ") };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    conclusion(comparison, out)
}

fn row(variant: &Outcome, time: bool) -> [String; 7] {
    let number = |value: f64| if time { units::duration(nanoseconds(value)) } else { format!("{value:.4}") };
    let interval = |estimate: Option<Estimate>, show: &dyn Fn(f64) -> String| {
        estimate.map_or_else(String::new, |estimate| format!("[{}, {}]", show(estimate.low), show(estimate.high)))
    };
    let ratio = |value: f64| format!("{value:.3}");
    [
        variant.swap.to_string(),
        variant.value.map_or_else(String::new, |value| number(value.median)),
        interval(variant.value, &number),
        variant.ratio.map_or_else(|| without_ratio(variant.verdict), |value| ratio(value.median)),
        interval(variant.ratio, &ratio),
        match variant.verdict {
            Verdict::Baseline => String::new(),
            verdict => verdict.name().to_owned(),
        },
        swapped(&variant.swaps, variant.all_runs),
    ]
}

/// The baseline is compared with itself.
fn without_ratio(verdict: Verdict) -> String {
    if verdict == Verdict::Baseline { "1".to_owned() } else { String::new() }
}

/// How many locks a run swapped, and how many it left alone.
fn swapped(swaps: &Swaps, runs: u64) -> String {
    let all: u64 = swaps.iter().map(|(_, count)| count).sum();
    let each = |count: u64| units::count(count.div_ceil(runs.max(1)));
    match all - swaps.swapped() {
        0 => each(swaps.swapped()),
        left => format!("{}, {} left alone", each(swaps.swapped()), each(left)),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times of runs are positive and fit")]
fn nanoseconds(value: f64) -> u64 {
    value.round() as u64
}

fn conclusion(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    for variant in &comparison.variants {
        if let Some(limit) = variant.hung_after {
            let limit = units::duration(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
            writeln!(
                out,
                "{}: a run had not ended after {limit} and was ended; --timeout changes the limit",
                variant.swap
            )?;
        }
    }
    let cannot_tell = comparison.variants.iter().any(|variant| variant.verdict == Verdict::CannotTell);
    writeln!(out, "ratios are medians of the ratios to the first within each round, with 95 % intervals (bootstrap)")?;
    if cannot_tell {
        writeln!(
            out,
            "cannot tell: the runs are too few, or differ too much among themselves; give more --runs, or a quieter machine"
        )?;
    }
    Ok(())
}

fn object(comparison: &Comparison) -> Value {
    let estimate = |estimate: Option<Estimate>| {
        estimate.map(|e| json!({ "median": e.median, "low": e.low, "high": e.high, "samples": e.samples }))
    };
    let variants: Vec<Value> = comparison
        .variants
        .iter()
        .map(|variant| {
            let swapped: serde_json::Map<String, Value> =
                variant.swaps.iter().map(|(swap, count)| (swap.name().to_owned(), count.into())).collect();
            json!({
                "kind": variant.swap.kind,
                "variant": variant.swap.variant,
                "samples": variant.samples,
                "value": estimate(variant.value),
                "ratio": estimate(variant.ratio),
                "verdict": variant.verdict.name(),
                "hung_after_ns": variant.hung_after.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)),
                "runs": variant.all_runs,
                "swapped": swapped,
            })
        })
        .collect();
    json!({
        "schema": lockmeter_render::JSON_SCHEMA,
        "machine": comparison.machine,
        "command": comparison.command,
        "metric": comparison.measured.metric,
        "unit": if comparison.measured.metric.is_none() { Some("ns") } else { None },
        "higher_is_better": comparison.measured.better == Better::Higher,
        "rounds": comparison.rounds(),
        "variants": variants,
    })
}

/// The values of one round stand under the same number.
fn lines(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let unit = if comparison.measured.metric.is_none() { "time_ns" } else { "value" };
    writeln!(out, "round,kind,variant,{unit}")?;
    for round in 0..comparison.rounds() {
        for Outcome { swap, samples, .. } in &comparison.variants {
            if let Some(sample) = samples.get(round) {
                writeln!(out, "{},{},{},{sample}", round + 1, swap.kind, swap.variant)?;
            }
        }
    }
    Ok(())
}
