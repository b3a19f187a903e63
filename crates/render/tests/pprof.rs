//! A profile made of intervals, read back with a decoder and with Google's pprof.

mod reports;

use std::io::{Read, Write};
use std::process::Command;

use flate2::read::GzDecoder;
use lockmeter_profile::view::{Query, report};
use lockmeter_profile::{
    Blocker, BlockerSource, Bucket, CgroupId, Dimension, Frame, Happened, Interval, Key, Kind, Lock, LockId, Mode,
    Naming, OfFilesystem, Sampled, StackId, Task, TaskId, Total,
};
use lockmeter_render::Pprof;
use reports::{about, value};

const START_UNIX_NS: u64 = 1_793_707_200_000_000_000;

fn stack(interval: &mut Interval, functions: &[&str]) -> StackId {
    let frames = functions.iter().enumerate().map(|(at, function)| {
        interval.tables.intern_frame(Frame {
            address: 0xffff_ffff_8100_0000 + 0x1000 * u64::from(function.as_bytes()[0]) + at as u64,
            function: Some((*function).to_owned()),
            offset: at as u64,
            module: function.starts_with("ext4").then(|| "ext4".to_owned()),
        })
    });
    let frames = frames.collect();
    interval.tables.intern_stack(frames)
}

fn lock(interval: &mut Interval, name: &str) -> LockId {
    let (object, detail) = (None, String::new());
    interval.tables.intern_lock(Lock { name: name.to_owned(), object, naming: Naming::Symbol, detail })
}

fn key(lock: LockId, kind: Kind, mode: Mode, task: Option<TaskId>) -> Key {
    let cgroup = None::<CgroupId>;
    Key { happened: Happened::Wait, lock, kind, mode, task, cgroup, context: None, cpu: None, bucket: Bucket(20) }
}

/// A lock whose waits were sampled, 1,000 ms in all, and one of 250 ms that was never sampled.
fn interval() -> Interval {
    let mut interval = Interval { start_unix_ns: START_UNIX_NS, duration_ns: 1_000_000_000, ..Interval::default() };
    let task = interval.tables.intern_task(Task { tgid: 42, comm: "stress-ng".into(), own: false });
    let mmap_lock = lock(&mut interval, "mm_struct.mmap_lock");
    let spinning = lock(&mut interval, "zone.lock");
    let waits = ["bpf_trace_run2", "__traceiter_contention_begin", "down_read", "do_user_addr_fault", "exc_page_fault"];
    let site = stack(&mut interval, &waits);
    let other_site = stack(&mut interval, &["down_read", "ext4_mmap_wait", "exc_page_fault"]);
    let releases = stack(&mut interval, &["up_write", "do_munmap", "do_syscall_64"]);
    let mmap_lock = key(mmap_lock, Kind::Rwsem, Mode::Read, Some(task));
    let spinning = key(spinning, Kind::Spin, Mode::Exclusive, Some(task));
    interval.totals = vec![
        Total { key: mmap_lock, value: value(1_000, 1_000_000_000, 9_000_000, 0) },
        Total { key: spinning, value: value(50, 250_000_000, 9_000_000, 250_000_000) },
    ];
    let released = Blocker {
        source: BlockerSource::Releaser,
        stack: Some(releases),
        task: Some(task),
        owner_hint: None,
        root: None,
        state: None,
    };
    let unseen = Blocker::unknown(BlockerSource::WakeupNotSeen);
    // Together these stand for 900 ms: a tenth less than the truth.
    interval.sampled = vec![
        Sampled {
            key: mmap_lock,
            instance: None,
            filesystem: OfFilesystem::NotLookedUp,
            site: Some(site),
            blocker: released,
            stacks: 6,
            estimate: value(600, 600_000_000, 9_000_000, 0),
        },
        Sampled {
            key: mmap_lock,
            instance: None,
            filesystem: OfFilesystem::NotLookedUp,
            site: Some(other_site),
            blocker: unseen,
            stacks: 3,
            estimate: value(300, 300_000_000, 9_000_000, 0),
        },
    ];
    interval
}

/// The profile of one interval, gzipped.
fn profile(intervals: &[Interval]) -> Vec<u8> {
    let by = |by: [Dimension; 2]| report(&about(), intervals.iter().cloned(), &Query::by(by));
    let mut out = Vec::new();
    Pprof { waits: &by(Pprof::WAITS), blame: &by(Pprof::BLAME) }.write(&mut out).expect("memory takes every write");
    out
}

/// What `go tool pprof` prints; `None`, said aloud, where there is no Go.
fn go_tool_pprof(profile: &[u8], arguments: &[&str], name: &str) -> Option<String> {
    let path = std::env::temp_dir().join(format!("lockmeter-{name}-{}.pb.gz", std::process::id()));
    std::fs::write(&path, profile).expect("the temporary folder takes a small file");
    let output = Command::new("go").args(["tool", "pprof", "-unit=ms"]).args(arguments).arg(&path).output();
    std::fs::remove_file(&path).expect("the file was just written");
    match output {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "go tool pprof refuses the profile: {errors}");
            Some(String::from_utf8(output.stdout).expect("pprof prints UTF-8"))
        }
        Err(error) => {
            // Past the test harness, which hides what a passing test prints.
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "SKIPPED {name}: `go` cannot be run here ({error})");
            None
        }
    }
}

#[test]
fn pprof_shows_who_waits() {
    let profile = profile(&[interval(), interval()]);
    let Some(top) = go_tool_pprof(&profile, &["-top", "-cum"], "wait") else { return };
    for expected in ["Type: wait", "Duration: 2s", "Total samples = 2500ms", "File: whole machine"] {
        assert!(top.contains(expected), "{expected} is missing:\n{top}");
    }
    let line = |function: &str| top.lines().find(|line| line.contains(function)).map(str::to_owned);
    assert!(line("do_user_addr_fault").is_some_and(|line| line.contains("1333ms")), "600 of 900, scaled:\n{top}");
    assert!(line("ext4_mmap_wait").is_some_and(|line| line.contains("667ms")), "{top}");
    assert!(line("[mm_struct.mmap_lock, read]").is_some_and(|line| line.contains("2000ms")), "{top}");
    assert!(line("down_read").is_none(), "the lock stands for its functions:\n{top}");
    assert!(line("[no stack taken]").is_some_and(|line| line.contains("500ms")), "{top}");
    assert!(line("bpf_").is_none() && line("__traceiter").is_none(), "{top}");
}

#[test]
fn pprof_shows_who_makes_others_wait() {
    let profile = profile(&[interval()]);
    let Some(top) = go_tool_pprof(&profile, &["-top", "-cum", "-sample_index=blame"], "blame") else { return };
    for expected in ["Type: blame", "Total samples = 1250ms", "do_munmap", "[wake-up not seen]", "[not known: it spun"]
    {
        assert!(top.contains(expected), "{expected} is missing:\n{top}");
    }
    assert!(!top.contains("do_user_addr_fault"), "waiters are not to blame:\n{top}");
}

#[test]
fn pprof_tells_locks_apart_by_their_labels() {
    let profile = profile(&[interval()]);
    let Some(tags) = go_tool_pprof(&profile, &["-tags", "-sample_index=contentions"], "tags") else { return };
    for expected in ["lock: Total", "mm_struct.mmap_lock", "zone.lock", "kind: Total", "mode: Total"] {
        assert!(tags.contains(expected), "{expected} is missing:\n{tags}");
    }
    let Some(tags) = go_tool_pprof(&profile, &["-tags", "-sample_index=blame"], "tags") else { return };
    for expected in ["blocker: Total", "releaser", "task: Total", "stress-ng"] {
        assert!(tags.contains(expected), "{expected} is missing:\n{tags}");
    }
}

#[test]
fn an_empty_profile_is_one_that_pprof_opens() {
    let profile = profile(&[]);
    let mut decoded = Vec::new();
    GzDecoder::new(profile.as_slice()).read_to_end(&mut decoded).expect("the profile is gzipped");
    let Some(top) = go_tool_pprof(&profile, &["-top"], "empty") else { return };
    assert!(top.contains("0 total"), "{top}");
}

#[test]
fn samples_that_point_nowhere_are_passed_over() {
    let mut damaged = interval();
    damaged.totals[0].key.lock = LockId(77);
    damaged.sampled[0].key.lock = LockId(77);
    damaged.sampled[1].site = Some(StackId(77));
    damaged.sampled[1].key.task = Some(TaskId(77));
    assert!(!profile(&[damaged]).is_empty());
}
