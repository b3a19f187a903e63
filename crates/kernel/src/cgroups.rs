//! Control groups of the unified hierarchy: path to id, and id to path.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{ErrorKind, KernelError};

/// Deepest control group looked at; systemd nests fewer than ten.
const MAX_DEPTH: usize = 32;

/// Groups that are remembered, gone ones included: a machine has thousands at a time, and a service that starts one for each of its tasks has
/// millions in a year.
const MOST_KNOWN: usize = 32 << 10;

/// Marks the id of a group of the memory controller's own hierarchy; `CGROUP_OF_MEMORY_HIERARCHY` in `tables.h`.
const OF_MEMORY_HIERARCHY: u64 = 1 << 63;

/// A control group whose tasks, with those of its children, are to be metered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupScope {
    /// Its path below the mount of the unified hierarchy.
    pub path: String,
    /// The kernel's id: the inode number of its directory.
    pub id: u64,
    /// How many levels below the root it is.
    pub level: u32,
}

/// Names control groups by the id that a program saw.
///
/// The path of a group is looked up when its id is first seen; of one that was removed before that, only the id remains.
#[derive(Debug)]
pub struct CgroupTree {
    root: Option<PathBuf>,
    /// Where the memory controller has a hierarchy (version 1) of its own.
    memory_root: Option<PathBuf>,
    /// `None` of those that were gone.
    paths: HashMap<u64, Option<String>>,
}

/// A walk over one hierarchy.
struct Walk<'a> {
    root: &'a Path,
    /// Set in every id.
    mark: u64,
    /// Stands before every path.
    prefix: &'static str,
    paths: &'a mut HashMap<u64, Option<String>>,
}

impl CgroupTree {
    /// Finds where the unified hierarchy is mounted. Without one, no control group has a name.
    pub fn find() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self { root: unified_mount(&mounts), memory_root: memory_mount(&mounts), paths: HashMap::new() }
    }

    /// Where the unified hierarchy is mounted.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The control group at `path`: absolute, or below the mount of the unified hierarchy.
    pub fn resolve(&self, path: &Path) -> Result<CgroupScope, KernelError> {
        let missing = |why: String| KernelError::new(ErrorKind::NoSuchCgroup, why);
        let root = self.root.as_deref().ok_or_else(|| {
            missing("no unified (version 2) control group hierarchy is mounted; mount one: mount -t cgroup2 none /sys/fs/cgroup".into())
        })?;
        let full = match self.named(path)? {
            Some(named) => named,
            None if path.starts_with(root) => path.to_path_buf(),
            None => root.join(path.strip_prefix("/").unwrap_or(path)),
        };
        let full = full.canonicalize().map_err(|error| {
            missing(format!("no control group {}: {error}; they live below {}", path.display(), root.display()))
        })?;
        let below = full.strip_prefix(root).map_err(|_| {
            missing(format!(
                "{} is not below {}, where the unified hierarchy is mounted",
                full.display(),
                root.display()
            ))
        })?;
        let about = fs::metadata(full.join("cgroup.procs"))
            .and_then(|_| fs::metadata(&full))
            .map_err(|error| missing(format!("{} is not a control group ({error})", full.display())))?;
        Ok(CgroupScope {
            path: format!("/{}", below.display()),
            id: about.ino(),
            level: u32::try_from(below.components().count()).unwrap_or(u32::MAX),
        })
    }

    /// The only control group of this name, wherever it is, if it is a name and no path: systemd's units are such groups.
    fn named(&self, name: &Path) -> Result<Option<PathBuf>, KernelError> {
        let Some(root) =
            self.root.as_deref().filter(|root| name.components().count() == 1 && !root.join(name).exists())
        else {
            return Ok(None);
        };
        let mut paths = HashMap::new();
        Walk { root, mark: 0, prefix: "", paths: &mut paths }.visit(root, 0);
        let mut found: Vec<String> = paths
            .into_values()
            .flatten()
            .filter(|path| Path::new(path).file_name() == Some(name.as_os_str()))
            .collect();
        found.sort();
        match found.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(root.join(one.trim_start_matches('/')))),
            several => {
                let why =
                    format!("several control groups are named {}: {}; give a path", name.display(), several.join(", "));
                Err(KernelError::new(ErrorKind::NoSuchCgroup, why))
            }
        }
    }

    /// Looks up the paths of ids not seen before, with one walk over each hierarchy for all of them.
    pub fn learn(&mut self, ids: impl Iterator<Item = u64>) {
        let unknown: Vec<u64> = ids.filter(|id| !self.paths.contains_key(id)).collect();
        if unknown.is_empty() {
            return;
        }
        if self.paths.len() > MOST_KNOWN {
            self.paths.clear();
        }
        let of_memory = |id: &u64| id & OF_MEMORY_HIERARCHY != 0;
        let paths = &mut self.paths;
        if let Some(root) = self.root.as_deref().filter(|_| !unknown.iter().all(of_memory)) {
            Walk { root, mark: 0, prefix: "", paths }.visit(root, 0);
        }
        if let Some(root) = self.memory_root.as_deref().filter(|_| unknown.iter().any(of_memory)) {
            Walk { root, mark: OF_MEMORY_HIERARCHY, prefix: "memory:", paths }.visit(root, 0);
        }
        // No id comes back: those are looked up once.
        for id in unknown {
            paths.entry(id).or_insert(None);
        }
    }

    /// The path of a control group, `None` if it was gone before it could be looked up.
    pub fn path(&self, id: u64) -> Option<&str> {
        self.paths.get(&id)?.as_deref()
    }
}

impl Walk<'_> {
    fn visit(&mut self, directory: &Path, depth: usize) {
        if let (Ok(about), Ok(below)) = (fs::metadata(directory), directory.strip_prefix(self.root)) {
            self.paths.insert(about.ino() | self.mark, Some(format!("{}/{}", self.prefix, below.display())));
        }
        if depth == MAX_DEPTH {
            return;
        }
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.visit(&entry.path(), depth + 1);
            }
        }
    }
}

/// The mount point of the unified hierarchy in the text of `/proc/self/mountinfo`.
fn unified_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        filesystem.starts_with("cgroup2 ").then_some(())?;
        mount.split(' ').nth(4).map(PathBuf::from)
    })
}

/// Where the memory controller has a hierarchy of its own, in the same text.
fn memory_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let (kind, options) = filesystem.split_once(' ')?;
        let has_memory = options.rsplit(' ').next()?.split(',').any(|option| option == "memory");
        (kind == "cgroup" && has_memory).then_some(())?;
        mount.split(' ').nth(4).map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes sure that a group which is gone costs one walk, and that forgetting loses nobody who is there.
    #[test]
    fn what_is_gone_is_looked_up_once_and_what_is_known_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        let id = |name: &str| fs::metadata(root.path().join(name)).unwrap().ino();
        let gone = u64::MAX >> 1;
        let mut tree = CgroupTree { root: Some(root.path().into()), memory_root: None, paths: HashMap::new() };
        tree.learn([id("a"), gone].into_iter());
        assert_eq!((tree.path(id("a")), tree.path(gone)), (Some("/a"), None));
        fs::create_dir(root.path().join("b")).unwrap();
        tree.learn([gone].into_iter());
        assert_eq!(tree.path(id("b")), None, "nobody walked again");
        tree.paths.extend((0..=MOST_KNOWN as u64).map(|id| (gone - 1 - id, None)));
        tree.learn([id("b")].into_iter());
        assert!(tree.paths.len() < 10);
        assert_eq!((tree.path(id("a")), tree.path(id("b"))), (Some("/a"), Some("/b")));
    }

    #[test]
    fn the_unified_hierarchy_is_found_beside_the_old_ones() {
        let mounts = "24 23 0:20 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      25 23 0:21 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(unified_mount(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(memory_mount(mounts), None);
        let memory = "30 23 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(memory_mount(&format!("{mounts}{memory}")), Some(PathBuf::from("/sys/fs/cgroup/memory")));
        assert_eq!(unified_mount("24 23 0:20 / / rw - ext4 /dev/vda rw"), None);
    }
}
