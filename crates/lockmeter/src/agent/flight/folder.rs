//! The folder of the flight recorder's recordings: how they are named, and that they are no more and no larger than allowed.

use std::fs;
use std::path::{Path, PathBuf};

use lockmeter_render::units::moment;

use super::triggers::Trigger;
use crate::trusted_file;

/// What names of recordings begin and end with: nothing else in the folder is counted or removed.
const PREFIX: &str = "flight-";
const ENDING: &str = ".lockmeter";

/// How many recordings there may be, and how large they may be together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub most: usize,
    pub most_bytes: u64,
}

/// A recording that is there.
struct Standing {
    path: PathBuf,
    bytes: u64,
}

/// The folder, which nobody else may write into.
pub struct RecordingFolder(PathBuf);

impl RecordingFolder {
    /// Opens it, or says what is wrong with it.
    pub fn open(path: &Path) -> Result<Self, String> {
        trusted_file::folder(path).map(Self).map_err(|what| format!("{} {what}", path.display()))
    }

    /// Where a recording of this moment goes. Names sort by time.
    pub fn name(&self, unix_ns: u64, trigger: Trigger) -> PathBuf {
        let moment = moment(unix_ns).trim_end_matches(" UTC").replace(' ', "T").replace(':', "-");
        self.0.join(format!("{PREFIX}{moment}Z-{}{ENDING}", trigger.name()))
    }

    /// Removes the oldest recordings, so that one more of this size fits. That one is never removed if it is there already.
    pub fn make_room(&self, room: Room, for_bytes: u64, newest: &Path) -> Result<(), String> {
        let mut standing =
            self.standing(newest).map_err(|error| format!("{} cannot be read: {error}", self.0.display()))?;
        standing.sort_by(|a, b| b.path.cmp(&a.path));
        let mut bytes: u64 = for_bytes + standing.iter().map(|recording| recording.bytes).sum::<u64>();
        while let Some(oldest) = standing.last() {
            if standing.len() < room.most && bytes <= room.most_bytes {
                break;
            }
            fs::remove_file(&oldest.path)
                .map_err(|error| format!("{} cannot be removed: {error}", oldest.path.display()))?;
            bytes -= oldest.bytes;
            standing.pop();
        }
        Ok(())
    }

    /// All recordings but the newest.
    fn standing(&self, newest: &Path) -> std::io::Result<Vec<Standing>> {
        let mut standing = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let is_ours = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(ENDING));
            let data = entry.metadata()?;
            if is_ours && data.is_file() && path != newest {
                standing.push(Standing { path, bytes: data.len() });
            }
        }
        Ok(standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn the_oldest_are_removed_until_one_more_fits_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let recordings = RecordingFolder::open(&folder.path().join("made")).unwrap();
        let names: Vec<PathBuf> = (0..6).map(|at| recordings.name(at * SECOND_NS, Trigger::Deadlock)).collect();
        names.iter().for_each(|name| fs::write(name, [0; 100]).unwrap());
        let other = folder.path().join("made/notes.txt");
        fs::write(&other, [0; 5_000]).unwrap();
        let left = || names.iter().map(|name| name.exists()).collect::<Vec<_>>();
        let room = |most, most_bytes| Room { most, most_bytes };
        recordings.make_room(room(6, 600), 0, &names[5]).unwrap();
        assert_eq!(left(), [true; 6]);
        recordings.make_room(room(5, 600), 100, &names[5]).unwrap();
        assert_eq!(left(), [false, true, true, true, true, true]);
        recordings.make_room(room(9, 350), 100, &names[5]).unwrap();
        assert_eq!(left(), [false, false, false, true, true, true]);
        recordings.make_room(room(9, 10), 100, &names[5]).unwrap();
        assert_eq!(left(), [false, false, false, false, false, true]);
        assert!(other.exists());
        let name = names[5].file_name().unwrap();
        assert_eq!(name, "flight-1970-01-01T00-00-05Z-deadlock.lockmeter");
    }
}
