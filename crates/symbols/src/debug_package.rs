//! Which package has a stripped program's debug symbols, as far as Debian's package manager knows the program.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A list of files for each package that is installed: `PACKAGE.list` or `PACKAGE:ARCHITECTURE.list`, one path a line.
const LISTS: &str = "/var/lib/dpkg/info";

/// C's library is older than packages with this ending.
const NAMED_OTHERWISE: [(&str, &str); 1] = [("libc6", "libc6-dbg")];

/// The package with the debug symbols of this file; `None` if no package has installed the file.
pub(crate) fn debug_package(path: &Path) -> Option<String> {
    let package = package_of(path)?;
    let otherwise = NAMED_OTHERWISE.iter().find(|(name, _)| *name == package);
    Some(otherwise.map_or_else(|| format!("{package}-dbgsym"), |(_, debug)| (*debug).to_owned()))
}

fn package_of(path: &Path) -> Option<String> {
    let path = path.as_os_str().as_bytes();
    // Packages that know nothing of the merged /usr have /lib/… in their lists.
    let before_merge = path.strip_prefix(b"/usr").filter(|rest| rest.starts_with(b"/"));
    let is_it = |line: &[u8]| line == path || Some(line) == before_merge;
    let lists = fs::read_dir(LISTS).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut lists = lists.filter(|list| list.extension().is_some_and(|extension| extension == "list"));
    let has_it = |list: &Path| {
        let lines = File::open(list).map(|list| BufReader::new(list).split(b'\n').map_while(Result::ok));
        lines.is_ok_and(|mut lines| lines.any(|line| is_it(&line)))
    };
    let list = lists.find(|list| has_it(list))?;
    let package = list.file_stem()?.to_str()?;
    Some(package.split(':').next().unwrap_or(package).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_programs_lead_to_their_packages() {
        if !Path::new(LISTS).exists() {
            println!("SKIPPED packages: this is no Debian");
            return;
        }
        assert_eq!(debug_package(Path::new("/usr/bin/dpkg")).as_deref(), Some("dpkg-dbgsym"));
        let merged = debug_package(Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6"));
        assert_eq!(merged.as_deref(), Some("libc6-dbg"));
        assert_eq!(debug_package(Path::new("/usr/bin/no-such-program")), None);
    }
}
