//! Recordings byte by byte, as no recorder writes them: for what must be refused, or read within bounds.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use lockmeter_profile::recording::FORMAT_VERSION;

/// Kinds of chunks (`docs/reference/file-format.md`).
pub const ABOUT: u8 = 1;
/// A chunk of one interval.
pub const INTERVAL: u8 = 2;
/// The last chunk.
pub const END: u8 = 3;

/// The kind of a recording of what ran, and what happened in it.
const OF_LATENCY: u64 = 2;
const RUN: u64 = 3;

/// Field numbers of the message `Interval`.
pub mod field {
    #![allow(missing_docs, reason = "named as in recording.proto")]
    pub const DURATION_NS: u8 = 2;
    pub const LOCKS: u8 = 3;
    pub const TASKS: u8 = 4;
    pub const FRAMES: u8 = 6;
    pub const STACKS: u8 = 7;
    pub const TOTALS: u8 = 8;
    pub const SAMPLED: u8 = 9;
    pub const LONG_RUNS: u8 = 12;
}

/// A file in the making.
#[derive(Debug, Clone)]
pub struct RecordingBytes {
    bytes: Vec<u8>,
    chunks: u32,
}

impl Default for RecordingBytes {
    fn default() -> Self {
        Self::on_cpus(2)
    }
}

impl RecordingBytes {
    /// A head, and the description of a recording on this many CPUs.
    pub fn on_cpus(cpus: u64) -> Self {
        Self::described(&Message::default().number(4, cpus).text(2, "6.1.0"))
    }

    /// A head, and the description of a recording of this kind.
    pub fn of_kind(kind: u64) -> Self {
        Self::described(&Message::default().number(4, 2).text(2, "6.1.0").number(10, kind))
    }

    fn described(about: &Message) -> Self {
        let mut head = b"\x89LKMTR\r\n".to_vec();
        head.extend(FORMAT_VERSION.to_le_bytes());
        head.extend(crc(&head).to_le_bytes());
        let mut recording = Self { bytes: head, chunks: 0 };
        recording.chunk(ABOUT, &about.0);
        recording
    }

    /// Adds a chunk with good checksums around any message.
    pub fn chunk(&mut self, kind: u8, message: &[u8]) -> &mut Self {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        let payload = encoder.write_all(message).and_then(|()| encoder.finish()).unwrap_or_default();
        self.compressed(kind, &payload, message.len())
    }

    /// Adds a chunk with a payload that is compressed already.
    pub fn compressed(&mut self, kind: u8, payload: &[u8], inflated_bytes: usize) -> &mut Self {
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        let mut header = b"\xF5LMC".to_vec();
        header.extend([kind, 0, 0, 0]);
        header.extend(self.chunks.to_le_bytes());
        header.extend(word(payload.len()));
        header.extend(word(inflated_bytes));
        header.extend(crc(payload).to_le_bytes());
        header.extend(crc(&header).to_le_bytes());
        self.bytes.extend(header);
        self.bytes.extend(payload);
        self.chunks += 1;
        self
    }

    /// Adds one message as often as fits into this many bytes, compressed once.
    pub fn repeated(&mut self, kind: u8, message: &[u8], file_bytes: usize) -> &mut Self {
        let before = self.bytes.len();
        self.chunk(kind, message);
        let chunk_bytes = self.bytes.len() - before;
        let payload = self.bytes.get(before + HEADER_BYTES..).unwrap_or_default().to_vec();
        while self.bytes.len() + chunk_bytes <= file_bytes {
            self.compressed(kind, &payload, message.len());
        }
        self
    }

    /// The file, ended as a recorder ends it.
    pub fn finish(&mut self) -> Vec<u8> {
        self.chunk(END, &[]);
        std::mem::take(&mut self.bytes)
    }
}

const HEADER_BYTES: usize = 28;

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// A protobuf message, field by field.
#[derive(Debug, Clone, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    /// A number.
    #[must_use]
    pub fn number(mut self, field: u8, value: u64) -> Self {
        push_varint(&mut self.0, u64::from(field) << 3);
        push_varint(&mut self.0, value);
        self
    }

    /// A text.
    #[must_use]
    pub fn text(self, field: u8, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    /// A message, a text or packed numbers.
    #[must_use]
    pub fn bytes(mut self, field: u8, content: &[u8]) -> Self {
        push_varint(&mut self.0, u64::from(field) << 3 | 2);
        push_varint(&mut self.0, content.len() as u64);
        self.0.extend(content);
        self
    }

    /// A message in this one.
    #[must_use]
    pub fn message(self, field: u8, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }
}

/// Adds a number as protobuf writes it.
pub fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The key of a wait (1), hold (2) or run (3) of a mutex.
pub fn key(happened: u64, lock: u64, task: Option<u64>, bucket: u64) -> Message {
    let kind = if happened == 3 { 37 } else { 3 };
    let key = Message::default().number(1, happened).number(2, lock).number(3, kind).number(4, 1);
    let key = match task {
        Some(task) => key.number(5, task),
        None => key,
    };
    key.number(7, bucket)
}

/// Count, total, longest and spinning time.
pub fn value(count: u64, total_ns: u64) -> Message {
    Message::default().number(1, count).number(2, total_ns).number(3, total_ns).number(4, 0)
}

/// A total of one key.
pub fn total(key: &Message, value: &Message) -> Message {
    Message::default().message(1, key).message(2, value)
}

/// A lock that has a symbol's name.
pub fn lock(name: &str) -> Message {
    Message::default().text(1, name).number(3, 1)
}

/// The most that an interval may hold in its tables and samples.
const MOST_ENTRIES: u64 = 524_288;

/// One lock on this many CPUs, held once for so long in an interval of this length.
pub fn one_hold(cpus: u64, duration_ns: u64, held_ns: u64) -> Vec<u8> {
    let interval = Message::default()
        .number(field::DURATION_NS, duration_ns)
        .message(field::LOCKS, &lock("hot"))
        .message(field::TOTALS, &total(&key(2, 0, None, 10), &value(100, held_ns)));
    RecordingBytes::on_cpus(cpus).chunk(INTERVAL, &interval.0).finish()
}

/// A lock that this many threads held or waited for all the time, on two CPUs, and others that they held now and then.
pub fn crowd(threads: u64) -> Vec<u8> {
    let second_ns = 1_000_000_000;
    let mut interval = Message::default()
        .number(field::DURATION_NS, second_ns)
        .message(field::LOCKS, &lock("hot"))
        .message(field::TOTALS, &total(&key(2, 0, None, 10), &value(100_000, second_ns / 2)))
        .message(field::TOTALS, &total(&key(1, 0, None, 20), &value(90_000, (threads - 1) * second_ns)));
    for other in 1..20 {
        interval = interval.message(field::LOCKS, &lock(&format!("other{other}")));
        interval =
            interval.message(field::TOTALS, &total(&key(2, other, None, 10), &value(1_000 * other, second_ns / 100)));
    }
    RecordingBytes::default().chunk(INTERVAL, &interval.0).finish()
}

/// Rows that differ by their task, `each` to an interval.
pub fn distinct_tasks(rows: u64, happened: u64) -> Vec<u8> {
    let each = MOST_ENTRIES / 2 - 1_000;
    let mut recording = RecordingBytes::default();
    for first in (0..rows).step_by(each as usize) {
        let mut interval =
            Message::default().number(field::DURATION_NS, 1_000_000_000).message(field::LOCKS, &lock("hot"));
        for nth in first..rows.min(first + each) {
            let task = Message::default().number(1, nth).text(2, "a");
            interval = interval.message(field::TASKS, &task);
            let total = total(&key(happened, 0, Some(nth - first), 10), &value(1, 1_500));
            interval = interval.message(field::TOTALS, &total);
        }
        recording.chunk(INTERVAL, &interval.0);
    }
    recording.finish()
}

/// Rows that differ by their lock.
pub fn distinct_locks(rows: u64, happened: u64) -> Vec<u8> {
    let each = MOST_ENTRIES / 2 - 1_000;
    let mut recording = if happened == RUN { RecordingBytes::of_kind(OF_LATENCY) } else { RecordingBytes::default() };
    for first in (0..rows).step_by(each as usize) {
        let mut interval = Message::default().number(field::DURATION_NS, 1_000_000_000);
        for nth in first..rows.min(first + each) {
            interval = interval.message(field::LOCKS, &lock(&format!("l{nth:x}")));
            let total = total(&key(happened, nth - first, None, 10), &value(1, 1_500));
            interval = interval.message(field::TOTALS, &total);
        }
        recording.chunk(INTERVAL, &interval.0);
    }
    recording.finish()
}

/// This many different stacks of this many frames, each with one wait, of `functions` different functions.
pub fn distinct_stacks(stacks: u64, frames: u64, functions: u64) -> Vec<u8> {
    let mut interval = Message::default().number(field::DURATION_NS, 1_000_000_000).message(field::LOCKS, &lock("hot"));
    for nth in 0..functions {
        let name = format!("some_function_of_a_program_{nth}");
        interval = interval.message(field::FRAMES, &Message::default().text(2, &name).number(3, nth));
    }
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    interval = interval.message(field::TOTALS, &total(&key(1, 0, None, 10), &value(stacks, stacks * 1_500)));
    for nth in 0..stacks {
        let mut packed = Vec::new();
        (0..frames).for_each(|_| push_varint(&mut packed, next() % functions));
        interval = interval.message(field::STACKS, &Message::default().bytes(1, &packed));
        let blocker = Message::default().number(1, 1).number(2, nth);
        let sampled = Message::default().message(1, &key(1, 0, None, 10)).number(3, nth);
        let sampled = sampled.message(4, &blocker).number(5, 1).message(6, &value(1, 1_500));
        interval = interval.message(field::SAMPLED, &sampled);
    }
    RecordingBytes::default().chunk(INTERVAL, &interval.0).finish()
}

/// One stack of many samples, each in another bucket or of another lock instance: rows with long histograms.
pub fn wide_histograms(instances: u64) -> Vec<u8> {
    let mut interval = Message::default().number(field::DURATION_NS, 1_000_000_000).message(field::LOCKS, &lock("hot"));
    for bucket in 0..64 {
        let count = instances * 2;
        let total_ns = count.saturating_mul(1 << bucket);
        interval = interval.message(field::TOTALS, &total(&key(1, 0, None, bucket), &value(count, total_ns)));
    }
    let blocker = Message::default().number(1, 3);
    for nth in 0..instances {
        let mut sampled = Message::default().message(1, &key(1, 0, None, 10));
        sampled.0.push(2 << 3 | 1);
        sampled.0.extend(nth.to_le_bytes());
        let sampled = sampled.message(4, &blocker).number(5, 1).message(6, &value(1, 1_500));
        interval = interval.message(field::SAMPLED, &sampled);
    }
    RecordingBytes::default().chunk(INTERVAL, &interval.0).finish()
}

/// Intervals of nothing but empty locks, as many as fit into this many bytes.
pub fn empty_locks(file_bytes: usize) -> Vec<u8> {
    let message = [field::LOCKS << 3 | 2, 0].repeat(MOST_ENTRIES as usize);
    RecordingBytes::default().repeated(INTERVAL, &message, file_bytes).finish()
}

/// Intervals without anything in them, as many as fit into this many bytes.
pub fn empty_intervals(file_bytes: usize) -> Vec<u8> {
    RecordingBytes::default().repeated(INTERVAL, &[], file_bytes).finish()
}

/// Chunks that inflate to as much as a chunk may, to one name.
pub fn inflating(file_bytes: usize) -> Vec<u8> {
    let message = Message::default().message(field::LOCKS, &lock(&"a".repeat(31 << 20)));
    RecordingBytes::default().repeated(INTERVAL, &message.0, file_bytes).finish()
}

/// Totals that all refer to one lock with a long name.
pub fn long_name(name_bytes: usize, rows: u64, happened: u64) -> Vec<u8> {
    let mut interval = Message::default()
        .number(field::DURATION_NS, 1_000_000_000)
        .message(field::LOCKS, &lock(&"n".repeat(name_bytes)));
    for nth in 0..rows {
        interval = interval.message(field::TASKS, &Message::default().number(1, nth).text(2, "a"));
        interval = interval.message(field::TOTALS, &total(&key(happened, 0, Some(nth), 10), &value(1, 1_500)));
    }
    RecordingBytes::default().chunk(INTERVAL, &interval.0).finish()
}

/// Stacks of one frame over and over, in as many chunks as fit into this many bytes.
pub fn deep_stacks(frames: usize, stacks: usize, file_bytes: usize) -> Vec<u8> {
    let mut interval = Message::default()
        .number(field::DURATION_NS, 1_000_000_000)
        .message(field::LOCKS, &lock("hot"))
        .message(field::FRAMES, &Message::default().text(2, "down_read"));
    for nth in 0..stacks {
        interval = interval.message(field::STACKS, &Message::default().bytes(1, &vec![0; frames]));
        let sampled = Message::default().message(1, &key(1, 0, None, 10)).number(3, nth as u64);
        interval = interval.message(field::SAMPLED, &sampled.message(4, &Message::default().number(1, 3)).number(5, 1));
    }
    RecordingBytes::default().repeated(INTERVAL, &interval.0, file_bytes).finish()
}

/// Long runs, each with waits.
pub fn long_runs(runs: u64, waits: u64) -> Vec<u8> {
    let total = total(&key(3, 0, None, 10), &value(runs, runs * 1_500));
    let mut interval = Message::default()
        .number(field::DURATION_NS, 1_000_000_000)
        .message(field::LOCKS, &lock("work"))
        .message(field::TOTALS, &total);
    let wait = Message::default().number(1, 0).number(2, 3).number(3, 1).number(4, 1).number(5, 10);
    for nth in 0..runs {
        let mut run = Message::default().number(1, nth).number(3, 0).number(4, 37).number(5, 1_000_000);
        for _ in 0..waits {
            run = run.message(9, &wait);
        }
        interval = interval.message(field::LONG_RUNS, &run);
    }
    RecordingBytes::of_kind(OF_LATENCY).chunk(INTERVAL, &interval.0).finish()
}
