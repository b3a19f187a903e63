//! Any bytes as a program's file: its names, and the unwind information by which stacks are followed.

use lockmeter_kernel::futex::unwind_by_hostile_elf;
use lockmeter_symbols::hostile_elf;

/// A small program is found quickly by a fuzzer, and a large one is no other code.
const LARGEST_SEED: u64 = 64 << 10;

/// Programs and libraries that every system has.
const REAL_FILES: [&str; 4] =
    ["/bin/true", "/bin/echo", "/lib/x86_64-linux-gnu/libdl.so.2", "/lib64/ld-linux-x86-64.so.2"];

/// Bytes as an ELF file.
pub fn elf(bytes: &[u8]) {
    hostile_elf::elf(bytes);
    unwind_by_hostile_elf(bytes);
}

/// Real programs.
pub fn seeds() -> Vec<Vec<u8>> {
    let is_small = |path: &&&str| std::fs::metadata(path).is_ok_and(|data| data.len() <= LARGEST_SEED);
    REAL_FILES.iter().filter(is_small).filter_map(|path| std::fs::read(path).ok()).collect()
}
