//! Which of a program's locks are to be swapped, where not all are: those whose address a name stands for, and those that a
//! named function makes or first takes.

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU8, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use super::unwind::{self, ReadWords, Registers};
use super::{names, syscalls};
use crate::layout::{SWAP_MODULES, SWAP_PATH_BYTES, SWAP_RANGES, SwapFilter, SwapRange};

struct Filter(UnsafeCell<SwapFilter>);

// SAFETY: written before `STATE` says so, and only read after.
unsafe impl Sync for Filter {}

static FILTER: Filter = Filter(UnsafeCell::new(SwapFilter::EMPTY));
static STATE: AtomicU32 = AtomicU32::new(NOT_READ);

/// The program's own file, which the loader does not name.
static OWN_PATH: [AtomicU8; SWAP_PATH_BYTES] = [const { AtomicU8::new(0) }; SWAP_PATH_BYTES];
static OWN_PATH_BYTES: AtomicUsize = AtomicUsize::new(0);

const NOT_READ: u32 = 0;
const READING: u32 = 1;
const READ: u32 = 2;

/// Frames of a lock's maker: itself, and the functions between it and pthread's.
const FRAMES: usize = 4;
/// Frames of the preloaded library itself, which come before.
const OWN_FRAMES: usize = 8;

/// Reads the file of this path, which ends with a NUL. A file that cannot be read lets no lock be swapped.
pub fn read(path: &[u8]) {
    if STATE.compare_exchange(NOT_READ, READING, Acquire, Relaxed).is_err() {
        // Another thread reads it, or has.
        while STATE.load(Acquire) != READ {
            core::hint::spin_loop();
        }
        return;
    }
    names::prepare();
    unwind::prepare();
    let mut own = [0_u8; SWAP_PATH_BYTES];
    OWN_PATH_BYTES.store(syscalls::read_link(b"/proc/self/exe\0", &mut own), Relaxed);
    for (to, from) in OWN_PATH.iter().zip(own) {
        to.store(from, Relaxed);
    }
    if let Some(descriptor) = syscalls::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0) {
        // SAFETY: this thread alone has the filter until the state says that it is read; any bytes are one.
        let bytes = unsafe { core::slice::from_raw_parts_mut(FILTER.0.get().cast::<u8>(), size_of::<SwapFilter>()) };
        syscalls::read(descriptor, bytes);
        syscalls::close(descriptor);
    }
    STATE.store(READ, Release);
}

/// The filter; `None` where there is none, and every lock is chosen.
fn filter() -> Option<&'static SwapFilter> {
    if STATE.load(Acquire) != READ {
        return None;
    }
    // SAFETY: read, and never written again.
    Some(unsafe { &*FILTER.0.get() })
}

/// Whether there is a filter.
pub fn is_there() -> bool {
    filter().is_some()
}

/// Whether this lock is one of those to be swapped. The registers are those of a function of the library that this is part of,
/// which the program called about the lock.
pub fn is_chosen(lock: usize, registers: &Registers) -> bool {
    let Some(filter) = filter() else { return true };
    if matches(filter, lock, false) {
        return true;
    }
    let mut frames = [0_u64; OWN_FRAMES + FRAMES];
    let (taken, _) = unwind::stack(registers, &mut frames, &mut ReadWords::nothing());
    let own = names::find_object(is_chosen as fn(usize, &Registers) -> bool as usize);
    let is_own = |frame: u64| own.as_ref().is_some_and(|own| (own.map_start..own.map_end).contains(&(frame as usize)));
    let makers = frames[..taken].iter().filter(|frame| !is_own(**frame)).take(FRAMES);
    // The call lies before the return address.
    makers.into_iter().any(|frame| matches(filter, *frame as usize - 1, true))
}

fn matches(filter: &SwapFilter, address: usize, is_code: bool) -> bool {
    let Some((name, bias)) = names::module_of(address) else { return false };
    let in_file = (address - bias) as u64;
    let modules = filter.paths.iter().take((filter.modules as usize).min(SWAP_MODULES));
    let Some(module) = modules.into_iter().position(|path| is_same(path, name.to_bytes())) else { return false };
    let fits = |range: &SwapRange| {
        range.module as usize == module
            && (range.is_code != 0) == is_code
            && (range.start..range.end).contains(&in_file)
    };
    filter.range.iter().take((filter.ranges as usize).min(SWAP_RANGES)).any(fits)
}

/// Whether a path, which ends with a NUL, is that of a module; the program itself has no name.
fn is_same(path: &[u8; SWAP_PATH_BYTES], name: &[u8]) -> bool {
    let path = path.split(|byte| *byte == 0).next().unwrap_or(&[]);
    if !name.is_empty() {
        return path == name;
    }
    // Asked for when the filter was read.
    let length = OWN_PATH_BYTES.load(Relaxed);
    let own = OWN_PATH.iter().take(length).map(|byte| byte.load(Relaxed));
    length > 0 && own.eq(path.iter().copied())
}
