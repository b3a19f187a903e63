//! Which process a segment is from, and whether it lives. A process knows its id in its own namespace, which may not be ours.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockmeter_symbols::{FilePlace, TargetFile, sees_other_files};

/// More processes than this are not looked through for one of another namespace.
const MOST_PROCESSES: usize = 1 << 16;

/// Longer lists of mappings are cut.
pub(super) const LONGEST_MAPS: u64 = 4 << 20;

/// Whether a process has this id.
pub(super) fn is_alive(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 is only a question.
    let answer = unsafe { libc::kill(pid, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// The file of the program that a process runs.
#[derive(Debug, Clone)]
pub(super) struct ProgramFile {
    /// As the kernel calls it.
    pub(super) path: PathBuf,
    /// Open, so that it can be read when the process has ended and no path leads to it any more.
    pub(super) held: Option<Arc<TargetFile>>,
    /// The process sees other files than this one: paths mean others here.
    pub(super) sees_other_files: bool,
}

/// Files of programs and of their libraries that are held open.
#[derive(Debug, Default)]
pub(super) struct HeldFiles {
    /// By device and inode.
    programs: HashMap<(u64, u64), Arc<TargetFile>>,
    /// By file name: of each name those of which a build id tells which one is meant.
    libraries: HashMap<OsString, Vec<Arc<TargetFile>>>,
    /// How many libraries there are.
    count: usize,
}

/// This many are: more would take descriptors that others need.
const MOST_HELD_PROGRAMS: usize = 64;
const MOST_HELD_LIBRARIES: usize = 192;

impl ProgramFile {
    /// That of a process that lives. Where a program is seen for the first time, it and its libraries are held.
    pub(super) fn of(pid: u32, held: &mut HeldFiles) -> Option<Self> {
        let exe = format!("/proc/{pid}/exe");
        let path = fs::read_link(&exe).ok()?;
        // Most processes run one that is held already.
        let key = fs::metadata(&exe).ok().map(|data| (data.dev(), data.ino()));
        let file = key.and_then(|key| {
            if !held.programs.contains_key(&key) && held.programs.len() < MOST_HELD_PROGRAMS {
                held.programs.insert(key, Arc::new(TargetFile::open(Path::new(&exe)).ok()?));
                held.hold_libraries(pid);
            }
            held.programs.get(&key).cloned()
        });
        Some(Self { path, held: file, sees_other_files: sees_other_files(pid) })
    }
}

impl HeldFiles {
    /// Those that this process maps now, as the kernel shows them.
    pub(super) fn hold_libraries(&mut self, pid: u32) {
        let mut maps = Vec::new();
        let read = fs::File::open(format!("/proc/{pid}/maps"));
        if read.and_then(|file| file.take(LONGEST_MAPS).read_to_end(&mut maps)).is_err() {
            return;
        }
        for line in maps.split(|byte| *byte == b'\n') {
            let Some((range, name)) = mapped_code(line) else { continue };
            let Ok(file) = FilePlace::mapped(pid, range).open() else { continue };
            let of_name = self.libraries.entry(name.to_owned()).or_default();
            let is_same = |other: &Arc<TargetFile>| identity(other) == identity(&file);
            if self.count < MOST_HELD_LIBRARIES && !of_name.iter().any(is_same) {
                of_name.push(Arc::new(file));
                self.count += 1;
            }
        }
    }

    /// Libraries of this name.
    pub(super) fn called(&self, name: &OsStr) -> Vec<Arc<TargetFile>> {
        self.libraries.get(name).cloned().unwrap_or_default()
    }
}

fn identity(file: &TargetFile) -> (u64, u64) {
    (file.metadata().dev(), file.metadata().ino())
}

/// The range and the file name of a line of `maps`, if it is code of a file.
fn mapped_code(line: &[u8]) -> Option<(&str, &OsStr)> {
    let path = line.get(line.iter().position(|byte| *byte == b'/')?..)?;
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let mut fields = line.split(|byte| *byte == b' ');
    let (range, rights) = (fields.next()?, fields.next()?);
    let name = Path::new(OsStr::from_bytes(path)).file_name()?;
    rights.contains(&b'x').then_some((std::str::from_utf8(range).ok()?, name))
}

/// Processes in namespaces below ours: their ids here and in their own.
#[derive(Debug, Default)]
pub(super) struct Nested {
    found: Option<Vec<(u32, u32)>>,
}

impl Nested {
    /// The id here of the process that knows itself by this one and maps the file with this number; `None` if it has ended.
    pub(super) fn living(&mut self, pid: u32, inode: u64) -> Option<u32> {
        if let Some(pid) = living_here(pid, inode) {
            return Some(pid);
        }
        let nested = self.found.get_or_insert_with(nested_processes);
        nested.iter().find(|(here, own)| *own == pid && maps(*here, inode)).map(|(here, _)| *here)
    }
}

/// As [`Nested::living`], of processes alone that are in no namespace below ours.
pub(super) fn living_here(pid: u32, inode: u64) -> Option<u32> {
    (is_alive(pid) && maps(pid, inode)).then_some(pid)
}

/// Looks for processes of other namespaces than ours.
fn nested_processes() -> Vec<(u32, u32)> {
    let namespace = |pid: &str| fs::metadata(format!("/proc/{pid}/ns/pid")).map(|data| data.ino()).ok();
    let (own, Ok(entries)) = (namespace("self"), fs::read_dir("/proc")) else { return Vec::new() };
    let pids = entries.filter_map(Result::ok).take(MOST_PROCESSES);
    let pids = pids.filter_map(|entry| entry.file_name().to_str().map(str::to_owned));
    pids.filter_map(|name| {
        let pid = name.parse::<u32>().ok()?;
        if namespace(&name).is_none_or(|namespace| Some(namespace) == own) {
            return None;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        Some((pid, ids.split_whitespace().next_back()?.parse().ok()?))
    })
    .collect()
}

/// Whether a process maps the file with this number. What cannot be looked into is believed to.
pub(super) fn maps(pid: u32, inode: u64) -> bool {
    is_known_to_map(pid, inode).unwrap_or(true)
}

/// Whether a process maps the file with this number; an error if it cannot be looked into.
pub(super) fn is_known_to_map(pid: u32, inode: u64) -> io::Result<bool> {
    let mut maps = Vec::new();
    fs::File::open(format!("/proc/{pid}/maps"))?.take(LONGEST_MAPS).read_to_end(&mut maps)?;
    Ok(names_inode(&maps, inode))
}

/// What a `stat` file of `/proc` says behind the name of the program, which may hold anything: the state comes first.
pub(super) fn stat_behind_name(stat: &[u8]) -> Option<&str> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(stat.get(name_ends + 1..)?).ok().map(str::trim_start)
}

/// Whether a list of mappings has one of the file with this number.
fn names_inode(maps: &[u8], inode: u64) -> bool {
    let inode = inode.to_string();
    let is_it = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        fields.nth(4) == Some(inode.as_bytes())
    };
    maps.split(|byte| *byte == b'\n').any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_found_in_lists_of_mappings() {
        let code = b"7f0000001000-7f0000002000 r-xp 00001000 fe:00 1234                       /opt/my server/lib x.so (deleted)";
        assert_eq!(mapped_code(code), Some(("7f0000001000-7f0000002000", OsStr::new("lib x.so"))));
        assert_eq!(mapped_code(b"7f0000001000-7f0000002000 rw-p 00001000 fe:00 1234        /opt/lib.so"), None);
        assert_eq!(mapped_code(b"7ffd2000-7ffd4000 r-xp 00000000 00:00 0                          [vdso]"), None);
    }

    #[test]
    fn a_process_that_maps_the_file_is_found_and_another_is_not() {
        let program = fs::metadata(std::env::current_exe().unwrap()).unwrap().ino();
        let own = std::process::id();
        assert_eq!(Nested::default().living(own, program), Some(own));
        assert_eq!(Nested::default().living(own, 1), None);
    }
}
