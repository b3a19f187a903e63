//! The directory of a session: where the segments of the metered programs are.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{Level, switches, ticks};
use crate::layout::{self, Header, SEGMENT_PREFIX, SESSION_FILE, SESSION_VARIABLE, UNMETERED_PREFIX};

/// What the directories are called, followed by the recorder's process id and a number.
const DIRECTORY_PREFIX: &str = "lockmeter-";

/// Holds that a thread times for a second of its CPU time before it only counts some: timing one costs 40 ns in a loop and 200 in
/// a large program, so this is 0.1 to 0.5 % of its time.
pub const TIMED_HOLDS: u32 = 25_000;

/// A session that metered programs report to. Dropping it ends metering in those that still run and removes the directory.
#[derive(Debug)]
pub struct Session {
    directory: PathBuf,
    told: layout::Session,
    /// Tells others that the directory is in use, whatever process ids they see.
    _lock: Option<File>,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionErrorKind {
    /// No directory could be made.
    NoDirectory,
    /// The process is not metered by any session.
    NotMetered,
    /// Something else in the file system.
    Io,
}

/// An error of a session.
#[derive(Debug)]
pub struct SessionError {
    kind: SessionErrorKind,
    sentence: String,
}

impl SessionError {
    fn new(kind: SessionErrorKind, sentence: String) -> Self {
        Self { kind, sentence }
    }

    /// What went wrong, for programs.
    pub const fn kind(&self) -> SessionErrorKind {
        self.kind
    }
}

impl std::fmt::Display for SessionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for SessionError {}

impl Session {
    /// Makes the directory, and the file that says how new processes meter: holds are timed at the default rate.
    pub fn create(level: Level) -> Result<Self, SessionError> {
        Self::create_timing(level, TIMED_HOLDS)
    }

    /// As [`create`](Self::create), where a thread times about so many holds for a second of its CPU time (0: all of them) and
    /// counts the others.
    pub fn create_timing(level: Level, timed_holds: u32) -> Result<Self, SessionError> {
        for parent in parents() {
            remove_stale(&parent);
        }
        let mut refused = String::new();
        for parent in parents() {
            match create_in(&parent) {
                Ok(directory) => {
                    let lock = hold(&directory).ok();
                    let told =
                        layout::Session { level: level.code(), tick_ns_shifted: ticks::calibrate(), timed_holds };
                    let session = Self { directory, told, _lock: lock };
                    fs::write(session.directory.join(SESSION_FILE), told.to_text()).map_err(|error| {
                        let sentence = format!("cannot write to {}: {error}", session.directory.display());
                        SessionError::new(SessionErrorKind::Io, sentence)
                    })?;
                    return Ok(session);
                }
                Err(error) => refused = format!("{}: {error}", parent.display()),
            }
        }
        let sentence =
            format!("cannot make a directory for the programs' measurements ({refused}); set XDG_RUNTIME_DIR");
        Err(SessionError::new(SessionErrorKind::NoDirectory, sentence))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What a program's environment must hold to report here, given the path of the preloaded library and what
    /// `LD_PRELOAD` holds already: that stays, in order, and ours comes behind it.
    pub fn environment(&self, library: &Path, preloaded: Option<&OsStr>) -> [(&'static str, OsString); 3] {
        let mut libraries = preloaded.unwrap_or_default().to_owned();
        if !libraries.is_empty() {
            libraries.push(":");
        }
        libraries.push(library);
        [
            (layout::DIRECTORY_VARIABLE, self.directory.clone().into()),
            (SESSION_VARIABLE, self.told.to_text().into()),
            ("LD_PRELOAD", libraries),
        ]
    }

    /// Turns metering on or off in a process that reports to a session of this user (root: of any).
    pub fn switch(pid: u32, level: Option<Level>) -> Result<(), SessionError> {
        in_segments_of(pid, |directory, segment| {
            let level = level.map_or_else(|| level_of_session(directory), Level::code);
            set(segment, offset_of!(Header, level), level)?;
            raise(segment, offset_of!(Header, switches))?;
            switches::leave_word(segment, level)
        })
    }

    /// Has the threads of such a process time about so many holds for a second of CPU time each (0: all of them) from soon on.
    pub fn time_holds(pid: u32, timed_holds: u32) -> Result<(), SessionError> {
        in_segments_of(pid, |_, segment| {
            set(segment, offset_of!(Header, timed_holds), timed_holds)?;
            raise(segment, offset_of!(Header, switches))
        })
    }
}

/// Does this, given directory and path, with each segment of a process.
fn in_segments_of(pid: u32, change: impl Fn(&Path, &Path) -> io::Result<()>) -> Result<(), SessionError> {
    let mut found = false;
    for directory in parents().iter().flat_map(|parent| directories(parent)) {
        for path in segments(&directory).unwrap_or_default() {
            if segment_pid(&path) == Some(pid) {
                change(&directory, &path).map_err(|error| {
                    let sentence = format!("cannot switch process {pid} in {}: {error}", path.display());
                    SessionError::new(SessionErrorKind::Io, sentence)
                })?;
                found = true;
            }
        }
    }
    if found {
        return Ok(());
    }
    let sentence = format!(
        "process {pid} does not run under `lockmeter record -- COMMAND`, or has not used a lock yet; only such programs can be switched"
    );
    Err(SessionError::new(SessionErrorKind::NotMetered, sentence))
}

impl Drop for Session {
    fn drop(&mut self) {
        for path in segments(&self.directory).unwrap_or_default() {
            let _ = set(&path, offset_of!(Header, level), layout::OFF);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Where directories are made, the best first. Memory is better than a disk, which would be written to all the time.
fn parents() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    runtime.into_iter().chain([PathBuf::from("/dev/shm"), PathBuf::from("/tmp")]).collect()
}

fn create_in(parent: &Path) -> io::Result<PathBuf> {
    let pid = std::process::id();
    for attempt in 0..1000 {
        let directory = parent.join(format!("{DIRECTORY_PREFIX}{pid}-{attempt}"));
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(directory),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The session directories in a directory that are ours (root's: everybody's).
fn directories(parent: &Path) -> Vec<PathBuf> {
    // SAFETY: takes nothing.
    let own = unsafe { libc::geteuid() };
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let ours = |path: &PathBuf| {
        let is_ours = |data: fs::Metadata| data.is_dir() && (own == 0 || data.uid() == own);
        recorder_of(path).is_some() && fs::symlink_metadata(path).is_ok_and(is_ours)
    };
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(ours).collect()
}

/// The recorder's process id, from the directory's name.
fn recorder_of(directory: &Path) -> Option<u32> {
    let name = directory.file_name()?.to_str()?;
    name.strip_prefix(DIRECTORY_PREFIX)?.split_once('-')?.0.parse().ok()
}

/// Removes what recorders left that were killed.
fn remove_stale(parent: &Path) {
    for directory in directories(parent) {
        let is_gone = recorder_of(&directory).is_some_and(|recorder| !is_alive(recorder));
        // A recorder in another PID namespace looks gone, but holds its lock.
        if is_gone && hold(&directory).is_ok() {
            for path in segments(&directory).unwrap_or_default() {
                let _ = set(&path, offset_of!(Header, level), layout::OFF);
            }
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// Locks a session's directory for as long as the file lives. An error if its recorder has it.
fn hold(directory: &Path) -> io::Result<File> {
    let file = File::open(directory)?;
    file.try_lock()?;
    Ok(file)
}

/// Whether a process has this id.
pub(super) fn is_alive(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 is only a question.
    let answer = unsafe { libc::kill(pid, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// What there is in a session's directory.
pub(super) fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

/// The segments in a session's directory.
fn segments(directory: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(files(directory)?.into_iter().filter(|path| is_segment(path)).collect())
}

pub(super) fn is_segment(path: &Path) -> bool {
    segment_pid(path).is_some()
}

/// Whether a process without a segment left this.
pub(super) fn is_of_unmetered(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(UNMETERED_PREFIX))
}

/// The process that a segment's name tells.
pub(super) fn segment_pid(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(SEGMENT_PREFIX)?.split_once('-')?.0.parse().ok()
}

/// When a segment was made, as its name tells.
pub(super) fn segment_made(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(SEGMENT_PREFIX)?.split_once('-')?.1.parse().ok()
}

/// Writes a number to a segment's head.
fn set(segment: &Path, at: usize, number: u32) -> io::Result<()> {
    let file = File::options().write(true).open(segment)?;
    file.write_all_at(&number.to_ne_bytes(), at as u64)
}

/// Adds one to a number of a segment.
fn raise(segment: &Path, at: usize) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(segment)?;
    let mut number = [0; 4];
    file.read_exact_at(&mut number, at as u64)?;
    file.write_all_at(&u32::from_ne_bytes(number).wrapping_add(1).to_ne_bytes(), at as u64)
}

fn level_of_session(directory: &Path) -> u32 {
    let told = fs::read(directory.join(SESSION_FILE)).unwrap_or_default();
    let level = layout::Session::parse(&told).map(|session| session.level);
    level.filter(|level| [layout::WAIT, layout::HOLD].contains(level)).unwrap_or(layout::WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_whose_process_id_is_unknown_here_keeps_its_directory_while_it_lives() {
        let parent = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let directory = parent.path().join(format!("{DIRECTORY_PREFIX}{}-0", ended.id()));
        fs::create_dir(&directory).unwrap();
        let lock = hold(&directory).unwrap();
        remove_stale(parent.path());
        assert!(directory.is_dir(), "taken from a recorder that runs");
        drop(lock);
        remove_stale(parent.path());
        assert!(!directory.exists(), "left behind by a recorder that is gone");
    }
}
