//! Directories that are trusted, and the files in them, opened by descriptor.
//!
//! A recorder may run as root beside users that are hostile, and it meters programs that may be. So a directory is opened
//! once and judged by its descriptor; everything below it is opened relative to that descriptor and through no link, must be
//! a regular file of our own with one name, and is never waited for. `docs/reference/threat-model.md` says who is trusted with what.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Others may not write here, or may at least not remove what is not theirs.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// What nobody but the owner may do in a session's directory.
const ANY_ACCESS_OF_OTHERS: u32 = 0o077;

/// How deep a session's directory is emptied: the recorder makes no folders in it, but a program may.
const DEEPEST: u32 = 32;

/// Set once the kernel, or a container's system call filter, has refused `openat2`.
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// A directory in which nobody but root and we can replace what we make.
#[derive(Debug)]
pub(super) struct TrustedParent {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl TrustedParent {
    /// Opens it from the root downwards, through no link. Each directory on the way must belong to root or to us, and others
    /// may write to it only where the sticky bit keeps them from what is not theirs.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut descriptor = rustix::fs::open("/", DIRECTORY, Mode::empty())?;
        check_parent(&descriptor, Path::new("/"))?;
        for component in path.components() {
            match component {
                Component::RootDir => {}
                Component::Normal(name) => {
                    descriptor = rustix::fs::openat(&descriptor, name, DIRECTORY, Mode::empty())?;
                    check_parent(&descriptor, path)?;
                }
                _ => return Err(refused(path, "is not an absolute path")),
            }
        }
        Ok(Self { descriptor, path: path.to_owned() })
    }

    /// One of the places where every system has such a directory. The links on the way to it are the system's own.
    pub(super) fn of_system(path: &str) -> io::Result<Self> {
        Self::open(&Path::new(path).canonicalize()?)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory for us alone.
    pub(super) fn create(&self, name: &str) -> io::Result<OwnDirectory> {
        rustix::fs::mkdirat(&self.descriptor, name, Mode::RWXU)?;
        self.directory(name)
    }

    /// A directory of our own in this one, which nobody else can look into.
    pub(super) fn directory(&self, name: &str) -> io::Result<OwnDirectory> {
        let descriptor = rustix::fs::openat(&self.descriptor, name, DIRECTORY, Mode::empty())?;
        OwnDirectory::check(descriptor, self.path.join(name))
    }

    /// What directories there are whose names begin with this.
    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        let Ok(entries) = Dir::read_from(&self.descriptor) else { return Vec::new() };
        let is_directory = |name: &String| {
            let data = rustix::fs::statat(&self.descriptor, name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
            data.is_ok_and(|data| FileType::from_raw_mode(data.st_mode).is_dir())
        };
        entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()))
            .filter(|name| name.starts_with(prefix))
            .filter(is_directory)
            .collect()
    }

    /// Removes a directory of our own with what is in it.
    pub(super) fn remove(&self, directory: &OwnDirectory) {
        empty(directory.descriptor.as_fd(), DEEPEST);
        // Its name may stand for another one by now: what is not empty, and what is not ours, stays.
        let Some(name) = directory.path.file_name() else { return };
        let is_same = |data: Stat| {
            rustix::fs::fstat(&directory.descriptor)
                .is_ok_and(|own| (own.st_dev, own.st_ino) == (data.st_dev, data.st_ino))
        };
        if rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_same) {
            let _ = rustix::fs::unlinkat(&self.descriptor, name, AtFlags::REMOVEDIR);
        }
    }
}

/// An error if a user other than root and us could replace what we make in this directory.
pub fn check_trusted(directory: &Path) -> io::Result<()> {
    TrustedParent::open(directory).map(|_| ())
}

/// An error if this directory is not ours alone, so that others may have put something into it.
pub fn check_own(directory: &Path) -> io::Result<()> {
    OwnDirectory::open(directory).map(|_| ())
}

/// A directory of our own that nobody else can look into, held open.
#[derive(Debug)]
pub(super) struct OwnDirectory {
    descriptor: OwnedFd,
    path: PathBuf,
}

/// What is done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// It is read.
    Read,
    /// It is read and changed in place.
    Change,
    /// Something is added at its end; it is made if it is not there.
    Append,
    /// It is made.
    Create,
}

impl Access {
    fn flags(self) -> OFlags {
        let how = match self {
            Self::Read => OFlags::RDONLY,
            Self::Change => OFlags::RDWR,
            Self::Append => OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE,
            Self::Create => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        };
        // Non-blocking: a pipe in a file's place would be waited for until somebody opens its other end.
        how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

impl OwnDirectory {
    /// Opens a directory that must be ours alone.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::check(rustix::fs::open(path, DIRECTORY, Mode::empty())?, path.to_owned())
    }

    fn check(descriptor: OwnedFd, path: PathBuf) -> io::Result<Self> {
        let data = rustix::fs::fstat(&descriptor)?;
        if data.st_uid != geteuid().as_raw() {
            return Err(refused(&path, &format!("belongs to user {}", data.st_uid)));
        }
        if data.st_mode & ANY_ACCESS_OF_OTHERS != 0 {
            return Err(refused(&path, "can be read by other users"));
        }
        Ok(Self { descriptor, path })
    }

    /// The same directory, held once more.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { descriptor: self.descriptor.try_clone()?, path: self.path.clone() })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks it for as long as what is returned lives. An error if somebody else has locked it.
    pub(super) fn lock(&self) -> io::Result<File> {
        // Opened anew: a lock belongs to an open file, and a duplicated descriptor is the same one.
        let file = File::from(rustix::fs::openat(&self.descriptor, ".", DIRECTORY, Mode::empty())?);
        file.try_lock()?;
        Ok(file)
    }

    /// A regular file of ours in it.
    pub(super) fn file(&self, name: &str, access: Access) -> io::Result<File> {
        let flags = access.flags();
        let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
        let descriptor = open_beneath(&self.descriptor, self.check_name(name)?, flags, mode)?;
        let data = rustix::fs::fstat(&descriptor)?;
        let path = || self.path.join(name);
        if !FileType::from_raw_mode(data.st_mode).is_file() {
            return Err(refused(&path(), "is not a regular file"));
        }
        if data.st_uid != geteuid().as_raw() {
            return Err(refused(&path(), &format!("belongs to user {}", data.st_uid)));
        }
        if data.st_nlink > 1 {
            return Err(refused(&path(), "has other hard links"));
        }
        Ok(File::from(descriptor))
    }

    /// The begin of a file in it: no more than that many bytes.
    pub(super) fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name, Access::Read)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A name may come from a file that a program wrote: it must lead nowhere else.
    fn check_name<'n>(&self, name: &'n str) -> io::Result<&'n str> {
        let mut components = Path::new(name).components();
        match (components.next(), components.next()) {
            (Some(Component::Normal(one)), None) if one == OsStr::new(name) => Ok(name),
            _ => Err(refused(&self.path, "was asked for something outside of it")),
        }
    }
}

/// Opens a name in a directory, through no link and on no other file system.
fn open_beneath(directory: &OwnedFd, name: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
        .union(ResolveFlags::NO_SYMLINKS)
        .union(ResolveFlags::NO_MAGICLINKS)
        .union(ResolveFlags::NO_XDEV);
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        match rustix::fs::openat2(directory, name, flags, mode, RESOLVE) {
            // Linux before 5.6; filters of containers that do not know the call refuse it.
            Err(Errno::NOSYS) => NO_OPENAT2.store(true, Ordering::Relaxed),
            Err(Errno::PERM) => {}
            opened => return Ok(opened?),
        }
    }
    // A single name leads through no directory, and `O_NOFOLLOW` is among the flags.
    Ok(rustix::fs::openat(directory, name, flags, mode)?)
}

fn check_parent(descriptor: &OwnedFd, path: &Path) -> io::Result<()> {
    let data = rustix::fs::fstat(descriptor)?;
    let is_shared = data.st_mode & OTHERS_WRITE != 0;
    if ![0, geteuid().as_raw()].contains(&data.st_uid) && !is_unknown_owner(data.st_uid) {
        return Err(refused(path, &format!("or a directory above it belongs to user {}", data.st_uid)));
    }
    if is_shared && data.st_mode & STICKY == 0 {
        return Err(refused(path, "can be changed by other users"));
    }
    Ok(())
}

/// In a user namespace the system's root has no number of its own. Then nobody of the outer system is protected by us, and
/// we have no rights that the outer system has not given to our user.
fn is_unknown_owner(uid: u32) -> bool {
    let number = |path| std::fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
    !is_whole && number("/proc/sys/kernel/overflowuid") == Some(uid)
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

/// Removes what is in a directory, and follows no link.
fn empty(directory: std::os::fd::BorrowedFd<'_>, deepest: u32) {
    let Ok(entries) = Dir::read_from(directory) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        if name == c"." || name == c".." || rustix::fs::unlinkat(directory, name, AtFlags::empty()).is_ok() {
            continue;
        }
        if deepest > 0
            && let Ok(below) = rustix::fs::openat(directory, name, DIRECTORY, Mode::empty())
        {
            empty(below.as_fd(), deepest - 1);
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A folder as the recorder makes it.
    pub(in crate::reader) fn private_folder() -> tempfile::TempDir {
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap()
    }

    fn own(folder: &tempfile::TempDir) -> OwnDirectory {
        OwnDirectory::open(folder.path()).unwrap()
    }

    /// Makes sure that nothing but a regular file of ours is opened: neither at another place, nor for ever.
    #[test]
    fn links_pipes_folders_and_files_with_other_names_are_refused() {
        let folder = private_folder();
        let (victim, at) = (folder.path().join("victim"), |name: &str| folder.path().join(name));
        fs::write(&victim, "mine").unwrap();
        symlink(&victim, at("link")).unwrap();
        fs::hard_link(&victim, at("hard")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        fs::write(at("file"), "x").unwrap();
        let directory = own(&folder);
        for access in [Access::Read, Access::Change, Access::Append] {
            for name in
                ["link", "hard", "folder", "pipe", "victim", "../victim", "folder/x", "/etc/hostname", ".", "..", ""]
            {
                assert!(directory.file(name, access).is_err(), "{name} {access:?}");
            }
            assert!(directory.file("file", access).is_ok(), "{access:?}");
        }
        assert!(directory.file("file", Access::Create).is_err(), "there already");
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
    }

    #[test]
    fn without_openat2_no_link_is_followed_either() {
        let folder = private_folder();
        let directory = own(&folder);
        let victim = folder.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        symlink(&victim, folder.path().join("link")).unwrap();
        let opened = rustix::fs::openat(&directory.descriptor, "link", Access::Change.flags(), Mode::empty());
        assert_eq!(opened.unwrap_err(), Errno::LOOP);
    }

    #[test]
    fn a_directory_that_others_can_look_into_is_none_of_ours() {
        let folder = private_folder();
        assert!(OwnDirectory::open(folder.path()).is_ok());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o710)).unwrap();
        assert!(OwnDirectory::open(folder.path()).is_err());
    }

    /// Makes sure that a session and its files must be our own. Only root can give them to somebody else.
    #[test]
    fn what_belongs_to_another_user_is_none_of_ours() {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can make files of another user");
            return;
        }
        const ANOTHER: Option<u32> = Some(61_001);
        let folder = private_folder();
        let directory = own(&folder);
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::chown(&file, ANOTHER, ANOTHER).unwrap();
        assert!(directory.file("file", Access::Read).is_err());
        std::os::unix::fs::chown(folder.path(), ANOTHER, ANOTHER).unwrap();
        assert!(OwnDirectory::open(folder.path()).is_err());
        assert!(TrustedParent::open(&folder.path().canonicalize().unwrap()).is_err());
    }

    /// Makes sure that each directory on the way counts, not just the last one.
    #[test]
    fn a_parent_that_others_can_change_is_not_trusted_nor_what_lies_below() {
        let folder = private_folder();
        let (open, below) = (folder.path().join("open"), folder.path().join("open/below"));
        fs::create_dir_all(&below).unwrap();
        fs::set_permissions(&below, fs::Permissions::from_mode(0o700)).unwrap();
        let set = |mode| fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
        for (mode, trusted) in [(0o755, true), (0o777, false), (0o1777, true), (0o770, false)] {
            set(mode);
            assert_eq!(TrustedParent::open(&open).is_ok(), trusted, "{mode:o}");
            assert_eq!(TrustedParent::open(&below).is_ok(), trusted, "{mode:o}");
        }
        symlink(&below, folder.path().join("link")).unwrap();
        set(0o755);
        assert!(TrustedParent::open(&folder.path().join("link")).is_err(), "a link was followed");
    }

    #[test]
    fn a_directory_is_removed_with_all_that_a_program_put_there_and_nothing_else() {
        let folder = private_folder();
        let parent = TrustedParent::open(&folder.path().canonicalize().unwrap()).unwrap();
        let directory = parent.create("session").unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        fs::create_dir_all(directory.path().join("a/b/c")).unwrap();
        fs::write(directory.path().join("a/b/file"), "x").unwrap();
        symlink(&outside, directory.path().join("a/link")).unwrap();
        symlink(&outside, directory.path().join("link")).unwrap();
        parent.remove(&directory);
        assert!(!directory.path().exists());
        assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
    }

    #[test]
    fn of_a_large_file_the_begin_is_read() {
        let folder = private_folder();
        fs::write(folder.path().join("file"), [b'x'; 1000]).unwrap();
        assert_eq!(own(&folder).read("file", 256).unwrap(), [b'x'; 256]);
    }

    /// Makes sure that a folder which took the session's name meanwhile stays, even an empty one.
    #[test]
    fn what_took_the_name_of_a_directory_meanwhile_is_not_removed() {
        let folder = private_folder();
        let parent = TrustedParent::open(&folder.path().canonicalize().unwrap()).unwrap();
        let directory = parent.create("session").unwrap();
        fs::rename(directory.path(), folder.path().join("moved")).unwrap();
        fs::create_dir(directory.path()).unwrap();
        parent.remove(&directory);
        assert!(directory.path().is_dir());
    }
}
