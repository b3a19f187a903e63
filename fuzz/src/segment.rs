//! Any numbers in a segment, which a metered program can write as it likes: read by the recorder, twice, and written as intervals.

use std::fs::{File, Permissions};
use std::mem::{offset_of, size_of};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::LazyLock;

use lockmeter_meter::layout::{
    Comm, Header, LockEntry, MAGIC, Meta, Module, SEGMENT_BYTES, Segment, Slot, Stack, Thread, VERSION,
};
use lockmeter_meter::reader::UserSource;
use lockmeter_profile::recording::RecordingWriter;
use lockmeter_profile::{About, Source};
use tempfile::TempDir;

/// The tables, and how many bytes of each are written to: where in the segment a change may be.
const TABLES: [(usize, usize); 7] = [
    (16, size_of::<Header>() - 16),
    (offset_of!(Segment, modules), 4 * size_of::<Module>()),
    (offset_of!(Segment, comms), 4 * size_of::<Comm>()),
    (offset_of!(Segment, locks), 16 * size_of::<LockEntry>()),
    (offset_of!(Segment, stacks), 4 * size_of::<Stack>()),
    (offset_of!(Segment, threads), offset_of!(Thread, held)),
    (offset_of!(Segment, threads) + offset_of!(Thread, slots), 8 * size_of::<Slot>()),
];

/// A table, a word in it, and the number that is written there.
const CHANGE_BYTES: usize = 1 + 2 + 8;

/// More changes teach a fuzzer nothing.
const MOST_CHANGES: usize = 2_000;

/// Bytes as changes to a segment: the first half before the first reading, the others before the second.
pub fn segment(bytes: &[u8]) {
    let changes: Vec<&[u8]> = bytes.chunks_exact(CHANGE_BYTES).take(MOST_CHANGES).collect();
    let (before, after) = changes.split_at(changes.len().div_ceil(2));
    let folder = &*FOLDER;
    let path = folder.path().join(format!("segment-{}-1", std::process::id()));
    let file = ready(&path);
    let mut source = UserSource::open(folder.path()).expect("a folder of our own");
    for part in [before, after] {
        for change in part {
            apply(&file, change);
        }
        let Ok(interval) = source.drain();
        assert!(interval.totals.len() <= interval.sampled.len());
        let mut writer = RecordingWriter::create("/dev/null", &About::default()).expect("a device that takes all");
        writer.append(&interval).expect("an interval of any kind can be written");
    }
}

/// As the recorder makes it.
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let for_us_alone = Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(for_us_alone).tempdir_in("/dev/shm").expect("a place in memory")
});

/// An empty segment with a good head.
fn ready(path: &PathBuf) -> File {
    let options = || File::options().write(true).create(true).truncate(true).open(path);
    let file = options().and_then(|file| file.set_len(SEGMENT_BYTES as u64).map(|()| file));
    let file = file.expect("a file in memory");
    write(&file, 0, &MAGIC.to_ne_bytes());
    write(&file, offset_of!(Header, version), &VERSION.to_ne_bytes());
    write(&file, offset_of!(Header, threads), &2_u32.to_ne_bytes());
    write(&file, offset_of!(Header, modules), &4_u32.to_ne_bytes());
    file
}

fn apply(file: &File, change: &[u8]) {
    let [table, low, high, number @ ..] = change else { return };
    let (start, length) = TABLES[usize::from(*table) % TABLES.len()];
    let word = usize::from(u16::from_le_bytes([*low, *high])) % (length / 8);
    write(file, start + word * 8, number);
}

fn write(file: &File, at: usize, bytes: &[u8]) {
    file.write_all_at(bytes, at as u64).expect("a file in memory");
}

/// The changes that make a believable segment: a lock, a thread that waited for it, a module.
pub fn seeds() -> Vec<Vec<u8>> {
    let change = |(table, at, number): (u8, usize, u64)| {
        let word = (at / 8) as u16;
        [&[table][..], &word.to_le_bytes(), &number.to_ne_bytes()].concat()
    };
    let wait = Meta { happened: 1, kind: 3, mode: 1, bucket: 10, blocked: 1, comm: 1 }.pack();
    let changes = [
        (1, offset_of!(Module, start), 0x1000),
        (1, offset_of!(Module, end), 0x9000),
        (1, offset_of!(Module, path), u64::from_ne_bytes(*b"/bin/sh\0")),
        (2, 0, u64::from_ne_bytes(*b"worker\0\0")),
        (3, offset_of!(LockEntry, address), 0x2000),
        (3, offset_of!(LockEntry, made_at), 0x3000),
        (4, offset_of!(Stack, depth), 2),
        (4, offset_of!(Stack, frames), 0x4000),
        (5, offset_of!(Thread, changes), 1),
        (6, size_of::<Slot>() + offset_of!(Slot, meta), wait),
        (6, size_of::<Slot>() + offset_of!(Slot, lock), 1 | 1 << 32),
        (6, size_of::<Slot>() + offset_of!(Slot, site), 0x3000),
        (6, size_of::<Slot>() + offset_of!(Slot, count), 3),
        (6, size_of::<Slot>() + offset_of!(Slot, total_ns), 4_000),
        (6, size_of::<Slot>() + offset_of!(Slot, max_ns), 2_000),
    ];
    let whole: Vec<u8> = changes.map(change).concat();
    vec![whole.repeat(2), whole]
}
