//! The methods that all locks have: constructors, and the ways to acquire a lock. How a lock waits is its own.

/// A lock's constructors, over its `with_order`. `made`: what it is, for the documentation; `instrumented`: what it is made with.
macro_rules! constructors {
    ($lock:ident, [$($generics:tt)*] $instrumented:ty, made: $made:literal, with: $with:literal) => {
        impl $lock {
            const_unless_model! {
                #[doc = concat!("A free ", $made, ".")]
                #[must_use]
                #[allow(clippy::new_without_default)]
                #[track_caller]
                pub const fn new() -> Self {
                    Self::with_order(Unmetered, Ordered::made_here())
                }
            }
        }

        impl<$($generics)*> $instrumented {
            const_unless_model! {
                #[doc = concat!("A free ", $made, " with its ", $with, ".")]
                #[must_use]
                #[track_caller]
                pub const fn with(instrument: I) -> Self {
                    Self::with_order(instrument, Ordered::made_here())
                }
            }

            const_unless_model! {
                /// A free one that does not know where it is made.
                #[allow(dead_code, reason = "not every lock is made for `lock_api` by it")]
                pub(crate) const fn nameless(instrument: I) -> Self {
                    Self::with_order(instrument, Ordered::nameless())
                }
            }

            /// Its hooks.
            pub const fn instrument(&self) -> &I {
                &self.instrument
            }

            /// A free one with a name, for reports and for the order of locks.
            #[must_use]
            #[track_caller]
            pub fn named(name: &'static str) -> Self {
                Self::with_order(I::named(name), Ordered::named(name))
            }
        }
    };
}
pub(crate) use constructors;

/// The ways to acquire a lock that sleeps, in one mode. Each reports to the order of locks first and tries the inline `fast` path, before it
/// calls `slow`; one that only tries calls `try_slow`.
macro_rules! acquisitions {
    (
        $locks_it:literal, fast: $fast:ident, try_slow: $try_slow:ident, slow: $slow:ident($($mode:expr)?),
        $lock:ident, $nested:ident, $at:ident, $try:ident, $within:ident, $interruptible:ident, $until:ident
    ) => {
        #[doc = concat!($locks_it, ".")]
        #[inline]
        #[track_caller]
        pub fn $lock(&self) {
            self.$nested(0);
        }

        #[doc = concat!(
            $locks_it, " inside of another of its class: `subclass` makes a class of its own, for the order of locks."
        )]
        #[inline]
        #[track_caller]
        pub fn $nested(&self, subclass: u8) {
            self.order.acquire(subclass);
            if !self.$fast() {
                let _acquired = self.$slow($($mode,)? WaitLimits::default(), NoCallSite);
            }
        }

        #[doc = concat!($locks_it, ", with hooks for this call.")]
        #[inline]
        #[track_caller]
        pub fn $at(&self, site: &impl CallSite) {
            self.order.acquire(0);
            if !self.$fast() {
                let _acquired = self.$slow($($mode,)? WaitLimits::default(), site);
            }
        }

        #[doc = concat!($locks_it, " if it is free.")]
        #[inline]
        #[track_caller]
        pub fn $try(&self) -> bool {
            let locked = self.$fast() || self.$try_slow();
            if locked {
                self.order.acquired_by_try();
            }
            locked
        }

        #[doc = concat!($locks_it, " unless `timeout` is over before.")]
        ///
        /// # Errors
        ///
        /// [`NotAcquired::TimedOut`].
        #[inline]
        #[track_caller]
        pub fn $within(&self, timeout: Duration) -> Result<(), NotAcquired> {
            self.$until(|| WaitLimits { deadline: Some(Deadline::after(timeout)), interruptible: false })
        }

        #[doc = concat!($locks_it, " unless a signal handler runs in this thread while it sleeps.")]
        ///
        /// # Errors
        ///
        /// [`NotAcquired::Interrupted`].
        #[inline]
        #[track_caller]
        pub fn $interruptible(&self) -> Result<(), NotAcquired> {
            self.$until(|| WaitLimits { deadline: None, interruptible: true })
        }

        #[inline(always)]
        #[track_caller]
        fn $until(&self, limits: impl FnOnce() -> WaitLimits) -> Result<(), NotAcquired> {
            self.order.acquire(0);
            if self.$fast() {
                return Ok(());
            }
            let result = self.$slow($($mode,)? limits(), NoCallSite);
            if result.is_err() {
                self.order.release();
            }
            result
        }
    };
}
pub(crate) use acquisitions;
