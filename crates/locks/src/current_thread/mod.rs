//! What a thread knows of itself: its number, and the word that locks keep of it as their owner.
//!
//! A thread gets its number when a lock first makes it wait, and gives it back when it ends. Getting one takes no lock, calls no loader
//! and allocates nothing (see `registration`), so that the locks also work inside an allocator, and in libraries that are preloaded into other
//! programs.

#[cfg(any(feature = "std", loom, shuttle))]
mod registration;
// A thread's own variables: a word that fast paths read, so each form is what its target reads quickest.
#[cfg(any(feature = "std", loom, shuttle))]
#[cfg_attr(
    all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(any(miri, loom, shuttle))),
    path = "initial_exec_storage.rs"
)]
#[cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(any(miri, loom, shuttle)))),
    path = "portable_storage.rs"
)]
mod storage;
#[cfg(not(any(feature = "std", loom, shuttle)))]
mod without_storage;

#[cfg(not(any(feature = "std", loom, shuttle)))]
pub(crate) use without_storage::{own_number, owner_word};

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub(crate) use registration::{forget_number, is_prepared_for_preload, prepare_for_preload};
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub(crate) use storage::{sampling_state, set_sampling_state};
#[cfg(any(feature = "std", loom, shuttle))]
pub(crate) use with_storage::{own_number, owner_word};

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub(crate) use with_storage::registered_number;

#[cfg(any(feature = "std", loom, shuttle))]
mod with_storage {
    use super::{registration, storage};
    use crate::thread_number::{ANONYMOUS, ThreadNumber, owner_word_of};
    use crate::thread_record::{ThreadRecord, record};

    /// What a lock's state is while this thread owns it and nobody waits; 0 if the thread must call [`own_number`] first. For fast paths.
    ///
    /// It does not change once it is not 0, not even when the thread has given its number back: what it locked it must unlock with the
    /// same word.
    #[inline(always)]
    pub(crate) fn owner_word() -> u64 {
        storage::word()
    }

    /// This thread's number; it gets one if it has none and one is free. From here on [`owner_word`] is not 0.
    pub(crate) fn own_number() -> Option<ThreadNumber> {
        if owner_word() == 0 {
            // First: whatever registration calls may use a lock of ours.
            storage::set_word(ANONYMOUS);
            if let Some(number) = registration::register() {
                record(number).begin();
                storage::set_number(number.get());
                storage::set_word(owner_word_of(number.get()));
            }
        }
        let own = registered_number()?;
        if !record(own).is_of_this_process() {
            // It has forked since its last wait.
            ThreadRecord::forget_threads_of_the_parent(Some(own));
        }
        Some(own)
    }

    /// This thread's number, if it has one already.
    pub(crate) fn registered_number() -> Option<ThreadNumber> {
        ThreadNumber::new(storage::number())
    }
}
