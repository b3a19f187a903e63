//! Memory that processes share, and what a lock is called that lies there.

use std::fs::File;
use std::io::Read;

use lockmeter_profile::{Frame, Lock, Naming};

use crate::heap_locks::{Origin, heap_lock};

/// Longer lists of what a process maps are cut.
pub const LONGEST_MAPS: u64 = 16 << 20;

/// Mappings that are kept of a process, of code and of shared memory each: no program has that many.
pub const MOST_MAPPINGS: usize = 1 << 12;

/// A place in what processes map together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedAddress {
    device: u64,
    /// Of the file, or of the piece of memory.
    pub inode: u64,
    /// From its begin.
    pub offset: u64,
}

/// Something that a process maps for others to see what it writes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedMapping {
    start: u64,
    end: u64,
    /// Of the first address.
    pub place: SharedAddress,
    path: String,
}

impl SharedMapping {
    /// All of a process; `None` if it cannot be looked into.
    pub fn all_of(pid: u32) -> Option<Vec<Self>> {
        let mut maps = Vec::new();
        File::open(format!("/proc/{pid}/maps")).ok()?.take(LONGEST_MAPS).read_to_end(&mut maps).ok()?;
        let lines = String::from_utf8_lossy(&maps);
        Some(lines.lines().filter_map(Self::parse).take(MOST_MAPPINGS).collect())
    }

    /// A line of `maps`, if that is shared.
    pub fn parse(line: &str) -> Option<Self> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        fields.next()?.ends_with('s').then_some(())?;
        let offset = hex(fields.next()?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let device = hex(major)? << 32 | hex(minor)?;
        let inode = fields.next()?.parse().ok()?;
        let path = fields.next().unwrap_or_default().trim_start().to_owned();
        Some(Self { start: hex(start)?, end: hex(end)?, place: SharedAddress { device, inode, offset }, path })
    }

    /// What lies at an address, if these are all mappings that it may lie in, and the path of what is mapped there.
    pub fn at(mappings: &[Self], address: u64) -> Option<(SharedAddress, &str)> {
        let mapping = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))?;
        let offset = mapping.place.offset.wrapping_add(address - mapping.start);
        Some((SharedAddress { offset, ..mapping.place }, &mapping.path))
    }
}

/// The lock at this place of what has this path. `used` are the frames of who made the lock, or used it first.
pub fn shared_lock(place: SharedAddress, path: &str, used: &[Frame], origin: Origin) -> Lock {
    let offset = place.offset;
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let is_anonymous = path == "/dev/zero" || path.is_empty();
    let name = if is_anonymous {
        // Nothing but who made it tells one from others.
        let heap = heap_lock(used, origin).name;
        format!("anonymous shared memory+{offset:#x}{}", heap.strip_prefix("heap").unwrap_or(""))
    } else if let Some(name) = path.strip_prefix("/dev/shm/sem.") {
        format!("named semaphore /{name}")
    } else if let Some(name) = path.strip_prefix("/dev/shm/") {
        format!("shared memory /{name}+{offset:#x}")
    } else if let Some(name) = path.strip_prefix("/memfd:") {
        format!("memfd {name}+{offset:#x}")
    } else if let Some(key) = path.strip_prefix("/SYSV") {
        format!("System V shared memory {key}+{offset:#x}")
    } else {
        format!("file {path}+{offset:#x}")
    };
    let detail = match origin {
        Origin::Created => heap_lock(used, origin).detail,
        Origin::FirstSeen => String::new(),
    };
    Lock { name, object: None, naming: Naming::UserShared, detail }
}

/// As [`heap_lock`] of a lock that says that processes may share it, while nobody can tell any more where it lay.
pub fn unmapped_lock(used: &[Frame], origin: Origin) -> Lock {
    let heap = heap_lock(used, origin);
    let name = format!("shared memory{}", heap.name.strip_prefix("heap").unwrap_or(""));
    Lock { name, ..heap }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_at(line: &str, address: u64) -> Option<String> {
        let mappings: Vec<SharedMapping> = SharedMapping::parse(line).into_iter().collect();
        let (place, path) = SharedMapping::at(&mappings, address)?;
        let frame = Frame { address: 0, function: Some("set_up".into()), offset: 0, module: Some("program".into()) };
        Some(shared_lock(place, path, &[frame], Origin::Created).name)
    }

    #[test]
    fn a_shared_lock_is_called_by_what_it_lies_in() {
        let named = |path: &str| {
            name_at(&format!("7f0000000000-7f0000004000 rw-s 00002000 00:01 77    {path}"), 0x7f00_0000_0140)
        };
        assert_eq!(named("/dev/zero (deleted)").unwrap(), "anonymous shared memory+0x2140, created at set_up");
        assert_eq!(named("/memfd:ring (deleted)").unwrap(), "memfd ring+0x2140");
        assert_eq!(named("/dev/shm/queue").unwrap(), "shared memory /queue+0x2140");
        assert_eq!(named("/dev/shm/sem.turn").unwrap(), "named semaphore /turn");
        assert_eq!(named("/SYSV0000002a (deleted)").unwrap(), "System V shared memory 0000002a+0x2140");
        assert_eq!(named("/var/lib/two words.db").unwrap(), "file /var/lib/two words.db+0x2140");
    }

    #[test]
    fn what_is_private_or_lies_elsewhere_is_shared_with_nobody() {
        assert_eq!(name_at("7f0000000000-7f0000004000 rw-p 00000000 08:01 77    /a/file", 0x7f00_0000_0140), None);
        assert_eq!(name_at("7f0000000000-7f0000004000 rw-s 00000000 08:01 77    /a/file", 0x7f00_0000_4000), None);
        assert_eq!(name_at("", 0), None);
    }
}
