//! For how long metering was switched off in the processes of a session: `lockmeter off` and `on` leave word of when.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::layout;
use crate::writer::monotonic_ns;

/// A line for each switch: the segment's name, the level, and when, as [`monotonic_ns`] tells it.
const SWITCHES_FILE: &str = "switches";

/// More than this is not read at a time: a metered program may write to the file, too.
const READ_BYTES: u64 = 1 << 16;

/// Leaves word that a segment's level was changed just now.
pub(super) fn leave_word(segment: &Path, level: u32) -> io::Result<()> {
    let Some(name) = segment.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
    let line = format!("{name} {level} {}\n", monotonic_ns());
    let path = segment.with_file_name(SWITCHES_FILE);
    let mut file = File::options().append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?;
    file.write_all(line.as_bytes())
}

/// A change of level.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) segment: PathBuf,
    pub(super) is_off: bool,
    pub(super) at_ns: u64,
}

/// What was switched in a session.
#[derive(Debug, Default)]
pub(super) struct Switches {
    read: u64,
}

impl Switches {
    /// What was switched since the last call.
    pub(super) fn news(&mut self, directory: &Path) -> Vec<Switch> {
        self.lines(directory)
            .unwrap_or_default()
            .lines()
            .filter_map(|line| {
                let (name, rest) = line.split_once(' ')?;
                let (level, at_ns) = rest.split_once(' ')?;
                let is_off = level.parse::<u32>().ok()? == layout::OFF;
                Some(Switch { segment: directory.join(name), is_off, at_ns: at_ns.parse().ok()? })
            })
            .collect()
    }

    /// Whole lines that were not read yet.
    fn lines(&mut self, directory: &Path) -> io::Result<String> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut file = File::options().read(true).custom_flags(flags).open(directory.join(SWITCHES_FILE))?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.take(READ_BYTES).read_to_end(&mut bytes)?;
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        self.read += bytes.len() as u64;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_read_once_and_strange_lines_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let mut switches = Switches::default();
        assert_eq!(switches.news(directory.path()), []);
        let segment = directory.path().join("segment-7-9");
        leave_word(&segment, layout::OFF).unwrap();
        let file = directory.path().join(SWITCHES_FILE);
        let mut text = std::fs::read_to_string(&file).unwrap();
        text += "nonsense\nsegment-7-9 2 17\nsegment-7-9 0 1";
        std::fs::write(&file, &text).unwrap();
        let [off, on] = switches.news(directory.path()).try_into().unwrap();
        assert!(off.is_off && off.segment == segment && off.at_ns > 17, "{off:?}");
        assert_eq!(on, Switch { segment: segment.clone(), is_off: false, at_ns: 17 });
        std::fs::write(&file, text + "8\n").unwrap();
        assert_eq!(switches.news(directory.path()), [Switch { segment, is_off: true, at_ns: 18 }]);
    }
}
