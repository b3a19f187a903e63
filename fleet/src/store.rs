//! Where the tables are, and that nobody sees half of a file.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use lockmeter_profile::recording::{WaitForever, WholeFile};
use lockmeter_render::units::moment;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;

use crate::failure::Failure;
use crate::tables::Table;

/// What a partition covers.
pub const HOUR_NS: u64 = 3_600_000_000_000;

/// As recordings: what they say of a machine is its owner's.
const MODE: u32 = 0o600;

/// A partition, and the name of a file in it.
pub struct Place {
    /// Hours since the Unix epoch.
    pub hour: u64,
    /// The file.
    pub file: String,
}

impl Place {
    /// One name for one part of a recording, however often it is exported.
    pub fn file(host: &str, recording: &str, part: u32) -> String {
        match part {
            0 => format!("{host}-{recording}.parquet"),
            part => format!("{host}-{recording}-{part}.parquet"),
        }
    }

    fn folder(&self) -> String {
        partition(self.hour)
    }
}

/// The folder of an hour, as Hive names partitions.
pub fn partition(hour: u64) -> String {
    // `2026-11-03 12:00:00 UTC`
    let begin = moment(hour * HOUR_NS);
    format!("date={}/hour={}", &begin[..10], &begin[11..13])
}

/// The tables.
#[derive(Debug, Clone)]
pub enum Store {
    /// A folder.
    Folder(PathBuf),
    /// A bucket that speaks S3, and what comes before the names of the tables there.
    Bucket(Arc<AmazonS3>, String, Key),
}

impl Store {
    /// `DIR` or `s3://BUCKET/PREFIX`; how the bucket is reached, the environment says, in the variables that Amazon's own programs have.
    pub fn named(name: &str) -> Result<Self, Failure> {
        let Some(bucket) = name.strip_prefix("s3://") else { return Ok(Self::Folder(name.into())) };
        let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
        let wrong = |error: &dyn fmt::Display| Failure::usage(format!("{name}: {error}"));
        if bucket.is_empty() {
            return Err(wrong(&"name a bucket: s3://BUCKET/PREFIX"));
        }
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        // Who names such an address wants it.
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint).unwrap_or_default();
        let builder = if endpoint.starts_with("http://") { builder.with_allow_http(true) } else { builder };
        let store = builder.build().map_err(|error| wrong(&error))?;
        let prefix = Key::parse(prefix).map_err(|error| wrong(&error))?;
        Ok(Self::Bucket(Arc::new(store), bucket.to_owned(), prefix))
    }

    /// What to read it with, and what comes before the names of the tables there.
    pub fn reader(&self) -> Result<(Arc<dyn ObjectStore>, Key), Failure> {
        match self {
            Self::Folder(root) => {
                let store = LocalFileSystem::new_with_prefix(root)
                    .map_err(|error| Failure::input(format!("cannot read {}: {error}", root.display())))?;
                Ok((Arc::new(store), Key::default()))
            }
            Self::Bucket(store, _, prefix) => Ok((Arc::<AmazonS3>::clone(store), prefix.clone())),
        }
    }

    /// Writes one file of a table, and gives its size. It has its name once it is whole and stored, and replaces one of that name.
    pub fn write(
        &self,
        table: &str,
        place: &Place,
        content: Table<impl Iterator<Item = RecordBatch>>,
    ) -> Result<u64, Failure> {
        match self {
            Self::Folder(root) => write_file(&root.join(table).join(place.folder()), &place.file, content),
            Self::Bucket(store, bucket, prefix) => {
                let key =
                    Key::parse(format!("{prefix}/{table}/{}/{}", place.folder(), place.file)).expect("plain names");
                let shown = format!("s3://{bucket}/{key}");
                let failed = |error: &dyn fmt::Display| Failure::output(Path::new(&shown), error);
                let mut bytes = Vec::new();
                encode(&mut bytes, content).map_err(|error| failed(&error))?;
                let length = bytes.len() as u64;
                runtime().block_on(store.put(&key, bytes.into())).map_err(|error| failed(&error))?;
                Ok(length)
            }
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(root) => root.display().fmt(f),
            Self::Bucket(_, bucket, prefix) => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

fn write_file(folder: &Path, name: &str, content: Table<impl Iterator<Item = RecordBatch>>) -> Result<u64, Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::output(folder, error))?;
    let path = folder.join(name);
    let failed = |error: &dyn fmt::Display| Failure::output(&path, error);
    let mut file = WholeFile::create(&path, MODE, Box::new(WaitForever)).map_err(|error| failed(&error))?;
    let bytes = encode(&mut file, content).map_err(|error| failed(&error))?;
    file.commit_to_disk().map_err(|error| failed(&error))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| Failure::output(folder, error))?;
    Ok(bytes)
}

/// Writes a table as Parquet, and gives its size.
fn encode(
    out: &mut (impl Write + Send),
    content: Table<impl Iterator<Item = RecordBatch>>,
) -> Result<u64, parquet::errors::ParquetError> {
    let options = ArrowWriterOptions::new().with_properties(content.properties).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(out, content.schema, options)?;
    for batch in content.batches {
        writer.write(&batch)?;
    }
    writer.finish()?;
    Ok(writer.bytes_written() as u64)
}

/// Runs what waits for a store.
pub fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let build = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    RUNTIME.get_or_init(|| build().expect("threads can be started"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_the_date_and_hour_in_utc() {
        let folder = |unix_s: u64| Place { hour: unix_s / 3600, file: String::new() }.folder();
        // As `date -u -d @SECONDS +date=%F/hour=%H` prints them.
        assert_eq!(folder(0), "date=1970-01-01/hour=00");
        assert_eq!(folder(951_782_400), "date=2000-02-29/hour=00");
        assert_eq!(folder(1_795_872_000), "date=2026-11-28/hour=13");
        assert_eq!(folder(4_107_542_399), "date=2100-02-28/hour=23");
        assert_eq!(folder(u64::MAX / 1_000_000_000), "date=2554-07-21/hour=23");
    }
}
