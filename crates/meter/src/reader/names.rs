//! From addresses of a process to the names of functions and static locks.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use blazesym::SymType;
use blazesym::inspect::{self, Inspector};
use blazesym::symbolize::{self, Input, Symbolized, Symbolizer, source};
use lockmeter_profile::Frame;

use super::segment::MappedFile;

/// A static variable of a file.
#[derive(Debug)]
struct Variable {
    address: u64,
    size: u64,
    name: String,
}

/// Names of all files seen so far.
pub(super) struct Names {
    symbolizer: Symbolizer,
    inspector: Inspector,
    variables: HashMap<PathBuf, Rc<Vec<Variable>>>,
    frames: HashMap<(PathBuf, u64), Rc<Vec<Frame>>>,
}

/// A static variable that holds an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StaticPlace {
    /// File name of the program or library.
    pub(super) file: String,
    /// The variable and the offset in it; `None` if the file has no symbol there.
    pub(super) variable: Option<(String, u64)>,
    /// The address in the file.
    pub(super) address: u64,
}

impl Names {
    pub(super) fn new() -> Self {
        Self {
            symbolizer: Symbolizer::builder().enable_code_info(false).enable_inlined_fns(true).build(),
            inspector: Inspector::new(),
            variables: HashMap::new(),
            frames: HashMap::new(),
        }
    }

    /// The frames of a return address, innermost first: inlined functions have frames of their own.
    pub(super) fn frames(&mut self, pid: u32, modules: &[MappedFile], address: u64) -> Rc<Vec<Frame>> {
        let Some(module) = module_of(modules, address) else {
            return Rc::new(vec![Frame { address, function: None, offset: 0, module: None }]);
        };
        let path = visible_path(pid, &module.path);
        // The call lies before the return address.
        let in_file = address.wrapping_sub(module.bias).wrapping_sub(1);
        if let Some(known) = self.frames.get(&(path.clone(), in_file)) {
            return Rc::clone(known);
        }
        let frames = Rc::new(self.symbolize(&path, address, in_file));
        self.frames.insert((path, in_file), Rc::clone(&frames));
        frames
    }

    fn symbolize(&self, path: &Path, address: u64, in_file: u64) -> Vec<Frame> {
        let module = Some(file_name(path));
        if !is_file(path) {
            return vec![Frame { address, function: None, offset: in_file, module }];
        }
        let elf = symbolize::source::Source::Elf(source::Elf::new(path));
        let Ok(Symbolized::Sym(symbol)) = self.symbolizer.symbolize_single(&elf, Input::VirtOffset(in_file)) else {
            return vec![Frame { address, function: None, offset: in_file, module }];
        };
        let inlined = symbol.inlined.iter().rev().map(|inlined| Frame {
            address,
            function: Some(inlined.name.to_string()),
            offset: 0,
            module: module.clone(),
        });
        let outer = Frame {
            address,
            function: Some(symbol.name.to_string()),
            offset: symbol.offset as u64 + 1,
            module: module.clone(),
        };
        inlined.chain([outer]).collect()
    }

    /// Where a lock lies, if in a program's or library's own memory.
    pub(super) fn static_place(&mut self, pid: u32, modules: &[MappedFile], address: u64) -> Option<StaticPlace> {
        let module = module_of(modules, address)?;
        let path = visible_path(pid, &module.path);
        let in_file = address.wrapping_sub(module.bias);
        let variables = self.variables_of(&path);
        let after = variables.partition_point(|variable| variable.address <= in_file);
        let variable = after
            .checked_sub(1)
            .and_then(|at| variables.get(at))
            .filter(|variable| in_file - variable.address < variable.size.max(1))
            .map(|variable| (variable.name.clone(), in_file - variable.address));
        Some(StaticPlace { file: file_name(&path), variable, address: in_file })
    }

    fn variables_of(&mut self, path: &Path) -> Rc<Vec<Variable>> {
        if let Some(known) = self.variables.get(path) {
            return Rc::clone(known);
        }
        let mut variables = Vec::new();
        if !is_file(path) {
            return Rc::new(variables);
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
        self.variables.insert(path.to_owned(), Rc::clone(&variables));
        variables
    }
}

fn module_of(modules: &[MappedFile], address: u64) -> Option<&MappedFile> {
    // Of two that hold it, the later one: the other was unloaded.
    modules.iter().rev().find(|module| (module.start..module.end).contains(&address))
}

/// The path as this process sees it, also where the other one has another root.
fn visible_path(pid: u32, path: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let has_own_root = std::fs::read_link(&root).is_ok_and(|target| target != Path::new("/"));
    match path.strip_prefix("/") {
        Ok(relative) if has_own_root => root.join(relative),
        _ => path.to_owned(),
    }
}

/// The path is what the program says: opening a pipe or a terminal could take for ever.
fn is_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.is_file())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
