//! An interval in little memory, for who keeps many and writes few.

use super::chunk::{self, ChunkKind, HEADER_BYTES, Header};
use super::costs;
use super::schema;
use super::writer::without_samples;
use crate::interval::Interval;

/// An interval as a recording holds it, a fraction of its size in memory.
///
/// It has the kernel's addresses: what it becomes again can be written by a [`RecordingWriter`](super::RecordingWriter), which hides them.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedInterval {
    chunk: Box<[u8]>,
    start_unix_ns: u64,
    duration_ns: u64,
}

impl PackedInterval {
    /// Of an interval that holds more than a recording can, only the losses are kept, and that it was too large.
    pub fn of(interval: &Interval) -> Self {
        let pack =
            |interval: &Interval| chunk::encode_fast(ChunkKind::Interval, &schema::encode_interval(interval)?).ok();
        let chunk = pack(interval).or_else(|| pack(&without_samples(interval))).unwrap_or_default();
        let (start_unix_ns, duration_ns) = (interval.start_unix_ns, interval.duration_ns);
        Self { chunk: chunk.into(), start_unix_ns, duration_ns }
    }

    /// The interval again.
    pub fn unpack(&self) -> Option<Interval> {
        let message = Header::parse(&self.chunk)?.inflate(self.chunk.get(HEADER_BYTES..)?)?;
        schema::decode_interval(&message, &costs::weigh(&message)?)
    }

    /// When the interval began, nanoseconds since the Unix epoch.
    pub const fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns
    }

    /// How long the interval lasted.
    pub const fn duration_ns(&self) -> u64 {
        self.duration_ns
    }

    /// What it takes in memory.
    pub const fn memory_bytes(&self) -> usize {
        self.chunk.len() + size_of::<Self>()
    }
}
