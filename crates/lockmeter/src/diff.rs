//! `lockmeter diff`: what got better or worse between two recordings.

use std::io::{self, Write};

use anyhow::Result;
use lockmeter_cli::ResultFormat;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::output;
use lockmeter_render::Exporter;

use crate::arguments::DiffArguments;
use crate::input::{is_standard_input, open_locks};
use crate::{query, report};

/// Two, and what is made of them.
const REPORTS: usize = 3;

pub fn run(arguments: &DiffArguments) -> Result<()> {
    if is_standard_input(&arguments.before) && is_standard_input(&arguments.after) {
        return Err(Failure::error(Status::Usage, "only one of the two recordings can be standard input; name a file"));
    }
    let query = query::from_flags(&arguments.query, None);
    let load = |path| report::load_beside(open_locks(path)?, &query, REPORTS).map(|loaded| loaded.report);
    let (before, after) = (load(&arguments.before)?, load(&arguments.after)?);
    let diff = lockmeter_profile::diff::diff(&before, &after)?;
    let mut out = output::open(None)?;
    match arguments.format {
        ResultFormat::Table => {
            output::table_for(&io::stdout(), arguments.query.limit, arguments.query.frames).write(&diff, &mut out)?
        }
        ResultFormat::Json => lockmeter_render::Json.write(&diff, &mut out)?,
    }
    out.flush()?;
    Ok(())
}
