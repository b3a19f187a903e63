//! Which goroutines wait for a lock, read from the memory of their process.
//!
//! A goroutine that waits for a `sync.Mutex` or the like sleeps while no thread does: Go's runtime puts a record of it into a table of its
//! own, `runtime.semtable` (`runtime/sema.go`), and lets the thread run another one. The table has a list of binary trees, one record a
//! lock, with the lock's other waiters in a list behind it. The word of the lock and the goroutine stand in the record, and the goroutine's
//! stack pointer stands in its `g`. So nothing has to be loaded into the program, nor does it stop.
//!
//! The program runs on meanwhile, so whatever is read may be nonsense. A record counts only if its word belongs where it was found: that is
//! how the layouts of Go's versions are told apart as well.

use std::collections::HashSet;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

use crate::elf_image::{ElfPart, section_place};
use crate::go_names::GoNames;
use crate::process_memory::ProcessMemory;
use crate::target_file::TargetFile;
use crate::user_names::MappedFile;

/// The variable with all waits for `sync`'s locks.
const TABLE: &str = "runtime.semtable";

/// `semTabSize`.
const ROOTS: u64 = 251;

/// Words of a `semaRoot`: behind its lock the tree and, in the lower half of the next, the number of waiters.
const TREE: usize = 1;
const WAITERS: usize = 2;
const ROOT_WORDS: usize = 3;
/// Each has a cache line for itself.
const ROOT_STRIDE: u64 = 64;

/// The function that uses the table, and where such variables lie.
const USER: &str = "runtime.semacquire1";
const VARIABLES: [&str; 2] = [".bss", ".noptrbss"];
const LONGEST_FUNCTION: u64 = 64 << 10;

/// Words of a `sudog`, in all versions: its goroutine, and the branches of the tree.
const GOROUTINE: usize = 0;
const NEXT: usize = 1;
const PREVIOUS: usize = 2;
const SUDOG_WORDS: usize = 12;

/// Words of a `g`: the ends of its stack, and of what is kept of a goroutine that does not run (`gobuf`) the stack pointer and the address.
const STACK_LOW: usize = 0;
const STACK_HIGH: usize = 1;
const SAVED_STACK_POINTER: usize = 7;
const SAVED_ADDRESS: usize = 8;
/// The frame pointer, since Go 1.25 and before, when an empty word stood there.
const SAVED_FRAME_POINTER: [usize; 2] = [12, 13];
const G_WORDS: usize = 14;

/// Records that are followed at one root, and at each root once this many were followed in a look: they stand for the others.
const MOST_RECORDS: usize = 512;
const FEW_RECORDS: usize = 16;
const MANY_RECORDS: usize = 2048;

/// How often a root is looked at that changes meanwhile.
const TRIES: usize = 8;

/// How much of a stack is read, from its inner end, and how many frames are followed.
const STACK_BYTES: usize = 2 << 10;
const DEEPEST: usize = 32;

/// What a `sudog` says of a semaphore: the word that is waited for, and the next record of the same word.
struct Waiter {
    word: u64,
    next: u64,
}

impl Waiter {
    /// In the layouts of Go's versions, of which that counts in which the word belongs to this root: since Go 1.26 it is kept twice, once
    /// where the garbage collector sees it, and may be left out there; before, a time followed it.
    fn of(words: &[u64; SUDOG_WORDS], root: u64) -> Option<Self> {
        let belongs = |word: u64| word != 0 && (word >> 3) % ROOTS == root;
        let is_kept_twice = belongs(words[4]) && (words[3] == words[4] || words[3] == 0);
        let (word, next) = if is_kept_twice { (words[4], words[9]) } else { (words[3], words[8]) };
        belongs(word).then_some(Self { word, next })
    }
}

/// Go's runtime in a process.
#[derive(Debug)]
pub struct GoRuntime {
    memory: ProcessMemory,
    table: u64,
}

/// A goroutine that waits for a word to become free.
#[derive(Debug, Clone, PartialEq)]
pub struct ParkedGoroutine {
    /// The word's address.
    pub word: u64,
    /// How many it stands for: of many that wait not all are looked at.
    pub stands_for: f64,
    /// Its `g`.
    goroutine: u64,
}

/// Where the table lies in the file, by its name.
fn table_by_symbol(file: &TargetFile) -> Option<u64> {
    let image = file.elf(ElfPart::Symbols).ok()?;
    let elf = ElfFile64::<object::LittleEndian, _>::parse(image.bytes()).ok()?;
    let symbol = elf.symbols().find(|symbol| symbol.name() == Ok(TABLE))?;
    (symbol.size() == ROOTS * ROOT_STRIDE).then(|| symbol.address())
}

/// The same in a program without such names: it is the only variable of which `semacquire1` takes the address, in all versions tried.
fn table_by_code(file: &TargetFile) -> Option<u64> {
    let function = GoNames::of_file(file).ok()??.place_of(USER)?;
    let text = section_place(file, ".text").ok()??;
    let bytes = function.end.checked_sub(function.start).filter(|bytes| *bytes <= LONGEST_FUNCTION)?;
    let mut code = vec![0; usize::try_from(bytes).ok()?];
    file.read_at(&mut code, function.start.checked_sub(text.addresses.start)?.checked_add(text.in_file)?).ok()?;
    let variables: Vec<_> =
        VARIABLES.iter().filter_map(|name| section_place(file, name).ok()?).map(|place| place.addresses).collect();
    let is_variable = |address: &u64| variables.iter().any(|section| section.contains(address));
    let mut tables = addresses_taken(&code, function.start).filter(is_variable);
    let table = tables.next()?;
    tables.all(|other| other == table).then_some(table)
}

/// The addresses that code loads relative to itself: `lea offset(%rip), register`.
fn addresses_taken(code: &[u8], begin: u64) -> impl Iterator<Item = u64> {
    const LENGTH: usize = 7;
    code.windows(LENGTH).enumerate().filter_map(move |(at, bytes)| {
        let [rex, 0x8d, operands, a, b, c, d] = *bytes else { return None };
        let is_relative = matches!(rex, 0x48 | 0x4c) && operands & 0xc7 == 0x05;
        let offset = i64::from(i32::from_le_bytes([a, b, c, d]));
        is_relative.then(|| begin.wrapping_add((at + LENGTH) as u64).wrapping_add_signed(offset))
    })
}

impl GoRuntime {
    /// The runtime in this process, of which this file is a part; `None` if it has none, or of another build than is known.
    pub fn find(pid: u32, program: &MappedFile) -> Option<Self> {
        let file = program.place.open().ok()?;
        let table = table_by_symbol(&file).or_else(|| table_by_code(&file))?;
        Some(Self { memory: ProcessMemory::open(pid)?, table: table.wrapping_add(program.bias) })
    }

    /// Looks at who waits right now; `None` if the process has ended.
    pub fn look(&self) -> Option<Vec<ParkedGoroutine>> {
        let mut table = vec![0; (ROOTS * ROOT_STRIDE) as usize];
        self.memory.read(self.table, &mut table)?;
        let mut parked = Vec::new();
        for (index, root) in (0..).zip(table.chunks_exact(ROOT_STRIDE as usize)) {
            if root[8 * WAITERS..8 * WAITERS + 4] == [0; 4] {
                continue;
            }
            let most_records = if parked.len() < MANY_RECORDS { MOST_RECORDS } else { FEW_RECORDS };
            parked.extend(self.look_at_root(index, most_records)?);
        }
        Some(parked)
    }

    /// Those that wait at a root and could be followed. While one looks, the first of them may be gone and another one come: then it is
    /// looked at again.
    fn look_at_root(&self, index: u64, most_records: usize) -> Option<Vec<ParkedGoroutine>> {
        let mut most = Vec::new();
        for _ in 0..TRIES {
            let root = self.words::<ROOT_WORDS>(self.table + index * ROOT_STRIDE)?;
            let waiters = root[WAITERS] & u64::from(u32::MAX);
            if waiters == 0 {
                return Some(Vec::new());
            }
            let mut parked = self.follow(root[TREE], index, most_records);
            let found = parked.len() as u64;
            if parked.len() > most.len() {
                let stands_for = (waiters as f64 / found as f64).max(1.0);
                parked.iter_mut().for_each(|parked| parked.stands_for = stands_for);
                most = parked;
            }
            if found >= waiters.min(most_records as u64) {
                break;
            }
        }
        Some(most)
    }

    /// All that wait at one root.
    fn follow(&self, tree: u64, root: u64, most_records: usize) -> Vec<ParkedGoroutine> {
        let mut parked = Vec::new();
        let mut seen = HashSet::new();
        let mut records = vec![(tree, None)];
        while let Some((record, word)) = records.pop() {
            if record == 0 || parked.len() >= most_records || !seen.insert(record) {
                continue;
            }
            let Some(words) = self.words::<SUDOG_WORDS>(record) else { continue };
            let waiter = Waiter::of(&words, root).filter(|waiter| word.is_none_or(|word| word == waiter.word));
            let Some(waiter) = waiter else { continue };
            parked.push(ParkedGoroutine { word: waiter.word, stands_for: 1.0, goroutine: words[GOROUTINE] });
            records.push((waiter.next, Some(waiter.word)));
            // Only who stands in the tree itself has branches.
            if word.is_none() {
                records.extend([(words[NEXT], None), (words[PREVIOUS], None)]);
            }
        }
        parked
    }

    /// Where a goroutine is, innermost first; empty if it goes on meanwhile.
    pub fn stack(&self, parked: &ParkedGoroutine) -> Vec<u64> {
        self.read_stack(parked).unwrap_or_default()
    }

    fn read_stack(&self, parked: &ParkedGoroutine) -> Option<Vec<u64>> {
        let g = self.words::<G_WORDS>(parked.goroutine)?;
        let (begin, high) = (g[SAVED_STACK_POINTER], g[STACK_HIGH]);
        let is_stack = |address: u64| (begin..high).contains(&address);
        if !is_stack(begin) || begin < g[STACK_LOW] {
            return None;
        }
        let mut copy = [0; STACK_BYTES];
        let bytes = usize::try_from(high - begin).ok()?.min(STACK_BYTES);
        self.memory.read(begin, &mut copy[..bytes])?;
        let word = |address: u64| {
            let at = usize::try_from(address.checked_sub(begin)?).ok()?;
            Some(u64::from_ne_bytes(copy[..bytes].get(at..at.checked_add(8)?)?.try_into().ok()?))
        };
        let mut addresses = vec![g[SAVED_ADDRESS]];
        let mut frame = SAVED_FRAME_POINTER.into_iter().map(|at| g[at]).find(|pointer| is_stack(*pointer))?;
        while addresses.len() < DEEPEST {
            let (Some(outer), Some(address)) = (word(frame), word(frame.wrapping_add(8))) else { break };
            addresses.push(address);
            if outer <= frame {
                break;
            }
            frame = outer;
        }
        Some(addresses)
    }

    fn words<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut bytes = [[0; 8]; N];
        self.memory.read(address, bytes.as_flattened_mut())?;
        Some(bytes.map(u64::from_ne_bytes))
    }
}
