//! Recordings as input: files, pipes and standard input, each read once.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use anyhow::Result;
use lockmeter_profile::recording::{RecordingError, RecordingReader};
use lockmeter_profile::{About, Happened, Interval, Limits, Losses, TooLarge};

/// How many intervals in which nothing was counted are kept until one says what a recording is of: 18 hours of them, in less
/// than 64 MiB. A recording with more of them at its start is taken for one of waits.
const MOST_KEPT: usize = 1 << 16;

/// Whether this names standard input.
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// A recording that is read interval by interval.
pub struct Recording {
    reader: RecordingReader,
    /// Intervals that were looked at already.
    kept: VecDeque<Interval>,
}

impl Recording {
    /// Opens a recording; `-` is standard input.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let reader = if is_standard_input(path) {
            RecordingReader::from_reader(io::stdin(), "standard input")
        } else {
            RecordingReader::open(path)
        };
        Ok(reader?.into())
    }

    /// Whether it tells what ran, not who waited. Reads no further than to the first interval that says so.
    pub fn is_of_latency(&mut self) -> Result<bool, RecordingError> {
        while self.kept.len() < MOST_KEPT {
            let Some(interval) = self.reader.next_interval()? else { return Ok(false) };
            let ran = interval.totals.iter().any(|total| total.key.happened == Happened::Run)
                || interval.bases.iter().any(|basis| basis.key.happened == Happened::Run)
                || !interval.long_runs.is_empty();
            let says_nothing = interval.totals.is_empty() && interval.bases.is_empty() && interval.sampled.is_empty();
            let tables = &interval.tables;
            // Only such intervals are kept: a hostile file may hold many large ones that say nothing.
            let is_small = [tables.locks().len(), tables.frames().len(), tables.tasks().len(), tables.cgroups().len()]
                .iter()
                .all(|length| *length == 0)
                && tables.stacks().is_empty()
                && interval.slow_holds.is_empty()
                && interval.off.processes.is_empty();
            self.kept.push_back(interval);
            if ran || !(says_nothing && is_small) {
                return Ok(ran);
            }
        }
        Ok(false)
    }

    pub fn next_interval(&mut self) -> Result<Option<Interval>, RecordingError> {
        match self.kept.pop_front() {
            Some(interval) => Ok(Some(interval)),
            None => self.reader.next_interval(),
        }
    }

    pub fn about(&self) -> &About {
        self.reader.about()
    }

    /// What could not be read; complete after the last interval.
    pub fn losses(&self) -> &Losses {
        self.reader.losses()
    }

    /// What a report of what was read so far may take.
    pub fn limits(&self) -> Limits {
        self.reader.limits()
    }

    /// The error for a report that takes more.
    pub fn too_large(&self, error: TooLarge) -> RecordingError {
        self.reader.too_large(error)
    }

    /// Known after the last interval.
    pub fn ended_cleanly(&self) -> bool {
        self.reader.ended_cleanly()
    }
}

impl From<RecordingReader> for Recording {
    fn from(reader: RecordingReader) -> Self {
        Self { reader, kept: VecDeque::new() }
    }
}
