//! Loads of interrupts, timers and work items whose number is known, begun and ended while somebody meters.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use super::control_group::ControlGroup;
use super::until;

/// Expirations of a timer, one after the other. Returns how often its function ran: each read lets it run once more.
pub fn expire_timerfd(period: Duration, times: u64) -> u64 {
    let nanoseconds = libc::timespec { tv_sec: 0, tv_nsec: period.subsec_nanos().into() };
    let spec = libc::itimerspec { it_interval: nanoseconds, it_value: nanoseconds };
    // SAFETY: takes integers and returns a descriptor or -1.
    let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, 0) };
    assert!(timer >= 0, "timerfd_create: {}", std::io::Error::last_os_error());
    // SAFETY: reads one itimerspec, which is ours.
    assert_eq!(unsafe { libc::timerfd_settime(timer, 0, &raw const spec, std::ptr::null_mut()) }, 0);
    let mut read = 0;
    while read < times {
        let mut expirations = 0_u64;
        // SAFETY: writes eight bytes to an integer of eight bytes.
        let got = unsafe { libc::read(timer, (&raw mut expirations).cast(), 8) };
        assert_eq!(got, 8, "reading a timerfd: {}", std::io::Error::last_os_error());
        read += 1;
    }
    // SAFETY: a descriptor that we opened and nobody else knows.
    unsafe { libc::close(timer) };
    read
}

/// Datagrams over the loopback device, to and fro: each is a softirq of its own.
pub fn ping_pong(times: u32, pause: Duration) {
    let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    here.connect(there.local_addr().unwrap()).unwrap();
    there.connect(here.local_addr().unwrap()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut datagram = [0; 8];
            for _ in 0..times {
                there.recv(&mut datagram).unwrap();
                there.send(&datagram).unwrap();
            }
        });
        for _ in 0..times {
            here.send(&[1; 8]).unwrap();
            here.recv(&mut [0; 8]).unwrap();
            if !pause.is_zero() {
                thread::sleep(pause);
            }
        }
    });
}

/// Datagrams over the loopback device from a thread to itself, as fast as it can: each is a softirq of its own.
pub fn send_to_self(times: u32) {
    let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    here.connect(there.local_addr().unwrap()).unwrap();
    for _ in 0..times {
        here.send(&[1; 8]).unwrap();
        there.recv(&mut [0; 8]).unwrap();
    }
}

/// Has a work item run on every CPU, this many times, and waits for all of them: the kernel's own way to bring its memory
/// statistics up to date. Returns how many ran.
pub fn refresh_statistics(times: u64) -> u64 {
    for _ in 0..times {
        fs::write("/proc/sys/vm/stat_refresh", "1").unwrap();
    }
    // SAFETY: takes a constant and returns a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    times * u64::try_from(cpus).unwrap()
}

/// Makes and removes control groups below `parent` while a sleeping process is moved between two others. A move holds the one lock of
/// all control groups for as long as every CPU takes to pass a quiescent state, asleep; each group removed has work items bury
/// it that take the lock, too. Ended when all are buried.
pub fn churn_control_groups(parent: &ControlGroup) {
    const CHURNERS: u32 = 2;
    const MOVES: usize = 20;
    /// Only the first move after the readers of what it excludes were left alone for some ticks has to wait for them.
    const PAUSE: Duration = Duration::from_millis(30);
    let stations = ["here", "there"].map(|name| ControlGroup::make(parent.path().join(name)).unwrap());
    let mut passenger = Command::new("sleep").arg("600").spawn().unwrap();
    let moved = AtomicBool::new(false);
    let churn = |group: PathBuf| {
        // The kernel's workers are to meet it, not to wait until it is done: it may run no more than they.
        // SAFETY: takes integers; it sets the priority of the calling thread.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
        while !moved.load(Ordering::Relaxed) {
            fs::create_dir(&group).unwrap();
            fs::remove_dir(&group).unwrap();
        }
    };
    let moves = thread::scope(|scope| {
        for churner in 0..CHURNERS {
            let churn = &churn;
            scope.spawn(move || churn(parent.path().join(churner.to_string())));
        }
        let moves = (0..MOVES).try_for_each(|turn| {
            thread::sleep(PAUSE);
            fs::write(stations[turn % 2].path().join("cgroup.procs"), passenger.id().to_string())
        });
        moved.store(true, Ordering::Relaxed);
        moves
    });
    passenger.kill().unwrap();
    passenger.wait().unwrap();
    moves.unwrap();
    drop(stations);
    until("the removed control groups are buried", || parent.dying() == 0);
}
