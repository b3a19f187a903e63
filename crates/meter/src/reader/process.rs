//! A process that reports to the session, as far as the recorder knows it.

use std::collections::{HashMap, HashSet};
use std::mem::offset_of;

use lockmeter_profile::{Frame, OffTime};

use super::living::ProgramFile;
use super::memory::Memory;
use super::segment::SegmentReader;
use super::untimed::TimedHolds;
use crate::layout;

/// A thread that seldom runs may time as many holds of the clock's second as one that runs this part of it.
const LEAST_RUNNING: f64 = 0.2;

pub(super) struct Process {
    /// In the session.
    pub(super) number: u32,
    /// As we know it, and as it knows itself, which differ in containers.
    pub(super) pid: u32,
    pub(super) own_pid: u32,
    pub(super) program: Option<ProgramFile>,
    pub(super) segment: SegmentReader,
    /// The first pages of its runs, and the pages with tables of threads.
    pub(super) runs: Vec<u32>,
    pub(super) threads: Vec<u32>,
    pub(super) holds: TimedHolds,
    pub(super) made_ns: u64,
    pub(super) off: OffTime,
    pub(super) began_off: bool,
    pub(super) cpu_ns: u64,
    /// It has ended, or runs another program now.
    pub(super) gone: bool,
    /// And nobody else writes to its pages: it had ended before it was read, and nothing will come after.
    pub(super) ended: bool,
    /// That was so at the last reading already. It stays for those who waited for it and say so only now.
    pub(super) lingers: bool,
    /// Places of locks that no other process can see.
    pub(super) private_locks: HashSet<u32>,
    /// Places of locks that a call made, and that others use as what is not known to be made: by their users, innermost frame first.
    pub(super) reused_places: HashMap<u32, Vec<Frame>>,
    /// By the sites of a lock's maker and of a user: whether the names of both may be about one lock. As long as these modules are mapped.
    pub(super) fits: HashMap<(u64, u64), bool>,
    pub(super) fits_among: Vec<u64>,
}

impl Process {
    /// A child of a program that is off, which ended before anybody saw it: not worth a line under the report, and for how long
    /// it was there is not known. A shell may have thousands.
    pub(super) fn came_and_went_off(&self, since_ns: u64) -> bool {
        self.gone && self.began_off && self.made_ns >= since_ns
    }

    /// Has its threads know how much of the clock's time they run: the mean of those that took locks.
    pub(super) fn note_running(&mut self, memory: &Memory, active_threads: u64, elapsed_ns: u64) {
        if self.gone {
            return;
        }
        let Some(cpu_ns) = process_cpu_ns(self.pid) else { return };
        let ran_ns = cpu_ns.saturating_sub(std::mem::replace(&mut self.cpu_ns, cpu_ns));
        if active_threads > 0 && elapsed_ns > 0 {
            let running = ran_ns as f64 / elapsed_ns as f64 / active_threads as f64;
            let per_mille = (running.clamp(LEAST_RUNNING, 1.0) * 1000.0) as u32;
            let at = offset_of!(layout::Process, running_per_mille);
            let _ = memory.put_u32(self.segment.page(), at, per_mille);
        }
    }
}

/// CPU time of another process so far.
pub(super) fn process_cpu_ns(pid: u32) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: writes one clock id, which is ours.
    let status = unsafe { libc::clock_getcpuclockid(libc::pid_t::try_from(pid).ok()?, &raw mut clock) };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours.
    let is_known = status == 0 && unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    let ns = || Some(u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?);
    if is_known { ns() } else { None }
}
