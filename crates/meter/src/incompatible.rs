//! Programs that the library must not be loaded into, for they would not do as without it.
//!
//! A sanitizer's runtime that is a shared library must come before all others. AddressSanitizer ends a program in which another comes first;
//! ThreadSanitizer does not see locks that another library takes, and reports races that are none. A runtime that is part of the program comes
//! first by itself and needs nothing. Valgrind's tools find pthread's functions by the file that they lie in, and miss ours.
//!
//! Runs in the program that executes another, too: nothing here allocates or panics.

use core::cell::RefCell;

/// Files of runtimes that must come first; what follows is a version or an architecture.
const RUNTIMES: [&[u8]; 7] = [
    b"libasan.so",
    b"libtsan.so",
    b"libhwasan.so",
    b"libclang_rt.asan",
    b"libclang_rt.tsan",
    b"libclang_rt.hwasan",
    b"libclang_rt.rtsan",
];

/// The launcher, and the program that distributions' script of that name runs.
const VALGRIND: [&[u8]; 2] = [b"valgrind", b"valgrind.bin"];

/// What a program is that must not have the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incompatible {
    /// Linked with a sanitizer's shared runtime.
    Sanitizer,
    /// Valgrind.
    Valgrind,
}

/// A file: how many bytes at a place of it were read into the buffer.
pub trait ReadAt {
    /// As `pread`; 0 where there is nothing.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> usize;
}

/// Whether a file of this name is a program of valgrind's.
pub fn is_valgrind(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    VALGRIND.contains(&name)
}

/// Whether this is the file of a program that is linked with a runtime which must come first.
pub fn needs_runtime_first(file: &impl ReadAt, room: &mut Room) -> bool {
    let (tables_in_file, names) = (InBlocks::of(file, &mut room.tables), InBlocks::of(file, &mut room.names));
    let Some(tables) = Tables::of(&tables_in_file) else { return false };
    tables.needed(&tables_in_file).any(|at| {
        // Longer than each of the names.
        let mut name = [0; 24];
        let length = names.read_at(at, &mut name);
        let name = name.get(..length).unwrap_or_default();
        RUNTIMES.iter().any(|runtime| name.starts_with(runtime))
    })
}

/// What loads the libraries of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loader {
    /// Glibc's, for this architecture, or it is not known.
    Own,
    /// One of another architecture or C library: it would complain of the library, or end the program.
    Foreign,
    /// None: the program is linked statically.
    None,
}

/// What loads the libraries of the program with this file.
pub fn loader(file: &impl ReadAt, room: &mut Room) -> Loader {
    const PT_INTERP: u64 = 3;
    const OWN_MACHINE: u64 = 62; // x86-64
    let file = InBlocks::of(file, &mut room.tables);
    let mut head = [0; HEAD_BYTES];
    if file.read_at(0, &mut head) < HEAD_BYTES || !head.starts_with(b"\x7fELF") {
        return Loader::Own;
    }
    if !head.starts_with(&ELF) || number(&head, 0x12, 2) != Some(OWN_MACHINE) {
        return Loader::Foreign;
    }
    let (Some(at), Some(count)) = (number(&head, 0x20, 8), number(&head, 0x38, 2)) else { return Loader::Own };
    let mut there = segments(&file, at, count.min(SEGMENTS));
    let Some((_, (offset, ..))) = there.find(|(kind, _)| *kind == PT_INTERP) else { return Loader::None };
    let mut name = [0; 64];
    let length = file.read_at(offset, &mut name);
    let name = name.get(..length).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    if name.windows(4).any(|part| part == b"musl") { Loader::Foreign } else { Loader::Own }
}

/// Whether a file of this name is glibc's loader, which may be run as a program and loads another one.
pub fn is_loader(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name.starts_with(b"ld-") || name.starts_with(b"ld.so")
}

/// Reads a file in blocks, and what lies in one once: a program that is executed is to wait for few system calls.
struct InBlocks<'a, F> {
    file: &'a F,
    block: RefCell<&'a mut Block>,
}

/// Where a file is read to: too much for a small stack.
#[derive(Debug)]
pub struct Room {
    tables: Block,
    names: Block,
}

impl Room {
    /// With nothing in it.
    pub const fn new() -> Self {
        Self { tables: Block::new(), names: Block::new() }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Block {
    at: u64,
    length: usize,
    bytes: [u8; BLOCK_BYTES],
}

impl Block {
    const fn new() -> Self {
        Self { at: 0, length: 0, bytes: [0; BLOCK_BYTES] }
    }
}

/// More than the tables of most programs take.
const BLOCK_BYTES: usize = 2048;

impl<'a, F: ReadAt> InBlocks<'a, F> {
    fn of(file: &'a F, block: &'a mut Block) -> Self {
        block.length = 0;
        Self { file, block: RefCell::new(block) }
    }
}

impl<F: ReadAt> ReadAt for InBlocks<'_, F> {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> usize {
        let Ok(mut block) = self.block.try_borrow_mut() else { return 0 };
        let Block { at: begin, length, bytes: kept } = &mut **block;
        let is_kept = at.checked_sub(*begin).is_some_and(|from| from + bytes.len() as u64 <= *length as u64);
        if !is_kept {
            (*begin, *length) = (at, self.file.read_at(at, kept).min(BLOCK_BYTES));
        }
        let from = (at - *begin) as usize;
        let there = kept.get(from..*length).unwrap_or_default();
        let count = there.len().min(bytes.len());
        if let (Some(to), Some(there)) = (bytes.get_mut(..count), there.get(..count)) {
            to.copy_from_slice(there);
        }
        count
    }
}

/// Where in a file the libraries stand that a program is linked with.
struct Tables {
    dynamic: u64,
    entries: u64,
    names: u64,
}

/// A 64-bit file of this machine's byte order begins like this.
const ELF: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "little") { 1 } else { 2 }];
const HEAD_BYTES: usize = 64;
const SEGMENT_BYTES: u64 = 56;
const ENTRY_BYTES: u64 = 16;
/// More are not those of a program.
const SEGMENTS: u64 = 128;
const ENTRIES: u64 = 1024;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

impl Tables {
    fn of(file: &impl ReadAt) -> Option<Self> {
        let mut head = [0; HEAD_BYTES];
        if file.read_at(0, &mut head) < HEAD_BYTES || !head.starts_with(&ELF) {
            return None;
        }
        let (at, size, count) = (number(&head, 0x20, 8)?, number(&head, 0x36, 2)?, number(&head, 0x38, 2)?);
        if size != SEGMENT_BYTES {
            return None;
        }
        let count = count.min(SEGMENTS);
        let (dynamic, _, length) =
            segments(file, at, count).find(|(kind, ..)| *kind == PT_DYNAMIC).map(|(_, place)| place)?;
        let mut tables = Self { dynamic, entries: (length / ENTRY_BYTES).min(ENTRIES), names: 0 };
        let address = tables.find(file, DT_STRTAB).next()?;
        tables.names = segments(file, at, count).find_map(|(kind, (offset, start, length))| {
            let inside = address.checked_sub(start).filter(|inside| *inside < length)?;
            (kind == PT_LOAD).then(|| offset.checked_add(inside)).flatten()
        })?;
        Some(tables)
    }

    /// The values of the entries of this kind.
    fn find<'a>(&self, file: &'a impl ReadAt, kind: u64) -> impl Iterator<Item = u64> + 'a {
        let (dynamic, entries) = (self.dynamic, self.entries);
        let entry = move |number_of_it: u64| {
            let mut entry = [0; ENTRY_BYTES as usize];
            let at = dynamic.checked_add(number_of_it * ENTRY_BYTES)?;
            let is_whole = file.read_at(at, &mut entry) == entry.len();
            let kind = number(&entry, 0, 8).filter(|kind| is_whole && *kind != DT_NULL)?;
            Some((kind, number(&entry, 8, 8)?))
        };
        (0..entries).map_while(entry).filter(move |(of_kind, _)| *of_kind == kind).map(|(_, value)| value)
    }

    /// Where the names of the libraries stand.
    fn needed<'a>(&self, file: &'a impl ReadAt) -> impl Iterator<Item = u64> + 'a {
        let names = self.names;
        self.find(file, DT_NEEDED).filter_map(move |name| names.checked_add(name))
    }
}

/// The kind of each segment; where it lies in the file and in memory, and how many bytes of the file it has.
fn segments(file: &impl ReadAt, at: u64, count: u64) -> impl Iterator<Item = (u64, (u64, u64, u64))> {
    (0..count).map_while(move |segment| {
        let mut entry = [0; SEGMENT_BYTES as usize];
        let at = at.checked_add(segment * SEGMENT_BYTES)?;
        if file.read_at(at, &mut entry) < entry.len() {
            return None;
        }
        let place = (number(&entry, 8, 8)?, number(&entry, 0x10, 8)?, number(&entry, 0x20, 8)?);
        Some((number(&entry, 0, 4)?, place))
    })
}

/// A number of this many bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    Some(if cfg!(target_endian = "little") { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) })
}

/// The program that runs a script whose file begins like this.
pub fn interpreter(head: &[u8]) -> Option<&[u8]> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl ReadAt for Bytes {
        fn read_at(&self, at: u64, bytes: &mut [u8]) -> usize {
            let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
            let length = rest.len().min(bytes.len());
            bytes[..length].copy_from_slice(&rest[..length]);
            length
        }
    }

    /// Makes sure that no file, cut short or changed anywhere at its begin, makes the reader panic or go on for ever.
    #[test]
    fn a_damaged_program_is_none_that_needs_anything() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(!needs_runtime_first(&Bytes(own.clone()), &mut Room::new()));
        for length in (0..4096).step_by(7) {
            assert!(!needs_runtime_first(&Bytes(own[..length].to_vec()), &mut Room::new()));
        }
        for at in 0..1024 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = own[..8192].to_vec();
                changed[at] = value;
                needs_runtime_first(&Bytes(changed), &mut Room::new());
            }
        }
    }

    #[test]
    fn valgrind_is_known_by_its_name() {
        for path in ["valgrind", "/usr/bin/valgrind", "/usr/bin/valgrind.bin"] {
            assert!(is_valgrind(path.as_bytes()), "{path}");
        }
        for path in ["", "/usr/bin/valgrind/", "valgrind-listener", "/opt/valgrind/bin/program"] {
            assert!(!is_valgrind(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_program_is_linked_with_glibc_another_c_library_or_none() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(loader(&Bytes(own.clone()), &mut Room::new()), Loader::Own);
        let mut other = own.clone();
        other[0x12] = 183; // aarch64
        assert_eq!(loader(&Bytes(other), &mut Room::new()), Loader::Foreign);
        let mut without = own;
        without[0x38..0x3a].copy_from_slice(&[0, 0]);
        assert_eq!(loader(&Bytes(without), &mut Room::new()), Loader::None);
        assert_eq!(loader(&Bytes(b"#!/bin/sh".to_vec()), &mut Room::new()), Loader::Own);
    }

    #[test]
    fn a_script_names_its_interpreter() {
        for (head, expected) in [
            ("#!/bin/sh\n", Some("/bin/sh")),
            ("#! /bin/sh -e\nvalgrind", Some("/bin/sh")),
            ("#!\t/usr/bin/env python3", Some("/usr/bin/env")),
            ("#!\n/bin/sh", None),
            ("/bin/sh", None),
            ("", None),
        ] {
            assert_eq!(interpreter(head.as_bytes()), expected.map(str::as_bytes), "{head:?}");
        }
    }
}
