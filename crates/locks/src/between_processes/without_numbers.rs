//! Where threads have no numbers, or no other process can be: nothing but the futexes need be shared.

use std::io;

pub(super) fn share_numbers() -> io::Result<()> {
    #[cfg(feature = "preload")]
    if crate::preloaded::gives_numbers() {
        let why = "a preloaded library numbers the threads of each process for itself: its locks cannot be shared";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

/// What is never there.
#[cfg(not(feature = "preload"))]
pub(crate) enum Places {}

#[cfg(not(feature = "preload"))]
impl Places {
    pub(crate) fn shared() -> Option<&'static Self> {
        None
    }

    pub(crate) fn claim(&self, _slot: crate::threads::Slot) -> bool {
        match *self {}
    }

    pub(crate) fn give_back(&self, _slot: crate::threads::Slot) {
        match *self {}
    }

    pub(crate) fn publish_cpu(&self, _slot: crate::threads::Slot) {
        match *self {}
    }
}
