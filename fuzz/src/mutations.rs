//! Mutations of bytes, the same for the same seed: what a test replays where no fuzzer runs.

use lockmeter_statistics::Random;

/// Bytes that are often at an edge of something.
const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

/// The bytes with a few changes: some replaced, removed, repeated, or everything behind a place cut off.
pub fn mutated(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len().max(1));
        let length = 1 + random.below(16);
        let until = (at + length).min(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..until)),
            2 => {
                let part = bytes[at..until].to_vec();
                bytes.splice(at..at, part);
            }
            3 => bytes[at..until].fill(EDGES[random.below(EDGES.len())]),
            4 => bytes[at..until].iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            _ => bytes[at..until].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        }
    }
    bytes
}
