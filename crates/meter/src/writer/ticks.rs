//! The recorder's tick: a number that changes a thousand times a second. A hold that is not timed leaves word of the tick at which it
//! began; if two have passed when it ends, it was a long one, and counts for itself.

use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use super::{clock, pages};
use crate::layout::{SessionHead, TICK_NS, TICK_TIMES, Thread, tick_number};

/// Stands for the tick while there is no session.
static NONE: AtomicU32 = AtomicU32::new(0);

/// The number of the last tick. Public for entries written in assembly.
// With what else is written when the library is loaded.
#[unsafe(link_section = ".data.lockmeter_start")]
pub static TICK: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const NONE).cast_mut());

/// When this process first wanted ticks, by the clock; 0: not so far.
static WANTED_SINCE: AtomicU64 = AtomicU64::new(0);

/// So long the recorder may take to begin. Where it does not, it is gone, and nobody reads what is recorded.
const LATEST_BEGIN_NS: u64 = 50_000_000;

/// This many have passed in each hold of twice [`TICK_NS`], and in none that is shorter than that.
const OF_LONG_HOLD: u32 = 2;

/// A hold so long is a long one, whether or not ticks came.
const LONG_NS: u64 = OF_LONG_HOLD as u64 * TICK_NS;

/// The session's memory is mapped.
pub(super) fn begin(session: &'static SessionHead) {
    TICK.store((&raw const session.tick).cast_mut(), Relaxed);
}

/// The last tick, as the session has it.
#[inline(always)]
pub(super) fn now() -> u32 {
    // SAFETY: points to a static or into the session's memory, which is never unmapped.
    unsafe { &*TICK.load(Relaxed) }.load(Acquire)
}

/// Whether a hold of which the clock is not read at its begin is seen if it is long. If not, has the recorder tick.
pub(super) fn are_there() -> bool {
    if now() != 0 {
        return true;
    }
    let Some(session) = pages::session() else { return true };
    let now = clock::ticks();
    let since = match WANTED_SINCE.compare_exchange(0, now, Relaxed, Relaxed) {
        Ok(_) => now,
        Err(since) => since,
    };
    if session.ticks_wanted.load(Relaxed) == 0 {
        session.ticks_wanted.store(1, Relaxed);
    }
    clock::between_ns(since, now) > LATEST_BEGIN_NS
}

/// Whether a hold that began at this tick is a long one if it ends now.
#[inline]
pub(super) fn is_long_since(tick: u32) -> bool {
    let last = now();
    last != tick && tick_number(last).wrapping_sub(tick_number(tick)) >= OF_LONG_HOLD
}

/// Whether a hold between these times, which is over, was a long one: by the same ticks as if it had not been timed.
#[inline]
pub(super) fn is_long(began: u64, ended: u64) -> bool {
    let ns = clock::between_ns(began, ended);
    ns >= LONG_NS || ns >= TICK_NS && tick_before_last().is_some_and(|time| time > began)
}

fn tick_before_last() -> Option<u64> {
    time(pages::session()?, tick_number(now()).checked_sub(OF_LONG_HOLD - 1)?)
}

/// When a long hold began, at the earliest that can be told: not before this tick, nor before its thread last read the clock while it
/// held no lock. A thread whose holds are not all timed takes locks by the ten thousand a second, and reads the clock nearly as often.
#[cold]
pub(super) fn earliest_begin(thread: &'static Thread, tick: u32) -> u64 {
    let read = thread.clock_read.load(Relaxed);
    let ticked = match tick {
        0 => None,
        tick => pages::session().and_then(|session| time(session, tick_number(tick))),
    };
    ticked.map_or(read, |ticked| ticked.max(read))
}

/// When the tick with this number was; `None` if that is not kept any more.
fn time(session: &SessionHead, number: u32) -> Option<u64> {
    let is_kept = tick_number(now()).wrapping_sub(number) < TICK_TIMES as u32;
    let time = session.tick_times[number as usize % TICK_TIMES].load(Relaxed);
    (is_kept && time != 0).then_some(time)
}
