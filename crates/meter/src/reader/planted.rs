//! For tests: a session's memory as a program might have left it.

use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::directory::OwnDirectory;
use super::memory::{Memory, u32_at};
use crate::layout::{
    FIRST_PAGE, MEMORY_FILE, PAGE, PageKind, Process, RUN, RUNS_PAGE, SESSION_PAGE, SessionHead, Thread, pack_run,
    unpack_run,
};

/// The memory of a session with one process, whose tables have a page each.
#[derive(Debug)]
pub struct Planted {
    file: File,
}

/// A page of [`Planted`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Page {
    /// The session's head.
    Session = SESSION_PAGE,
    /// The head of the process.
    Process = FIRST_PAGE,
    /// The table of a thread, and its samples.
    Thread,
    /// As above.
    Samples,
    /// Programs and libraries.
    Modules,
    /// Names of threads.
    Comms,
    /// The first locks.
    Locks,
    /// The first stacks.
    Stacks,
    /// Whose runs are.
    Runs = RUNS_PAGE,
}

impl Planted {
    /// Makes it in a directory that is ours alone. The process is this one.
    pub fn create(directory: &Path) -> io::Result<Self> {
        Memory::create(&OwnDirectory::open(directory)?)?;
        let planted = Self { file: File::options().read(true).write(true).open(directory.join(MEMORY_FILE))? };
        let tables = [
            (Page::Process, offset_of!(Process, modules), Page::Modules),
            (Page::Process, offset_of!(Process, comms), Page::Comms),
            (Page::Process, offset_of!(Process, locks), Page::Locks),
            (Page::Process, offset_of!(Process, stacks), Page::Stacks),
            (Page::Thread, offset_of!(Thread, slots), Page::Samples),
        ];
        for (head, at, page) in tables {
            planted.write(head, at, &(page as u32).to_ne_bytes())?;
        }
        planted.write(Page::Process, offset_of!(Process, pid), &std::process::id().to_ne_bytes())?;
        planted.write(Page::Process, offset_of!(Process, module_count), &4_u32.to_ne_bytes())?;
        planted.write(Page::Session, offset_of!(SessionHead, taken), &((FIRST_PAGE + RUN) as u32).to_ne_bytes())?;
        let kinds = PageKind::Process.of_page(Page::Process as u32) | PageKind::Thread.of_page(Page::Thread as u32);
        let run = pack_run(1) | kinds;
        planted.write(Page::Runs, FIRST_PAGE / RUN * size_of::<u64>(), &run.to_ne_bytes())?;
        planted.map();
        Ok(planted)
    }

    /// As a metered process does, which lives as long as it is there.
    fn map(&self) {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, which nobody uses.
        unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, libc::MAP_SHARED, self.file.as_raw_fd(), 0) };
    }

    /// Writes to a place of a page.
    pub fn write(&self, page: Page, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, (page as usize * PAGE + at) as u64)
    }

    /// The file.
    pub const fn file(&self) -> &File {
        &self.file
    }
}

/// The pages of a process's head and of the tables of its threads, in a file that a session lives in.
pub fn pages_of(memory: &File, pid: u32) -> io::Result<(usize, Vec<usize>)> {
    let read = |page: usize, at: usize, bytes: &mut [u8]| memory.read_exact_at(bytes, (page * PAGE + at) as u64);
    let pages = usize::try_from(memory.metadata()?.len()).unwrap_or(0) / PAGE;
    let (mut heads, mut threads) = (Vec::new(), Vec::new());
    for first in (FIRST_PAGE..pages).step_by(RUN) {
        let mut run = [0; size_of::<u64>()];
        read(RUNS_PAGE, first / RUN * size_of::<u64>(), &mut run)?;
        let Some((process, kinds)) = unpack_run(u64::from_ne_bytes(run)) else { continue };
        for (page, kind) in (first..).zip(kinds) {
            match kind {
                PageKind::Process => {
                    let mut own = [0; 4];
                    read(page, offset_of!(Process, pid), &mut own)?;
                    heads.extend((u32_at(&own, 0) == pid).then_some((process, page)));
                }
                PageKind::Thread => threads.push((process, page)),
                PageKind::NewProcess | PageKind::Table => {}
            }
        }
    }
    let (number, head) = heads.into_iter().max().ok_or(io::ErrorKind::NotFound)?;
    let threads = threads.into_iter().filter(|(process, _)| *process == number).map(|(_, page)| page);
    Ok((head, threads.collect()))
}
