//! Loads that run for a slice at a time, in threads of their own, and count their operations.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench_harness::as_f64;
use clap::ValueEnum;
use lockmeter_statistics::cpus;

/// A load has settled by then: its threads run, its memory is there.
const SETTLE: Duration = Duration::from_millis(60);

/// How long a thread waits for a datagram before it looks whether the slice is over.
const PATIENCE: Duration = Duration::from_millis(50);

/// Mapped, touched page by page and unmapped at a time. So few pages come from the CPU's own list of free ones, and the threads
/// mostly wait for each other.
const FEW_BYTES: usize = 1 << 17;
/// As will-it-scale's `page_fault1` does with threads: what is measured are page faults, hardly anything else.
const MANY_BYTES: usize = 128 << 20;
const PAGE_BYTES: usize = 4096;
/// Counted at a time.
const COUNTED_PAGES: usize = 32;

/// One of the loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Two threads on one CPU, one datagram over loopback to and fro: a softirq and a context switch each way
    PingPong,
    /// The same on two CPUs: also an interrupt from CPU to CPU each way
    PingPongTwoCpus,
    /// A thread on each CPU maps 128 MiB, touches each page and unmaps them, as will-it-scale's `page_fault1`
    PageFaults,
    /// The same with 128 KiB: little else than changes of mappings, for which the threads wait in turn
    Mappings,
}

impl Load {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::PingPong, Self::PingPongTwoCpus, Self::PageFaults, Self::Mappings];

    /// How it is called in results.
    pub const fn title(self) -> &'static str {
        match self {
            Self::PingPong => "network ping-pong, one CPU",
            Self::PingPongTwoCpus => "network ping-pong, two CPUs",
            Self::PageFaults => "page-fault storm",
            Self::Mappings => "storm of small mappings",
        }
    }

    /// What it counts.
    pub const fn operation(self) -> &'static str {
        match self {
            Self::PingPong | Self::PingPongTwoCpus => "round trips",
            Self::PageFaults | Self::Mappings => "page faults",
        }
    }

    /// How many CPUs it keeps busy.
    pub const fn cpus(self) -> u64 {
        match self {
            Self::PingPong => 1,
            Self::PingPongTwoCpus | Self::PageFaults | Self::Mappings => 2,
        }
    }

    /// Runs while `measure` does, which is given the count of its operations.
    pub fn run<R>(self, measure: impl FnOnce(&AtomicU64) -> R) -> R {
        let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            match self {
                Self::PingPong | Self::PingPongTwoCpus => {
                    let other_cpu = usize::from(self == Self::PingPongTwoCpus);
                    let (here, there) = pair();
                    let (stop, operations) = (&stop, &operations);
                    scope.spawn(move || answer(&there, other_cpu, stop));
                    scope.spawn(move || ask(&here, stop, operations));
                }
                Self::PageFaults | Self::Mappings => {
                    let bytes = if self == Self::Mappings { FEW_BYTES } else { MANY_BYTES };
                    for cpu in 0..2 {
                        let (stop, operations) = (&stop, &operations);
                        scope.spawn(move || touch_pages(cpu, bytes, stop, operations));
                    }
                }
            }
            thread::sleep(SETTLE);
            let result = measure(&operations);
            stop.store(true, Ordering::Relaxed);
            result
        })
    }
}

/// Operations a second, over a slice of the given length.
pub fn rate(operations: &AtomicU64, slice: Duration) -> f64 {
    let (begin, before) = (Instant::now(), operations.load(Ordering::Relaxed));
    thread::sleep(slice);
    let (elapsed, after) = (begin.elapsed(), operations.load(Ordering::Relaxed));
    as_f64(after - before) / elapsed.as_secs_f64()
}

fn pair() -> (UdpSocket, UdpSocket) {
    let bind = || UdpSocket::bind("127.0.0.1:0").expect("a port of the loopback device is free");
    let (here, there) = (bind(), bind());
    for (one, other) in [(&here, &there), (&there, &here)] {
        one.connect(other.local_addr().expect("it is bound")).expect("the loopback device is up");
        one.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    }
    (here, there)
}

fn ask(socket: &UdpSocket, stop: &AtomicBool, operations: &AtomicU64) {
    cpus::stay_on(0);
    let mut datagram = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if socket.send(&datagram).is_ok() && socket.recv(&mut datagram).is_ok() {
            operations.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn answer(socket: &UdpSocket, cpu: usize, stop: &AtomicBool) {
    cpus::stay_on(cpu);
    let mut datagram = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if socket.recv(&mut datagram).is_ok() {
            let _ = socket.send(&datagram);
        }
    }
}

/// Maps, touches each page, unmaps.
fn touch_pages(cpu: usize, bytes: usize, stop: &AtomicBool, operations: &AtomicU64) {
    cpus::stay_on(cpu);
    while !stop.load(Ordering::Relaxed) {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping anywhere touches no memory that is in use.
        let area = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if area == libc::MAP_FAILED {
            continue;
        }
        // SAFETY: the mapping just made, of that length. Huge pages would make one fault of all.
        unsafe { libc::madvise(area, bytes, libc::MADV_NOHUGEPAGE) };
        for begin in (0..bytes).step_by(COUNTED_PAGES * PAGE_BYTES) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            for page in 0..COUNTED_PAGES {
                // SAFETY: inside the mapping just made, which is writable and nobody else's.
                unsafe { area.cast::<u8>().add(begin + page * PAGE_BYTES).write_volatile(1) };
            }
            operations.fetch_add(COUNTED_PAGES as u64, Ordering::Relaxed);
        }
        // SAFETY: the mapping just made; nothing points into it any more.
        unsafe { libc::munmap(area, bytes) };
    }
}
