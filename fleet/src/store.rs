//! Where files go, and that nobody sees half of one.

use std::fs::{self, File};
use std::path::Path;

use arrow_array::RecordBatch;
use lockmeter_profile::recording::{WaitForever, WholeFile};
use lockmeter_render::units::moment;
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

    /// The folder, as Hive partitions.
    fn folder(&self) -> String {
        // `2026-11-03 12:00:00 UTC`
        let begin = moment(self.hour * HOUR_NS);
        format!("date={}/hour={}", &begin[..10], &begin[11..13])
    }
}

/// A folder of tables.
pub struct Store<'a> {
    /// The folder.
    pub root: &'a Path,
}

impl Store<'_> {
    /// Writes one file of a table, and gives its size. It has its name once it is on the disk, and replaces one of that name.
    pub fn write(
        &self,
        table: &str,
        place: &Place,
        content: Table<impl Iterator<Item = RecordBatch>>,
    ) -> Result<u64, Failure> {
        let folder = self.root.join(table).join(place.folder());
        fs::create_dir_all(&folder).map_err(|error| Failure::output(&folder, error))?;
        let path = folder.join(&place.file);
        let failed = |error: &dyn std::fmt::Display| Failure::output(&path, error);
        let mut file = WholeFile::create(&path, MODE, Box::new(WaitForever)).map_err(|error| failed(&error))?;
        let options = ArrowWriterOptions::new().with_properties(content.properties).with_skip_arrow_metadata(true);
        let mut writer =
            ArrowWriter::try_new_with_options(&mut file, content.schema, options).map_err(|error| failed(&error))?;
        for batch in content.batches {
            writer.write(&batch).map_err(|error| failed(&error))?;
        }
        writer.finish().map_err(|error| failed(&error))?;
        let bytes = writer.bytes_written() as u64;
        drop(writer);
        file.commit_to_disk().map_err(|error| failed(&error))?;
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(|error| Failure::output(&folder, error))?;
        Ok(bytes)
    }
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
