//! `System.map`: the symbols that the kernel was linked with, also those that it does not list itself when it runs.

use std::collections::{HashMap, HashSet};

use crate::error::{SymbolsError, SymbolsErrorKind};
use crate::kernel_symbols::{KernelSymbols, symbol_of_line};

/// Addresses of variables that each CPU has for itself, and of sections, are small, and nothing moves them.
const IMAGE: u64 = 1 << 63;

/// Functions that a map must have in common with the kernel, and how many of a thousand of them it must agree about: some kernels list
/// several of one name.
const ENOUGH_FUNCTIONS: usize = 100;
const AGREE_PER_MILLE: usize = 990;

/// The address, the kind and the name that stand in a line.
fn symbol_of_kernel(line: &str) -> Option<(u64, &str, &str)> {
    symbol_of_line(line).map(|(address, kind, name, _)| (address, kind, name))
}

/// The text of such a file.
#[derive(Debug, Clone)]
pub struct SystemMap {
    /// What the file is called, for messages.
    pub file: String,
    /// What stands in it.
    pub text: String,
}

impl SystemMap {
    /// The symbols that the kernel does not list: where the running kernel has them, their kinds and names.
    ///
    /// # Errors
    ///
    /// If the map is another kernel's, or no map.
    pub(crate) fn unlisted(&self, kernel: &KernelSymbols) -> Result<Vec<(u64, &str, &str)>, SymbolsError> {
        let symbols = || self.text.lines().filter_map(symbol_of_kernel);
        let moved_by = self.moved_by(kernel)?;
        let listed: HashSet<u64> = kernel.addresses().collect();
        let place = |address: u64| address.wrapping_add(moved_by);
        let missing = symbols().filter(|(address, ..)| *address >= IMAGE && !listed.contains(&place(*address)));
        Ok(missing.map(|(address, kind, name)| (place(address), kind, name)).collect())
    }

    /// How far the kernel was moved when it started (KASLR), by its functions.
    fn moved_by(&self, kernel: &KernelSymbols) -> Result<u64, SymbolsError> {
        let refuse = |what: String| SymbolsError::new(SymbolsErrorKind::OtherKernel, format!("{}: {what}", self.file));
        let functions = self
            .text
            .lines()
            .filter_map(symbol_of_kernel)
            .filter(|(address, kind, _)| *address >= IMAGE && matches!(*kind, "t" | "T"));
        let in_map: HashMap<&str, u64> = functions.map(|(address, _, name)| (name, address)).collect();
        if in_map.len() < ENOUGH_FUNCTIONS {
            let what =
                "has hardly any functions of a kernel; name its System.map (/boot/System.map-RELEASE)".to_owned();
            return Err(refuse(what));
        }
        let mut offsets = HashMap::<u64, usize>::new();
        let mut common = 0;
        for (name, address) in kernel.functions() {
            if let Some(linked) = in_map.get(name) {
                *offsets.entry(address.wrapping_sub(*linked)).or_default() += 1;
                common += 1;
            }
        }
        let (offset, agree) = offsets.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default();
        if common < ENOUGH_FUNCTIONS || agree * 1000 < common * AGREE_PER_MILLE {
            return Err(refuse(format!(
                "is not this kernel's: {} of the {common} functions that both have lie elsewhere; name that of the running kernel \
                 (`uname -r`)",
                common - agree
            )));
        }
        Ok(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVED: u64 = 0x1e00_0000;

    /// A kernel of 200 functions, which lists no variable, and its map.
    fn kernel_and_map() -> (KernelSymbols, SystemMap) {
        let function = |number: u64| 0xffff_ffff_8100_0000 + number * 0x40;
        let listed: String = (0..200).map(|n| format!("{:x} T function_{n}\n", function(n) + MOVED)).collect();
        let mut map: String = (0..200).map(|n| format!("{:016x} T function_{n}\n", function(n))).collect();
        map.push_str("000000000002c440 D runqueues\nffffffff82001000 D init_task\nffffffff82002000 d cgroup_mutex\n");
        (KernelSymbols::from_reader(listed.as_bytes()).unwrap(), SystemMap { file: "map".into(), text: map })
    }

    #[test]
    fn variables_that_a_kernel_does_not_list_are_found_where_it_was_moved_to() {
        let (kernel, map) = kernel_and_map();
        let at = 0xffff_ffff_8200_2010 + MOVED;
        assert!(kernel.data(at).is_none());
        let kernel = kernel.with_map(&map).unwrap();
        let found = kernel.data(at).unwrap();
        assert_eq!((found.name, found.offset), ("cgroup_mutex", 0x10));
        assert!(kernel.address_of("runqueues").is_none(), "each CPU has it elsewhere");
        assert_eq!(kernel.function(0xffff_ffff_8100_0044 + MOVED).unwrap().name, "function_1");
        assert_eq!(kernel.len(), 202, "what is listed is not there twice");
    }

    #[test]
    fn the_map_of_another_kernel_is_refused() {
        let (kernel, map) = kernel_and_map();
        let other = map.text.replace("81000c40 T function_49", "81000c50 T function_49");
        let other = other.replace("81000c80 T", "81000c90 T").replace("81000cc0 T", "81000cd0 T");
        let error = kernel.with_map(&SystemMap { text: other, ..map.clone() }).unwrap_err().to_string();
        assert!(error.starts_with("map: is not this kernel's: 3 of the 200 functions"), "{error}");
        let (kernel, _) = kernel_and_map();
        let error = kernel.with_map(&SystemMap { text: "nothing\n".into(), ..map }).unwrap_err().to_string();
        assert!(error.contains("hardly any functions"), "{error}");
    }
}
