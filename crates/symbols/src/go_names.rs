//! Names of functions that a Go program keeps when it is stripped: its runtime needs them for its own stack traces.
//!
//! The table is the section `.gopclntab`, as Go 1.18 and later write it (`runtime/symtab.go`, `cmd/link/internal/ld/pcln.go`).

use std::io;
use std::ops::Range;

use crate::elf_image::{section_bytes, section_place};
use crate::program_names::LONGEST_NAME;
use crate::target_file::TargetFile;

const TABLE: &str = ".gopclntab";

/// Larger ones are not read: that of Kubernetes has 20 MB.
const MOST_BYTES: u64 = 128 << 20;

/// The first word since Go 1.18, and since 1.20.
const MAGIC: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

/// Words of the header, behind eight bytes: the number of functions, where their code begins (none since Go 1.26), and where in the table
/// names and functions stand.
const FUNCTIONS: usize = 0;
const TEXT: usize = 2;
const NAMES: usize = 3;
const ENTRIES: usize = 7;

/// `moduledata`, which has a section of its own since Go 1.26, and the word in it that says where the code begins.
const MODULE: &str = ".go.module";
const MODULE_TEXT: usize = 22;
const MODULE_BYTES: u64 = 64 << 10;

/// What a function's entry takes: where it begins, and where more stands about it.
const ENTRY_BYTES: usize = 8;

/// The functions of a Go program.
pub(crate) struct GoNames {
    table: Vec<u8>,
    text: u64,
    functions: usize,
    names: usize,
    entries: usize,
}

impl GoNames {
    /// `None`: the file is no Go program, or one of a version that is not known.
    pub(crate) fn of_file(file: &TargetFile) -> io::Result<Option<Self>> {
        let Some(table) = section_bytes(file, TABLE, MOST_BYTES)? else { return Ok(None) };
        let Some(mut names) = Self::of_table(table) else { return Ok(None) };
        if names.text == 0 {
            let module = section_bytes(file, MODULE, MODULE_BYTES)?.unwrap_or_default();
            let of_module = number::<8>(&module, MODULE_TEXT * 8).filter(|text| *text != 0);
            // Where addresses are made whole as the program starts, the file has none, and its own linker begins with Go's code.
            let of_section = section_place(file, ".text")?.map(|place| place.addresses.start);
            let Some(text) = of_module.or(of_section) else { return Ok(None) };
            names.text = text;
        }
        Ok(Some(names))
    }

    fn of_table(table: Vec<u8>) -> Option<Self> {
        let magic = number::<4>(&table, 0)?;
        let word = |at: usize| number::<8>(&table, 8 + 8 * at);
        let has_eight_bytes = *table.get(7)? == 8;
        let is_known = MAGIC.map(u64::from).contains(&magic) && has_eight_bytes;
        let [functions, names, entries] = [FUNCTIONS, NAMES, ENTRIES].map(|at| usize::try_from(word(at)?).ok());
        let text = word(TEXT)?;
        is_known.then_some(Self { text, functions: functions?, names: names?, entries: entries?, table })
    }

    /// Memory that it takes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.table.len() as u64
    }

    /// The function that holds an address, and the offset in it.
    pub(crate) fn function(&self, address: u64) -> Option<(String, u64)> {
        let offset = address.checked_sub(self.text)?;
        let (mut first, mut beyond) = (0, self.functions);
        // The last entry stands for the end.
        if offset < self.begin(0)? || offset >= self.begin(self.functions)? {
            return None;
        }
        while beyond - first > 1 {
            let middle = first + (beyond - first) / 2;
            if self.begin(middle)? <= offset {
                first = middle;
            } else {
                beyond = middle;
            }
        }
        Some((self.name(first)?.to_owned(), offset - self.begin(first)?))
    }

    /// The addresses of a function.
    pub(crate) fn place_of(&self, name: &str) -> Option<Range<u64>> {
        let is_it = |at: &usize| {
            let rest = self.name_and_more(*at).and_then(|there| there.strip_prefix(name.as_bytes()));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        };
        let at = (0..self.functions).map_while(|at| self.begin(at).map(|_| at)).find(is_it)?;
        Some(self.text.checked_add(self.begin(at)?)?..self.text.checked_add(self.begin(at + 1)?)?)
    }

    /// Where a function begins, from the first on.
    fn begin(&self, at: usize) -> Option<u64> {
        number::<4>(&self.table, self.entry(at)?)
    }

    fn entry(&self, at: usize) -> Option<usize> {
        self.entries.checked_add(at.checked_mul(ENTRY_BYTES)?)
    }

    fn name(&self, at: usize) -> Option<&str> {
        let name = self.name_and_more(at)?;
        let end = name.iter().take(LONGEST_NAME).position(|byte| *byte == 0)?;
        std::str::from_utf8(&name[..end]).ok()
    }

    /// What stands where a function's name begins.
    fn name_and_more(&self, at: usize) -> Option<&[u8]> {
        let about = self.entries.checked_add(number::<4>(&self.table, self.entry(at)?.checked_add(4)?)? as usize)?;
        let begin = self.names.checked_add(number::<4>(&self.table, about.checked_add(4)?)? as usize)?;
        self.table.get(begin..)
    }
}

/// A number of this many bytes, little end first.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(N)?)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two functions, `a` from 0 to 16 and `bc` from 16 to 48, in code that begins at 0x1000.
    fn table() -> Vec<u8> {
        let mut table = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        let names: usize = 8 + 8 * 8;
        let entries = names + 8;
        for word in [2, 0, 0x1000, names, 0, 0, 0, entries] {
            table.extend((word as u64).to_le_bytes());
        }
        table.extend(b"a\0bc\0\0\0\0");
        // What stands about a function lies behind all entries.
        for number in [0_u32, 24, 16, 32, 48, 0, 0, 0, 16, 2] {
            table.extend(number.to_le_bytes());
        }
        table
    }

    #[test]
    fn functions_are_found_by_address_and_by_name() {
        let names = GoNames::of_table(table()).unwrap();
        let found = |address| names.function(address);
        assert_eq!(found(0x1000), Some(("a".to_owned(), 0)));
        assert_eq!(found(0x100f), Some(("a".to_owned(), 15)));
        assert_eq!(found(0x1010), Some(("bc".to_owned(), 0)));
        assert_eq!(found(0x102f), Some(("bc".to_owned(), 31)));
        assert_eq!((found(0xfff), found(0x1030)), (None, None));
        assert_eq!(names.place_of("bc"), Some(0x1010..0x1030));
        assert_eq!(names.place_of("b"), None);
    }

    /// Nothing that a file says leads out of the table, or on for ever.
    #[test]
    fn tables_that_are_cut_or_lie_have_no_names_there() {
        let whole = table();
        for length in 0..whole.len() {
            if let Some(names) = GoNames::of_table(whole[..length].to_vec()) {
                let _ = (names.function(0x1000), names.function(0x1020), names.place_of("bc"));
            }
        }
        for at in 0..whole.len() {
            for byte in [0, 0x7f, 0xff] {
                let mut spoilt = whole.clone();
                spoilt[at] = byte;
                if let Some(names) = GoNames::of_table(spoilt) {
                    let _ = (names.function(0x1000), names.function(0x1020), names.place_of("bc"));
                }
            }
        }
    }
}
