//! Without thread-local storage no thread has a number.

use crate::thread_number::{ANONYMOUS, ThreadNumber};

#[inline(always)]
pub(crate) fn owner_word() -> u64 {
    ANONYMOUS
}

pub(crate) fn own_number() -> Option<ThreadNumber> {
    None
}
