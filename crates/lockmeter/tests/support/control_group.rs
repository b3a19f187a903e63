//! Control groups that tests make, and remove again.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use super::say;

/// Where the unified control group hierarchy is mounted.
fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        file_system.starts_with("cgroup2 ").then(|| PathBuf::from(mount.split(' ').nth(4).unwrap()))
    })
}

/// A control group that is removed when the test ends.
pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// The one of this process's test, below the root. `Err` says why that is not possible here.
    pub fn of_test() -> Result<Self, String> {
        let root = hierarchy().ok_or("no unified control group hierarchy is mounted")?;
        Self::make(root.join(format!("lockmeter-test-{}", std::process::id())))
            .map_err(|error| format!("control groups cannot be made in {}: {error}", root.display()))
    }

    pub fn make(path: PathBuf) -> io::Result<Self> {
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// How many control groups below it were removed whose burial the kernel's workers have not ended.
    pub fn dying(&self) -> u64 {
        let statistics = fs::read_to_string(self.0.join("cgroup.stat")).unwrap();
        let dying = statistics.lines().find_map(|line| line.strip_prefix("nr_dying_descendants "));
        dying.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("none dying in {statistics}"))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Its last task may still be exiting.
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        say(&format!("{} could not be removed", self.0.display()));
    }
}
