//! Which process a segment is from, and whether it lives. A process knows its id in its own namespace, which may not be ours.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockmeter_symbols::TargetFile;

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
}

/// The files of programs that are held open, by device and inode.
pub(super) type HeldFiles = HashMap<(u64, u64), Arc<TargetFile>>;

/// So many are: more would take descriptors that others need.
const MOST_HELD: usize = 64;

impl ProgramFile {
    /// That of a process that lives.
    pub(super) fn of(pid: u32, all_held: &mut HeldFiles) -> Option<Self> {
        let exe = format!("/proc/{pid}/exe");
        let path = fs::read_link(&exe).ok()?;
        // Most processes run one that is held already.
        let key = fs::metadata(&exe).ok().map(|data| (data.dev(), data.ino()));
        let held = key.and_then(|key| {
            if !all_held.contains_key(&key) && all_held.len() < MOST_HELD {
                all_held.insert(key, Arc::new(TargetFile::open(Path::new(&exe)).ok()?));
            }
            all_held.get(&key).cloned()
        });
        Some(Self { path, held })
    }
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
    fn a_process_that_maps_the_file_is_found_and_another_is_not() {
        let program = fs::metadata(std::env::current_exe().unwrap()).unwrap().ino();
        let own = std::process::id();
        assert_eq!(Nested::default().living(own, program), Some(own));
        assert_eq!(Nested::default().living(own, 1), None);
    }
}
