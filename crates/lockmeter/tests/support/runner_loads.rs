//! Loads of interrupts, timers and work items whose number is known, begun and ended while somebody meters.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

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

/// Has a work item run on every CPU, so many times, and waits for all of them: the kernel's own way to bring its memory
/// statistics up to date. Returns how many ran.
pub fn refresh_statistics(times: u64) -> u64 {
    for _ in 0..times {
        fs::write("/proc/sys/vm/stat_refresh", "1").unwrap();
    }
    // SAFETY: takes a constant and returns a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    times * u64::try_from(cpus).unwrap()
}

/// Makes network namespaces that die at once, from several threads, while others switch an interface on and off: that holds the
/// one lock of the network's configuration for as long as packets may be under way, so the work item that buries namespaces
/// waits for it. `Err` says why that is not possible here.
pub fn churn_network_namespaces(threads: usize, times: usize) -> Result<(), String> {
    const SWITCHERS: usize = 2;
    let churn = || (0..times).try_for_each(|_| thread::spawn(enter_network_namespace).join().unwrap());
    let churned = AtomicBool::new(false);
    let switch = || {
        enter_network_namespace()?;
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(|why| format!("cannot make a socket: {why}"))?;
        let mut up = false;
        while !churned.load(Ordering::Relaxed) {
            up = !up;
            switch_loopback(&socket, up)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let switchers: Vec<_> = (0..SWITCHERS).map(|_| scope.spawn(switch)).collect();
        let churners: Vec<_> = (0..threads).map(|_| scope.spawn(churn)).collect();
        let all_churned = churners.into_iter().try_for_each(|thread| thread.join().unwrap());
        churned.store(true, Ordering::Relaxed);
        switchers.into_iter().try_for_each(|thread| thread.join().unwrap()).and(all_churned)
    })
}

/// Gives the calling thread a network namespace of its own, which ends with it.
fn enter_network_namespace() -> Result<(), String> {
    // SAFETY: takes an integer.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(format!("cannot make a network namespace: {}", io::Error::last_os_error())),
    }
}

/// Switches the loopback interface of the socket's network namespace on or off.
fn switch_loopback(socket: &UdpSocket, up: bool) -> Result<(), String> {
    // SAFETY: an interface's name and flags are integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = if up { libc::IFF_UP as libc::c_short } else { 0 };
    // SAFETY: the request is one of an interface's flags, as the number says, and outlives the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(format!("cannot switch an interface: {}", io::Error::last_os_error())),
    }
}
