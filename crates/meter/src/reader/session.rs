//! A session: the directory in which the segments of the metered programs are.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::directory::{Access, OwnDirectory, TrustedParent};
use super::keeper::Keeper;
use super::living::is_alive;
use super::memory::{Memory, u32_at};
use super::source::UserSource;
use super::ticker::Ticker;
use super::{Level, switches, ticks};
use crate::layout::{self, PageKind, Process, SESSION_FILE, SESSION_VARIABLE};

/// What the directories are called, followed by the recorder's process id and a random number.
const DIRECTORY_PREFIX: &str = "lockmeter-";

/// The file that says how new processes meter is a line of a few numbers.
const LONGEST_SESSION_FILE: u64 = 256;

/// Holds that a thread times for a second of its CPU time before it only counts some: timing one costs 40 ns in a loop and 200 in
/// a large program, so this is 0.1 to 0.5 % of its time.
pub const TIMED_HOLDS: u32 = 25_000;

/// A session that metered programs report to. Dropping it ends metering in those that still run and removes the directory.
#[derive(Debug)]
pub struct Session {
    parent: TrustedParent,
    directory: OwnDirectory,
    told: layout::Session,
    memory: Memory,
    keeper: Keeper,
    ticker: Ticker,
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

    pub(super) fn cannot_read(directory: &Path, error: &io::Error) -> Self {
        Self::new(SessionErrorKind::Io, format!("cannot read {}: {error}", directory.display()))
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

    /// As [`create`](Self::create), where a thread times about this many holds for a second of its CPU time (0: all of them) and
    /// counts the others.
    pub fn create_timing(level: Level, timed_holds: u32) -> Result<Self, SessionError> {
        let (parents, mut refused) = parents();
        parents.iter().for_each(remove_stale);
        let told = layout::Session { level: level.code(), tick_ns_shifted: ticks::calibrate(), timed_holds };
        for parent in parents {
            let made = parent.create(&new_name()).and_then(|directory| {
                let memory = Memory::create(&directory);
                if memory.is_err() {
                    parent.remove(&directory);
                }
                let memory = memory?;
                let ticker = Ticker::start(memory.try_clone()?, told.tick_ns_shifted)?;
                Ok((Keeper::start(&memory)?, ticker, memory, directory))
            });
            let (keeper, ticker, memory, directory) = match made {
                Ok(made) => made,
                Err(error) => {
                    refused.push(format!("{}: {error}", parent.path().display()));
                    continue;
                }
            };
            let lock = directory.lock().ok();
            let session = Self { parent, directory, told, memory, keeper, ticker, _lock: lock };
            session.write(SESSION_FILE, told.to_text().as_bytes())?;
            return Ok(session);
        }
        let sentence = format!(
            "cannot make a directory for the programs' measurements ({}); set XDG_RUNTIME_DIR to a directory of your own",
            refused.join("; ")
        );
        Err(SessionError::new(SessionErrorKind::NoDirectory, sentence))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Puts a file into the directory, for programs to read.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), SessionError> {
        let written = self.directory.file(name, Access::Create).and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| {
            let sentence = format!("cannot write to {}: {error}", self.directory.path().display());
            SessionError::new(SessionErrorKind::Io, sentence)
        })
    }

    /// What reads the segments that come into the directory from now on.
    pub fn source(&self) -> Result<UserSource, SessionError> {
        let source = self
            .directory
            .try_clone()
            .and_then(|directory| UserSource::of(directory, self.memory.try_clone()?, Some(&self.keeper)))
            .map(|source| source.with_late_ticks(self.ticker.late()));
        source.map_err(|error| SessionError::cannot_read(self.directory.path(), &error))
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
            (layout::DIRECTORY_VARIABLE, self.directory.path().into()),
            (SESSION_VARIABLE, self.told.to_text().into()),
            ("LD_PRELOAD", libraries),
        ]
    }

    /// Turns metering on or off in a process that reports to a session of this user.
    pub fn switch(pid: u32, level: Option<Level>) -> Result<(), SessionError> {
        in_segment_of(pid, |directory, memory, (page, number)| {
            let level = level.map_or_else(|| level_of_session(directory), Level::code);
            memory.put_u32(page, offset_of!(Process, level), level)?;
            raise(memory, page, offset_of!(Process, switches))?;
            switches::leave_word(directory, number, level)
        })
    }

    /// Has the threads of such a process time about this many holds for a second of CPU time each (0: all of them) from soon on.
    pub fn time_holds(pid: u32, timed_holds: u32) -> Result<(), SessionError> {
        in_segment_of(pid, |_, memory, (page, _)| {
            memory.put_u32(page, offset_of!(Process, timed_holds), timed_holds)?;
            raise(memory, page, offset_of!(Process, switches))
        })
    }
}

/// Does this with the segment of a process: its page and number, given with the session's directory and memory.
fn in_segment_of(
    pid: u32,
    change: impl Fn(&OwnDirectory, &Memory, (usize, u32)) -> io::Result<()>,
) -> Result<(), SessionError> {
    let mut found = false;
    for directory in parents().0.iter().flat_map(directories) {
        let Ok(memory) = Memory::open(&directory) else { continue };
        if let Some(segment) = segment_of(&memory, pid) {
            change(&directory, &memory, segment).map_err(|error| {
                let sentence = format!("cannot switch process {pid} in {}: {error}", directory.path().display());
                SessionError::new(SessionErrorKind::Io, sentence)
            })?;
            found = true;
        }
    }
    if found { Ok(()) } else { Err(SessionError::new(SessionErrorKind::NotMetered, not_metered(pid))) }
}

/// The segment of the program that a process runs now: the last that it began.
fn segment_of(memory: &Memory, pid: u32) -> Option<(usize, u32)> {
    let owned = memory.owned().unwrap_or_default();
    let processes = owned.iter().filter(|owned| owned.kind == PageKind::Process);
    let own = processes.filter(|owned| {
        let own = memory.read(owned.page as usize, offset_of!(Process, pid), 4);
        own.is_ok_and(|own| u32_at(&own, 0) == pid)
    });
    own.max_by_key(|owned| owned.process).map(|owned| (owned.page as usize, owned.process))
}

/// Why there is nothing to switch. A session of another user is not looked for, not even by root.
fn not_metered(pid: u32) -> String {
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|data| data.uid());
    match owner {
        Ok(owner) if owner != rustix::process::geteuid().as_raw() => format!(
            "process {pid} does not run under a `lockmeter record -- COMMAND` of yours; it is a process of user {owner}, who alone can \
             switch it if that user meters it"
        ),
        _ => format!(
            "process {pid} does not run under `lockmeter record -- COMMAND`, or has not used a lock yet; only such programs can be switched"
        ),
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Also where a program has removed the file's name.
        self.memory.switch_off();
        remove(&self.parent, &self.directory);
    }
}

/// Ends metering in the programs that still run, and removes the directory.
fn remove(parent: &TrustedParent, directory: &OwnDirectory) {
    if let Ok(memory) = Memory::open(directory) {
        memory.switch_off();
    }
    parent.remove(directory);
}

/// Where directories are made, the best first, and why other places are none. Memory is better than a disk, which would be
/// written to all the time. A place that another user can change is none: root may have inherited that user's XDG_RUNTIME_DIR.
fn parents() -> (Vec<TrustedParent>, Vec<String>) {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let opened = runtime.map(|path| TrustedParent::open(Path::new(&path))).into_iter();
    let (mut parents, mut refused) = (Vec::new(), Vec::new());
    for parent in opened.chain(["/dev/shm", "/tmp"].map(TrustedParent::of_system)) {
        match parent {
            Ok(parent) => parents.push(parent),
            Err(error) => refused.push(error.to_string()),
        }
    }
    (parents, refused)
}

/// A name that nobody can have taken before.
fn new_name() -> String {
    format!("{DIRECTORY_PREFIX}{}-{:016x}", std::process::id(), RandomState::new().hash_one(0))
}

/// The sessions of this user in a directory.
fn directories(parent: &TrustedParent) -> impl Iterator<Item = OwnDirectory> {
    let names = parent.names(DIRECTORY_PREFIX).into_iter().filter(|name| recorder_of(name).is_some());
    names.filter_map(|name| parent.directory(&name).ok())
}

/// The recorder's process id, from the directory's name.
fn recorder_of(directory: &str) -> Option<u32> {
    directory.strip_prefix(DIRECTORY_PREFIX)?.split_once('-')?.0.parse().ok()
}

/// Removes what recorders of this user left that were killed.
fn remove_stale(parent: &TrustedParent) {
    for directory in directories(parent) {
        let name = directory.path().file_name().and_then(OsStr::to_str);
        let is_gone = name.and_then(recorder_of).is_some_and(|recorder| !is_alive(recorder));
        // A recorder in another PID namespace looks gone, but holds its lock.
        if is_gone && directory.lock().is_ok() {
            remove(parent, &directory);
        }
    }
}

/// Adds one to a number of a segment.
fn raise(memory: &Memory, page: usize, at: usize) -> io::Result<()> {
    let number = u32_at(&memory.read(page, at, 4)?, 0);
    memory.put_u32(page, at, number.wrapping_add(1))
}

fn level_of_session(directory: &OwnDirectory) -> u32 {
    let told = directory.read(SESSION_FILE, LONGEST_SESSION_FILE).unwrap_or_default();
    let level = layout::Session::parse(&told).map(|session| session.level);
    level.filter(|level| [layout::WAIT, layout::HOLD].contains(level)).unwrap_or(layout::WAIT)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{DirBuilderExt, symlink};
    use std::path::PathBuf;

    use super::*;

    fn parent(folder: &tempfile::TempDir) -> TrustedParent {
        TrustedParent::open(&folder.path().canonicalize().unwrap()).unwrap()
    }

    /// The directory of a recorder that has ended.
    fn left_behind(folder: &tempfile::TempDir) -> PathBuf {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let directory = folder.path().join(format!("{DIRECTORY_PREFIX}{}-0", ended.id()));
        fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
        directory
    }

    #[test]
    fn a_recorder_whose_process_id_is_unknown_here_keeps_its_directory_while_it_lives() {
        let folder = tempfile::tempdir().unwrap();
        let directory = left_behind(&folder);
        let lock = OwnDirectory::open(&directory).unwrap().lock().unwrap();
        remove_stale(&parent(&folder));
        assert!(directory.is_dir(), "taken from a recorder that runs");
        drop(lock);
        remove_stale(&parent(&folder));
        assert!(!directory.exists(), "left behind by a recorder that is gone");
    }

    /// Makes sure that nobody can take a name before a recorder does.
    #[test]
    fn names_of_sessions_cannot_be_guessed() {
        assert_ne!(new_name(), new_name());
        assert_eq!(recorder_of(&new_name()), Some(std::process::id()));
    }

    /// Makes sure that cleaning up writes to no file but the session's memory: a link in its place leads to somebody's file.
    #[test]
    fn a_link_in_a_stale_session_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, directory) = (folder.path().join("victim"), left_behind(&folder));
        fs::write(&victim, [0xff; 64]).unwrap();
        symlink(&victim, directory.join(layout::MEMORY_FILE)).unwrap();
        let other = left_behind(&folder);
        fs::hard_link(&victim, other.join(layout::MEMORY_FILE)).unwrap();
        remove_stale(&parent(&folder));
        assert!(!directory.exists() && !other.exists());
        assert_eq!(fs::read(&victim).unwrap(), [0xff; 64]);
    }
}
