//! Whether a file is still the one that a process maps: a package may be upgraded while its program runs.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Object, ReadCache};

/// What a linker signs a program or library with: another build has another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BuildId(Box<[u8]>);

impl BuildId {
    /// As it stands in the note of the file; `None` of nothing.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(bytes.into()))
    }

    /// That of a file, if it is a binary and has one.
    pub fn of_file(path: &Path) -> Option<Self> {
        let file = ReadCache::new(File::open(path).ok()?);
        let elf = ElfFile64::<object::LittleEndian, _>::parse(&file).ok()?;
        Self::new(elf.build_id().ok()??)
    }
}

/// What tells a file from another one that is put in its place, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Version {
    fn of(data: &Metadata) -> Self {
        let changed = (data.ctime(), data.ctime_nsec());
        Self { device: data.dev(), inode: data.ino(), size: data.size(), changed }
    }
}

/// Build ids of the files seen so far; a file is read again when another lies in its place.
#[derive(Debug, Default)]
pub struct BuildIds {
    known: HashMap<PathBuf, (Version, Option<BuildId>)>,
}

impl BuildIds {
    /// Whether the file at this path has this build id. One that cannot be read is another file, or none.
    pub fn matches(&mut self, path: &Path, wanted: &BuildId) -> bool {
        let Ok(data) = fs::metadata(path) else { return false };
        // The path is what the program says: opening a pipe or a terminal could take for ever.
        if !data.is_file() {
            return false;
        }
        let version = Version::of(&data);
        let known = self.known.get(path).filter(|(of, _)| *of == version);
        let found = match known {
            Some((_, build_id)) => build_id.clone(),
            None => {
                let build_id = BuildId::of_file(path);
                self.known.insert(path.to_owned(), (version, build_id.clone()));
                build_id
            }
        };
        found.as_ref() == Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_takes_anothers_place_is_noticed() {
        let own = std::env::current_exe().unwrap();
        let Some(build_id) = BuildId::of_file(&own) else {
            println!("skipped: this toolchain's linker gives programs no build id");
            return;
        };
        let path = std::env::temp_dir().join(format!("lockmeter-build-id-{}", std::process::id()));
        fs::copy(&own, &path).unwrap();
        let mut known = BuildIds::default();
        assert!(known.matches(&path, &build_id));
        let next = path.with_extension("next");
        fs::write(&next, "no binary at all").unwrap();
        fs::rename(&next, &path).unwrap();
        assert!(!known.matches(&path, &build_id));
        fs::remove_file(&path).unwrap();
        assert!(!known.matches(&path, &build_id));
    }
}
