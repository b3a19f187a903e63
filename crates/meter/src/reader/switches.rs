//! For how long metering was switched off in the processes of a session: `lockmeter off` and `on` leave word of when.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::directory::{Access, OwnDirectory};
use crate::layout;
use crate::writer::monotonic_ns;

/// A line for each switch: the process's number in the session, the level, and when, as [`monotonic_ns`] tells it.
const SWITCHES_FILE: &str = "switches";

/// More than this is not read at a time: a metered program may write to the file, too.
const READ_BYTES: u64 = 1 << 16;

/// Leaves word that a process's level was changed just now.
pub(super) fn leave_word(directory: &OwnDirectory, process: u32, level: u32) -> io::Result<()> {
    let line = format!("{process} {level} {}\n", monotonic_ns());
    directory.file(SWITCHES_FILE, Access::Append)?.write_all(line.as_bytes())
}

/// A change of level.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Switch {
    /// Its number in the session.
    pub(super) process: u32,
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
    pub(super) fn news(&mut self, directory: &OwnDirectory) -> Vec<Switch> {
        self.lines(directory)
            .unwrap_or_default()
            .lines()
            .filter_map(|line| {
                let (process, rest) = line.split_once(' ')?;
                let (level, at_ns) = rest.split_once(' ')?;
                let is_off = level.parse::<u32>().ok()? == layout::OFF;
                Some(Switch { process: process.parse().ok()?, is_off, at_ns: at_ns.parse().ok()? })
            })
            .collect()
    }

    /// Whole lines that were not read yet.
    fn lines(&mut self, directory: &OwnDirectory) -> io::Result<String> {
        let mut file = directory.file(SWITCHES_FILE, Access::Read)?;
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
    use super::super::directory::tests::private_folder;
    use super::*;

    #[test]
    fn switches_are_read_once_and_strange_lines_passed_over() {
        let folder = private_folder();
        let directory = OwnDirectory::open(folder.path()).unwrap();
        let mut switches = Switches::default();
        assert_eq!(switches.news(&directory), []);
        leave_word(&directory, 7, layout::OFF).unwrap();
        let file = folder.path().join(SWITCHES_FILE);
        let mut text = std::fs::read_to_string(&file).unwrap();
        text += "nonsense\n7 2 17\n7 0 1";
        std::fs::write(&file, &text).unwrap();
        let [off, on] = switches.news(&directory).try_into().unwrap();
        assert!(off.is_off && off.process == 7 && off.at_ns > 17, "{off:?}");
        assert_eq!(on, Switch { process: 7, is_off: false, at_ns: 17 });
        std::fs::write(&file, text + "8\n").unwrap();
        assert_eq!(switches.news(&directory), [Switch { process: 7, is_off: true, at_ns: 18 }]);
    }
}
