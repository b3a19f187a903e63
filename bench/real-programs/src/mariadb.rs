//! MariaDB, which says in `performance_schema` and `innodb_trx` what each of its threads waits for.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::load::{AFTER_LIST, Load, process};
use crate::processes::{Conversation, Running, find, hurry, run};
use crate::reason::Reason;
use crate::thread_states;
use crate::truth::Looks;

pub const SOURCE: &str = "innodb_trx and performance_schema (locks), and /proc (the rest)";
/// InnoDB shows the same answer for a tenth of a second.
pub const EVERY: Duration = Duration::from_millis(125);
const STARTS: Duration = Duration::from_secs(60);
const HOT_ROW: &str = "begin;update test.t set v = v + 1 where id = 1;commit";

/// What a thread waits for, and whether its transaction waits for a row. All such waits are futex calls.
const WAITS: &str = "select coalesce(w.event_name, ''), coalesce(x.trx_state, '')
 from performance_schema.threads t
 left join performance_schema.events_waits_current w on w.thread_id = t.thread_id and w.timer_end is null
 left join information_schema.innodb_trx x on x.trx_mysql_thread_id = t.processlist_id;";

struct MariaDb {
    client: Conversation,
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
        server.args(["--no-defaults", "--user=root", "--skip-networking", "--skip-log-bin", "--performance-schema=on"]);
        server.args([
            "--performance-schema-instrument=wait/%=on",
            "--performance-schema-consumer-events-waits-current=on",
        ]);
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
        Ok(Box::new(Self { client, _load: load, server, _folder: folder }))
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
        let threads = thread_states::list(&[self.server.pid()]);
        std::thread::sleep(AFTER_LIST);
        let rows = self.client.rows(&WAITS.replace('\n', ""))?;
        looks.threads(&thread_states::of(&threads), |_, _| None);
        let column = |row: &[String], at: usize| row.get(at).cloned().unwrap_or_default();
        let of_rows = rows.iter().filter(|row| column(row, 1) == "LOCK WAIT").count();
        looks.of_these(Reason::Condition, of_rows, "InnoDB row lock");
        let is_lock = |event: &str| {
            ["mutex", "rwlock", "sxlock"].iter().any(|kind| event.starts_with(&format!("wait/synch/{kind}")))
        };
        let of_own = rows.iter().filter(|row| column(row, 1) != "LOCK WAIT" && is_lock(&column(row, 0))).count();
        looks.of_these(Reason::Condition, of_own, "mutex or rwlock of MariaDB");
        Ok(())
    }

    fn work(&mut self) -> Result<Option<u64>> {
        let rows = self.client.rows("select v from test.t where id = 1;")?;
        let done: u64 = rows.first().and_then(|row| row[0].parse().ok()).context("mariadbd does not say how often")?;
        Ok((done > 0).then_some(done))
    }
}
