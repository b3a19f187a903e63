//! Addresses to names: kernel functions, and the objects that kernel locks lie in.
//!
//! [`KernelSymbols`] names the functions of a stack. [`LockNamer`] names a lock from what the event said about it
//! ([`Identity`]): by symbol, per-CPU variable, slab cache and type information, or the functions that took it, and
//! says how it knows. [`SlabLayout`] and [`struct_page_anchor`] tell a BPF program where to find an address's slab
//! cache.
//!
//! [`UserNames`] names the functions and static locks of programs, and [`UserWait`] tells from the functions on a stack what
//! kind of lock a program waited for.
//!
//! This crate loads no BPF program; the one that can read kernel memory hands in a [`KernelMemory`]. How names are found, in
//! plain words: `docs/how-it-works/naming.md`.

mod btf;
mod build_id;
mod condition_locks;
mod debug_file;
mod debug_package;
mod debuginfod;
mod elf_image;
mod error;
mod evidence;
mod fields;
mod filesystems;
mod go_names;
mod go_runtime;
mod heap_locks;
#[doc(hidden)]
pub mod hostile_elf;
mod java_machine;
mod kernel_symbols;
mod landmarks;
#[cfg(test)]
mod live;
mod memory;
mod namer;
mod percpu;
mod process_memory;
mod program_locks;
mod program_names;
mod shared_memory;
mod sites;
mod slab_cache;
mod slab_layout;
mod system_map;
mod target_file;
mod types;
mod user_names;
mod user_spins;
mod user_waits;
mod work_semaphores;

pub use build_id::BuildId;
pub use condition_locks::{lock_in_variable, lock_made_of_condition};
pub use debuginfod::{Asking, WhileAsking, ask_servers};
pub use elf_image::{ElfImage, ElfPart};
pub use error::{SymbolsError, SymbolsErrorKind};
pub use go_runtime::{GoRuntime, ParkedGoroutine};
pub use heap_locks::{Origin, heap_lock, is_on_main_stack, lock_without_address, may_be_the_lock_of, on_stack};
pub use java_machine::{AwaitedByJava, JAVA_MACHINE, JavaMachine, Parked};
pub use kernel_symbols::{KernelSymbols, Symbol};
pub use memory::{KernelMemory, NoKernelMemory, Unreadable};
pub use namer::{Identity, LockNamer, WHOLE_PPM};
pub use program_locks::{ProgramLock, has_own_locks, program_lock};
pub use program_names::as_written;
pub use shared_memory::{LONGEST_MAPS, MOST_MAPPINGS, SharedAddress, SharedMapping, shared_lock, unmapped_lock};
pub use slab_layout::{PageAnchor, SlabLayout, SlabMark, struct_page_anchor};
pub use system_map::SystemMap;
pub use target_file::{FilePlace, TargetFile, sees_other_files};
pub use types::KernelTypes;
pub use user_names::{MappedFile, NoVariable, ProcessPath, StaticPlace, UserNames};
pub use user_spins::{UserSpin, has_own_spins};
pub use user_waits::{FutexCall, UserWait, waits_for_work};
pub use work_semaphores::{call_of_evaluator, is_wait_for_end_of_thread, is_wait_for_work};

/// The README's example, which tests run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
