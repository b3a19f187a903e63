//! The bytes around the messages: the file's head, the chunks' headers, compression and checksums.

use std::io::{Read, Write};

use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

/// First bytes of every recording. The byte beyond ASCII and the line end betray files mangled as text.
pub(super) const MAGIC: [u8; 8] = *b"\x89LKMTR\r\n";
/// Raised when an older reader would misread the file.
pub(super) const FORMAT_VERSION: u32 = 1;
/// Magic, version, checksum of both. The same in every version.
pub(super) const HEAD_BYTES: usize = 16;

/// First bytes of every chunk, for which a reader searches beyond a damaged one. 0xF5 occurs in no UTF-8 text.
pub(super) const MARKER: [u8; 4] = *b"\xF5LMC";
/// Marker, kind, reserved, sequence number, payload length, payload length once inflated, checksum of the payload,
/// checksum of the header.
pub(super) const HEADER_BYTES: usize = 28;

/// No chunk's payload is longer; a reader allocates no more for one. Measured intervals take tens of kilobytes.
pub(super) const MAX_PAYLOAD_BYTES: u32 = 16 << 20;
/// No payload inflates to more, whatever it claims.
pub(super) const MAX_INFLATED_BYTES: u32 = 32 << 20;
/// No message holds more table entries and samples: an empty entry takes two bytes in the file but a hundred in memory.
pub(super) const MAX_ENTRIES: usize = 512 << 10;

/// What a chunk holds. Readers skip kinds that they do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkKind {
    About,
    Interval,
    End,
    Other(u8),
}

impl ChunkKind {
    const fn code(self) -> u8 {
        match self {
            Self::About => 1,
            Self::Interval => 2,
            Self::End => 3,
            Self::Other(code) => code,
        }
    }

    const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::About,
            2 => Self::Interval,
            3 => Self::End,
            other => Self::Other(other),
        }
    }
}

/// A chunk's header, its own checksum already verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: ChunkKind,
    /// Counts the chunks from 0, so that a reader knows how many are missing.
    pub(super) sequence: u32,
    pub(super) payload_bytes: u32,
    pub(super) inflated_bytes: u32,
    pub(super) payload_crc: u32,
}

/// A message too large for one chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge {
    pub(super) inflated_bytes: usize,
}

fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// The first bytes of a file of this version.
pub(super) fn head() -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let crc = crc_of(&head[..12]);
    head[12..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The version in a file's head; `None` if the head is damaged.
pub(super) fn version_in(head: &[u8; HEAD_BYTES]) -> Option<u32> {
    (crc_of(&head[..12]) == u32_at(head, 12)).then(|| u32_at(head, 8))
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MARKER);
        bytes[4] = self.kind.code();
        bytes[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.inflated_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc_of(&bytes[..24]);
        bytes[24..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header in the first [`HEADER_BYTES`] of `bytes`; `None` if it is not one, is damaged, or claims too much.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        if bytes[..4] != MARKER || crc_of(&bytes[..24]) != u32_at(bytes, 24) {
            return None;
        }
        let header = Self {
            kind: ChunkKind::from_code(bytes[4]),
            sequence: u32_at(bytes, 8),
            payload_bytes: u32_at(bytes, 12),
            inflated_bytes: u32_at(bytes, 16),
            payload_crc: u32_at(bytes, 20),
        };
        (header.payload_bytes <= MAX_PAYLOAD_BYTES && header.inflated_bytes <= MAX_INFLATED_BYTES).then_some(header)
    }

    /// Whether the payload is the one that was written.
    pub(super) fn matches(&self, payload: &[u8]) -> bool {
        crc_of(payload) == self.payload_crc
    }

    /// The message in the payload; `None` if it does not inflate to the length promised.
    pub(super) fn inflate(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let promised = u64::from(self.inflated_bytes);
        let mut message = Vec::new();
        ZlibDecoder::new(payload).take(promised + 1).read_to_end(&mut message).ok()?;
        (message.len() as u64 == promised).then_some(message)
    }
}

/// A whole chunk, ready to be written in one call.
pub(super) fn encode(kind: ChunkKind, sequence: u32, message: &[u8]) -> Result<Vec<u8>, TooLarge> {
    encode_at(Compression::default(), kind, sequence, message)
}

/// The same with less work and somewhat longer, for what is most probably thrown away.
pub(super) fn encode_fast(kind: ChunkKind, message: &[u8]) -> Result<Vec<u8>, TooLarge> {
    encode_at(Compression::fast(), kind, 0, message)
}

fn encode_at(level: Compression, kind: ChunkKind, sequence: u32, message: &[u8]) -> Result<Vec<u8>, TooLarge> {
    let too_large = || TooLarge { inflated_bytes: message.len() };
    let within = |length: usize, limit: u32| u32::try_from(length).ok().filter(|length| *length <= limit);
    let inflated_bytes = within(message.len(), MAX_INFLATED_BYTES).ok_or_else(too_large)?;
    let mut bytes = vec![0; HEADER_BYTES];
    let mut encoder = ZlibEncoder::new(&mut bytes, level);
    encoder.write_all(message).and_then(|()| encoder.try_finish()).map_err(|_| too_large())?;
    drop(encoder);
    let payload = &bytes[HEADER_BYTES..];
    let header = Header {
        kind,
        sequence,
        payload_bytes: within(payload.len(), MAX_PAYLOAD_BYTES).ok_or_else(too_large)?,
        inflated_bytes,
        payload_crc: crc_of(payload),
    };
    bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_reads_back_as_it_was_written() {
        let chunk = encode(ChunkKind::Interval, 7, b"message").unwrap();
        let header = Header::parse(&chunk).unwrap();
        let payload = &chunk[HEADER_BYTES..];
        assert_eq!((header.kind, header.sequence), (ChunkKind::Interval, 7));
        assert!(header.matches(payload));
        assert_eq!(header.inflate(payload).as_deref(), Some(&b"message"[..]));
    }

    #[test]
    fn a_payload_that_inflates_beyond_its_promise_is_refused() {
        let chunk = encode(ChunkKind::Interval, 0, &vec![0; 1 << 20]).unwrap();
        let header = Header { inflated_bytes: 1000, ..Header::parse(&chunk).unwrap() };
        assert_eq!(header.inflate(&chunk[HEADER_BYTES..]), None);
    }

    #[test]
    fn a_message_beyond_the_limit_is_refused_when_written() {
        let message = vec![0; MAX_INFLATED_BYTES as usize + 1];
        assert_eq!(encode(ChunkKind::Interval, 0, &message), Err(TooLarge { inflated_bytes: message.len() }));
    }
}
