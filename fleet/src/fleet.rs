//! The recordings of many machines, which are asked in SQL.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};

use lockmeter_render::units::counted;
use serde_json::{Value as Json, json};

use crate::failure::Failure;
use crate::files::{Files, HourFile, StoredTable, Unread};
use crate::store::{Store, runtime};
use crate::values::{float, number, rows, text};
use crate::window::Window;

/// A JSON object.
type Object = serde_json::Map<String, Json>;

/// Files and hosts are named up to here, and counted beyond.
const NAMED: usize = 3;

/// The questions that other engines are asked, too.
const VIEWS: &str = include_str!("../sql/views.sql");

/// What questions may take; beyond it they go on on the disk, or fail.
const MOST_MEMORY: usize = 1 << 30;

/// Machines that were recorded in some hours.
pub struct Fleet {
    context: SessionContext,
    files: Arc<Files>,
    window: Window,
}

/// What was metered, and what of it is in an answer.
#[derive(Debug)]
pub struct Coverage {
    /// The hours that were asked for.
    pub window: Window,
    /// How many of them any machine was metered in.
    pub hours: u64,
    /// How many of these each machine was metered in, and for how long.
    pub hosts: BTreeMap<String, (u64, f64)>,
    /// How many hours of recordings there are.
    pub files: usize,
    /// Those that are not in the answer.
    pub unread: BTreeMap<HourFile, Unread>,
}

impl Fleet {
    /// Looks which recordings there are.
    pub fn of(store: &Store, window: Window) -> Result<Self, Failure> {
        let files = Arc::new(Files::of(store, &window)?);
        let environment = RuntimeEnvBuilder::new().with_memory_limit(MOST_MEMORY, 1.0).build_arc().map_err(asked)?;
        let context = SessionContext::new_with_config_rt(SessionConfig::new(), environment);
        for (name, table) in [("samples", "samples"), ("recordings", "recordings"), ("stored_stacks", "stacks")] {
            context.register_table(name, Arc::new(StoredTable::new(&files, table))).map_err(asked)?;
        }
        let fleet = Self { context, files, window };
        let views = VIEWS.split_inclusive(";\n").filter(|statement| statement.contains("CREATE"));
        for statement in
            ["CREATE VIEW stacks AS SELECT DISTINCT id, frames FROM stored_stacks"].into_iter().chain(views)
        {
            runtime().block_on(fleet.context.sql(statement)).map_err(asked)?;
        }
        Ok(fleet)
    }

    /// An answer, with what is known of it: a file that turns out to be unreadable on the way is left out of all of it.
    pub fn answer<A>(&self, ask: impl Fn(&Self) -> Result<A, Failure>) -> Result<(A, Coverage), Failure> {
        loop {
            let unread = self.files.unread();
            let answer = ask(self)?;
            let coverage = self.coverage()?;
            if coverage.unread == unread {
                return Ok((answer, coverage));
            }
        }
    }

    /// The rows that a query gives. It can change nothing.
    pub fn ask(&self, sql: &str) -> Result<Vec<RecordBatch>, Failure> {
        let harmless = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        runtime().block_on(async { self.context.sql_with_options(sql, harmless).await?.collect().await }).map_err(asked)
    }

    fn coverage(&self) -> Result<Coverage, Failure> {
        let hosts = self.ask(
            "SELECT host, count(*) AS hours, sum(metered) AS metered_ns FROM (
                SELECT host, date, hour, CAST(sum(metered_ns) AS DOUBLE) AS metered FROM recordings GROUP BY host, date, hour
            ) AS of_hour GROUP BY host",
        )?;
        let of_host = |batch: &RecordBatch, row: usize| {
            (text(batch, 0, row).unwrap_or_default(), (number(batch, 1, row), float(batch, 2, row)))
        };
        let hours = self.ask("SELECT count(*) FROM (SELECT DISTINCT date, hour FROM recordings) AS of_hour")?;
        Ok(Coverage {
            window: self.window.clone(),
            hours: hours.first().map_or(0, |batch| number(batch, 0, 0)),
            hosts: rows(&hosts, of_host).collect(),
            files: self.files.len(),
            unread: self.files.unread(),
        })
    }
}

impl Coverage {
    /// How long each machine was metered, in nanoseconds.
    pub fn metered_ns(&self, host: &str) -> f64 {
        self.hosts.get(host).map_or(0.0, |(_, metered_ns)| *metered_ns)
    }

    /// What a reader must know before the numbers: what is not in them.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let (newer, broken): (Vec<_>, Vec<_>) = self.unread.iter().partition(|(_, why)| **why == Unread::Newer);
        let files = counted(self.files as u64, "hour of a recording", "hours of recordings");
        let names = |unread: &[(&HourFile, &Unread)]| {
            let named = unread.iter().take(NAMED).map(|(file, why)| match why {
                Unread::Newer => file.to_string(),
                Unread::Broken(why) => format!("{file}: {why}"),
            });
            let more = unread.len().saturating_sub(NAMED);
            named.chain((more > 0).then(|| format!("and {more} more"))).collect::<Vec<_>>().join("; ")
        };
        if !broken.is_empty() {
            sentences.push(format!("Left out: {} of {files}, which cannot be read: {}.", broken.len(), names(&broken)));
        }
        if !newer.is_empty() {
            let names = names(&newer);
            sentences
                .push(format!("Left out: {} of {files}, which a newer lockmeter-fleet wrote: {names}.", newer.len()));
        }
        let partly = self.hosts.iter().filter(|(_, (hours, _))| *hours < self.hours).collect::<Vec<_>>();
        if !partly.is_empty() {
            let named = partly.iter().take(NAMED).map(|(host, (hours, _))| format!("{host} in {hours}"));
            let more = partly.len().saturating_sub(NAMED);
            let named = named.chain((more > 0).then(|| format!("and {more} more"))).collect::<Vec<_>>().join(", ");
            let hosts = counted(self.hosts.len() as u64, "host", "hosts");
            sentences.push(format!(
                "Not metered in each of the {}: {} of {hosts} ({named}).",
                counted(self.hours, "hour", "hours"),
                partly.len()
            ));
        }
        sentences
    }

    /// The same for programs.
    pub fn json(&self) -> Json {
        let [since_unix_ns, until_unix_ns] = self.window.ends_ns();
        let why = |why: &Unread| {
            match why {
                Unread::Newer => "a newer lockmeter-fleet wrote it",
                Unread::Broken(why) => why,
            }
            .to_owned()
        };
        let partly = self.hosts.iter().filter(|(_, (hours, _))| *hours < self.hours);
        json!({
            "since_unix_ns": since_unix_ns,
            "until_unix_ns": until_unix_ns,
            "hours": self.hours,
            "hosts": self.hosts.len(),
            "host_hours": self.files,
            "unread": self.unread.iter().map(|(file, of)| (file.to_string(), why(of).into())).collect::<Object>(),
            "hosts_missing_in_hours": partly.map(|(host, (hours, _))| (host.clone(), (self.hours - hours).into())).collect::<Object>(),
        })
    }
}

fn asked(error: datafusion::error::DataFusionError) -> Failure {
    Failure::input(error.strip_backtrace())
}
