//! MariaDB under sysbench: a data folder of its own, a Unix socket, nothing on the network.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lockmeter_statistics::Random;

use crate::metered::{Metering, Way};
use crate::server::{Running, cpu_ns};
use crate::{Rounds, Slice};

const TABLES: &str = "--tables=4";
const ROWS: &str = "--table-size=5000";
/// Connections, each served by a thread of its own.
const CONNECTIONS: &str = "--threads=8";
const UNIT: &str = "transactions/s";
const LEVELS: [Metering; 4] = [Metering::Off, Metering::Wait, Metering::Hold, Metering::HoldEvery];
/// The first installs its tables on a slow disk.
const STARTS: Duration = Duration::from_secs(60);
/// sysbench reports its transactions every second: that is a slice. The first few are slow.
const WARM_UP: usize = 3;
/// Seconds of each turn in which a server of two is under load.
const TURN: usize = 4;

/// A server that listens, with tables to work on.
struct Database {
    server: Running,
    folder: PathBuf,
}

/// The levels within one process, then what the library costs at all, as with the other servers.
pub fn measure(rounds: usize, random: &mut Random) -> Result<Vec<Rounds>> {
    let folder = tempfile::tempdir().context("cannot make a folder for the data")?;
    let metered = Way::prepare(Metering::Hold)?;
    let database = Database::start(&metered, &folder.path().join("metered"))?;
    let levels = database.levels(rounds, random)?;
    let bare_way = Way::prepare(Metering::Bare)?;
    let bare = Database::start(&bare_way, &folder.path().join("bare"))?;
    Metering::Off.switch(database.server.0.id())?;
    let library = in_turn([&bare, &database], rounds.div_ceil(TURN), random)?;
    drop((bare, database));
    metered.finish(true)?;
    Ok(vec![levels, library])
}

/// Bare and metered in turn, for some seconds each.
fn in_turn(databases: [&Database; 2], turns: usize, random: &mut Random) -> Result<Rounds> {
    let mut measured = Rounds { ways: vec![Metering::Bare, Metering::Off], slices: Vec::new(), unit: UNIT };
    for _ in 0..turns {
        let mut of_turn = [const { Vec::new() }; 2];
        let mut order = [0, 1];
        random.shuffle(&mut order);
        for way in order {
            let database = databases[way];
            let mut load = database.load(WARM_UP + TURN)?;
            for _ in 0..WARM_UP {
                load.second()?;
            }
            for _ in 0..TURN {
                of_turn[way].push(database.slice(&mut load)?);
            }
        }
        let [bare, off] = of_turn;
        measured.slices.extend(bare.into_iter().zip(off).map(|(bare, off)| vec![bare, off]));
    }
    Ok(measured)
}

impl Database {
    fn start(way: &Way, folder: &Path) -> Result<Self> {
        let data = format!("--datadir={}", folder.join("data").display());
        std::fs::create_dir(folder).context("cannot make a folder for the data")?;
        let mut install = Command::new("mariadb-install-db");
        install.args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        run(install.arg(&data))?;
        let mut command = way.command("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-networking", "--skip-log-bin"]);
        // What is measured is locks, not the disk.
        command.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M"]);
        command.arg(data).arg(format!("--socket={}", folder.join("socket").display()));
        command.arg(format!("--pid-file={}", folder.join("pid").display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Running(command.spawn().context("cannot run mariadbd")?);
        let mut database = Self { server, folder: folder.to_owned() };
        database.wait_until_it_listens()?;
        run(database.client().args(["--execute", "create database sbtest"]))?;
        run(database.sysbench().arg("prepare"))?;
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

    fn levels(&self, rounds: usize, random: &mut Random) -> Result<Rounds> {
        let mut measured = Rounds { ways: LEVELS.to_vec(), slices: Vec::new(), unit: UNIT };
        let mut load = self.load(WARM_UP + rounds * LEVELS.len())?;
        for _ in 0..WARM_UP {
            load.second()?;
        }
        for _ in 0..rounds {
            let mut slices = vec![Slice::default(); LEVELS.len()];
            let mut order: Vec<usize> = (0..LEVELS.len()).collect();
            random.shuffle(&mut order);
            for way in order {
                LEVELS[way].switch(self.server.0.id())?;
                slices[way] = self.slice(&mut load)?;
            }
            measured.slices.push(slices);
        }
        Ok(measured)
    }

    /// A second of the load, which has just begun.
    fn slice(&self, load: &mut Sysbench) -> Result<Slice> {
        let begin_ns = cpu_ns(self.server.0.id());
        let rate = load.second()?;
        let spent_ns = cpu_ns(self.server.0.id()).saturating_sub(begin_ns);
        Ok(Slice { rate, cpu_ns: Some(spent_ns as f64 / rate.max(1.0)) })
    }

    /// For so many seconds.
    fn load(&self, seconds: usize) -> Result<Sysbench> {
        // One more than is read: the last is not whole.
        let mut command = self.sysbench();
        command.arg(format!("--time={}", seconds + 1)).args(["--report-interval=1", "run"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().context("cannot run sysbench")?;
        let output = process.stdout.take().context("sysbench has no output")?;
        Ok(Sysbench { lines: BufReader::new(output).lines(), process })
    }
}

/// A running load; dropping it ends it.
struct Sysbench {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Sysbench {
    /// Waits for the report of a second, and returns its transactions.
    fn second(&mut self) -> Result<f64> {
        for line in &mut self.lines {
            if let Some(rate) = transactions_per_s(&line?) {
                return Ok(rate);
            }
        }
        bail!("sysbench ended early: is mariadbd still there?")
    }
}

impl Drop for Sysbench {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Out of `[ 1s ] thds: 8 tps: 345.61 qps: …`.
fn transactions_per_s(line: &str) -> Option<f64> {
    line.starts_with('[').then_some(())?;
    line.split_once(" tps: ")?.1.split(' ').next()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_read_from_reports_only() {
        let report = "[ 3s ] thds: 8 tps: 345.61 qps: 6913.14 (r/w/o: 4839.50/1382.43/691.21) lat (ms,95%): 31.37";
        assert_eq!(transactions_per_s(report), Some(345.61));
        assert_eq!(transactions_per_s("Threads started! tps: 1"), None);
    }
}
