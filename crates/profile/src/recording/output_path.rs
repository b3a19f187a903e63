//! Resolves the path of an output without following a symbolic link of another user.
//!
//! The kernel's `fs.protected_symlinks` does as much in sticky directories only, and may be off. Each part of the path is
//! opened by itself, relative to the directory before it, and a link is followed by reading it: what was checked is what
//! is used, whatever is renamed meanwhile.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::error::{RecordingError, RecordingErrorKind};

/// As many links as the kernel follows in one path.
const MOST_LINKS: u32 = 40;

/// Opens a part of a path to look at it and to go on from it, not to read or write it.
const TO_LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Where an output goes.
#[derive(Debug)]
pub(super) enum Destination {
    /// An open descriptor of this process: `-` (standard output), `/dev/stdout`, `/dev/fd/N`.
    Descriptor(RawFd),
    /// A name in a directory, whether something stands there or not.
    Entry(Entry),
}

/// A name in a directory that stays open.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
}

/// Why an output cannot be had.
#[derive(Debug)]
pub(super) enum Obstacle {
    Io(io::Error),
    /// Not done although the operating system may allow it. The text goes on behind the name of the output.
    Refused(RecordingErrorKind, String),
}

impl Obstacle {
    /// A refusal because of what belongs to another user.
    pub(super) fn foreign(text: String) -> Self {
        Self::Refused(RecordingErrorKind::NotOurs, text)
    }

    pub(super) fn would_overwrite(text: &str) -> Self {
        Self::Refused(RecordingErrorKind::WouldOverwrite, text.to_owned())
    }

    /// The sentence for the user; `name` is the output as it was given.
    pub(super) fn into_error(self, name: &str) -> RecordingError {
        match self {
            Self::Io(error) => RecordingError::io("cannot write", name, error),
            Self::Refused(kind, text) => RecordingError::new(kind, format!("{name} {text}")),
        }
    }
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Obstacle {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Whether a link, a pipe or a device of this user may be used: root's and our own.
pub(super) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// Finds out where an output goes; `-` is standard output.
pub(super) fn resolve(path: &Path) -> Result<Destination, Obstacle> {
    if path == Path::new("-") {
        return Ok(Destination::Descriptor(1));
    }
    let mut walk = Walk::begin(path.as_os_str())?;
    while let Some(name) = walk.left.pop() {
        let is_last = walk.left.is_empty();
        let found = match openat(&walk.directory, &name, TO_LOOK, Mode::empty()) {
            Err(Errno::NOENT) if is_last && name != "." => {
                return Ok(Destination::Entry(Entry { directory: walk.directory, name }));
            }
            found => found?,
        };
        let stat = fstat(&found)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                if let Some(descriptor) = walk.follow(&name, &found, &stat)? {
                    return Ok(Destination::Descriptor(descriptor));
                }
            }
            FileType::Directory => walk.directory = found,
            _ if is_last => return Ok(Destination::Entry(Entry { directory: walk.directory, name })),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Err(Obstacle::Io(io::ErrorKind::IsADirectory.into()))
}

/// A path on its way to where it leads.
struct Walk {
    directory: OwnedFd,
    /// The parts still to go, the next one last.
    left: Vec<OsString>,
    links: u32,
}

impl Walk {
    fn begin(path: &OsStr) -> Result<Self, Obstacle> {
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        let mut walk = Self { directory: open_directory(".")?, left: Vec::new(), links: 0 };
        walk.go_on_with(path)?;
        Ok(walk)
    }

    fn go_on_with(&mut self, path: &OsStr) -> Result<(), Obstacle> {
        let bytes = path.as_bytes();
        if bytes.starts_with(b"/") {
            self.directory = open_directory("/")?;
        }
        if bytes.ends_with(b"/") {
            // What a slash follows is a directory.
            self.left.push(".".into());
        }
        let parts = bytes.split(|byte| *byte == b'/').rev().filter(|part| !part.is_empty());
        self.left.extend(parts.map(|part| OsStr::from_bytes(part).to_owned()));
        Ok(())
    }

    /// Goes on from where a link leads; gives the descriptor that it stands for, if it is one of ours.
    fn follow(&mut self, name: &OsStr, link: &OwnedFd, stat: &Stat) -> Result<Option<RawFd>, Obstacle> {
        // Who owns the directory may have moved a link there that belongs to somebody else.
        for owner in [stat.st_uid, fstat(&self.directory)?.st_uid] {
            if !is_trusted(owner) {
                let link = name.to_string_lossy();
                return Err(Obstacle::foreign(format!(
                    "leads through the symbolic link {link} of another user, or in another user's directory (user id {owner}): choose \
                     another place with -o"
                )));
            }
        }
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        if fstatfs(link)?.f_type == PROC_SUPER_MAGIC {
            return self.follow_in_proc(name);
        }
        let text = OsString::from_vec(readlinkat(link, "", Vec::new())?.into_bytes());
        self.go_on_with(&text)?;
        Ok(None)
    }

    /// Links of procfs lead where their text does not say; only the kernel can follow them.
    fn follow_in_proc(&mut self, name: &OsStr) -> Result<Option<RawFd>, Obstacle> {
        let number = name.to_str().and_then(|name| name.parse().ok()).filter(|_| self.left.is_empty());
        if let Some(descriptor) = number
            && is_same(&fstat(&self.directory)?, &rustix::fs::stat("/proc/self/fd")?)
        {
            return Ok(Some(descriptor));
        }
        let target = openat(&self.directory, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&target)?.st_mode) != FileType::Directory {
            let text = "is an open file of another process: name the file itself with -o";
            return Err(Obstacle::Refused(RecordingErrorKind::NotOurs, text.to_owned()));
        }
        self.directory = target;
        Ok(None)
    }
}

fn open_directory(path: &str) -> Result<OwnedFd, Obstacle> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// What stands at the place of an output, and may be used.
#[derive(Debug)]
pub(super) enum Standing {
    Nothing,
    Regular(Stat),
    Pipe(Stat),
    Device(Stat),
}

impl Entry {
    /// What stands here, unless it is another user's in a way that can be turned against us.
    pub(super) fn examine(&self) -> Result<Standing, Obstacle> {
        let stat = match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(Standing::Nothing),
            stat => stat?,
        };
        let owner = stat.st_uid;
        if owner != geteuid().as_raw() && is_shared(&fstat(&self.directory)?) {
            return Err(Obstacle::foreign(format!(
                "lies in a directory that all users share and belongs to another user (user id {owner}): choose another \
                 place with -o"
            )));
        }
        let foreign = |what: &str| {
            let text = format!("is a {what} of another user (user id {owner}): choose another place with -o");
            Err(Obstacle::foreign(text))
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Standing::Regular(stat)),
            FileType::Fifo if !is_trusted(owner) => foreign("named pipe"),
            FileType::Fifo => Ok(Standing::Pipe(stat)),
            FileType::CharacterDevice if !is_trusted(owner) => foreign("device"),
            FileType::CharacterDevice => Ok(Standing::Device(stat)),
            FileType::BlockDevice => Err(Obstacle::would_overwrite("is a block device: name a file with -o")),
            FileType::Directory => Err(Obstacle::Io(io::ErrorKind::IsADirectory.into())),
            FileType::Symlink => Err(exchanged()),
            _ => Err(Obstacle::would_overwrite("is neither a file nor a pipe: name a file with -o")),
        }
    }

    /// Opens what was examined; fails if something else has taken its place.
    pub(super) fn open(&self, examined: &Stat, flags: OFlags) -> Result<OwnedFd, Obstacle> {
        // Never waits and never becomes the terminal of this process, whatever has taken its place.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        let unchanged =
            is_same(&stat, examined) && (stat.st_uid, stat.st_nlink) == (examined.st_uid, examined.st_nlink);
        if unchanged { Ok(file) } else { Err(exchanged()) }
    }

    /// Whether the same file as before still stands here.
    pub(super) fn still_holds(&self, examined: &Stat) -> bool {
        let now = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        now.is_ok_and(|now| is_same(&now, examined))
    }
}

/// Whether all users may make files in this directory, or those of a group as in `/tmp`.
fn is_shared(directory: &Stat) -> bool {
    let mode = Mode::from_raw_mode(directory.st_mode);
    mode.contains(Mode::WOTH) || mode.contains(Mode::SVTX | Mode::WGRP)
}

pub(super) fn exchanged() -> Obstacle {
    Obstacle::would_overwrite("was replaced by another file meanwhile: choose another place with -o")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Makes sure that what was examined is what is opened, whatever takes its place in between.
    #[test]
    fn what_takes_the_place_of_an_examined_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["out", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "another's").unwrap();
        let swaps: [fn(&Path, &Path); 3] = [
            |path, other| fs::copy(other, path).map(|_| ()).unwrap(),
            |path, other| symlink(other, path).unwrap(),
            |path, other| fs::hard_link(other, path).unwrap(),
        ];
        for swap in swaps {
            fs::write(&path, "").unwrap();
            let Ok(Destination::Entry(entry)) = resolve(&path) else { panic!("no name in a directory") };
            let Ok(Standing::Regular(stat)) = entry.examine() else { panic!("no regular file") };
            assert!(entry.open(&stat, OFlags::RDWR).is_ok() && entry.still_holds(&stat));
            // Kept, so that its inode is not given to the next one.
            fs::rename(&path, folder.path().join("kept")).unwrap();
            swap(&path, &other);
            assert!(entry.open(&stat, OFlags::RDWR).is_err() && !entry.still_holds(&stat));
            fs::remove_file(&path).unwrap();
        }
        // Another name of the same file.
        fs::write(&path, "").unwrap();
        let Ok(Destination::Entry(entry)) = resolve(&path) else { panic!("no name in a directory") };
        let Ok(Standing::Regular(stat)) = entry.examine() else { panic!("no regular file") };
        fs::hard_link(&path, folder.path().join("second")).unwrap();
        assert!(entry.open(&stat, OFlags::RDWR).is_err());
    }

    #[test]
    fn paths_lead_where_the_kernel_says() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir(&inside).unwrap();
        symlink("../inside/./deep", inside.join("link")).unwrap();
        let name_of = |path: &str| match resolve(&inside.join(path)) {
            Ok(Destination::Entry(entry)) => {
                let directory = fs::read_link(format!("/proc/self/fd/{}", entry.directory.as_raw_fd())).unwrap();
                Ok(directory.join(entry.name))
            }
            Ok(Destination::Descriptor(number)) => panic!("descriptor {number}"),
            Err(Obstacle::Io(error)) => Err(error.kind()),
            Err(refused) => panic!("{refused:?}"),
        };
        assert_eq!(name_of("new"), Ok(inside.join("new")));
        assert_eq!(name_of("..//inside/../new"), Ok(folder.path().join("new")));
        assert_eq!(name_of("link"), Ok(inside.join("deep")));
        assert_eq!(name_of("missing/new"), Err(io::ErrorKind::NotFound));
        for directory in ["", ".", "..", "../inside", "../inside/"] {
            assert_eq!(name_of(directory), Err(io::ErrorKind::IsADirectory), "{directory}");
        }
        assert_eq!(name_of("new/"), Err(io::ErrorKind::NotFound));
    }

    #[test]
    fn descriptors_of_this_process_are_recognised_by_each_of_their_names() {
        for path in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            let is_stdout = matches!(resolve(Path::new(path)), Ok(Destination::Descriptor(1)));
            assert!(is_stdout, "{path}");
        }
    }
}
