//! `/proc/kallsyms` as one sorted table.
//!
//! A plain table rather than a symbolizer library: 16 bytes a symbol plus its name in one shared buffer, about a third
//! of what one allocation per name takes, and nothing here needs inlined functions or source lines.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

use crate::error::{SymbolsError, SymbolsErrorKind};
use crate::system_map::SystemMap;

const KALLSYMS: &str = "/proc/kallsyms";

/// The kernel's own symbols have no module.
const NO_MODULE: u16 = u16::MAX;

/// Linker symbols that mark a place: they own nothing, and what lies after one that marks an end belongs to nobody.
const MARKERS: &[&str] = &[
    "_end",
    "_etext",
    "_einittext",
    "_edata",
    "_sdata",
    "__bss_start",
    "__bss_stop",
    "__brk_limit",
    "__init_begin",
    "__init_end",
    "__end_of_kernel_reserve",
];

/// No symbol is larger; an address farther from the last symbol before it lies in a hole.
const LARGEST_SYMBOL_BYTES: u64 = 16 << 20;

/// A symbol that covers an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// How far into the symbol the address lies, in bytes.
    pub offset: u64,
    /// The module it belongs to; `None` for the kernel itself.
    pub module: Option<&'a str>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    address: u64,
    name_at: u32,
    module: u16,
    kind: u8,
}

impl Entry {
    const fn is_function(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }
}

/// The address, the kind, the name and the module that stand in a line of `/proc/kallsyms` or of a `System.map`.
pub(crate) fn symbol_of_line(line: &str) -> Option<(u64, &str, &str, Option<&str>)> {
    let mut words = line.split_ascii_whitespace();
    let address = words.next()?;
    let (kind, name) = (words.next()?, words.next()?);
    Some((u64::from_str_radix(address, 16).ok()?, kind, name, words.next()))
}

/// The symbols of the running kernel and its modules, as `/proc/kallsyms` lists them.
#[derive(Debug)]
pub struct KernelSymbols {
    /// By address.
    entries: Vec<Entry>,
    /// Every name, each ended by a newline.
    names: String,
    modules: Vec<String>,
    has_data: bool,
}

impl KernelSymbols {
    /// Reads the running kernel's symbols.
    ///
    /// # Errors
    ///
    /// [`SymbolsErrorKind::AddressesHidden`] if the kernel shows all addresses as zero,
    /// [`SymbolsErrorKind::Unreadable`] if the file cannot be read.
    pub fn from_proc() -> Result<Self, SymbolsError> {
        let unreadable =
            |error| SymbolsError::io(SymbolsErrorKind::Unreadable, format!("cannot read {KALLSYMS}"), error);
        let file = File::open(KALLSYMS).map_err(unreadable)?;
        Self::from_reader(BufReader::with_capacity(1 << 16, file))
    }

    /// Reads the names of the BPF programs that are loaded now, and of the trampolines that lead to them; empty where the
    /// kernel keeps them to itself.
    ///
    /// # Errors
    ///
    /// [`SymbolsErrorKind::Unreadable`] if the file cannot be read.
    pub fn programs_from_proc() -> Result<Self, SymbolsError> {
        let all = std::fs::read_to_string(KALLSYMS).map_err(|error| {
            SymbolsError::io(SymbolsErrorKind::Unreadable, format!("cannot read {KALLSYMS}"), error)
        })?;
        let programs: String =
            all.lines().filter(|line| line.ends_with("[bpf]")).flat_map(|line| [line, "\n"]).collect();
        Self::from_reader(programs.as_bytes())
    }

    /// Reads symbols in the form of `/proc/kallsyms`.
    ///
    /// # Errors
    ///
    /// As [`KernelSymbols::from_proc`].
    pub fn from_reader(mut reader: impl BufRead) -> Result<Self, SymbolsError> {
        let mut symbols = Self { entries: Vec::new(), names: String::new(), modules: Vec::new(), has_data: false };
        let mut line = String::new();
        let mut lines = 0_u32;
        loop {
            line.clear();
            let read = reader.read_line(&mut line).map_err(|error| {
                SymbolsError::io(SymbolsErrorKind::Unreadable, format!("cannot read {KALLSYMS}"), error)
            })?;
            if read == 0 {
                break;
            }
            lines += 1;
            symbols.add_line(line.trim_end());
        }
        if symbols.entries.is_empty() && lines > 0 {
            return Err(SymbolsError::new(
                SymbolsErrorKind::AddressesHidden,
                "the kernel hides its addresses (kernel.kptr_restrict is set or CAP_SYSLOG is missing): \
                 run as root, with sysctl kernel.kptr_restrict=1 at most",
            ));
        }
        symbols.settle();
        Ok(symbols)
    }

    /// These and what else the file says that the kernel was linked with.
    ///
    /// # Errors
    ///
    /// If the file is no map of this kernel.
    pub fn with_map(mut self, map: &SystemMap) -> Result<Self, SymbolsError> {
        for (address, kind, name) in map.unlisted(&self)? {
            self.add(address, kind, name, None);
        }
        self.settle();
        Ok(self)
    }

    fn settle(&mut self) {
        // Stable: of several names for one address the first listed stays first, which is the one the kernel prints.
        self.entries.sort_by_key(|entry| entry.address);
        self.mark_data_beyond_text();
        self.entries.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|entry| entry.address)
    }

    /// The functions of the kernel itself.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (&str, u64)> {
        let of_kernel = self.entries.iter().filter(|entry| entry.module == NO_MODULE && entry.is_function());
        of_kernel.map(|entry| (self.name_of(entry), entry.address))
    }

    fn add_line(&mut self, line: &str) {
        if let Some((address, kind, name, module)) = symbol_of_line(line) {
            self.add(address, kind, name, module);
        }
    }

    fn add(&mut self, address: u64, kind: &str, name: &str, module: Option<&str>) {
        let kind = kind.as_bytes()[0];
        // Absolute symbols are section offsets, not addresses; padding before a function never runs and would double
        // the table.
        if address == 0 || matches!(kind, b'a' | b'A') || name.starts_with("__pfx_") {
            return;
        }
        let Ok(name_at) = u32::try_from(self.names.len()) else { return };
        let module = module.map_or(NO_MODULE, |module| self.intern_module(module.trim_matches(['[', ']'])));
        self.has_data |= module == NO_MODULE && matches!(name, "init_task" | "tasklist_lock");
        self.names.push_str(name);
        self.names.push('\n');
        self.entries.push(Entry { address, name_at, module, kind });
    }

    /// Kernels from 7.0 list some of their data with the letter of text; only code lies between the text's own bounds.
    fn mark_data_beyond_text(&mut self) {
        let bounds = |start, end| Some(self.address_of(start)?..self.address_of(end)?);
        let Some(text) = bounds("_stext", "_etext") else { return };
        let init_text = bounds("_sinittext", "_einittext").unwrap_or(0..0);
        for entry in self.entries.iter_mut().filter(|entry| entry.module == NO_MODULE && entry.is_function()) {
            if !text.contains(&entry.address) && !init_text.contains(&entry.address) {
                entry.kind = b'd';
            }
        }
    }

    fn intern_module(&mut self, name: &str) -> u16 {
        // Symbols come module by module, so the last one is nearly always it.
        let known = self.modules.iter().rposition(|module| module == name);
        let at = known.unwrap_or_else(|| {
            self.modules.push(name.to_owned());
            self.modules.len() - 1
        });
        u16::try_from(at).unwrap_or(NO_MODULE)
    }

    fn name_of(&self, entry: &Entry) -> &str {
        let rest = &self.names[entry.name_at as usize..];
        rest.split_once('\n').map_or(rest, |(name, _)| name)
    }

    fn covering(&self, address: u64, functions: bool) -> Option<Symbol<'_>> {
        let after = self.entries.partition_point(|entry| entry.address <= address);
        let nearest = self.entries.get(after.checked_sub(1)?)?.address;
        let first = self.entries[..after].partition_point(|entry| entry.address < nearest);
        let offset = address - nearest;
        if offset > LARGEST_SYMBOL_BYTES {
            return None;
        }
        let is_named = |entry: &&Entry| entry.is_function() == functions && !MARKERS.contains(&self.name_of(entry));
        let entry = self.entries[first..after].iter().find(is_named)?;
        let module = self.modules.get(usize::from(entry.module)).map(String::as_str);
        Some(Symbol { name: self.name_of(entry), offset, module })
    }

    /// The function that `address` lies in.
    pub fn function(&self, address: u64) -> Option<Symbol<'_>> {
        self.covering(address, true)
    }

    /// The variable that `address` lies in; always `None` on a kernel without `CONFIG_KALLSYMS_ALL`.
    pub fn data(&self, address: u64) -> Option<Symbol<'_>> {
        if self.has_data { self.covering(address, false) } else { None }
    }

    /// The address of the first symbol with this name. Searches the whole table (about a millisecond).
    pub fn address_of(&self, name: &str) -> Option<u64> {
        self.entry_of(name).map(|entry| entry.address)
    }

    /// The module that has a symbol of this name; `None` for the kernel itself and for unknown names.
    pub(crate) fn module_of(&self, name: &str) -> Option<&str> {
        if self.modules.is_empty() {
            return None;
        }
        self.modules.get(usize::from(self.entry_of(name)?.module)).map(String::as_str)
    }

    fn entry_of(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| {
            self.names[entry.name_at as usize..].strip_prefix(name).is_some_and(|rest| rest.starts_with('\n'))
        })
    }

    /// Whether variables are listed, not only functions (`CONFIG_KALLSYMS_ALL`).
    pub const fn has_data_symbols(&self) -> bool {
        self.has_data
    }

    /// How many symbols the table holds.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table is empty.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where the kernel's image lies, by the symbols at its ends or at least at its start.
    pub(crate) fn image(&self) -> Range<u64> {
        /// The x86-64 kernel maps its image in one gigabyte and its modules after it.
        const LARGEST_IMAGE_BYTES: u64 = 1 << 30;
        let start = self.address_of("_text").or_else(|| self.address_of("_stext")).unwrap_or(0);
        let end = self.address_of("_end").unwrap_or(start.saturating_add(LARGEST_IMAGE_BYTES));
        if start == 0 { 0..0 } else { start..end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_is_listed_as_text_is_found_as_data() {
        let listed = "ffffffff81000000 T _stext\nffffffff81000100 T f\nffffffff82000000 T _etext\n\
                      ffffffff83006080 T tasklist_lock\nffffffff83d00000 T _sinittext\n\
                      ffffffff83d00010 t setup\nffffffff83e00000 T _einittext\n";
        let symbols = KernelSymbols::from_reader(listed.as_bytes()).expect("these are symbols");
        assert_eq!(symbols.data(0xffff_ffff_8300_6080).map(|symbol| symbol.name), Some("tasklist_lock"));
        assert_eq!(symbols.function(0xffff_ffff_8300_6080), None);
        assert_eq!(symbols.function(0xffff_ffff_83d0_0018).map(|symbol| symbol.name), Some("setup"));
        assert_eq!(symbols.function(0xffff_ffff_8100_0104).map(|symbol| symbol.name), Some("f"));
    }

    const TABLE: &str = "\
ffffffff81000000 T _text
ffffffff81000000 T _stext
ffffffff81000100 t do_one_thing
ffffffff81000100 T alias_of_it
ffffffff810001f0 t __pfx_do_another
ffffffff81000200 T do_another
ffffffff81000300 T _etext
0000000000021940 A runqueues
ffffffff82000000 D init_task
ffffffff82002000 d tasklist_lock
ffffffff82002008 b last_one
ffffffff82002800 B __bss_start
ffffffff82002800 b first_of_bss
ffffffff82003000 B _end
ffffffffc0001000 t helper\t[ext4]
ffffffffc0003000 d ext4_lock\t[ext4]
";

    fn table() -> KernelSymbols {
        KernelSymbols::from_reader(TABLE.as_bytes()).expect("the table is well formed")
    }

    #[test]
    fn an_address_is_named_by_the_symbol_before_it() {
        let symbols = table();
        let at = |address| symbols.function(address).map(|symbol| (symbol.name, symbol.offset, symbol.module));
        assert_eq!(at(0xffff_ffff_8100_0150), Some(("do_one_thing", 0x50, None)));
        assert_eq!(at(0xffff_ffff_8100_0210), Some(("do_another", 0x10, None)));
        assert_eq!(at(0xffff_ffff_c000_1004), Some(("helper", 4, Some("ext4"))));
        assert_eq!(at(0xffff_ffff_8100_0310), None, "after the end of the text");
        assert_eq!(at(0x1000), None, "before every symbol");
        assert_eq!(at(0xffff_ffff_8200_0000), None, "a variable is no function");
        assert_eq!(at(u64::MAX), None, "far after every symbol");
    }

    #[test]
    fn variables_are_found_where_the_kernel_lists_them() {
        let symbols = table();
        assert!(symbols.has_data_symbols());
        assert_eq!(symbols.data(0xffff_ffff_8200_2004).map(|symbol| symbol.name), Some("tasklist_lock"));
        assert_eq!(symbols.data(0xffff_ffff_c000_3000).and_then(|symbol| symbol.module), Some("ext4"));
        assert_eq!(symbols.data(0xffff_ffff_8200_3010), None, "after the image");
        assert_eq!(symbols.data(0xffff_ffff_8200_2804).map(|symbol| symbol.name), Some("first_of_bss"));
        assert_eq!(symbols.address_of("init_task"), Some(0xffff_ffff_8200_0000));
        assert_eq!(symbols.address_of("init_tas"), None);
        assert_eq!(symbols.address_of("runqueues"), None, "section offsets are no addresses");
        assert_eq!(symbols.image(), 0xffff_ffff_8100_0000..0xffff_ffff_8200_3000);
    }

    #[test]
    fn hidden_addresses_are_an_error_of_their_own() {
        let error = KernelSymbols::from_reader("0000000000000000 T _text\n".as_bytes()).expect_err("all zero");
        assert_eq!(error.kind(), SymbolsErrorKind::AddressesHidden);
    }

    #[test]
    fn odd_lines_are_passed_over() {
        let odd = "\n\nzz T x\nffffffff81000000\nffffffff81000000 T _text\n\u{fffd}";
        assert_eq!(KernelSymbols::from_reader(odd.as_bytes()).expect("one good line").len(), 1);
    }
}
