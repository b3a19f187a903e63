//! Tells systemd how the agent is (sd_notify(3)): a datagram to the socket that the environment names.

use std::env;
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A line to systemd, if it started the agent.
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that the agent goes on.
    watchdog: Option<Duration>,
    next: Instant,
}

impl Notifier {
    /// From the environment.
    pub fn from_environment() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|name| connect(&name));
        let microseconds = env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let is_ours = env::var("WATCHDOG_PID").is_ok_and(|pid| pid == std::process::id().to_string());
        // Twice as often as it wants, as its manual advises.
        let watchdog = microseconds.filter(|_| is_ours).map(|period| Duration::from_micros(period) / 2);
        Self { socket, watchdog, next: Instant::now() }
    }

    pub fn ready(&self) {
        self.send("READY=1");
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000));
    }

    /// Says that the agent goes on, when that is due.
    pub fn alive(&mut self) {
        if let Some(period) = self.watchdog.filter(|_| Instant::now() >= self.next) {
            self.send("WATCHDOG=1");
            self.next = Instant::now() + period;
        }
    }

    fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.socket {
            // A manager that is gone need not know.
            let _ = socket.send_to_addr(state.as_bytes(), address);
        }
    }
}

/// A name that begins with `@` is in the abstract name space.
fn connect(name: &OsString) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(name),
    };
    Some((UnixDatagram::unbound().ok()?, address.ok()?))
}
