//! Files of rules: found, checked and read.
//!
//! Rules say what a report calls a lock and what it leaves out, so root takes them from root alone: the file and every folder above it
//! belong to root, and nobody else may write there.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_profile::rules::{self, MOST_BYTES, Rules, RulesError};
use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Rules of the machine, in the order of the files' names.
const FOLDER: &str = "/etc/lockmeter/rules.d";

/// More files are no folder of rules.
const MOST_FILES: usize = 64;

/// Others of the group and everybody else may write.
const WRITABLE: u32 = 0o022;
/// Only the owner of what is in it may rename or remove it.
const STICKY: u32 = 0o1000;

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
    let text = read(path).map_err(|what| refuse(RulesError::of_file(&name, what)))?;
    rules.add(&name, &text).map_err(refuse)
}

/// The text of a file of rules, or what is wrong with it.
fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}; name a file of rules");
    // One that is no file must not make us wait.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path).map_err(cannot)?;
    let data = file.metadata().map_err(cannot)?;
    if !data.is_file() {
        return Err("is no file; name a file of rules".to_owned());
    }
    if geteuid().is_root() {
        is_of_root(path, &data)?;
    }
    let mut bytes = Vec::new();
    File::take(file, MOST_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() > MOST_BYTES {
        return Err(format!("is larger than the {} KiB that rules may have; divide it", MOST_BYTES >> 10));
    }
    String::from_utf8(bytes).map_err(|_| "is no text in UTF-8; name a file of rules".to_owned())
}

/// What is wrong with the owner or the mode of a file that root is to trust.
fn is_of_root(path: &Path, opened: &Metadata) -> Result<(), String> {
    is_only_roots(opened, false)
        .map_err(|what| format!("{what}, and root reads only rules of root; `chown root` and `chmod go-w` it"))?;
    let path = fs::canonicalize(path).map_err(|error| format!("cannot be read: {error}"))?;
    for folder in path.ancestors().skip(1) {
        let data = fs::metadata(folder).map_err(|error| format!("cannot be read: {error}"))?;
        is_only_roots(&data, true).map_err(|what| {
            let folder = folder.display();
            format!("lies in {folder}, which {what}, and root reads only rules of root; copy it to another folder")
        })?;
    }
    // What was checked is what was opened.
    let data = fs::metadata(&path).map_err(|error| format!("cannot be read: {error}"))?;
    if (data.dev(), data.ino()) == (opened.dev(), opened.ino()) {
        Ok(())
    } else {
        Err("was replaced while it was read; try again".to_owned())
    }
}

fn is_only_roots(data: &Metadata, is_folder: bool) -> Result<(), String> {
    if data.uid() != 0 {
        return Err(format!("belongs to user {}", data.uid()));
    }
    let is_safe = data.mode() & WRITABLE == 0 || (is_folder && data.mode() & STICKY != 0);
    if is_safe { Ok(()) } else { Err("may be written by others".to_owned()) }
}
