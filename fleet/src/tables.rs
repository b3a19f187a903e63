//! The columns of the tables: docs/reference/parquet.md describes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, Int64Builder, ListBuilder, MapBuilder, StringBuilder, StructBuilder};
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{About, Report};
use parquet::arrow::{ArrowSchemaConverter, parquet_to_arrow_schema};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use sha2::{Digest, Sha256};

use crate::sample::{Blamed, Key, Stack, Sum};
use crate::workload::WorkloadBy;

/// The version of the schema: it rises when a column changes its meaning or goes, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// Rows that are held as columns at a time.
const BATCH_ROWS: usize = 8192;

/// What a table's file consists of.
pub struct Table<Batches> {
    /// Its columns.
    pub schema: SchemaRef,
    /// How they are written.
    pub properties: WriterProperties,
    /// Its rows.
    pub batches: Batches,
}

/// An hour of a recording.
pub struct Slice<'a> {
    /// The machine.
    pub host: &'a str,
    /// What tells the recording from all others.
    pub recording: &'a str,
    /// What its workloads are.
    pub by: WorkloadBy,
    /// How many rows became a part of others.
    pub merged: u64,
    /// What was measured.
    pub report: &'a Report,
}

/// A column: its name, whether values may be missing, and its values.
type Column = (&'static str, bool, ArrayRef);

const REQUIRED: bool = false;
const OPTIONAL: bool = true;

/// The columns of a table, as its files are read.
pub fn schema(table: &str) -> SchemaRef {
    let report = ReportBuilder::new(&About::default(), &Query::default()).finish();
    let slice = Slice { host: "", recording: "", by: WorkloadBy::Unit, merged: 0, report: &report };
    let nothing = BTreeMap::new();
    let written = match table {
        "samples" => samples(&slice, &nothing).schema,
        "stacks" => stacks(&slice, &nothing).schema,
        _ => recordings(&slice).schema,
    };
    let in_files = ArrowSchemaConverter::new().convert(&written).expect("columns that can be written");
    Arc::new(parquet_to_arrow_schema(&in_files, None).expect("columns that were written"))
}

/// Waits and holds.
pub fn samples<'a>(
    slice: &'a Slice<'_>,
    samples: &'a BTreeMap<Key, Sum>,
) -> Table<impl Iterator<Item = RecordBatch> + 'a> {
    let rows: Vec<(&Key, &Sum)> = samples.iter().collect();
    table(slice, "lock", rows, |rows| sample_columns(slice, rows))
}

/// The functions of the stacks that these samples name.
pub fn stacks<'a>(
    slice: &'a Slice<'_>,
    samples: &'a BTreeMap<Key, Sum>,
) -> Table<impl Iterator<Item = RecordBatch> + 'a> {
    let blamed = |of: &'a Option<Blamed>| of.as_ref().map(|of| &of.stack);
    let of_keys = samples.keys().flat_map(|key| [key.caller.as_ref(), blamed(&key.blocker), blamed(&key.root)]);
    let stacks: BTreeMap<i64, &Stack> = of_keys.flatten().filter_map(|stack| Some((stack_id(stack)?, stack))).collect();
    table(slice, "id", stacks.into_iter().collect(), |rows| {
        let mut frames =
            ListBuilder::new(StringBuilder::new()).with_field(Field::new("element", DataType::Utf8, false));
        for (_, stack) in rows {
            stack.iter().for_each(|function| frames.values().append_value(function));
            frames.append(true);
        }
        vec![("id", REQUIRED, int64(rows, |(id, _)| Some(*id))), ("frames", REQUIRED, Arc::new(frames.finish()))]
    })
}

/// That there is such a recording, also where nothing waited.
pub fn recordings<'a>(slice: &'a Slice<'_>) -> Table<impl Iterator<Item = RecordBatch> + 'a> {
    table(slice, "time", vec![slice.report], |rows| {
        let mut losses = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
        for (loss, count) in slice.report.losses.iter() {
            losses.keys().append_value(loss.name());
            losses.values().append_value(clamped(count));
        }
        losses.append(true).expect("each loss has a name and a number");
        let about = &slice.report.about;
        vec![
            ("host", REQUIRED, text(rows, |_| Some(slice.host))),
            ("recording", REQUIRED, text(rows, |_| Some(slice.recording))),
            ("kernel", REQUIRED, text(rows, |_| Some(&about.kernel_release))),
            ("machine", REQUIRED, text(rows, |_| Some(&about.machine))),
            (
                "cpus",
                REQUIRED,
                Arc::new(Int32Array::from_value(i32::try_from(about.cpus).unwrap_or(i32::MAX), rows.len())),
            ),
            ("lockmeter", REQUIRED, text(rows, |_| Some(&about.lockmeter_version))),
            ("scope", REQUIRED, text(rows, |_| Some(&about.scope))),
            ("kept_because", OPTIONAL, text(rows, |_| Some(about.reason.as_str()).filter(|reason| !reason.is_empty()))),
            ("workload_by", REQUIRED, text(rows, |_| Some(slice.by.name()))),
            ("time", REQUIRED, time(slice, rows.len())),
            ("intervals", REQUIRED, int64(rows, |report| Some(clamped(report.intervals)))),
            ("metered_ns", REQUIRED, int64(rows, |report| Some(clamped(report.duration_ns)))),
            ("merged", OPTIONAL, int64(rows, |_| Some(clamped(slice.merged)))),
            ("losses", REQUIRED, Arc::new(losses.finish())),
        ]
    })
}

fn sample_columns(slice: &Slice<'_>, rows: &[(&Key, &Sum)]) -> Vec<Column> {
    let name = |of: &Option<Blamed>| of.as_ref().map(|of| of.source.name());
    let state = |of: &Option<Blamed>| of.as_ref().and_then(|of| of.state).map(|state| state.name());
    let number = |value: fn(&Sum) -> u64| int64(rows, |(_, sum)| Some(clamped(value(sum))));
    vec![
        ("host", REQUIRED, text(rows, |_| Some(slice.host))),
        ("recording", REQUIRED, text(rows, |_| Some(slice.recording))),
        ("workload", OPTIONAL, text(rows, |(key, _)| key.workload.as_deref())),
        ("kernel", REQUIRED, text(rows, |_| Some(&slice.report.about.kernel_release))),
        ("time", REQUIRED, time(slice, rows.len())),
        ("happened", REQUIRED, text(rows, |(key, _)| Some(key.happened.name()))),
        ("lock", REQUIRED, text(rows, |(key, _)| Some(&key.lock))),
        ("naming", OPTIONAL, text(rows, |(_, sum)| sum.naming.map(|naming| naming.name()))),
        ("kind", OPTIONAL, text(rows, |(key, _)| key.kind.map(|kind| kind.name()))),
        ("mode", OPTIONAL, text(rows, |(key, _)| key.mode.map(|mode| mode.name()))),
        ("caller", OPTIONAL, text(rows, |(key, _)| function(key.caller.as_ref()))),
        ("caller_stack", OPTIONAL, int64(rows, |(key, _)| stack_id(key.caller.as_ref()?))),
        ("blocker", OPTIONAL, text(rows, |(key, _)| function(key.blocker.as_ref().map(|of| &of.stack)))),
        ("blocker_stack", OPTIONAL, int64(rows, |(key, _)| stack_id(&key.blocker.as_ref()?.stack))),
        ("blocker_reason", OPTIONAL, text(rows, |(key, _)| name(&key.blocker))),
        ("blocker_state", OPTIONAL, text(rows, |(key, _)| state(&key.blocker))),
        ("root", OPTIONAL, text(rows, |(key, _)| function(key.root.as_ref().map(|of| &of.stack)))),
        ("root_stack", OPTIONAL, int64(rows, |(key, _)| stack_id(&key.root.as_ref()?.stack))),
        ("root_lock", OPTIONAL, text(rows, |(key, _)| key.root_lock.as_deref())),
        ("root_reason", OPTIONAL, text(rows, |(key, _)| name(&key.root))),
        ("root_state", OPTIONAL, text(rows, |(key, _)| state(&key.root))),
        ("count", REQUIRED, number(|sum| sum.value.count)),
        ("total_ns", REQUIRED, number(|sum| sum.value.total_ns)),
        ("spin_ns", REQUIRED, number(|sum| sum.value.spin_ns)),
        ("max_ns", REQUIRED, number(|sum| sum.value.max_ns)),
        (
            "timed",
            OPTIONAL,
            int64(rows, |(_, sum)| sum.basis.map(|basis| clamped(sum.value.count.saturating_sub(basis.untimed)))),
        ),
        ("stacks", REQUIRED, number(|sum| sum.stacks)),
        ("histogram", REQUIRED, histograms(rows)),
    ]
}

/// `list<struct<bucket, count, total_ns>>`.
fn histograms(rows: &[(&Key, &Sum)]) -> ArrayRef {
    let fields = Fields::from(vec![
        Field::new("bucket", DataType::Int32, false),
        Field::new("count", DataType::Int64, false),
        Field::new("total_ns", DataType::Int64, false),
    ]);
    let bucket = StructBuilder::from_fields(fields.clone(), rows.len());
    let mut list = ListBuilder::new(bucket).with_field(Field::new("element", DataType::Struct(fields), false));
    for (_, sum) in rows {
        for (bucket, (count, total_ns)) in &sum.histogram {
            let row = list.values();
            row.field_builder::<Int32Builder>(0).expect("a bucket").append_value((*bucket).into());
            row.field_builder::<Int64Builder>(1).expect("a count").append_value(clamped(*count));
            row.field_builder::<Int64Builder>(2).expect("a time").append_value(clamped(*total_ns));
            row.append(true);
        }
        list.append(true);
    }
    Arc::new(list.finish())
}

/// What a stack is known by, on all machines: the first 8 bytes of the SHA-256 of its functions. `None`: it is not known.
fn stack_id(stack: &Stack) -> Option<i64> {
    let mut hash = Sha256::new();
    for function in stack.iter() {
        hash.update((function.len() as u64).to_le_bytes());
        hash.update(function.as_bytes());
    }
    let bytes = hash.finalize().iter().take(8).fold(0_u64, |id, byte| id << 8 | u64::from(*byte));
    (!stack.is_empty()).then_some(bytes.cast_signed())
}

/// The innermost function.
fn function(stack: Option<&Stack>) -> Option<&str> {
    stack?.first().map(|function| &**function)
}

/// Engines count in signed numbers.
fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn text<'a, Row: 'a, Text: AsRef<str> + ?Sized + 'a>(
    rows: &'a [Row],
    of: impl Fn(&'a Row) -> Option<&'a Text>,
) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<StringArray>())
}

fn int64<Row>(rows: &[Row], of: impl Fn(&Row) -> Option<i64>) -> ArrayRef {
    Arc::new(rows.iter().map(of).collect::<Int64Array>())
}

/// When the slice begins.
fn time(slice: &Slice<'_>, rows: usize) -> ArrayRef {
    let time = TimestampMicrosecondArray::from_value(clamped(slice.report.start_unix_ns / 1000), rows);
    Arc::new(time.with_timezone("UTC"))
}

/// A table of these rows, which are sorted by that column; a part of them as columns at a time.
fn table<'a, Row: 'a>(
    slice: &Slice<'_>,
    sorted: &str,
    rows: Vec<Row>,
    columns: impl Fn(&[Row]) -> Vec<Column> + 'a,
) -> Table<impl Iterator<Item = RecordBatch> + 'a> {
    let fields = |columns: &[Column]| {
        let fields =
            columns.iter().map(|(name, optional, values)| Field::new(*name, values.data_type().clone(), *optional));
        Arc::new(Schema::new(fields.collect::<Fields>()))
    };
    let schema = fields(&columns(&rows[..rows.len().min(1)]));
    let leaf = schema.fields().iter().position(|field| field.name() == sorted).and_then(|at| i32::try_from(at).ok());
    let sorting = leaf.map(|column_idx| vec![SortingColumn { column_idx, descending: false, nulls_first: true }]);
    let metadata =
        [("lockmeter.schema", SCHEMA_VERSION.to_string()), ("lockmeter.recording", slice.recording.to_owned())];
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_sorting_columns(sorting)
        .set_key_value_metadata(Some(metadata.map(|(key, value)| KeyValue::new(key.to_owned(), value)).to_vec()))
        .set_created_by(format!("lockmeter-fleet {}", env!("CARGO_PKG_VERSION")))
        .build();
    let of_batches = Arc::clone(&schema);
    let mut begin = 0;
    let batches = std::iter::from_fn(move || {
        let end = rows.len().min(begin + BATCH_ROWS);
        let part = rows.get(begin..end).filter(|part| !part.is_empty())?;
        begin = end;
        let values = columns(part).into_iter().map(|(_, _, values)| values).collect();
        Some(
            RecordBatch::try_new(Arc::clone(&of_batches), values)
                .expect("columns of one length, and of the schema's types"),
        )
    });
    Table { schema, properties, batches }
}
