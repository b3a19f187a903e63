//! MariaDB under sysbench: a data folder of its own, a Unix socket, nothing on the network.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lockmeter_statistics::Random;

use crate::metered::{EVERY, LEVELS, Metering, PAIRS_OF_PROCESSES, PROCESSES, Way};
use crate::server::{Running, cpu_ns};
use crate::{Rounds, Slice};

const TABLES: &str = "--tables=4";
const ROWS: &str = "--table-size=5000";
/// Connections, each served by a thread of its own.
const CONNECTIONS: &str = "--threads=8";
const UNIT: &str = "transactions/s";
/// The first installs its tables on a slow disk.
const STARTS: Duration = Duration::from_secs(60);
const SLICE: Duration = Duration::from_millis(250);
/// After a switch threads find out anew what they count to and how often they time. Nobody else switches four times a second.
const SETTLE: Duration = Duration::from_millis(50);
/// The load's first transactions are slow.
const WARM_UP: Duration = Duration::from_secs(2);
/// Slices of each turn in which a server of two is under load.
const TURN: usize = 12;

/// A server that listens.
struct Database {
    server: Running,
    folder: PathBuf,
}

/// The levels within one process, then every hold timed in another, then what the library costs at all. A server slows down as
/// its tables age: all begin with the same ones.
pub fn measure(rounds: usize, random: &mut Random) -> Result<Vec<Rounds>> {
    let folder = tempfile::tempdir().context("cannot make a folder for the data")?;
    let tables = folder.path().join("tables");
    make_tables(&tables)?;
    let with_library = |ways: &[Metering], rounds, random: &mut Random| {
        let way = Way::prepare(Metering::Hold)?;
        let database = Database::start_with(&tables, &way, &folder.path().join("metered"))?;
        let measured = database.switched(ways, rounds, random)?;
        drop(database);
        way.finish(true)?;
        Ok::<_, anyhow::Error>(measured)
    };
    let levels = with_library(&LEVELS, rounds, random)?;
    let every = with_library(&EVERY, rounds.div_ceil(2), random)?;
    let mut library = Rounds { ways: PROCESSES.to_vec(), slices: Vec::new(), unit: UNIT };
    for pair in 0..PAIRS_OF_PROCESSES {
        let (bare_way, off_way) = (Way::prepare(Metering::Bare)?, Way::prepare(Metering::Off)?);
        let start = |way, name| Database::start_with(&tables, way, &folder.path().join(name));
        // Whichever is started second is slower by some per cent: of two bare ones, too.
        let (bare, off) = if pair % 2 == 0 {
            let bare = start(&bare_way, "bare")?;
            (bare, start(&off_way, "off")?)
        } else {
            let off = start(&off_way, "off")?;
            (start(&bare_way, "bare")?, off)
        };
        library.slices.extend(in_turn([&bare, &off], rounds.div_ceil(PAIRS_OF_PROCESSES * TURN), random)?);
        drop((bare, off));
        off_way.finish(false)?;
    }
    Ok(vec![levels, every, library])
}

/// A server's data folder, with tables to work on.
fn make_tables(folder: &Path) -> Result<()> {
    std::fs::create_dir(folder).context("cannot make a folder for the data")?;
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    run(install.arg(data_in(folder)))?;
    let mut database = Database::start(&Way::prepare(Metering::Bare)?, folder)?;
    run(database.client().args(["--execute", "create database sbtest"]))?;
    run(database.sysbench().arg("prepare"))?;
    // Not as a server ends that is dropped: what it has in memory is to be in the files.
    run(database.client().args(["--execute", "shutdown"]))?;
    database.server.0.wait().context("cannot wait for mariadbd")?;
    Ok(())
}

fn data_in(folder: &Path) -> String {
    format!("--datadir={}", folder.join("data").display())
}

/// Bare and metered in turn, for some seconds each.
fn in_turn(databases: [&Database; 2], turns: usize, random: &mut Random) -> Result<Vec<Vec<Slice>>> {
    let mut slices = Vec::new();
    for _ in 0..turns {
        let mut of_turn = [const { Vec::new() }; 2];
        let mut order = [0, 1];
        random.shuffle(&mut order);
        for way in order {
            let mut load = databases[way].load()?;
            for _ in 0..TURN {
                of_turn[way].push(load.slice()?);
            }
        }
        let [bare, off] = of_turn;
        slices.extend(bare.into_iter().zip(off).map(|(bare, off)| vec![bare, off]));
    }
    Ok(slices)
}

impl Database {
    /// With a copy of these tables, in a folder that what was there before leaves.
    fn start_with(tables: &Path, way: &Way, folder: &Path) -> Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(folder).context("cannot remove the data of the server before")?;
        }
        run(Command::new("cp").arg("-r").args([tables, folder]))?;
        Self::start(way, folder)
    }

    fn start(way: &Way, folder: &Path) -> Result<Self> {
        let mut command = way.command("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-networking", "--skip-log-bin"]);
        // What is measured is locks, not the disk.
        command.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M"]);
        command.arg(data_in(folder)).arg(format!("--socket={}", folder.join("socket").display()));
        command.arg(format!("--pid-file={}", folder.join("pid").display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Running(command.spawn().context("cannot run mariadbd")?);
        let mut database = Self { server, folder: folder.to_owned() };
        database.wait_until_it_listens()?;
        Ok(database)
    }

    fn client(&self) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--user=root", "--socket"]).arg(self.folder.join("socket"));
        client
    }

    fn sysbench(&self) -> Command {
        let mut sysbench = Command::new("sysbench");
        sysbench.args(["oltp_read_write", "--db-driver=mysql", "--mysql-user=root", TABLES, ROWS, CONNECTIONS]);
        sysbench.arg(format!("--mysql-socket={}", self.folder.join("socket").display()));
        sysbench
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let begin = Instant::now();
        while run(self.client().args(["--execute", "select 1"])).is_err() {
            if let Some(status) = self.server.0.try_wait()? {
                bail!("mariadbd ended at once with {status}");
            }
            if begin.elapsed() > STARTS {
                bail!("mariadbd does not listen after {STARTS:?}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Rounds of these ways within its process.
    fn switched(&self, ways: &[Metering], rounds: usize, random: &mut Random) -> Result<Rounds> {
        let mut measured = Rounds { ways: ways.to_vec(), slices: Vec::new(), unit: UNIT };
        let mut load = self.load()?;
        for _ in 0..rounds {
            let mut slices = vec![Slice::default(); ways.len()];
            let mut order: Vec<usize> = (0..ways.len()).collect();
            random.shuffle(&mut order);
            for way in order {
                ways[way].switch(self.server.0.id())?;
                std::thread::sleep(SETTLE);
                slices[way] = load.slice()?;
            }
            measured.slices.push(slices);
        }
        Ok(measured)
    }

    /// Until it is dropped.
    fn load(&self) -> Result<Load> {
        let mut sysbench = self.sysbench();
        sysbench.args(["--time=0", "run"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let sysbench = Running(sysbench.spawn().context("cannot run sysbench")?);
        let mut client = self.client();
        client.args(["--batch", "--unbuffered", "--skip-column-names"]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = Running(client.spawn().context("cannot run mariadb")?);
        let asks = client.0.stdin.take().context("mariadb has no input")?;
        let answers = BufReader::new(client.0.stdout.take().context("mariadb has no output")?).lines();
        std::thread::sleep(WARM_UP);
        Ok(Load { server: self.server.0.id(), asks, answers, _client: client, _sysbench: sysbench })
    }
}

/// A running load, and a client that asks the server how much of it is done.
struct Load {
    server: u32,
    asks: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _client: Running,
    _sysbench: Running,
}

impl Load {
    fn slice(&mut self) -> Result<Slice> {
        let (begin, before, begin_ns) = self.look()?;
        std::thread::sleep(SLICE);
        let (end, after, end_ns) = self.look()?;
        if after <= before {
            bail!("no transaction in {SLICE:?}: do mariadbd and sysbench still run?");
        }
        let transactions = (after - before) as f64;
        Ok(Slice {
            rate: transactions / (end - begin).as_secs_f64(),
            cpu_ns: Some(end_ns.saturating_sub(begin_ns) as f64 / transactions),
        })
    }

    /// The time, the transactions so far, and the server's CPU time.
    fn look(&mut self) -> Result<(Instant, u64, u64)> {
        self.asks.write_all(b"show global status like 'Com_commit';\n").context("cannot ask mariadbd")?;
        let answer = self.answers.next().context("mariadbd does not answer")??;
        let committed = answer.split_once('\t').and_then(|(_, count)| count.parse().ok());
        let committed = committed.with_context(|| format!("no count of transactions in `{answer}`"))?;
        Ok((Instant::now(), committed, cpu_ns(self.server)))
    }
}

fn run(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} ended with {}: {}", output.status, said.lines().last().unwrap_or_default());
    }
    Ok(output)
}
