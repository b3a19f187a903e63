//! JSON and CSV of what ran: the same contract as a report's, explained in `docs/reference/json.md`.

use std::io;

use lockmeter_profile::RecordingKind;
use lockmeter_profile::latency::{LatencyReport, LatencyRow, LongRunRow, RunWaitRow};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::columns::{COLUMNS, LatencyWhole};
use super::headline::LatencyHeadline;
use super::long_runs;
use crate::csv::write_records;
use crate::escape::Form;
use crate::json::{Cost, Lost, Rows, object, reason, write_line, write_object};
use crate::{Csv, Exporter, JSON_SCHEMA, Json, JsonLine};

impl Exporter<LatencyReport> for Json {
    fn form(&self) -> Form {
        Form::JSON
    }

    fn export(&self, report: &LatencyReport, out: &mut dyn io::Write) -> io::Result<()> {
        write_object(&Top(report), out)
    }
}

impl Exporter<LatencyReport> for JsonLine {
    fn form(&self) -> Form {
        Form::JSON
    }

    fn export(&self, report: &LatencyReport, out: &mut dyn io::Write) -> io::Result<()> {
        write_line(&Top(report), out)
    }
}

impl Exporter<LatencyReport> for Csv {
    fn form(&self) -> Form {
        Form::CSV
    }

    fn export(&self, report: &LatencyReport, out: &mut dyn io::Write) -> io::Result<()> {
        let columns: Vec<_> = COLUMNS.iter().collect();
        write_records(&columns, &report.rows, &LatencyWhole::from(report), out)
    }
}

struct Top<'a>(&'a LatencyReport);

impl Serialize for Top<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(report) = self;
        object!(serializer, {
            "schema": JSON_SCHEMA,
            "what": "latency",
            "lockmeter": report.about.lockmeter_version,
            "kernel": report.about.kernel_release,
            "machine": report.about.machine,
            "recorded": report.about.kind.map(RecordingKind::name),
            "scope": report.about.scope,
            "reason": reason(&report.about),
            "start_unix_ns": report.start_unix_ns,
            "duration_ns": report.duration_ns,
            "intervals": report.intervals,
            "cpus": report.about.cpus,
            "lost": Lost(&report.losses),
            "overhead": Cost(&report.overhead, report.duration_ns),
            "head": Head(report),
            "rows": Rows { columns: COLUMNS.iter().collect(), rows: &report.rows, whole: LatencyWhole::from(*report) },
            "long_runs": report.long_runs.iter().map(Long).collect::<Vec<_>>(),
        })
    }
}

struct Head<'a>(&'a LatencyReport);

impl Serialize for Head<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let head = LatencyHeadline::of(self.0);
        object!(serializer, {
            "sentence": head.to_string(),
            "own_ns": self.0.own_ns(),
            "cpu_ppm": head.cpu_ppm(),
            "longest": head.worst().map(Named),
            "longest_work": head.worst_item().map(Named),
            "latest": head.latest().map(Named),
            "heaviest": head.heaviest().map(Named),
        })
    }
}

struct Named<'a>(&'a LatencyRow);

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(row) = self;
        object!(serializer, {
            "kind": row.kind.name(),
            "name": row.name,
            "max_ns": row.runs.max_ns,
            "delay_max_ns": (row.delays.count > 0).then_some(row.delays.max_ns),
        })
    }
}

struct Long<'a>(&'a LongRunRow);

impl Serialize for Long<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(run) = self;
        let mut map = serializer.serialize_map(None)?;
        for column in long_runs::COLUMNS {
            map.serialize_entry(column.key, &column.cell(run, &()))?;
        }
        map.serialize_entry("waits", &run.waits.iter().map(Wait).collect::<Vec<_>>())?;
        map.end()
    }
}

struct Wait<'a>(&'a RunWaitRow);

impl Serialize for Wait<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(wait) = self;
        object!(serializer, {
            "lock": wait.lock,
            "kind": wait.kind.name(),
            "mode": wait.mode.name(),
            "count": wait.count,
            "total_ns": wait.total_ns,
            "caller": wait.caller,
        })
    }
}
