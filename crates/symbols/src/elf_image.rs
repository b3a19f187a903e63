//! The parts of an ELF file that lockmeter reads, in memory that nobody else can change.
//!
//! A file that only root and this process's user can change is mapped. Of every other one, and of one whose symbol tables are
//! larger than lockmeter reads, the needed sections are copied into sealed memory, as a small ELF file of their own: other
//! offsets, so that sections that overlap in the file do not in the copy. Sizes, names and symbols in it are bounded, whatever
//! the file says. Debugging information and debug links are not copied: no bound on their size bounds what reading them costs. A file
//! with a debug link is copied as well, no matter who owns it: the library that reads symbols would follow the link by itself.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use memmap2::Mmap;
use object::LittleEndian as LE;
use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, FileHeader64, PT_LOAD, ProgramHeader64, SHF_COMPRESSED, SHN_XINDEX, SHT_DYNSYM,
    SHT_NOBITS, SHT_NOTE, SHT_NULL, SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB, SectionFlags, SectionHeader64, SectionType,
    SymbolSection,
};
use object::pod;
use object::{U32, U64};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::program_names::LONGEST_NAME;
use crate::target_file::TargetFile;

/// What a file is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElfPart {
    /// The build id.
    BuildId,
    /// Symbols and their names.
    Symbols,
    /// `.eh_frame`, and where the file is loaded.
    Unwinding,
    /// What compilers leave that tells a program's language.
    Language,
}

/// Symbol tables are read up to this size, all of a file together.
pub(crate) const MOST_SYMBOL_BYTES: u64 = 64 << 20;

/// Larger sections of other kinds are cut.
const MOST_SECTION_BYTES: u64 = 64 << 20;

/// Notes are a few dozen bytes each; so are the few of a file.
const MOST_NOTE_BYTES: u64 = 64 << 10;
const MOST_NOTES: usize = 64;

/// Tables of headers are cut here: no program has that many sections or segments.
const MOST_SECTIONS: u64 = 1 << 16;
const MOST_SEGMENTS: u64 = 1 << 12;

/// Names of sections beyond are not looked at.
const MOST_SECTION_NAME_BYTES: u64 = 1 << 20;

const SYMBOL_BYTES: u64 = 24;

/// Bytes copied at a time: whole symbols.
const CHUNK: usize = SYMBOL_BYTES as usize * (32 << 10);

/// Sections that lead to other files.
const LINKS: [&str; 3] = [DEBUG_LINK, ".gnu_debugaltlink", ".debug_sup"];

/// The section that names a program's separate debug file.
pub(crate) const DEBUG_LINK: &str = ".gnu_debuglink";

const SYMBOL_TABLES: [&str; 4] = [".dynsym", ".dynstr", ".symtab", ".strtab"];

impl ElfPart {
    /// The sections that are needed besides notes.
    const fn sections(self) -> &'static [&'static str] {
        match self {
            Self::BuildId => &[],
            Self::Symbols => &SYMBOL_TABLES,
            Self::Unwinding => &[".eh_frame", ".eh_frame_hdr"],
            Self::Language => &[".go.buildinfo", ".comment", ".rodata"],
        }
    }
}

/// A 64-bit ELF file, or a copy of parts of it.
pub struct ElfImage {
    map: Mmap,
    /// What is mapped.
    file: File,
    copied_bytes: u64,
    is_cut: bool,
}

impl ElfImage {
    pub(crate) fn read(file: &TargetFile, part: ElfPart) -> io::Result<Self> {
        let headers = Headers::read(file)?;
        let sections = headers.sections_of(part);
        let is_cut = sections.iter().any(|section| section.kept < section.whole);
        let leads_elsewhere = part == ElfPart::Symbols && LINKS.iter().any(|link| headers.section(link).is_some());
        let is_copy = is_cut || leads_elsewhere || !file.is_only_ours();
        Self::of(file, (headers, sections), is_copy)
    }

    /// A copy of the symbols of a file, no matter who owns it.
    pub(crate) fn copy_of_symbols(file: &TargetFile) -> io::Result<Self> {
        let headers = Headers::read(file)?;
        let sections = headers.sections_of(ElfPart::Symbols);
        Self::of(file, (headers, sections), true)
    }

    fn of(file: &TargetFile, (headers, sections): (Headers, Vec<Wanted>), is_copy: bool) -> io::Result<Self> {
        let is_cut = sections.iter().any(|section| section.kept < section.whole);
        let source = if is_copy { copy(file, &headers, &sections)? } else { file.file().try_clone()? };
        // SAFETY: nobody changes what is mapped: a copy is sealed, and any other file only root and this process's user can
        // change, whose tools replace files rather than overwrite them.
        let map = unsafe { Mmap::map(&source) }?;
        let copied_bytes = if is_copy { map.len() as u64 } else { 0 };
        Ok(Self { map, file: source, copied_bytes, is_cut })
    }

    /// The file's bytes, for a parser.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Whether something needed was larger than lockmeter reads, and is missing in part.
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether it is a copy, since another user can change the file, or since it was cut.
    pub const fn is_copy(&self) -> bool {
        self.copied_bytes > 0
    }

    /// Memory that the copy takes.
    pub(crate) const fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// A path that leads to it for as long as this exists.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// The bytes of a section as they lie in the file; `None` if it has none of that name, or a larger one.
pub(crate) fn section_bytes(file: &TargetFile, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
    let headers = Headers::read(file)?;
    let Some(section) = headers.section(name) else { return Ok(None) };
    let size = headers.bytes_of(section);
    if size == 0 || size > most {
        return Ok(None);
    }
    let mut bytes = vec![0; size as usize];
    file.read_at(&mut bytes, section.sh_offset.get(LE))?;
    Ok(Some(bytes))
}

/// Where a section lies in memory, before the program is moved, and in the file.
pub(crate) struct SectionPlace {
    pub addresses: Range<u64>,
    pub in_file: u64,
}

/// The section of this name; `None` if there is none.
pub(crate) fn section_place(file: &TargetFile, name: &str) -> io::Result<Option<SectionPlace>> {
    let headers = Headers::read(file)?;
    Ok(headers.section(name).map(|section| {
        let start = section.sh_addr.get(LE);
        let addresses = start..start.saturating_add(section.sh_size.get(LE));
        SectionPlace { addresses, in_file: section.sh_offset.get(LE) }
    }))
}

/// The headers of a file, cut to what is plausible.
struct Headers {
    file: FileHeader64<LE>,
    segments: Vec<ProgramHeader64<LE>>,
    sections: Vec<SectionHeader64<LE>>,
    section_names: Vec<u8>,
    file_bytes: u64,
}

/// A section to be read.
struct Wanted {
    name: &'static str,
    header: SectionHeader64<LE>,
    /// Bytes in the file.
    whole: u64,
    /// Bytes that are read.
    kept: u64,
}

impl Wanted {
    /// With a terminator for the last name.
    fn bytes_in_copy(&self) -> u64 {
        self.kept + u64::from(is_of_names(self.name))
    }
}

fn not_elf() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a 64-bit little-endian ELF file")
}

impl Headers {
    fn read(file: &TargetFile) -> io::Result<Self> {
        let header: FileHeader64<LE> = *table(file, 0, 1)?.first().ok_or_else(not_elf)?;
        let ident = header.e_ident;
        if (ident.magic, ident.class, ident.data) != (ELFMAG, ELFCLASS64, ELFDATA2LSB) {
            return Err(not_elf());
        }
        let has_entries = |size: u16, expected: usize| usize::from(size) == expected;
        let mut sections: Vec<SectionHeader64<LE>> = Vec::new();
        let sections_at = header.e_shoff.get(LE);
        if sections_at != 0 && has_entries(header.e_shentsize.get(LE), size_of::<SectionHeader64<LE>>()) {
            // A count that does not fit stands in the first section's size.
            let count = match header.e_shnum.get(LE) {
                0 => {
                    table::<SectionHeader64<LE>>(file, sections_at, 1)?.first().map_or(0, |first| first.sh_size.get(LE))
                }
                count => count.into(),
            };
            sections = table(file, sections_at, count.min(MOST_SECTIONS))?;
        }
        let mut segments = Vec::new();
        if has_entries(header.e_phentsize.get(LE), size_of::<ProgramHeader64<LE>>()) {
            segments = table(file, header.e_phoff.get(LE), u64::from(header.e_phnum.get(LE)).min(MOST_SEGMENTS))?;
        }
        let mut headers =
            Self { file: header, segments, sections, section_names: Vec::new(), file_bytes: file.metadata().len() };
        headers.section_names = headers.read_section_names(file)?;
        Ok(headers)
    }

    fn read_section_names(&self, file: &TargetFile) -> io::Result<Vec<u8>> {
        let index = match self.file.e_shstrndx.get(LE) {
            SHN_XINDEX => self.sections.first().map_or(0, |first| first.sh_link.get(LE)),
            SymbolSection(index) => index.into(),
        };
        let Some(section) = self.sections.get(index as usize) else { return Ok(Vec::new()) };
        let mut names = vec![0; self.bytes_of(section).min(MOST_SECTION_NAME_BYTES) as usize];
        file.read_at(&mut names, section.sh_offset.get(LE))?;
        Ok(names)
    }

    /// How much of a section lies in the file.
    fn bytes_of(&self, section: &SectionHeader64<LE>) -> u64 {
        if matches!(section.sh_type.get(LE), SHT_NOBITS | SHT_NULL) {
            return 0;
        }
        section.sh_size.get(LE).min(self.file_bytes.saturating_sub(section.sh_offset.get(LE)))
    }

    fn is_called(&self, section: &SectionHeader64<LE>, name: &str) -> bool {
        let found = self.section_names.get(section.sh_name.get(LE) as usize..);
        found.and_then(|found| found.strip_prefix(name.as_bytes())).is_some_and(|rest| rest.first() == Some(&0))
    }

    fn section(&self, name: &str) -> Option<&SectionHeader64<LE>> {
        self.sections.iter().find(|section| self.is_called(section, name))
    }

    /// What is read of the file for a purpose.
    fn sections_of(&self, part: ElfPart) -> Vec<Wanted> {
        let bound = |name: &'static str, most: u64| {
            let found = self.section(name)?;
            let is_compressed = found.sh_flags.get(LE).0 & SHF_COMPRESSED.0 != 0;
            let whole = self.bytes_of(found);
            let is_of_type = is_plausible(name, found.sh_type.get(LE));
            (whole > 0 && !is_compressed && is_of_type).then_some(Wanted {
                name,
                header: *found,
                whole,
                kept: whole.min(most),
            })
        };
        let mut wanted: Vec<Wanted> =
            part.sections().iter().filter_map(|name| bound(name, MOST_SECTION_BYTES)).collect();
        if part == ElfPart::Symbols {
            share_out(&mut wanted);
        }
        let notes = self.sections.iter().filter(|section| section.sh_type.get(LE) == SHT_NOTE).take(MOST_NOTES);
        wanted.extend(notes.map(|header| {
            let whole = self.bytes_of(header).min(MOST_NOTE_BYTES);
            Wanted { name: ".note", header: *header, whole, kept: whole }
        }));
        wanted
    }
}

/// Whether parsers that go by the type will take the section for what its name says.
fn is_plausible(name: &str, found: SectionType) -> bool {
    match name {
        ".symtab" => found == SHT_SYMTAB,
        ".dynsym" => found == SHT_DYNSYM,
        ".strtab" | ".dynstr" => found == SHT_STRTAB,
        ".eh_frame" => found == SHT_PROGBITS || found == object::elf::SHT_X86_64_UNWIND,
        _ => found == SHT_PROGBITS,
    }
}

/// Cuts symbol tables that are too large together: dynamic ones to an eighth each, and what is left goes to symbols and
/// their names one to two, as they are in most programs.
fn share_out(tables: &mut [Wanted]) {
    for table in tables.iter_mut() {
        table.kept = table.whole;
    }
    if tables.iter().map(|table| table.whole).fold(0, u64::saturating_add) <= MOST_SYMBOL_BYTES {
        return;
    }
    let mut left = MOST_SYMBOL_BYTES;
    for name in SYMBOL_TABLES {
        let most = match name {
            ".symtab" => left / 3,
            ".strtab" => left,
            _ => MOST_SYMBOL_BYTES / 8,
        };
        if let Some(table) = tables.iter_mut().find(|table| table.name == name) {
            table.kept = table.whole.min(most);
            if names_of(name).is_some() {
                table.kept -= table.kept % SYMBOL_BYTES;
            }
            left -= table.kept;
        }
    }
}

/// Reads a table of headers; what lies behind the file's end is left out.
fn table<T: pod::Pod + Copy>(file: &TargetFile, at: u64, count: u64) -> io::Result<Vec<T>> {
    let there = file.metadata().len().saturating_sub(at) / size_of::<T>() as u64;
    let mut bytes = vec![0; count.min(there) as usize * size_of::<T>()];
    file.read_at(&mut bytes, at)?;
    Ok(bytes.chunks_exact(size_of::<T>()).filter_map(|entry| Some(*pod::from_bytes::<T>(entry).ok()?.0)).collect())
}

/// Writes a small ELF file with these sections, and seals it.
fn copy(file: &TargetFile, headers: &Headers, sections: &[Wanted]) -> io::Result<File> {
    let is_loaded = |segment: &&ProgramHeader64<LE>| segment.p_type.get(LE) == PT_LOAD;
    let loaded: Vec<_> = headers.segments.iter().filter(is_loaded).copied().collect();
    let mut small = SmallElf::begin(&loaded)?;
    for section in sections {
        let at = small.end.next_multiple_of(16);
        copy_section(file, section, &small.memory, at)?;
        let mut header = section.header;
        if let Some(names) = names_of(section.name) {
            let link = sections.iter().position(|other| other.name == names);
            header.sh_link.set(LE, link.map_or(0, |index| index as u32 + 1));
            header.sh_entsize.set(LE, SYMBOL_BYTES);
            header.sh_info.set(LE, 0);
        }
        small.add(section.name, header, at, section.bytes_in_copy());
    }
    small.finish(headers.file, loaded.len() as u16)
}

/// A small ELF file in the making: its header, the segments, sections, and the table of sections.
struct SmallElf {
    memory: File,
    end: u64,
    /// Section 0 is none.
    table: Vec<SectionHeader64<LE>>,
    names: Vec<u8>,
}

const SEGMENTS_AT: u64 = size_of::<FileHeader64<LE>>() as u64;

impl SmallElf {
    fn begin(segments: &[ProgramHeader64<LE>]) -> io::Result<Self> {
        let memory = sealable_memory()?;
        memory.write_all_at(pod::bytes_of_slice(segments), SEGMENTS_AT)?;
        let end = SEGMENTS_AT + size_of_val(segments) as u64;
        Ok(Self { memory, end, table: vec![no_section()], names: vec![0] })
    }

    fn add(&mut self, name: &str, mut header: SectionHeader64<LE>, at: u64, bytes: u64) {
        header.sh_name.set(LE, self.names.len() as u32);
        header.sh_offset.set(LE, at);
        header.sh_size.set(LE, bytes);
        self.names.extend_from_slice(name.as_bytes());
        self.names.push(0);
        self.table.push(header);
        self.end = at + bytes;
    }

    fn finish(mut self, mut header: FileHeader64<LE>, segments: u16) -> io::Result<File> {
        const NAME: &str = ".shstrtab";
        let (names_at, own_index) = (self.end, self.table.len());
        let mut own = no_section();
        own.sh_type.set(LE, SHT_STRTAB);
        let names_bytes = (self.names.len() + NAME.len() + 1) as u64;
        self.add(NAME, own, names_at, names_bytes);
        self.memory.write_all_at(&self.names, names_at)?;
        let table_at = self.end.next_multiple_of(16);
        self.memory.write_all_at(pod::bytes_of_slice(&self.table), table_at)?;
        header.e_phoff.set(LE, SEGMENTS_AT);
        header.e_phnum.set(LE, segments);
        header.e_shoff.set(LE, table_at);
        header.e_shnum.set(LE, self.table.len() as u16);
        header.e_shstrndx.set(LE, SymbolSection(own_index as u16));
        self.memory.write_all_at(pod::bytes_of(&header), 0)?;
        rustix::fs::fcntl_add_seals(&self.memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        Ok(self.memory)
    }
}

fn no_section() -> SectionHeader64<LE> {
    let (word, long) = (U32::new(LE, 0), U64::new(LE, 0));
    SectionHeader64 {
        sh_name: word,
        sh_type: U32::new(LE, SHT_NULL),
        sh_flags: U64::new(LE, SectionFlags(0)),
        sh_addr: long,
        sh_offset: long,
        sh_size: long,
        sh_link: word,
        sh_info: word,
        sh_addralign: long,
        sh_entsize: long,
    }
}

/// The section with the names of a table of symbols.
fn names_of(section: &str) -> Option<&'static str> {
    match section {
        ".symtab" => Some(".strtab"),
        ".dynsym" => Some(".dynstr"),
        _ => None,
    }
}

pub(crate) fn sealable_memory() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Linux before 6.3 does not know that flag; later ones may demand it.
    let memory = rustix::fs::memfd_create(c"lockmeter-elf", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(c"lockmeter-elf", flags))?;
    Ok(memory.into())
}

fn is_of_names(section: &str) -> bool {
    section == ".strtab" || section == ".dynstr"
}

/// Copies what is kept of a section. Holes stay holes.
fn copy_section(file: &TargetFile, section: &Wanted, memory: &File, at: u64) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK.min(section.kept as usize)];
    let (mut done, mut name_bytes) = (0, 0);
    while done < section.kept {
        let bytes = buffer.len().min((section.kept - done) as usize);
        let chunk = &mut buffer[..bytes];
        file.read_at(chunk, section.header.sh_offset.get(LE).saturating_add(done))?;
        if is_of_names(section.name) {
            end_long_names(chunk, &mut name_bytes);
        } else if names_of(section.name).is_some() {
            forget_impossible_sizes(chunk);
        }
        if chunk.iter().any(|byte| *byte != 0) {
            memory.write_all_at(chunk, at + done)?;
        }
        done += bytes as u64;
    }
    // The end may be a hole.
    let end = at + section.bytes_in_copy();
    if memory.metadata()?.len() < end {
        memory.set_len(end)?;
    }
    Ok(())
}

/// Ends names after [`LONGEST_NAME`] bytes: a file may say that each of a million symbols is called by the whole table.
fn end_long_names(chunk: &mut [u8], name_bytes: &mut usize) {
    for byte in chunk {
        *name_bytes = if *byte == 0 { 0 } else { *name_bytes + 1 };
        if *name_bytes > LONGEST_NAME {
            (*byte, *name_bytes) = (0, 0);
        }
    }
}

/// A symbol that ends beyond the last address has no size.
fn forget_impossible_sizes(symbols: &mut [u8]) {
    for symbol in symbols.chunks_exact_mut(SYMBOL_BYTES as usize) {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        if number(&symbol[8..16]).checked_add(number(&symbol[16..24])).is_none() {
            symbol[16..24].fill(0);
        }
    }
}
