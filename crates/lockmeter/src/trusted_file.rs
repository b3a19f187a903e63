//! Files and folders that root trusts: they and every folder above them belong to root, and nobody else may write there.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Others of the group and everybody else may write.
const WRITABLE: u32 = 0o022;
/// Only the owner may do anything.
const OWNERS: u32 = 0o700;
/// Only the owner of what is in it may rename or remove it.
const STICKY: u32 = 0o1000;

/// The text of a file of what is named, such as rules, or what is wrong with it.
pub fn read(path: &Path, named: &str, most_bytes: usize) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}; name a file of {named}");
    // One that is no file must not make us wait.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path).map_err(cannot)?;
    let data = file.metadata().map_err(cannot)?;
    if !data.is_file() {
        return Err(format!("is not a file; name a file of {named}"));
    }
    if geteuid().is_root() {
        is_of_root(path, &data, &format!("root reads only {named} that belong to root"))?;
    }
    let mut bytes = Vec::new();
    File::take(file, most_bytes as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() > most_bytes {
        return Err(format!("is larger than the {} KiB that {named} may have; split it", most_bytes >> 10));
    }
    String::from_utf8(bytes).map_err(|_| format!("is not UTF-8 text; name a file of {named}"))
}

/// The folder that this user is to write into, without links in its path, or what is wrong with it. Its last part is made if it is not there.
pub fn folder(path: &Path) -> Result<PathBuf, String> {
    const RULE: &str = "root writes only into folders that belong to root";
    let cannot = |error: std::io::Error| format!("cannot be used: {error}; name a folder whose parent exists");
    let (above, name) = path.parent().zip(path.file_name()).ok_or("is not a folder; give a whole path")?;
    let path = fs::canonicalize(above).map_err(cannot)?.join(name);
    if geteuid().is_root() {
        are_above_roots(&path, RULE)?;
    }
    match DirBuilder::new().mode(OWNERS).create(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(cannot(error)),
        _ => {}
    }
    // Nobody else can put a link there: the folder above is root's, or our own.
    let data = fs::symlink_metadata(&path).map_err(cannot)?;
    let is_ours = data.is_dir() && data.uid() == geteuid().as_raw() && data.mode() & WRITABLE == 0;
    let what = "is not a folder, belongs to another user or may be written by others";
    if is_ours { Ok(path) } else { Err(format!("{what}; name a folder of your own")) }
}

/// What is wrong with the owner or the mode of a file that root is to trust, by a rule.
fn is_of_root(path: &Path, opened: &Metadata, rule: &str) -> Result<(), String> {
    is_only_roots(opened, false).map_err(|what| format!("{what}, and {rule}; `chown root` and `chmod go-w` it"))?;
    let path = fs::canonicalize(path).map_err(|error| format!("cannot be read: {error}"))?;
    are_above_roots(&path, rule)?;
    // What was checked is what was opened.
    let data = fs::metadata(&path).map_err(|error| format!("cannot be read: {error}"))?;
    if (data.dev(), data.ino()) == (opened.dev(), opened.ino()) {
        Ok(())
    } else {
        Err("was replaced while it was checked; try again".to_owned())
    }
}

/// What is wrong with the folders above a path without links.
fn are_above_roots(path: &Path, rule: &str) -> Result<(), String> {
    for folder in path.ancestors().skip(1) {
        let data = fs::metadata(folder).map_err(|error| format!("cannot be read: {error}"))?;
        is_only_roots(&data, true).map_err(|what| {
            let folder = folder.display();
            format!("lies in {folder}, which {what}, and {rule}; move it to another folder")
        })?;
    }
    Ok(())
}

fn is_only_roots(data: &Metadata, is_folder: bool) -> Result<(), String> {
    if data.uid() != 0 {
        return Err(format!("belongs to user {}", data.uid()));
    }
    let is_safe = data.mode() & WRITABLE == 0 || (is_folder && data.mode() & STICKY != 0);
    if is_safe { Ok(()) } else { Err("may be written by others".to_owned()) }
}
