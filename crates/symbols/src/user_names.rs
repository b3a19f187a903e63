//! From addresses of a process to the names of functions and static locks.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::build_id::{BuildId, BuildIds};
use blazesym::SymType;
use blazesym::inspect::{self, Inspector};
use blazesym::symbolize::{self, Input, Symbolized, Symbolizer, source};
use lockmeter_profile::{Frame, Lock, Naming, Unnamed};

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
    /// Where this process finds it.
    pub path: PathBuf,
    /// What the mapped file is signed with; `None` if it is not signed, or if nobody could look.
    pub build_id: Option<BuildId>,
}

/// A file of a certain build.
type FileKey = (PathBuf, Option<BuildId>);

impl MappedFile {
    fn key(&self) -> FileKey {
        (self.path.clone(), self.build_id.clone())
    }

    /// Whether the address lies in it.
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A static variable of a file.
#[derive(Debug)]
struct Variable {
    address: u64,
    size: u64,
    name: String,
}

/// Names of functions and variables of all files seen so far.
pub struct UserNames {
    symbolizer: Symbolizer,
    inspector: Inspector,
    variables: HashMap<FileKey, Rc<Vec<Variable>>>,
    frames: HashMap<FileKey, HashMap<u64, Rc<Vec<Frame>>>>,
    build_ids: BuildIds,
    replaced: HashSet<FileKey>,
    newly_replaced: u64,
}

/// A static variable that holds an address.
#[derive(Debug, PartialEq, Eq)]
pub struct StaticPlace {
    /// File name of the program or library.
    pub file: String,
    /// The variable and the offset in it; `None` if the file has no symbol there.
    pub variable: Option<(String, u64)>,
    /// The address in the file.
    pub address: u64,
}

impl StaticPlace {
    /// The lock that lies there.
    pub fn lock(&self) -> Lock {
        let file = &self.file;
        let (name, naming, detail) = match &self.variable {
            Some((variable, 0)) => (format!("{file}:{variable}"), Naming::UserSymbol, ""),
            Some((variable, offset)) => (format!("{file}:{variable}+{offset:#x}"), Naming::UserSymbol, ""),
            None => {
                let why = Naming::Unnamed(Unnamed::NoUserSite);
                (
                    format!("{file}+{:#x}", self.address),
                    why,
                    "the file has no symbol there, or another build took its place",
                )
            }
        };
        Lock { name, object: None, naming, detail: detail.to_owned() }
    }

    /// That of several locks, of which one lies there: an array of them, most likely.
    pub fn lock_of_many(&self) -> Lock {
        let variable = self.variable.as_ref().map(|(variable, _)| (variable.clone(), 0));
        Self { file: self.file.clone(), variable, ..*self }.lock()
    }
}

impl Default for UserNames {
    fn default() -> Self {
        Self::new()
    }
}

impl UserNames {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self {
            symbolizer: Symbolizer::builder()
                .enable_code_info(false)
                .enable_inlined_fns(true)
                // `as_written` does it: blazesym takes a C function's name for a mangled one, too.
                .enable_demangling(false)
                .build(),
            inspector: Inspector::new(),
            variables: HashMap::new(),
            frames: HashMap::new(),
            build_ids: BuildIds::default(),
            replaced: HashSet::new(),
            newly_replaced: 0,
        }
    }

    /// A file under the path that process `pid` knows it by. If another build lies there by now, the mapped one is looked
    /// for where the kernel shows it while the process lives.
    pub fn file_of_process(
        &mut self,
        pid: u32,
        memory: Range<u64>,
        bias: u64,
        path: &Path,
        build_id: Option<BuildId>,
    ) -> MappedFile {
        // So the kernel calls a program that was replaced before it could ask for its own path.
        let path = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map_or(path, Path::new);
        let mut path = visible_path(pid, path);
        let name = file_name(&path);
        if let Some(wanted) = build_id.as_ref().filter(|wanted| !self.build_ids.matches(&path, wanted))
            && let Some(mapped) = mapped_file(pid, &memory)
            && self.build_ids.matches(&mapped, wanted)
        {
            path = mapped;
        }
        MappedFile { start: memory.start, end: memory.end, bias, name, path, build_id }
    }

    /// How many files, since the last call, turned out to be other builds than what processes map: nothing is named by
    /// them.
    pub fn take_replaced(&mut self) -> u64 {
        std::mem::take(&mut self.newly_replaced)
    }

    /// Whether another build lies where the file was.
    fn is_replaced(&mut self, file: &MappedFile) -> bool {
        let Some(build_id) = &file.build_id else { return false };
        if self.build_ids.matches(&file.path, build_id) {
            return false;
        }
        if self.replaced.insert(file.key()) {
            self.newly_replaced += 1;
        }
        true
    }

    /// The frames of a return address, innermost first: inlined functions have frames of their own.
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
        let frames = Rc::new(self.symbolize(file, address, in_file));
        self.frames.entry(key).or_default().insert(in_file, Rc::clone(&frames));
        frames
    }

    fn symbolize(&mut self, file: &MappedFile, address: u64, in_file: u64) -> Vec<Frame> {
        if self.is_replaced(file) {
            return vec![Frame { address, function: None, offset: in_file, module: Some(replaced(&file.name)) }];
        }
        let module = Some(file.name.clone());
        if !is_file(&file.path) {
            return vec![Frame { address, function: None, offset: in_file, module }];
        }
        let elf = symbolize::source::Source::Elf(source::Elf::new(&file.path));
        let Ok(Symbolized::Sym(symbol)) = self.symbolizer.symbolize_single(&elf, Input::VirtOffset(in_file)) else {
            return vec![Frame { address, function: None, offset: in_file, module }];
        };
        let inlined = symbol.inlined.iter().rev().map(|inlined| Frame {
            address,
            function: Some(as_written(&inlined.name)),
            offset: 0,
            module: module.clone(),
        });
        let outer = Frame {
            address,
            function: Some(as_written(&symbol.name)),
            offset: symbol.offset as u64 + 1,
            module: module.clone(),
        };
        inlined.chain([outer]).collect()
    }

    /// Where a lock lies, if in a program's or library's own memory.
    pub fn static_place(&mut self, files: &[MappedFile], address: u64) -> Option<StaticPlace> {
        let file = file_of(files, address)?;
        let in_file = address.wrapping_sub(file.bias);
        let Some(variables) = self.variables_of(file) else {
            return Some(StaticPlace { file: replaced(&file.name), variable: None, address: in_file });
        };
        let after = variables.partition_point(|variable| variable.address <= in_file);
        let variable = after
            .checked_sub(1)
            .and_then(|at| variables.get(at))
            .filter(|variable| in_file - variable.address < variable.size.max(1))
            .map(|variable| (as_written(&variable.name), in_file - variable.address));
        Some(StaticPlace { file: file.name.clone(), variable, address: in_file })
    }

    /// `None` if the file was replaced.
    fn variables_of(&mut self, file: &MappedFile) -> Option<Rc<Vec<Variable>>> {
        let key = file.key();
        if let Some(known) = self.variables.get(&key) {
            return Some(Rc::clone(known));
        }
        if self.is_replaced(file) {
            return None;
        }
        let path = &file.path;
        let mut variables = Vec::new();
        if !is_file(path) {
            return Some(Rc::new(variables));
        }
        let elf =
            inspect::source::Source::Elf(inspect::source::Elf { debug_syms: false, ..inspect::source::Elf::new(path) });
        // A file that cannot be read has no symbols: its locks are then named by file and offset.
        let _ = self.inspector.for_each(&elf, |symbol| {
            if symbol.sym_type == SymType::Variable {
                let size = symbol.size.unwrap_or(0) as u64;
                variables.push(Variable { address: symbol.addr, size, name: symbol.name.to_string() });
            }
            ControlFlow::Continue(())
        });
        // Of several at one address the largest comes last: linkers put markers of no size there.
        variables.sort_by_key(|variable| (variable.address, variable.size));
        let variables = Rc::new(variables);
        self.variables.insert(key, Rc::clone(&variables));
        Some(variables)
    }
}

fn file_of(files: &[MappedFile], address: u64) -> Option<&MappedFile> {
    // Of two that hold it, the later one: the other was unloaded.
    files.iter().rev().find(|file| file.holds(address))
}

/// The name of a variable or function as it is written in the program, not as linkers know it.
pub fn as_written(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash at its end.
        return format!("{rust:#}");
    }
    // Only what is mangled: a C function may be called `w`, which is how C++ writes a type.
    let is_cpp = name.starts_with("_Z") || name.starts_with("_GLOBAL_");
    let cpp = is_cpp.then(|| cpp_demangle::Symbol::new(name).ok()).flatten().and_then(|symbol| symbol.demangle().ok());
    cpp.unwrap_or_else(|| name.to_owned())
}

/// The path as this process sees it, also where the other one has another root. A file that it mapped before it changed its
/// root is outside of that.
fn visible_path(pid: u32, path: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let has_own_root = std::fs::read_link(&root).is_ok_and(|target| target != Path::new("/"));
    match path.strip_prefix("/") {
        Ok(relative) if has_own_root && (is_file(&root.join(relative)) || !is_file(path)) => root.join(relative),
        _ => path.to_owned(),
    }
}

/// Where the kernel shows the file of which a living process maps this memory, by whatever name it goes now.
fn mapped_file(pid: u32, memory: &Range<u64>) -> Option<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let begins_in = |range: &&str| {
        let begin = range.split('-').next().and_then(|begin| u64::from_str_radix(begin, 16).ok());
        begin.is_some_and(|begin| memory.contains(&begin))
    };
    let of_files = maps.lines().filter(|line| line.contains('/'));
    let range = of_files.filter_map(|line| line.split(' ').next()).find(begins_in)?;
    Some(PathBuf::from(format!("/proc/{pid}/map_files/{range}")))
}

/// What a file is called when another build lies in its place.
fn replaced(name: &str) -> String {
    format!("{name} (replaced)")
}

/// The path is what the program says: opening a pipe or a terminal could take for ever.
fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.is_file())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_called_as_the_program_calls_them() {
        assert_eq!(as_written("w"), "w");
        assert_eq!(as_written("hot_lock"), "hot_lock");
        assert_eq!(as_written("_ZN9std_mutex3HOT17h84ec9336a71c653bE"), "std_mutex::HOT");
        assert_eq!(as_written("_ZN6server4poolE"), "server::pool");
    }
}
