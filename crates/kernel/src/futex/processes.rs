//! The metered processes as seen from outside: what they map, and their stacks unwound and named.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use lockmeter_profile::{Frame, Lock, Loss, Losses};
use lockmeter_symbols::{
    BuildId, ElfPart, FilePlace, LONGEST_MAPS, MOST_MAPPINGS, MappedFile, Origin, SharedAddress, SharedMapping,
    StaticPlace, TargetFile, UserNames, heap_lock, is_on_main_stack, lock_without_address, on_stack, sees_other_files,
    shared_lock,
};
use object::elf::PF_X;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};

use super::call_frames;

/// Drains that an ended process is remembered for: its stacks have been named by then, and children that it forked before have been seen.
const REMEMBERED_DRAINS: u32 = 2;

/// Frames that are kept of a stack.
const DEEPEST: usize = 64;

/// Files that are held open: what else lockmeter opens still fits into the usual limit of 1024 descriptors.
const MOST_HELD: usize = 400;

/// Names of locks in shared memory that are remembered.
const MOST_SHARED: usize = 1 << 16;

/// Files that are remembered.
const MOST_FILES: usize = 1 << 14;

/// Unwind information that is kept, of all files together, unless told otherwise.
const MOST_UNWIND_BYTES: usize = 256 << 20;

/// The number of this name in `tables.h`.
const CHUNK_BYTES: u64 = 1024;

const PAGE: u64 = 4096;

/// What the kernel appends to the path of a file that has none any more.
const DELETED: &str = " (deleted)";

type Section = Arc<[u8]>;

/// A copy of the inner end of a user stack, as `copied_stack.h` has it.
#[derive(Debug, Clone, Copy)]
pub struct CopiedStack<'a> {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// From the begin of the chunk that the stack pointer lies in.
    pub copy: &'a [u8],
}

/// Makes one of a record's, whose type each collector has for itself.
macro_rules! copied_stack {
    ($stack:expr) => {{
        let stack = $stack;
        let bytes = (stack.bytes as usize).min(stack.copy.len());
        $crate::futex::processes::CopiedStack {
            ip: stack.ip,
            sp: stack.sp,
            bp: stack.bp,
            copy: stack.copy.get(..bytes).unwrap_or_default(),
        }
    }};
}
pub(crate) use copied_stack;

/// All processes of which a stack was seen.
#[derive(Default)]
pub struct Processes {
    known: HashMap<u32, Process>,
    files: HashMap<FileId, Opened>,
    bounds: Bounds,
    names: UserNames,
    rules: CacheX86_64,
    /// Locks that processes share, with the address at which each was first seen.
    shared: HashMap<SharedAddress, (Lock, u64)>,
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

/// What is kept of a process also after its end.
#[derive(Default)]
struct Process {
    files: Vec<MappedFile>,
    unwinder: UnwinderX86_64<Section>,
    /// Whose mappings it had when it began, if it runs the same program; 0 if that is not known.
    parent: u32,
    /// The list of mappings that `files` was made from.
    maps: String,
    /// What it shares with other processes.
    shared: Vec<SharedMapping>,
    /// Where the stack of its first thread ends; 0 if that is not known.
    stack_end: u64,
    /// Held open: paths of another root cannot be followed after the process's end.
    held: Vec<Rc<TargetFile>>,
    /// The mappings were read since the last [`Processes::grow_old`].
    fresh: bool,
    /// It has run since its mappings were read.
    has_run: bool,
    /// How often the mappings have changed.
    changes: u32,
    /// Calls of [`Processes::grow_old`] since it was last asked for.
    age: u32,
}

/// A file on disk, also under several names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FileId {
    device: String,
    inode: String,
    path: String,
}

/// What unwinding needs of a file.
struct ElfFile {
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

/// A line of `/proc/PID/maps` that maps a file.
struct Mapping {
    memory: Range<u64>,
    offset: u64,
    range: String,
    id: FileId,
}

impl Processes {
    /// Reads what a process maps, so that its stacks can be named when it has ended.
    pub fn look_at(&mut self, tgid: u32) {
        self.refresh(tgid);
    }

    /// A process that may end before its mappings are read has those of the process that forked it; 0 if it runs
    /// another program by now.
    pub fn inherit(&mut self, tgid: u32, parent: u32) {
        let parent = if parent == tgid { 0 } else { parent };
        self.known.entry(tgid).or_default().parent = parent;
    }

    /// How many files, since the last call, turned out to be replaced by others, so that nothing in them is named.
    pub fn take_replaced(&mut self) -> u64 {
        std::mem::take(&mut self.bounds.gone) + self.names.take_replaced()
    }

    /// How many files, since the last call, hold more symbols or unwind information than is read.
    pub fn take_read_in_part(&mut self) -> u64 {
        std::mem::take(&mut self.bounds.read_in_part) + self.names.take_read_in_part()
    }

    /// Keeps names in so much memory, about, and what unwinding needs in as much again.
    pub fn keep_within(&mut self, bytes: u64) {
        self.names.keep_within(bytes);
        self.bounds.most_unwind_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }

    /// From here on mappings are read again when an address is not known, and now of all processes that were asked for and have run since
    /// theirs were read: another program may run in them. Nobody else changes what a process maps. Ended ones are forgotten after a while.
    pub fn grow_old(&mut self, has_run: impl Fn(u32) -> bool) {
        self.known.iter_mut().for_each(|(tgid, process)| process.has_run |= has_run(*tgid));
        let asked_for = self.known.iter().filter(|(_, process)| process.age == 0 && process.has_run);
        let asked_for: Vec<u32> = asked_for.map(|(tgid, _)| *tgid).collect();
        for tgid in asked_for {
            self.refresh(tgid);
        }
        self.known.retain(|tgid, process| {
            process.fresh = false;
            process.age += 1;
            process.age <= REMEMBERED_DRAINS || Path::new(&format!("/proc/{tgid}")).exists()
        });
        if self.bounds.are_nearly_reached() || self.files.len() > MOST_FILES {
            self.forget_unused_files();
        }
    }

    /// Makes room for the files of other processes.
    fn forget_unused_files(&mut self) {
        let are_too_many = self.files.len() > MOST_FILES;
        self.files.retain(|_, opened| match opened {
            Opened::Elf(elf) => elf.is_in_use(),
            // Forgotten, they would be counted again.
            Opened::Gone | Opened::Other => !are_too_many,
        });
        (self.bounds.held, self.bounds.unwind_bytes) = (0, 0);
        for opened in self.files.values() {
            let Opened::Elf(elf) = opened else { continue };
            self.bounds.held += usize::from(elf.held.is_some());
            self.bounds.unwind_bytes += elf.unwind_bytes();
        }
    }

    /// Whether a process maps code of a file of such a name.
    pub fn maps_any(&self, tgid: u32, is_such: impl Fn(&str) -> bool) -> bool {
        self.known.get(&tgid).is_some_and(|process| process.files.iter().any(|file| is_such(&file.name)))
    }

    /// A file of such a name that a process maps.
    pub fn file(&self, tgid: u32, is_such: impl Fn(&str) -> bool) -> Option<&MappedFile> {
        self.known.get(&tgid)?.files.iter().find(|file| is_such(&file.name))
    }

    /// All files that a process maps.
    pub fn files(&self, tgid: u32) -> &[MappedFile] {
        self.known.get(&tgid).map_or(&[], |process| &process.files)
    }

    /// Whether a process is remembered.
    pub fn is_known(&self, tgid: u32) -> bool {
        self.known.contains_key(&tgid)
    }

    /// How often the mappings of a process have changed: what was known of its addresses then is not known any more.
    pub fn changes(&self, tgid: u32) -> u32 {
        self.known.get(&tgid).map_or(0, |process| process.changes)
    }

    /// What reports call a lock in memory of which nothing else is known: on the heap, or on the stack of the process's first thread.
    /// Without an address it may as well be a static variable.
    pub fn lock_in_memory(&self, tgid: u32, address: Option<u64>, user: &[Frame]) -> Lock {
        let Some(address) = address else { return lock_without_address(user) };
        let lock = heap_lock(user, Origin::FirstSeen);
        let stack_end = self.known.get(&tgid).map_or(0, |process| process.stack_end);
        if is_on_main_stack(address, stack_end) { on_stack(lock) } else { lock }
    }

    /// Return addresses of a copied stack, innermost first; the first is where the thread is itself.
    pub fn unwind(&mut self, tgid: u32, stack: CopiedStack<'_>, losses: &mut Losses) -> Vec<u64> {
        if stack.copy.is_empty() {
            losses.add(Loss::UserStackFailed, 1);
            return Vec::new();
        }
        let mut unwound = self.follow(tgid, stack);
        let is_strange = |process: &Process, address: &u64| !process.files.iter().any(|file| file.holds(*address));
        let is_old = self.known.get(&tgid).is_none_or(|process| {
            !process.fresh && unwound.addresses.iter().any(|address| is_strange(process, address))
        });
        if is_old && self.refresh(tgid) {
            unwound = self.follow(tgid, stack);
        }
        let is_gone = self.known.get(&tgid).is_none_or(|process| process.files.is_empty());
        match unwound.end {
            _ if is_gone => losses.add(Loss::ProcessGone, 1),
            End::Outermost => {}
            End::OutOfCopy => losses.add(Loss::StackTooDeep, 1),
            End::Lost => losses.add(Loss::UserStackFailed, 1),
        }
        unwound.addresses
    }

    /// The frames of such a stack.
    pub fn frames(&mut self, tgid: u32, addresses: &[u64]) -> Vec<Frame> {
        let files = self.known.get(&tgid).map_or(&[][..], |process| &process.files);
        addresses.iter().flat_map(|address| self.names.frames(files, *address).as_ref().clone()).collect()
    }

    /// The variable at an address, if it lies in a program's or library's own memory.
    pub fn static_place(&mut self, tgid: u32, address: u64) -> Option<StaticPlace> {
        let files = self.known.get(&tgid).map_or(&[][..], |process| &process.files);
        self.names.static_place(files, address)
    }

    /// The lock at an address, and the one that stands for it in all processes, if that lies in memory that processes share. `used` is a
    /// stack that waits for it.
    pub fn shared_lock(&mut self, tgid: u32, address: u64, used: &[Frame]) -> Option<(Lock, u64)> {
        let is_known = |process: &Process| process.fresh || SharedMapping::at(&process.shared, address).is_some();
        if !self.known.get(&tgid).is_some_and(is_known) {
            self.refresh(tgid);
        }
        let (place, path) = SharedMapping::at(&self.known.get(&tgid)?.shared, address)?;
        if let Some(known) = self.shared.get(&place) {
            return Some(known.clone());
        }
        let named = (shared_lock(place, path, used, Origin::FirstSeen), address);
        // Without a stack it would have a name that says less for good.
        if !used.is_empty() && self.shared.len() < MOST_SHARED {
            self.shared.insert(place, named.clone());
        }
        Some(named)
    }

    fn follow(&mut self, tgid: u32, stack: CopiedStack<'_>) -> Unwound {
        let process = self.known.entry(tgid).or_default();
        process.age = 0;
        let begin = stack.sp - stack.sp % CHUNK_BYTES;
        let end = begin.saturating_add(stack.copy.len() as u64);
        let mut beyond = false;
        let mut read = |address: u64| {
            beyond = address >= end || address.saturating_add(8) > end;
            let at = address.checked_sub(begin).filter(|_| !beyond).ok_or(())?;
            let at = usize::try_from(at).map_err(|_| ())?;
            stack.copy.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes).ok_or(())
        };
        let registers = UnwindRegsX86_64::new(stack.ip, stack.sp, stack.bp);
        let mut frames = process.unwinder.iter_frames(stack.ip, registers, &mut self.rules, &mut read);
        let mut addresses = Vec::new();
        let finished = loop {
            match frames.next() {
                Ok(Some(frame)) if addresses.len() < DEEPEST => addresses.push(frame.address()),
                Ok(Some(_)) => break Some(End::OutOfCopy),
                Ok(None) => break Some(End::Outermost),
                Err(framehop::Error::ReturnAddressIsNull) => break Some(End::Outermost),
                Err(_) => break None,
            }
        };
        let end = finished.unwrap_or(if beyond { End::OutOfCopy } else { End::Lost });
        Unwound { addresses, end }
    }

    /// Reads the mappings of a process again; whether they differ from those before.
    fn refresh(&mut self, tgid: u32) -> bool {
        let process = self.known.entry(tgid).or_default();
        (process.fresh, process.has_run) = (true, false);
        let (changes, age, parent) = (process.changes + 1, process.age, process.parent);
        let living = living_thread(tgid);
        let (maps, shared, stack_end) = read_mappings(living);
        // A process that has ended has no mappings, and keeps those that it had or was born with.
        let (maps, shared, stack_end) = if maps.is_empty() && process.maps.is_empty() {
            let inherited = self.known.get(&parent);
            let of = |parent: &Process| (parent.maps.clone(), parent.shared.clone(), parent.stack_end);
            inherited.map_or_else(Default::default, of)
        } else {
            (maps, shared, stack_end)
        };
        if maps.is_empty() {
            return false;
        }
        if let Some(process) = self.known.get_mut(&tgid).filter(|process| process.maps == maps) {
            process.shared = shared;
            return false;
        }
        let mut next = Process { maps, shared, stack_end, fresh: true, changes, age, parent, ..Process::default() };
        let is_elsewhere = sees_other_files(living);
        for mapping in next.maps.lines().filter_map(Mapping::parse) {
            let elf = self
                .files
                .entry(mapping.id.clone())
                .or_insert_with(|| Opened::at(living, &mapping, is_elsewhere, &mut self.bounds));
            let Opened::Elf(elf) = elf else {
                next.files.extend(matches!(elf, Opened::Gone).then(|| mapping.without_file()));
                continue;
            };
            next.held.extend(elf.held.clone());
            if let Some((file, module)) = elf.mapped(&mapping)
                && !next.files.iter().any(|known| known.holds(file.start))
            {
                next.files.push(file);
                next.unwinder.add_module(module);
            }
        }
        if let Some(process) = self.known.get_mut(&tgid) {
            *process = next;
        }
        true
    }
}

struct Unwound {
    addresses: Vec<u64>,
    end: End,
}

enum End {
    Outermost,
    /// The copy was too short.
    OutOfCopy,
    Lost,
}

/// The thread by which a process can be looked at: the first one, unless that has ended before the others.
fn living_thread(tgid: u32) -> u32 {
    let lives = |thread: &u32| std::fs::read_link(format!("/proc/{thread}/exe")).is_ok();
    if lives(&tgid) {
        return tgid;
    }
    let threads = std::fs::read_dir(format!("/proc/{tgid}/task")).into_iter().flatten().flatten();
    let mut threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    threads.find(lives).unwrap_or(tgid)
}

/// The lines of code in the list of mappings, what is shared, and where the first thread's stack ends; nothing if the process has ended.
fn read_mappings(tgid: u32) -> (String, Vec<SharedMapping>, u64) {
    let Ok(file) = File::open(format!("/proc/{tgid}/maps")) else { return Default::default() };
    let lines = BufReader::new(file.take(LONGEST_MAPS)).split(b'\n').map_while(Result::ok);
    let (mut code, mut shared, mut stack_end) = (Vec::new(), Vec::new(), 0);
    for line in lines.map(|line| String::from_utf8_lossy(&line).into_owned()) {
        if shared.len() < MOST_MAPPINGS {
            shared.extend(SharedMapping::parse(&line));
        }
        if code.len() < MOST_MAPPINGS && maps_a_file(&line) {
            code.push(line);
        } else if line.ends_with("[stack]") {
            let end = line.split(['-', ' ']).nth(1).and_then(|end| u64::from_str_radix(end, 16).ok());
            stack_end = end.unwrap_or(0);
        }
    }
    (code.join("\n"), shared, stack_end)
}

/// Only code is of interest, and what has a name.
fn maps_a_file(line: &str) -> bool {
    line.contains('/') && line.split(' ').nth(1).is_some_and(|rights| rights.contains('x'))
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let range = words.next()?;
        let _rights = words.next()?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let (device, inode) = (words.next()?.to_owned(), words.next()?.to_owned());
        let path = words.next()?.trim_start().to_owned();
        let (start, end) = range.split_once('-')?;
        let memory = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        Some(Self { memory, offset, range: range.to_owned(), id: FileId { device, inode, path } })
    }

    /// The file's name without its folder.
    fn name(&self) -> String {
        let path = self.path();
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    }

    /// The path that it has, or had before it was deleted.
    fn path(&self) -> PathBuf {
        PathBuf::from(self.id.path.strip_suffix(DELETED).unwrap_or(&self.id.path))
    }

    /// Whether the path leads to it no more, though it is still mapped.
    fn is_deleted(&self) -> bool {
        self.id.path.ends_with(DELETED)
    }

    /// What is known of a file that nobody can open: its addresses are offsets.
    fn without_file(&self) -> MappedFile {
        MappedFile {
            start: self.memory.start,
            end: self.memory.end,
            bias: self.memory.start.wrapping_sub(self.offset),
            name: format!("{} (replaced)", self.name()),
            place: FilePlace::Nowhere,
            known_as: FilePlace::Nowhere,
            build_id: None,
        }
    }
}

/// What became of a mapped file.
enum Opened {
    Elf(Rc<ElfFile>),
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
            return ElfFile::read(&file, None, places, bounds).map_or(Self::Other, |elf| Self::Elf(Rc::new(elf)));
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
        Self::Elf(Rc::new(elf))
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
    fn mapped(&self, mapping: &Mapping) -> Option<(MappedFile, Module<Section>)> {
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

/// Addresses of each segment that are unwound from.
const TRIED: u64 = 64;

/// Unwinds stacks of a process that maps these bytes as a file and runs everywhere in it: for fuzzing and mutation tests.
pub fn unwind_by_hostile_elf(bytes: &[u8]) {
    let mut bounds = Bounds::default();
    let file = lockmeter_symbols::hostile_elf::file_of(bytes);
    let elf =
        file.ok().and_then(|file| ElfFile::read(&file, None, (FilePlace::Nowhere, FilePlace::Nowhere), &mut bounds));
    let Some(elf) = elf else { return };
    for segment in elf.segments.iter().take(8) {
        let memory = 0x7f00_0000_0000..0x7f00_0100_0000;
        let id = FileId { device: String::new(), inode: String::new(), path: "/hostile".to_owned() };
        let offset = segment.in_file.start & !(PAGE - 1);
        let Some((file, module)) = elf.mapped(&Mapping { memory, offset, range: String::new(), id }) else { continue };
        let mut process = Process { files: vec![file.clone()], ..Process::default() };
        process.unwinder.add_module(module);
        let mut processes = Processes { known: HashMap::from([(1, process)]), ..Processes::default() };
        let addresses = segment.addresses.clone();
        let step = (addresses.end.saturating_sub(addresses.start) / TRIED).max(1);
        for address in (0..TRIED).map(|index| addresses.start.wrapping_add(index.wrapping_mul(step))) {
            let address = address.wrapping_add(file.bias);
            let mut copy = [0; 5120];
            for word in copy.chunks_exact_mut(8) {
                word.copy_from_slice(&address.to_ne_bytes());
            }
            let stack = CopiedStack { ip: address, sp: 0x1000, bp: 0x1100, copy: &copy };
            processes.follow(1, stack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_line_of_maps_may_hold_blanks_in_its_path() {
        let line = "7f0000001000-7f0000002000 r-xp 00001000 fe:00 1234                       /opt/my server/lib x.so";
        let mapping = Mapping::parse(line).unwrap();
        assert!(maps_a_file(line));
        assert_eq!(mapping.memory, 0x7f00_0000_1000..0x7f00_0000_2000);
        assert_eq!((mapping.offset, mapping.id.path.as_str()), (0x1000, "/opt/my server/lib x.so"));
        assert!(!maps_a_file("7ffd2000-7ffd4000 r-xp 00000000 00:00 0                          [vdso]"));
    }

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

    #[test]
    fn a_child_that_ended_is_named_by_what_its_parent_maps() {
        let mut processes = Processes::default();
        let (own, ended) = (std::process::id(), u32::MAX);
        processes.look_at(own);
        processes.look_at(ended);
        let address = maps_a_file as fn(&str) -> bool as usize as u64 + 1;
        assert_eq!(processes.frames(ended, &[address])[0].function, None);
        processes.inherit(ended, own);
        processes.look_at(ended);
        let frames = processes.frames(ended, &[address]);
        let names: Vec<_> = frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
        assert!(names.iter().any(|name| name.contains("maps_a_file")), "{names:?}");
    }

    #[test]
    fn this_program_finds_itself() {
        let mut processes = Processes::default();
        processes.look_at(std::process::id());
        let own = this_program_finds_itself as fn() as usize as u64;
        let frames = processes.frames(std::process::id(), &[own + 1]);
        let names: Vec<_> = frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
        assert!(names.iter().any(|name| name.contains("this_program_finds_itself")), "{names:?}");
    }

    /// Makes sure that another program is known in a process that executes one, and that one which sleeps costs nothing.
    #[test]
    fn mappings_are_read_again_once_the_process_has_run() {
        let mut command = std::process::Command::new("sh");
        let mut child =
            command.args(["-c", "read line; exec sleep 60"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let runs = |name: &str| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
        let until = |name: &str| {
            while !runs(name) {
                std::thread::yield_now()
            }
        };
        until("sh");
        let mut processes = Processes::default();
        processes.look_at(pid);
        let before = processes.changes(pid);
        let maps_sleep = |processes: &Processes| processes.maps_any(pid, |file| file == "sleep");
        child.stdin.take();
        until("sleep");
        processes.grow_old(|_| false);
        assert!(!maps_sleep(&processes) && processes.changes(pid) == before, "nobody said that it ran");
        // It is not asked for now, and later does not run.
        processes.grow_old(|_| true);
        assert!(!maps_sleep(&processes));
        processes.known.get_mut(&pid).unwrap().age = 0;
        processes.grow_old(|_| false);
        assert!(maps_sleep(&processes) && processes.changes(pid) == before + 1);
        child.kill().and_then(|()| child.wait()).unwrap();
    }

    /// Makes sure that a process with more files than may be held open is known, and that what it no longer maps is let go.
    #[test]
    fn of_many_deleted_files_not_all_are_held_open() {
        let own = std::process::id();
        if fs::read_dir(format!("/proc/{own}/map_files")).is_err() || !may_open_mapped_files() {
            println!("SKIPPED many deleted files: not root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("library.c"), folder.path().join("library"));
        fs::write(&source, "int take(int at) { return at + 1; }\n").unwrap();
        let mut compiler = std::process::Command::new("cc");
        let built = compiler.args(["-shared", "-fPIC", "-Wl,--build-id", "-o"]).arg(&library).arg(&source).status();
        assert!(built.unwrap().success());
        let mapped: Vec<Mapped> = (0..MOST_HELD + 100).map(|_| Mapped::copy_of(&library)).collect();
        let mut processes = Processes::default();
        processes.look_at(own);
        assert_eq!(processes.bounds.held, MOST_HELD);
        let known = processes.known[&own].files.iter().filter(|file| file.name == "mapped").count();
        assert_eq!(known, mapped.len());
        drop(mapped);
        processes.look_at(own);
        processes.grow_old(|_| true);
        assert_eq!(processes.bounds.held, 0);
    }

    fn may_open_mapped_files() -> bool {
        // SAFETY: takes nothing.
        unsafe { libc::geteuid() == 0 }
    }

    /// A file whose code this process maps, and that no path leads to.
    struct Mapped {
        code: *mut libc::c_void,
        bytes: usize,
    }

    impl Mapped {
        fn copy_of(library: &Path) -> Self {
            let copy = library.with_file_name("mapped");
            fs::copy(library, &copy).unwrap();
            let file = File::open(&copy).unwrap();
            fs::remove_file(&copy).unwrap();
            // More than the file has, so that the modules do not overlap.
            let bytes = file.metadata().unwrap().len() as usize + (64 << 10);
            let (rights, descriptor) = (libc::PROT_READ | libc::PROT_EXEC, std::os::fd::AsRawFd::as_raw_fd(&file));
            // SAFETY: a new mapping of a file that is open; nobody changes it.
            let code =
                unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_PRIVATE, descriptor, 0x1000) };
            assert_ne!(code, libc::MAP_FAILED);
            Self { code, bytes }
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: what `mmap` returned, which nothing refers to any more.
            unsafe { libc::munmap(self.code, self.bytes) };
        }
    }
}
