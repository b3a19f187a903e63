//! The files of a store, read so that none of them can spoil an answer: each is taken whole or not at all, and what is left out is known.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{
    Array, ArrayRef, Date32Array, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;

use crate::failure::Failure;
use crate::store::{Store, partition, runtime};
use crate::tables::{self, SCHEMA_VERSION};
use crate::window::Window;

/// Files and folders that are on their way from the store at a time, for each thread.
const AT_A_TIME: usize = 8;

/// A larger file is nobody's hour: files are held in memory.
const LARGEST_FILE: u64 = 64 << 20;
const LARGEST_UNPACKED: i64 = 1 << 30;

/// An hour in which 25,000 tasks wait all the time; sums over a fleet stay below 2^63.
const MOST_NS_OF_AN_HOUR: i64 = 90_000_000_000_000_000;

/// An hour of a recording: a file of that name in each table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HourFile {
    hour: u64,
    name: String,
}

impl fmt::Display for HourFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", partition(self.hour), self.name)
    }
}

/// Why a file is not in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// A newer lockmeter-fleet wrote it.
    Newer,
    /// It cannot be read, or is no file of lockmeter's.
    Broken(String),
}

/// The files of some hours.
#[derive(Debug)]
pub struct Files {
    store: Arc<dyn ObjectStore>,
    prefix: Key,
    hours: Vec<HourFile>,
    unread: Mutex<BTreeMap<HourFile, Unread>>,
}

impl Files {
    /// Looks which there are. The file in `recordings` is the last that an export writes: an hour that has none is not whole yet.
    pub fn of(store: &Store, window: &Window) -> Result<Self, Failure> {
        let (reader, prefix) = store.reader()?;
        let list = async |hour: u64| {
            let names = match store {
                Store::Folder(root) => names_in(&root.join("recordings").join(partition(hour)))?,
                Store::Bucket(..) => {
                    let folder = key(&prefix, "recordings", &partition(hour))?;
                    let listed = reader.list(Some(&folder)).try_collect::<Vec<_>>().await?.into_iter();
                    listed.filter_map(|file| Some(file.location.filename()?.to_owned())).collect()
                }
            };
            let names = names.into_iter().filter(|name| name.ends_with(".parquet"));
            Ok::<_, DataFusionError>(names.map(|name| HourFile { hour, name }).collect::<Vec<_>>())
        };
        let listed = stream::iter(window.hours()).map(list).buffered(AT_A_TIME).try_concat();
        let mut hours = runtime()
            .block_on(listed)
            .map_err(|error| Failure::input(format!("cannot read {store}: {}", first_line(&error))))?;
        hours.sort_unstable();
        Ok(Self { store: reader, prefix, hours, unread: Mutex::default() })
    }

    /// How many hours of recordings there are.
    pub fn len(&self) -> usize {
        self.hours.len()
    }

    /// What was found not to be readable so far.
    pub fn unread(&self) -> BTreeMap<HourFile, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Some columns of a table's file; nothing if it, or another table's file of that hour, cannot be read.
    async fn read(&self, table: &Columns, file: &HourFile) -> Vec<RecordBatch> {
        let unread = |why| {
            let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
            unread.entry(file.clone()).or_insert(why);
            Vec::new()
        };
        if self.unread.lock().unwrap_or_else(PoisonError::into_inner).contains_key(file) {
            return Vec::new();
        }
        let read = async {
            let content = self.store.get(&key(&self.prefix, table.table, &file.to_string())?).await?;
            if content.meta.size > LARGEST_FILE {
                return Err(too_large());
            }
            Ok::<_, DataFusionError>(content.bytes().await?)
        };
        match read.await {
            Err(error) => unread(Unread::Broken(first_line(&error))),
            // What a file's bytes say is anybody's.
            Ok(bytes) => match catch_unwind(AssertUnwindSafe(|| table.decode(bytes, file))) {
                Ok(Ok(batches)) => batches,
                Ok(Err(why)) => unread(why),
                Err(panic) => unread(Unread::Broken(words(&*panic))),
            },
        }
    }
}

/// The files in a folder. The first of them whose name is no key would end object_store's list.
fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        // A name that is no text is none of an export's.
        names.extend(
            entry.file_name().into_string().ok().filter(|_| entry.file_type().is_ok_and(|kind| kind.is_file())),
        );
    }
    Ok(names)
}

fn key(prefix: &Key, table: &str, rest: &str) -> Result<Key, object_store::Error> {
    Ok(Key::parse(format!("{prefix}/{table}/{rest}"))?)
}

fn too_large() -> DataFusionError {
    DataFusionError::ResourcesExhausted("it is larger than an hour of one machine can be".to_owned())
}

/// An error as one line: stores add what they were asked and answered.
fn first_line(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    text.lines().next().unwrap_or_default().to_owned()
}

fn words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    words.unwrap_or("it makes its reader fail").to_owned()
}

impl From<ParquetError> for Unread {
    fn from(error: ParquetError) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<ArrowError> for Unread {
    fn from(error: ArrowError) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Columns of a table: those of its files, then `date` and `hour`.
#[derive(Debug, Clone)]
struct Columns {
    table: &'static str,
    schema: SchemaRef,
}

impl Columns {
    fn decode(&self, bytes: impl ChunkReader + 'static, file: &HourFile) -> Result<Vec<RecordBatch>, Unread> {
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options)?;
        let metadata = builder.metadata();
        let pairs = metadata.file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
        let version = pairs.iter().find(|pair| pair.key == "lockmeter.schema").and_then(|pair| pair.value.as_deref());
        match version.and_then(|version| version.parse::<u32>().ok()) {
            Some(..=SCHEMA_VERSION) => {}
            Some(_) => return Err(Unread::Newer),
            None => return Err(Unread::Broken("lockmeter-fleet did not write it".to_owned())),
        }
        let names = self.schema.fields().iter().map(|field| field.name());
        let roots = names.filter_map(|name| builder.schema().index_of(name).ok()).collect::<Vec<_>>();
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let groups = metadata.row_groups().iter().flat_map(|group| group.columns().iter().enumerate());
        let unpacked =
            groups.filter(|(leaf, _)| mask.leaf_included(*leaf)).map(|(_, column)| column.uncompressed_size());
        if unpacked.fold(0, i64::saturating_add) > LARGEST_UNPACKED {
            return Err(Unread::Broken(too_large().strip_backtrace()));
        }
        let batches = builder.with_projection(mask).build()?;
        let batches = batches.map(|batch| self.adapted(&batch?, file)).collect::<Result<Vec<_>, _>>()?;
        self.refuse_impossible(&batches)?;
        Ok(batches)
    }

    /// The columns as the table has them: one that is newer than the file is null there.
    fn adapted(&self, batch: &RecordBatch, file: &HourFile) -> Result<RecordBatch, Unread> {
        let rows = batch.num_rows();
        let of_file = |field: &Arc<Field>| -> Result<ArrayRef, Unread> {
            let (day, hour) = (file.hour / 24, file.hour % 24);
            let small = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
            match (field.name().as_str(), batch.column_by_name(field.name())) {
                ("date", _) => Ok(Arc::new(Date32Array::from_value(small(day), rows))),
                ("hour", _) => Ok(Arc::new(Int32Array::from_value(small(hour), rows))),
                (_, Some(column)) if column.data_type() == field.data_type() => Ok(Arc::clone(column)),
                (_, None) if field.is_nullable() => Ok(new_null_array(field.data_type(), rows)),
                (name, None) => Err(Unread::Broken(format!("it has no column {name}"))),
                (name, Some(_)) => Err(Unread::Broken(format!("its column {name} is of another type"))),
            }
        };
        let columns = self.schema.fields().iter().map(of_file).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// Numbers that no machine measures would make sums over all machines wrong.
    fn refuse_impossible(&self, batches: &[RecordBatch]) -> Result<(), Unread> {
        for (at, field) in self.schema.fields().iter().enumerate() {
            let columns = batches.iter().filter_map(|batch| batch.column(at).as_any().downcast_ref::<Int64Array>());
            let is_sum = !field.is_nullable() && field.name() != "id";
            let sum = columns
                .filter(|_| is_sum)
                .flat_map(Int64Array::values)
                .try_fold(0_i64, |sum, &value| (value >= 0).then(|| sum.saturating_add(value)));
            if sum.is_none_or(|sum| sum > MOST_NS_OF_AN_HOUR) {
                return Err(Unread::Broken(format!("its column {} holds what cannot be measured", field.name())));
            }
        }
        Ok(())
    }
}

/// A table of the store, for DataFusion.
#[derive(Debug)]
pub struct StoredTable {
    files: Arc<Files>,
    columns: Columns,
}

impl StoredTable {
    /// One of `samples`, `stacks` and `recordings`.
    pub fn new(files: &Arc<Files>, table: &'static str) -> Self {
        let partitions = [Field::new("date", DataType::Date32, false), Field::new("hour", DataType::Int32, false)];
        let fields = tables::schema(table).fields().iter().cloned().chain(partitions.map(Arc::new)).collect::<Vec<_>>();
        Self { files: Arc::clone(files), columns: Columns { table, schema: Arc::new(Schema::new(fields)) } }
    }
}

#[async_trait]
impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(wanted) => Arc::new(self.columns.schema.project(wanted)?),
            None => self.schema(),
        };
        let columns = Columns { schema: Arc::clone(&schema), ..self.columns };
        let of = state.config().target_partitions();
        let share = |at| {
            let share = Share { files: Arc::clone(&self.files), columns: columns.clone(), at, of };
            Arc::new(share) as Arc<dyn PartitionStream>
        };
        Ok(Arc::new(StreamingTableExec::try_new(schema, (0..of).map(share).collect(), None, None, false, limit)?))
    }
}

/// Each `of`th file: what one thread reads.
#[derive(Debug)]
struct Share {
    files: Arc<Files>,
    columns: Columns,
    at: usize,
    of: usize,
}

impl PartitionStream for Share {
    fn schema(&self) -> &SchemaRef {
        &self.columns.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (files, columns) = (Arc::clone(&self.files), self.columns.clone());
        let numbers = stream::iter((self.at..files.len()).step_by(self.of));
        let read = move |number: usize| {
            let (files, columns) = (Arc::clone(&files), columns.clone());
            async move { files.read(&columns, &files.hours[number]).await }
        };
        let batches =
            numbers.map(read).buffered(AT_A_TIME).flat_map(|batches| stream::iter(batches.into_iter().map(Ok)));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.columns.schema), batches))
    }
}
