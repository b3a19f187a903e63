//! A mix of work after AIM7 without its disk: users that compute, fork and run programs, talk through pipes, send signals, map
//! memory and write files in memory. More users at each step; jobs a minute say how the system bears it.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::kernel_waits::{self, KernelWaits};
use crate::work_folder::{self, TempDir};
use crate::{arithmetic, processes};

/// Arithmetic of one operation: several milliseconds.
const COMPUTING_STEPS: u64 = 3_000_000;

/// One kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Arithmetic.
    Compute,
    /// A child that exits, and one that runs a program.
    Fork,
    /// Bytes to and fro between two processes.
    Pipe,
    /// Signals to itself.
    Signal,
    /// Memory mapped, touched and unmapped.
    Mmap,
    /// One file that all users map, touch and unmap.
    Share,
    /// Files in memory: created, written, read, renamed and removed, all users in one directory.
    File,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Compute, Self::Fork, Self::Pipe, Self::Signal, Self::Mmap, Self::Share, Self::File];

    const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Fork => "fork",
            Self::Pipe => "pipe",
            Self::Signal => "signal",
            Self::Mmap => "mmap",
            Self::Share => "share",
            Self::File => "file",
        }
    }
}

/// How often a job does each kind of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix(pub Vec<(Work, u32)>);

impl FromStr for Mix {
    type Err = String;

    /// `compute=4,fork=1`: what is not named is left out.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix = Vec::new();
        for part in text.split(',') {
            let (name, times) = part.split_once('=').unwrap_or((part, "1"));
            let work = Work::ALL.iter().find(|work| work.name() == name.trim());
            let names = Work::ALL.map(Work::name).join(", ");
            let work = work.ok_or_else(|| format!("`{}` is not a kind of work; choose from {names}", name.trim()))?;
            let times = times.trim().parse().map_err(|_| format!("`{times}` is not a number of times for {name}"))?;
            mix.push((*work, times));
        }
        if mix.iter().all(|(_, times)| *times == 0) {
            return Err("a job must do something".into());
        }
        Ok(Self(mix))
    }
}

/// What was measured with this many users.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// Users at once.
    pub users: usize,
    /// Jobs that they did.
    pub jobs: usize,
    /// How long that took.
    pub elapsed_ns: u64,
    /// CPU time of the users and their children.
    pub cpu_ns: u64,
    /// What lockmeter saw, or why it saw nothing.
    pub seen: Result<KernelWaits, String>,
    /// Why not every acquisition was counted.
    #[serde(default)]
    pub uncounted: Option<String>,
}

impl Step {
    /// The figure of AIM7.
    pub fn jobs_per_minute(&self) -> f64 {
        self.jobs as f64 / std::time::Duration::from_nanos(self.elapsed_ns).as_secs_f64().max(f64::MIN_POSITIVE) * 60.0
    }

    /// The share of the users' CPU time that they spent spinning for kernel locks.
    pub fn spinning(&self) -> Option<f64> {
        self.seen.as_ref().ok().map(|seen| seen.spin_ns as f64 / self.cpu_ns.max(1) as f64)
    }

    /// Acquisitions of sleeping kernel locks a second, if they were counted.
    pub fn acquired_per_second(&self) -> Option<f64> {
        let count = self.seen.as_ref().ok()?.acquisitions?.count;
        Some(count as f64 / std::time::Duration::from_nanos(self.elapsed_ns).as_secs_f64().max(f64::MIN_POSITIVE))
    }

    /// The share of them that had to wait.
    pub fn contention(&self) -> Option<f64> {
        let acquisitions = self.seen.as_ref().ok()?.acquisitions?;
        (acquisitions.count > 0)
            .then(|| acquisitions.contended.min(acquisitions.count) as f64 / acquisitions.count as f64)
    }

    /// Sleep for kernel locks in one job.
    pub fn sleep_per_job_ns(&self) -> Option<f64> {
        self.seen.as_ref().ok().map(|seen| seen.sleep_ns as f64 / self.jobs.max(1) as f64)
    }
}

/// A directory in memory that all users work in; removed at the end.
pub struct Workshop {
    folder: TempDir,
    /// What all users map.
    shared: File,
}

impl Workshop {
    /// In memory where there is such a place, or else among the temporary files.
    pub fn open() -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = work_folder::create(&parent, "lockmeter-mixed-")?;
        let shared = File::options().read(true).write(true).create_new(true).open(folder.path().join("shared"))?;
        shared.set_len(SHARED_BYTES as u64)?;
        Ok(Self { folder, shared })
    }

    /// This many users do this many jobs each.
    pub fn step(&self, mix: &Mix, users: usize, jobs_each: usize) -> io::Result<Step> {
        let (mut meter, uncounted) = kernel_waits::start_with_acquisitions();
        let (begin, cpu_ns) = (Instant::now(), processes::cpu_of_children_ns());
        let mut children = Vec::new();
        let mut failure = None;
        for user in 0..users {
            match processes::fork(|| (0..jobs_each).all(|job| self.job(mix, user, job).is_ok())) {
                Ok(child) => children.push(child),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        for child in children {
            if failure.is_some() {
                processes::end(child);
            } else if !processes::wait(child)? {
                failure = Some(io::Error::other(
                    "a user could not do its jobs: check free memory and the limit on processes (ulimit -u)",
                ));
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        Ok(Step {
            users,
            jobs: users * jobs_each,
            elapsed_ns: u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX),
            cpu_ns: processes::cpu_of_children_ns() - cpu_ns,
            seen: match &mut meter {
                Ok(meter) => kernel_waits::so_far(meter),
                Err(why) => Err(why.clone()),
            },
            uncounted,
        })
    }

    /// The users begin at different kinds of work, or all would do the same at the same time.
    fn job(&self, mix: &Mix, user: usize, job: usize) -> io::Result<()> {
        let kinds = mix.0.len();
        for at in 0..kinds {
            let (work, times) = mix.0[(at + user + job) % kinds];
            for _ in 0..times {
                match work {
                    Work::Compute => arithmetic::steps(COMPUTING_STEPS),
                    Work::Fork => fork_and_run()?,
                    Work::Pipe => talk()?,
                    Work::Signal => signal_self(),
                    Work::Mmap => map_memory()?,
                    Work::Share => map_shared(&self.shared)?,
                    Work::File => self.files(user)?,
                }
            }
        }
        Ok(())
    }

    fn files(&self, user: usize) -> io::Result<()> {
        const FILES: usize = 40;
        let page = [7; 4096];
        for file in 0..FILES {
            let (new, old) =
                (self.folder.path().join(format!("{user}-{file}")), self.folder.path().join(format!("{user}-{file}~")));
            File::create(&new)?.write_all(&page)?;
            fs::rename(&new, &old)?;
            black_box(fs::read(&old)?);
            fs::remove_file(&old)?;
        }
        Ok(())
    }
}

fn fork_and_run() -> io::Result<()> {
    const FORKS: usize = 8;
    for _ in 0..FORKS {
        processes::wait(processes::fork(|| true)?)?;
    }
    let status = Command::new("/bin/true").stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("/bin/true failed")) }
}

fn talk() -> io::Result<()> {
    const EXCHANGES: usize = 400;
    let ((from_child, to_parent), (from_parent, to_child)) = (pipe()?, pipe()?);
    let exchange = |mut from: &File, mut to: &File, begins: bool| -> io::Result<()> {
        let mut bytes = [1; 64];
        if begins {
            to.write_all(&bytes)?;
        }
        for _ in 0..EXCHANGES {
            from.read_exact(&mut bytes)?;
            to.write_all(&bytes)?;
        }
        Ok(())
    };
    let child = processes::fork(|| exchange(&from_parent, &to_parent, false).is_ok())?;
    let talked = exchange(&from_child, &to_child, true);
    if !processes::wait(child)? {
        return Err(io::Error::other("the other end of a pipe failed"));
    }
    talked
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just opened, and are owned by nobody else.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

fn signal_self() {
    const SIGNALS: usize = 500;
    extern "C" fn nothing(_: libc::c_int) {}
    let handler = nothing as extern "C" fn(libc::c_int);
    // SAFETY: the handler touches nothing; this process is ours alone.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    for _ in 0..SIGNALS {
        // SAFETY: an integer; the signal is handled above.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
}

fn map_memory() -> io::Result<()> {
    const MAPS: usize = 20;
    const BYTES: usize = 1 << 20;
    const PAGE: usize = 4096;
    for _ in 0..MAPS {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        for page in (0..BYTES).step_by(PAGE) {
            // SAFETY: inside the mapping just made, which nothing else uses.
            unsafe { at.cast::<u8>().add(page).write_volatile(1) };
        }
        // SAFETY: the mapping just made, whole.
        unsafe { libc::munmap(at, BYTES) };
    }
    Ok(())
}

/// Of the file that all users map.
const SHARED_BYTES: usize = 1 << 16;

/// Each mapping is linked to the file, and unlinked: all users meet at its `i_mmap_rwsem`.
fn map_shared(file: &File) -> io::Result<()> {
    const MAPS: usize = 200;
    for _ in 0..MAPS {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice, of a file that is open.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), SHARED_BYTES, protection, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: inside the mapping just made; others write the same byte, and nobody relies on it.
        unsafe { (*at.cast::<AtomicU8>()).store(1, Ordering::Relaxed) };
        // SAFETY: the mapping just made, whole.
        unsafe { libc::munmap(at, SHARED_BYTES) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_names_its_work_and_how_often() {
        assert_eq!("compute=4,fork".parse(), Ok(Mix(vec![(Work::Compute, 4), (Work::Fork, 1)])));
        assert!("disk=1".parse::<Mix>().unwrap_err().contains("mmap, share, file"));
        assert!("compute=0".parse::<Mix>().unwrap_err().contains("must do something"));
        assert!("compute=many".parse::<Mix>().is_err());
    }
}
