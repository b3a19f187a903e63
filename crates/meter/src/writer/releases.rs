//! Divides a wait among those who had the lock meanwhile: from one release to the next, the lock was the next releaser's.
//!
//! The time from the last release to the end of the wait was nobody's: the lock was free, and the waiter not yet running.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use super::pages;
use crate::layout::{
    ELSEWHERE_IS_WRITER, LOCK_PLACES, PAGE, Process, RELEASES, RELEASES_PAGES, RELEASES_PLACES, Releaser, Releases,
    SharedLock, Thread, mode, pack_release, unpack_elsewhere, unpack_release,
};

fn of(segment: &'static Process, lock: u32, takes_pages: bool) -> Option<&'static Releases> {
    const ENTRIES: usize = PAGE / size_of::<Releases>();
    // Locks that share the place of their class are many.
    let index = (lock as usize).checked_sub(1).filter(|place| *place < LOCK_PLACES)? % RELEASES_PLACES;
    let directory = core::slice::from_ref(&segment.releases);
    let page: &AtomicU32 = match takes_pages {
        true => pages::entry_or_take(segment, directory, index / ENTRIES)?,
        false => pages::entry(directory, index / ENTRIES)?,
    };
    let page = core::slice::from_ref(page);
    if takes_pages { pages::entry_or_take(segment, page, index % ENTRIES) } else { pages::entry(page, index % ENTRIES) }
}

const _: () = assert!(RELEASES_PAGES <= PAGE / size_of::<AtomicU32>(), "one page says where they are");

/// From now on the signals of the condition at this place are kept, too.
pub(super) fn keep(segment: &'static Process, condition: u32) {
    let _ = of(segment, condition, true);
}

/// A lock that somebody waits for is about to be released by this thread; or a condition, which counts if its signals
/// [are kept](keep).
pub(super) fn note(segment: &'static Process, thread: &'static Thread, (by, is_condition): (Releaser, bool), now: u64) {
    let Some(kept) = of(segment, by.lock, !is_condition) else { return };
    let number = kept.count.fetch_add(1, Relaxed) as usize;
    let place = &kept.releases[number % RELEASES];
    place.at.store(0, Relaxed);
    for (to, from) in place.past_wait.iter().zip(&thread.past_wait) {
        to.store(from.load(Relaxed), Relaxed);
    }
    place.by.store(pack_release(by), Release);
    place.at.store(now, Release);
}

/// As [`note`], of a lock that processes share, by a thread as [`pack_elsewhere`](crate::layout::pack_elsewhere) puts it; 0: it is not known.
pub(super) fn note_elsewhere(lock: &SharedLock, by: u64, is_writer: bool, now: u64) {
    let number = lock.release_count.fetch_add(1, Relaxed) as usize;
    let place = &lock.releases[number % RELEASES];
    place.at.store(0, Relaxed);
    let mark = if is_writer && by != NOBODY { ELSEWHERE_IS_WRITER } else { 0 };
    place.by.store(by | mark, Release);
    place.at.store(now, Release);
}

/// Who had the lock during a part of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Those whose releases are no longer kept.
    Earlier,
    /// A thread of this process, and whom that one waited for itself meanwhile.
    Own(Releaser, Option<Releaser>),
    /// A thread as [`pack_elsewhere`](crate::layout::pack_elsewhere) puts it.
    Elsewhere(u64),
}

/// What one holder had of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) by: By,
    pub(super) ticks: u64,
}

const PARTS: usize = 2 * RELEASES + 1;

/// The parts of a wait that holders had.
pub(super) struct Parts {
    /// By, root and ticks: packed, for there may be little room on the stack.
    parts: [[u64; 3]; PARTS],
    count: usize,
}

const NOBODY: u64 = 0;

impl Parts {
    pub(super) fn iter(&self) -> impl Iterator<Item = Part> {
        self.parts[..self.count].iter().map(|[by, root, ticks]| {
            let by = match *by {
                NOBODY => By::Earlier,
                elsewhere if unpack_elsewhere(elsewhere).is_some() => By::Elsewhere(elsewhere),
                own => By::Own(unpack_release(own), (*root != NOBODY).then(|| unpack_release(*root))),
            };
            Part { by, ticks: *ticks }
        })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Who had most of the wait, or whom that one waited for; [`NOBODY`] if that is not known.
    fn root(&self) -> u64 {
        let most = self.parts[..self.count].iter().max_by_key(|[.., ticks]| *ticks);
        most.map_or(NOBODY, |[by, root, _]| if *root == NOBODY { *by } else { *root })
    }

    fn add(&mut self, by: u64, root: u64, ticks: u64) {
        if ticks == 0 {
            return;
        }
        let known = self.parts[..self.count].iter_mut().find(|part| part[..2] == [by, root]);
        match (known, self.count) {
            (Some(part), _) => part[2] += ticks,
            (None, count) if count < PARTS => {
                self.parts[count] = [by, root, ticks];
                self.count += 1;
            }
            _ => {}
        }
    }
}

/// A release in a wait, copied.
#[derive(Clone, Copy)]
struct InWait {
    at: u64,
    by: u64,
    past_wait: [u64; 3],
}

impl InWait {
    fn is_writers(&self) -> bool {
        match unpack_elsewhere(self.by) {
            Some(_) => self.by & ELSEWHERE_IS_WRITER != 0,
            None => unpack_release(self.by).is_writer,
        }
    }
}

/// Releases of a lock, as far as they lie in a wait.
struct ReleasesInWait {
    releases: [InWait; RELEASES],
    count: usize,
    /// Who had the lock when the wait began is known by its release.
    reaches_begin: bool,
}

impl ReleasesInWait {
    const fn new() -> Self {
        Self { releases: [InWait { at: 0, by: 0, past_wait: [0; 3] }; RELEASES], count: 0, reaches_begin: false }
    }

    fn add(&mut self, release: InWait) {
        if let Some(free) = self.releases.get_mut(self.count) {
            *free = release;
            self.count += 1;
        }
    }
}

/// Divides a wait for the lock at this place; no parts if no release is known that lies in it.
pub(super) fn divide(segment: &'static Process, lock: u32, wait_mode: u8, (begun, ended): (u64, u64)) -> Parts {
    let mut in_wait = releases_in_wait(segment, lock, (begun, ended));
    divide_by(&mut in_wait, lock, wait_mode, (begun, ended))
}

/// The same of waits for a condition that timed out: the thread that signals it first after them had the lock when they ended. No parts if
/// nobody has signalled it since.
pub(super) fn divide_timed_out(segment: &'static Process, lock: u32, (begun, ended): (u64, u64)) -> Parts {
    let mut since_begin = releases_in_wait(segment, lock, (begun, u64::MAX));
    if since_begin.releases[..since_begin.count].iter().all(|release| release.at <= ended) {
        since_begin.count = 0;
    }
    divide_by(&mut since_begin, lock, mode::EXCLUSIVE, (begun, ended))
}

#[inline(always)]
fn releases_in_wait(segment: &'static Process, lock: u32, (begun, ended): (u64, u64)) -> ReleasesInWait {
    let mut in_wait = ReleasesInWait::new();
    for release in of(segment, lock, false).into_iter().flat_map(|kept| &kept.releases) {
        let (at, by) = (release.at.load(Acquire), release.by.load(Acquire));
        let is_its = unpack_release(by).lock == lock;
        in_wait.reaches_begin |= at <= begun || !is_its;
        let past_wait = core::array::from_fn(|at| release.past_wait[at].load(Acquire));
        // Written to meanwhile, it is a newer one.
        if is_its && at > begun && at <= ended && release.at.load(Acquire) == at {
            in_wait.add(InWait { at, by, past_wait });
        }
    }
    in_wait
}

/// As [`divide`], for a lock that processes share. What its holders waited for themselves is not known.
pub(super) fn divide_elsewhere(lock: &SharedLock, wait_mode: u8, (begun, ended): (u64, u64)) -> Parts {
    let mut in_wait = ReleasesInWait::new();
    for release in &lock.releases {
        let (at, by) = (release.at.load(Acquire), release.by.load(Acquire));
        in_wait.reaches_begin |= at <= begun;
        if at > begun && at <= ended && release.at.load(Acquire) == at {
            in_wait.add(InWait { at, by, past_wait: [0; 3] });
        }
    }
    divide_by(&mut in_wait, 0, wait_mode, (begun, ended))
}

// Inlined, so that the parts are on the stack once.
#[inline(always)]
fn divide_by(in_wait: &mut ReleasesInWait, lock: u32, wait_mode: u8, (begun, ended): (u64, u64)) -> Parts {
    let mut parts = Parts { parts: [[0; 3]; PARTS], count: 0 };
    let ReleasesInWait { releases, count, reaches_begin } = in_wait;
    let mut releases = &mut releases[..*count];
    releases.sort_unstable_by_key(|release| release.at);
    if wait_mode == mode::READ {
        // Readers keep out those that queue behind a writer. When the last writer was gone, nobody kept a reader out.
        let writers = releases.iter().rposition(InWait::is_writers).map_or(0, |last| last + 1);
        releases = &mut releases[..writers];
    }
    let mut since = begun;
    for InWait { at, by, past_wait: [from, until, root] } in releases {
        let at = (*at).min(ended);
        let (by, ticks) = (*by & !ELSEWHERE_IS_WRITER, at - since);
        if since == begun && !*reaches_begin {
            parts.add(NOBODY, NOBODY, ticks);
        } else {
            let chained = (*until).min(at).saturating_sub((*from).max(since));
            let chained = if *root == NOBODY { 0 } else { chained };
            // Before it ran with the lock, nobody had it.
            if unpack_release(*root).lock != lock {
                parts.add(by, *root, chained);
            }
            parts.add(by, NOBODY, ticks - chained);
        }
        since = at;
    }
    parts
}

/// As much shorter a wait does not take the place of another, until as much time has passed as that one took.
const MUCH_SHORTER: u64 = 8;

/// What [`Thread::last_of_past_wait`] counts.
const TICKS_OF_LAST: u64 = 1024;

/// A wait follows another closely if this part of it is longer than what lies between them.
const CLOSELY: u64 = 4;

/// This thread's wait had these parts: of its waits, the one is kept that is the likeliest to explain why others wait for the thread, the
/// last one unless it was much shorter. Of waits that follow each other closely and have one root all are kept as one: as long as all
/// together, and ended by the last. Whether another is much shorter than these, the last of them says: a row of many, each as long as the
/// next one that has another root, must not keep that one out.
pub(super) fn waited(thread: &'static Thread, (begun, ended): (u64, u64), parts: &Parts) {
    let ([from, until, root], last) = (&thread.past_wait, &thread.last_of_past_wait);
    let (old_from, old_until) = (from.load(Relaxed), until.load(Relaxed));
    let lasted = u64::from(last.load(Relaxed)) * TICKS_OF_LAST;
    let (lasts, gap, its_root) = (ended.saturating_sub(begun), begun.saturating_sub(old_until), parts.root());
    let keep_last = || last.store(u32::try_from(lasts / TICKS_OF_LAST).unwrap_or(u32::MAX), Relaxed);
    if its_root != NOBODY && its_root == root.load(Relaxed) && gap < lasts / CLOSELY && old_until > 0 {
        from.store(old_from + gap, Relaxed);
        until.store(ended, Relaxed);
        keep_last();
        return;
    }
    if lasted / MUCH_SHORTER > lasts && lasted > ended.saturating_sub(old_until) {
        return;
    }
    keep_last();
    from.store(begun, Relaxed);
    until.store(ended, Relaxed);
    root.store(its_root, Relaxed);
}

/// After a library was unloaded: stacks may have moved.
pub(super) fn forget(segment: &'static Process) {
    for place in 1..=RELEASES_PLACES as u32 {
        for release in of(segment, place, false).into_iter().flat_map(|kept| &kept.releases) {
            release.at.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn had_by(root: u64, ticks: u64) -> Parts {
        let mut parts = Parts { parts: [[0; 3]; PARTS], count: 0 };
        parts.add(root, NOBODY, ticks);
        parts
    }

    /// Regression: a row of waits shut out the next one, which had another root, for as long as all of them took.
    #[test]
    fn a_row_of_waits_is_one_and_makes_room_for_the_next() {
        const MS: u64 = 3_000_000;
        // SAFETY: all fields are integers, for which zeroes will do.
        let thread: &'static Thread = Box::leak(unsafe { Box::new_zeroed().assume_init() });
        let kept = || thread.past_wait.each_ref().map(|word| word.load(Relaxed));
        for wait in 1..=20 {
            waited(thread, (wait * MS, (wait + 1) * MS), &had_by(7, MS));
        }
        assert_eq!(kept(), [MS, 21 * MS, 7], "one after the other");
        waited(thread, (21 * MS, 21 * MS + MS / 10), &had_by(8, MS / 10));
        assert_eq!(kept(), [MS, 21 * MS, 7], "much shorter");
        waited(thread, (22 * MS, 23 * MS), &had_by(8, MS));
        assert_eq!(kept(), [22 * MS, 23 * MS, 8], "as long");
    }
}
