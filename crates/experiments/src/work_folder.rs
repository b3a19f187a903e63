//! A folder to work in, removed at the end.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub use tempfile::TempDir;

/// Makes a folder for this user alone, with a name that nobody can have taken first.
pub fn create(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)
}
