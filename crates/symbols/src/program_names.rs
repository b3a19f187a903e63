//! The names of one program or library: its functions by address, its static variables, and how both are written.

use std::cell::OnceCell;
use std::fmt::{self, Write};

use blazesym::helper::ElfResolver;
use blazesym::symbolize::{FindSymOpts, Symbolize};
use cpp_demangle::DemangleOptions;
use object::read::elf::ElfFile64;
use object::{LittleEndian as LE, Object, ObjectSymbol};

use crate::build_id::BuildId;
use crate::debug_file::{debug_file, small_symbol_table};
use crate::debuginfod;
use crate::elf_image::{ElfImage, ElfPart};
use crate::go_names::GoNames;
use crate::target_file::{FilePlace, TargetFile};

/// Longer names are cut: a few bytes of a mangled name can stand for megabytes.
pub(crate) const LONGEST_NAME: usize = 4 << 10;

/// The names of a file's variables are kept up to this size, all together: they may share their bytes in the file.
const MOST_VARIABLE_NAME_BYTES: usize = 64 << 20;

/// A static variable of a file.
#[derive(Debug)]
pub(crate) struct Variable {
    pub address: u64,
    pub size: u64,
    pub name: String,
}

/// The names of a file. It holds no descriptor.
#[derive(Default)]
pub(crate) struct ProgramNames {
    /// Of the file itself, its separate debug file, and the small symbol table that it carries.
    functions: Vec<ElfResolver>,
    /// Of a stripped program of Go's.
    of_go: Option<GoNames>,
    /// By address.
    variables: Vec<Variable>,
    /// Memory that it takes beyond what every reader of the file shares.
    pub bytes: u64,
    /// Whether some are missing, since the tables are larger than is read.
    pub is_cut: bool,
    /// Whether there is a table with all symbols, not only with those for other files.
    is_whole: bool,
    build_id: Option<BuildId>,
    /// What a debuginfod server has, if it was asked.
    of_server: OnceCell<Option<Box<Self>>>,
}

impl ProgramNames {
    /// A file that cannot be read has no symbols: what lies in it is then named by file and offset. `known_as` is where its process
    /// finds it: separate debug files are looked for from there.
    pub fn of_file(file: &TargetFile, known_as: &FilePlace) -> Self {
        let own = file.elf(ElfPart::Symbols).ok();
        let separate = debug_file(file, known_as).and_then(|file| ElfImage::copy_of_symbols(&file).ok());
        let small = small_symbol_table(file);
        let is_whole = |elf: &Option<ElfImage>| elf.as_ref().is_some_and(has_all_symbols);
        let mut names = Self::of([&separate, &own, &small].into_iter().flatten());
        names.is_whole = is_whole(&own) || is_whole(&separate);
        names.build_id = BuildId::of_file(file);
        if !names.is_whole {
            names.of_go = GoNames::of_file(file).ok().flatten();
            names.bytes += names.of_go.as_ref().map_or(0, GoNames::bytes);
        }
        names
    }

    fn of<'elf>(files: impl Iterator<Item = &'elf ElfImage>) -> Self {
        let mut names = Self::default();
        files.for_each(|elf| names.add(elf));
        names.variables = sorted(names.variables);
        names
    }

    /// Whether an address has no name since the symbols of the file are not there.
    pub fn is_stripped(&self) -> bool {
        !self.is_whole && !self.is_cut && self.of_server().is_none()
    }

    /// What a server has of a stripped file: asked for when something has no name without it.
    fn of_server(&self) -> Option<&Self> {
        let ask = || {
            let build_id = self.build_id.as_ref().filter(|_| !self.is_whole && !self.is_cut)?;
            let symbols = debuginfod::symbols(build_id)?;
            Some(Box::new(Self::of(std::iter::once(&symbols))))
        };
        self.of_server.get_or_init(ask).as_deref()
    }

    fn add(&mut self, elf: &ElfImage) {
        let (variables, are_all) = variables(elf);
        let names: usize = variables.iter().map(|variable| variable.name.len() + size_of::<Variable>()).sum();
        self.functions.extend(ElfResolver::open(elf.path()).ok());
        self.variables.extend(variables);
        self.bytes += elf.copied_bytes() + names as u64;
        self.is_cut |= elf.is_cut() || !are_all;
    }

    /// The function that holds an address of the file, and the offset in it.
    pub fn function(&self, address: u64) -> Option<(String, u64)> {
        // Nothing lies at the last address, and blazesym counts one beyond.
        address.checked_add(1)?;
        if let Some((name, offset)) = self.of_go.as_ref().and_then(|go| go.function(address)) {
            return Some((bounded(&name), offset));
        }
        let found = |resolver: &ElfResolver| {
            let found = resolver.find_sym(address, &FindSymOpts::Basic).ok()?.ok()?;
            Some((as_written(found.name), address.wrapping_sub(found.addr)))
        };
        // A symbol without a size seems to hold all that lies behind it: the nearest one is meant.
        let nearest = self.functions.iter().filter_map(found).min_by_key(|(_, offset)| *offset);
        nearest.or_else(|| self.of_server()?.function(address))
    }

    /// The variable that holds an address of the file, and the offset in it.
    pub fn variable(&self, address: u64) -> Option<(String, u64)> {
        self.own_variable(address).or_else(|| self.of_server()?.own_variable(address))
    }

    fn own_variable(&self, address: u64) -> Option<(String, u64)> {
        let after = self.variables.partition_point(|variable| variable.address <= address);
        let variable = self.variables.get(after.checked_sub(1)?)?;
        let offset = address - variable.address;
        (offset < variable.size.max(1)).then(|| (as_written(&variable.name), offset))
    }
}

fn has_all_symbols(elf: &ElfImage) -> bool {
    ElfFile64::<LE, _>::parse(elf.bytes()).is_ok_and(|elf| elf.symbols().next().is_some())
}

/// The variables of a file, and whether they are all.
fn variables(elf: &ElfImage) -> (Vec<Variable>, bool) {
    let Ok(elf) = ElfFile64::<LE, _>::parse(elf.bytes()) else { return (Vec::new(), true) };
    let (mut variables, mut name_bytes) = (Vec::new(), 0);
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        if symbol.elf_symbol().st_type() != object::elf::STT_OBJECT || symbol.is_undefined() {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        name_bytes += name.len();
        if name_bytes > MOST_VARIABLE_NAME_BYTES {
            return (variables, false);
        }
        variables.push(Variable { address: symbol.address(), size: symbol.size(), name: name.to_owned() });
    }
    (variables, true)
}

/// Of several at one address the largest comes last: linkers put markers of no size there.
fn sorted(mut variables: Vec<Variable>) -> Vec<Variable> {
    variables.sort_by_key(|variable| (variable.address, variable.size));
    variables
}

/// The name of a variable or function as it is written in the program, not as linkers know it.
pub fn as_written(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash at its end.
        return Bounded::written(|out| write!(out, "{rust:#}")).unwrap_or_else(|| bounded(name));
    }
    // Only what is mangled: a C function may be called `w`, which is how C++ writes a type.
    let is_cpp = name.starts_with("_Z") || name.starts_with("_GLOBAL_");
    let cpp = is_cpp.then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    cpp.and_then(|cpp| Bounded::written(|out| cpp.structured_demangle(out, &DemangleOptions::default())))
        .unwrap_or_else(|| bounded(name))
}

fn bounded(name: &str) -> String {
    Bounded::written(|out| out.write_str(name)).unwrap_or_default()
}

/// A text that ends with an ellipsis where it becomes too long.
#[derive(Default)]
struct Bounded {
    text: String,
    is_full: bool,
}

impl Bounded {
    /// `None` if what writes it fails by itself.
    fn written(write: impl FnOnce(&mut Self) -> fmt::Result) -> Option<String> {
        let mut out = Self::default();
        let result = write(&mut out);
        (result.is_ok() || out.is_full).then_some(out.text)
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = LONGEST_NAME - self.text.len().min(LONGEST_NAME);
        if self.is_full || text.len() > left {
            if !self.is_full {
                let fits = |end: &usize| text.is_char_boundary(*end);
                self.text.push_str(&text[..(0..=left).rev().find(fits).unwrap_or(0)]);
                self.text.push('…');
            }
            self.is_full = true;
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
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

    /// The names of 24 types, each of which holds the one before twice.
    #[test]
    fn a_name_that_would_fill_the_memory_is_cut() {
        // f(a, p<a, a>, p<p<a, a>, p<a, a>>, …): `S0_` is `p`, and the others are the types in turn.
        let doubled = |number| {
            let digit = char::from_digit(number, 36).unwrap().to_ascii_uppercase();
            format!("S0_IS{digit}_S{digit}_E")
        };
        assert_eq!(as_written(&format!("_Z1f1a1pIS_S_E{}", doubled(1))), "f(a, p<a, a>, p<p<a, a>, p<a, a> >)");
        let name: String = (1..24).map(doubled).collect();
        let name = format!("_Z1f1a1pIS_S_E{name}");
        let written = as_written(&name);
        assert!(written.ends_with('…') && written.len() <= LONGEST_NAME + '…'.len_utf8(), "{} bytes", written.len());
        assert_eq!(as_written(&"x".repeat(LONGEST_NAME + 1)), format!("{}…", "x".repeat(LONGEST_NAME)));
        assert_eq!(as_written(&"x".repeat(LONGEST_NAME)), "x".repeat(LONGEST_NAME));
    }
}
