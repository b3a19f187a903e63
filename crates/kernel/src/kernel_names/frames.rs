//! The functions of the kernel on a stack, by their addresses.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lockmeter_profile::{Frame, lock_functions};
use lockmeter_symbols::{KernelSymbols, Symbol};

/// Frames remembered with their names; a kernel has more addresses than that, but few lie on stacks that wait.
const MOST_FRAMES: usize = 1 << 16;

/// The functions on a stack, innermost first.
pub type Functions = Arc<[Arc<str>]>;

/// A frame whose names are shared with all others of the same function.
#[derive(Debug, Clone)]
pub struct NamedFrame {
    address: u64,
    pub function: Option<Arc<str>>,
    offset: u64,
    module: Option<Arc<str>>,
}

impl NamedFrame {
    /// As it is recorded, with names of its own.
    pub fn recorded(&self) -> Frame {
        let owned = |name: &Option<Arc<str>>| name.as_deref().map(str::to_owned);
        Frame {
            address: self.address,
            function: owned(&self.function),
            offset: self.offset,
            module: owned(&self.module),
        }
    }
}

/// Names frames, and remembers them.
pub struct Frames {
    symbols: Arc<KernelSymbols>,
    /// Programs and trampolines that came after the symbols were read.
    programs: Option<KernelSymbols>,
    known: HashMap<u64, NamedFrame>,
    /// Of functions and modules, each once.
    names: HashSet<Arc<str>>,
}

impl Frames {
    pub fn new(symbols: Arc<KernelSymbols>) -> Self {
        Self { symbols, programs: None, known: HashMap::new(), names: HashSet::new() }
    }

    /// Reads the names of programs and trampolines again.
    pub fn learn_programs(&mut self) {
        // Without their names such frames are shown as unknown.
        self.programs = KernelSymbols::programs_from_proc().ok();
        self.forget();
    }

    /// The functions on a stack, without the trampolines in it.
    pub fn functions(&mut self, addresses: &[u64]) -> Functions {
        self.of_stack(addresses).into_iter().filter_map(|frame| frame.function).collect()
    }

    /// The frames of a stack, innermost first, without the trampolines in it.
    pub fn of_stack(&mut self, addresses: &[u64]) -> Vec<NamedFrame> {
        let mut frames: Vec<NamedFrame> = Vec::with_capacity(addresses.len());
        let mut after_trampoline = false;
        for address in addresses {
            let frame = self.frame(*address);
            let is_trampoline = frame.function.as_deref().is_some_and(lock_functions::is_trampoline);
            // The hooked function calls the trampoline, which calls it.
            let is_twice = after_trampoline && frames.last().is_some_and(|last| last.function == frame.function);
            if !is_trampoline && !is_twice {
                frames.push(frame);
            }
            after_trampoline = is_trampoline;
        }
        frames
    }

    fn frame(&mut self, address: u64) -> NamedFrame {
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        if self.known.len() >= MOST_FRAMES {
            self.forget();
        }
        let program = self.programs.as_ref().and_then(|programs| programs.function(address));
        let symbol = nearest(self.symbols.function(address), program);
        let names = &mut self.names;
        let frame = NamedFrame {
            address,
            function: symbol.as_ref().map(|symbol| interned(names, symbol.name)),
            offset: symbol.as_ref().map_or(0, |symbol| symbol.offset),
            module: symbol.as_ref().and_then(|symbol| symbol.module).map(|module| interned(names, module)),
        };
        self.known.insert(address, frame.clone());
        frame
    }

    fn forget(&mut self) {
        self.known.clear();
        self.names.clear();
    }
}

/// The one name of all that are written so.
fn interned(names: &mut HashSet<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = names.get(name) {
        return Arc::clone(known);
    }
    let name: Arc<str> = name.into();
    names.insert(Arc::clone(&name));
    name
}

/// A symbol's end is not known: of two that begin before an address, the nearer one covers it.
fn nearest<'a>(kernel: Option<Symbol<'a>>, program: Option<Symbol<'a>>) -> Option<Symbol<'a>> {
    kernel.into_iter().chain(program).min_by_key(|symbol| symbol.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each name is stored once, however many stacks it lies on: sampled keys are many, functions are few.
    #[test]
    fn frames_of_one_function_share_its_name() {
        let symbols = Arc::new(KernelSymbols::from_proc().expect("the kernel's symbols"));
        let function = symbols.address_of("vfs_read").expect("every kernel has vfs_read");
        let mut frames = Frames::new(symbols);
        let functions = frames.functions(&[function + 4, function + 8, function + 4]);
        assert_eq!(functions.iter().map(|name| &**name).collect::<Vec<_>>(), ["vfs_read"; 3]);
        assert!(functions.iter().all(|name| Arc::ptr_eq(name, &functions[0])), "one name, three times");
        let again = frames.functions(&[function + 12]);
        assert!(Arc::ptr_eq(&again[0], &functions[0]), "nor does another stack have a name of its own");
    }
}
