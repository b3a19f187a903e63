//! Stacks that a thread has followed before.
//!
//! A thread waits and releases at few places again and again, and following a stack costs ten times the rest of a wait. What it
//! depends on is remembered with it: the return address, where the stack pointer stood, and the few words of the stack that
//! were read. Where all of them are the same the stack is, too; that is no guess.

use core::sync::atomic::Ordering::Relaxed;

use super::unwind::{self, Registers, Seen};
use super::{pages, segment, stacks};
use crate::layout::{LOSSES, Lost, Process, Thread, WALK_WORDS, WALKS, Walk};

/// The whole stack as a site; the return address alone where it cannot be kept.
pub(super) fn site(segment: &'static Process, thread: &'static Thread, registers: &Registers) -> u64 {
    let Some(walk) = of(segment, thread, registers) else {
        let whole = stacks::whole(segment, registers, &mut Seen::nothing());
        return whole.map_or_else(|| stacks::address_site(registers), |(site, _)| site);
    };
    if is_same(walk, registers) {
        // Lost as often as it is taken, not as often as it is followed.
        match walk.lost.load(Relaxed) as usize {
            deep if deep == Lost::Deep as usize => segment::lose(Lost::Deep),
            unwind if unwind == Lost::Unwind as usize => segment::lose(Lost::Unwind),
            _ => {}
        }
        return walk.site.load(Relaxed);
    }
    follow(segment, walk, registers)
}

/// `None` if there is no page to remember it.
fn of(segment: &'static Process, thread: &'static Thread, registers: &Registers) -> Option<&'static Walk> {
    let mixed = (registers.return_address() ^ registers.stack_pointer() << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    pages::entry_or_take(segment.number.load(Relaxed), &thread.walks, mixed >> (usize::BITS - WALKS.ilog2()))
}

fn is_same(walk: &Walk, registers: &Registers) -> bool {
    let sp = registers.stack_pointer();
    let is_same = walk.stack_pointer.load(Relaxed) == sp as u64
        && walk.return_address.load(Relaxed) == registers.return_address() as u64
        && walk.changes.load(Relaxed) == unwind::changes()
        && (walk.needs_frame_pointer.load(Relaxed) == 0
            || walk.frame_pointer.load(Relaxed) == registers.frame_pointer() as u64);
    let words = (walk.words.load(Relaxed) as usize).min(WALK_WORDS);
    is_same
        && walk.seen[..words].iter().all(|[above, word]| {
            let at = sp + above.load(Relaxed) as usize;
            // SAFETY: read before by this thread from the same stack pointer: it lies between that and the end of the stack.
            unsafe { (at as *const u64).read() == word.load(Relaxed) }
        })
}

#[inline(never)]
fn follow(segment: &'static Process, walk: &'static Walk, registers: &Registers) -> u64 {
    let mut seen = Seen::nothing();
    let changes = unwind::changes();
    walk.stack_pointer.store(0, Relaxed);
    let Some((site, lost)) = stacks::whole(segment, registers, &mut seen) else {
        return stacks::address_site(registers);
    };
    let sp = registers.stack_pointer();
    for ([above, word], (at, read)) in walk.seen.iter().zip(seen.words()) {
        above.store((at - sp) as u64, Relaxed);
        word.store(*read as u64, Relaxed);
    }
    walk.words.store(seen.words().len() as u32, Relaxed);
    walk.changes.store(changes, Relaxed);
    walk.needs_frame_pointer.store(seen.needs_frame_pointer.into(), Relaxed);
    walk.lost.store(lost.map_or(LOSSES, |lost| lost as usize) as u32, Relaxed);
    walk.frame_pointer.store(registers.frame_pointer() as u64, Relaxed);
    walk.return_address.store(registers.return_address() as u64, Relaxed);
    walk.site.store(site, Relaxed);
    walk.stack_pointer.store(sp as u64, Relaxed);
    site
}

/// The table has a new owner, whose stack is another.
pub(super) fn forget(thread: &'static Thread) {
    for walk in (0..WALKS).filter_map(|place| pages::entry::<Walk>(&thread.walks, place)) {
        walk.stack_pointer.store(0, Relaxed);
    }
}
