//! Where the symbols of a stripped program are, found as gdb finds them: in a separate debug file, or in a small symbol table that the
//! program carries.
//!
//! A debug file is used only if it is the program's: its build id is the same, and its content has the checksum that the program's
//! link says. Nothing but symbols is read of it, into a copy: it may be another user's.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lzma_rust2::XzReader;

use crate::build_id::BuildId;
use crate::elf_image::{DEBUG_LINK, ElfImage, sealable_memory, section_bytes};
use crate::target_file::{FilePlace, TargetFile};

/// Below it lie the debug files that packages install.
const INSTALLED: &str = "/usr/lib/debug";

/// A name, and the checksum behind it.
const MOST_LINK_BYTES: u64 = 4 << 10;

/// A file is read to its end for its checksum, if it is not longer: one of ours, and one that another user may have made long.
const MOST_CHECKED_BYTES: u64 = 8 << 30;
const MOST_CHECKED_BYTES_OF_OTHERS: u64 = 256 << 20;

/// The section with the small symbol table, an ELF file packed by xz.
const SMALL_SYMBOL_TABLE: &str = ".gnu_debugdata";
const MOST_PACKED_BYTES: u64 = 16 << 20;
const MOST_UNPACKED_BYTES: u64 = 64 << 20;
/// What unpacking may take; `xz -9` asks for 64 MiB.
const MOST_UNPACKING_KIB: u32 = 80 << 10;

/// What a program says of its debug file.
#[derive(Debug, PartialEq, Eq)]
struct DebugLink {
    name: Box<OsStr>,
    checksum: u32,
}

/// The separate debug file of a program that its process finds at `known_as`; `None` if there is none that fits.
pub(crate) fn debug_file(program: &TargetFile, known_as: &FilePlace) -> Option<TargetFile> {
    let path = known_as.path()?;
    let build_id = BuildId::of_file(program);
    let by_build_id = build_id.as_ref().and_then(place_of_build_id);
    let has_build_id = |file: &TargetFile| BuildId::of_file(file) == build_id;
    let open = |path: PathBuf| known_as.beside(path).open().ok();
    if let Some(file) = by_build_id.and_then(open).filter(has_build_id) {
        return Some(file);
    }
    let link = DebugLink::of(program)?;
    let files = link.candidates(path.parent()?).into_iter().filter_map(open);
    files.into_iter().find(|file| has_build_id(file) && checksum(file).is_ok_and(|checksum| checksum == link.checksum))
}

/// Where packages put the debug file of this build.
fn place_of_build_id(build_id: &BuildId) -> Option<PathBuf> {
    let digits = build_id.to_string();
    let (folder, file) = digits.split_at_checked(2).filter(|(_, file)| !file.is_empty())?;
    Some(format!("{INSTALLED}/.build-id/{folder}/{file}.debug").into())
}

impl DebugLink {
    fn of(program: &TargetFile) -> Option<Self> {
        Self::parse(&section_bytes(program, DEBUG_LINK, MOST_LINK_BYTES).ok()??)
    }

    /// A name that ends with a NUL, and behind it, at the next multiple of four, the checksum.
    fn parse(section: &[u8]) -> Option<Self> {
        let length = section.iter().position(|byte| *byte == 0)?;
        let name = section.get(..length)?;
        let checksum = section.get((length + 1).next_multiple_of(4)..)?.first_chunk().copied()?;
        // A path would lead anywhere.
        let is_plain = !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
        is_plain.then(|| Self { name: OsStr::from_bytes(name).into(), checksum: u32::from_le_bytes(checksum) })
    }

    /// Where the file may lie, in the order in which gdb looks.
    fn candidates(&self, folder: &Path) -> [PathBuf; 3] {
        let installed = Path::new(INSTALLED).join(folder.strip_prefix("/").unwrap_or(folder));
        [folder.to_owned(), folder.join(".debug"), installed].map(|folder| folder.join(&*self.name))
    }
}

/// That of the whole file.
fn checksum(file: &TargetFile) -> io::Result<u32> {
    let most = if file.is_only_ours() { MOST_CHECKED_BYTES } else { MOST_CHECKED_BYTES_OF_OTHERS };
    if file.metadata().len() > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the debug file is larger than lockmeter reads"));
    }
    let (mut checksum, mut buffer, mut at) = (crc32fast::Hasher::new(), vec![0; 1 << 20], 0);
    while at < most {
        match file.read_part(at, &mut buffer) {
            Ok(0) => break,
            Ok(bytes) => {
                checksum.update(&buffer[..bytes]);
                at += bytes as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(checksum.finalize())
}

/// The symbols that a stripped program carries in a packed ELF file of their own.
pub(crate) fn small_symbol_table(program: &TargetFile) -> Option<ElfImage> {
    let packed = section_bytes(program, SMALL_SYMBOL_TABLE, MOST_PACKED_BYTES).ok()??;
    let mut unpacked = XzReader::new_mem_limit(&packed[..], false, MOST_UNPACKING_KIB).take(MOST_UNPACKED_BYTES);
    let mut memory: File = sealable_memory().ok()?;
    io::copy(&mut unpacked, &mut memory).ok()?;
    ElfImage::copy_of_symbols(&TargetFile::of_open(memory).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_name_and_a_checksum_at_the_next_multiple_of_four() {
        let link = |section: &[u8]| DebugLink::parse(section).map(|link| (link.name, link.checksum));
        let name = |name: &str| Box::<OsStr>::from(OsStr::new(name));
        assert_eq!(link(b"abc\0\x01\x02\x03\x04"), Some((name("abc"), 0x0403_0201)));
        assert_eq!(link(b"abcd\0\0\0\0\x01\0\0\0"), Some((name("abcd"), 1)));
        for bad in
            [&b"abcd\0\x01\0\0\0"[..], b"\0\0\0\0\x01\0\0\0", b"a/b\0\x01\0\0\0", b"..\0\0\x01\0\0\0", b"abc", b""]
        {
            assert_eq!(link(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn places_are_looked_at_in_the_order_of_gdb() {
        let link = DebugLink { name: OsStr::new("server.debug").into(), checksum: 0 };
        let candidates = link.candidates(Path::new("/opt/bin")).map(|path| path.display().to_string());
        let expected = ["/opt/bin/server.debug", "/opt/bin/.debug/server.debug", "/usr/lib/debug/opt/bin/server.debug"];
        assert_eq!(candidates, expected);
        let build_id = BuildId::new(&[0xab, 0x0c, 0xde]).unwrap();
        assert_eq!(place_of_build_id(&build_id), Some("/usr/lib/debug/.build-id/ab/0cde.debug".into()));
        assert_eq!(place_of_build_id(&BuildId::new(&[0xab]).unwrap()), None);
    }
}
