//! Where locks were made, noted in a few instructions: programs make locks by the million and use some of them.
//!
//! Of each call that makes locks the stack is followed once: libraries wrap the functions of pthread, so a call is where the lock's maker
//! returns to, and where its caller does. Which call made the lock at an address stands in a table by address, and
//! is looked up when the lock is first waited for or released. Locks that one call makes at equal distances are a run: an array.

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::rows;
use super::unloaded::Moved;
use super::unwind::{self, ReadWords, Registers};
use crate::layout::LOCKS_OF_A_CLASS;

/// Frames of a lock's maker that are kept: enough to get out of the functions that wrap an initialisation.
pub(super) const FRAMES: usize = 6;
/// Calls that are kept; a power of two.
const CALLS: usize = 1024;
/// How far from its own place a call is looked for.
const PROBES: usize = 8;
/// Locks of a call that are told apart. Those that come after share the place of their class.
const TOLD_APART: u32 = LOCKS_OF_A_CLASS;
/// Locks whose maker is remembered until another takes the place; a power of two.
const MADE: usize = 1 << 16;
/// Bits of a filter: whether a lock at such an address may be in the table of locks; a power of two.
const USED: usize = 1 << 16;

/// The address in a word of [`TABLE`] or of a run; above it stands something else.
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
const ADDRESS_BITS: u32 = 48;
/// In a word of [`TABLE`]: it is one of the first that its call made.
const IS_TOLD_APART: u64 = 1 << 63;

/// A call that makes locks. Aligned, so that a shift finds it.
#[repr(align(128))]
struct Call {
    /// Its return address; 0: free, and [`CODE_GONE`] where that code was unloaded. Written when all else is.
    returns_to: AtomicU64,
    /// Where the function that makes the locks returns to, and where it keeps that ([`unwind::caller_place`]).
    caller: AtomicU64,
    caller_place: AtomicU32,
    depth: AtomicUsize,
    frames: [AtomicU64; FRAMES],
    /// Locks that it made that are told apart.
    told_apart: AtomicU32,
    /// The run of locks that it makes now: the first, how far apart they are, and the last, above which stands the run's number. Threads
    /// that make locks by one call at the same time write over each other's runs; then the number is another than this.
    run: AtomicU32,
    first: AtomicUsize,
    stride: AtomicUsize,
    last: AtomicU64,
}

/// No call returns there.
const CODE_GONE: u64 = 1;

static CALL: [Call; CALLS] = [const {
    Call {
        returns_to: AtomicU64::new(0),
        caller: AtomicU64::new(0),
        caller_place: AtomicU32::new(0),
        depth: AtomicUsize::new(0),
        frames: [const { AtomicU64::new(0) }; FRAMES],
        told_apart: AtomicU32::new(0),
        run: AtomicU32::new(0),
        first: AtomicUsize::new(0),
        stride: AtomicUsize::new(0),
        last: AtomicU64::new(0),
    }
}; CALLS];

/// By a hash of the address: the lock that was made there last, and from [`ADDRESS_BITS`] the place of the call from 1.
static TABLE: [AtomicU64; MADE] = [const { AtomicU64::new(0) }; MADE];
static USED_BITS: [AtomicU64; USED / 64] = [const { AtomicU64::new(0) }; USED / 64];

/// Some call has made a lock, and some lock was used, here or in a process that forked this one. Where not, nothing is in the tables above,
/// and to read them would be a page fault of a forked child's.
#[unsafe(link_section = ".data.lockmeter_inherited")]
static ANY_MADE: AtomicBool = AtomicBool::new(false);
#[unsafe(link_section = ".data.lockmeter_child")]
static ANY_USED: AtomicBool = AtomicBool::new(false);

#[inline(always)]
const fn mixed(address: usize) -> usize {
    // Locks that lie side by side have places side by side: 2 MB of them, if they are no smaller than 32 bytes.
    (address >> 5) ^ (address >> 21)
}

#[inline(always)]
fn entry(address: usize) -> &'static AtomicU64 {
    &TABLE[mixed(address) % MADE]
}

#[inline(always)]
fn used_bit(address: usize) -> (&'static AtomicU64, u64) {
    let bit = mixed(address) % USED;
    (&USED_BITS[bit / 64], 1 << (bit % 64))
}

/// The lock at this address is in the table of locks from now on.
pub(super) fn used(address: usize) {
    let (word, bit) = used_bit(address);
    // A forked child mostly uses what its parent has used: what it does not write to need not be copied.
    if !ANY_USED.load(Relaxed) || word.load(Relaxed) & bit == 0 {
        word.fetch_or(bit, Relaxed);
        ANY_USED.store(true, Relaxed);
    }
}

/// Whether the lock at this address may be in the table of locks, or in a row.
#[inline(always)]
pub(super) fn may_be_used(address: usize) -> bool {
    let (word, bit) = used_bit(address);
    word.load(Relaxed) & bit != 0 || rows::may_have(address)
}

/// A lock was made at this address. Returns by which call: a number, or 0 where that is not kept.
#[inline]
pub(super) fn made(address: usize, registers: Registers) -> u32 {
    let returns_to = registers.return_address() as u64;
    let first = home(returns_to);
    let call = &CALL[first];
    let (last, stride) = (call.last.load(Relaxed), call.stride.load(Relaxed));
    // The one that makes an array makes the next one of it.
    let continues = stride != 0 && (last & ADDRESS) as usize + stride == address;
    if !continues || call.returns_to.load(Acquire) != returns_to {
        return made_by_itself(address, first, registers);
    }
    let number = first as u32 + 1;
    entry(address).store(word_of(address, number), Relaxed);
    call.last.store(last + stride as u64, Relaxed);
    number
}

/// The same of a lock that continues no array.
#[inline(never)]
fn made_by_itself(address: usize, first: usize, registers: Registers) -> u32 {
    let returns_to = registers.return_address() as u64;
    let call = &CALL[first];
    let is_first = call.returns_to.load(Acquire) == returns_to && call.is_from(&registers);
    let place = if is_first { Some(first) } else { find_or_take(returns_to, first, registers) };
    let Some(place) = place else { return 0 };
    let number = place as u32 + 1;
    note(&CALL[place % CALLS], number, address);
    number
}

/// Programs use no more bits of an address unless they ask for it: such a lock is not found again.
#[inline(always)]
const fn word_of(address: usize, number: u32) -> u64 {
    address as u64 & ADDRESS | (number as u64) << ADDRESS_BITS
}

/// A call, which has this number, made this lock.
fn note(call: &Call, number: u32, address: usize) {
    let word = word_of(address, number);
    let told_apart = call.told_apart.load(Relaxed);
    if told_apart < TOLD_APART {
        call.told_apart.store(told_apart + 1, Relaxed);
        return entry(address).store(word | IS_TOLD_APART, Relaxed);
    }
    entry(address).store(word, Relaxed);
    let (last, stride) = (call.last.load(Relaxed), call.stride.load(Relaxed));
    if (last & ADDRESS) as usize + stride == address {
        call.last.store(last + stride as u64, Relaxed);
    } else {
        begin_run(call, (last & ADDRESS) as usize, address);
    }
}

#[inline(always)]
const fn home(returns_to: u64) -> usize {
    (returns_to.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - CALLS.ilog2())) as usize
}

/// A run of this lock alone, or of it and the one before.
fn begin_run(call: &Call, last: usize, address: usize) {
    let run = call.run.load(Relaxed).wrapping_add(1) & u32::from(u16::MAX);
    let stride = address.wrapping_sub(last);
    let follows = last != 0 && (1..=rows::LONGEST_STRIDE).contains(&stride);
    call.run.store(run, Relaxed);
    call.first.store(if follows { last } else { address }, Relaxed);
    call.stride.store(if follows { stride } else { 0 }, Relaxed);
    call.last.store(address as u64 | u64::from(run) << ADDRESS_BITS, Release);
}

impl Call {
    /// Whether the function that it returns to has the same caller.
    fn is_from(&self, registers: &Registers) -> bool {
        let place = self.caller_place.load(Relaxed) as u16;
        unwind::callers_return_address(registers, place) as u64 == self.caller.load(Relaxed)
    }
}

/// The first caller's is at `first`, if that is free; those of others lie elsewhere.
#[cold]
#[inline(never)]
fn find_or_take(returns_to: u64, first: usize, registers: Registers) -> Option<usize> {
    let caller_place = unwind::caller_place(returns_to as usize);
    let caller = unwind::callers_return_address(&registers, caller_place) as u64;
    let of_others = home(returns_to ^ caller.rotate_left(20));
    let mut places = (0..PROBES).map(|probe| if probe == 0 { first } else { (of_others + probe) % CALLS });
    places.find(|place| {
        let call = &CALL[*place];
        let there = call.returns_to.load(Acquire);
        if there != 0 {
            return there == returns_to && call.caller.load(Relaxed) == caller;
        }
        // The depth is what one thread takes the place by.
        let is_ours = call.depth.compare_exchange(0, usize::MAX, AcqRel, Relaxed).is_ok();
        if is_ours {
            ANY_MADE.store(true, Relaxed);
            let mut frames = [0_u64; FRAMES];
            let (taken, _) = unwind::stack(&registers, &mut frames, &mut ReadWords::nothing());
            for (to, from) in call.frames.iter().zip(frames) {
                to.store(from, Relaxed);
            }
            call.depth.store(taken, Relaxed);
            call.caller.store(caller, Relaxed);
            call.caller_place.store(caller_place.into(), Relaxed);
            call.returns_to.store(returns_to, Release);
        }
        is_ours
    })
}

/// The lock at this address is no more.
#[inline]
pub(super) fn forget(address: usize) {
    if !ANY_MADE.load(Relaxed) {
        return;
    }
    let entry = entry(address);
    let made = entry.load(Relaxed);
    if made & ADDRESS == address as u64 {
        // Fails if another took the place.
        let _ = entry.compare_exchange(made, 0, Relaxed, Relaxed);
    }
}

/// A call that made a lock.
#[derive(Clone, Copy)]
pub(super) struct Maker {
    call: &'static Call,
    /// As [`made`] returned it.
    pub(super) number: u32,
    /// The lock is one of the first that it made.
    pub(super) is_told_apart: bool,
}

/// What made the lock at this address; `None` if no call did, as far as is known.
pub(super) fn maker(address: usize) -> Option<Maker> {
    if !ANY_MADE.load(Relaxed) {
        return None;
    }
    let made = entry(address).load(Relaxed);
    (made & ADDRESS == address as u64).then_some(())?;
    let number = ((made & !IS_TOLD_APART) >> ADDRESS_BITS) as u32;
    let call = CALL.get((number as usize).checked_sub(1)?)?;
    Some(Maker { call, number, is_told_apart: made & IS_TOLD_APART != 0 })
}

impl Maker {
    /// Return addresses, innermost first.
    pub(super) fn frames(self) -> ([u64; FRAMES], usize) {
        let frames = core::array::from_fn(|at| self.call.frames[at].load(Relaxed));
        (frames, self.call.depth.load(Relaxed).min(FRAMES))
    }

    /// The first lock of the run that this one is in, how far apart they are, and how many there are; `None` if it is in none.
    pub(super) fn run(self, address: usize) -> Option<(usize, usize, u32)> {
        let last = self.call.last.load(Acquire);
        let (first, stride) = (self.call.first.load(Relaxed), self.call.stride.load(Relaxed));
        let (last, run) = ((last & ADDRESS) as usize, (last >> ADDRESS_BITS) as u32);
        let is_whole = run == self.call.run.load(Relaxed) && stride != 0 && first <= address && address <= last;
        let is_in = is_whole && (address - first).is_multiple_of(stride) && (last - first).is_multiple_of(stride);
        is_in.then(|| (first, stride, u32::try_from((last - first) / stride).unwrap_or(u32::MAX - 1) + 1))
    }
}

/// What a library made stays its own, at the addresses where it was moved. Of the locks that lay in it nothing is known any more.
pub(super) fn move_code(moved: Moved) {
    CALL.iter().flat_map(|call| &call.frames).for_each(|frame| {
        moved.move_site(frame);
    });
    for entry in &TABLE {
        let made = entry.load(Relaxed);
        if moved.has(made & ADDRESS) {
            // Fails if another took the place.
            let _ = entry.compare_exchange(made, 0, Relaxed, Relaxed);
        }
    }
}

/// A library was unloaded: other code may come to lie where some was. What its calls made stays theirs.
pub(super) fn library_unloaded() {
    for call in &CALL {
        if call.returns_to.load(Relaxed) != 0 {
            call.returns_to.store(CODE_GONE, Relaxed);
        }
    }
}
