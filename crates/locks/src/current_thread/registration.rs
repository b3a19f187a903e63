//! How a thread gets its number, and gives it back.

use crate::thread_number::ThreadNumber;
use crate::thread_record::{find_number, record};

#[cfg(not(any(loom, shuttle)))]
pub(crate) use key::{forget_number, is_prepared_for_preload, prepare_for_preload};

#[cfg(any(loom, shuttle))]
pub(super) fn register() -> Option<ThreadNumber> {
    find_number(|number| record(number).take_if_free())
}

#[cfg(not(any(loom, shuttle)))]
#[cold]
pub(super) fn register() -> Option<ThreadNumber> {
    use crate::rseq_area;
    use crate::shared_numbers::SharedNumbers;

    let key = key::get()?;
    let number = if let Some(shared) = SharedNumbers::get() {
        let number = find_number(|number| shared.take(number))?;
        shared.publish_cpu(number);
        number
    } else {
        let number = find_number(|number| record(number).take_if_free())?;
        record(number).publish_cpu(rseq_area::glibc_cpu());
        number
    };
    key::give_back_at_end(key, number);
    Some(number)
}

/// The thread-specific key whose destructor gives a number back. Other than the destructor of a thread-local variable, it is registered without
/// allocating.
#[cfg(not(any(loom, shuttle)))]
mod key {
    use core::ffi::c_void;
    use core::sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed},
    };

    use super::super::storage;
    use crate::shared_numbers::SharedNumbers;
    use crate::thread_number::{ThreadNumber, UNKNOWN};
    use crate::thread_record::{number_is_free, record};
    use crate::{generation, rseq_area};

    /// There is no key yet.
    const NO_KEY: u32 = u32::MAX;
    static KEY: AtomicU32 = AtomicU32::new(NO_KEY);

    /// Whether the locks are those of a preloaded library.
    static PRELOADED: AtomicBool = AtomicBool::new(false);

    /// glibc keeps the values of the first keys inside the thread; later ones it would allocate.
    const KEYS_WITHOUT_ALLOCATION: u32 = 32;

    /// The key, if there is one that may be used. The first call makes it.
    pub(super) fn get() -> Option<u32> {
        let key = match KEY.load(Acquire) {
            NO_KEY => create()?,
            key => key,
        };
        (!PRELOADED.load(Relaxed) || key < KEYS_WITHOUT_ALLOCATION).then_some(key)
    }

    fn create() -> Option<u32> {
        let mut key = 0;
        // SAFETY: writes the key; the destructor lives as long as the code that locks.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) } != 0 {
            return None;
        }
        match KEY.compare_exchange(NO_KEY, key, AcqRel, Acquire) {
            Ok(_) => Some(key),
            Err(first) => {
                // SAFETY: just created, and no thread has a value for it.
                unsafe { libc::pthread_key_delete(key) };
                Some(first)
            }
        }
    }

    pub(super) fn give_back_at_end(key: u32, number: ThreadNumber) {
        // SAFETY: the key was created, and is never deleted. The value is not a pointer that anybody follows.
        unsafe { libc::pthread_setspecific(key, core::ptr::without_provenance(number.get() as usize)) };
    }

    /// The thread ends. Its owner word stays, so that it gets no number again, which nobody would give back.
    unsafe extern "C" fn leave(_: *mut c_void) {
        let number = ThreadNumber::new(storage::number());
        storage::set_number(UNKNOWN);
        let Some(number) = number else { return };
        if let Some(shared) = SharedNumbers::get() {
            shared.give_back(number);
        } else {
            record(number).give_back();
        }
        number_is_free(number);
    }

    /// Does now what later would need memory or the loader.
    pub(crate) fn prepare_for_preload() {
        PRELOADED.store(true, Relaxed);
        generation::process_mark();
        rseq_area::glibc_cpu();
        get();
    }

    /// Whether that was done.
    pub(crate) fn is_prepared_for_preload() -> bool {
        PRELOADED.load(Relaxed)
    }

    /// In a forked child with shared numbers: the number is its parent's. It gets one of its own when it needs one.
    pub(crate) fn forget_number() {
        storage::set_number(UNKNOWN);
        storage::set_word(0);
    }
}
