//! PostgreSQL, which says in `pg_stat_activity` what each of its processes waits for.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::load::{AFTER_LIST, Load, process};
use crate::processes::{Conversation, Running, find, hurry, run};
use crate::reason::Reason;
use crate::thread_states;
use crate::truth::Looks;

pub const SOURCE: &str = "pg_stat_activity, of those processes that /proc shows asleep";
const STARTS: Duration = Duration::from_secs(60);
/// In the name of the socket: nothing listens on the network.
const PORT: &str = "5497";
/// All of them want to change one row.
const HOT_ROW: &str = "UPDATE t SET v = v + 1 WHERE id = 1;\n";
/// Connected, and nothing to do.
const NOTHING: &str = "\\sleep 1000 s\n";

struct PostgreSql {
    client: Conversation,
    _load: Running,
    server: Running,
    _folder: tempfile::TempDir,
}

pub fn hot_row(_: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    PostgreSql::start(HOT_ROW)
}

pub fn idle(_: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    PostgreSql::start(NOTHING)
}

impl PostgreSql {
    fn start(script: &str) -> Result<Box<dyn Load>> {
        let programs = programs()?;
        // The server must reach it, which does not run as root.
        let folder = tempfile::tempdir().context("cannot make a folder for the data")?;
        let at = folder.path();
        run(Command::new("chown").arg("postgres").arg(at))?;
        let as_postgres = |program: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig=QUIT"]);
            command.arg(programs.join(program)).current_dir("/");
            command
        };
        run(as_postgres("initdb").args(["-A", "trust", "-N", "-D"]).arg(at.join("data")))?;
        let mut server = as_postgres("postgres");
        server.arg("-D").arg(at.join("data")).arg("-k").arg(at).args(["-p", PORT, "-c", "listen_addresses="]);
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SIGINT: a fast shutdown.
        let mut server = Running::start(&mut server, libc::SIGINT)?;
        let begin = Instant::now();
        let of_client = |program: &str| {
            let mut command = Command::new(programs.join(program));
            command.args(["-U", "postgres", "-p", PORT, "-h"]).arg(at);
            command
        };
        while run(&mut of_client("pg_isready")).is_err() {
            ensure!(!server.has_ended()?, "postgres ended at once");
            ensure!(begin.elapsed() < STARTS, "postgres does not listen after {STARTS:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut client = of_client("psql");
        client.args(["-X", "-q", "-A", "-t", "-F", "\t", "postgres"]).stderr(Stdio::null());
        let mut client = Conversation::start(&mut client)?;
        client.rows("create table t (id int primary key, v bigint); insert into t values (1, 0);")?;
        let backend = client.rows("select pg_backend_pid();")?;
        hurry(client.pid())?;
        hurry(backend.first().and_then(|row| row[0].parse().ok()).context("psql does not say which backend it has")?)?;
        std::fs::write(at.join("script"), script).context("cannot write the script of pgbench")?;
        let mut load = of_client("pgbench");
        load.args(["-n", "-c", "16", "-j", "2", "-T", "100000", "-f"]).arg(at.join("script")).arg("postgres");
        load.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let load = Running::start(&mut load, libc::SIGTERM)?;
        let connected = "select count(*) from pg_stat_activity where application_name = 'pgbench';";
        while client.rows(connected)?.first().and_then(|row| row.first()).is_none_or(|count| count != "16") {
            ensure!(begin.elapsed() < STARTS, "pgbench does not connect");
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_secs(1));
        Ok(Box::new(Self { client, _load: load, server, _folder: folder }))
    }
}

/// Of the newest version that is installed.
fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("postgres").exists());
    let newest = versions.max().context("postgresql is not installed (scripts/setup bench installs it)")?;
    find("setpriv")?;
    Ok(newest)
}

impl Load for PostgreSql {
    fn scope(&self) -> Vec<String> {
        process(self.server.pid())
    }

    fn look(&mut self, looks: &mut Looks) -> Result<()> {
        let threads = thread_states::list(&[self.server.pid()]);
        std::thread::sleep(AFTER_LIST);
        let rows =
            self.client.rows("select pid, wait_event_type from pg_stat_activity where wait_event_type <> '';")?;
        looks.threads(&thread_states::of(&threads), |tid, _| {
            let tid = tid.to_string();
            match rows.iter().find(|row| row[0] == tid)?.get(1)?.as_str() {
                "Lock" => Some((Reason::UserLock, "PostgreSQL heavyweight lock")),
                "LWLock" => Some((Reason::UserLock, "PostgreSQL LWLock")),
                "BufferPin" => Some((Reason::UserLock, "PostgreSQL buffer pin")),
                "IO" => Some((Reason::DiskIo, "")),
                _ => None,
            }
        });
        Ok(())
    }

    fn work(&mut self) -> Result<Option<u64>> {
        let rows = self.client.rows("select v from t where id = 1;")?;
        let done: u64 = rows.first().and_then(|row| row[0].parse().ok()).context("postgres does not say how often")?;
        Ok((done > 0).then_some(done))
    }
}
