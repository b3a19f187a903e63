//! The fast paths of the locks, each in a function of its own: for `tests/fast_paths.rs`, and for a disassembler.

use lock_api::RawRwLock as _;
use lockmeter_locks::instrument::{Instrument, TimedHoldStart};
use lockmeter_locks::{RawMutex, RawPercpuRwSem, RawRwSem, RawSpin};

/// Hooks that do something.
struct Timed;

impl Instrument for Timed {
    type HoldStart = TimedHoldStart;
    const INIT: Self = Timed;

    fn named(_name: &'static str) -> Self {
        Timed
    }
}

/// A function that takes a lock and gives it back.
macro_rules! pair {
    ($name:ident, $lock:ty, $acquire:ident, $release:ident) => {
        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C" fn $name(lock: &$lock) {
            lock.$acquire();
            // SAFETY: locked above.
            unsafe { lock.$release() };
        }
    };
}

pair!(fast_mutex, RawMutex, lock, unlock);
pair!(fast_spin, RawSpin, lock, unlock);
pair!(fast_write, RawRwSem, write, unlock_write);
pair!(fast_read, RawRwSem, read, unlock_read);
pair!(fast_counted_read, RawPercpuRwSem, lock_shared, unlock_shared);
pair!(fast_mutex_metered, RawMutex<Timed>, lock, unlock);

fn main() {
    fast_mutex(&RawMutex::new());
    fast_spin(&RawSpin::new());
    fast_write(&RawRwSem::new());
    fast_read(&RawRwSem::new());
    fast_counted_read(&RawPercpuRwSem::over(RawRwSem::new()));
    fast_mutex_metered(&RawMutex::with(Timed));
    println!("every lock was taken and given back");
}
