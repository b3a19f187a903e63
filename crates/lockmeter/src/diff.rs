//! `lockmeter diff`: what got better or worse between two recordings.

use std::io::{self, Write};

use anyhow::Result;

use lockmeter_render::Exporter;

use crate::arguments::{DiffArguments, DiffFormat};
use crate::{output, query, report};

/// Two, and what is made of them.
const REPORTS: usize = 3;

pub fn run(arguments: &DiffArguments) -> Result<()> {
    let query = query::from_flags(&arguments.query, None);
    let before = report::load_beside(&arguments.before, &query, REPORTS)?.report;
    let after = report::load_beside(&arguments.after, &query, REPORTS)?.report;
    let diff = lockmeter_profile::diff::diff(&before, &after)?;
    let mut out = output::open(None)?;
    match arguments.format {
        DiffFormat::Table => {
            output::table_for(&io::stdout(), arguments.query.limit, arguments.query.frames).write(&diff, &mut out)?
        }
        DiffFormat::Json => lockmeter_render::Json.write(&diff, &mut out)?,
    }
    out.flush()?;
    Ok(())
}
