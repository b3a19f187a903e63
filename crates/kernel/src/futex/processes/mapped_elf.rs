//! The files that processes map: opened as they are mapped, and read for unwinding.

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module};
use lockmeter_symbols::{BuildId, ElfPart, FilePlace, MappedFile, TargetFile};
use object::elf::PF_X;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};

use super::mappings::{FileId, Mapping};
use crate::futex::call_frames;

/// Files that are held open: what else lockmeter opens still fits into the usual limit of 1024 descriptors.
pub const MOST_HELD: usize = 400;

/// Files that are remembered.
const MOST_FILES: usize = 1 << 14;

/// Unwind information that is kept, of all files together, unless told otherwise.
const MOST_UNWIND_BYTES: usize = 256 << 20;

const PAGE: u64 = 4096;

pub type Section = Arc<[u8]>;

/// The files of all processes, each opened once.
#[derive(Default)]
pub struct OpenedFiles {
    by_id: HashMap<FileId, Opened>,
    bounds: Bounds,
}

impl OpenedFiles {
    /// The file that a process maps there. `is_elsewhere`: its paths lead to other files than ours.
    pub fn opened(&mut self, tgid: u32, mapping: &Mapping, is_elsewhere: bool) -> &Opened {
        let open = || Opened::at(tgid, mapping, is_elsewhere, &mut self.bounds);
        self.by_id.entry(mapping.id.clone()).or_insert_with(open)
    }

    /// Keeps unwind information in so much memory, about.
    pub fn keep_within(&mut self, bytes: u64) {
        self.bounds.most_unwind_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }

    /// How many files, since the last call, turned out to be replaced by others.
    pub fn take_gone(&mut self) -> u64 {
        std::mem::take(&mut self.bounds.gone)
    }

    /// Of how many files, since the last call, unwind information was left out.
    pub fn take_read_in_part(&mut self) -> u64 {
        std::mem::take(&mut self.bounds.read_in_part)
    }

    /// How many are held open.
    #[cfg(test)]
    pub const fn held(&self) -> usize {
        self.bounds.held
    }

    /// Makes room for the files of other processes, where they may find none: files that no process maps are forgotten.
    pub fn make_room(&mut self) {
        let are_too_many = self.by_id.len() > MOST_FILES;
        if !are_too_many && !self.bounds.are_nearly_reached() {
            return;
        }
        self.by_id.retain(|_, opened| match opened {
            Opened::Elf(elf) => elf.is_in_use(),
            // Forgotten, they would be counted again.
            Opened::Gone | Opened::Other => !are_too_many,
        });
        (self.bounds.held, self.bounds.unwind_bytes) = (0, 0);
        for opened in self.by_id.values() {
            let Opened::Elf(elf) = opened else { continue };
            self.bounds.held += usize::from(elf.held.is_some());
            self.bounds.unwind_bytes += elf.unwind_bytes();
        }
    }
}

/// What the files take and may take, and what was left out since it was last asked for.
struct Bounds {
    held: usize,
    unwind_bytes: usize,
    most_unwind_bytes: usize,
    /// Files that nobody can open any more.
    gone: u64,
    /// Files whose unwind information was left out.
    read_in_part: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { held: 0, unwind_bytes: 0, most_unwind_bytes: MOST_UNWIND_BYTES, gone: 0, read_in_part: 0 }
    }
}

impl Bounds {
    /// Whether the next files may find no room.
    const fn are_nearly_reached(&self) -> bool {
        self.held >= MOST_HELD / 2 || self.unwind_bytes >= self.most_unwind_bytes / 2
    }
}

/// What unwinding needs of a file.
pub struct ElfFile {
    segments: Vec<Segment>,
    eh_frame: Option<(Range<u64>, Section)>,
    eh_frame_hdr: Option<(Range<u64>, Section)>,
    /// `None` if everybody can open it by its path.
    held: Option<Rc<TargetFile>>,
    place: FilePlace,
    /// Where the process finds it by its path.
    known_as: FilePlace,
    build_id: Option<BuildId>,
}

/// A part of a file that is loaded.
struct Segment {
    addresses: Range<u64>,
    in_file: Range<u64>,
    is_code: bool,
}

/// What became of a mapped file.
pub enum Opened {
    Elf(Box<ElfFile>),
    /// It is no binary.
    Other,
    /// Another one may lie at its path, and it cannot be opened itself.
    Gone,
}

impl Opened {
    /// Opens what is mapped, not what lies at its path by now. Counts what cannot be opened.
    fn at(tgid: u32, mapping: &Mapping, is_elsewhere: bool, bounds: &mut Bounds) -> Self {
        let here = FilePlace::Here(PathBuf::from(&mapping.id.path));
        let is_mapped = |file: &TargetFile| file.metadata().ino().to_string() == mapping.id.inode;
        let in_place = if is_elsewhere { None } else { here.open().ok().filter(is_mapped) };
        if let Some(file) = in_place {
            let places = (here.clone(), here);
            return ElfFile::read(&file, None, places, bounds).map_or(Self::Other, |elf| Self::Elf(Box::new(elf)));
        }
        let mapped = FilePlace::mapped(tgid, &mapping.range);
        // Some file systems tell other numbers than the list of mappings, but a deleted file's path is another file's.
        let by_path = FilePlace::InRootOf { pid: tgid, path: PathBuf::from(&mapping.id.path) };
        let known_as = FilePlace::of_process(tgid, &mapping.path());
        let places = [Some(mapped), (!mapping.is_deleted()).then_some(by_path)];
        let opened = places.into_iter().flatten().find_map(|place| Some((place.open().ok()?, place)));
        let Some((file, place)) = opened else {
            bounds.gone += u64::from(mapping.is_deleted());
            return if mapping.is_deleted() { Self::Gone } else { Self::Other };
        };
        // Beyond, a file is named for as long as its process lives.
        let file = Rc::new(file);
        let is_held = bounds.held < MOST_HELD;
        let (held, place) =
            if is_held { (Some(Rc::clone(&file)), FilePlace::Here(file.path())) } else { (None, place) };
        let Some(elf) = ElfFile::read(&file, held, (place, known_as), bounds) else { return Self::Other };
        bounds.held += usize::from(is_held);
        Self::Elf(Box::new(elf))
    }
}

impl ElfFile {
    fn read(
        file: &TargetFile,
        held: Option<Rc<TargetFile>>,
        (place, known_as): (FilePlace, FilePlace),
        bounds: &mut Bounds,
    ) -> Option<Self> {
        let image = file.elf(ElfPart::Unwinding).ok()?;
        let elf = ElfFile64::<object::LittleEndian, _>::parse(image.bytes()).ok()?;
        let segments = elf.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            let is_code = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.contains(PF_X));
            Segment {
                addresses: segment.address()..segment.address().saturating_add(segment.size()),
                in_file: offset..offset.saturating_add(size),
                is_code,
            }
        });
        let section = |name: &str| {
            let section = elf.section_by_name(name)?;
            let bytes = section.data().ok().filter(|bytes| !bytes.is_empty())?;
            Some((section.address()..section.address().checked_add(section.size())?, bytes))
        };
        let segments = segments.collect();
        let build_id = elf.build_id().ok().flatten().and_then(BuildId::new);
        let (mut eh_frame, mut eh_frame_hdr) = (section(".eh_frame"), section(".eh_frame_hdr"));
        if image.is_copy() {
            // What another user may have written is checked from its begin to its end. The index would lead elsewhere.
            eh_frame_hdr = None;
            eh_frame = eh_frame.filter(|(range, bytes)| call_frames::are_safe(bytes, range.start));
        }
        let bytes = [&eh_frame, &eh_frame_hdr].into_iter().flatten().map(|(_, bytes)| bytes.len()).sum::<usize>();
        if bounds.unwind_bytes + bytes > bounds.most_unwind_bytes {
            (eh_frame, eh_frame_hdr) = (None, None);
            bounds.read_in_part += 1;
        } else {
            bounds.unwind_bytes += bytes;
            bounds.read_in_part += u64::from(image.is_cut());
        }
        let kept = |section: Option<(Range<u64>, &[u8])>| section.map(|(range, bytes)| (range, Section::from(bytes)));
        let (eh_frame, eh_frame_hdr) = (kept(eh_frame), kept(eh_frame_hdr));
        Some(Self { segments, eh_frame, eh_frame_hdr, held, place, known_as, build_id })
    }

    /// Its descriptor, if it is to be held open for as long as a process maps it.
    pub fn held(&self) -> Option<Rc<TargetFile>> {
        self.held.clone()
    }

    /// Whether the module of a process that is remembered is made of it, or names are kept by the number of its descriptor.
    fn is_in_use(&self) -> bool {
        let is_named_by_number = self.build_id.is_none();
        let is_held = self.held.as_ref().is_some_and(|held| is_named_by_number || Rc::strong_count(held) > 1);
        is_held || self.eh_frame.as_ref().is_some_and(|(_, bytes)| Arc::strong_count(bytes) > 1)
    }

    fn unwind_bytes(&self) -> usize {
        [&self.eh_frame, &self.eh_frame_hdr].into_iter().flatten().map(|(_, bytes)| bytes.len()).sum()
    }

    /// The file where this mapping of its code puts it.
    pub fn mapped(&self, mapping: &Mapping) -> Option<(MappedFile, Module<Section>)> {
        // Linkers let segments share a page of the file: only its use tells them apart.
        let code = self.segments.iter().filter(|segment| segment.is_code).find(|segment| {
            (segment.in_file.start & !(PAGE - 1)..segment.in_file.end.max(1)).contains(&mapping.offset)
        })?;
        let first = code.addresses.start.wrapping_add(mapping.offset).wrapping_sub(code.in_file.start);
        let bias = mapping.memory.start.wrapping_sub(first);
        let lowest = self.segments.iter().map(|segment| segment.addresses.start & !(PAGE - 1)).min()?;
        let highest = self.segments.iter().map(|segment| segment.addresses.end).max()?;
        let memory = bias.wrapping_add(lowest)..bias.wrapping_add(highest);
        let name = mapping.name();
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma: self.eh_frame.as_ref().map(|(range, _)| range.clone()),
            eh_frame: self.eh_frame.as_ref().map(|(_, bytes)| Arc::clone(bytes)),
            eh_frame_hdr_svma: self.eh_frame_hdr.as_ref().map(|(range, _)| range.clone()),
            eh_frame_hdr: self.eh_frame_hdr.as_ref().map(|(_, bytes)| Arc::clone(bytes)),
            ..Default::default()
        };
        let module = Module::new(name.clone(), memory.clone(), bias, sections);
        let file = MappedFile {
            start: memory.start,
            end: memory.end,
            bias,
            name,
            place: self.place.clone(),
            known_as: self.known_as.clone(),
            build_id: self.build_id.clone(),
        };
        Some((file, module))
    }
}

/// Each of the first segments of these bytes, mapped as a file's code, with its addresses there.
pub fn mapped_hostile(bytes: &[u8]) -> Vec<(MappedFile, Module<Section>, Range<u64>)> {
    let file = lockmeter_symbols::hostile_elf::file_of(bytes);
    let places = (FilePlace::Nowhere, FilePlace::Nowhere);
    let elf = file.ok().and_then(|file| ElfFile::read(&file, None, places, &mut Bounds::default()));
    let Some(elf) = elf else { return Vec::new() };
    let mapped = elf.segments.iter().take(8).filter_map(|segment| {
        let id = FileId { device: String::new(), inode: String::new(), path: "/hostile".to_owned() };
        let offset = segment.in_file.start & !(PAGE - 1);
        let memory = 0x7f00_0000_0000..0x7f00_0100_0000;
        let (file, module) = elf.mapped(&Mapping { memory, offset, range: String::new(), id })?;
        Some((file, module, segment.addresses.clone()))
    });
    mapped.collect()
}

#[cfg(test)]
mod tests {
    use lockmeter_symbols::UserNames;

    use super::*;

    #[test]
    fn a_file_that_is_gone_for_good_is_named_by_offset_and_counted() {
        // No process has this number.
        let tgid = u32::MAX;
        let line = "400000-402000 r-xp 00001000 fe:00 1234                       /usr/sbin/server (deleted)";
        let mapping = Mapping::parse(line).unwrap();
        let mut bounds = Bounds::default();
        assert!(matches!(Opened::at(tgid, &mapping, false, &mut bounds), Opened::Gone));
        assert_eq!(bounds.gone, 1);
        let frames = UserNames::new().frames(&[mapping.without_file()], 0x40_0124);
        assert_eq!(frames[0].module.as_deref(), Some("server (replaced)"));
        assert_eq!((frames[0].function.as_deref(), frames[0].offset), (None, 0x1123));
    }
}
