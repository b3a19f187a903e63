//! MariaDB, which counts for how long its threads have waited for row locks.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::load::{AFTER_LIST, Load, process};
use crate::processes::{Conversation, Running, find, hurry, run};
use crate::reason::Reason;
use crate::thread_states;
use crate::truth::{Looks, Sum};

pub const SOURCE: &str = "Innodb_row_lock_time (row locks), and /proc (the rest)";
/// A thread that answers a question has another one wait: the threads are looked at between two questions.
pub const EVERY: Duration = Duration::from_millis(30);
/// Looks at its threads for each question.
const LOOKS: u32 = 16;
const STARTS: Duration = Duration::from_secs(60);
const HOT_ROW: &str = "begin;update test.t set v = v + 1 where id = 1;commit";

/// In milliseconds, of waits that have ended.
const ROW_LOCK_TIME: &str =
    "select variable_value from information_schema.global_status where variable_name = 'Innodb_row_lock_time';";

struct MariaDb {
    client: Conversation,
    looks: u32,
    begun: Instant,
    _load: Option<Running>,
    server: Running,
    _folder: tempfile::TempDir,
}

pub fn hot_row(_: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    MariaDb::start(true)
}

pub fn idle(_: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    MariaDb::start(false)
}

impl MariaDb {
    fn start(hot_row: bool) -> Result<Box<dyn Load>> {
        let (server, slap) = (find("mariadbd")?, find("mariadb-slap")?);
        let folder = tempfile::tempdir().context("cannot make a folder for the data")?;
        let at = folder.path();
        let (data, socket) = (format!("--datadir={}", at.join("data").display()), at.join("socket"));
        let mut install = Command::new(find("mariadb-install-db")?);
        install.args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        run(install.arg(&data))?;
        let mut server = Command::new(server);
        server.args(["--no-defaults", "--user=root", "--skip-networking", "--skip-log-bin"]);
        server.arg(&data).arg(of_socket(&socket)).arg(format!("--pid-file={}", at.join("pid").display()));
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Running::start(&mut server, libc::SIGTERM)?;
        let client = || -> Result<Command> {
            let mut client = Command::new(find("mariadb")?);
            client.args(["--no-defaults", "--user=root"]).arg(of_socket(&socket));
            Ok(client)
        };
        let begin = Instant::now();
        while run(client()?.args(["--execute", "select 1"])).is_err() {
            ensure!(!server.has_ended()?, "mariadbd ended at once");
            ensure!(begin.elapsed() < STARTS, "mariadbd does not listen after {STARTS:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut client = client()?;
        client.args(["--batch", "--unbuffered", "--skip-column-names"]).stderr(Stdio::null());
        let mut client = Conversation::start(&mut client)?;
        client.rows(
            "create database if not exists test; create table test.t (id int primary key, v bigint) engine=innodb;",
        )?;
        client.rows("insert into test.t values (1, 0);")?;
        let thread = client.rows("select tid from information_schema.processlist where id = connection_id();")?;
        hurry(client.pid())?;
        hurry(
            thread.first().and_then(|row| row[0].parse().ok()).context("mariadbd does not say which thread it has")?,
        )?;
        let load = if hot_row {
            let mut load = Command::new(slap);
            load.args(["--no-defaults", "--user=root", "--concurrency=16", "--number-of-queries=2000000000"]);
            load.args(["--create-schema=test", "--no-drop", "--delimiter=;", "--query", HOT_ROW])
                .arg(of_socket(&socket));
            load.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Some(Running::start(&mut load, libc::SIGTERM)?)
        } else {
            None
        };
        std::thread::sleep(Duration::from_secs(2));
        Ok(Box::new(Self { client, looks: 0, begun: Instant::now(), _load: load, server, _folder: folder }))
    }
}

fn of_socket(socket: &Path) -> String {
    format!("--socket={}", socket.display())
}

impl Load for MariaDb {
    fn scope(&self) -> Vec<String> {
        process(self.server.pid())
    }

    fn look(&mut self, looks: &mut Looks) -> Result<()> {
        if self.looks.is_multiple_of(LOOKS) {
            let rows = self.client.rows(ROW_LOCK_TIME)?;
            let at_ns = u64::try_from(self.begun.elapsed().as_nanos())?;
            let waited_ms: u64 =
                rows.first().and_then(|row| row[0].parse().ok()).context("mariadbd does not say how long")?;
            looks.sum_among(
                Reason::Condition,
                "InnoDB row lock",
                Sum { at_ns, work: 0, waited_ns: waited_ms * 1_000_000 },
            );
        } else {
            let threads = thread_states::list(&[self.server.pid()]);
            std::thread::sleep(AFTER_LIST);
            looks.threads(&thread_states::of(&threads), |_, _| None);
        }
        self.looks += 1;
        Ok(())
    }

    fn work(&mut self) -> Result<Option<u64>> {
        let rows = self.client.rows("select v from test.t where id = 1;")?;
        let done: u64 = rows.first().and_then(|row| row[0].parse().ok()).context("mariadbd does not say how often")?;
        Ok((done > 0).then_some(done))
    }
}
