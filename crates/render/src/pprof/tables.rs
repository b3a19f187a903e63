//! A profile's tables: strings, functions, mappings and locations, each stored once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use lockmeter_profile::Frame;
use lockmeter_profile::lock_functions::plain_name;

use super::proto;
use crate::escape::escaped;

/// Where every kernel address lies, and every number that stands for one; pprof wants a range for each binary.
const KERNEL_START: u64 = 1 << 63;

/// The binary that kernel functions without a module belong to, as perf and pprof call it.
const KERNEL: &str = "[kernel.kallsyms]";

/// The C library and its loader: every program's, and the main binary of none.
fn is_c_library(file: &str) -> bool {
    file == "libc" || ["libc.so", "libc-", "libc.musl", "libpthread", "ld-"].iter().any(|start| file.starts_with(start))
}

/// The tables of a profile that is being built. Ids start at 1; string 0 is empty, as pprof demands.
#[derive(Debug)]
pub struct Tables {
    strings: HashMap<String, i64>,
    text_bytes: usize,
    functions: HashMap<(i64, i64), u64>,
    mappings: HashMap<i64, u64>,
    locations: HashMap<(u64, u64, u64), u64>,
    /// Frames by the file of a program that they lie in: its place, and whether it is a library.
    program_frames: BTreeMap<(usize, bool), u64>,
    /// Which of these each location lies in.
    programs: HashMap<u64, (usize, bool)>,
    profile: proto::Profile,
}

impl Tables {
    pub fn new() -> Self {
        let mut tables = Self {
            strings: HashMap::new(),
            text_bytes: 0,
            functions: HashMap::new(),
            mappings: HashMap::new(),
            locations: HashMap::new(),
            program_frames: BTreeMap::new(),
            programs: HashMap::new(),
            profile: proto::Profile::default(),
        };
        tables.string("");
        tables.mapping(KERNEL);
        tables
    }

    /// The profile whose tables are these, with everything else still to be filled in.
    pub fn into_profile(mut self) -> proto::Profile {
        // pprof takes the first binary for the main one: of a program itself, rather than of its libraries, the busiest.
        let busiest =
            self.program_frames.iter().max_by_key(|((at, is_library), frames)| (!is_library, **frames, Reverse(*at)));
        if let Some(((at, _), _)) = busiest {
            self.profile.mapping[..=*at].rotate_right(1);
        }
        self.profile
    }

    /// What the tables take, about: strings stand in the table, in its index and in what is written.
    pub fn memory_bytes(&self) -> usize {
        const STRING_BYTES: usize = 120;
        const LOCATION_BYTES: usize = 200;
        let items = self.profile.location.len() + self.profile.function.len() + self.profile.mapping.len();
        3 * self.text_bytes + self.strings.len() * STRING_BYTES + items * LOCATION_BYTES
    }

    /// Every string of the profile passes here, and is escaped: pprof prints them as they are.
    pub fn string(&mut self, text: &str) -> i64 {
        let text = &*escaped(text);
        if let Some(at) = self.strings.get(text) {
            return *at;
        }
        let at = i64::try_from(self.profile.string_table.len()).expect("a profile has fewer than 2^63 strings");
        self.text_bytes += text.len();
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), at);
        at
    }

    /// A measured frame. One without a symbol keeps its address and has no function.
    pub fn frame(&mut self, frame: &Frame) -> u64 {
        let is_of_program = frame.address < KERNEL_START;
        let binary = match frame.module.as_deref() {
            None => KERNEL.to_owned(),
            Some(file) if is_of_program => file.to_owned(),
            Some(module) => format!("[{module}]"),
        };
        let mapping = self.mapping(&binary);
        let is_counted = is_of_program && frame.module.is_some() && !is_c_library(&binary);
        let function = match &frame.function {
            Some(name) => self.function(plain_name(name), name, &binary),
            None => 0,
        };
        let location = self.location(mapping, frame.address, function);
        if is_counted {
            self.programs.insert(location, (mapping as usize - 1, binary.contains(".so")));
        }
        location
    }

    /// Counts one more frame of a stack at this location.
    pub fn count(&mut self, location: u64) {
        if let Some(program) = self.programs.get(&location) {
            *self.program_frames.entry(*program).or_default() += 1;
        }
    }

    /// A frame that was never measured and says why.
    pub fn synthetic(&mut self, words: &str) -> u64 {
        let function = self.function(words, words, "");
        self.location(0, 0, function)
    }

    fn location(&mut self, mapping_id: u64, address: u64, function_id: u64) -> u64 {
        let locations = &mut self.profile.location;
        *self.locations.entry((mapping_id, address, function_id)).or_insert_with(|| {
            let id = locations.len() as u64 + 1;
            let line = if function_id == 0 { Vec::new() } else { vec![proto::Line { function_id }] };
            locations.push(proto::Location { id, mapping_id, address, line });
            id
        })
    }

    /// `name` is what people call it, `system_name` what the binary does (`.isra.0` and the like behind it).
    fn function(&mut self, name: &str, system_name: &str, binary: &str) -> u64 {
        let (name, system_name, filename) = (self.string(name), self.string(system_name), self.string(binary));
        let functions = &mut self.profile.function;
        *self.functions.entry((system_name, filename)).or_insert_with(|| {
            let id = functions.len() as u64 + 1;
            functions.push(proto::Function { id, name, system_name, filename });
            id
        })
    }

    fn mapping(&mut self, binary: &str) -> u64 {
        let filename = self.string(binary);
        let mappings = &mut self.profile.mapping;
        *self.mappings.entry(filename).or_insert_with(|| {
            let id = mappings.len() as u64 + 1;
            let (memory_start, memory_limit) = if binary == KERNEL { (KERNEL_START, u64::MAX) } else { (0, 0) };
            mappings.push(proto::Mapping { id, memory_start, memory_limit, filename, has_functions: true });
            id
        })
    }
}
