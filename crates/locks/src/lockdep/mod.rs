//! Lock-order checking (feature `lockdep`): reports the first order of locks that *could* deadlock, whether or not it did.
//!
//! Locks belong to classes: those made at one place in the source, or by one name, are one class, because they are used alike;
//! a lock made by `lock_api`'s own constructors has no place, and is a class of its own. Whenever a lock is taken while others
//! are held, "this class after that one" is noted; an order that closes a circle is reported with both chains. The rules are
//! those of Linux's lockdep:
//!
//! * Two locks of one class must not be nested, except with different subclasses (`lock_nested`), which are classes of their own.
//! * A try cannot wait, so nothing comes before a lock that a try has taken; but other locks come after it.
//! * A reader waits for writers, and for those that wait before it, so reading counts as writing does.
//!
//! Without the feature all of this is empty, and takes no room in a lock.

#[cfg(feature = "lockdep")]
mod graph;
#[cfg(feature = "lockdep")]
mod held;
#[cfg(feature = "lockdep")]
mod report;

#[cfg(feature = "lockdep")]
pub use report::{OnReport, Report, Step, on_report};

/// What a lock is to the order of locks.
#[derive(Debug)]
pub(crate) struct Ordered {
    #[cfg(feature = "lockdep")]
    class: graph::LockClass,
}

impl Ordered {
    /// A lock that is made by the caller.
    #[track_caller]
    pub(crate) const fn made_here() -> Self {
        Ordered {
            #[cfg(feature = "lockdep")]
            class: graph::LockClass::made_at(core::panic::Location::caller()),
        }
    }

    /// A lock with a name.
    #[track_caller]
    pub(crate) const fn named(_name: &'static str) -> Self {
        Ordered {
            #[cfg(feature = "lockdep")]
            class: graph::LockClass::named(_name),
        }
    }

    /// A lock of which nobody knows where it is made.
    pub(crate) const fn nameless() -> Self {
        Ordered {
            #[cfg(feature = "lockdep")]
            class: graph::LockClass::alone(),
        }
    }

    /// The thread is about to wait for the lock, or to take it.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn acquire(&self, _subclass: u8) {
        #[cfg(feature = "lockdep")]
        held::acquire(&self.class, _subclass, core::panic::Location::caller());
    }

    /// The thread took the lock without waiting, and would not have waited.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn acquired_by_try(&self) {
        #[cfg(feature = "lockdep")]
        held::push(&self.class, 0, core::panic::Location::caller());
    }

    /// The thread releases the lock, or did not get it.
    #[inline(always)]
    pub(crate) fn release(&self) {
        #[cfg(feature = "lockdep")]
        held::release(&self.class);
    }
}
