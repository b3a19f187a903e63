//! `lockmeter diff`: what got better or worse between two recordings.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use lockmeter_cli::messages::say;
use lockmeter_cli::output;
use lockmeter_profile::Report;
use lockmeter_profile::diff::{Diff, Recorded, Spread, diff_tested};
use lockmeter_profile::merge::{self, Difference};
use lockmeter_profile::view::Query;
use lockmeter_render::Exporter;
use lockmeter_render::html::{DIFF_VIEWS, DiffPage};

use crate::arguments::{DiffArguments, DiffFormat};
use crate::input::{open_locks, refuse_standard_input_twice};
use crate::warnings::Warning;
use crate::{page, query, report};

pub fn run(arguments: &DiffArguments) -> Result<()> {
    report::refuse_to_overwrite(
        arguments.output.as_deref(),
        arguments.recordings.iter().chain(&arguments.before).chain(&arguments.after),
    )?;
    let query = query::from_flags(&arguments.query, None);
    if arguments.format == DiffFormat::Html {
        page::refuse_terminal(arguments.output.as_deref())?;
        return write_page(arguments, &DIFF_VIEWS.map(|by| Query { by: by.to_vec(), ..query.clone() }));
    }
    let Compared { diffs: [diff], differences, .. } = compare(arguments, &[query])?;
    let mut out = output::open(arguments.output.as_deref())?;
    let written = match arguments.format {
        DiffFormat::Table => {
            let (rows, frames) = (arguments.query.rows(), arguments.query.frames);
            output::table_into(arguments.output.as_deref(), rows, frames).write(&diff, &mut out)
        }
        DiffFormat::Json => lockmeter_render::Json.write(&diff, &mut out),
        DiffFormat::Html => unreachable!("it needs several diffs"),
    };
    written.and_then(|()| out.flush()).map_err(|error| output::failed(arguments.output.as_deref(), error))?;
    differences.into_iter().for_each(|difference| say(Warning::AddedUp(difference)));
    Ok(())
}

fn write_page(arguments: &DiffArguments, queries: &[Query; DIFF_VIEWS.len()]) -> Result<()> {
    let compared = compare(arguments, queries)?;
    let warnings: Vec<Warning> = compared.differences.into_iter().map(Warning::AddedUp).collect();
    let page = DiffPage {
        diffs: &compared.diffs,
        sides: compared.sides.each_ref(),
        warnings: warnings.iter().map(ToString::to_string).collect(),
        flags: page::flags(&arguments.query, None),
    };
    let mut out = output::open(arguments.output.as_deref())?;
    page.write(&mut out).map_err(|error: io::Error| output::failed(arguments.output.as_deref(), error))?;
    warnings.into_iter().for_each(say);
    Ok(())
}

/// Two sides compared as each of several queries sees them.
struct Compared<const N: usize> {
    diffs: [Diff; N],
    /// Before and after, as the first query sees them.
    sides: [Report; 2],
    /// Between the recordings of one side.
    differences: Vec<Difference>,
}

fn compare<const N: usize>(arguments: &DiffArguments, queries: &[Query; N]) -> Result<Compared<N>> {
    let (before, after): (&[PathBuf], &[PathBuf]) = match arguments.recordings.as_slice() {
        [before, after] => (std::slice::from_ref(before), std::slice::from_ref(after)),
        _ => (&arguments.before, &arguments.after),
    };
    refuse_standard_input_twice(before.iter().chain(after))?;
    // All of them, what is made of them, and what their intervals say.
    let reports = (before.len() + after.len() + 3) * N;
    let (old, new) = (load(before, queries, reports)?, load(after, queries, reports)?);
    let mut diffs = Vec::with_capacity(N);
    for (old, new) in old.iter().zip(&new) {
        let [old, new] = [old, new].map(|side| Recorded { report: &side.report, spread: &side.spread });
        diffs.push(diff_tested(old, new)?);
    }
    let differences = old[0].differences.iter().chain(&new[0].differences).cloned().collect();
    let diffs = diffs.try_into().unwrap_or_else(|_| unreachable!("one for each query"));
    let first = |side: [Added; N]| side.into_iter().next().map(|added| added.report);
    let sides = [first(old), first(new)].map(|side| side.unwrap_or_else(|| unreachable!("there is a query")));
    Ok(Compared { diffs, sides, differences })
}

/// One side as a query sees it.
struct Added {
    report: Report,
    spread: Spread,
    differences: Vec<Difference>,
}

/// The recordings of one side, added up.
fn load<const N: usize>(paths: &[PathBuf], queries: &[Query; N], reports: usize) -> Result<[Added; N]> {
    let mut spreads: [Spread; N] = std::array::from_fn(|_| Spread::default());
    let mut of_queries: [Vec<Report>; N] = std::array::from_fn(|_| Vec::with_capacity(paths.len()));
    for path in paths {
        spreads.iter_mut().for_each(Spread::begin_recording);
        let loaded = report::load_with_spreads(open_locks(path)?, queries, reports, &mut spreads)?;
        of_queries.iter_mut().zip(loaded).for_each(|(all, loaded)| all.push(loaded.report));
    }
    let added = of_queries.into_iter().zip(spreads).map(|(reports, spread)| {
        let differences = merge::differences(&reports);
        let report = merge::merge(reports).unwrap_or_else(|| unreachable!("clap asks for one"));
        Added { report, spread, differences }
    });
    Ok(added.collect::<Vec<_>>().try_into().unwrap_or_else(|_| unreachable!("one for each query")))
}
