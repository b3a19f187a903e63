//! Reports: rows add up to what was counted, whatever they are grouped by.

mod synthetic;

use lockmeter_profile::view::{NamePattern, Query, ReportBuilder, report};
use lockmeter_profile::{
    About, Blocker, BlockerSource, Bucket, Context, Dimension, Filesystem, FilesystemId, Frame, Happened, HolderTime,
    Interval, Key, Kind, Lock, Loss, Mode, Naming, NextLock, OfFilesystem, Parked, Report, Row, Sampled, SampledWait,
    SlowHold, Spin, SpinLoop, StackId, Task, Total, Unnamed, Value,
};
use proptest::prelude::*;
use synthetic::{SECOND_NS, START_UNIX_NS, Size, about, interval};

/// Every single dimension, every pair of two, and three of each sort together.
fn groupings() -> Vec<Vec<Dimension>> {
    let exact = vec![Dimension::Task, Dimension::Mode, Dimension::Kind];
    let sampled = vec![Dimension::Caller, Dimension::Blocker, Dimension::Root];
    let both = vec![Dimension::Caller, Dimension::Lock, Dimension::Cgroup];
    let singles = Dimension::ALL.iter().map(|one| vec![*one]);
    let pairs = Dimension::ALL.iter().enumerate();
    let pairs = pairs.flat_map(|(at, one)| Dimension::ALL[at + 1..].iter().map(|other| vec![*other, *one]));
    singles.chain(pairs).chain([vec![], exact, sampled, both]).collect()
}

fn sum<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Value {
    rows.into_iter().fold(Value::default(), |mut sum, row| {
        sum.merge(&row.value);
        sum
    })
}

fn without_max(value: Value) -> Value {
    Value { max_ns: 0, ..value }
}

fn made(intervals: &[Interval], query: &Query) -> Report {
    report(&about(), intervals.iter().cloned(), query)
}

/// An interval built by hand.
#[derive(Default)]
struct Made(Interval);

impl Made {
    fn lock(&mut self, name: &str, kind: Kind, mode: Mode) -> Key {
        self.named_lock(
            Lock { name: name.into(), object: None, naming: Naming::Symbol, detail: String::new() },
            kind,
            mode,
        )
    }

    fn named_lock(&mut self, lock: Lock, kind: Kind, mode: Mode) -> Key {
        self.0.duration_ns = SECOND_NS;
        self.0.start_unix_ns = START_UNIX_NS;
        let lock = self.0.tables.intern_lock(lock);
        Key {
            happened: Happened::Wait,
            lock,
            kind,
            mode,
            task: None,
            cgroup: None,
            context: None,
            cpu: None,
            bucket: Bucket(0),
        }
    }

    fn task(&mut self, key: Key, comm: &str, own: bool) -> Key {
        Key { task: Some(self.0.tables.intern_task(Task { tgid: 7, comm: comm.into(), own })), ..key }
    }

    fn stack(&mut self, functions: &[&str]) -> StackId {
        let frame = |function: &&str| Frame { address: 1, function: Some((*function).into()), offset: 0, module: None };
        let frames = functions.iter().map(|function| self.0.tables.intern_frame(frame(function))).collect();
        self.0.tables.intern_stack(frames)
    }

    fn total(&mut self, key: Key, count: u64, each_ns: u64) {
        let value = Value { count, total_ns: count * each_ns, max_ns: each_ns, spin_ns: 0 };
        self.0.totals.push(Total { key: Key { bucket: Bucket::of(each_ns), ..key }, value });
    }

    fn sample(&mut self, key: Key, site: StackId, blocker: Blocker, count: u64, each_ns: u64) {
        let estimate = Value { count, total_ns: count * each_ns, max_ns: each_ns, spin_ns: 0 };
        let key = Key { bucket: Bucket::of(each_ns), ..key };
        self.0.sampled.push(Sampled {
            key,
            instance: None,
            filesystem: OfFilesystem::NotLookedUp,
            site: Some(site),
            blocker,
            stacks: 1,
            estimate,
        });
    }
}

const UNSEEN: Blocker = Blocker::unknown(BlockerSource::WakeupNotSeen);

fn callers(report: &Report) -> Vec<(String, u64, u64)> {
    report.rows.iter().map(|row| (row.caller.as_ref().unwrap().join("<"), row.value.count, row.stacks)).collect()
}

#[test]
fn a_caller_gets_its_share_of_each_duration_bucket() {
    let mut made_by_hand = Made::default();
    let key = made_by_hand.lock("rtnl_mutex", Kind::Mutex, Mode::Exclusive);
    let fast = made_by_hand.stack(&["__mutex_lock.constprop.0", "fast"]);
    let slow = made_by_hand.stack(&["__mutex_lock.constprop.0", "slow"]);
    made_by_hand.total(key, 900, 1_000);
    made_by_hand.total(key, 100, 1_000_000);
    // Long waits are sampled more often than short ones: it must not matter.
    made_by_hand.sample(key, fast, UNSEEN, 3, 1_000);
    made_by_hand.sample(key, slow, UNSEEN, 90, 1_000_000);
    made_by_hand.sample(key, fast, UNSEEN, 30, 1_000_000);
    let report = made(&[made_by_hand.0], &Query::by([Dimension::Caller]));
    assert_eq!(callers(&report), [("slow".into(), 75, 1), ("fast".into(), 925, 2)]);
}

/// Regression: a hold of 3.6 s of one function, whose stack was lost, was charged to another.
#[test]
fn what_has_no_stack_is_not_charged_to_those_that_have() {
    let mut made_by_hand = Made::default();
    let key = made_by_hand.lock("rtnl_mutex", Kind::Mutex, Mode::Exclusive);
    let quick = made_by_hand.stack(&["quick"]);
    made_by_hand.total(key, 1_000, 100);
    made_by_hand.total(key, 1, 3_600_000_000);
    made_by_hand.sample(key, quick, UNSEEN, 1_000, 100);
    let report = made(&[made_by_hand.0], &Query::by([Dimension::Caller]));
    assert_eq!(callers(&report), [(String::new(), 1, 0), ("quick".into(), 1_000, 1)]);
    assert_eq!(report.rows.iter().map(|row| row.value.max_ns).collect::<Vec<_>>(), [3_600_000_000, 100]);
}

/// Makes sure that what samples tell adds to the waits where nothing else counts them, and is taken from the sleep where something does.
#[test]
fn spinning_that_samples_tell_is_a_part_of_waits_or_comes_on_top() {
    let mut made_by_hand = Made::default();
    let key = made_by_hand.lock("ledger", Kind::Mutex, Mode::Exclusive);
    let key = made_by_hand.task(key, "clerk", false);
    let site = made_by_hand.stack(&["pthread_mutex_lock", "post"]);
    made_by_hand.total(key, 10, 1_000_000);
    made_by_hand.sample(key, site, UNSEEN, 10, 1_000_000);
    let wait =
        |happened| Some(SampledWait { happened, lock: key.lock, kind: key.kind, mode: key.mode, instance: None });
    let spin = Spin {
        task: key.task.unwrap(),
        cgroup: None,
        how: SpinLoop::Pause,
        wait: wait(Happened::Wait),
        is_part: true,
        site: Some(site),
        samples: 4,
        estimate_ns: 4_000_000,
        variance_ns2: 1e12,
    };
    let made_of = |spins: &[Spin], by| {
        let mut interval = made_by_hand.0.clone();
        interval.threads.spins = spins.to_vec();
        made(&[interval], &Query::by([by]))
    };
    for by in [Dimension::Lock, Dimension::Caller] {
        let values =
            |report: &Report| (report.rows[0].value.total_ns, report.rows[0].value.spin_ns, report.waits.sleep_ns());
        let part = made_of(&[spin], by);
        assert_eq!(values(&part), (10_000_000, 4_000_000, 6_000_000), "{by:?}");
        let apart = made_of(&[Spin { is_part: false, ..spin }], by);
        assert_eq!(values(&apart), (14_000_000, 4_000_000, 10_000_000), "{by:?}");
        // The standard deviation is a millisecond, and two more samples could have hit.
        let error_ns = apart.rows[0].sampled_spin.as_ref().unwrap().error_ns();
        assert_eq!(error_ns, apart.spinning.sampled_error_ns());
        assert_eq!(error_ns, (1.96 * 5_f64.sqrt() * 1e6) as u64);
        let idle = made_of(&[Spin { wait: wait(Happened::Idle), ..spin }, Spin { wait: None, ..spin }], by);
        assert_eq!(values(&idle), (10_000_000, 0, 10_000_000), "no lock: {by:?}");
    }
}

/// Makes sure that what looks at goroutines tell comes on top of what was counted, in the rows and in the head, with its error.
#[test]
fn waits_of_goroutines_add_to_the_waits_for_their_lock() {
    let mut made_by_hand = Made::default();
    let key = made_by_hand.lock("ledger", Kind::Mutex, Mode::Exclusive);
    let key = made_by_hand.task(key, "server", false);
    let site = made_by_hand.stack(&["sync.(*Mutex).lockSlow", "main.post"]);
    made_by_hand.total(key, 10, 1_000_000);
    let wait = |happened| SampledWait { happened, lock: key.lock, kind: key.kind, mode: key.mode, instance: None };
    let parked = Parked {
        task: key.task.unwrap(),
        cgroup: None,
        wait: wait(Happened::Wait),
        site: Some(site),
        looks: 4,
        estimate_ns: 5_000_000,
        variance_ns2: 1e12,
    };
    for by in [Dimension::Lock, Dimension::Caller] {
        let mut interval = made_by_hand.0.clone();
        interval.threads.parked = vec![parked, Parked { wait: wait(Happened::Idle), ..parked }];
        interval.threads.goroutine_looks = 10;
        let report = made(&[interval], &Query::by([by]));
        let sum = report.rows.iter().fold(Value::default(), |mut sum, row| {
            sum.merge(&row.value);
            sum
        });
        assert_eq!((sum.count, sum.total_ns, sum.spin_ns), (10, 15_000_000, 0), "{by:?}");
        assert_eq!((report.waits.total_ns, report.user_waits.total_ns), (15_000_000, 5_000_000));
        assert_eq!((report.goroutines.looks, report.goroutines.parked.total_ns), (10, 5_000_000));
        let of_goroutines = report.rows.iter().find_map(|row| row.parked.as_deref()).unwrap();
        assert_eq!(of_goroutines.error_ns(), 1_960_000, "{by:?}");
    }
}

#[test]
fn a_lock_without_stacks_has_one_row_that_says_so() {
    let mut made_by_hand = Made::default();
    let key = made_by_hand.lock("rtnl_mutex", Kind::Mutex, Mode::Exclusive);
    made_by_hand.total(key, 5, 1_000);
    let report = made(&[made_by_hand.0], &Query::by([Dimension::Caller, Dimension::Blocker]));
    assert_eq!(callers(&report), [(String::new(), 5, 0)]);
    assert_eq!(report.rows[0].blocker.as_ref().unwrap().source, BlockerSource::NotSampled);
}

#[test]
fn callers_are_grouped_by_function_not_by_address_or_compiler_ending() {
    let mut made_by_hand = Made::default();
    let key = made_by_hand.lock("rtnl_mutex", Kind::Mutex, Mode::Exclusive);
    for (nth, innermost) in ["mutex_lock", "__mutex_lock.constprop.0"].into_iter().enumerate() {
        let stack = made_by_hand.stack(&[innermost, "caller.isra.0"]);
        made_by_hand.0.tables.intern_frame(Frame { address: nth as u64, function: None, offset: 0, module: None });
        made_by_hand.sample(key, stack, UNSEEN, 1, 1_000);
    }
    made_by_hand.total(key, 2, 1_000);
    let report = made(&[made_by_hand.0], &Query::by([Dimension::Caller]));
    assert_eq!(callers(&report), [("caller".into(), 2, 2)]);
}

#[test]
fn lockmeters_own_waits_are_kept_apart() {
    let mut made_by_hand = Made::default();
    let key = made_by_hand.lock("rtnl_mutex", Kind::Mutex, Mode::Exclusive);
    let own = made_by_hand.task(key, "lockmeter", true);
    made_by_hand.total(key, 5, 1_000);
    made_by_hand.total(own, 3, 1_000);
    let hidden = made(std::slice::from_ref(&made_by_hand.0), &Query::by([Dimension::Lock]));
    assert_eq!((hidden.waits.count, hidden.own_waits.count, hidden.rows.len()), (5, 3, 1));
    let shown = made(&[made_by_hand.0], &Query { include_own: true, ..Query::by([Dimension::Lock]) });
    let rows: Vec<_> = shown.rows.iter().map(|row| (row.own, row.value.count)).collect();
    assert_eq!((shown.waits.count, rows), (5, vec![(false, 5), (true, 3)]));
}

#[test]
fn the_head_names_the_worst_lock_its_blocker_and_its_caller() {
    let mut made_by_hand = Made::default();
    let lru = Lock {
        name: "kmalloc-192+0x10".into(),
        object: None,
        naming: Naming::Unnamed(Unnamed::AmbiguousType),
        detail: String::new(),
    };
    let unnamed = made_by_hand.named_lock(lru, Kind::Spin, Mode::Exclusive);
    let key = made_by_hand.lock("mm_struct.mmap_lock", Kind::Rwsem, Mode::Write);
    let key = made_by_hand.task(key, "stress-ng", false);
    let site = made_by_hand.stack(&["rwsem_down_write_slowpath", "down_write_killable", "vm_mmap_pgoff"]);
    let release = made_by_hand.stack(&["try_to_wake_up", "wake_up_q", "rwsem_wake.isra.0", "up_write", "do_munmap"]);
    let blocker = Blocker {
        source: BlockerSource::Releaser,
        stack: Some(release),
        task: key.task,
        owner_hint: None,
        root: None,
        state: None,
    };
    made_by_hand.total(unnamed, 1, 400);
    made_by_hand.total(key, 10, 1_000);
    made_by_hand.sample(key, site, blocker, 1, 1_000);
    let report = made(&[made_by_hand.0], &Query::default());
    assert_eq!((report.named_ns, report.waits.total_ns), (10_000, 10_400));
    let worst = report.worst.unwrap();
    assert_eq!((worst.lock.as_str(), worst.mode, worst.value.count), ("mm_struct.mmap_lock", Mode::Write, 10));
    assert_eq!(worst.blocker_function.as_deref(), Some("do_munmap"));
    assert_eq!(worst.blocker_task.as_deref(), Some("stress-ng"));
    assert_eq!(worst.caller_function.as_deref(), Some("vm_mmap_pgoff"));
}

/// Makes sure that waits go to the file systems that their samples say, and that what nobody looked at is not called none.
#[test]
fn waits_are_divided_among_file_systems_as_they_were_sampled() {
    let mut by_hand = Made::default();
    let inode = Lock { name: "inode.i_rwsem".into(), object: None, naming: Naming::SlabField, detail: String::new() };
    let user = Lock { name: "server:lock".into(), object: None, naming: Naming::UserSymbol, detail: String::new() };
    let group = Lock { name: "task_group.lock".into(), ..inode.clone() };
    let inode = by_hand.named_lock(inode, Kind::Rwsem, Mode::Write);
    let group = by_hand.named_lock(group, Kind::Spin, Mode::Exclusive);
    let user = by_hand.named_lock(user, Kind::Mutex, Mode::Exclusive);
    let variable = by_hand.lock("rename_lock", Kind::Spin, Mode::Exclusive);
    let mut known = |kind: &str, device: Option<&str>| {
        let filesystem = Filesystem { kind: kind.into(), device: device.map(str::to_owned) };
        OfFilesystem::Known(by_hand.0.tables.intern_filesystem(filesystem))
    };
    let (ext4, cgroup2) = (known("ext4", Some("vda")), known("cgroup2", None));
    let dangling = OfFilesystem::Known(FilesystemId(9));
    let site = by_hand.stack(&["caller"]);
    for (key, count, each_ns) in
        [(inode, 60, 1_000), (inode, 5, 100_000), (group, 8, 100), (user, 3, 10), (variable, 2, 10)]
    {
        by_hand.total(key, count, each_ns);
    }
    by_hand.total(group, 4, 5_000);
    for (key, filesystem, count) in [
        (inode, ext4, 20),
        (inode, cgroup2, 10),
        (inode, OfFilesystem::Unreadable, 5),
        (inode, OfFilesystem::NotLookedUp, 3),
        (inode, dangling, 2),
    ] {
        by_hand.sample(key, site, UNSEEN, count, 1_000);
        by_hand.0.sampled.last_mut().unwrap().filesystem = filesystem;
    }
    by_hand.sample(group, site, UNSEEN, 1, 100);
    by_hand.0.sampled.last_mut().unwrap().filesystem = OfFilesystem::None;
    // As an older lockmeter recorded it.
    by_hand.sample(user, site, UNSEEN, 1, 10);
    let report = made(&[by_hand.0], &Query::by([Dimension::Filesystem]));
    let rows: Vec<_> = report.rows.iter().map(|row| (row.filesystem.as_deref(), row.value.total_ns)).collect();
    // 60 waits by 20, 10 and 10 samples; five long waits were not sampled. Of one sample that belongs to none neither do the rest.
    let none_ns = 8 * 100 + 4 * 5_000 + 3 * 10 + 2 * 10;
    let expected =
        [(Some("unknown"), 515_000), (Some("ext4 (vda)"), 30_000), (None, none_ns), (Some("cgroup2"), 15_000)];
    assert_eq!(rows, expected);
    assert!(report.rows.iter().all(|row| row.estimated));
    assert_eq!(report.losses.get(Loss::DanglingReference), 1);
}

/// Makes sure that only a lock of the kernel that spins may be waited for by anything but a task, and that what an older
/// lockmeter did not note is not known.
#[test]
fn waits_are_told_apart_by_what_waited() {
    let mut by_hand = Made::default();
    let user = Lock { name: "server:lock".into(), object: None, naming: Naming::UserSymbol, detail: String::new() };
    let user = by_hand.named_lock(user, Kind::Rwlock, Mode::Read);
    let spin = by_hand.lock("sock.sk_lock", Kind::Spin, Mode::Exclusive);
    let mutex = by_hand.lock("rtnl_mutex", Kind::Mutex, Mode::Exclusive);
    let waits = [
        (spin, Some(Context::Softirq), 1_000),
        (spin, Some(Context::Hardirq), 100),
        (spin, Some(Context::Nmi), 1),
        (spin, Some(Context::Task), 10),
        (spin, None, 10_000),
        (mutex, None, 30),
        (user, None, 3),
    ];
    for (key, context, each_ns) in waits {
        by_hand.total(Key { context, ..key }, 1, each_ns);
    }
    let hold = Key { happened: Happened::Hold, ..spin };
    by_hand.total(hold, 5, 7);
    let report = made(&[by_hand.0], &Query::by([Dimension::Context]));
    let rows: Vec<_> = report.rows.iter().map(|row| (row.happened, row.context, row.value.total_ns)).collect();
    let expected = [
        (Happened::Wait, None, 10_000),
        (Happened::Wait, Some(Context::Softirq), 1_000),
        (Happened::Wait, Some(Context::Hardirq), 100),
        (Happened::Wait, Some(Context::Task), 43),
        (Happened::Hold, None, 35),
        (Happened::Wait, Some(Context::Nmi), 1),
    ];
    assert_eq!(rows, expected);
    // The waits of these holds are in five rows.
    assert_eq!(report.rows[4].contended, None);
}

#[test]
fn a_lock_is_known_by_the_best_that_any_interval_knew() {
    let lock = |object: Option<&str>, naming, detail: &str| {
        let mut interval = Made::default();
        let lock = Lock { name: "inode.i_rwsem".into(), object: object.map(Into::into), naming, detail: detail.into() };
        let key = interval.named_lock(lock, Kind::Rwsem, Mode::Write);
        interval.total(key, 1, 1_000);
        interval.0
    };
    let intervals = [
        lock(None, Naming::InferredSite, "from its callers"),
        lock(Some("ext4_inode_info"), Naming::SlabField, "ext4_inode_cache"),
    ];
    let by_lock = made(&intervals, &Query::by([Dimension::Lock]));
    assert_eq!(by_lock.rows.len(), 1);
    assert_eq!(by_lock.rows[0].naming, Some(Naming::SlabField));
    assert_eq!(by_lock.rows[0].naming_detail.as_deref(), Some("ext4_inode_cache"));
    let by_object = made(&intervals, &Query::by([Dimension::Object]));
    assert_eq!(by_object.rows.len(), 1);
    assert_eq!(by_object.rows[0].object.as_deref(), Some("ext4_inode_info"));
}

/// Makes sure that a chain goes on with the hold that was waited for, not with the same thread's one right before, and that its
/// length counts holds that overlap once.
#[test]
fn a_chain_goes_on_with_the_hold_that_the_waiter_slept_through() {
    const MS: u64 = 1_000_000;
    let mut made_by_hand = Made::default();
    let outer = made_by_hand.lock("outer", Kind::Mutex, Mode::Exclusive);
    let outer = made_by_hand.task(outer, "waiter", false);
    let inner = made_by_hand.lock("inner", Kind::Mutex, Mode::Exclusive);
    let inner = made_by_hand.task(inner, "holder", false);
    let (waiter_tid, holder_tid) = (1, 2);
    let mut hold = |key: Key, tid, begin_ms: u64, end_ms: u64, next| {
        made_by_hand.0.slow_holds.push(SlowHold {
            end_unix_ns: START_UNIX_NS + end_ms * MS,
            total_ns: (end_ms - begin_ms) * MS,
            lock: key.lock,
            kind: Kind::Mutex,
            mode: Mode::Exclusive,
            task: key.task.unwrap(),
            tid,
            site: None,
            holder: HolderTime::default(),
            next,
        });
    };
    hold(inner, holder_tid, 0, 100, None);
    let waited_for = NextLock {
        lock: inner.lock,
        kind: Kind::Mutex,
        mode: Mode::Exclusive,
        waited_ns: 95 * MS,
        task: inner.task,
        tid: holder_tid,
    };
    hold(outer, waiter_tid, 101, 201, Some(waited_for));
    hold(inner, holder_tid, 102, 199, None);
    let report = made(&[made_by_hand.0], &Query::default());
    let row = report.slow_holds.iter().find(|row| row.chain.len() > 1).unwrap();
    let lengths: Vec<u64> = row.chain.iter().map(|link| link.total_ns / MS).collect();
    assert_eq!((lengths, row.span_ns / MS), (vec![100, 97], 100));
}

#[test]
fn a_filter_chooses_rows_and_leaves_the_head_alone() {
    let intervals: Vec<_> = (0..3).map(|nth| interval(nth, synthetic::REALISTIC)).collect();
    let all = made(&intervals, &Query::by([Dimension::Lock]));
    let query =
        Query { lock: Some(NamePattern::from("object_3*")), kind: Some(Kind::Spin), ..Query::by([Dimension::Lock]) };
    let some = made(&intervals, &query);
    assert_eq!((some.waits, &some.worst), (all.waits, &all.worst));
    let wanted = |row: &&Row| row.lock.as_ref().unwrap().starts_with("object_3") && row.kind == Some(Kind::Spin);
    assert_eq!(some.rows, all.rows.iter().filter(wanted).cloned().collect::<Vec<_>>());
    assert!(!some.rows.is_empty());
}

#[test]
fn a_window_takes_the_intervals_in_it() {
    let intervals: Vec<_> = (0..10).map(|nth| interval(nth, synthetic::SMALL)).collect();
    let report = made(&intervals, &Query { window: Some((2 * SECOND_NS, 5 * SECOND_NS)), ..Query::default() });
    assert_eq!((report.intervals, report.duration_ns), (3, 3 * SECOND_NS));
    assert_eq!(report.start_unix_ns, START_UNIX_NS + 2 * SECOND_NS);
}

/// Regression: a window began when the file was made, up to 39 s before anything was metered.
#[test]
fn a_window_counts_from_when_metering_began() {
    let intervals: Vec<_> = (0..10).map(|nth| interval(nth, synthetic::SMALL)).collect();
    let about = About { start_unix_ns: START_UNIX_NS - 39 * SECOND_NS, ..about() };
    let in_window = |window| report(&about, intervals.iter().cloned(), &Query { window, ..Query::default() });
    let some = in_window(Some((2 * SECOND_NS, 5 * SECOND_NS)));
    assert_eq!((some.intervals, some.start_unix_ns), (3, START_UNIX_NS + 2 * SECOND_NS));
    let none = in_window(Some((20 * SECOND_NS, 30 * SECOND_NS)));
    assert_eq!((none.intervals, none.start_unix_ns), (0, START_UNIX_NS + 20 * SECOND_NS));
}

#[test]
fn samples_that_point_nowhere_are_counted_and_do_no_harm() {
    let mut made_by_hand = Made::default();
    let key = made_by_hand.lock("rtnl_mutex", Kind::Mutex, Mode::Exclusive);
    let lost = Key { lock: lockmeter_profile::LockId(99), ..key };
    made_by_hand.total(lost, 1, 1_000);
    made_by_hand.total(Key { task: Some(lockmeter_profile::TaskId(99)), ..key }, 1, 1_000);
    made_by_hand.sample(key, StackId(99), UNSEEN, 1, 1_000);
    for by in groupings() {
        let report = made(std::slice::from_ref(&made_by_hand.0), &Query::by(by));
        assert_eq!(report.losses.get(Loss::DanglingReference), 3);
        assert_eq!(sum(&report.rows).count, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn rows_add_up_to_the_exact_totals_however_they_are_grouped(
        seed in 0u64..1 << 20, locks in 1u64..8, stacks in 0u64..40, totals in 1u64..60,
    ) {
        let size = Size { locks, stacks, frames_per_stack: 4, totals };
        let intervals: Vec<_> = (0..3).map(|nth| interval(seed * 8 + nth, size)).collect();
        for by in groupings() {
            let report = made(&intervals, &Query { include_own: true, ..Query::by(by.clone()) });
            let (own, others): (Vec<_>, Vec<_>) = report.rows.iter().partition(|row| row.own);
            prop_assert_eq!(without_max(sum(others)), without_max(report.waits), "by {:?}", &by);
            prop_assert_eq!(without_max(sum(own)), without_max(report.own_waits), "by {:?}", &by);
            for row in &report.rows {
                let (count, total_ns) = row.histogram.iter().fold((0, 0), |(c, t), (_, count, ns)| (c + count, t + ns));
                // What only samples have met is in no bucket.
                let spun = row.sampled_spin.as_deref().copied().unwrap_or_default();
                let parked_ns = row.parked.as_deref().map_or(0, |parked| parked.total_ns);
                let counted_ns = row.value.total_ns - spun.added_ns - parked_ns;
                let spin_ns = row.value.spin_ns - spun.total_ns;
                let counted = Value { total_ns: counted_ns, spin_ns, ..row.value };
                prop_assert_eq!((count, total_ns), (counted.count, counted.total_ns));
                prop_assert!(counted.spin_ns <= counted.total_ns);
                // A blocker or root also has time of waits that count for others.
                let is_of_parts = row.blocker.is_some() || row.root.is_some();
                prop_assert!(counted.mean_ns() <= counted.max_ns || is_of_parts, "by {:?}: {:?}", &by, row);
                prop_assert!(row.p50_ns <= row.p99_ns && row.p99_ns <= row.value.max_ns);
            }
            prop_assert!(report.rows.is_sorted_by_key(|row| std::cmp::Reverse(row.value.total_ns)));
        }
    }

    /// Makes sure that rows are the same whether or not a head is made with them.
    #[test]
    fn rows_alone_are_those_of_the_whole_report(seed in 0u64..1 << 20) {
        let size = Size { locks: 6, stacks: 30, frames_per_stack: 3, totals: 50 };
        let intervals: Vec<_> = (0..3).map(|nth| interval(seed * 8 + nth, size)).collect();
        let lock = &intervals[0].tables.locks()[0].name;
        for by in groupings() {
            let all = Query { include_own: true, ..Query::by(by.clone()) };
            let of_lock = Query { lock: Some(NamePattern::exactly(lock)), ..Query::by(by.clone()) };
            for query in [all, of_lock] {
                let mut rows = ReportBuilder::of_rows(&about(), &query);
                intervals.iter().for_each(|interval| rows.add(interval));
                prop_assert_eq!(rows.finish().rows, made(&intervals, &query).rows, "by {:?}", &by);
            }
        }
    }

    #[test]
    fn the_order_of_the_intervals_does_not_matter(seed in 0u64..1 << 20, shift in 1usize..5) {
        let size = Size { locks: 6, stacks: 30, frames_per_stack: 3, totals: 50 };
        let mut intervals: Vec<_> = (0..5).map(|nth| interval(seed * 8 + nth, size)).collect();
        let mut shifted = intervals.clone();
        shifted.rotate_left(shift);
        intervals.reverse();
        for by in groupings() {
            prop_assert_eq!(made(&intervals, &Query::by(by.clone())), made(&shifted, &Query::by(by)));
        }
    }
}

#[test]
fn a_report_can_be_looked_at_while_it_grows() {
    let mut builder = ReportBuilder::new(&about(), &Query::by([Dimension::Lock]));
    builder.add(&interval(0, synthetic::SMALL));
    let first = builder.report();
    builder.add(&interval(1, synthetic::SMALL));
    assert_eq!(first.intervals, 1);
    assert_eq!(builder.finish().intervals, 2);
}

#[test]
fn absurd_numbers_from_a_forged_file_give_a_report_all_the_same() {
    let mut made_by_hand = Made::default();
    let key = made_by_hand.lock("rtnl_mutex", Kind::Mutex, Mode::Exclusive);
    let site = made_by_hand.stack(&["caller"]);
    let most = Value { count: u64::MAX, total_ns: u64::MAX, max_ns: 1, spin_ns: u64::MAX };
    for bucket in [Bucket(0), Bucket(63), Bucket(255)] {
        let key = Key { bucket, ..key };
        let sampled = Sampled {
            key,
            instance: None,
            filesystem: OfFilesystem::NotLookedUp,
            site: Some(site),
            blocker: UNSEEN,
            stacks: u64::MAX,
            estimate: most,
        };
        for value in [most, Value { count: 0, ..most }, Value { total_ns: 0, ..most }] {
            made_by_hand.0.totals.push(Total { key, value });
        }
        made_by_hand.0.sampled.extend([sampled, Sampled { site: None, ..sampled }]);
    }
    made_by_hand.0.start_unix_ns = u64::MAX;
    made_by_hand.0.duration_ns = u64::MAX;
    for by in groupings() {
        let _ = made(&vec![made_by_hand.0.clone(); 2], &Query::by(by));
    }
}

#[test]
fn what_a_program_was_switched_off_for_is_taken_off_the_time_of_its_own_locks_alone() {
    let mut made = Made::default();
    let user = |name: &str| Lock { name: name.into(), object: None, naming: Naming::UserSymbol, detail: String::new() };
    let of_kernel = made.lock("kernel", Kind::Mutex, Mode::Exclusive);
    let own = made.named_lock(user("own"), Kind::Mutex, Mode::Exclusive);
    let shared = made.named_lock(user("shared"), Kind::Mutex, Mode::Exclusive);
    let both = [7, 8].map(|tgid| Some(made.0.tables.intern_task(Task { tgid, comm: "worker".into(), own: false })));
    made.total(Key { task: both[0], ..of_kernel }, 1, 1_000);
    made.total(Key { task: both[0], ..own }, 1, SECOND_NS / 4);
    made.total(Key { task: both[0], ..shared }, 1, 2_000);
    made.total(Key { task: both[1], ..shared }, 1, 2_000);
    made.0.off.add(7, SECOND_NS / 2);
    made.0.off.all_ns = SECOND_NS / 10;
    let by = |dimension| report(&about(), [made.0.clone()].into_iter(), &Query::by([dimension]));
    let by_lock = by(Dimension::Lock);
    let off_ns = |name: &str| by_lock.rows.iter().find(|row| row.lock.as_deref() == Some(name)).unwrap().off_ns;
    assert_eq!(["kernel", "own", "shared"].map(off_ns), [0, SECOND_NS / 2, SECOND_NS / 10]);
    // A quarter of a second in nine tenths of one, and what was waited in the kernel in all of it.
    let each_s = by_lock.waited_rate(|waits| waits.total_ns, SECOND_NS);
    assert_eq!(each_s, Some((SECOND_NS / 4 + 4_000) * 10 / 9 + 1_000));
    assert_eq!(by(Dimension::Kind).rows[0].off_ns, 0, "the kernel's locks are in this row, too");
}

#[test]
fn rows_by_mode_tell_readers_from_writers_of_all_locks() {
    let mut made = Made::default();
    for (lock, read_ns, written_ns) in [("one", 1_000, 20_000), ("other", 300_000, 4_000_000)] {
        let reading = made.lock(lock, Kind::Rwsem, Mode::Read);
        let writing = made.lock(lock, Kind::Rwsem, Mode::Write);
        made.total(reading, 1, read_ns);
        made.total(writing, 1, written_ns);
    }
    let by_mode = report(&about(), [made.0].into_iter(), &Query::by([Dimension::Mode]));
    let rows: Vec<_> = by_mode.rows.iter().map(|row| (row.mode, row.lock.as_deref(), row.value.total_ns)).collect();
    assert_eq!(rows, [(Some(Mode::Write), None, 4_020_000), (Some(Mode::Read), None, 301_000)]);
}

#[test]
fn holds_that_were_counted_in_windows_have_the_rates_of_the_windows() {
    let mut made = Made::default();
    let hold = |key: Key| Key { happened: Happened::Hold, ..key };
    let hooked = made.lock("hooked", Kind::Rwsem, Mode::Write);
    let traced = made.lock("traced", Kind::Mutex, Mode::Exclusive);
    made.total(hold(hooked), 30, 30_000);
    made.total(hooked, 12, 3_000);
    made.total(hold(traced), 40, 4_000);
    made.total(traced, 12, 3_000);
    made.0.off.holds.insert(Kind::Rwsem, SECOND_NS * 3 / 4);
    let report = report(&about(), [made.0.clone()].into_iter(), &Query::by([Dimension::Lock]));
    let of = |name: &str, happened| {
        let row = report.rows.iter().find(|row| row.lock.as_deref() == Some(name) && row.happened == happened).unwrap();
        (row.off_ns, row.contended)
    };
    assert_eq!(of("hooked", Happened::Wait), (0, None), "waits are counted all the time");
    assert_eq!(
        of("hooked", Happened::Hold),
        (SECOND_NS * 3 / 4, Some(3)),
        "a quarter of the waits were in the windows"
    );
    assert_eq!(of("traced", Happened::Hold), (0, Some(12)), "of another kind");
}

/// Makes sure that figures by CPU are those of the lock, divided; that only of locks that spin a share of contended acquisitions is given,
/// for a sleeper may release on another CPU; and that what was not kept apart is its own row.
#[test]
fn waits_and_holds_are_told_apart_by_cpu() {
    let mut by_hand = Made::default();
    let spin = by_hand.lock("rq.__lock", Kind::Spin, Mode::Exclusive);
    let mutex = by_hand.lock("rtnl_mutex", Kind::Mutex, Mode::Exclusive);
    for (cpu, waits, holds) in [(Some(0), 1, 10), (Some(3), 2, 40), (None, 5, 50)] {
        for key in [spin, mutex] {
            by_hand.total(Key { cpu, ..key }, waits, 100);
            by_hand.total(Key { cpu, happened: Happened::Hold, ..key }, holds, 1);
        }
    }
    let report = made(&[by_hand.0], &Query::by([Dimension::Lock, Dimension::Cpu]));
    let of = |lock: &str, happened: Happened| -> Vec<_> {
        let is_asked = |row: &&Row| row.lock.as_deref() == Some(lock) && row.happened == happened;
        let mut rows: Vec<_> =
            report.rows.iter().filter(is_asked).map(|row| (row.cpu, row.value.count, row.contended)).collect();
        rows.sort_unstable();
        rows
    };
    for lock in ["rq.__lock", "rtnl_mutex"] {
        assert_eq!(of(lock, Happened::Wait), [(None, 5, None), (Some(0), 1, None), (Some(3), 2, None)]);
    }
    assert_eq!(of("rq.__lock", Happened::Hold), [(None, 50, Some(5)), (Some(0), 10, Some(1)), (Some(3), 40, Some(2))]);
    assert_eq!(of("rtnl_mutex", Happened::Hold), [(None, 50, None), (Some(0), 10, None), (Some(3), 40, None)]);
}

/// A kernel lock whose holds `read` ended in 60 cases, and `seek` in 40; of 50 longer ones there is no stack. Of the acquisitions `waits` were
/// contended. Of those whose hold was timed, which stand for `contended`, `without_stack` were as long as the 50, and half of the others
/// ended in `last`.
fn holds_by_caller(waits: u64, contended: u64, without_stack: u64, last: &str) -> Made {
    let mut made = Made::default();
    let wait = made.lock("file.f_pos_lock", Kind::Mutex, Mode::Exclusive);
    let [hold, late] = [Happened::Hold, Happened::ContendedAcquisition].map(|happened| Key { happened, ..wait });
    let [read, seek, waiter, last] = ["read", "seek", "waiter", last].map(|name| made.stack(&[name]));
    made.total(hold, 100, 1_000);
    made.total(hold, 50, 9_000);
    made.sample(hold, read, UNSEEN, 6, 1_000);
    made.sample(hold, seek, UNSEEN, 4, 1_000);
    if waits > 0 {
        made.total(wait, waits, 50_000);
        made.sample(wait, waiter, UNSEEN, 1, 50_000);
    }
    if contended > without_stack {
        made.total(late, contended - without_stack, 1_000);
        made.sample(late, seek, UNSEEN, 1, 1_000);
        made.sample(late, last, UNSEEN, 1, 1_000);
    }
    if without_stack > 0 {
        made.total(late, without_stack, 9_000);
    }
    made
}

/// Makes sure that the contended acquisitions of a kernel lock are shared out among the callers that ended their holds, that those of which
/// no stack was taken count for all callers alike, that nothing is said where there are too few stacks or none, and that no row is made of
/// what only says so.
#[test]
fn contended_acquisitions_of_a_kernel_lock_go_by_the_callers_that_ended_their_holds() {
    let contended = |made: Made| {
        let report = self::made(&[made.0], &Query::by([Dimension::Lock, Dimension::Caller]));
        let of = |caller: &[&str]| {
            let is_asked = |row: &&Row| {
                let functions = row.caller.as_ref().unwrap();
                row.happened == Happened::Hold && functions.iter().map(|name| &**name).eq(caller.iter().copied())
            };
            report.rows.iter().find(is_asked).unwrap().contended
        };
        assert!(report.rows.iter().all(|row| row.happened != Happened::ContendedAcquisition), "{:#?}", report.rows);
        [of(&["read"]), of(&["seek"]), of(&[])]
    };
    assert_eq!(contended(holds_by_caller(30, 20, 0, "seek")), [Some(0), Some(30), Some(0)]);
    assert_eq!(contended(holds_by_caller(30, 20, 0, "read")), [Some(15), Some(15), Some(0)]);
    // Of `last` no hold was sampled: its holds are among those without a stack.
    assert_eq!(contended(holds_by_caller(30, 20, 0, "last")), [Some(0), Some(15), Some(15)]);
    assert_eq!(contended(holds_by_caller(30, 20, 8, "seek")), [Some(5), Some(21), Some(4)]);
    assert_eq!(contended(holds_by_caller(30, 20, 12, "seek")), [None; 3], "of most there is no stack");
    assert_eq!(contended(holds_by_caller(30, 0, 0, "seek")), [None; 3], "an older recording");
    assert_eq!(contended(holds_by_caller(0, 0, 0, "seek")), [Some(0); 3], "nobody waited");
    assert_eq!(
        contended(holds_by_caller(50, 20, 0, "seek")),
        [Some(0), Some(40), Some(0)],
        "no more than acquisitions"
    );
    let mut in_windows = holds_by_caller(30, 20, 0, "seek");
    in_windows.0.off.holds.insert(Kind::Mutex, SECOND_NS * 2 / 3);
    assert_eq!(contended(in_windows), [Some(0), Some(10), Some(0)], "a third of the waits were in the windows");
}
