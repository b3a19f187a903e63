//! MariaDB, which says which of its transactions wait for row locks.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::load::{AFTER_LIST, Load, process};
use crate::processes::{Conversation, Running, find, hurry, run};
use crate::reason::Reason;
use crate::thread_states;
use crate::truth::{Looks, Sum};

pub const SOURCE: &str = "innodb_trx (row locks), and /proc (the rest)";
/// A thread that answers a question has others wait, so that the threads are looked at between two questions. InnoDB shows the same answer
/// for a tenth of a second.
pub const EVERY: Duration = Duration::from_millis(60);
const STARTS: Duration = Duration::from_secs(60);
const HOT_ROW: &str = "begin;update test.t set v = v + 1 where id = 1;commit";

/// The server's own sum of these waits (`Innodb_row_lock_time`) leaves out what is no whole millisecond of each.
const WAITS: &str = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT';";

struct MariaDb {
    client: Conversation,
    /// Questions and looks at its threads alternate.
    asks: bool,
    begun: Instant,
    /// When it was asked last, and the time waited for rows until then, of all threads together.
    asked_ns: u64,
    waited_ns: u64,
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
        Ok(Box::new(Self {
            client,
            asks: true,
            begun: Instant::now(),
            asked_ns: 0,
            waited_ns: 0,
            _load: load,
            server,
            _folder: folder,
        }))
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
        if self.asks {
            let rows = self.client.rows(WAITS)?;
            let waiting: u64 =
                rows.first().and_then(|row| row[0].parse().ok()).context("mariadbd does not say who waits")?;
            let at_ns = u64::try_from(self.begun.elapsed().as_nanos())?;
            self.waited_ns += waiting * (at_ns - self.asked_ns);
            self.asked_ns = at_ns;
            looks.sum_among(Reason::Condition, "InnoDB row lock", Sum { at_ns, work: 0, waited_ns: self.waited_ns });
        } else {
            let threads = thread_states::list(&[self.server.pid()]);
            std::thread::sleep(AFTER_LIST);
            looks.threads(&thread_states::of(&threads), |_, _| None);
        }
        self.asks = !self.asks;
        Ok(())
    }

    fn work(&mut self) -> Result<Option<u64>> {
        let rows = self.client.rows("select v from test.t where id = 1;")?;
        let done: u64 = rows.first().and_then(|row| row[0].parse().ok()).context("mariadbd does not say how often")?;
        Ok((done > 0).then_some(done))
    }
}
