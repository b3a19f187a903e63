//! The functions of the kernel on a stack, by their addresses.

use std::collections::HashMap;
use std::sync::Arc;

use lockmeter_profile::{Frame, lock_functions};
use lockmeter_symbols::{KernelSymbols, Symbol};

/// Frames remembered with their names; a kernel has more addresses than that, but few lie on stacks that wait.
const MOST_FRAMES: usize = 1 << 16;

/// Names frames, and remembers them.
pub struct Frames {
    symbols: Arc<KernelSymbols>,
    /// Programs and trampolines that came after the symbols were read.
    programs: Option<KernelSymbols>,
    known: HashMap<u64, Frame>,
}

impl Frames {
    pub fn new(symbols: Arc<KernelSymbols>) -> Self {
        Self { symbols, programs: None, known: HashMap::new() }
    }

    /// Reads the names of programs and trampolines again.
    pub fn learn_programs(&mut self) {
        // Without their names such frames are shown as unknown.
        self.programs = KernelSymbols::programs_from_proc().ok();
        self.known.clear();
    }

    /// The frames of a stack, innermost first, without the trampolines in it.
    pub fn of_stack(&mut self, addresses: &[u64]) -> Vec<Frame> {
        let mut frames: Vec<Frame> = Vec::with_capacity(addresses.len());
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

    pub fn frame(&mut self, address: u64) -> Frame {
        if self.known.len() >= MOST_FRAMES {
            self.known.clear();
        }
        let symbols = &self.symbols;
        let program = self.programs.as_ref().and_then(|programs| programs.function(address));
        self.known
            .entry(address)
            .or_insert_with(|| match nearest(symbols.function(address), program) {
                Some(symbol) => Frame {
                    address,
                    function: Some(symbol.name.to_owned()),
                    offset: symbol.offset,
                    module: symbol.module.map(str::to_owned),
                },
                None => Frame { address, function: None, offset: 0, module: None },
            })
            .clone()
    }
}

/// A symbol's end is not known: of two that begin before an address, the nearer one covers it.
fn nearest<'a>(kernel: Option<Symbol<'a>>, program: Option<Symbol<'a>>) -> Option<Symbol<'a>> {
    kernel.into_iter().chain(program).min_by_key(|symbol| symbol.offset)
}
