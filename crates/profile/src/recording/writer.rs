//! Writes a recording.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::chunk::{self, ChunkKind, MAGIC, MAX_ENTRIES, MAX_INFLATED_BYTES, TooLarge};
use super::error::{RecordingError, RecordingErrorKind, shown};
use super::schema;
use crate::interval::Interval;
use crate::report::About;

/// Writes a recording, one chunk an interval, each in one call to the operating system.
///
/// Dropped without [`finish`](Self::finish), the recording stays readable and says that it did not end cleanly.
#[derive(Debug)]
pub struct RecordingWriter {
    file: File,
    name: String,
    /// Length of the whole chunks written so far.
    written_bytes: u64,
    next_sequence: u32,
    intervals: u64,
}

/// What already stands at the output's path.
enum Existing {
    Nothing,
    /// An empty file, a device, a pipe: written to in place.
    InPlace,
    Recording,
    /// A recording that another process is writing now.
    BeingWritten,
    Other,
}

impl RecordingWriter {
    /// Begins a recording at `path`.
    ///
    /// * Nothing there: the file is created, and removed again if even its head cannot be written.
    /// * A recording there: its replacement is written beside it and renamed over it once its head is complete, so that
    ///   the old one survives a full disk. Create the writer only when metering has begun, and it survives that failing too.
    /// * An empty file, a device or a pipe there: written to in place.
    /// * Anything else there is left alone, and so is a recording that another process is writing now:
    ///   [`RecordingErrorKind::WouldOverwrite`].
    pub fn create(path: impl AsRef<Path>, about: &About) -> Result<Self, RecordingError> {
        let name = shown(path.as_ref());
        let failed = |error| RecordingError::io("cannot write", &name, error);
        // A symbolic link stays one: its target is replaced.
        let target = fs::canonicalize(&path).unwrap_or_else(|_| path.as_ref().to_owned());
        let head = first_bytes(about, &name)?;
        let file = match existing(&target).map_err(failed)? {
            Existing::Nothing => create_new(&target, &head),
            Existing::InPlace => open_in_place(&target, &head),
            Existing::Recording => replace(&target, &head),
            Existing::BeingWritten => {
                return Err(would_overwrite(format!(
                    "{name} is being written by another lockmeter: choose another name with -o, or end that one first"
                )));
            }
            Existing::Other => {
                return Err(would_overwrite(format!(
                    "{name} exists and is not a recording: choose another name with -o, or remove it first"
                )));
            }
        };
        let file = file.map_err(failed)?;
        // Held until the file is closed. Where there are no locks, nobody is warned.
        let _ = file.try_lock();
        Ok(Self { file, name, written_bytes: head.len() as u64, next_sequence: 1, intervals: 0 })
    }

    /// Adds one interval. After an error the file ends, as before, with its last whole chunk.
    pub fn append(&mut self, interval: &Interval) -> Result<(), RecordingError> {
        let message = schema::encode_interval(interval).ok_or_else(|| {
            let entries = format!("more than {MAX_ENTRIES} locks, tasks, stacks and samples");
            too_large(&self.name, &entries)
        })?;
        self.append_chunk(ChunkKind::Interval, &message)?;
        self.intervals += 1;
        Ok(())
    }

    /// Marks the recording as ended cleanly and hands it to the disk.
    pub fn finish(mut self) -> Result<(), RecordingError> {
        let message = schema::encode_end(self.intervals);
        self.append_chunk(ChunkKind::End, &message)?;
        match self.file.sync_all() {
            // A pipe or a device cannot be synchronised and need not be.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
                Err(RecordingError::io("cannot write", &self.name, error))
            }
            _ => Ok(()),
        }
    }

    /// How long the file is.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    fn append_chunk(&mut self, kind: ChunkKind, message: &[u8]) -> Result<(), RecordingError> {
        let bytes = chunk::encode(kind, self.next_sequence, message).map_err(|e| too_large_chunk(&self.name, &e))?;
        if let Err(error) = self.file.write_all(&bytes) {
            // Fails only on pipes and devices, and a reader finds its way past half a chunk as well.
            let _ = self.file.set_len(self.written_bytes);
            let _ = self.file.seek(SeekFrom::Start(self.written_bytes));
            return Err(RecordingError::io("cannot write", &self.name, error));
        }
        self.written_bytes += bytes.len() as u64;
        self.next_sequence += 1;
        Ok(())
    }
}

fn would_overwrite(sentence: String) -> RecordingError {
    RecordingError::new(RecordingErrorKind::WouldOverwrite, sentence)
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

fn existing(path: &Path) -> io::Result<Existing> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Existing::Nothing),
        other => other?,
    };
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok(Existing::InPlace);
    }
    let mut first = Vec::new();
    let file = File::open(path)?;
    (&file).take(MAGIC.len() as u64).read_to_end(&mut first)?;
    // A recorder that died at once leaves less than the magic.
    Ok(if !MAGIC.starts_with(&first) {
        Existing::Other
    } else if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        Existing::BeingWritten
    } else {
        Existing::Recording
    })
}

fn create_new(path: &Path, head: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    match file.write_all(head) {
        Ok(()) => Ok(file),
        Err(error) => {
            let _ = fs::remove_file(path);
            Err(error)
        }
    }
}

fn open_in_place(path: &Path, head: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    match file.write_all(head) {
        Ok(()) => Ok(file),
        Err(error) => {
            let _ = file.set_len(0);
            Err(error)
        }
    }
}

fn replace(path: &Path, head: &[u8]) -> io::Result<File> {
    // Tells "no permission to write this file" from "the folder allows a rename".
    OpenOptions::new().write(true).open(path)?;
    let beside = beside(path);
    let file = create_new(&beside, head)?;
    match fs::rename(&beside, path) {
        Ok(()) => Ok(file),
        Err(error) => {
            let _ = fs::remove_file(&beside);
            Err(error)
        }
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}
