//! A file that gets its name only when there is something to keep.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, Stat, fchmod, linkat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::output_path::{Entry, Obstacle, exchanged};

/// How many random names are tried; a second is needed once in 2^64 times, unless somebody else guesses.
const MOST_NAMES: u32 = 8;

/// A new file in the directory of its entry, without a name where the file system can do that.
#[derive(Debug)]
pub(super) struct NewFile {
    entry: Entry,
    file: File,
    /// Its name so far, which is removed with this, where the file system demands one.
    name: Option<OsString>,
    /// The file that it will replace, locked so that no other recorder replaces it meanwhile.
    replaced: Option<(File, Stat)>,
}

impl NewFile {
    /// Makes the file, with exactly this mode.
    pub(super) fn create(entry: Entry, mode: u32, replaced: Option<(File, Stat)>) -> Result<Self, Obstacle> {
        let unnamed =
            openat(&entry.directory, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        let new = match unnamed {
            Ok(file) => Self { entry, file: file.into(), name: None, replaced },
            // What file systems and kernels without O_TMPFILE answer.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::create_named(entry, replaced)?,
            Err(error) => return Err(error.into()),
        };
        fchmod(&new.file, Mode::from_raw_mode(mode))?;
        Ok(new)
    }

    fn create_named(entry: Entry, replaced: Option<(File, Stat)>) -> Result<Self, Obstacle> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        let make = |name: &OsString| openat(&entry.directory, name, flags, Mode::RUSR | Mode::WUSR);
        let (name, file): (OsString, OwnedFd) = with_random_name(make)?;
        Ok(Self { entry, file: file.into(), name: Some(name), replaced })
    }

    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name; one that it replaces is gone then.
    pub(super) fn commit(&mut self) -> Result<File, Obstacle> {
        let replaced = self.replaced.take();
        match &replaced {
            None => self.take_free_name()?,
            Some((_, examined)) if self.entry.still_holds(examined) => self.replace()?,
            Some(_) => return Err(exchanged()),
        }
        Ok(self.file.try_clone()?)
    }

    fn take_free_name(&mut self) -> Result<(), Obstacle> {
        let taken = match &self.name {
            None => self.link(&self.entry.name),
            Some(so_far) => {
                let Entry { directory, name } = &self.entry;
                match renameat_with(directory, so_far, directory, name, RenameFlags::NOREPLACE) {
                    // File systems that cannot do that have hard links; the name so far is removed by the drop.
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        linkat(directory, so_far, directory, name, AtFlags::empty()).map(|()| false)
                    }
                    renamed => renamed.map(|()| true),
                }
                .map(|has_no_other_name| {
                    if has_no_other_name {
                        self.name = None;
                    }
                })
            }
        };
        match taken {
            Err(Errno::EXIST) => Err(Obstacle::would_overwrite(
                "was made by another program meanwhile, perhaps another lockmeter: choose another name with -o",
            )),
            taken => Ok(taken?),
        }
    }

    fn replace(&mut self) -> Result<(), Obstacle> {
        if self.name.is_none() {
            let (name, ()) = with_random_name(|name| self.link(name))?;
            self.name = Some(name);
        }
        if let Some(name) = &self.name {
            renameat(&self.entry.directory, name, &self.entry.directory, &self.entry.name)?;
            self.name = None;
        }
        Ok(())
    }

    /// Names a file that has none.
    fn link(&self, name: &OsString) -> rustix::io::Result<()> {
        let in_proc = format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd());
        match linkat(CWD, in_proc, &self.entry.directory, name, AtFlags::SYMLINK_FOLLOW) {
            // Without procfs; this way needs a capability on older kernels.
            Err(Errno::NOENT) => linkat(&self.file, "", &self.entry.directory, name, AtFlags::EMPTY_PATH),
            linked => linked,
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(&self.entry.directory, name, AtFlags::empty());
        }
    }
}

/// Tries names that nobody can predict until one is free.
fn with_random_name<T>(
    mut attempt: impl FnMut(&OsString) -> rustix::io::Result<T>,
) -> rustix::io::Result<(OsString, T)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let random = RandomState::new().build_hasher().finish();
        let name = OsString::from(format!(".lockmeter-{random:016x}.new"));
        match attempt(&name) {
            Err(Errno::EXIST) if tries < MOST_NAMES => {}
            result => return result.map(|made| (name, made)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    use super::super::output_path::{Destination, Standing, resolve};
    use super::*;

    fn entry(path: &Path) -> Entry {
        match resolve(path) {
            Ok(Destination::Entry(entry)) => entry,
            other => panic!("{} is no name in a directory: {other:?}", path.display()),
        }
    }

    fn names_in(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    /// Makes sure that file systems which cannot make files without a name get the same: a new file, then a replaced one.
    #[test]
    fn a_file_with_a_name_for_the_time_being_gets_its_own_and_leaves_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        for text in ["first", "second"] {
            let entry = entry(&path);
            let replaced = match entry.examine().unwrap() {
                Standing::Regular(stat) => Some((File::open(&path).unwrap(), stat)),
                _ => None,
            };
            let mut new = NewFile::create_named(entry, replaced).unwrap();
            new.file().write_all(text.as_bytes()).unwrap();
            assert_ne!(fs::read_to_string(&path).unwrap_or_default(), text);
            new.commit().unwrap();
            drop(new);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(names_in(folder.path()), ["out"]);
        }
        drop(NewFile::create_named(entry(&path), None).unwrap());
        assert_eq!(names_in(folder.path()), ["out"]);
    }

    /// Makes sure that a name which is taken meanwhile is not taken over, whichever way the file was made.
    #[test]
    fn a_name_that_is_taken_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let unnamed = NewFile::create(entry(&path), 0o600, None).unwrap();
        let named = NewFile::create_named(entry(&path), None).unwrap();
        fs::write(&path, "another's").unwrap();
        for mut new in [unnamed, named] {
            assert!(matches!(new.commit(), Err(Obstacle::Refused(..))));
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
        assert_eq!(names_in(folder.path()), ["out"]);
    }
}
