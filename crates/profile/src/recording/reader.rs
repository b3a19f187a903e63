//! Reads a recording, whatever happened to it.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::chunk::{
    self, ChunkKind, FORMAT_VERSION, HEAD_BYTES, HEADER_BYTES, Header, MAGIC, MARKER, MAX_PAYLOAD_BYTES,
};
use super::costs::{self, Costs, Excess};
use super::error::{RecordingError, RecordingErrorKind, shown};
use super::schema;
use crate::interval::Interval;
use crate::limits::{Limits, TooLarge};
use crate::loss::{Loss, Losses};
use crate::report::About;
use crate::rules::Rules;

/// How much is read, and searched for a chunk, at once.
const READ_BYTES: usize = 64 << 10;

/// Reads a recording interval by interval, in bounded memory: one chunk and one interval at a time.
///
/// Also an iterator over its intervals; after an error it ends.
pub struct RecordingReader {
    chunks: Chunks,
    name: String,
    about: About,
    losses: Losses,
    state: State,
    /// How long the file is, if it is one.
    length_bytes: Option<u64>,
    /// Rules by which it is read again.
    rules: Option<&'static Rules>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    EndedCleanly,
    EndedOtherwise,
}

impl RecordingReader {
    /// Opens a recording and reads its description.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let name = shown(path.as_ref());
        match File::open(&path) {
            Ok(file) => Self::from_file(file, &name),
            Err(error) => Err(RecordingError::io("cannot read", &name, error)),
        }
    }

    /// Reads a recording from where a file stands; `name` stands for it in error messages.
    pub fn from_file(file: File, name: &str) -> Result<Self, RecordingError> {
        let length_bytes = file.metadata().ok().filter(Metadata::is_file).map(|data| data.len());
        Ok(Self { length_bytes, ..Self::from_reader(file, name)? })
    }

    /// Reads a recording from anywhere; `name` stands for it in error messages.
    pub fn from_reader(input: impl Read + Send + 'static, name: &str) -> Result<Self, RecordingError> {
        let mut chunks = Chunks::new(Box::new(input));
        let about = read_head(&mut chunks, name)?;
        let (losses, state) = (Losses::default(), State::Reading);
        Ok(Self { chunks, name: name.to_owned(), about, losses, state, length_bytes: None, rules: None })
    }

    /// Has the waits of its intervals be [what these rules say](Rules::read_again).
    pub fn read_again_by(&mut self, rules: &'static Rules) {
        self.rules = Some(rules);
    }

    /// What was recorded, where and how.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The next interval; `None` at the end of what can be read.
    pub fn next_interval(&mut self) -> Result<Option<Interval>, RecordingError> {
        while self.state == State::Reading {
            let next = self.chunks.next().map_err(|error| {
                self.state = State::EndedOtherwise;
                RecordingError::io("cannot read", &self.name, error)
            })?;
            match next {
                Next::Chunk { kind, message, missing } => {
                    self.losses.add(Loss::DamagedInterval, missing);
                    match self.take(kind, message) {
                        Ok(None) => {}
                        Ok(Some(mut interval)) => {
                            if let Some(rules) = self.rules {
                                rules.read_again(&mut interval);
                            }
                            return Ok(Some(interval));
                        }
                        Err(excess) => return Err(self.refuse(&excess)),
                    }
                }
                Next::TooCostly(excess) => return Err(self.refuse(&excess)),
                Next::End { damaged, cut_bytes } => {
                    self.losses.add(Loss::DamagedInterval, damaged.into());
                    self.losses.add(Loss::CutBytes, cut_bytes);
                    self.end(State::EndedOtherwise);
                }
            }
        }
        Ok(None)
    }

    /// What stands for the recording in error messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long the recording is, as far as that is known.
    pub fn length_bytes(&self) -> Option<u64> {
        self.length_bytes
    }

    /// How much of it was read so far.
    pub fn read_bytes(&self) -> u64 {
        self.chunks.costs.read_bytes
    }

    /// What a report of what was read so far may take.
    pub fn limits(&self) -> Limits {
        Limits::of_recording(self.chunks.costs.read_bytes)
    }

    /// The error for a report that takes more than its [limits](Self::limits).
    pub fn too_large(&self, error: TooLarge) -> RecordingError {
        let sentence =
            format!("{} is too large to show: {error}; show a part of it with --window or --lock", self.name);
        RecordingError::new(RecordingErrorKind::TooCostly, sentence)
    }

    /// How many entries of tables, samples and stacks were decoded so far: the work of reading, whatever the machine.
    pub fn entries_decoded(&self) -> u64 {
        self.chunks.costs.entries
    }

    /// Nothing more is read: a report is made next, which needs the memory.
    fn end(&mut self, state: State) {
        self.state = state;
        self.chunks.buffer = Vec::new();
        self.chunks.start = 0;
    }

    fn refuse(&mut self, excess: &Excess) -> RecordingError {
        self.end(State::EndedOtherwise);
        RecordingError::new(RecordingErrorKind::TooCostly, excess.sentence(&self.name))
    }

    /// What could not be read so far. Complete once [`next_interval`](Self::next_interval) has returned `None`.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Whether the recorder ended the recording, rather than dying. Known once
    /// [`next_interval`](Self::next_interval) has returned `None`.
    pub fn ended_cleanly(&self) -> bool {
        self.state == State::EndedCleanly
    }

    /// The interval in a chunk. Chunks of kinds unknown to this version are passed over.
    fn take(&mut self, kind: ChunkKind, message: Option<Vec<u8>>) -> Result<Option<Interval>, Excess> {
        match kind {
            ChunkKind::Interval => {
                let costs = &mut self.chunks.costs;
                let weighed = message.and_then(|message| costs::weigh(&message).map(|weight| (message, weight)));
                let entries = weighed.as_ref().map_or(0, |(_, weight)| weight.fields + weight.listed);
                costs.decode(entries as u64)?;
                let interval = weighed.and_then(|(message, weight)| schema::decode_interval(&message, &weight));
                match &interval {
                    Some(interval) => costs.refer(costs::text_bytes(interval))?,
                    None => self.losses.add(Loss::DamagedInterval, 1),
                }
                return Ok(interval);
            }
            ChunkKind::End => {
                let decoded = message.and_then(|message| schema::decode_end(&message));
                self.end(if decoded.is_some() { State::EndedCleanly } else { State::EndedOtherwise });
            }
            ChunkKind::About | ChunkKind::Other(_) => {}
        }
        Ok(None)
    }
}

impl Iterator for RecordingReader {
    type Item = Result<Interval, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_interval().transpose()
    }
}

impl std::fmt::Debug for RecordingReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingReader").field("name", &self.name).field("state", &self.state).finish_non_exhaustive()
    }
}

fn read_head(chunks: &mut Chunks, name: &str) -> Result<About, RecordingError> {
    let error = |kind, sentence: String| Err(RecordingError::new(kind, sentence));
    let unreadable = |error| RecordingError::io("cannot read", name, error);
    chunks.fill(HEAD_BYTES).map_err(unreadable)?;
    let bytes = chunks.available();
    if bytes.is_empty() {
        return error(
            RecordingErrorKind::Empty,
            format!("{name} is empty: nothing was recorded into it; record again"),
        );
    }
    if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) {
        let sentence = format!("{name} is not a lockmeter recording; name a file made by `lockmeter record`");
        return error(RecordingErrorKind::NotARecording, sentence);
    }
    let cut = format!("{name} ends before its head is complete: the recorder died as it started; record again");
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
        return error(RecordingErrorKind::Empty, cut);
    };
    let damaged = |what| format!("{name} cannot be read: {what} is damaged; fetch a good copy or record again");
    match chunk::version_in(head) {
        None => return error(RecordingErrorKind::DamagedHead, damaged("its head (the first 16 bytes)")),
        Some(found) if found > FORMAT_VERSION => {
            let sentence = format!(
                "{name} has format version {found}, this lockmeter reads up to {FORMAT_VERSION}; read it with a newer lockmeter"
            );
            return error(RecordingErrorKind::NewerVersion { found, known: FORMAT_VERSION }, sentence);
        }
        Some(_) => chunks.consume(HEAD_BYTES),
    }
    let about = match chunks.whole_chunk().map_err(unreadable)? {
        Whole::Chunk(header) if header.kind == ChunkKind::About && header.sequence == 0 => {
            let message = chunks.take_chunk(&header).ok().flatten();
            message.and_then(|message| schema::decode_about(&message))
        }
        Whole::Cut | Whole::Nothing => return error(RecordingErrorKind::Empty, cut),
        _ => None,
    };
    match about {
        Some(about) => Ok(about),
        None => error(RecordingErrorKind::DamagedHead, damaged("its description (the first chunk)")),
    }
}

/// What comes next in a file.
enum Next {
    /// A whole chunk with a good checksum. `missing` chunks before it could not be read; `message` is `None` if it does not
    /// inflate.
    Chunk {
        kind: ChunkKind,
        message: Option<Vec<u8>>,
        missing: u64,
    },
    TooCostly(Excess),
    /// The end. `damaged`: an interval before it could not be read; `cut_bytes` of an unfinished chunk follow the last.
    End {
        damaged: bool,
        cut_bytes: u64,
    },
}

/// What stands at the place where a chunk should begin.
enum Whole {
    Chunk(Header),
    /// A chunk begins here, but the file ends first.
    Cut,
    /// A good header with a damaged payload.
    DamagedPayload(Header),
    Damaged,
    Nothing,
}

/// A window onto the input, and the search for chunks in it.
struct Chunks {
    input: BufReader<Box<dyn Read + Send>>,
    buffer: Vec<u8>,
    /// Where in the buffer the unread bytes begin.
    start: usize,
    at_end: bool,
    /// The sequence number that the next chunk should have.
    expected: u32,
    /// How many bytes were consumed, and how many were checksummed: see [`Chunks::may_search_inside`].
    consumed: u64,
    checksummed: u64,
    costs: Costs,
}

impl Chunks {
    fn new(input: Box<dyn Read + Send>) -> Self {
        let input = BufReader::with_capacity(READ_BYTES, input);
        let costs = Costs::default();
        Self { input, buffer: Vec::new(), start: 0, at_end: false, expected: 0, consumed: 0, checksummed: 0, costs }
    }

    fn available(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.consumed += bytes as u64;
        self.costs.read_bytes = self.consumed;
    }

    /// Reads until `wanted` bytes are available or the input ends.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.at_end || self.available().len() >= wanted {
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        // Grows with what comes, not with what a header promises.
        let missing = (wanted - self.buffer.len()) as u64;
        self.input.by_ref().take(missing).read_to_end(&mut self.buffer)?;
        self.at_end = self.buffer.len() < wanted;
        Ok(())
    }

    /// Looks at the chunk that should begin here, and consumes nothing.
    fn whole_chunk(&mut self) -> io::Result<Whole> {
        self.fill(HEADER_BYTES)?;
        let bytes = self.available();
        if bytes.is_empty() {
            return Ok(Whole::Nothing);
        }
        if bytes.len() < HEADER_BYTES {
            let begins = bytes.starts_with(&MARKER[..bytes.len().min(MARKER.len())]);
            return Ok(if begins { Whole::Cut } else { Whole::Damaged });
        }
        let Some(header) = Header::parse(bytes) else {
            return Ok(Whole::Damaged);
        };
        let length = HEADER_BYTES + header.payload_bytes as usize;
        self.fill(length)?;
        let Some(payload) = self.available().get(HEADER_BYTES..length) else {
            return Ok(Whole::Cut);
        };
        let matches = header.matches(payload);
        self.checksummed += u64::from(header.payload_bytes);
        Ok(if matches { Whole::Chunk(header) } else { Whole::DamagedPayload(header) })
    }

    /// Consumes a chunk that [`whole_chunk`](Self::whole_chunk) has found good, and inflates its message if it is of a known
    /// kind.
    fn take_chunk(&mut self, header: &Header) -> Result<Option<Vec<u8>>, Excess> {
        let length = HEADER_BYTES + header.payload_bytes as usize;
        let payload = HEADER_BYTES..length;
        self.expected = header.sequence.saturating_add(1);
        if matches!(header.kind, ChunkKind::Other(_)) {
            self.consume(length);
            return Ok(None);
        }
        self.costs.read_bytes = self.consumed + length as u64;
        self.costs.inflate(header.inflated_bytes.into())?;
        let message = header.inflate(&self.available()[payload]);
        self.consume(length);
        Ok(message)
    }

    fn next(&mut self) -> io::Result<Next> {
        let mut damaged = false;
        let mut cut_at = None;
        loop {
            match self.whole_chunk()? {
                Whole::Chunk(header) => {
                    let missing = u64::from(header.sequence.saturating_sub(self.expected));
                    return Ok(match self.take_chunk(&header) {
                        Ok(message) => Next::Chunk { kind: header.kind, message, missing },
                        Err(excess) => Next::TooCostly(excess),
                    });
                }
                Whole::Nothing => {
                    let cut_bytes = cut_at.map_or(0, |at: u64| self.consumed - at);
                    return Ok(Next::End { damaged, cut_bytes });
                }
                Whole::Cut => {
                    cut_at = cut_at.or(Some(self.consumed));
                    self.consume(1);
                    self.skip_to_marker()?;
                }
                Whole::DamagedPayload(header) => {
                    damaged |= header.kind == ChunkKind::Interval;
                    let length = HEADER_BYTES + header.payload_bytes as usize;
                    if self.chunk_follows(length)? || !self.may_search_inside() {
                        self.consume(length);
                    } else {
                        self.consume(HEADER_BYTES);
                        self.skip_to_marker()?;
                    }
                }
                Whole::Damaged => {
                    // Inside what looks like a cut chunk, damage is nothing new.
                    damaged |= cut_at.is_none();
                    self.consume(1);
                    self.skip_to_marker()?;
                }
            }
        }
    }

    /// Whether the input ends, or another chunk begins, `length` bytes from here.
    fn chunk_follows(&mut self, length: usize) -> io::Result<bool> {
        self.fill(length + MARKER.len())?;
        let after = &self.available()[length..];
        Ok(after.is_empty() || after.starts_with(&MARKER))
    }

    /// A damaged chunk's payload is searched for chunks, in case bytes are missing from it, unless the file seems made to
    /// have the same bytes checksummed over and over.
    fn may_search_inside(&self) -> bool {
        self.checksummed <= 4 * self.consumed + 4 * u64::from(MAX_PAYLOAD_BYTES)
    }

    /// Consumes everything before the next marker, or everything.
    fn skip_to_marker(&mut self) -> io::Result<()> {
        loop {
            self.fill(READ_BYTES)?;
            let bytes = self.available();
            if let Some(at) = bytes.windows(MARKER.len()).position(|window| window == MARKER) {
                self.consume(at);
                return Ok(());
            }
            // The marker may begin in the last bytes.
            let keep = if self.at_end { 0 } else { MARKER.len() - 1 };
            self.consume(bytes.len() - keep);
            if keep == 0 {
                return Ok(());
            }
        }
    }
}
