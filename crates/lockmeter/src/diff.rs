//! `lockmeter diff`: what got better or worse between two recordings.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use lockmeter_cli::ResultFormat;
use lockmeter_cli::messages::say;
use lockmeter_cli::output;
use lockmeter_profile::diff::{Recorded, Spread, diff_tested};
use lockmeter_profile::merge;
use lockmeter_render::Exporter;

use crate::arguments::DiffArguments;
use crate::input::{open_locks, refuse_standard_input_twice};
use crate::warnings::Warning;
use crate::{query, report};

pub fn run(arguments: &DiffArguments) -> Result<()> {
    let (before, after): (&[PathBuf], &[PathBuf]) = match arguments.recordings.as_slice() {
        [before, after] => (std::slice::from_ref(before), std::slice::from_ref(after)),
        _ => (&arguments.before, &arguments.after),
    };
    refuse_standard_input_twice(before.iter().chain(after))?;
    let query = query::from_flags(&arguments.query, None);
    // All of them, what is made of them, and what their intervals say.
    let reports = before.len() + after.len() + 3;
    let load = |paths: &[PathBuf]| {
        let (mut spread, mut loaded) = (Spread::default(), Vec::with_capacity(paths.len()));
        for path in paths {
            spread.begin_recording();
            loaded.push(report::load_with_spread(open_locks(path)?, &query, reports, &mut spread)?);
        }
        let differences = merge::differences(&loaded);
        Ok::<_, anyhow::Error>((
            merge::merge(loaded).unwrap_or_else(|| unreachable!("clap asks for one")),
            spread,
            differences,
        ))
    };
    let ((before, old_spread, of_before), (after, new_spread, of_after)) = (load(before)?, load(after)?);
    let old = Recorded { report: &before, spread: &old_spread };
    let new = Recorded { report: &after, spread: &new_spread };
    let diff = diff_tested(old, new)?;
    let mut out = output::open(None)?;
    match arguments.format {
        ResultFormat::Table => {
            output::table_for(&io::stdout(), arguments.query.rows(), arguments.query.frames).write(&diff, &mut out)?
        }
        ResultFormat::Json => lockmeter_render::Json.write(&diff, &mut out)?,
    }
    out.flush()?;
    for difference in of_before.into_iter().chain(of_after) {
        say(Warning::AddedUp(difference));
    }
    Ok(())
}
