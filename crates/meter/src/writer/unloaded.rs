//! Libraries that were unloaded. Another one may be mapped where one was, with other locks and functions at the same addresses.
//!
//! So whatever was recorded of an unloaded library is moved, with the library, to addresses that no program uses: from
//! [`MOVE_BITS`] stands the number of the move. What comes to lie at the old addresses is then new, and readers need not know.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::{creation, locks, names, pages, releases, rows};
use crate::layout::{
    CLASSES, Class, LOCK_PLACES, LockEntry, MODULES, MOVE_BITS, Module, PageKind, Process, SHARED_SLOTS, SITE_IS_STACK,
    SLOTS, STACKS, Slot, Stack, Thread,
};

/// Libraries that are moved. A program that loads and unloads more fills the tables otherwise: what it has later at these addresses is
/// taken for the same.
const MOST_MOVED: u32 = 64;

static MOVED: AtomicU32 = AtomicU32::new(0);

/// How many calls have found something to look at since one began to look.
static LOOKING: AtomicU32 = AtomicU32::new(0);

/// What a library had.
#[derive(Clone, Copy)]
pub(super) struct Moved {
    start: u64,
    end: u64,
    /// What is added to its addresses.
    by: u64,
}

impl Moved {
    /// Moves an address, or a site that is one, if it is the library's.
    pub(super) fn move_site(self, site: &AtomicU64) -> bool {
        const ADDRESS: u64 = (1 << MOVE_BITS) - 1;
        let before = site.load(Relaxed);
        // What was moved before has an address that is none of these.
        let is_moved = before >> MOVE_BITS & (MOST_MOVED as u64 * 2 - 1) != 0;
        let is_own = before & SITE_IS_STACK == 0 && !is_moved && self.has(before & ADDRESS);
        // Fails if its owner wrote something else meanwhile.
        is_own && site.compare_exchange(before, before + self.by, AcqRel, Relaxed).is_ok()
    }

    pub(super) fn has(self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Moves what is known of libraries that are not loaded any more.
pub(super) fn move_away(segment: &'static Process) {
    if LOOKING.fetch_add(1, AcqRel) != 0 {
        // Who looks now looks again.
        return;
    }
    let mut seen = 1;
    loop {
        look(segment);
        match LOOKING.compare_exchange(seen, 0, AcqRel, Acquire) {
            Ok(_) => return,
            Err(more) => seen = more,
        }
    }
}

fn look(segment: &'static Process) {
    let modules = (segment.module_count.load(Acquire) as usize).min(MODULES);
    for module in (0..modules).filter_map(|place| pages::entry::<Module>(&segment.modules, place)) {
        let (start, end) = (module.start.load(Acquire), module.end.load(Relaxed));
        let is_here = start != 0 && start >> MOVE_BITS == 0;
        if !is_here || names::is_loaded(module) || MOVED.load(Relaxed) >= MOST_MOVED {
            continue;
        }
        let by = u64::from(MOVED.fetch_add(1, Relaxed) + 1) << MOVE_BITS;
        let moved = Moved { start, end, by };
        // First the sites, which lead to the module: who finds no module for one makes a new one.
        move_locks(segment, moved);
        move_stacks(segment, moved);
        move_samples(segment, moved);
        releases::forget(segment);
        creation::move_code(moved);
        module.bias.store(module.bias.load(Relaxed).wrapping_add(by), Relaxed);
        module.end.store(end + by, Relaxed);
        module.start.store(start + by, Release);
        // What threads know by address is another lock's from now on.
        rows::changed();
    }
}

fn move_locks(segment: &'static Process, moved: Moved) {
    for place in 0..LOCK_PLACES {
        let Some(lock) = pages::entry::<LockEntry>(&segment.locks, place) else { continue };
        if moved.has(lock.address.load(Relaxed)) {
            locks::unloaded(segment, place);
            moved.move_site(&lock.address);
        }
        for site in [&lock.made_at, &lock.releaser, &lock.writer] {
            moved.move_site(site);
        }
    }
    for class in (0..CLASSES).filter_map(|place| pages::entry::<Class>(&segment.classes, place)) {
        moved.move_site(&class.address);
        moved.move_site(&class.site);
    }
}

fn move_stacks(segment: &'static Process, moved: Moved) {
    /// Stacks have odd hashes: such a one is found no more.
    const MOVED_STACK: u64 = 2;
    for stack in (0..STACKS).filter_map(|place| pages::entry::<Stack>(&segment.stacks, place)) {
        let frames = stack.frames.iter().filter(|frame| moved.move_site(frame)).count();
        if frames > 0 {
            stack.hash.store(MOVED_STACK, Release);
        }
    }
}

fn move_samples(segment: &'static Process, moved: Moved) {
    let move_slot = |slot: &Slot| {
        moved.move_site(&slot.site);
        // Of holds that are not timed something else stands there, of locks that the library had.
        moved.move_site(&slot.blocker);
    };
    pages::each_of::<Thread>(segment.number.load(Relaxed), PageKind::Thread, |thread| {
        (0..SLOTS).filter_map(|place| pages::entry::<Slot>(&thread.slots, place)).for_each(move_slot);
    });
    (0..SHARED_SLOTS).filter_map(|place| pages::entry::<Slot>(&segment.shared, place)).for_each(move_slot);
}
