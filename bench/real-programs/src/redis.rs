//! Redis with threads for its sockets, which it parks while there is little to do.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::load::{AFTER_LIST, Load, process};
use crate::processes::{Running, find};
use crate::thread_states;
use crate::truth::Looks;

pub const SOURCE: &str = "INFO (io_threads_active:0) before; nobody is connected; what threads do, /proc tells";
const STARTS: Duration = Duration::from_secs(60);
/// The main thread is one of them.
const IO_THREADS: &str = "4";

struct Redis {
    server: Running,
    _folder: tempfile::TempDir,
}

pub fn idle(_: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    let folder = tempfile::tempdir().context("cannot make a folder for the data")?;
    let socket = folder.path().join("socket");
    let mut server = Command::new(find("redis-server")?);
    server.args(["--port", "0", "--save", "", "--io-threads", IO_THREADS, "--unixsocket"]).arg(&socket);
    server.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Running::start(&mut server, libc::SIGTERM)?;
    let begin = Instant::now();
    let said = loop {
        match info(&socket) {
            Ok(said) => break said,
            Err(error) => ensure!(begin.elapsed() < STARTS, "redis-server does not answer: {error:#}"),
        }
        ensure!(!server.has_ended()?, "redis-server ended at once");
        std::thread::sleep(Duration::from_millis(50));
    };
    ensure!(said.contains("io_threads_active:0"), "redis-server does not say that its I/O threads are parked");
    std::thread::sleep(Duration::from_secs(1));
    Ok(Box::new(Redis { server, _folder: folder }))
}

/// What it says of itself, by a connection of its own.
fn info(socket: &Path) -> Result<String> {
    let mut connection = UnixStream::connect(socket).context("cannot connect")?;
    connection.write_all(b"INFO\r\nQUIT\r\n").context("cannot ask")?;
    let mut said = String::new();
    connection.read_to_string(&mut said).context("cannot read the answer")?;
    Ok(said)
}

impl Load for Redis {
    fn scope(&self) -> Vec<String> {
        process(self.server.pid())
    }

    fn look(&mut self, looks: &mut Looks) -> Result<()> {
        let threads = thread_states::list(&[self.server.pid()]);
        std::thread::sleep(AFTER_LIST);
        looks.threads(&thread_states::of(&threads), |_, _| None);
        Ok(())
    }
}
