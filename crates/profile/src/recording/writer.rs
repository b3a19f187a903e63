//! Writes a recording.

use std::fs::{File, TryLockError};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::RawFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, Stat, fchmod};
use rustix::process::geteuid;

use super::chunk::{self, ChunkKind, MAGIC, MAX_ENTRIES, MAX_INFLATED_BYTES, TooLarge};
use super::error::{RecordingError, RecordingErrorKind, shown};
use super::kernel_addresses::KernelAddresses;
use super::new_file::NewFile;
use super::output_file::descriptor;
use super::output_path::{Destination, Entry, Obstacle, Standing, resolve};
use super::schema;
use super::stream::{PipeWait, Stream, WaitForever};
use crate::interval::Interval;
use crate::loss::Loss;
use crate::report::About;

/// How a recording is written.
pub struct RecordingOptions {
    /// The permissions of the file, whatever the umask. Only its owner may read a recording unless this says more.
    pub mode: u32,
    /// Whether addresses of the kernel are kept; otherwise numbers stand for them.
    pub kernel_addresses: bool,
    /// How long to wait for the reader of a pipe.
    pub wait: Box<dyn PipeWait>,
}

impl Default for RecordingOptions {
    fn default() -> Self {
        Self { mode: 0o600, kernel_addresses: false, wait: Box::new(WaitForever) }
    }
}

/// Writes a recording, one chunk an interval, each in one call to the operating system.
///
/// Dropped without [`finish`](Self::finish), the recording stays readable and says that it did not end cleanly; without a
/// single interval, nothing is left of it.
#[derive(Debug)]
pub struct RecordingWriter {
    output: Output,
    name: String,
    /// The descriptor of this process that is written to, if it is one.
    descriptor: Option<RawFd>,
    /// Absent where addresses are kept.
    addresses: Option<KernelAddresses>,
    /// Length of the whole chunks written so far.
    written_bytes: u64,
    next_sequence: u32,
    intervals: u64,
}

#[derive(Debug)]
enum Output {
    /// A file that holds the head and has no name yet.
    New(NewFile),
    /// An empty file that has this head and this mode before the first interval.
    Empty {
        file: File,
        head: Vec<u8>,
        mode: u32,
    },
    /// A file that holds intervals.
    File(File),
    Stream(Stream),
}

impl RecordingWriter {
    /// Begins a recording at `path`, as [`create_with`](Self::create_with) does, with the default options.
    pub fn create(path: impl AsRef<Path>, about: &About) -> Result<Self, RecordingError> {
        Self::create_with(path, about, RecordingOptions::default())
    }

    /// Begins a recording at `path`; `-` is standard output. Until the first interval is appended, nothing there changes.
    ///
    /// * Nothing there: the file then gets its name.
    /// * A recording there, or an empty file that is another user's or has several names: it is then replaced; an open
    ///   reader keeps the old one. A full disk, and a recorder that is killed, leave the old one alone.
    /// * Any other empty file: it is then written to.
    /// * A pipe, a device or a descriptor of this process: written to at once.
    /// * Anything else there is left alone, and so is a recording that another process is writing now:
    ///   [`RecordingErrorKind::WouldOverwrite`].
    /// * What belongs to another user and could be turned against this one is refused: symbolic links, pipes, devices, files in
    ///   directories that all users share: [`RecordingErrorKind::NotOurs`].
    pub fn create_with(
        path: impl AsRef<Path>,
        about: &About,
        options: RecordingOptions,
    ) -> Result<Self, RecordingError> {
        let path = path.as_ref();
        let name = if path == Path::new("-") { "standard output".to_owned() } else { shown(path) };
        let head = first_bytes(about, &name)?;
        let written_bytes = head.len() as u64;
        let addresses = (!options.kernel_addresses).then(KernelAddresses::default);
        let opened = resolve(path).and_then(|destination| match destination {
            Destination::Descriptor(number) => {
                Ok((begin_stream(Stream::new(binary(descriptor(number)?)?, options.wait), &head)?, Some(number)))
            }
            Destination::Entry(entry) => Ok((begin(entry, head, options)?, None)),
        });
        let (output, descriptor) = opened.map_err(|obstacle| obstacle.into_error(&name))?;
        Ok(Self { output, name, descriptor, addresses, written_bytes, next_sequence: 1, intervals: 0 })
    }

    /// Adds one interval. After an error the file ends, as before, with its last whole chunk. Of an interval that holds more
    /// than a recording can, as a hostile program may have it, only the losses are kept, and that it was too large.
    pub fn append(&mut self, interval: &Interval) -> Result<(), RecordingError> {
        match self.append_whole(interval) {
            Err(error) if error.kind() == RecordingErrorKind::TooLarge => self.append_whole(&without_samples(interval)),
            appended => appended,
        }
    }

    fn append_whole(&mut self, interval: &Interval) -> Result<(), RecordingError> {
        let hidden = self.addresses.as_ref().map(|addresses| addresses.hide(interval));
        let interval = hidden.as_deref().unwrap_or(interval);
        let message = schema::encode_interval(interval).ok_or_else(|| {
            let entries = format!("more than {MAX_ENTRIES} locks, tasks, stacks and samples");
            too_large(&self.name, &entries)
        })?;
        self.append_chunk(ChunkKind::Interval, &message)?;
        if let Output::New(new) = &mut self.output {
            self.output = Output::File(new.commit().map_err(|obstacle| obstacle.into_error(&self.name))?);
        }
        self.intervals += 1;
        Ok(())
    }

    /// Marks the recording as ended cleanly, hands it to the disk and gives it back, from its start, where it can be read.
    pub fn finish(mut self) -> Result<Option<File>, RecordingError> {
        if self.intervals == 0 && matches!(self.output, Output::New(_) | Output::Empty { .. }) {
            return Ok(None);
        }
        let message = schema::encode_end(self.intervals);
        self.append_chunk(ChunkKind::End, &message)?;
        let Output::File(mut file) = self.output else { return Ok(None) };
        let handed_over = file.sync_all().and_then(|()| file.seek(SeekFrom::Start(0)));
        handed_over.map_err(|error| RecordingError::io("cannot write", &self.name, error))?;
        Ok(Some(file))
    }

    /// How long the file is.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Whether the recording is a file, which can be read again when it is finished.
    pub fn is_file(&self) -> bool {
        !matches!(self.output, Output::Stream(_))
    }

    /// Whether the recording goes to standard output, so that nothing else may.
    pub fn is_standard_output(&self) -> bool {
        self.descriptor == Some(1)
    }

    fn append_chunk(&mut self, kind: ChunkKind, message: &[u8]) -> Result<(), RecordingError> {
        let bytes = chunk::encode(kind, self.next_sequence, message).map_err(|e| too_large_chunk(&self.name, &e))?;
        let written = match &mut self.output {
            Output::New(new) => write_or_cut(new.file(), &bytes, self.written_bytes),
            Output::File(file) => write_or_cut(file, &bytes, self.written_bytes),
            Output::Stream(stream) => stream.write_all(&bytes),
            Output::Empty { file, head, mode } => fchmod(&*file, Mode::from_raw_mode(*mode))
                .map_err(io::Error::from)
                .and_then(|()| write_or_cut(file, &[&head[..], &bytes].concat(), 0))
                .and_then(|()| file.try_clone())
                .map(|file| self.output = Output::File(file)),
        };
        written.map_err(|error| RecordingError::io("cannot write", &self.name, error))?;
        self.written_bytes += bytes.len() as u64;
        self.next_sequence += 1;
        Ok(())
    }
}

/// Writes all of it, or leaves the file as long as it was.
fn write_or_cut(file: &mut File, bytes: &[u8], length: u64) -> io::Result<()> {
    file.write_all(bytes).inspect_err(|_| {
        // A reader finds its way past half a chunk as well.
        let _ = file.set_len(length);
        let _ = file.seek(SeekFrom::Start(length));
    })
}

/// What is known of an interval without what was measured in it.
pub(super) fn without_samples(interval: &Interval) -> Interval {
    let mut losses = interval.losses.clone();
    losses.add(Loss::IntervalTooLarge, 1);
    Interval {
        start_unix_ns: interval.start_unix_ns,
        duration_ns: interval.duration_ns,
        losses,
        overhead: interval.overhead,
        ..Interval::default()
    }
}

fn too_large(name: &str, what: &str) -> RecordingError {
    let sentence = format!("cannot write {name}: an interval holds {what}; drain more often");
    RecordingError::new(RecordingErrorKind::TooLarge, sentence)
}

fn too_large_chunk(name: &str, error: &TooLarge) -> RecordingError {
    too_large(name, &format!("{} bytes, the limit is {MAX_INFLATED_BYTES}", error.inflated_bytes))
}

/// The file's head and its first chunk.
fn first_bytes(about: &About, name: &str) -> Result<Vec<u8>, RecordingError> {
    let message = schema::encode_about(about);
    let first = chunk::encode(ChunkKind::About, 0, &message).map_err(|e| too_large_chunk(name, &e))?;
    Ok([&chunk::head()[..], &first].concat())
}

fn begin(entry: Entry, head: Vec<u8>, options: RecordingOptions) -> Result<Output, Obstacle> {
    match entry.examine()? {
        Standing::Nothing => begin_new(entry, &head, options.mode, None),
        Standing::Regular(stat) => {
            let mut there = File::from(entry.open(&stat, OFlags::RDWR)?);
            let mut first = Vec::new();
            (&mut there).take(MAGIC.len() as u64).read_to_end(&mut first)?;
            // A recorder that died at once leaves less than the magic.
            if !MAGIC.starts_with(&first) {
                return Err(Obstacle::would_overwrite(
                    "exists and is not a recording: choose another name with -o, or remove it first",
                ));
            }
            // Held until the file is closed. Where there are no locks, nobody is warned.
            if matches!(there.try_lock(), Err(TryLockError::WouldBlock)) {
                return Err(Obstacle::would_overwrite(
                    "is being written by another lockmeter: choose another name with -o, or end that one first",
                ));
            }
            if first.is_empty() && stat.st_uid == geteuid().as_raw() && stat.st_nlink == 1 {
                return Ok(Output::Empty { file: there, head, mode: options.mode });
            }
            begin_new(entry, &head, options.mode, Some((there, stat)))
        }
        Standing::Pipe(stat) => begin_stream(Stream::open_pipe(&entry, &stat, options.wait)?, &head),
        Standing::Device(stat) => {
            let device = binary(entry.open(&stat, OFlags::WRONLY)?.into())?;
            begin_stream(Stream::new(device, options.wait), &head)
        }
    }
}

fn begin_new(entry: Entry, head: &[u8], mode: u32, replaced: Option<(File, Stat)>) -> Result<Output, Obstacle> {
    let mut new = NewFile::create(entry, mode, replaced)?;
    // As above; it will be looked for under its name.
    let _ = new.file().try_lock();
    new.file().write_all(head)?;
    Ok(Output::New(new))
}

fn begin_stream(mut stream: Stream, head: &[u8]) -> Result<Output, Obstacle> {
    stream.write_all(head)?;
    Ok(Output::Stream(stream))
}

/// What is no terminal.
fn binary(file: File) -> Result<File, Obstacle> {
    if file.is_terminal() {
        return Err(Obstacle::would_overwrite(
            "is a terminal, and a recording is binary: name a file, or pipe it to a program",
        ));
    }
    Ok(file)
}
