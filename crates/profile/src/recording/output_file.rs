//! Output that is not a recording: reports and profiles, under the same rules about what belongs to other users.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::fcntl_dupfd_cloexec;

use super::error::{RecordingError, shown};
use super::new_file::NewFile;
use super::output_path::{Destination, Entry, Obstacle, Standing, resolve};
use super::stream::{PipeWait, Stream, WaitForever};

/// Permissions of what is not a recording, before the umask.
const ORDINARY_MODE: u32 = 0o666;

/// A file, pipe or device to write a report to.
#[derive(Debug)]
pub struct OutputFile(Output);

#[derive(Debug)]
enum Output {
    File(File),
    Stream(Stream),
}

impl OutputFile {
    /// Makes the file, or empties the one that is there; waits for a reader of a named pipe as long as `wait` allows.
    ///
    /// Refused are symbolic links, pipes and devices of other users, files of other users in a directory that all users
    /// share, and files with several names.
    pub fn create(path: impl AsRef<Path>, wait: Box<dyn PipeWait>) -> Result<Self, RecordingError> {
        let name = shown(path.as_ref());
        let created = resolve(path.as_ref()).and_then(|destination| match destination {
            Destination::Descriptor(number) => Ok(Output::Stream(Stream::new(descriptor(number)?, wait))),
            Destination::Entry(entry) => open_entry(&entry, wait),
        });
        created.map(Self).map_err(|obstacle| obstacle.into_error(&name))
    }
}

/// A file that takes its place when it is whole; until then, nothing there changes.
#[derive(Debug)]
pub struct WholeFile {
    output: Whole,
    name: String,
}

#[derive(Debug)]
enum Whole {
    New(NewFile),
    Stream(Stream),
}

impl WholeFile {
    /// Begins the file, with exactly this mode, whatever the umask; a pipe or a device is written to at once.
    ///
    /// Refused is what [`OutputFile::create`] refuses, but for files with several names: the others keep what they had.
    pub fn create(path: impl AsRef<Path>, mode: u32, wait: Box<dyn PipeWait>) -> Result<Self, RecordingError> {
        let name = shown(path.as_ref());
        let begin = |entry: Entry| match entry.examine()? {
            Standing::Nothing => NewFile::create(entry, mode, None).map(Whole::New),
            Standing::Regular(stat) => {
                let replaced = File::from(entry.open(&stat, OFlags::WRONLY)?);
                NewFile::create(entry, mode, Some((replaced, stat))).map(Whole::New)
            }
            Standing::Pipe(stat) => Stream::open_pipe(&entry, &stat, wait).map(Whole::Stream),
            Standing::Device(stat) => {
                Ok(Whole::Stream(Stream::new(entry.open(&stat, OFlags::WRONLY)?.into(), Box::new(WaitForever))))
            }
        };
        let begun = resolve(path.as_ref()).and_then(|destination| match destination {
            Destination::Descriptor(number) => {
                Ok(Whole::Stream(Stream::new(descriptor(number)?, Box::new(WaitForever))))
            }
            Destination::Entry(entry) => begin(entry),
        });
        begun.map(|output| Self { output, name: name.clone() }).map_err(|obstacle| obstacle.into_error(&name))
    }

    /// Gives the file its name; what had it is gone then.
    pub fn commit(mut self) -> Result<(), RecordingError> {
        match &mut self.output {
            Whole::New(new) => new.commit().map(drop).map_err(|obstacle| obstacle.into_error(&self.name)),
            Whole::Stream(_) => Ok(()),
        }
    }

    /// The same once its content is on the disk, so that after a crash the name has all of it, or nothing.
    pub fn commit_to_disk(mut self) -> Result<(), RecordingError> {
        if let Whole::New(new) = &mut self.output {
            new.file().sync_all().map_err(|error| Obstacle::from(error).into_error(&self.name))?;
        }
        self.commit()
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.output {
            Whole::New(new) => new.file().write(bytes),
            Whole::Stream(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Whole::New(new) => new.file().flush(),
            Whole::Stream(stream) => stream.flush(),
        }
    }
}

/// Writes a whole file as [`OutputFile`] does.
pub fn write_file(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    let file = OutputFile::create(path, Box::new(WaitForever)).map_err(|error| io::Error::other(error.to_string()));
    file?.write_all(bytes)
}

fn open_entry(entry: &Entry, wait: Box<dyn PipeWait>) -> Result<Output, Obstacle> {
    match entry.examine()? {
        Standing::Nothing => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = openat(&entry.directory, &entry.name, flags, Mode::from_raw_mode(ORDINARY_MODE))?;
            Ok(Output::File(file.into()))
        }
        Standing::Regular(stat) if stat.st_nlink > 1 => Err(Obstacle::would_overwrite(
            "has other names (hard links), which would be overwritten, too: choose another place with -o, or remove it first",
        )),
        Standing::Regular(stat) => {
            let file = File::from(entry.open(&stat, OFlags::WRONLY)?);
            file.set_len(0)?;
            Ok(Output::File(file))
        }
        Standing::Pipe(stat) => Stream::open_pipe(entry, &stat, wait).map(Output::Stream),
        Standing::Device(stat) => Ok(Output::Stream(Stream::new(entry.open(&stat, OFlags::WRONLY)?.into(), wait))),
    }
}

/// A copy of a descriptor that this process was started with.
pub(super) fn descriptor(number: RawFd) -> io::Result<File> {
    // SAFETY: the number is that of standard output, which Rust's runtime keeps open, or of an entry of /proc/self/fd
    // that was found a moment ago; what this process was started with it never closes.
    let open = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(fcntl_dupfd_cloexec(open, 0)?.into())
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Output::File(file) => file.write(bytes),
            Output::Stream(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Output::File(file) => file.flush(),
            Output::Stream(stream) => stream.flush(),
        }
    }
}
