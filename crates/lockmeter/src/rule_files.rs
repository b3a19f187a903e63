//! Files of rules: found, checked and read.
//!
//! Rules say what a report calls a lock and what it leaves out, so root takes them from root alone: the file and every folder above it
//! belong to root, and nobody else may write there.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_profile::rules::{self, MOST_BYTES, Rules, RulesError};

use crate::trusted_file;

/// Rules of the machine, in the order of the files' names.
const FOLDER: &str = "/etc/lockmeter/rules.d";

/// More files are no folder of rules.
const MOST_FILES: usize = 64;

static GIVEN: OnceLock<Rules> = OnceLock::new();

/// The rules of the files that the command line names, if it names any: a recording is read again by these.
pub fn given() -> Option<&'static Rules> {
    GIVEN.get()
}

/// Reads these files, those of the machine's folder and the rules that lockmeter comes with, and has this program use them.
pub fn install(files: &[PathBuf]) -> Result<()> {
    let mut all = Rules::default();
    for file in files {
        add(&mut all, file)?;
    }
    if !files.is_empty() {
        let _ = GIVEN.set(all.clone());
    }
    for file in of_machine()? {
        add(&mut all, &file)?;
    }
    all.add_shipped();
    rules::install(all);
    Ok(())
}

/// The machine's files of rules.
fn of_machine() -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(FOLDER) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refuse(RulesError::of_file(FOLDER, format!("cannot be read: {error}")))),
        Ok(entries) => entries,
    };
    let is_rules = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_rules).take(MOST_FILES + 1).collect();
    if files.len() > MOST_FILES {
        let what = format!("has more than {MOST_FILES} files of rules; put them into fewer files");
        return Err(refuse(RulesError::of_file(FOLDER, what)));
    }
    files.sort();
    Ok(files)
}

fn refuse(error: RulesError) -> anyhow::Error {
    Failure::error(Status::BadInput, error.to_string())
}

fn add(rules: &mut Rules, path: &Path) -> Result<()> {
    let name = path.display().to_string();
    let text =
        trusted_file::read(path, "rules", MOST_BYTES).map_err(|what| refuse(RulesError::of_file(&name, what)))?;
    rules.add(&name, &text).map_err(refuse)
}
