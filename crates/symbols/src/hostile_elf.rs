//! What lockmeter does with the names of an ELF file, over bytes that may be anything: for fuzzing and mutation tests.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

use crate::build_id::BuildId;
use crate::elf_image::ElfPart;
use crate::program_names::{LONGEST_NAME, ProgramNames};
use crate::target_file::{FilePlace, TargetFile};

/// Reads these bytes as a file that another user may change: build id, variables, functions, and the parts that other crates
/// parse.
///
/// # Panics
/// If a name is longer than names may be.
pub fn elf(bytes: &[u8]) {
    let Ok(file) = file_of(bytes) else { return };
    let _ = BuildId::of_file(&file);
    for part in [ElfPart::Language, ElfPart::Unwinding] {
        if let Ok(image) = file.elf(part) {
            assert!(image.is_copy(), "anybody may write to this file");
        }
    }
    let names = ProgramNames::of_file(&file, &FilePlace::Nowhere);
    let entries = bytes.chunks_exact(8).take(64).filter_map(|chunk| Some(u64::from_le_bytes(chunk.try_into().ok()?)));
    for address in entries.chain((0..64).map(|step| step * 0x401)).chain([u64::MAX]) {
        let found = [names.function(address), names.variable(address)];
        assert!(found.iter().flatten().all(|(name, _)| name.len() <= LONGEST_NAME + '…'.len_utf8()));
    }
}

/// A file in memory that holds these bytes. Its rights let anybody write to it.
pub fn file_of(bytes: &[u8]) -> io::Result<TargetFile> {
    let memory = rustix::fs::memfd_create(c"lockmeter-hostile", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut memory = File::from(memory);
    memory.write_all(bytes)?;
    TargetFile::open(format!("/proc/self/fd/{}", memory.as_raw_fd()).as_ref())
}
