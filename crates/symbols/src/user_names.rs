//! From addresses of a process to the names of functions and static locks.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::build_id::{BuildId, BuildIds};
use crate::debug_package::debug_package;
use crate::debuginfod;
use crate::program_names::ProgramNames;
use crate::shared_memory::LONGEST_MAPS;
use crate::target_file::{FilePlace, TargetFile, Version, sees_other_files};
use lockmeter_profile::{Frame, Lock, Naming, Unnamed};

/// Files whose names are kept; the least recently used go first.
const MOST_FILES: usize = 1 << 10;

/// The same by the memory that they take, unless told otherwise.
const MOST_NAME_BYTES: u64 = 256 << 20;

/// Frames that are kept with their names may take this part of it more; beyond, all are forgotten.
const FRAMES_OF_NAMES: u64 = 4;

/// What a kept frame takes besides its names.
const FRAME_BYTES: usize = 256;

/// Files that are remembered so that they are counted once.
const MOST_COUNTED: usize = 1 << 14;

/// Stripped files whose packages are looked for.
const MOST_ASKED_PACKAGES: usize = 64;

/// A file that a process maps, program or library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// Where its memory begins.
    pub start: u64,
    /// The first address beyond.
    pub end: u64,
    /// What an address in the file lacks to one in memory.
    pub bias: u64,
    /// What the file is called, without its folder.
    pub name: String,
    /// Where lockmeter finds it.
    pub place: FilePlace,
    /// Where the process finds it by its path: its separate debug file is looked for from there.
    pub known_as: FilePlace,
    /// What the mapped file is signed with; `None` if it is not signed, or if nobody could look.
    pub build_id: Option<BuildId>,
}

/// A file of a certain build.
type FileKey = (FilePlace, Option<BuildId>);

impl MappedFile {
    fn key(&self) -> FileKey {
        (self.place.clone(), self.build_id.clone())
    }

    /// Whether the address lies in it.
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Names of functions and variables of all files seen so far.
#[derive(Default)]
pub struct UserNames {
    files: HashMap<FileKey, Kept>,
    /// Memory that these take, and may take.
    file_bytes: u64,
    most_file_bytes: MostBytes,
    /// Counts the uses of files.
    uses: u64,
    frames: HashMap<FileKey, HashMap<u64, Rc<Vec<Frame>>>>,
    frame_bytes: u64,
    build_ids: BuildIds,
    replaced: HashSet<FileKey>,
    newly_replaced: u64,
    cut: HashSet<FileKey>,
    newly_cut: u64,
    /// By the path of a stripped file: the package with its debug symbols.
    debug_packages: HashMap<PathBuf, Option<String>>,
}

struct MostBytes(u64);

impl Default for MostBytes {
    fn default() -> Self {
        Self(MOST_NAME_BYTES)
    }
}

/// The names of a file, kept.
struct Kept {
    names: Rc<ProgramNames>,
    version: Version,
    last_use: u64,
}

/// A static variable that holds an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticPlace {
    /// File name of the program or library.
    pub file: String,
    /// The variable and the offset in it; `None` if the file has no symbol there.
    pub variable: Option<(String, u64)>,
    /// Why there is none, if there is none.
    pub no_variable: NoVariable,
    /// The address in the file.
    pub address: u64,
}

/// Why an address in a file has no name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NoVariable {
    /// The file has symbols, but none there.
    #[default]
    NoSymbol,
    /// Another build lies in the file's place, or none.
    Replaced,
    /// The file is stripped, and its debug file is not there.
    Stripped {
        /// The package that has it, where the package manager knows the file.
        debug_package: Option<String>,
    },
}

impl fmt::Display for NoVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSymbol => f.write_str("the file has no symbol there"),
            Self::Replaced => f.write_str("the file was replaced by another build"),
            Self::Stripped { debug_package } => {
                f.write_str("the file is stripped; install its debug symbols ")?;
                match debug_package {
                    Some(package) => write!(f, "(package {package})")?,
                    None => f.write_str("(Debian: PACKAGE-dbgsym)")?,
                }
                f.write_str(if debuginfod::are_asked() {
                    "; debuginfod has none"
                } else {
                    ", or record with --debuginfod"
                })
            }
        }
    }
}

impl StaticPlace {
    /// The lock that lies there.
    pub fn lock(&self) -> Lock {
        let file = &self.file;
        let (name, naming, detail) = match &self.variable {
            Some((variable, 0)) => (format!("{file}:{variable}"), Naming::UserSymbol, String::new()),
            Some((variable, offset)) => (format!("{file}:{variable}+{offset:#x}"), Naming::UserSymbol, String::new()),
            None => {
                let why = Naming::Unnamed(Unnamed::NoUserSite);
                (format!("{file}+{:#x}", self.address), why, self.no_variable.to_string())
            }
        };
        Lock { name, object: None, naming, detail }
    }

    /// That of several locks, of which one lies there: an array of them, most likely.
    pub fn lock_of_many(&self) -> Lock {
        let variable = self.variable.as_ref().map(|(variable, _)| (variable.clone(), 0));
        Self { variable, ..self.clone() }.lock()
    }
}

impl UserNames {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps names of files in so much memory, and those of frames in a quarter more. The file used last is kept, however large it is.
    pub fn keep_within(&mut self, bytes: u64) {
        self.most_file_bytes = MostBytes(bytes);
        self.forget_oldest();
    }

    /// A file under the path that a process knows it by. If another build lies there by now, or none, the mapped one is looked for
    /// where the kernel shows it while the process lives; else it is one of those that were held open, if that is of this build.
    pub fn file_of_process(
        &mut self,
        path: ProcessPath<'_>,
        memory: Range<u64>,
        bias: u64,
        held: &[Arc<TargetFile>],
        build_id: Option<BuildId>,
    ) -> MappedFile {
        let path = ProcessPath { path: without_mark_of_deleted(path.path), ..path };
        let name = file_name(path.path);
        let mut place = path.visible_place();
        if let Some(wanted) = &build_id {
            let mut is_it = |place: &FilePlace| self.build_ids.open_if(place, wanted).is_some();
            if !is_it(&place) {
                let held = held.iter().map(|held| FilePlace::Here(held.path()));
                place = mapped_file(path.pid, &memory).into_iter().chain(held).find(is_it).unwrap_or(place);
            }
        }
        MappedFile { start: memory.start, end: memory.end, bias, name, place, known_as: path.place(), build_id }
    }

    /// Reads the names of a file now: it may be gone when the first of them is asked for.
    pub fn load(&mut self, file: &MappedFile) {
        self.names_of(file);
    }

    /// How many files, since the last call, turned out to be other builds than what processes map: nothing is named by
    /// them.
    pub fn take_replaced(&mut self) -> u64 {
        std::mem::take(&mut self.newly_replaced)
    }

    /// How many files, since the last call, have symbol tables that are larger than lockmeter reads: some of what lies in them
    /// is not named.
    pub fn take_read_in_part(&mut self) -> u64 {
        std::mem::take(&mut self.newly_cut)
    }

    /// The names of a file; `None` if another build lies in its place.
    fn names_of(&mut self, file: &MappedFile) -> Option<Rc<ProgramNames>> {
        let key = file.key();
        self.uses += 1;
        if let Some(kept) = self.files.get_mut(&key)
            && (file.build_id.is_some() || file.place.open().map_or(true, |now| Version::of(&now) == kept.version))
        {
            // Also when the file is gone, with the process that mapped it.
            kept.last_use = self.uses;
            return Some(Rc::clone(&kept.names));
        }
        let opened = match &file.build_id {
            Some(build_id) => self.build_ids.open_if(&file.place, build_id),
            None => file.place.open().ok(),
        };
        let Some(opened) = opened else {
            if file.build_id.is_none() {
                return Some(Rc::default());
            }
            self.newly_replaced += u64::from(is_first(&mut self.replaced, key));
            return None;
        };
        let names = Rc::new(ProgramNames::of_file(&opened, &file.known_as));
        if names.is_cut {
            self.newly_cut += u64::from(is_first(&mut self.cut, key.clone()));
        }
        let kept = Kept { names: Rc::clone(&names), version: Version::of(&opened), last_use: self.uses };
        self.keep(key, kept);
        Some(names)
    }

    fn keep(&mut self, key: FileKey, kept: Kept) {
        self.file_bytes += kept.names.bytes;
        if let Some(before) = self.files.insert(key, kept) {
            self.file_bytes -= before.names.bytes;
        }
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        while self.files.len() > MOST_FILES || (self.file_bytes > self.most_file_bytes.0 && self.files.len() > 1) {
            let Some(oldest) = self.files.iter().min_by_key(|(_, kept)| kept.last_use).map(|(key, _)| key.clone())
            else {
                return;
            };
            if let Some(oldest) = self.files.remove(&oldest) {
                self.file_bytes -= oldest.names.bytes;
            }
        }
    }

    /// The frame of a return address.
    pub fn frames(&mut self, files: &[MappedFile], address: u64) -> Rc<Vec<Frame>> {
        let Some(file) = file_of(files, address) else {
            return Rc::new(vec![Frame { address, function: None, offset: 0, module: None }]);
        };
        // The call lies before the return address.
        let in_file = address.wrapping_sub(file.bias).wrapping_sub(1);
        let key = file.key();
        if let Some(known) = self.frames.get(&key).and_then(|frames| frames.get(&in_file)) {
            return Rc::clone(known);
        }
        let frame = self.symbolize(file, address, in_file);
        self.frame_bytes += (FRAME_BYTES + frame.function.as_ref().map_or(0, String::len)) as u64;
        if self.frame_bytes > self.most_file_bytes.0 / FRAMES_OF_NAMES {
            self.frames.clear();
            self.frame_bytes = 0;
        }
        let frames = Rc::new(vec![frame]);
        self.frames.entry(key).or_default().insert(in_file, Rc::clone(&frames));
        frames
    }

    fn symbolize(&mut self, file: &MappedFile, address: u64, in_file: u64) -> Frame {
        let Some(names) = self.names_of(file) else {
            return Frame { address, function: None, offset: in_file, module: Some(replaced(&file.name)) };
        };
        let module = Some(file.name.clone());
        match names.function(in_file) {
            Some((name, offset)) => Frame { address, function: Some(name), offset: offset.wrapping_add(1), module },
            None => Frame { address, function: None, offset: in_file, module },
        }
    }

    /// Where a lock lies, if in a program's or library's own memory.
    pub fn static_place(&mut self, files: &[MappedFile], address: u64) -> Option<StaticPlace> {
        let file = file_of(files, address)?;
        let in_file = address.wrapping_sub(file.bias);
        let Some(names) = self.names_of(file) else {
            let no_variable = NoVariable::Replaced;
            return Some(StaticPlace { file: replaced(&file.name), variable: None, no_variable, address: in_file });
        };
        let variable = names.variable(in_file);
        let is_stripped = variable.is_none() && names.is_stripped();
        let no_variable = if is_stripped { self.stripped(file) } else { NoVariable::NoSymbol };
        Some(StaticPlace { file: file.name.clone(), variable, no_variable, address: in_file })
    }

    fn stripped(&mut self, file: &MappedFile) -> NoVariable {
        // Only the package manager of this machine is asked, and seldom: it keeps megabytes of lists.
        let FilePlace::Here(path) = &file.known_as else { return NoVariable::Stripped { debug_package: None } };
        let known = self.debug_packages.get(path).cloned();
        let debug_package = known.unwrap_or_else(|| {
            if self.debug_packages.len() >= MOST_ASKED_PACKAGES {
                return None;
            }
            let package = debug_package(path);
            self.debug_packages.insert(path.clone(), package.clone());
            package
        });
        NoVariable::Stripped { debug_package }
    }
}

/// Whether this file was not counted yet.
fn is_first(counted: &mut HashSet<FileKey>, file: FileKey) -> bool {
    if counted.len() >= MOST_COUNTED {
        counted.clear();
    }
    counted.insert(file)
}

fn file_of(files: &[MappedFile], address: u64) -> Option<&MappedFile> {
    // Of two that hold it, the later one: the other was unloaded.
    files.iter().rev().find(|file| file.holds(address))
}

/// A path as a process knows it.
#[derive(Debug, Clone, Copy)]
pub struct ProcessPath<'a> {
    /// The process.
    pub pid: u32,
    /// The path.
    pub path: &'a Path,
    /// Whether the process was seen to see other files than this one: when it has ended, nobody can look.
    pub sees_other_files: bool,
}

impl ProcessPath<'_> {
    fn place(&self) -> FilePlace {
        if self.sees_other_files && self.path.is_absolute() {
            return FilePlace::InRootOf { pid: self.pid, path: self.path.to_owned() };
        }
        FilePlace::of_process(self.pid, self.path)
    }

    /// The path as this process sees it. A file that the other one mapped before it changed its root is outside of that.
    fn visible_place(&self) -> FilePlace {
        let (here, there) = (FilePlace::Here(self.path.to_owned()), self.place());
        let has_ended = self.sees_other_files && !sees_other_files(self.pid);
        if has_ended || there.open().is_ok() || here.open().is_err() { there } else { here }
    }
}

/// So the kernel calls a program that was replaced before it could ask for its own path.
fn without_mark_of_deleted(path: &Path) -> &Path {
    path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map_or(path, Path::new)
}

/// Where the kernel shows the file of which a living process maps this memory, by whatever name it goes now.
fn mapped_file(pid: u32, memory: &Range<u64>) -> Option<FilePlace> {
    let maps = BufReader::new(File::open(format!("/proc/{pid}/maps")).ok()?.take(LONGEST_MAPS));
    let lines = maps.split(b'\n').map_while(Result::ok).filter(|line| line.contains(&b'/'));
    let ranges =
        lines.filter_map(|line| Some(String::from_utf8_lossy(line.split(|byte| *byte == b' ').next()?).into_owned()));
    let begins_in = |range: &String| {
        let begin = range.split('-').next().and_then(|begin| u64::from_str_radix(begin, 16).ok());
        begin.is_some_and(|begin| memory.contains(&begin))
    };
    let range = ranges.into_iter().find(begins_in)?;
    Some(FilePlace::mapped(pid, &range))
}

/// What a file is called when another build lies in its place.
fn replaced(name: &str) -> String {
    format!("{name} (replaced)")
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
