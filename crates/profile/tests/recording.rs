//! The recording file, and everything that can happen to it.

mod synthetic;

use std::fs;
use std::io::{self, Cursor};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::LazyLock;

use lockmeter_profile::recording::{
    FORMAT_VERSION, RecordingError, RecordingErrorKind, RecordingOptions, RecordingReader, RecordingWriter,
};
use lockmeter_profile::{Interval, Loss, Losses, Task};
use proptest::prelude::*;
use synthetic::{REALISTIC, SMALL, about, interval};

/// What a reader gets out of some bytes.
#[derive(Debug)]
struct Read {
    intervals: Vec<Interval>,
    losses: Losses,
    ended_cleanly: bool,
}

fn read(bytes: Vec<u8>) -> Result<Read, RecordingError> {
    let mut reader = RecordingReader::from_reader(Cursor::new(bytes), "test")?;
    let mut intervals = Vec::new();
    while let Some(interval) = reader.next_interval()? {
        intervals.push(interval);
    }
    Ok(Read { intervals, losses: reader.losses().clone(), ended_cleanly: reader.ended_cleanly() })
}

/// A recording of these intervals, and where each of its chunks ends.
fn recording(intervals: &[Interval]) -> (Vec<u8>, Vec<usize>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.lockmeter");
    // A pipe, for of a recording without intervals no file is left.
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let pipe = path.clone();
    let reader = std::thread::spawn(move || fs::read(pipe).unwrap());
    let mut writer = create(&path).unwrap();
    let mut ends = vec![writer.written_bytes() as usize];
    for interval in intervals {
        writer.append(interval).unwrap();
        ends.push(writer.written_bytes() as usize);
    }
    writer.finish().unwrap();
    let bytes = reader.join().unwrap();
    ends.push(bytes.len());
    (bytes, ends)
}

fn small_intervals() -> Vec<Interval> {
    (0..3).map(|nth| interval(nth, SMALL)).collect()
}

fn kind_of(error: Result<impl Sized, RecordingError>) -> RecordingErrorKind {
    error.err().expect("an error").kind()
}

/// Synthetic intervals hold made-up addresses of the kernel, which are to be read back.
fn create(path: &Path) -> Result<RecordingWriter, RecordingError> {
    RecordingWriter::create_with(path, &about(), RecordingOptions { kernel_addresses: true, ..Default::default() })
}

/// A recording of one interval.
fn record_into(path: &Path) {
    let mut writer = create(path).unwrap();
    writer.append(&interval(1, SMALL)).unwrap();
    writer.finish().unwrap();
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_was_written_reads_back_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.lockmeter");
    let intervals: Vec<_> = (0..4).map(|nth| interval(nth, REALISTIC)).collect();
    let mut writer = create(&path).unwrap();
    for interval in &intervals {
        writer.append(interval).unwrap();
    }
    writer.finish().unwrap();
    let mut reader = RecordingReader::open(&path).unwrap();
    assert_eq!(reader.about(), &about());
    let read: Result<Vec<_>, _> = reader.by_ref().collect();
    assert_eq!(read.unwrap(), intervals);
    assert!(reader.ended_cleanly() && reader.losses().is_empty());
}

#[test]
fn a_recording_without_intervals_is_a_recording() {
    let (bytes, _) = recording(&[]);
    let read = read(bytes).unwrap();
    assert!(read.intervals.is_empty() && read.losses.is_empty() && read.ended_cleanly);
}

#[test]
fn a_file_cut_at_any_byte_reads_up_to_there_and_says_what_is_lost() {
    let intervals = small_intervals();
    let (bytes, ends) = recording(&intervals);
    for cut in 0..bytes.len() {
        let read = read(bytes[..cut].to_vec());
        if cut < ends[0] {
            assert_eq!(kind_of(read), RecordingErrorKind::Empty, "cut at {cut}");
            continue;
        }
        let read = read.unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert_eq!(read.intervals, intervals[..whole], "cut at {cut}");
        assert_eq!(read.losses.get(Loss::CutBytes), (cut - ends[whole]) as u64, "cut at {cut}");
        assert_eq!(read.losses.get(Loss::DamagedInterval), 0, "cut at {cut}");
        assert!(!read.ended_cleanly);
    }
}

#[test]
fn a_flipped_bit_anywhere_loses_at_most_its_interval() {
    let intervals = small_intervals();
    let (bytes, ends) = recording(&intervals);
    for bit in 0..bytes.len() * 8 {
        let at = bit / 8;
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (bit % 8);
        let read = read(damaged);
        if at < ends[0] {
            let kind = kind_of(read);
            let expected = if at < 8 { RecordingErrorKind::NotARecording } else { RecordingErrorKind::DamagedHead };
            let is_cut = kind == RecordingErrorKind::Empty;
            assert!(kind == expected || is_cut, "bit {bit}: {kind:?}");
            continue;
        }
        let read = read.unwrap();
        let hit = ends.iter().filter(|end| **end <= at).count() - 1;
        let mut expected = intervals.clone();
        if hit < intervals.len() {
            expected.remove(hit);
            assert_eq!(read.losses.get(Loss::DamagedInterval), 1, "bit {bit}");
            assert!(read.ended_cleanly, "bit {bit}");
        }
        assert_eq!(read.intervals, expected, "bit {bit}");
    }
}

#[test]
fn missing_and_foreign_bytes_in_the_middle_lose_only_the_intervals_they_touch() {
    let intervals: Vec<_> = (0..5).map(|nth| interval(nth, SMALL)).collect();
    let (bytes, ends) = recording(&intervals);
    // From the middle of the second interval to the middle of the third.
    let hole = [&bytes[..ends[1] + 60], &bytes[ends[2] + 60..]].concat();
    let hole_read = read(hole).unwrap();
    assert_eq!(hole_read.intervals, [&intervals[..1], &intervals[3..]].concat());
    assert_eq!(hole_read.losses.get(Loss::DamagedInterval), 2);
    let foreign = [&bytes[..ends[1]], &[0; 5000], &bytes[ends[1]..]].concat();
    let foreign_read = read(foreign).unwrap();
    assert_eq!(foreign_read.intervals, intervals);
    assert!(foreign_read.losses.is_empty() && foreign_read.ended_cleanly);
}

#[test]
fn a_newer_format_version_is_told_from_damage() {
    let (mut bytes, _) = recording(&[]);
    bytes[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.sum().to_le_bytes());
    let error = read(bytes).unwrap_err();
    let expected = RecordingErrorKind::NewerVersion { found: FORMAT_VERSION + 1, known: FORMAT_VERSION };
    assert_eq!(error.kind(), expected);
    assert!(error.to_string().contains("newer lockmeter"), "{error}");
}

#[test]
fn what_is_no_recording_is_told_so_in_a_sentence() {
    let error = read(b"#!/bin/sh\necho hello\n".to_vec()).unwrap_err();
    assert_eq!(error.kind(), RecordingErrorKind::NotARecording);
    assert_eq!(error.to_string(), "test is not a lockmeter recording; name a file made by `lockmeter record`");
    assert_eq!(kind_of(read(Vec::new())), RecordingErrorKind::Empty);
    let missing = RecordingReader::open("/nonexistent/out.lockmeter");
    assert_eq!(kind_of(missing), RecordingErrorKind::Io(io::ErrorKind::NotFound));
    assert_eq!(kind_of(RecordingReader::open("/")), RecordingErrorKind::Io(io::ErrorKind::IsADirectory));
}

#[test]
fn a_full_disk_is_an_error_of_its_own() {
    let error = create(Path::new("/dev/full")).unwrap_err();
    assert_eq!(error.kind(), RecordingErrorKind::Io(io::ErrorKind::StorageFull));
    assert!(error.to_string().contains("make room"), "{error}");
}

#[test]
fn a_device_is_written_to_and_left_in_place() {
    let mut writer = create(Path::new("/dev/null")).unwrap();
    writer.append(&interval(0, SMALL)).unwrap();
    writer.finish().unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_file_that_is_no_recording_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    fs::write(&path, "dear diary").unwrap();
    assert_eq!(kind_of(create(&path)), RecordingErrorKind::WouldOverwrite);
    assert_eq!(fs::read(&path).unwrap(), b"dear diary");
}

#[test]
fn a_recording_that_is_being_written_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.lockmeter");
    let is_refused = || {
        let refused = create(&path).unwrap_err();
        assert_eq!(refused.kind(), RecordingErrorKind::WouldOverwrite);
        assert!(refused.to_string().contains("being written"), "{refused}");
    };
    let mut writer = create(&path).unwrap();
    writer.append(&interval(0, SMALL)).unwrap();
    is_refused();
    writer.finish().unwrap();
    // While its replacement is still without a name, too.
    let mut second = create(&path).unwrap();
    is_refused();
    second.append(&interval(0, SMALL)).unwrap();
    is_refused();
}

/// Makes sure that of two recorders of the same new file the second does not take the first one's.
#[test]
fn a_recording_that_another_recorder_has_begun_meanwhile_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.lockmeter");
    let (mut first, mut second) = (create(&path).unwrap(), create(&path).unwrap());
    first.append(&interval(0, SMALL)).unwrap();
    let refused = second.append(&interval(1, SMALL)).unwrap_err();
    assert_eq!(refused.kind(), RecordingErrorKind::WouldOverwrite);
    first.finish().unwrap();
    drop(second);
    let read: Vec<_> = RecordingReader::open(&path).unwrap().map(Result::unwrap).collect();
    assert_eq!(read, [interval(0, SMALL)]);
    assert_eq!(names_in(folder.path()), ["out.lockmeter"]);
}

/// Makes sure that a recorder which has nothing to keep changes nothing: not an old recording, not an empty file, not an
/// empty folder.
#[test]
fn without_an_interval_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let [new, old, empty] = ["new", "old", "empty"].map(|name| folder.path().join(name));
    record_into(&old);
    fs::write(&empty, "").unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o640)).unwrap();
    let before = (fs::read(&old).unwrap(), fs::metadata(&old).unwrap().ino());
    for path in [&new, &old, &empty] {
        drop(create(path).unwrap());
        assert!(create(path).unwrap().finish().unwrap().is_none());
    }
    assert_eq!((fs::read(&old).unwrap(), fs::metadata(&old).unwrap().ino()), before);
    assert_eq!((fs::read(&empty).unwrap(), mode_of(&empty)), (Vec::new(), 0o640));
    let mut names = names_in(folder.path());
    names.sort();
    assert_eq!(names, ["empty", "old"]);
}

#[test]
fn only_its_owner_may_read_a_recording_unless_others_are_let() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.lockmeter");
    record_into(&path);
    assert_eq!(mode_of(&path), 0o600);
    // An empty file that is there already is made so, too.
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    record_into(&path);
    assert_eq!(mode_of(&path), 0o600);
    let options = RecordingOptions { mode: 0o664, ..Default::default() };
    let mut writer = RecordingWriter::create_with(&path, &about(), options).unwrap();
    writer.append(&interval(0, SMALL)).unwrap();
    assert_eq!(mode_of(&path), 0o664);
}

/// Makes sure that the other names of a file never change with it.
#[test]
fn a_file_with_two_names_is_replaced_under_one() {
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["out", "other"].map(|name| folder.path().join(name));
    for content in ["", "recording"] {
        let _ = (fs::remove_file(&path), fs::remove_file(&other));
        if content.is_empty() {
            fs::write(&other, "").unwrap()
        } else {
            record_into(&other)
        }
        let before = fs::read(&other).unwrap();
        fs::hard_link(&other, &path).unwrap();
        let mut writer = create(&path).unwrap();
        writer.append(&interval(2, SMALL)).unwrap();
        writer.finish().unwrap();
        assert_eq!(fs::read(&other).unwrap(), before);
        assert_eq!(RecordingReader::open(&path).unwrap().count(), 1);
    }
}

/// Makes sure that what takes the place of a recording while its replacement has no name yet is not lost.
#[test]
fn what_took_the_place_of_the_old_recording_meanwhile_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.lockmeter");
    record_into(&path);
    let mut writer = create(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "dear diary").unwrap();
    assert_eq!(writer.append(&interval(0, SMALL)).unwrap_err().kind(), RecordingErrorKind::WouldOverwrite);
    drop(writer);
    assert_eq!(fs::read(&path).unwrap(), b"dear diary");
    assert_eq!(names_in(folder.path()), ["out.lockmeter"]);
}

/// Makes sure that what was written can be read back whatever stands under its name by then.
#[test]
fn a_finished_recording_is_handed_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.lockmeter");
    let mut writer = create(&path).unwrap();
    writer.append(&interval(0, SMALL)).unwrap();
    fs::remove_file(&path).unwrap();
    let file = writer.finish().unwrap().unwrap();
    assert_eq!(RecordingReader::from_reader(file, "test").unwrap().count(), 1);
}

#[test]
fn kernel_addresses_are_left_out_unless_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.lockmeter");
    let mut writer = RecordingWriter::create(&path, &about()).unwrap();
    writer.append(&interval(0, REALISTIC)).unwrap();
    writer.finish().unwrap();
    let read = RecordingReader::open(&path).unwrap().next_interval().unwrap().unwrap();
    let (frames, instances) = (read.tables.frames().iter(), read.sampled.iter());
    let addresses: Vec<u64> =
        frames.map(|frame| frame.address).chain(instances.filter_map(|sampled| sampled.instance)).collect();
    assert!(!addresses.is_empty() && addresses.iter().all(|address| address >> 62 == 0b10), "{addresses:x?}");
}

#[test]
fn an_older_recording_is_replaced_and_an_open_reader_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.lockmeter");
    let mut old = create(&path).unwrap();
    old.append(&interval(1, SMALL)).unwrap();
    old.finish().unwrap();
    let mut reader = RecordingReader::open(&path).unwrap();
    let mut new = create(&path).unwrap();
    new.append(&interval(2, SMALL)).unwrap();
    new.append(&interval(3, SMALL)).unwrap();
    new.finish().unwrap();
    assert_eq!(reader.next_interval().unwrap(), Some(interval(1, SMALL)));
    assert_eq!(RecordingReader::open(&path).unwrap().count(), 2);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
}

#[test]
fn a_symbolic_link_to_a_recording_stays_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (target, link) = (folder.path().join("target"), folder.path().join("link"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    // The second time there is something to replace.
    for _ in 0..2 {
        record_into(&link);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(RecordingReader::open(&target).unwrap().count(), 1);
    }
}

#[test]
fn a_recorder_that_dies_leaves_a_readable_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.lockmeter");
    let mut writer = create(&path).unwrap();
    writer.append(&interval(0, SMALL)).unwrap();
    drop(writer);
    let mut reader = RecordingReader::open(&path).unwrap();
    assert_eq!(reader.by_ref().count(), 1);
    assert!(!reader.ended_cleanly() && reader.losses().is_empty());
}

#[test]
fn a_realistic_interval_takes_tens_of_kilobytes() {
    let (_, ends) = recording(&[interval(0, REALISTIC)]);
    let bytes = ends[1] - ends[0];
    println!("a realistic interval takes {bytes} bytes");
    assert!(bytes < 64 << 10, "{bytes}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let _ = read(bytes);
    }

    #[test]
    fn arbitrary_bytes_behind_a_good_head_never_panic(
        pieces in prop::collection::vec(
            prop_oneof![Just(b"\xF5LMC".to_vec()), prop::collection::vec(any::<u8>(), 0..40)],
            0..40,
        ),
    ) {
        let bytes = pieces.concat();
        static HEAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
            let (bytes, ends) = recording(&[]);
            bytes[..ends[0]].to_vec()
        });
        let read = read([&HEAD[..], &bytes].concat()).unwrap();
        prop_assert!(read.intervals.is_empty() && !read.ended_cleanly);
        prop_assert!(bytes.is_empty() || !read.losses.is_empty());
    }
}

/// Makes sure that a program cannot end a recording by having more tasks in an interval than one can hold.
#[test]
fn of_an_interval_that_is_too_large_the_losses_are_kept_and_the_recording_goes_on() {
    let mut large = interval(0, SMALL);
    for tgid in 0..600_000 {
        large.tables.intern_task(Task { tgid, comm: String::new(), own: false });
    }
    let (bytes, _) = recording(&[large.clone(), interval(1, SMALL)]);
    let read = read(bytes).unwrap();
    let [kept, next] = &read.intervals[..] else { panic!("{} intervals", read.intervals.len()) };
    assert_eq!((kept.start_unix_ns, kept.duration_ns, kept.totals.len()), (large.start_unix_ns, large.duration_ns, 0));
    assert_eq!(kept.losses.get(Loss::IntervalTooLarge), 1);
    assert!(!next.totals.is_empty() && read.ended_cleanly);
}

#[test]
fn the_format_page_lists_every_loss() {
    let page = include_str!("../../../docs/reference/file-format.md");
    for loss in Loss::ALL {
        let line = format!("| {} | `{}` | {} |", loss.code(), loss.name(), loss.meaning(2));
        assert!(page.contains(&line), "docs/reference/file-format.md lacks: {line}");
    }
}
