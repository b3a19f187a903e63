//! Locks on files (`flock`, `fcntl`): which one a thread waits for, and who has it, as the kernel lists them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use lockmeter_profile::{Lock, Mode, Naming};

/// A wait for a lock on a file.
pub(super) struct FileWait {
    pub(super) lock: Lock,
    pub(super) mode: Mode,
    /// The process that has it; of several readers one.
    pub(super) holder: Option<u32>,
}

impl FileWait {
    /// What a thread waits for that sleeps in such a call.
    pub(super) fn find(tgid: u32, tid: u32) -> Option<Self> {
        let call = fs::read_to_string(format!("/proc/{tgid}/task/{tid}/syscall")).ok()?;
        let file = call.split_ascii_whitespace().nth(1)?.strip_prefix("0x")?;
        let file = format!("/proc/{tgid}/fd/{}", u64::from_str_radix(file, 16).ok()?);
        let (path, inode) = (fs::read_link(&file).ok()?, fs::metadata(&file).ok()?.ino());
        let listed = fs::read_to_string("/proc/locks").unwrap_or_default();
        let (mode, holder) = waiter_and_holder(&listed, tgid, inode).unwrap_or((Mode::Exclusive, None));
        let lock = Lock {
            name: path.to_string_lossy().into_owned(),
            object: None,
            naming: Naming::UserShared,
            detail: "the file's path".to_owned(),
        };
        Some(Self { lock, mode, holder })
    }
}

/// In what `/proc/locks` says: how a process waits for a lock on a file, and who has it. Its lines are
/// `5: -> FLOCK ADVISORY WRITE 22347 fe:00:10027452 0 EOF`, without the arrow for those that have it.
fn waiter_and_holder(listed: &str, tgid: u32, inode: u64) -> Option<(Mode, Option<u32>)> {
    let lines = || listed.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let of_file = format!(":{inode}");
    let waits = |line: &&[&str]| line[1] == "->" && line[5] == tgid.to_string() && line[6].ends_with(&of_file);
    let all: Vec<Vec<&str>> = lines().filter(|line| line.len() >= 8).collect();
    let waiter = all.iter().map(Vec::as_slice).find(waits)?;
    let holder = all.iter().find(|line| line[0] == waiter[0] && line[1] != "->")?;
    let mode = if waiter[4] == "READ" { Mode::Read } else { Mode::Exclusive };
    Some((mode, holder[4].parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_lock_is_in_the_line_of_the_same_number() {
        let listed = "4: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
            5: FLOCK  ADVISORY  WRITE 22 fe:00:88 0 EOF\n\
            5: -> FLOCK  ADVISORY  READ 33 fe:00:88 0 EOF\n\
            6: OFDLCK ADVISORY  WRITE -1 fe:00:99 0 EOF\n\
            6: -> OFDLCK ADVISORY  WRITE -1 fe:00:99 0 EOF\n";
        assert_eq!(waiter_and_holder(listed, 33, 88), Some((Mode::Read, Some(22))));
        assert_eq!(waiter_and_holder(listed, 33, 77), None);
        assert_eq!(waiter_and_holder(listed, 22, 88), None, "it has the lock");
    }
}
