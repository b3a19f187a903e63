//! The clock by which CPUs are sampled.

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use libbpf_rs::{Link, ProgramMut};
use libbpf_sys::{PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr};

use crate::cost::online_cpus;

/// Samples in a second of all CPUs together: each costs some microseconds in the one thread that reads them.
const MOST_A_SECOND: u64 = 3_200;

/// Has a program run this many times a second on each CPU that runs threads, or less often where there are many CPUs.
pub fn sample_cpus(program: &ProgramMut<'_>, a_second: u32) -> io::Result<Vec<Link>> {
    let cpus = u64::from(online_cpus());
    let period_ns = (1_000_000_000 / u64::from(a_second.max(1))).max(cpus * 1_000_000_000 / MOST_A_SECOND);
    let possible = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    let mut links = Vec::new();
    for cpu in 0..i32::try_from(possible).unwrap_or(i32::MAX) {
        let event = match open(cpu, period_ns) {
            // It is not there now.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
            opened => opened?.into_raw_fd(),
        };
        match program.attach_perf_event(event) {
            // The event is the link's from now on.
            Ok(link) => links.push(link),
            Err(error) => {
                // SAFETY: the descriptor opened above, which libbpf has not taken.
                drop(unsafe { OwnedFd::from_raw_fd(event) });
                return Err(io::Error::other(error));
            }
        }
    }
    Ok(links)
}

fn open(cpu: i32, period_ns: u64) -> io::Result<OwnedFd> {
    let mut attributes = perf_event_attr { type_: PERF_TYPE_SOFTWARE, ..perf_event_attr::default() };
    attributes.size = u32::try_from(size_of_val(&attributes)).unwrap_or(0);
    attributes.config = PERF_COUNT_SW_CPU_CLOCK.into();
    attributes.__bindgen_anon_1.sample_period = period_ns;
    attributes.set_exclude_idle(1);
    // SAFETY: the kernel reads the attributes, whose size they say themselves.
    let event =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC) };
    let event = i32::try_from(event).ok().filter(|event| *event >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: a descriptor just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(event) })
}
