//! Opens files that a metered program names or maps.
//!
//! The program, or another user, may change such a file at any moment: put a FIFO in its place, or truncate it while it is
//! being read. So a file is looked at before it is opened, only regular files are opened, and from then on everything goes
//! through the descriptor.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::elf_image::{ElfImage, ElfPart};

/// Where lockmeter finds a file of a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FilePlace {
    /// No path leads to it.
    Nowhere,
    /// A path of this process.
    Here(PathBuf),
    /// A path below the root directory of a process.
    InRootOf {
        /// The process.
        pid: u32,
        /// The path as the process knows it.
        path: PathBuf,
    },
}

impl FilePlace {
    /// Opens the file that lies there now.
    pub fn open(&self) -> io::Result<TargetFile> {
        match self {
            Self::Nowhere => Err(io::ErrorKind::NotFound.into()),
            Self::Here(path) => TargetFile::open(path),
            Self::InRootOf { pid, path } => TargetFile::open_in_root_of(*pid, path),
        }
    }

    /// Where a process finds the file with this path: below its root directory, if it sees other files than this process does.
    pub fn of_process(pid: u32, path: &Path) -> Self {
        let path = path.to_owned();
        if path.is_absolute() && sees_other_files(pid) { Self::InRootOf { pid, path } } else { Self::Here(path) }
    }

    /// Where the kernel shows the file that a process maps here, by whatever name it goes now: addresses as the process's list of mappings
    /// has them, there filled up with zeros.
    pub fn mapped(pid: u32, range: &str) -> Self {
        let bare = |address: &str| match address.trim_start_matches('0') {
            "" => "0".to_owned(),
            bare => bare.to_owned(),
        };
        let range = range.split('-').map(bare).collect::<Vec<_>>().join("-");
        Self::Here(PathBuf::from(format!("/proc/{pid}/map_files/{range}")))
    }

    /// The path as the process knows it.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Nowhere => None,
            Self::Here(path) | Self::InRootOf { path, .. } => Some(path),
        }
    }

    /// Another path in the same tree of files.
    pub(crate) fn beside(&self, path: PathBuf) -> Self {
        match self {
            Self::Nowhere => Self::Nowhere,
            Self::Here(_) => Self::Here(path),
            Self::InRootOf { pid, .. } => Self::InRootOf { pid: *pid, path },
        }
    }
}

/// Whether a process sees another tree of files than this one: it is in another mount namespace, or has another root directory.
pub fn sees_other_files(pid: u32) -> bool {
    let link = |path: String| fs::read_link(path).ok();
    let namespace = link(format!("/proc/{pid}/ns/mnt"));
    (namespace.is_some() && namespace != link("/proc/self/ns/mnt".into()))
        || link(format!("/proc/{pid}/root")).is_some_and(|root| root != Path::new("/"))
}

/// A regular file of a program, open for reading.
#[derive(Debug)]
pub struct TargetFile {
    file: File,
    data: Metadata,
}

/// Flags of the descriptor by which a file is looked at: this opens no device and waits for no FIFO.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl TargetFile {
    /// Opens what this path of ours leads to. Anything but a regular file is refused, unopened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of_found(&rustix::fs::open(path, LOOK, Mode::empty())?)
    }

    /// Opens what this path leads to in the tree of files of a process. Links that leave its root directory do not.
    pub fn open_in_root_of(pid: u32, path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(format!("/proc/{pid}/root"), LOOK | OFlags::DIRECTORY, Mode::empty())?;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&root, path, LOOK, Mode::empty(), within) {
            // Linux before 5.6, or a container's filter of system calls that does not know this one.
            Err(Errno::NOSYS | Errno::PERM) => Self::of_found(&find_without_links(root, path)?),
            found => Self::of_found(&found?),
        }
    }

    fn of_found(found: &OwnedFd) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(found)?.st_mode);
        if kind != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // Non-blocking: a lease of the file's owner would delay the opening.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(descriptor_path(found.as_fd()), flags, Mode::empty())?);
        Self::of_open(file)
    }

    /// A file that is open already.
    pub(crate) fn of_open(file: File) -> io::Result<Self> {
        let data = file.metadata()?;
        Ok(Self { file, data })
    }

    /// What `fstat` said when it was opened.
    pub const fn metadata(&self) -> &Metadata {
        &self.data
    }

    /// A path that leads to this very file for as long as it is open here.
    pub fn path(&self) -> PathBuf {
        descriptor_path(self.file.as_fd())
    }

    /// Reads from this place in the file; how many bytes came.
    pub fn read_part(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(bytes, at)
    }

    /// The first bytes of the file, at most this many.
    pub fn head(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut head = Vec::new();
        (&self.file).take(most).read_to_end(&mut head)?;
        Ok(head)
    }

    /// The parts of a 64-bit ELF file that are needed for a purpose, in memory that nobody changes.
    pub fn elf(&self, part: ElfPart) -> io::Result<ElfImage> {
        ElfImage::read(self, part)
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Fills the buffer from this place in the file; what lies behind its end is zero.
    pub(crate) fn read_at(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.file.read_at(buffer, at) {
                Ok(0) => break,
                Ok(bytes) => (buffer, at) = (&mut buffer[bytes..], at + bytes as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.fill(0);
        Ok(())
    }

    /// Whether no other user can change the file, or what lies beside it: its debug link is then not another user's either.
    /// Only such a file may be mapped, as one that is truncated while it is mapped ends the reader by SIGBUS.
    pub(crate) fn is_only_ours(&self) -> bool {
        /// Where the owner of the server says who owns a file.
        const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
        let is_of_server = rustix::fs::fstatfs(&self.file).is_ok_and(|system| system.f_type as u64 == FUSE_SUPER_MAGIC);
        let folders_are_ours = || fs::read_link(self.path()).is_ok_and(|path| are_folders_only_ours(&path));
        !is_of_server && is_ours(&self.data) && self.data.mode() & WRITABLE_BY_OTHERS == 0 && folders_are_ours()
    }
}

impl AsRawFd for TargetFile {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.file.as_raw_fd()
    }
}

fn descriptor_path(descriptor: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

const WRITABLE_BY_OTHERS: u32 = 0o022;

fn is_ours(data: &Metadata) -> bool {
    data.uid() == 0 || data.uid() == rustix::process::geteuid().as_raw()
}

/// Whether nobody else can put a file into the folder of this one, or replace a folder on the way to it.
pub(crate) fn are_folders_only_ours(path: &Path) -> bool {
    /// In such a folder others cannot rename what is not theirs.
    const STICKY: u32 = 0o1000;
    path.ancestors().skip(1).enumerate().all(|(level, folder)| match fs::symlink_metadata(folder) {
        Ok(data) => {
            let is_safe = data.mode() & WRITABLE_BY_OTHERS == 0 || (level > 0 && data.mode() & STICKY != 0);
            data.is_dir() && is_ours(&data) && is_safe
        }
        // The file lies in another tree of files: only those who may write above could make this folder.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    })
}

/// Follows a path below a directory without following any link.
fn find_without_links(root: OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    path.components().try_fold(root, |folder, component| match component {
        Component::RootDir | Component::CurDir => Ok(folder),
        Component::Normal(name) => Ok(rustix::fs::openat(&folder, name, LOOK | OFlags::NOFOLLOW, Mode::empty())?),
        Component::ParentDir | Component::Prefix(_) => Err(io::ErrorKind::InvalidInput.into()),
    })
}

/// What tells a file from another one that is put in its place, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Version {
    pub fn of(file: &TargetFile) -> Self {
        let data = file.metadata();
        let changed = (data.ctime(), data.ctime_nsec());
        Self { device: data.dev(), inode: data.ino(), size: data.size(), changed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Where the kernel has no `openat2`, or a filter forbids it.
    #[test]
    fn without_openat2_links_are_refused_and_plain_paths_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/file"), "content").unwrap();
        symlink("inner", folder.path().join("link")).unwrap();
        symlink("file", folder.path().join("inner/link")).unwrap();
        let opened = |path: &str| {
            let root = rustix::fs::open(folder.path(), LOOK | OFlags::DIRECTORY, Mode::empty())?;
            TargetFile::of_found(&find_without_links(root, Path::new(path))?)?.head(7)
        };
        assert_eq!(opened("/inner/file").unwrap(), b"content");
        for path in ["/link/file", "/inner/link", "/inner/../inner/file"] {
            assert!(opened(path).is_err(), "{path}");
        }
    }
}
