//! Servers without a client, which idle in unusual ways.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::load::{AFTER_LIST, Load, process};
use crate::processes::{Running, find};
use crate::thread_states;
use crate::truth::Looks;

pub const REDIS_SOURCE: &str = "INFO (io_threads_active:0) before; nobody is connected; what threads do, /proc tells";
pub const APACHE_SOURCE: &str =
    "the scoreboard before (all wait for a connection); nobody connects; what they do, /proc tells";
const STARTS: Duration = Duration::from_secs(60);
/// The main thread is one of them.
const IO_THREADS: &str = "4";
/// On the loopback interface. With more than one, Apache's processes take turns at waiting for all of them.
const APACHE_PORTS: [u16; 2] = [5495, 5496];

struct IdleServer {
    server: Running,
    _folder: tempfile::TempDir,
}

/// Redis with threads for its sockets, which it parks while there is little to do.
pub fn redis(_: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    let folder = tempfile::tempdir().context("cannot make a folder for the data")?;
    let socket = folder.path().join("socket");
    let mut server = Command::new(find("redis-server")?);
    server.args(["--port", "0", "--save", "", "--io-threads", IO_THREADS, "--unixsocket"]).arg(&socket);
    server.current_dir(folder.path());
    IdleServer::start(server, folder, || {
        let said = answer(UnixStream::connect(&socket), "INFO\r\nQUIT\r\n")?;
        ensure!(said.contains("io_threads_active:0"), "its I/O threads are not parked");
        Ok(())
    })
}

/// Apache with eight processes (prefork). One of them waits for connections, the others at a mutex for their turn.
pub fn apache(_: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    let folder = tempfile::tempdir().context("cannot make a folder for its files")?;
    let [first, second] = APACHE_PORTS;
    let at = folder.path().display();
    let modules = "/usr/lib/apache2/modules";
    let configuration = format!(
        "ServerName localhost\nServerRoot {at}\nDefaultRuntimeDir {at}\nPidFile {at}/pid\nErrorLog {at}/error.log\n\
         Listen 127.0.0.1:{first}\nListen 127.0.0.1:{second}\n\
         LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n\
         LoadModule status_module {modules}/mod_status.so\n\
         User www-data\nGroup www-data\nMutex default\n\
         StartServers 8\nMinSpareServers 8\nMaxSpareServers 8\nMaxRequestWorkers 8\n\
         <Location /server-status>\nSetHandler server-status\n</Location>\n"
    );
    let file = folder.path().join("configuration");
    std::fs::write(&file, configuration).context("cannot write Apache's configuration")?;
    let mut server = Command::new(find("apache2")?);
    server.args(["-DFOREGROUND", "-f"]).arg(&file);
    // It ends its process group, not only its own processes.
    server.process_group(0);
    IdleServer::start(server, folder, || {
        let said = answer(TcpStream::connect(("127.0.0.1", first)), "GET /server-status?auto HTTP/1.0\r\n\r\n")?;
        let scoreboard = said.lines().find_map(|line| line.strip_prefix("Scoreboard: ")).unwrap_or_default();
        // `W` is the one that answers.
        let waiting = scoreboard.matches('_').count();
        ensure!(waiting == 7 && scoreboard.len() == 8, "its scoreboard is `{scoreboard}`");
        Ok(())
    })
}

/// Of one question, over a connection of its own.
fn answer<C: Read + Write>(connection: std::io::Result<C>, question: &str) -> Result<String> {
    let mut connection = connection.context("cannot connect")?;
    connection.write_all(question.as_bytes()).context("cannot ask")?;
    let mut said = String::new();
    connection.read_to_string(&mut said).context("cannot read the answer")?;
    Ok(said)
}

impl IdleServer {
    /// Waits until it says that it is idle.
    fn start(
        mut server: Command,
        folder: tempfile::TempDir,
        is_idle: impl Fn() -> Result<()>,
    ) -> Result<Box<dyn Load>> {
        let name = server.get_program().to_string_lossy().into_owned();
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Running::start(&mut server, libc::SIGTERM)?;
        let begin = Instant::now();
        while let Err(error) = is_idle() {
            ensure!(!server.has_ended()?, "{name} ended at once");
            ensure!(begin.elapsed() < STARTS, "{name} is not idle after {STARTS:?}: {error:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(Duration::from_secs(1));
        Ok(Box::new(Self { server, _folder: folder }))
    }
}

impl Load for IdleServer {
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
