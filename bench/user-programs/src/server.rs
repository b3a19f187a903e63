//! Servers whose metering is switched while they run, and a load that asks one of them at a time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lockmeter_statistics::Random;

use crate::metered::{EVERY, LEVELS, Metering, PAIRS_OF_PROCESSES, PROCESSES, Way};
use crate::{Rounds, Slice};

/// Connections; each is served by a thread of its own where the server has several.
const CONNECTIONS: usize = 4;
const KEYS: usize = 1_000;
const VALUE_BYTES: usize = 100;
/// Requests sent at a time: one of them stores, the others fetch.
const BATCH: usize = 16;
/// Threads find how many holds they may time within some tens of milliseconds.
const SLICE: Duration = Duration::from_millis(200);
/// The load has left the server that it asked before.
const SETTLE: Duration = Duration::from_millis(15);
const STARTS: Duration = Duration::from_secs(10);
/// No server is asked.
const NONE: usize = usize::MAX;
const UNIT: &str = "k requests/s";

/// What is measured in a slice.
struct Target {
    /// Which of the servers.
    server: usize,
    pid: u32,
    metering: Metering,
}

/// How a server is started and spoken to. Every answer has a known length, so that the load only counts bytes.
pub struct Server {
    program: &'static str,
    flags: fn(&Path) -> Vec<String>,
    store: fn(&str, &str) -> String,
    stored_bytes: usize,
    fetch: fn(&str) -> String,
    fetched_bytes: usize,
}

impl Server {
    pub fn memcached() -> Self {
        Self {
            program: "memcached",
            flags: |socket| {
                ["-t4", "-u", "root", "-m64", "-s"].map(str::to_owned).into_iter().chain([shown(socket)]).collect()
            },
            store: |key, value| format!("set {key} 0 0 {VALUE_BYTES}\r\n{value}\r\n"),
            stored_bytes: "STORED\r\n".len(),
            fetch: |key| format!("get {key}\r\n"),
            fetched_bytes: format!("VALUE {} 0 {VALUE_BYTES}\r\n\r\nEND\r\n", key(0)).len() + VALUE_BYTES,
        }
    }

    pub fn redis() -> Self {
        Self {
            program: "redis-server",
            flags: |socket| {
                let flags = "--port 0 --save  --appendonly no --io-threads 2 --io-threads-do-reads yes --unixsocket";
                flags.split(' ').map(str::to_owned).chain([shown(socket)]).collect()
            },
            store: |key, value| format!("SET {key} {value}\r\n"),
            stored_bytes: "+OK\r\n".len(),
            fetch: |key| format!("GET {key}\r\n"),
            fetched_bytes: format!("${VALUE_BYTES}\r\n\r\n").len() + VALUE_BYTES,
        }
    }

    /// The levels within one process, then every hold timed in another, then what the library costs at all. Rates are thousands of requests a second.
    pub fn measure(&self, rounds: usize, random: &mut Random) -> Result<Vec<Rounds>> {
        let folder = tempfile::tempdir().context("cannot make a folder for the sockets")?;
        let levels = self.rounds(folder.path(), &LEVELS, rounds, random)?;
        let every = self.rounds(folder.path(), &EVERY, rounds.div_ceil(2), random)?;
        let mut library = Rounds::default();
        for _ in 0..PAIRS_OF_PROCESSES {
            let some = self.rounds(folder.path(), &PROCESSES, rounds.div_ceil(PAIRS_OF_PROCESSES), random)?;
            library = Rounds { slices: library.slices.into_iter().chain(some.slices).collect(), ..some };
        }
        Ok(vec![levels, every, library])
    }

    /// Rounds of slices of these ways, of which those with the library are one process.
    fn rounds(&self, folder: &Path, ways: &[Metering], rounds: usize, random: &mut Random) -> Result<Rounds> {
        let mut running = Vec::new();
        for bare in [false, true] {
            if ways.iter().any(|way| (*way == Metering::Bare) == bare) {
                let way = Way::prepare(if bare { Metering::Bare } else { Metering::Hold })?;
                let socket = folder.join(if bare { "bare" } else { "metered" });
                // The last server left its own there.
                let _ = std::fs::remove_file(&socket);
                let server = self.start(&way, &socket)?;
                running.push((way, server, socket));
            }
        }
        let targets: Vec<Target> = ways
            .iter()
            .map(|metering| {
                let server = if *metering == Metering::Bare { running.len() - 1 } else { 0 };
                Target { server, pid: running[server].1.0.id(), metering: *metering }
            })
            .collect();
        let sockets: Vec<PathBuf> = running.iter().map(|(.., socket)| socket.clone()).collect();
        let measured = self.load(&sockets, &targets, rounds, random);
        for (way, server, _) in running {
            drop(server);
            way.finish(true)?;
        }
        measured
    }

    fn start(&self, way: &Way, socket: &Path) -> Result<Running> {
        let mut command: Command = way.command(self.program);
        command.args((self.flags)(socket)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(folder) = socket.parent() {
            command.current_dir(folder);
        }
        let mut server = Running(command.spawn().with_context(|| format!("cannot run {}", self.program))?);
        let begin = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if let Some(status) = server.0.try_wait()? {
                bail!("{} ended at once with {status}", self.program);
            }
            if begin.elapsed() > STARTS {
                bail!("{} does not listen after {STARTS:?}", self.program);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn load(&self, sockets: &[PathBuf], targets: &[Target], rounds: usize, random: &mut Random) -> Result<Rounds> {
        let asked = AtomicUsize::new(NONE);
        let ends = AtomicBool::new(false);
        let done = AtomicU64::new(0);
        let failed = AtomicBool::new(false);
        let mut connections = Vec::new();
        for number in 0..CONNECTIONS {
            let streams =
                sockets.iter().map(|socket| Connection::open(self, socket, number)).collect::<Result<Vec<_>>>()?;
            connections.push(streams);
        }
        let ways = targets.iter().map(|target| target.metering).collect();
        let mut measured = Rounds { ways, slices: Vec::new(), unit: UNIT };
        let mut refused = None;
        std::thread::scope(|scope| {
            for mut streams in connections {
                let (asked, ends, done, failed) = (&asked, &ends, &done, &failed);
                scope.spawn(move || {
                    while !ends.load(Relaxed) {
                        let Some(stream) = streams.get_mut(asked.load(Relaxed)) else {
                            std::thread::sleep(Duration::from_millis(1));
                            continue;
                        };
                        if stream.batch().is_err() {
                            failed.store(true, Relaxed);
                            return;
                        }
                        done.fetch_add(BATCH as u64, Relaxed);
                    }
                });
            }
            for _ in 0..rounds {
                let mut slices = vec![Slice::default(); targets.len()];
                let mut order: Vec<usize> = (0..targets.len()).collect();
                random.shuffle(&mut order);
                for way in order {
                    let target = &targets[way];
                    refused = target.metering.switch(target.pid).err().or_else(|| refused.take());
                    asked.store(target.server, Relaxed);
                    std::thread::sleep(SETTLE);
                    let look = || (Instant::now(), done.load(Relaxed), cpu_ns(target.pid));
                    let (begin, before, begin_ns) = look();
                    std::thread::sleep(SLICE);
                    let (end, after, end_ns) = look();
                    let requests = (after - before).max(1) as f64;
                    slices[way] = Slice {
                        rate: requests / 1_000.0 / (end - begin).as_secs_f64(),
                        cpu_ns: Some(end_ns.saturating_sub(begin_ns) as f64 / requests),
                    };
                }
                measured.slices.push(slices);
            }
            ends.store(true, Relaxed);
        });
        if failed.load(Relaxed) {
            bail!("{} closed a connection", self.program);
        }
        refused.map_or(Ok(measured), Err)
    }
}

/// CPU time of a process so far.
pub fn cpu_ns(pid: u32) -> u64 {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both write to what is ours; a process that is gone has no clock, and the time stays 0.
    unsafe {
        if libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) == 0 {
            libc::clock_gettime(clock, &raw mut time);
        }
    }
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// A server that ends with this value.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection, the requests that it sends again and again, and room for what comes back.
struct Connection {
    stream: UnixStream,
    batches: Vec<String>,
    next: usize,
    answer: Vec<u8>,
}

impl Connection {
    fn open(server: &Server, socket: &Path, number: usize) -> Result<Self> {
        let mut stream = UnixStream::connect(socket).context("cannot connect to the server")?;
        let value = "x".repeat(VALUE_BYTES);
        let mut stored = vec![0; server.stored_bytes];
        for number in 0..KEYS {
            stream.write_all((server.store)(&key(number), &value).as_bytes())?;
            stream.read_exact(&mut stored)?;
        }
        let batch = |first: usize| {
            let fetches = (1..BATCH).map(|ahead| (server.fetch)(&key((first + ahead) % KEYS)));
            fetches.fold((server.store)(&key(first), &value), |requests, fetch| requests + &fetch)
        };
        Ok(Self {
            stream,
            batches: (0..KEYS).step_by(BATCH).map(batch).collect(),
            next: number,
            answer: vec![0; server.stored_bytes + (BATCH - 1) * server.fetched_bytes],
        })
    }

    fn batch(&mut self) -> std::io::Result<()> {
        self.next = (self.next + 1) % self.batches.len();
        self.stream.write_all(self.batches[self.next].as_bytes())?;
        self.stream.read_exact(&mut self.answer)
    }
}

/// All keys are of one length, and so are the answers.
fn key(number: usize) -> String {
    format!("key:{number:06}")
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
