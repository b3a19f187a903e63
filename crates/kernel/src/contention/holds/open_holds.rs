//! Holds that have begun and not ended, in the programs' memory.

use std::mem::offset_of;

use libbpf_rs::{MapCore, MapFlags};

use crate::contention::skeleton::types as tables;

/// How many locks the table says are held.
pub(super) fn still_held(held_locks: &impl MapCore, watched: u32) -> u64 {
    let Ok(Some(bytes)) = held_locks.lookup(&0u32.to_ne_bytes(), MapFlags::ANY) else { return 0 };
    let held = bytes.chunks_exact(size_of::<tables::held>()).filter(|place| {
        // The first fields of `struct held`: the tag, the begin, and since which resumption.
        is_set(&place[..8]) && place[16..20] == watched.to_ne_bytes()
    });
    held.count() as u64
}

/// How many holds have begun and not ended that are in no table of all CPUs: of `mmap_lock`, not timed, and of hooked locks, by the task
/// that runs on a CPU.
pub(super) fn still_open(cpu_states: &impl MapCore, watched: u32) -> u64 {
    let Ok(Some(cpus)) = cpu_states.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY) else { return 0 };
    cpus.iter().map(|cpu| marks(cpu, watched) + open_holds(cpu, watched)).sum()
}

fn marks(cpu: &[u8], watched: u32) -> u64 {
    let marks = offset_of!(tables::cpu_state, untimed_marks);
    let marks = &cpu[marks..marks + size_of_field(|cpu: &tables::cpu_state| &cpu.untimed_marks)];
    if word_at(cpu, offset_of!(tables::cpu_state, marks_since)) != watched {
        return 0;
    }
    marks.chunks_exact(size_of::<u64>()).filter(|mark| is_set(mark)).count() as u64
}

fn open_holds(cpu: &[u8], watched: u32) -> u64 {
    let stacks = offset_of!(tables::cpu_state, open_holds);
    let stacks = &cpu[stacks..stacks + size_of_field(|cpu: &tables::cpu_state| &cpu.open_holds)];
    let current = stacks
        .chunks_exact(size_of::<tables::open_holds>())
        .filter(|stack| word_at(stack, offset_of!(tables::open_holds, resumed)) == watched);
    let holds = current
        .flat_map(|stack| stack[offset_of!(tables::open_holds, holds)..].chunks_exact(size_of::<tables::open_hold>()));
    // The first field is the key.
    holds.filter(|hold| is_set(&hold[..size_of::<u64>()])).count() as u64
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
}

fn is_set(word: &[u8]) -> bool {
    word.iter().any(|byte| *byte != 0)
}

const fn size_of_field<T, F>(_field: fn(&T) -> &F) -> usize {
    size_of::<F>()
}
