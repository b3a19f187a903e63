//! Tells lockmeter's in-process meter of contended acquisitions.
//!
//! The meter is the library that `lockmeter record -- COMMAND` preloads. It exports three functions for locks that are not
//! pthread's; they are looked up once, when a lock is contended first. So a program needs nothing of lockmeter at run time, and
//! links nothing: without the recorder, a contended acquisition costs two loads more.

use core::cell::Cell;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::{Contended, Instrument, Kind, Mode, TimedHoldStart};

/// Shows a lock's waits in `lockmeter record -- COMMAND`, with callers and blockers, as if it were pthread's. Like those it is
/// named by its static variable or by the function that uses it first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Metered;

/// Room for what the meter notes of a wait that has begun.
type Wait = [u64; 8];

type ContendedBegin = unsafe extern "C" fn(lock: usize, kind: usize, mode: usize, wait: *mut Wait) -> usize;
type ContendedEnd = unsafe extern "C" fn(wait: *const Wait, acquired: usize);
type Released = unsafe extern "C" fn(lock: usize, kind: usize, mode: usize);

std::thread_local! {
    /// A thread waits for one lock at a time.
    static WAIT: Cell<Option<Wait>> = const { Cell::new(None) };
}

impl Instrument for Metered {
    type HoldStart = TimedHoldStart;
    const INIT: Self = Metered;

    fn named(_name: &'static str) -> Self {
        Metered
    }

    fn contended_begin(&self, contended: Contended) {
        let Some(begin) = BEGIN.address() else { return };
        let mut wait = Wait::default();
        // SAFETY: the meter exports a function of this type by this name; it writes what it has room for.
        let metered = unsafe {
            let begin = core::mem::transmute::<*mut c_void, ContendedBegin>(begin);
            begin(contended.lock, kind_code(contended.kind), mode_code(contended.mode), &raw mut wait)
        };
        if metered != 0 {
            WAIT.set(Some(wait));
        }
    }

    fn acquired(&self, _contended: Contended, _wait_ns: u64) {
        end_wait(true);
    }

    fn given_up(&self, _contended: Contended, _wait_ns: u64) {
        end_wait(false);
    }

    fn released(&self, contended: Contended, _hold_ns: u64) {
        let Some(released) = RELEASED.address() else { return };
        // SAFETY: the meter exports a function of this type by this name.
        unsafe {
            let released = core::mem::transmute::<*mut c_void, Released>(released);
            released(contended.lock, kind_code(contended.kind), mode_code(contended.mode));
        }
    }
}

fn end_wait(acquired: bool) {
    let (Some(wait), Some(end)) = (WAIT.take(), END.address()) else { return };
    // SAFETY: the meter exports a function of this type by this name; `wait` is what its beginning wrote, and was taken.
    unsafe {
        let end = core::mem::transmute::<*mut c_void, ContendedEnd>(end);
        end(&raw const wait, usize::from(acquired));
    }
}

/// A function that the meter exports, if it is loaded.
struct Exported {
    name: &'static CStr,
    /// [`UNKNOWN`], [`ABSENT`], or where it is.
    address: AtomicUsize,
}

const UNKNOWN: usize = 0;
const ABSENT: usize = 1;

static BEGIN: Exported = Exported::new(c"lockmeter_lock_contended_begin");
static END: Exported = Exported::new(c"lockmeter_lock_contended_end");
static RELEASED: Exported = Exported::new(c"lockmeter_lock_released");

impl Exported {
    const fn new(name: &'static CStr) -> Self {
        Exported { name, address: AtomicUsize::new(UNKNOWN) }
    }

    fn address(&self) -> Option<*mut c_void> {
        match self.address.load(Relaxed) {
            UNKNOWN => self.look_up(),
            ABSENT => None,
            address => Some(address as *mut c_void),
        }
    }

    #[cold]
    fn look_up(&self) -> Option<*mut c_void> {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) };
        self.address.store(if found.is_null() { ABSENT } else { found as usize }, Relaxed);
        (!found.is_null()).then_some(found)
    }
}

/// The numbers of the meter's layout.
fn kind_code(kind: Kind) -> usize {
    match kind {
        Kind::Spin => 1,
        Kind::Mutex => 3,
        Kind::RwSem => 4,
        Kind::PercpuRwSem => 5,
    }
}

/// The numbers of the meter's layout.
fn mode_code(mode: Mode) -> usize {
    match mode {
        Mode::Exclusive => 1,
        Mode::Read => 2,
        Mode::Write => 3,
    }
}
