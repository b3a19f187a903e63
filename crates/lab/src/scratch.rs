//! Folders for what a command works with, where no other user can put something else in their place.

use std::path::PathBuf;

use anyhow::{Context, Result};
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_experiments::work_folder::{self, TempDir};
use lockmeter_meter::reader::check_trusted;

/// Where temporary files go: root may have inherited another user's TMPDIR, and does not use it.
pub fn parent() -> Result<PathBuf> {
    let mut refused = Vec::new();
    for place in [std::env::temp_dir(), "/tmp".into(), "/dev/shm".into()] {
        let place = place.canonicalize().unwrap_or(place);
        match check_trusted(&place) {
            Ok(()) => return Ok(place),
            Err(error) => refused.push(error.to_string()),
        }
    }
    let sentence =
        format!("no place for temporary files ({}); set TMPDIR to a directory of your own", refused.join("; "));
    Err(Failure::error(Status::Failed, sentence))
}

/// A new folder there for us alone, which vanishes with what is returned.
pub fn folder(prefix: &str) -> Result<TempDir> {
    let parent = parent()?;
    work_folder::create(&parent, prefix).with_context(|| {
        format!("cannot make a folder in {}; set TMPDIR to a place that can be written to", parent.display())
    })
}
