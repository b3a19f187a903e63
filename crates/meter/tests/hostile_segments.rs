//! Segments are written by programs that may be broken or hostile: whatever is in them, the collector goes on.

use std::fs::{self, File};
use std::mem::{offset_of, size_of};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use lockmeter_meter::layout::{
    Comm, Header, LockEntry, MAGIC, Meta, Module, SEGMENT_BYTES, SITE_IS_STACK, STACKS, Segment, Slot, Stack, Thread,
    VERSION,
};
use lockmeter_meter::reader::UserSource;
use lockmeter_profile::recording::{RecordingReader, RecordingWriter};
use lockmeter_profile::{About, Interval, Loss, Source};
use proptest::prelude::*;

/// A number that a program might leave where another one is expected.
fn number() -> impl Strategy<Value = u64> {
    let meta = (0..5_u8, 0..12_u8, 0..5_u8, 0..70_u8, 0..4_u8, any::<u16>());
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(SITE_IS_STACK),
        Just(SITE_IS_STACK | (STACKS as u64 - 1)),
        0..4096_u64,
        any::<u64>(),
        meta.prop_map(|(happened, kind, mode, bucket, blocked, comm)| {
            Meta { happened, kind, mode, bucket, blocked, comm }.pack()
        }),
    ]
}

/// Somewhere in the first tables of each sort.
fn place() -> impl Strategy<Value = usize> {
    let words = |start: usize, bytes: usize| (0..bytes / 8).prop_map(move |word| start + word * 8);
    prop_oneof![
        words(16, 240),
        words(offset_of!(Segment, modules), 4 * size_of::<Module>()),
        words(offset_of!(Segment, comms), 4 * size_of::<Comm>()),
        words(offset_of!(Segment, locks), 16 * size_of::<LockEntry>()),
        words(offset_of!(Segment, stacks), 4 * size_of::<Stack>()),
        words(offset_of!(Segment, threads), 2 * size_of::<Thread>()),
        words(offset_of!(Segment, threads) + offset_of!(Thread, slots), 8 * size_of::<Slot>()),
    ]
}

/// A segment of this process with a valid head.
fn segment(folder: &Path) -> File {
    let path = folder.join(format!("segment-{}-1", std::process::id()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.set_len(SEGMENT_BYTES as u64).unwrap();
    file.write_all_at(&MAGIC.to_ne_bytes(), 0).unwrap();
    for (at, number) in
        [(offset_of!(Header, version), VERSION), (offset_of!(Header, threads), 2), (offset_of!(Header, modules), 4)]
    {
        file.write_all_at(&number.to_ne_bytes(), at as u64).unwrap();
    }
    file
}

/// A folder as the recorder makes it.
fn private_folder() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap()
}

fn source(folder: &Path) -> UserSource {
    UserSource::open(folder).unwrap()
}

/// An interval that was made of nonsense must still be one that can be written and read again.
fn assert_is_an_interval(folder: &Path, interval: &Interval) {
    let path = folder.join("out.lockmeter");
    let mut writer = RecordingWriter::create(&path, &About::default()).unwrap();
    writer.append(interval).unwrap();
    writer.finish().unwrap();
    let mut reader = RecordingReader::open(&path).unwrap();
    let read = reader.next_interval().unwrap().unwrap();
    assert_eq!(read.totals.len(), interval.totals.len());
    fs::remove_file(path).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_segment_stops_the_collector(
        writes in prop::collection::vec((place(), number()), 0..400),
        later in prop::collection::vec((place(), number()), 0..50),
        cut in prop::option::of(0..SEGMENT_BYTES as u64),
    ) {
        let folder = private_folder();
        let file = segment(folder.path());
        let mut source = source(folder.path());
        for (at, number) in &writes {
            file.write_all_at(&number.to_ne_bytes(), *at as u64).unwrap();
        }
        let Ok(interval) = source.drain();
        assert_is_an_interval(folder.path(), &interval);
        for (at, number) in &later {
            file.write_all_at(&number.to_ne_bytes(), *at as u64).unwrap();
        }
        if let Some(cut) = cut {
            file.set_len(cut).unwrap();
        }
        let Ok(interval) = source.drain();
        assert_is_an_interval(folder.path(), &interval);
    }
}

#[test]
fn a_module_that_is_a_pipe_is_not_waited_for() {
    let folder = private_folder();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let file = segment(folder.path());
    let module = offset_of!(Segment, modules);
    let thread = offset_of!(Segment, threads);
    let slot = thread + offset_of!(Thread, slots);
    let meta = Meta { happened: 1, kind: 3, mode: 1, bucket: 3, blocked: 0, comm: 0 };
    for (at, number) in [
        (module + offset_of!(Module, start), 1),
        (module + offset_of!(Module, end), u64::MAX),
        (offset_of!(Segment, locks) + offset_of!(LockEntry, address), 0x1000),
        (slot + offset_of!(Slot, meta), meta.pack()),
        (slot + offset_of!(Slot, lock), 1),
        (slot + offset_of!(Slot, site), 0x2000),
        (slot + offset_of!(Slot, count), 1),
        (slot + offset_of!(Slot, total_ns), 9),
        (thread + offset_of!(Thread, changes), 1),
    ] {
        file.write_all_at(&u64::to_ne_bytes(number), at as u64).unwrap();
    }
    let path = pipe.to_str().unwrap().as_bytes();
    file.write_all_at(path, (module + offset_of!(Module, path)) as u64).unwrap();
    let Ok(interval) = source(folder.path()).drain();
    assert_eq!(interval.totals.len(), 1);
}

#[test]
fn what_is_no_file_is_not_opened_and_no_link_is_followed() {
    let folder = private_folder();
    let victim = folder.path().join("victim");
    fs::write(&victim, MAGIC.to_ne_bytes()).unwrap();
    let name = |number: u32| folder.path().join(format!("segment-{}-{number}", std::process::id()));
    std::os::unix::fs::symlink(&victim, name(1)).unwrap();
    fs::create_dir(name(2)).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(name(3)).status().unwrap().success());
    let mut source = source(folder.path());
    let Ok(interval) = source.drain();
    assert_eq!(interval.losses.get(Loss::UserSegmentDamaged), 3, "passed over without a word");
    let Ok(interval) = source.drain();
    assert!(interval.losses.is_empty(), "counted twice");
    assert_eq!(fs::read(&victim).unwrap(), MAGIC.to_ne_bytes(), "the collector wrote to where a link led");
}

#[test]
fn counts_beyond_the_tables_are_bounded() {
    let folder = private_folder();
    let file = segment(folder.path());
    for at in [offset_of!(Header, threads), offset_of!(Header, modules), offset_of!(Header, comms)] {
        file.write_all_at(&u32::MAX.to_ne_bytes(), at as u64).unwrap();
    }
    let Ok(interval) = source(folder.path()).drain();
    assert!(interval.totals.is_empty());
    assert_eq!(interval.losses.get(Loss::UserSegmentDamaged), 0);
}

/// Makes sure that a program cannot make the report say what no program can have done.
#[test]
fn a_segment_that_was_scribbled_over_is_refused_whole_and_counted() {
    let folder = private_folder();
    let file = segment(folder.path());
    let thread = offset_of!(Segment, threads);
    let slot = thread + offset_of!(Thread, slots);
    let meta = Meta { happened: 2, kind: 3, mode: 1, bucket: 3, blocked: 0, comm: 0 };
    let write = |count: u64| {
        for (at, number) in [
            (slot + offset_of!(Slot, meta), meta.pack()),
            (slot + offset_of!(Slot, count), count),
            (slot + offset_of!(Slot, total_ns), count.saturating_mul(9)),
            (thread + offset_of!(Thread, changes), count),
        ] {
            file.write_all_at(&number.to_ne_bytes(), at as u64).unwrap();
        }
    };
    let mut source = source(folder.path());
    write(100);
    let Ok(interval) = source.drain();
    assert_eq!(interval.totals.iter().map(|total| total.value.count).sum::<u64>(), 100);
    write(5_900_000_000_000_000_000);
    let Ok(interval) = source.drain();
    assert!(interval.totals.is_empty(), "{:?}", interval.totals);
    assert_eq!(interval.losses.get(Loss::UserSegmentImplausible), 1);
    write(200);
    let Ok(interval) = source.drain();
    assert!(interval.totals.is_empty() && interval.losses.is_empty(), "believed again");
}

#[test]
fn losses_that_nobody_can_have_had_time_for_are_not_believed() {
    let folder = private_folder();
    let file = segment(folder.path());
    file.write_all_at(&u64::MAX.to_ne_bytes(), offset_of!(Header, losses) as u64).unwrap();
    let Ok(interval) = source(folder.path()).drain();
    assert_eq!(interval.losses.iter().collect::<Vec<_>>(), [(Loss::UserSegmentImplausible, 1)]);
}

#[test]
fn a_segment_with_another_name_outside_is_not_written_to() {
    let folder = private_folder();
    let file = segment(folder.path());
    let name = format!("segment-{}-1", std::process::id());
    let outside = private_folder();
    fs::hard_link(folder.path().join(name), outside.path().join("file")).unwrap();
    let before = fs::read(outside.path().join("file")).unwrap();
    let Ok(interval) = source(folder.path()).drain();
    assert!(interval.totals.is_empty());
    assert_eq!(fs::read(outside.path().join("file")).unwrap(), before);
    drop(file);
}
