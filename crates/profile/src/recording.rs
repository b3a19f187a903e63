//! The recording file: append-only, in checksummed chunks, so that whatever happens to it the rest stays readable.
//!
//! `docs/reference/file-format.md` describes the bytes. A [`RecordingWriter`] writes one chunk an interval in one call, so a
//! recorder that is killed loses at most the interval being written; a [`RecordingReader`] hands out one interval at a
//! time and says what it had to leave out.

mod chunk;
mod costs;
mod error;
mod kernel_addresses;
mod new_file;
mod output_file;
mod output_path;
mod packed;
mod reader;
mod schema;
mod stream;
mod writer;

pub use error::{RecordingError, RecordingErrorKind};
pub use output_file::{OutputFile, WholeFile, write_file};
pub use packed::PackedInterval;
pub use reader::RecordingReader;
pub use stream::{PipeWait, TRY_PIPE_AGAIN, WaitForever};
pub use writer::{RecordingOptions, RecordingWriter};

/// The format version that this lockmeter writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = chunk::FORMAT_VERSION;
