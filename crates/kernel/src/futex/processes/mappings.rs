//! `/proc/PID/maps`: the code that a process maps, what it shares, and where the stack of its first thread ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::PathBuf;

use lockmeter_symbols::{FilePlace, LONGEST_MAPS, MOST_MAPPINGS, MappedFile, SharedMapping};

/// What the kernel appends to the path of a file that has none any more.
const DELETED: &str = " (deleted)";

/// What is kept of the list of mappings.
#[derive(Debug, Clone, Default)]
pub struct Mappings {
    /// The lines of code, as they were.
    pub code: String,
    /// What is shared with other processes.
    pub shared: Vec<SharedMapping>,
    /// Where the stack of the first thread ends; 0 if that is not known.
    pub stack_end: u64,
}

/// A file on disk, also under several names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: String,
    pub inode: String,
    pub path: String,
}

/// A line of `/proc/PID/maps` that maps a file.
pub struct Mapping {
    pub memory: Range<u64>,
    pub offset: u64,
    /// The memory, as it is written there.
    pub range: String,
    pub id: FileId,
}

/// The thread by which a process can be looked at: the first one, unless that has ended before the others.
pub fn living_thread(tgid: u32) -> u32 {
    let lives = |thread: &u32| std::fs::read_link(format!("/proc/{thread}/exe")).is_ok();
    if lives(&tgid) {
        return tgid;
    }
    let threads = std::fs::read_dir(format!("/proc/{tgid}/task")).into_iter().flatten().flatten();
    let mut threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    threads.find(lives).unwrap_or(tgid)
}

impl Mappings {
    /// Those of a process; empty if it has ended.
    pub fn read(tgid: u32) -> Self {
        let Ok(file) = File::open(format!("/proc/{tgid}/maps")) else { return Self::default() };
        let lines = BufReader::new(file.take(LONGEST_MAPS)).split(b'\n').map_while(Result::ok);
        let mut mappings = Self::default();
        let mut code = Vec::new();
        for line in lines.map(|line| String::from_utf8_lossy(&line).into_owned()) {
            if mappings.shared.len() < MOST_MAPPINGS {
                mappings.shared.extend(SharedMapping::parse(&line));
            }
            if code.len() < MOST_MAPPINGS && maps_a_file(&line) {
                code.push(line);
            } else if line.ends_with("[stack]") {
                let end = line.split(['-', ' ']).nth(1).and_then(|end| u64::from_str_radix(end, 16).ok());
                mappings.stack_end = end.unwrap_or(0);
            }
        }
        mappings.code = code.join("\n");
        mappings
    }

    /// The mappings of code.
    pub fn of_code(&self) -> impl Iterator<Item = Mapping> {
        self.code.lines().filter_map(Mapping::parse)
    }
}

/// Only code is of interest, and what has a name.
fn maps_a_file(line: &str) -> bool {
    line.contains('/') && line.split(' ').nth(1).is_some_and(|rights| rights.contains('x'))
}

impl Mapping {
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let range = words.next()?;
        let _rights = words.next()?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let (device, inode) = (words.next()?.to_owned(), words.next()?.to_owned());
        let path = words.next()?.trim_start().to_owned();
        let (start, end) = range.split_once('-')?;
        let memory = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        Some(Self { memory, offset, range: range.to_owned(), id: FileId { device, inode, path } })
    }

    /// The file's name without its folder.
    pub fn name(&self) -> String {
        let path = self.path();
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    }

    /// The path that it has, or had before it was deleted.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.id.path.strip_suffix(DELETED).unwrap_or(&self.id.path))
    }

    /// Whether the path leads to it no more, though it is still mapped.
    pub fn is_deleted(&self) -> bool {
        self.id.path.ends_with(DELETED)
    }

    /// What is known of a file that nobody can open: its addresses are offsets.
    pub fn without_file(&self) -> MappedFile {
        MappedFile {
            start: self.memory.start,
            end: self.memory.end,
            bias: self.memory.start.wrapping_sub(self.offset),
            name: format!("{} (replaced)", self.name()),
            place: FilePlace::Nowhere,
            known_as: FilePlace::Nowhere,
            build_id: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_may_hold_blanks_in_its_path() {
        let line = "7f0000001000-7f0000002000 r-xp 00001000 fe:00 1234                       /opt/my server/lib x.so";
        let mapping = Mapping::parse(line).unwrap();
        assert!(maps_a_file(line));
        assert_eq!(mapping.memory, 0x7f00_0000_1000..0x7f00_0000_2000);
        assert_eq!((mapping.offset, mapping.id.path.as_str()), (0x1000, "/opt/my server/lib x.so"));
        assert!(!maps_a_file("7ffd2000-7ffd4000 r-xp 00000000 00:00 0                          [vdso]"));
    }
}
