//! Whether a file is still the one that a process maps: a package may be upgraded while its program runs.

use std::collections::HashMap;
use std::fmt;

use object::Object;
use object::read::elf::ElfFile64;

use crate::elf_image::{ElfImage, ElfPart};
use crate::target_file::{FilePlace, TargetFile, Version};

/// What a linker signs a program or library with: another build has another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BuildId(Box<[u8]>);

/// In hexadecimal.
impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl BuildId {
    /// As it stands in the note of the file; `None` of nothing.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(bytes.into()))
    }

    /// That of a file, if it is a binary and has one.
    pub fn of_file(file: &TargetFile) -> Option<Self> {
        Self::of_elf(&file.elf(ElfPart::BuildId).ok()?)
    }

    /// That of a binary, if it has one.
    pub fn of_elf(elf: &ElfImage) -> Option<Self> {
        let elf = ElfFile64::<object::LittleEndian, _>::parse(elf.bytes()).ok()?;
        Self::new(elf.build_id().ok()??)
    }
}

/// Build ids of the files seen so far; a file is read again when another lies in its place.
#[derive(Debug, Default)]
pub struct BuildIds {
    known: HashMap<FilePlace, (Version, Option<BuildId>)>,
}

impl BuildIds {
    /// The file at this place, if it has this build id. One that cannot be read is another file, or none.
    pub fn open_if(&mut self, place: &FilePlace, wanted: &BuildId) -> Option<TargetFile> {
        let file = place.open().ok()?;
        let version = Version::of(&file);
        if let Some((of, build_id)) = self.known.get(place)
            && *of == version
        {
            return (build_id.as_ref() == Some(wanted)).then_some(file);
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let build_id = BuildId::of_file(&file);
        let is_wanted = build_id.as_ref() == Some(wanted);
        self.known.insert(place.clone(), (version, build_id));
        is_wanted.then_some(file)
    }
}

/// Files whose build ids are remembered.
const MOST_KNOWN: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_takes_anothers_place_is_noticed() {
        let own = std::env::current_exe().unwrap();
        let Some(build_id) = BuildId::of_file(&TargetFile::open(&own).unwrap()) else {
            println!("skipped: this toolchain's linker gives programs no build id");
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let place = FilePlace::Here(path.clone());
        fs::copy(&own, &path).unwrap();
        let mut known = BuildIds::default();
        assert!(known.open_if(&place, &build_id).is_some());
        let next = path.with_extension("next");
        fs::write(&next, "no binary at all").unwrap();
        fs::rename(&next, &path).unwrap();
        assert!(known.open_if(&place, &build_id).is_none());
        fs::remove_file(&path).unwrap();
        assert!(known.open_if(&place, &build_id).is_none());
    }
}
