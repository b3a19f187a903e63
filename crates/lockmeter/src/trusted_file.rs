//! Files that root trusts: the file and every folder above it belong to root, and nobody else may write there.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Others of the group and everybody else may write.
const WRITABLE: u32 = 0o022;
/// Only the owner of what is in it may rename or remove it.
const STICKY: u32 = 0o1000;

/// The text of a file of what is named, such as rules, or what is wrong with it.
pub fn read(path: &Path, named: &str, most_bytes: usize) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}; name a file of {named}");
    // One that is no file must not make us wait.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path).map_err(cannot)?;
    let data = file.metadata().map_err(cannot)?;
    if !data.is_file() {
        return Err(format!("is no file; name a file of {named}"));
    }
    if geteuid().is_root() {
        is_of_root(path, &data, named)?;
    }
    let mut bytes = Vec::new();
    File::take(file, most_bytes as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() > most_bytes {
        return Err(format!("is larger than the {} KiB that {named} may have; divide it", most_bytes >> 10));
    }
    String::from_utf8(bytes).map_err(|_| format!("is no text in UTF-8; name a file of {named}"))
}

/// What is wrong with the owner or the mode of a file that root is to trust.
fn is_of_root(path: &Path, opened: &Metadata, named: &str) -> Result<(), String> {
    is_only_roots(opened, false)
        .map_err(|what| format!("{what}, and root reads only {named} of root; `chown root` and `chmod go-w` it"))?;
    let path = fs::canonicalize(path).map_err(|error| format!("cannot be read: {error}"))?;
    for folder in path.ancestors().skip(1) {
        let data = fs::metadata(folder).map_err(|error| format!("cannot be read: {error}"))?;
        is_only_roots(&data, true).map_err(|what| {
            let folder = folder.display();
            format!("lies in {folder}, which {what}, and root reads only {named} of root; copy it to another folder")
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
