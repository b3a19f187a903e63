//! Sites: return addresses, and whole stacks in the table of stacks.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::unwind::{self, Ended, ReadWords, Registers};
use super::{names, pages, segment};
use crate::layout::{FRAMES, Lost, Process, SITE_IS_STACK, STACKS, Stack};

/// How far from its own place a stack is looked for.
const PROBES: usize = 8;

/// A site that holds the return address alone.
#[inline]
pub(super) fn address_site(registers: &Registers) -> u64 {
    registers.return_address() as u64
}

/// A site that holds these frames, of which there is one at least; the innermost alone where there is no room.
pub(super) fn site_of(segment: &'static Process, frames: &[u64]) -> u64 {
    site(segment, frames).unwrap_or_else(|| frames.first().copied().unwrap_or(0))
}

/// A site that holds the whole stack, what it depends on, and what was lost; `None` if it could not be kept, which is counted. `acquired`
/// as in [`stack_cache::site`](super::stack_cache::site).
pub(super) fn whole(
    segment: &'static Process,
    registers: &Registers,
    acquired: u64,
    read_words: &mut ReadWords,
) -> Option<(u64, Option<Lost>)> {
    let mut frames = [0_u64; FRAMES];
    let has_left = acquired != 0 && unwind::calls_function_of(registers.return_address(), acquired as usize);
    if has_left {
        frames[0] = acquired;
    }
    let first = usize::from(has_left);
    let (taken, ended) = unwind::stack(registers, &mut frames[first..], read_words);
    let lost = match ended {
        Ended::Outermost => None,
        Ended::NoRoom => Some(Lost::Deep),
        Ended::Unknown => Some(Lost::Unwind),
    };
    if let Some(lost) = lost {
        segment::lose(lost);
    }
    Some((site(segment, &frames[..first + taken])?, lost))
}

/// The site of these frames; `None` if there is no room for it, which is counted.
fn site(segment: &'static Process, frames: &[u64]) -> Option<u64> {
    if let [alone] = frames {
        return Some(*alone);
    }
    let place = keep(segment, frames);
    if place.is_none() {
        segment::lose(Lost::Stack);
    }
    Some(place? as u64 | SITE_IS_STACK)
}

/// The place of a site in the table of stacks, where a return address alone gets one as well; `None` if there is no room.
pub(super) fn number_of(segment: &'static Process, site: u64) -> Option<u32> {
    match site {
        0 => None,
        site if site & SITE_IS_STACK != 0 => Some(site as u32 & (STACKS as u32 - 1)),
        site => {
            let place = keep(segment, &[site]);
            if place.is_none() {
                segment::lose(Lost::Stack);
            }
            place.map(|place| place as u32)
        }
    }
}

fn hash(frames: &[u64]) -> u64 {
    let mix = |hash: u64, frame: &u64| (hash ^ frame).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
    frames.iter().fold(0x9e37_79b9_7f4a_7c15, mix) | 1
}

fn keep(segment: &'static Process, frames: &[u64]) -> Option<usize> {
    let hash = hash(frames);
    let first = (hash >> 20) as usize;
    for probe in 0..PROBES {
        let place = (first + probe) % STACKS;
        let stack: &Stack = pages::entry_or_take(segment, &segment.stacks, place)?;
        let there = stack.hash.load(Acquire);
        if there == hash {
            return Some(place);
        }
        if there == 0 && stack.hash.compare_exchange(0, hash, AcqRel, Relaxed).is_ok() {
            fill(segment, stack, frames);
            return Some(place);
        }
    }
    None
}

fn fill(segment: &'static Process, stack: &'static Stack, frames: &[u64]) {
    for (to, from) in stack.frames.iter().zip(frames) {
        to.store(*from, Relaxed);
        names::see_module(segment, *from as usize);
    }
    stack.depth.store(frames.len() as u64, Release);
}
