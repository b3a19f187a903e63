//! A thread of the recorder's that ticks: a thousand times a second it writes a number that programs look at, by which they see holds
//! that go on for long without reading the clock at the begin of each. It begins when a program first wants it.

use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::background::{Background, Ending};
use super::memory::{Memory, u32_at};
use crate::layout::{SESSION_PAGE, SessionHead, TICK_NS, TICK_TIMES, tick_code};
use crate::writer::monotonic_ns;

/// How often it looks whether ticks are wanted.
const LOOK: Duration = Duration::from_millis(10);

/// Between two ticks that are this far apart, a long hold may have gone unseen.
const LATE_NS: u64 = 2 * TICK_NS;

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Ticker {
    /// How often a tick came late.
    late: Arc<AtomicU64>,
    _thread: Background,
}

impl Ticker {
    /// For a session in which times are ticks of the time stamp counter, unless `tick_ns_shifted` is 0.
    pub(super) fn start(memory: Memory, tick_ns_shifted: u64) -> io::Result<Self> {
        let late = Arc::new(AtomicU64::new(0));
        let late_here = Arc::clone(&late);
        let run = move |ending: Ending| {
            while !is_wanted(&memory) {
                if !ending.goes_on_after(LOOK) {
                    return;
                }
            }
            before_all_others();
            let (mut number, mut last_ns) = (0_u32, monotonic_ns());
            loop {
                number = number.wrapping_add(1).max(1);
                // Fails only if a program cut its own memory short.
                let _ = tick(&memory, number, tick_ns_shifted);
                if !ending.goes_on_after(Duration::from_nanos(TICK_NS)) {
                    return;
                }
                let now_ns = monotonic_ns();
                late_here.fetch_add((now_ns - last_ns > LATE_NS && number > 1).into(), Relaxed);
                last_ns = now_ns;
            }
        };
        Ok(Self { late, _thread: Background::start("lockmeter-ticks", run)? })
    }

    pub(super) fn late(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.late)
    }
}

fn is_wanted(memory: &Memory) -> bool {
    let wanted = memory.read(SESSION_PAGE, offset_of!(SessionHead, ticks_wanted), 4);
    wanted.is_ok_and(|wanted| u32_at(&wanted, 0) != 0)
}

/// The time first: who sees the number finds it.
fn tick(memory: &Memory, number: u32, tick_ns_shifted: u64) -> io::Result<()> {
    let time = match tick_ns_shifted {
        0 => monotonic_ns(),
        // SAFETY: every x86-64 processor has it.
        _ => unsafe { std::arch::x86_64::_rdtsc() },
    };
    let place = number as usize % TICK_TIMES * size_of::<u64>();
    memory.write(SESSION_PAGE, offset_of!(SessionHead, tick_times) + place, &time.to_ne_bytes())?;
    memory.put_u32(SESSION_PAGE, offset_of!(SessionHead, tick), tick_code(number))
}

/// It runs for a few millionths of a second at a time, and what it is for is to be in time.
fn before_all_others() {
    /// The kernel's default is longer than all of a tick's work.
    const SLACK_NS: libc::c_ulong = 1;
    static LEAST_REAL_TIME: libc::sched_param = libc::sched_param { sched_priority: 1 };
    // SAFETY: a number.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
    // Refused without privileges: then it runs as others do, and what comes late is counted.
    // SAFETY: of this thread, with parameters that are readable.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const LEAST_REAL_TIME) };
}
