//! Any numbers in a segment, which a metered program can write as it likes: read by the recorder, twice, and written as intervals.

use std::fs::{self, Permissions};
use std::mem::{offset_of, size_of};
use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;

use lockmeter_meter::layout::{Comm, LockEntry, MEMORY_FILE, Meta, Module, PAGE, Slot, Stack, Thread};
use lockmeter_meter::reader::UserSource;
use lockmeter_meter::reader::planted::{Page, Planted};
use lockmeter_profile::About;
use lockmeter_profile::recording::RecordingWriter;
use tempfile::TempDir;

/// The tables, and how many bytes of each are written to: where in the session's memory a change may be.
const TABLES: [(Page, usize); 9] = [
    (Page::Process, PAGE),
    (Page::Modules, 4 * size_of::<Module>()),
    (Page::Comms, 4 * size_of::<Comm>()),
    (Page::Locks, 16 * size_of::<LockEntry>()),
    (Page::Stacks, 4 * size_of::<Stack>()),
    (Page::Thread, PAGE),
    (Page::Samples, 8 * size_of::<Slot>()),
    (Page::Session, PAGE),
    (Page::Runs, 256),
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
    let _ = fs::remove_file(folder.path().join(MEMORY_FILE));
    let planted = Planted::create(folder.path()).expect("a file in memory");
    let mut source = UserSource::open(folder.path()).expect("a folder of our own");
    for part in [before, after] {
        for change in part {
            apply(&planted, change);
        }
        let interval = source.drain();
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

fn apply(planted: &Planted, change: &[u8]) {
    let [table, low, high, number @ ..] = change else { return };
    let (page, length) = TABLES[usize::from(*table) % TABLES.len()];
    let word = usize::from(u16::from_le_bytes([*low, *high])) % (length / 8);
    planted.write(page, word * 8, number).expect("a file in memory");
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
