//! Where the threads' time went and who waits still, as text and as JSON.

use std::collections::BTreeMap;

use lockmeter_profile::{
    Happened, Kind, OpenWaitRow, Report, RowHolder, RowWaker, SampledSpin, SleepRow, SpinLoop, SpinRow, StateTime,
    ThreadState, ThreadsReport,
};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::grid::{Grid, GridColumn, GridRow};
use crate::json::object;
use crate::stacks::{chain, without_long_arguments};
use crate::units::{MILLION, counted, duration, ratio, share, thousandths};

/// Places below this share of the threads' time have no row of their own, in millionths.
const SMALLEST_PPM: u64 = 10_000;

/// Rows of places where threads were blocked.
const MOST_PLACES: usize = 8;

/// Groups of waits that go on.
const MOST_WAITS: usize = 10;

/// What a thread does, in words that follow "for" or stand alone.
pub const fn words(state: ThreadState) -> &'static str {
    match state {
        ThreadState::Running => "running",
        ThreadState::Runnable => "runnable",
        ThreadState::Woken => "woken, not running yet",
        ThreadState::KernelLock => "kernel lock",
        ThreadState::UserLock => "user lock",
        ThreadState::Condition => "condition or semaphore",
        ThreadState::FileLock => "file lock",
        ThreadState::DiskIo => "disk or file system",
        ThreadState::PageFault => "page fault",
        ThreadState::NetworkOrPoll => "network or poll",
        ThreadState::PipeOrSocket => "pipe or local socket",
        ThreadState::Sleep => "sleep",
        ThreadState::Child => "child process",
        ThreadState::Other => "other",
        ThreadState::Futex => "futex of unknown use",
        ThreadState::Reclaim => "memory reclaim",
    }
}

/// How many threads on average this time of theirs is, in thousandths.
fn mean_thousandths(threads: &ThreadsReport, ns: u64) -> u64 {
    ratio(ns, 1_000, threads.watched_ns)
}

/// One sentence: how many threads, and what they did.
pub(crate) fn budget(report: &Report, threads: &ThreadsReport) -> Option<String> {
    let mean = mean_thousandths(threads, threads.total_ns);
    let part = |ns: u64| share(ratio(ns, MILLION, threads.total_ns));
    (threads.total_ns > 0).then(|| {
        let waiting_ns = threads.spent_ns(|state| matches!(state, ThreadState::Runnable | ThreadState::Woken));
        let blocked_ns = threads.spent_ns(ThreadState::is_blocked).saturating_add(threads.rest_ns);
        let reasons = threads.states.iter().filter(|time| time.state.is_blocked());
        let reasons = reasons.filter(|time| ratio(time.total_ns, MILLION, threads.total_ns) >= SMALLEST_PPM / 10);
        let mut reasons: Vec<String> =
            reasons.map(|time| format!("{} {}", part(time.total_ns), with_error(time, threads))).collect();
        if threads.rest_ns > 0 {
            reasons.push(format!("{} at rest", part(threads.rest_ns)));
        }
        let colon = if reasons.is_empty() { "" } else { ": " };
        format!(
            "the time of {} threads: {} running{}, {} waiting for a CPU, {} blocked{colon}{}{}",
            thousandths(mean),
            part(threads.spent_ns(|state| state == ThreadState::Running)),
            spinning(report, threads),
            part(waiting_ns),
            part(blocked_ns),
            reasons.join(", "),
            own_locks(threads)
        )
    })
}

/// How much of the running was spinning, in brackets; nothing if it was hardly any.
fn spinning(report: &Report, threads: &ThreadsReport) -> String {
    let part = |ns: u64| ratio(ns, MILLION, threads.total_ns);
    let words = |ns: u64, error_ns: u64| match part(error_ns) {
        // Below what is printed of the share.
        0..1_000 => share(part(ns)),
        error_ppm => format!("{} (± {})", share(part(ns)), share(error_ppm)),
    };
    // Of programs' locks, sampled or counted from inside: for the kernel's, threads spin that are not among these.
    let spun_ns = report.user_waits.spin_ns;
    let for_locks = words(spun_ns, report.spinning.sampled_error_ns());
    let others = threads.spun(|row| row.happened != Some(Happened::Wait));
    let other = words(others.total_ns, others.error_ns());
    let is_notable = |ns: u64| part(ns) >= SMALLEST_PPM / 10;
    match (is_notable(spun_ns), is_notable(others.total_ns)) {
        (true, true) => format!(" ({for_locks} spinning for locks, {other} for something else or not known)"),
        (true, false) => format!(" ({for_locks} spinning for locks)"),
        (false, true) => format!(" ({other} spinning, for something else than locks or not known)"),
        (false, false) => String::new(),
    }
}

/// In what kind of loop threads were, in words that follow "for".
fn spins_for(row: &SpinRow) -> String {
    match (&row.lock, row.kind, row.how) {
        (Some(lock), _, _) => without_long_arguments(lock).into_owned(),
        (None, Some(kind), _) => kind.to_string(),
        (None, None, SpinLoop::Pause) => "? (loop with `pause`)".to_owned(),
        (None, None, SpinLoop::Yield) => "? (loop of sched_yield)".to_owned(),
        (None, None, SpinLoop::Sleep) => "? (loop of short sleeps)".to_owned(),
        (None, None, SpinLoop::Function) => "?".to_owned(),
    }
}

/// The places where threads spun, longest first; `None` if there are none worth a row.
pub(crate) fn spin_sites(threads: &ThreadsReport, frames: usize) -> Option<Grid> {
    let part = |ns: u64| ratio(ns, MILLION, threads.total_ns);
    let mut places = Vec::<(String, &str, String, SampledSpin)>::new();
    for row in &threads.spins {
        let (what_for, stack) = (spins_for(row), chain(&row.stack, frames.max(1)));
        let same = |place: &&mut (String, &str, String, SampledSpin)| {
            (&place.0, place.1, &place.2) == (&what_for, row.comm.as_str(), &stack)
        };
        match places.iter_mut().find(same) {
            Some((.., spun)) => spun.merge(&row.spun),
            None => places.push((what_for, &row.comm, stack, row.spun)),
        }
    }
    places.sort_by_key(|(.., spun)| std::cmp::Reverse(spun.total_ns));
    places.retain(|(.., spun)| part(spun.total_ns) >= SMALLEST_PPM);
    places.truncate(MOST_PLACES);
    if places.is_empty() {
        return None;
    }
    let rows = places.into_iter().map(|(what_for, comm, stack, spun)| GridRow {
        cells: [
            duration(spun.total_ns),
            share(part(spun.total_ns)),
            share(part(spun.error_ns())),
            what_for,
            comm.to_owned(),
        ]
        .into_iter()
        .collect(),
        below: vec![stack],
    });
    Some(Grid { columns: place_columns("SPUN"), rows: rows.collect() })
}

fn place_columns(how_long: &str) -> Vec<GridColumn> {
    let column = |heading: &str, right: bool| GridColumn {
        heading: heading.to_owned(),
        right,
        expendable: None,
        may_be_cut: false,
    };
    vec![
        column(how_long, true),
        column("% OF TIME", true),
        column("±", true),
        column("FOR", false),
        column("THREAD", false),
    ]
}

/// What threads waited for most, if that is a lock which a program has built of something else than a futex: the tables of locks have at
/// most the waits for it that went on at the end.
fn worst_own_lock(report: &Report, threads: &ThreadsReport) -> Option<String> {
    let (lock, total_ns) = most_waited_own_lock(threads)?;
    let worst = report.worst.as_ref();
    let rows = report.rows.iter().filter(|row| row.happened == Happened::Wait && row.lock.as_deref() == Some(lock));
    let in_table_ns = rows.map(|row| row.value.total_ns).fold(0, u64::saturating_add);
    let is_in_table = in_table_ns >= total_ns / 2;
    let is_worst = !is_in_table && worst.is_none_or(|worst| worst.value.total_ns < total_ns);
    let mean = mean_thousandths(threads, total_ns);
    (is_worst && ratio(total_ns, MILLION, threads.total_ns) >= SMALLEST_PPM).then(|| {
        format!(
            "threads waited most for {}, {} of them on average; {}",
            with_article(lock),
            thousandths(mean),
            match in_table_ns {
                0 => "it is not in the table of locks".to_owned(),
                _ => format!("the table of locks has {} of that", share(ratio(in_table_ns, MILLION, total_ns))),
            }
        )
    })
}

/// What threads waited for most, if that is a kind of locks of which the table has hardly any wait: it has no locks on files, and of others
/// those waits that have ended.
fn worst_unseen(report: &Report, threads: &ThreadsReport) -> Option<String> {
    let timed_out_ns = report.timed_out.as_ref().map_or(0, |timed_out| timed_out.all.total_ns);
    let in_table_ns = report.user_waits.total_ns.saturating_add(timed_out_ns);
    let kinds = [
        (ThreadState::FileLock, 0, "file locks", "the table of locks has no waits for these"),
        (
            ThreadState::UserLock,
            in_table_ns,
            "locks of programs",
            "these waits were interrupted, or their end was not seen",
        ),
    ];
    let times =
        kinds.into_iter().filter_map(|kind| Some((threads.states.iter().find(|time| time.state == kind.0)?, kind)));
    let (time, (_, in_table_ns, what_for, why)) = times.max_by_key(|(time, _)| time.total_ns)?;
    // Looks tell locks of programs from conditions.
    let least_ns = time.total_ns.saturating_sub(time.error_ns);
    let is_unseen = in_table_ns < least_ns / 2 && least_ns > report.waits.total_ns.max(timed_out_ns);
    let is_notable = ratio(least_ns, MILLION, threads.total_ns) >= SMALLEST_PPM;
    // Reports that have left locks out have less than threads waited for.
    (is_unseen && is_notable && !report.leaves_locks_out && alarm(threads).is_none()).then(|| {
        let mean = thousandths(mean_thousandths(threads, time.total_ns));
        format!("threads waited most for {what_for}, {mean} of them on average; {why}")
    })
}

/// For how long threads waited at rest for locks.
pub(crate) fn turns_ns(threads: &ThreadsReport) -> u64 {
    turns(threads).fold(0, |sum: u64, row| sum.saturating_add(row.total_ns))
}

fn turns(threads: &ThreadsReport) -> impl Iterator<Item = &SleepRow> {
    threads.sleeps.iter().filter(|row| row.at_rest && row.state.is_lock())
}

/// Waits for a lock that count as rest. Who takes turns at one source of work waits so, but who needs a lock that is held by a reader
/// does as well, and nothing tells one from the other for sure.
fn waits_at_rest(threads: &ThreadsReport) -> Option<String> {
    let ns = turns_ns(threads);
    let most = turns(threads).max_by_key(|row| row.total_ns)?;
    (ratio(ns, MILLION, threads.total_ns) >= SMALLEST_PPM).then(|| {
        format!(
            "{} threads on average waited for a lock whose holder waited for input, mostly in {}: they count as at rest, as workers that take turns \
             do; if they do something else, this is contention",
            thousandths(mean_thousandths(threads, ns)),
            chain(&most.stack, HOLDER_FRAMES)
        )
    })
}

/// What no report has, where it would change the meaning of the rest: locks that put something else to sleep than threads.
fn out_of_sight(report: &Report, threads: &ThreadsReport) -> Option<String> {
    // Every thread of Go's is in one of these when it has no goroutine to run.
    const OF_GO: [&str; 3] = ["runtime.mPark", "runtime.stopm", "runtime.findRunnable"];
    let is_of_go = |row: &&SleepRow| row.stack.iter().any(|function| OF_GO.contains(&&**function));
    let row = threads.sleeps.iter().find(is_of_go).filter(|_| report.goroutines.looks == 0)?;
    Some(format!(
        "waits of goroutines are not seen: Go's mutexes, channels and wait groups put goroutines of {} to sleep, not threads",
        row.comm
    ))
}

fn most_waited_own_lock(threads: &ThreadsReport) -> Option<(&str, u64)> {
    let mut locks = BTreeMap::<&str, u64>::new();
    for row in threads.sleeps.iter().filter(|row| !row.at_rest) {
        if let Some(lock) = &row.lock {
            let sum = locks.entry(lock).or_default();
            *sum = sum.saturating_add(row.total_ns);
        }
    }
    locks.into_iter().max_by_key(|(_, total_ns)| *total_ns)
}

/// The lock that a program has built for itself for which threads were blocked most.
fn own_locks(threads: &ThreadsReport) -> String {
    let worst =
        most_waited_own_lock(threads).map(|(lock, total_ns)| (lock, ratio(total_ns, MILLION, threads.total_ns)));
    match worst.filter(|(_, ppm)| *ppm >= SMALLEST_PPM) {
        Some((lock, ppm)) => format!("; {} for {}", share(ppm), with_article(lock)),
        None => String::new(),
    }
}

/// "a" or "an", and the name.
fn with_article(name: &str) -> String {
    let begins_with_vowel = name.starts_with(['a', 'e', 'i', 'o', 'A', 'E', 'I', 'O']);
    format!("{} {name}", if begins_with_vowel { "an" } else { "a" })
}

/// The reason, with the error of its share where stacks tell it.
fn with_error(time: &StateTime, threads: &ThreadsReport) -> String {
    let error_ppm = ratio(time.error_ns, MILLION, threads.total_ns);
    match error_ppm {
        // Below what is printed of the share.
        0..1_000 => words(time.state).to_owned(),
        _ => format!("(± {}) {}", share(error_ppm), words(time.state)),
    }
}

/// Whether waits go on, or went on until their threads ended.
#[derive(Clone, Copy)]
enum Tense {
    Now,
    Past,
}

impl Tense {
    const fn of<'a>(self, now: &'a str, past: &'a str) -> &'a str {
        match self {
            Self::Now => now,
            Self::Past => past,
        }
    }

    const fn waits(self, threads: &ThreadsReport) -> &Vec<OpenWaitRow> {
        match self {
            Self::Now => &threads.open_waits,
            Self::Past => &threads.cut_waits,
        }
    }
}

/// Waits for one lock, with the same holder.
struct Group<'a> {
    waits: Vec<&'a OpenWaitRow>,
}

impl<'a> Group<'a> {
    fn of(waits: &'a [OpenWaitRow]) -> Vec<Self> {
        let mut groups = Vec::<Self>::new();
        let key = |wait: &OpenWaitRow| {
            let holder = wait.holder.as_ref().map(|holder| holder.tid);
            // A lock of the kernel is one for all processes.
            let process = wait.task.tgid.filter(|_| !wait.is_kernel);
            (wait.lock.clone(), wait.mode, process, wait.instance, holder, wait.deadlock)
        };
        for wait in waits {
            match groups.iter_mut().find(|group| key(group.waits[0]) == key(wait)) {
                Some(group) => group.waits.push(wait),
                None => groups.push(Self { waits: vec![wait] }),
            }
        }
        groups
    }

    fn sentence(&self, tense: Tense) -> String {
        let first = self.waits[0];
        let oldest_ns = self.waits.iter().map(|wait| wait.age_ns).max().unwrap_or(0);
        let least = if self.waits.iter().any(|wait| wait.is_older) { "at least " } else { "" };
        let who = match self.waits.as_slice() {
            [one] => {
                format!("{} {}", name(&one.task.comm, one.task.tgid, one.tid), tense.of("waits", "waited"))
            }
            many => {
                let threads = counted(many.len() as u64, "thread", "threads");
                let whose =
                    if first.is_kernel { format!("({})", first.task.comm) } else { format!("of {}", process(first)) };
                format!("{threads} {whose} {}", tense.of("wait", "waited"))
            }
        };
        let longest = if self.waits.len() > 1 { ", the longest" } else { "" };
        let timed = if self.waits.iter().all(|wait| wait.is_timed) { ", with a time limit" } else { "" };
        format!(
            "{who} for {} ({}, {}){longest} for {least}{}{timed}{}",
            without_long_arguments(&first.lock),
            first.kind,
            first.mode,
            duration(oldest_ns),
            match (&first.holder, first.ended_holder) {
                (Some(holder), _) => format!("; {}", holder_words(holder, tense)),
                (None, Some(tid)) => format!("; thread {tid} had it when it ended"),
                (None, None) => String::new(),
            }
        )
    }
}

fn name(comm: &str, tgid: Option<u32>, tid: u32) -> String {
    match tgid {
        Some(tgid) if tgid != tid => format!("{comm} (thread {tid} of process {tgid})"),
        _ => format!("{comm} (process {tid})"),
    }
}

fn process(wait: &OpenWaitRow) -> String {
    wait.task.tgid.map_or_else(|| wait.task.comm.clone(), |tgid| format!("process {tgid}"))
}

/// Of these, three are libc's where a program sleeps by itself.
const HOLDER_FRAMES: usize = 5;

fn holder_words(holder: &RowHolder, tense: Tense) -> String {
    let who = name(&holder.task.comm, holder.task.tgid, holder.tid);
    let what = match holder.state {
        None => String::new(),
        Some(state) if !state.is_blocked() => format!(", which {} {}", tense.of("is", "was"), words(state)),
        Some(state) if holder.stack.is_empty() => {
            format!(", which {} blocked ({})", tense.of("is", "was"), words(state))
        }
        Some(_) => {
            format!(", which {} in {}", tense.of("sleeps", "slept"), chain(&holder.stack, HOLDER_FRAMES))
        }
    };
    format!("{who} {} it{what}", tense.of("has", "had"))
}

/// What a reader must know before all else, a sentence each: deadlocks and long waits, and what the table does not have.
pub(crate) fn alarms(report: &Report) -> impl Iterator<Item = String> {
    let sentences = report.threads.iter().flat_map(|threads| {
        let own = worst_own_lock(report, threads);
        let unseen = if own.is_none() { worst_unseen(report, threads) } else { None };
        [alarm(threads), own, unseen, waits_at_rest(threads), out_of_sight(report, threads)]
    });
    sentences.flatten()
}

/// What a reader must know first: threads that wait for ever, or have waited for longer than anything else here, now or until they ended;
/// `None` if nobody does.
pub(crate) fn alarm(threads: &ThreadsReport) -> Option<String> {
    alarm_of(threads, Tense::Now).or_else(|| alarm_of(threads, Tense::Past))
}

fn alarm_of(threads: &ThreadsReport, tense: Tense) -> Option<String> {
    let waits = tense.waits(threads);
    let in_circle: Vec<&OpenWaitRow> = waits.iter().filter(|wait| wait.deadlock == Some(0)).collect();
    if !in_circle.is_empty() {
        let circles = waits.iter().filter_map(|wait| wait.deadlock).max().map_or(0, u64::from) + 1;
        let links = in_circle.iter().map(|wait| {
            let short = |comm: &str, tid: u32| format!("{comm} (thread {tid})");
            let holder = wait.holder.as_ref();
            let holder = holder.map_or_else(|| "another".to_owned(), |holder| short(&holder.task.comm, holder.tid));
            format!(
                "{} {} for {}, which {holder} {}",
                short(&wait.task.comm, wait.tid),
                tense.of("waits", "waited"),
                without_long_arguments(&wait.lock),
                tense.of("has", "had")
            )
        });
        let links: Vec<String> = links.collect();
        let behind = waits.iter().filter(|wait| wait.deadlock.is_none()).count() as u64;
        let until = tense.of("", " until the threads ended");
        let which =
            if circles > 1 { format!("{circles} deadlocks{until}; in one ") } else { format!("deadlock{until}: ") };
        let age_ns = in_circle.iter().map(|wait| wait.age_ns).min().unwrap_or(0);
        let least = if in_circle.iter().any(|wait| wait.is_older) { "at least " } else { "" };
        let others = match behind {
            0 => String::new(),
            many => {
                let threads = counted(many, "thread", "threads");
                let wait = tense.of(if many == 1 { "waits" } else { "wait" }, "waited");
                format!("; {threads} {wait} for a lock besides")
            }
        };
        return Some(format!("{which}{}, for {least}{}{others}", links.join(", and "), duration(age_ns)));
    }
    let groups = Group::of(waits);
    let worst = groups.iter().max_by_key(|group| group.waits.iter().map(|wait| wait.age_ns).sum::<u64>())?;
    let oldest_ns = worst.waits.iter().map(|wait| wait.age_ns).max().unwrap_or(0);
    // What has gone on for a second does not come and go.
    let how = tense.of("still waiting", "waiting until the end");
    (oldest_ns >= 1_000_000_000).then(|| format!("{how}: {}", worst.sentence(tense)))
}

/// The waits that go on, or that went on until their threads ended, with a heading: one line a group.
pub(crate) fn waits_without_end(threads: &ThreadsReport, frames: usize) -> impl Iterator<Item = (&str, Vec<String>)> {
    let of =
        move |tense: Tense| (tense.of("waiting at the end", "waiting until they ended"), waits(threads, tense, frames));
    [Tense::Now, Tense::Past].into_iter().map(of).filter(|(_, lines)| !lines.is_empty())
}

fn waits(threads: &ThreadsReport, tense: Tense, frames: usize) -> Vec<String> {
    let groups = Group::of(tense.waits(threads));
    let mut lines = Vec::new();
    for group in groups.iter().take(MOST_WAITS) {
        let first = group.waits[0];
        let mark = if first.deadlock.is_some() { "deadlock: " } else { "" };
        lines.push(format!("  {mark}{}", group.sentence(tense)));
        if !first.stack.is_empty() && frames > 0 {
            lines.push(format!("      in {}", chain(&first.stack, frames)));
        }
    }
    if groups.len() > MOST_WAITS {
        lines.push(format!("  and {} more", groups.len() - MOST_WAITS));
    }
    lines
}

/// A thread that waits now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingNow {
    /// For how long already, in words.
    pub age: String,
    /// Who waits for what, and who has it.
    pub sentence: String,
    /// Where it waits, where that is known.
    pub site: Option<String>,
}

/// What is said of one thread that waits now.
pub fn waiting_now(wait: &OpenWaitRow, frames: usize) -> WaitingNow {
    let mark = if wait.deadlock.is_some() { "deadlock: " } else { "" };
    let least = if wait.is_older { "≥ " } else { "" };
    WaitingNow {
        age: format!("{least}{}", duration(wait.age_ns)),
        sentence: format!("{mark}{}", Group { waits: vec![wait] }.sentence(Tense::Now)),
        site: (!wait.stack.is_empty() && frames > 0).then(|| format!("in {}", chain(&wait.stack, frames))),
    }
}

/// Whether threads wait for each other in a circle.
pub fn has_deadlock(threads: &ThreadsReport) -> bool {
    threads.open_waits.iter().any(|wait| wait.deadlock.is_some())
}

/// A place as it is shown: stacks that differ in outer frames alone look the same.
struct Shown<'a> {
    what_for: &'a str,
    comm: &'a str,
    stack: String,
    woken_by: Option<&'a RowWaker>,
    total_ns: u64,
    /// The square of the error, which of several is the sum of theirs.
    error_ns2: f64,
}

/// The places, longest first, those apart at which threads were at rest.
fn sites_as_shown(threads: &ThreadsReport, frames: usize) -> Vec<Shown<'_>> {
    let mut places = Vec::<Shown<'_>>::new();
    for row in threads.sleeps.iter().filter(|row| !row.at_rest) {
        let what_for = row.lock.as_deref().unwrap_or_else(|| words(row.state));
        let stack = chain(&row.stack, frames.max(1));
        let error_ns2 = (row.error_ns as f64).powi(2);
        let same =
            |place: &&mut Shown<'_>| (place.what_for, place.comm) == (what_for, &row.comm) && place.stack == stack;
        if let Some(place) = places.iter_mut().find(same) {
            place.total_ns = place.total_ns.saturating_add(row.total_ns);
            place.error_ns2 += error_ns2;
            // That of the longest stands for all.
            place.woken_by = place.woken_by.or(row.woken_by.as_ref());
        } else {
            let (comm, woken_by, total_ns) = (row.comm.as_str(), row.woken_by.as_ref(), row.total_ns);
            places.push(Shown { what_for, comm, stack, woken_by, total_ns, error_ns2 });
        }
    }
    places.sort_by_key(|place| std::cmp::Reverse(place.total_ns));
    places
}

/// The places where threads were blocked and not at rest; `None` if there are none worth a row.
pub(crate) fn sleep_sites(threads: &ThreadsReport, frames: usize) -> Option<Grid> {
    let part = |ns: u64| ratio(ns, MILLION, threads.total_ns);
    let mut shown = sites_as_shown(threads, frames);
    shown.retain(|place| part(place.total_ns) >= SMALLEST_PPM);
    shown.truncate(MOST_PLACES);
    if shown.is_empty() {
        return None;
    }
    let rows = shown.into_iter().map(|place| GridRow {
        cells: [
            duration(place.total_ns),
            share(part(place.total_ns)),
            share(part(place.error_ns2.sqrt() as u64)),
            place.what_for.to_owned(),
            place.comm.to_owned(),
        ]
        .into_iter()
        .collect(),
        below: std::iter::once(place.stack).chain(place.woken_by.map(|by| waker(by, frames))).collect(),
    });
    Some(Grid { columns: place_columns("BLOCKED"), rows: rows.collect() })
}

fn waker(by: &RowWaker, frames: usize) -> String {
    format!("    woken by {} ({}): {}", by.comm, share(by.ppm), chain(&by.stack, frames.max(1)))
}

/// All of it, for JSON.
pub(crate) struct ThreadsJson<'a>(pub &'a Report, pub &'a ThreadsReport);

impl Serialize for ThreadsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(report, threads) = self;
        let states: Vec<StateJson<'_>> = threads.states.iter().map(StateJson).collect();
        let sleeps: Vec<SleepJson<'_>> = threads.sleeps.iter().map(SleepJson).collect();
        let spins: Vec<SpinJson<'_>> = threads.spins.iter().map(SpinJson).collect();
        let waits: Vec<WaitJson<'_>> = threads.open_waits.iter().map(WaitJson).collect();
        let cut: Vec<WaitJson<'_>> = threads.cut_waits.iter().map(WaitJson).collect();
        object!(serializer, {
            "threads": mean_thousandths(threads, threads.total_ns) as f64 / 1_000.0,
            "watched_ns": threads.watched_ns,
            "total_ns": threads.total_ns,
            "rest_ns": threads.rest_ns,
            "states": states,
            "sleeps": sleeps,
            "open_waits": waits,
            "cut_waits": cut,
            "run_samples": threads.run_samples,
            "goroutine_looks": report.goroutines.looks,
            "spins": spins,
        })
    }
}

struct StateJson<'a>(&'a StateTime);

impl Serialize for StateJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = self.0;
        object!(serializer, {
            "state": time.state.name(),
            "total_ns": time.total_ns,
            "error_ns": time.error_ns,
        })
    }
}

struct WakerJson<'a>(&'a RowWaker);

impl Serialize for WakerJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let by = self.0;
        object!(serializer, {
            "thread": by.comm,
            "stack": by.stack,
            "ppm": by.ppm,
        })
    }
}

struct SleepJson<'a>(&'a SleepRow);

impl Serialize for SleepJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = self.0;
        object!(serializer, {
            "state": row.state.name(),
            "lock": row.lock,
            "at_rest": row.at_rest,
            "thread": row.comm,
            "stack": row.stack,
            "total_ns": row.total_ns,
            "error_ns": row.error_ns,
            "looks": row.looks,
            "woken_by": row.woken_by.as_ref().map(WakerJson),
        })
    }
}

struct SpinJson<'a>(&'a SpinRow);

impl Serialize for SpinJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = self.0;
        object!(serializer, {
            "loop": row.how.name(),
            "happened": row.happened.map(Happened::name),
            "kind": row.kind.map(Kind::name),
            "lock": row.lock,
            "thread": row.comm,
            "stack": row.stack,
            "total_ns": row.spun.total_ns,
            "error_ns": row.spun.error_ns(),
            "samples": row.spun.samples,
        })
    }
}

struct WaitJson<'a>(&'a OpenWaitRow);

impl Serialize for WaitJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wait = self.0;
        object!(serializer, {
            "task": wait.task.comm,
            "tgid": wait.task.tgid,
            "tid": wait.tid,
            "lock": wait.lock,
            "kind": wait.kind.name(),
            "mode": wait.mode.name(),
            "stack": wait.stack,
            "age_ns": wait.age_ns,
            "older": wait.is_older,
            "timed": wait.is_timed,
            "deadlock": wait.deadlock,
            "holder": wait.holder.as_ref().map(HolderJson),
            "ended_holder": wait.ended_holder,
        })
    }
}

struct HolderJson<'a>(&'a RowHolder);

impl Serialize for HolderJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let holder = self.0;
        object!(serializer, {
            "task": holder.task.comm,
            "tgid": holder.task.tgid,
            "tid": holder.tid,
            "state": holder.state.map(ThreadState::name),
            "stack": holder.stack,
        })
    }
}
