//! Divides a wait among those who had the lock meanwhile: from one release to the next, the lock was the next releaser's.
//!
//! The time from the last release to the end of the wait was nobody's: the lock was free, and the waiter not yet running.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use super::pages;
use crate::layout::{
    self, LOCK_PLACES, PAGE, Process, RELEASES, RELEASES_PAGES, RELEASES_PLACES, Releaser, Releases, mode,
    pack_release, unpack_release,
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

/// A lock that somebody waits for is about to be released.
pub(super) fn note(segment: &'static Process, by: Releaser, now: u64) {
    let Some(kept) = of(segment, by.lock, true) else { return };
    let number = kept.count.fetch_add(1, Relaxed) as usize;
    let place = &kept.releases[number % RELEASES];
    place.at.store(0, Relaxed);
    place.by.store(pack_release(by), Release);
    place.at.store(now, Release);
}

/// What one holder had of a wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// `None`: those whose releases are no longer kept.
    pub(super) by: Option<Releaser>,
    pub(super) ticks: u64,
}

/// The parts of a wait that holders had.
pub(super) struct Parts {
    parts: [Part; RELEASES + 1],
    count: usize,
}

impl Parts {
    pub(super) fn as_slice(&self) -> &[Part] {
        &self.parts[..self.count]
    }

    fn add(&mut self, by: Option<Releaser>, ticks: u64) {
        let known = self.parts[..self.count].iter_mut().find(|part| part.by == by);
        match known {
            Some(part) => part.ticks += ticks,
            None => {
                self.parts[self.count] = Part { by, ticks };
                self.count += 1;
            }
        }
    }
}

/// Divides a wait for the lock at this place; no parts if no release is known that lies in it.
pub(super) fn divide(segment: &'static Process, lock: u32, wait_mode: u8, (begun, ended): (u64, u64)) -> Parts {
    let mut parts = Parts { parts: [Part { by: None, ticks: 0 }; RELEASES + 1], count: 0 };
    let Some(kept) = of(segment, lock, false) else { return parts };
    let mut releases = [(0, 0); RELEASES];
    let (mut count, mut reaches_begin) = (0, false);
    for layout::Release { at, by } in &kept.releases {
        let (when, by) = (at.load(Acquire), by.load(Acquire));
        let releaser = unpack_release(by);
        reaches_begin |= when <= begun || releaser.lock != lock;
        // Written to meanwhile, it is a newer one.
        let is_in = when > begun && when <= ended && releaser.lock == lock && at.load(Acquire) == when;
        if is_in && (wait_mode != mode::READ || releaser.is_writer) {
            releases[count] = (when, by);
            count += 1;
        }
    }
    let releases = &mut releases[..count];
    releases.sort_unstable();
    let mut since = begun;
    for (when, by) in releases {
        let is_first = since == begun;
        let by = if is_first && !reaches_begin { None } else { Some(unpack_release(*by)) };
        parts.add(by, *when - since);
        since = *when;
    }
    parts
}

/// After a library was unloaded: stacks may have moved.
pub(super) fn forget(segment: &'static Process) {
    for place in 1..=RELEASES_PLACES as u32 {
        for release in of(segment, place, false).into_iter().flat_map(|kept| &kept.releases) {
            release.at.store(0, Relaxed);
        }
    }
}
