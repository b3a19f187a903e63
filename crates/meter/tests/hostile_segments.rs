//! Segments are written by programs that may be broken or hostile: whatever is in them, the collector goes on.

use std::fs;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lockmeter_meter::layout::{
    Comm, LockEntry, MAGIC, MEMORY_FILE, Meta, Module, PAGE, Process, SITE_IS_STACK, STACKS, SessionHead, Slot, Stack,
    Thread,
};
use lockmeter_meter::reader::UserSource;
use lockmeter_meter::reader::planted::{Page, Planted};
use lockmeter_profile::recording::{RecordingReader, RecordingWriter};
use lockmeter_profile::{About, Interval, Loss};
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
fn place() -> impl Strategy<Value = (Page, usize)> {
    let words = |page: Page, bytes: usize| (0..bytes / 8).prop_map(move |word| (page, word * 8));
    prop_oneof![
        words(Page::Session, PAGE),
        words(Page::Runs, 256),
        words(Page::Process, PAGE),
        words(Page::Modules, 4 * size_of::<Module>()),
        words(Page::Comms, 4 * size_of::<Comm>()),
        words(Page::Locks, 16 * size_of::<LockEntry>()),
        words(Page::Stacks, 4 * size_of::<Stack>()),
        words(Page::Thread, PAGE),
        words(Page::Samples, 8 * size_of::<Slot>()),
    ]
}

fn write(planted: &Planted, changes: &[((Page, usize), u64)]) {
    for ((page, at), number) in changes {
        planted.write(*page, *at, &number.to_ne_bytes()).unwrap();
    }
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
        cut in prop::option::of(0..64 * PAGE as u64),
    ) {
        let folder = private_folder();
        let planted = Planted::create(folder.path()).unwrap();
        let mut source = source(folder.path());
        write(&planted, &writes);
        let interval = source.drain();
        assert_is_an_interval(folder.path(), &interval);
        write(&planted, &later);
        if let Some(cut) = cut {
            planted.file().set_len(cut).unwrap();
        }
        let interval = source.drain();
        assert_is_an_interval(folder.path(), &interval);
    }
}

/// A lock, a module, and a thread that waited once.
fn one_wait() -> [((Page, usize), u64); 8] {
    let slot = |field: usize| (Page::Samples, size_of::<Slot>() + field);
    let meta = Meta { happened: 1, kind: 3, mode: 1, bucket: 3, blocked: 0, comm: 0 };
    [
        ((Page::Modules, offset_of!(Module, start)), 1),
        ((Page::Modules, offset_of!(Module, end)), u64::MAX),
        ((Page::Locks, offset_of!(LockEntry, address)), 0x1000),
        (slot(offset_of!(Slot, meta)), meta.pack()),
        (slot(offset_of!(Slot, lock)), 1),
        (slot(offset_of!(Slot, site)), 0x2000),
        (slot(offset_of!(Slot, count)), 1),
        (slot(offset_of!(Slot, total_ns)), 9),
    ]
}

#[test]
fn a_module_that_is_a_pipe_is_not_waited_for() {
    let folder = private_folder();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let planted = Planted::create(folder.path()).unwrap();
    write(&planted, &one_wait());
    planted.write(Page::Modules, offset_of!(Module, path), pipe.to_str().unwrap().as_bytes()).unwrap();
    let interval = source(folder.path()).drain();
    assert_eq!(interval.totals.len(), 1);
}

#[test]
fn a_memory_that_is_a_link_a_pipe_or_a_folder_is_not_opened() {
    for plant in [
        &(|path: &Path, victim: &Path| std::os::unix::fs::symlink(victim, path).unwrap()) as &dyn Fn(&Path, &Path),
        &|path, victim| fs::hard_link(victim, path).unwrap(),
        &|path, _| fs::create_dir(path).unwrap(),
        &|path, _| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success()),
    ] {
        let folder = private_folder();
        let victim = folder.path().join("victim");
        fs::write(&victim, MAGIC.to_ne_bytes()).unwrap();
        plant(&folder.path().join(MEMORY_FILE), &victim);
        assert!(UserSource::open(folder.path()).is_err());
        assert_eq!(fs::read(&victim).unwrap(), MAGIC.to_ne_bytes());
    }
}

/// Makes sure that a program that says of the memory what it likes does not have the recorder read beyond what there is.
#[test]
fn counts_beyond_the_tables_are_bounded() {
    let folder = private_folder();
    let planted = Planted::create(folder.path()).unwrap();
    for (page, at) in [
        (Page::Session, offset_of!(SessionHead, taken)),
        (Page::Session, offset_of!(SessionHead, reserved)),
        (Page::Process, offset_of!(Process, module_count)),
        (Page::Process, offset_of!(Process, comm_count)),
        (Page::Thread, offset_of!(Thread, slots)),
    ] {
        planted.write(page, at, &u32::MAX.to_ne_bytes()).unwrap();
    }
    let interval = source(folder.path()).drain();
    assert!(interval.totals.is_empty());
    assert_eq!(interval.losses.get(Loss::UserSegmentDamaged), 0);
}

#[test]
fn a_memory_of_another_version_is_damaged_and_counted_once() {
    let folder = private_folder();
    let planted = Planted::create(folder.path()).unwrap();
    let mut source = source(folder.path());
    planted.write(Page::Session, offset_of!(SessionHead, version), &[0xff]).unwrap();
    let interval = source.drain();
    assert_eq!(interval.losses.get(Loss::UserSegmentDamaged), 1);
    let interval = source.drain();
    assert!(interval.losses.is_empty(), "counted twice");
}

/// Makes sure that a program cannot make the report say what no program can have done.
#[test]
fn a_segment_that_was_scribbled_over_is_refused_whole_and_counted() {
    let folder = private_folder();
    let planted = Planted::create(folder.path()).unwrap();
    let meta = Meta { happened: 2, kind: 3, mode: 1, bucket: 3, blocked: 0, comm: 0 };
    let slot = |field: usize| (Page::Samples, size_of::<Slot>() + field);
    let write = |count: u64| {
        let numbers = [
            (slot(offset_of!(Slot, meta)), meta.pack()),
            (slot(offset_of!(Slot, count)), count),
            (slot(offset_of!(Slot, total_ns)), count.saturating_mul(9)),
            ((Page::Thread, offset_of!(Thread, changes)), count),
        ];
        write(&planted, &numbers);
    };
    let mut source = source(folder.path());
    write(100);
    let interval = source.drain();
    assert_eq!(interval.totals.iter().map(|total| total.value.count).sum::<u64>(), 100);
    write(5_900_000_000_000_000_000);
    let interval = source.drain();
    assert!(interval.totals.is_empty(), "{:?}", interval.totals);
    assert_eq!(interval.losses.get(Loss::UserSegmentImplausible), 1);
    write(200);
    let interval = source.drain();
    assert!(interval.totals.is_empty() && interval.losses.is_empty(), "believed again");
}

#[test]
fn losses_that_nobody_can_have_had_time_for_are_not_believed() {
    let folder = private_folder();
    let planted = Planted::create(folder.path()).unwrap();
    planted.write(Page::Process, offset_of!(Process, losses), &u64::MAX.to_ne_bytes()).unwrap();
    let interval = source(folder.path()).drain();
    assert_eq!(interval.losses.iter().collect::<Vec<_>>(), [(Loss::UserSegmentImplausible, 1)]);
}

/// Makes sure that a sample is counted once, and not again when nothing was added to it.
#[test]
fn what_was_read_once_is_not_read_again() {
    let folder = private_folder();
    let planted = Planted::create(folder.path()).unwrap();
    write(&planted, &one_wait());
    let mut source = source(folder.path());
    let interval = source.drain();
    assert_eq!(interval.totals.len(), 1);
    let interval = source.drain();
    assert!(interval.totals.is_empty());
}
