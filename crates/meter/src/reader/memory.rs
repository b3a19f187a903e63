//! The memory of a session, from the outside: a file of pages that is made, made longer and read, and never mapped, so that one that
//! a program cut short cannot fault here.

use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;

use super::directory::{Access, OwnDirectory};
use crate::layout::{
    FIRST_PAGE, GROUP, MAGIC, MEMORY_FILE, PAGE, PAGES, PageKind, Process, RECYCLED, RECYCLED_PAGE, RUN, RUNS_PAGE,
    SESSION_PAGE, SessionHead, VERSION, unpack_run,
};

/// Groups that a session begins with: 8 MB.
const FIRST_GROUPS: usize = 4;

/// The memory of a session.
#[derive(Debug)]
pub(super) struct Memory {
    file: File,
}

/// A page that somebody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) page: u32,
    /// The number of the process that took it.
    pub(super) process: u32,
    pub(super) kind: PageKind,
}

/// A number at this place of bytes; 0 beyond their end.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// As [`u64_at`].
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

impl Memory {
    /// Makes the memory of a new session, in its directory.
    pub(super) fn create(directory: &OwnDirectory) -> io::Result<Self> {
        directory.file(MEMORY_FILE, Access::Create)?;
        let memory = Self::open(directory)?;
        memory.reserve(0, FIRST_GROUPS)?;
        memory.put_u32(SESSION_PAGE, offset_of!(SessionHead, version), VERSION)?;
        memory.put_u32(SESSION_PAGE, offset_of!(SessionHead, taken), FIRST_PAGE as u32)?;
        memory.put_u32(SESSION_PAGE, offset_of!(SessionHead, reserved), (FIRST_GROUPS * GROUP) as u32)?;
        memory.write(SESSION_PAGE, offset_of!(SessionHead, magic), &MAGIC.to_ne_bytes())?;
        Ok(memory)
    }

    /// That of a session in this directory.
    pub(super) fn open(directory: &OwnDirectory) -> io::Result<Self> {
        Ok(Self { file: directory.file(MEMORY_FILE, Access::Change)? })
    }

    /// The same once more.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()? })
    }

    /// Which file this is.
    pub(super) fn inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.file)?.st_ino)
    }

    /// Gives groups memory. An error if the file system has no more to give, which may be the program's, too: as much as the session
    /// has in all is left to others.
    fn reserve(&self, first: usize, groups: usize) -> io::Result<()> {
        let bytes = |groups: usize| (groups * GROUP * PAGE) as u64;
        let system = fstatvfs(&self.file)?;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        if free < bytes(groups) + bytes(first + groups) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match fallocate(&self.file, FallocateFlags::empty(), bytes(first), bytes(groups)) {
            // Not every file system can.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        // What is only allocated costs the program the time that zeros take, and a page fault for each page.
        let zeros = vec![0; GROUP * PAGE];
        (first..first + groups).try_for_each(|group| self.file.write_all_at(&zeros, bytes(group)))
    }

    /// The bytes at this place of a page; those beyond the end of the file are zeros.
    pub(super) fn read(&self, page: usize, at: usize, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let start = page * PAGE + at;
        let mut filled = 0;
        while filled < length {
            match self.file.read_at(&mut bytes[filled..], (start + filled) as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    pub(super) fn write(&self, page: usize, at: usize, bytes: &[u8]) -> io::Result<()> {
        // Never longer: that would be memory that nobody has reserved.
        if (page * PAGE + at + bytes.len()) as u64 > self.file.metadata()?.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.write_all_at(bytes, (page * PAGE + at) as u64)
    }

    pub(super) fn put_u32(&self, page: usize, at: usize, number: u32) -> io::Result<()> {
        self.write(page, at, &number.to_ne_bytes())
    }

    /// The session's head; `None` of what is none of this version.
    pub(super) fn head(&self) -> io::Result<Option<Vec<u8>>> {
        let head = self.read(SESSION_PAGE, 0, size_of::<SessionHead>())?;
        let is_ours = u64_at(&head, offset_of!(SessionHead, magic)) == MAGIC
            && u32_at(&head, offset_of!(SessionHead, version)) == VERSION;
        Ok(is_ours.then_some(head))
    }

    /// All pages that somebody has.
    pub(super) fn owned(&self) -> io::Result<Vec<Owned>> {
        let Some(head) = self.head()? else { return Ok(Vec::new()) };
        let taken = (u32_at(&head, offset_of!(SessionHead, taken)) as usize).min(self.pages()?);
        let runs = self.read(RUNS_PAGE, 0, taken / RUN * size_of::<u64>())?;
        let owned = (FIRST_PAGE / RUN..taken / RUN).filter_map(|run| {
            let (process, kinds) = unpack_run(u64_at(&runs, run * size_of::<u64>()))?;
            let first = (run * RUN) as u32;
            Some((first..).zip(kinds).map(move |(page, kind)| Owned { page, process, kind }))
        });
        Ok(owned.flatten().collect())
    }

    /// Pages that the file has.
    fn pages(&self) -> io::Result<usize> {
        let bytes = self.file.metadata()?.len();
        Ok(usize::try_from(bytes / PAGE as u64).unwrap_or(PAGES).min(PAGES))
    }

    /// Takes runs, given by their first pages, from a process that has ended; they are zeros then, and nobody's.
    pub(super) fn clear(&self, runs: &[u32]) -> io::Result<()> {
        let zeros = [0; RUN * PAGE];
        for first in runs.iter().map(|first| *first as usize) {
            self.write(first, 0, &zeros)?;
            self.write(RUNS_PAGE, first / RUN * size_of::<u64>(), &[0; size_of::<u64>()])?;
        }
        Ok(())
    }

    /// Ends metering in all processes.
    pub(super) fn switch_off(&self) {
        for owned in self.owned().unwrap_or_default() {
            if matches!(owned.kind, PageKind::Process | PageKind::NewProcess) {
                let _ = self.put_u32(owned.page as usize, offset_of!(Process, level), crate::layout::OFF);
            }
        }
    }
}

/// What keeps pages ready for programs to take.
#[derive(Debug)]
pub(super) struct Reserve {
    memory: Memory,
    /// Pages that the file has memory for. What the file itself says of it, programs may have changed.
    reserved: usize,
    refills: u32,
    /// What `taken` was at the last look, and when that was.
    taken: usize,
    looked_at: Instant,
    /// First pages of runs that ended processes had, which nobody was offered so far.
    recycled: Vec<u32>,
    /// How many of them were on offer after the last look.
    offered: usize,
    /// Processes that had begun at the last look, and when the source was last drained.
    begun: u32,
    begun_at_drain: u32,
}

/// This many processes begin between two drains at most, as far as the recorder can keep up: those that have ended give their pages back in
/// one. They have a run each, so this is 8 MB.
const MOST_BEGUN: u32 = 128;

/// Pages that are ready at any time.
const READY: usize = 3 * GROUP;

/// Pages that are ready, in those taken since the last look: more than will be taken until the next one, for that may be late. Less if this
/// one was late already.
const READY_OF_TAKEN: usize = 4;
const READY_OF_TAKEN_WHEN_LATE: usize = 1;
const LATE: Duration = Duration::from_millis(40);

impl Reserve {
    /// That of a new session.
    pub(super) fn new(memory: Memory) -> Self {
        let reserved = FIRST_GROUPS * GROUP;
        let recycled = Vec::new();
        let looked_at = Instant::now();
        let taken = FIRST_PAGE;
        Self { memory, reserved, refills: 0, taken, looked_at, recycled, offered: 0, begun: 0, begun_at_drain: 0 }
    }

    /// Runs that were taken from ended processes, and cleared, are used again.
    pub(super) fn recycle(&mut self, runs: &[u32]) {
        self.recycled.extend(runs);
    }

    /// Whether this many processes began since the last drain that their pages should be taken back now.
    pub(super) fn wants_drain(&self) -> bool {
        self.begun.wrapping_sub(self.begun_at_drain) >= MOST_BEGUN
    }

    /// The source is drained now.
    pub(super) fn drained(&mut self) {
        self.begun_at_drain = self.begun;
    }

    /// Looks how many pages are ready, and adds some if they are few. Says whether any were taken since the last time.
    pub(super) fn refill(&mut self) -> io::Result<bool> {
        let Some(head) = self.memory.head()? else { return Ok(false) };
        self.begun = u32_at(&head, offset_of!(SessionHead, processes));
        let taken = (u32_at(&head, offset_of!(SessionHead, taken)) as usize).clamp(self.taken, self.reserved);
        let before = self.offered;
        let (left, offered) = self.offer()?;
        let newly = taken - self.taken + before.saturating_sub(left) * RUN;
        self.taken = taken;
        self.offered = left + offered;
        let ready = self.reserved - taken + self.offered * RUN;
        let is_late = std::mem::replace(&mut self.looked_at, Instant::now()).elapsed() > LATE;
        let of_taken = if is_late { READY_OF_TAKEN_WHEN_LATE } else { READY_OF_TAKEN };
        // Where programs had to do without, there are soon twice as many.
        let wanted = READY.max(newly * of_taken).max(if ready == 0 { taken } else { 0 });
        let groups = wanted.saturating_sub(ready).div_ceil(GROUP).min((PAGES - self.reserved) / GROUP);
        if before != self.offered {
            self.memory.put_u32(SESSION_PAGE, offset_of!(SessionHead, offered), self.offered as u32)?;
        }
        if offered + self.add_groups(groups)? > 0 {
            self.refills = self.refills.wrapping_add(1);
            self.memory.put_u32(SESSION_PAGE, offset_of!(SessionHead, refills), self.refills)?;
        }
        Ok(newly > 0)
    }

    /// Adds groups one by one, as many as there is memory for.
    fn add_groups(&mut self, groups: usize) -> io::Result<usize> {
        let before = self.reserved;
        for _ in 0..groups {
            if self.memory.reserve(self.reserved / GROUP, 1).is_err() {
                break;
            }
            self.reserved += GROUP;
        }
        if self.reserved > before {
            self.memory.put_u32(SESSION_PAGE, offset_of!(SessionHead, reserved), self.reserved as u32)?;
        }
        Ok(self.reserved - before)
    }

    /// Offers the recycled runs, as many as there are places for. Returns how many were still on offer, and how many are offered anew:
    /// only where none is, for programs take the others at the same time.
    fn offer(&mut self) -> io::Result<(usize, usize)> {
        if self.offered == 0 && self.recycled.is_empty() {
            return Ok((0, 0));
        }
        let offers = self.memory.read(RECYCLED_PAGE, 0, RECYCLED * size_of::<u32>())?;
        let (mut left, mut offered) = (0, 0);
        for place in (0..RECYCLED).map(|place| place * size_of::<u32>()) {
            if u32_at(&offers, place) != 0 {
                left += 1;
            } else if let Some(run) = self.recycled.pop() {
                self.memory.put_u32(RECYCLED_PAGE, place, run)?;
                offered += 1;
            }
        }
        Ok((left, offered))
    }
}

#[cfg(test)]
mod tests {
    use super::super::directory::tests::private_folder;
    use super::*;

    fn memory() -> (tempfile::TempDir, Memory) {
        let folder = private_folder();
        let memory = Memory::create(&OwnDirectory::open(folder.path()).unwrap()).unwrap();
        (folder, memory)
    }

    fn take(memory: &Memory, pages: usize) {
        memory.put_u32(SESSION_PAGE, offset_of!(SessionHead, taken), pages as u32).unwrap();
    }

    #[test]
    fn pages_are_ready_before_they_are_needed() {
        let (_folder, memory) = memory();
        let mut reserve = Reserve::new(memory.try_clone().unwrap());
        assert!(!reserve.refill().unwrap());
        assert_eq!(memory.pages().unwrap(), FIRST_GROUPS * GROUP);
        take(&memory, FIRST_GROUPS * GROUP - RUN);
        assert!(reserve.refill().unwrap());
        let head = memory.head().unwrap().unwrap();
        assert_eq!(u32_at(&head, offset_of!(SessionHead, reserved)) as usize, memory.pages().unwrap());
        assert!(
            memory.pages().unwrap() >= (1 + READY_OF_TAKEN) * (FIRST_GROUPS - 1) * GROUP,
            "a burst is followed by more"
        );
        // A program that makes its numbers up does not have the file grow.
        take(&memory, u32::MAX as usize);
        reserve.refill().unwrap();
        assert!(memory.pages().unwrap() <= 4 * READY_OF_TAKEN * FIRST_GROUPS * GROUP * READY_OF_TAKEN);
    }

    #[test]
    fn pages_of_ended_processes_serve_others_first() {
        let (_folder, memory) = memory();
        let mut reserve = Reserve::new(memory.try_clone().unwrap());
        let runs = [FIRST_PAGE, FIRST_PAGE + RUN].map(|first| first as u32);
        take(&memory, FIRST_GROUPS * GROUP - RUN);
        memory.write(RUNS_PAGE, FIRST_PAGE / RUN * size_of::<u64>(), &[7; 2 * size_of::<u64>()]).unwrap();
        assert_eq!(memory.owned().unwrap().len(), 2 * RUN);
        memory.write(FIRST_PAGE + 2 * RUN - 1, 0, &[1; PAGE]).unwrap();
        memory.clear(&runs).unwrap();
        assert_eq!(memory.read(FIRST_PAGE + 2 * RUN - 1, 0, PAGE).unwrap(), [0; PAGE]);
        assert!(memory.owned().unwrap().is_empty());
        reserve.recycle(&runs);
        reserve.refill().unwrap();
        let offers = memory.read(RECYCLED_PAGE, 0, 12).unwrap();
        assert_eq!([u32_at(&offers, 0), u32_at(&offers, 4), u32_at(&offers, 8)], [runs[1], runs[0], 0]);
    }

    #[test]
    fn a_file_that_was_cut_is_read_as_zeros_and_not_made_longer() {
        let (_folder, memory) = memory();
        memory.file.set_len(0).unwrap();
        assert!(memory.owned().unwrap().is_empty());
        assert!(memory.put_u32(SESSION_PAGE, 0, 1).is_err());
        assert_eq!(memory.pages().unwrap(), 0);
    }
}
