//! Stacks that a thread has followed before.
//!
//! A thread waits and releases at few places again and again, and following a stack costs ten times the rest of a wait. What it
//! depends on is remembered with it: the return address, where the stack pointer stood, and the few words of the stack that
//! were read. Where all of them are the same the stack is, too; that is no guess.

use core::sync::atomic::Ordering::Relaxed;

use super::unwind::{self, ReadWords, Registers};
use super::{pages, segment, stacks};
use crate::layout::{CACHED_WORDS, CachedStack, LOSSES, Lost, Process, STACK_CACHE, Thread};

/// The whole stack as a site; the return address alone where it cannot be kept. Of a release of a lock that was acquired by a call
/// that returns to `acquired` (0: that is not known), the function that acquired it is there, too, if it has left its frame already.
pub(super) fn site(segment: &'static Process, thread: &'static Thread, registers: &Registers, acquired: u64) -> u64 {
    let Some(cached) = of(segment, thread, registers) else {
        let whole = stacks::whole(segment, registers, acquired, &mut ReadWords::nothing());
        return whole.map_or_else(|| stacks::address_site(registers), |(site, _)| site);
    };
    if is_same(cached, registers, acquired) {
        // Lost as often as it is taken, not as often as it is followed.
        match cached.lost.load(Relaxed) as usize {
            deep if deep == Lost::Deep as usize => segment::lose(Lost::Deep),
            unwind if unwind == Lost::Unwind as usize => segment::lose(Lost::Unwind),
            _ => {}
        }
        return cached.site.load(Relaxed);
    }
    follow(segment, cached, registers, acquired)
}

/// `None` if there is no page to remember it.
fn of(segment: &'static Process, thread: &'static Thread, registers: &Registers) -> Option<&'static CachedStack> {
    let mixed = (registers.return_address() ^ registers.stack_pointer() << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    pages::entry_or_take(segment, &thread.stack_cache, mixed >> (usize::BITS - STACK_CACHE.ilog2()))
}

fn is_same(cached: &CachedStack, registers: &Registers, acquired: u64) -> bool {
    let sp = registers.stack_pointer();
    let is_same = cached.stack_pointer.load(Relaxed) == sp as u64
        && cached.return_address.load(Relaxed) == registers.return_address() as u64
        && cached.acquired.load(Relaxed) == acquired
        && cached.changes.load(Relaxed) == unwind::changes()
        && (cached.needs_frame_pointer.load(Relaxed) == 0
            || cached.frame_pointer.load(Relaxed) == registers.frame_pointer() as u64);
    let words = (cached.words.load(Relaxed) as usize).min(CACHED_WORDS);
    is_same
        && cached.cached_words[..words].iter().all(|[above, word]| {
            let at = sp + above.load(Relaxed) as usize;
            // SAFETY: read before by this thread from the same stack pointer: it lies between that and the end of the stack.
            unsafe { (at as *const u64).read() == word.load(Relaxed) }
        })
}

#[inline(never)]
fn follow(segment: &'static Process, cached: &'static CachedStack, registers: &Registers, acquired: u64) -> u64 {
    let mut read_words = ReadWords::nothing();
    let changes = unwind::changes();
    cached.stack_pointer.store(0, Relaxed);
    let Some((site, lost)) = stacks::whole(segment, registers, acquired, &mut read_words) else {
        return stacks::address_site(registers);
    };
    let sp = registers.stack_pointer();
    for ([above, word], (at, read)) in cached.cached_words.iter().zip(read_words.words()) {
        above.store((at - sp) as u64, Relaxed);
        word.store(*read as u64, Relaxed);
    }
    cached.words.store(read_words.words().len() as u32, Relaxed);
    cached.changes.store(changes, Relaxed);
    cached.needs_frame_pointer.store(read_words.needs_frame_pointer.into(), Relaxed);
    cached.lost.store(lost.map_or(LOSSES, |lost| lost as usize) as u32, Relaxed);
    cached.frame_pointer.store(registers.frame_pointer() as u64, Relaxed);
    cached.acquired.store(acquired, Relaxed);
    cached.return_address.store(registers.return_address() as u64, Relaxed);
    cached.site.store(site, Relaxed);
    cached.stack_pointer.store(sp as u64, Relaxed);
    site
}

/// The table has a new owner, whose stack is another.
pub(super) fn forget(thread: &'static Thread) {
    for cached in (0..STACK_CACHE).filter_map(|place| pages::entry::<CachedStack>(&thread.stack_cache, place)) {
        cached.stack_pointer.store(0, Relaxed);
    }
}
