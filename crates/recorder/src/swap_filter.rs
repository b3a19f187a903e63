//! `--lock PATTERN` with `--swap`: from a name to the addresses that the preloaded library is told.
//!
//! A static lock is known by its own symbol, one on the heap by the function that makes it or first takes it. Names are looked
//! up before the program starts: in its file, and in those of the libraries that it is linked with.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockmeter_meter::layout::{SWAP_FILTER_FILE, SWAP_FILTER_VARIABLE, SWAP_VARIABLE, SwapFilter, SwapRange};
use lockmeter_meter::reader::Session;
use lockmeter_profile::view::NamePattern;
use lockmeter_render::edit_distance;
use lockmeter_symbols::{ElfPart, TargetFile, as_written};
use object::{Object, ObjectSymbol, SymbolKind};

use crate::error::{RecorderError, RecorderErrorKind};
use crate::preload;

/// What the loader lists of a program is read up to here.
const MOST_LISTED_BYTES: u64 = 1 << 20;

/// Suggestions for a name that is not there.
const SUGGESTED: usize = 3;

/// How reports begin the names of locks on the heap.
const HEAP_NAMES: [&str; 4] =
    ["heap, created at ", "heap, first seen at ", "stack, created at ", "stack, first seen at "];

/// What a program's environment must hold for its locks to be swapped: all, or those that match.
pub fn environment(
    session: &Session,
    swaps: &str,
    pattern: Option<&str>,
    command: &[OsString],
) -> Result<Vec<(&'static str, OsString)>, RecorderError> {
    let mut environment = vec![(SWAP_VARIABLE, swaps.into())];
    if let Some(pattern) = pattern {
        let program = command.first().map(OsString::as_os_str).unwrap_or_default();
        session.write(SWAP_FILTER_FILE, &resolve(pattern, program)?)?;
        environment.push((SWAP_FILTER_VARIABLE, session.directory().join(SWAP_FILTER_FILE).into()));
    }
    Ok(environment)
}

/// A program or library whose names are looked through.
struct Module {
    /// As the loader names it.
    path: PathBuf,
    /// As lockmeter names it in names of locks.
    name: String,
}

/// What a symbol is good for.
struct Named {
    name: String,
    range: SwapRange,
}

fn resolve(pattern: &str, program: &OsStr) -> Result<Vec<u8>, RecorderError> {
    let Some(file) = preload::program_file(program) else {
        let name = program.to_string_lossy();
        return Err(RecorderError::new(
            RecorderErrorKind::NotFound,
            format!("command not found: {name}; check its spelling, or give its path"),
        ));
    };
    let bare = HEAP_NAMES.iter().find_map(|prefix| pattern.strip_prefix(prefix)).unwrap_or(pattern);
    let matches: NamePattern = bare.into();
    let (mut paths, mut ranges, mut known) = (Vec::new(), Vec::new(), Vec::new());
    for module in modules(&file) {
        let place = u32::try_from(paths.len()).unwrap_or(u32::MAX);
        let named = names(&module, place);
        let before = ranges.len();
        ranges.extend(named.iter().filter(|named| matches.matches(&named.name)).map(|named| named.range));
        if ranges.len() > before {
            paths.push(module.path);
        }
        known.extend(named.into_iter().map(|named| named.name));
    }
    if ranges.is_empty() {
        let sentence = format!(
            "no lock, and no function that might make one, in {} or its libraries matches `{pattern}`{}",
            file.display(),
            similar_names(bare, &known)
        );
        return Err(RecorderError::usage(sentence));
    }
    SwapFilter::encode(paths.iter().map(|path| path.as_os_str().as_bytes()), &ranges).ok_or_else(|| {
        let sentence =
            format!("`{pattern}` matches {} names, which is too many; give a longer part of the name", ranges.len());
        RecorderError::usage(sentence)
    })
}

/// The program, and the libraries that it is linked with, as its loader tells.
fn modules(program: &Path) -> Vec<Module> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let path = fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
    let mut modules = vec![Module { name: name(&path), path }];
    // The loader lists what it would load instead of starting the program.
    let listed = listed_by_loader(program);
    for line in String::from_utf8_lossy(&listed).lines() {
        let (_, found) = line.split_once("=>").unwrap_or(("", line));
        let path = found.trim().rsplit_once(" (").map_or("", |(path, _)| path);
        if path.starts_with('/') {
            modules.push(Module { path: path.into(), name: name(Path::new(path)) });
        }
    }
    modules
}

fn listed_by_loader(program: &Path) -> Vec<u8> {
    let mut command = Command::new(program);
    command.env("LD_TRACE_LOADED_OBJECTS", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut listed = Vec::new();
    if let Ok(mut loader) = command.spawn() {
        if let Some(output) = loader.stdout.take() {
            // What cannot be read is not listed.
            let _ = output.take(MOST_LISTED_BYTES).read_to_end(&mut listed);
        }
        let _ = loader.wait();
    }
    listed
}

/// The variables and functions of a module.
fn names(module: &Module, place: u32) -> Vec<Named> {
    let Ok(image) = TargetFile::open(&module.path).and_then(|file| file.elf(ElfPart::Symbols)) else {
        return Vec::new();
    };
    let Ok(elf) = object::File::parse(image.bytes()) else { return Vec::new() };
    let symbols = elf.symbols().chain(elf.dynamic_symbols());
    let named = symbols.filter(|symbol| symbol.is_definition() && symbol.size() > 0).filter_map(|symbol| {
        let is_code = match symbol.kind() {
            SymbolKind::Text => true,
            SymbolKind::Data => false,
            _ => return None,
        };
        let symbol_name = as_written(symbol.name().ok()?);
        let name = if is_code { symbol_name } else { format!("{}:{symbol_name}", module.name) };
        let (start, end) = (symbol.address(), symbol.address().saturating_add(symbol.size()));
        Some(Named { name, range: SwapRange { start, end, module: place, is_code: is_code.into() } })
    });
    named.collect()
}

fn similar_names(pattern: &str, known: &[String]) -> String {
    let worst = pattern.chars().count().div_ceil(3);
    let last = |name: &str| name.rsplit(':').next().unwrap_or(name).to_owned();
    let wanted = last(pattern);
    let is_as_long = |name: &&String| last(name).len().abs_diff(wanted.len()) <= worst;
    let mut near: Vec<(usize, &String)> =
        known.iter().filter(is_as_long).map(|name| (edit_distance(&wanted, &last(name)), name)).collect();
    near.retain(|(distance, _)| *distance <= worst);
    near.sort_unstable();
    near.dedup();
    let near: Vec<String> = near.iter().take(SUGGESTED).map(|(_, name)| format!("`{name}`")).collect();
    if near.is_empty() {
        "; names are those of `report`, and dlopened libraries are not looked through".to_owned()
    } else {
        format!("; did you mean {}?", near.join(" or "))
    }
}
