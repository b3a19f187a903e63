//! Hooks: functions of the program that run when a lock of its is contended.

use std::ffi::{c_char, c_void};
use std::ptr;

use lockmeter_locks::instrument::{CallSite, Contended, Instrument, Mode, TimedHoldStart};

/// What a lock is.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum lm_kind_t {
    /// An `lm_mutex_t`.
    LM_MUTEX,
    /// An `lm_rwsem_t`.
    LM_RWSEM,
    /// An `lm_percpu_rwsem_t`.
    LM_PERCPU_RWSEM,
    /// An `lm_spin_t`.
    LM_SPIN,
}

/// How it is wanted.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum lm_mode_t {
    /// A lock that has no readers.
    LM_EXCLUSIVE,
    /// Shared with other readers.
    LM_READ,
    /// Alone, in a lock that has readers, too.
    LM_WRITE,
}

/// A contended acquisition, as a hook gets it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct lm_wait_t {
    /// Its address.
    pub lock: *const c_void,
    /// As given to its init function; NULL if none.
    pub name: *const c_char,
    /// What it is.
    pub kind: lm_kind_t,
    /// How it is wanted.
    pub mode: lm_mode_t,
}

/// Functions to call when a lock is contended, and only then; each may be NULL. They run in the thread that waits or unlocks,
/// and must not use the lock. Those given to an lm_..._at() function are for that one call, run around those of the lock, and of them only
/// `contended` and `acquired` are called. Each call of `contended` is followed by one of `acquired` or `given_up` in the same thread.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct lm_hooks_t {
    /// It could not be had at once.
    pub contended: Option<unsafe extern "C" fn(wait: *const lm_wait_t, context: *mut c_void)>,
    /// It was acquired, this long after `contended`.
    pub acquired: Option<unsafe extern "C" fn(wait: *const lm_wait_t, wait_ns: u64, context: *mut c_void)>,
    /// It was not acquired in time.
    pub given_up: Option<unsafe extern "C" fn(wait: *const lm_wait_t, wait_ns: u64, context: *mut c_void)>,
    /// It is unlocked, this long after `acquired`.
    pub released: Option<unsafe extern "C" fn(wait: *const lm_wait_t, hold_ns: u64, context: *mut c_void)>,
    /// Handed to each of them.
    pub context: *mut c_void,
}

/// The hooks of one lock. All zero: none.
#[derive(Debug)]
pub(crate) struct Hooks {
    hooks: *const lm_hooks_t,
    lock: *const c_void,
    name: *const c_char,
    kind: lm_kind_t,
}

// SAFETY: only points to what the program keeps unchanged while it uses the lock.
unsafe impl Send for Hooks {}
// SAFETY: as above.
unsafe impl Sync for Hooks {}

impl Hooks {
    /// # Safety
    ///
    /// `hooks` is null or, like `name`, stays what it is while the lock is used.
    pub(crate) unsafe fn new(
        hooks: *const lm_hooks_t,
        name: *const c_char,
        lock: *const c_void,
        kind: lm_kind_t,
    ) -> Self {
        Hooks { hooks, lock, name, kind }
    }

    fn call(&self, contended: Contended, call: impl FnOnce(&lm_hooks_t, &lm_wait_t)) {
        // SAFETY: null, or as `new` was promised.
        let Some(hooks) = (unsafe { self.hooks.as_ref() }) else { return };
        let mode = match contended.mode {
            Mode::Exclusive => lm_mode_t::LM_EXCLUSIVE,
            Mode::Read => lm_mode_t::LM_READ,
            Mode::Write => lm_mode_t::LM_WRITE,
        };
        call(hooks, &lm_wait_t { lock: self.lock, name: self.name, kind: self.kind, mode });
    }
}

/// The hooks of one call that locks.
pub(crate) struct Site<'a> {
    hooks: *const lm_hooks_t,
    of_lock: &'a Hooks,
    /// Where a lock was set up by zeroes, its hooks do not know what it is.
    lock: *const c_void,
    kind: lm_kind_t,
}

impl<'a> Site<'a> {
    /// # Safety
    ///
    /// `hooks` is null, or stays what it is until the call is over.
    pub(crate) unsafe fn new<T>(hooks: *const lm_hooks_t, of_lock: &'a Hooks, lock: *const T, kind: lm_kind_t) -> Self {
        Site { hooks, of_lock, lock: lock.cast(), kind }
    }

    fn call(&self, contended: Contended, call: impl FnOnce(&lm_hooks_t, &lm_wait_t)) {
        let at_call = Hooks { hooks: self.hooks, lock: self.lock, name: self.of_lock.name, kind: self.kind };
        at_call.call(contended, call);
    }
}

impl CallSite for Site<'_> {
    fn contended_begin(&self, contended: Contended) {
        self.call(contended, call_contended);
    }

    fn acquired(&self, contended: Contended, wait_ns: u64) {
        self.call(contended, |hooks, wait| call_acquired(hooks, wait, wait_ns));
    }
}

fn call_contended(hooks: &lm_hooks_t, wait: &lm_wait_t) {
    if let Some(hook) = hooks.contended {
        // SAFETY: the program's own function, with what it asked for.
        unsafe { hook(wait, hooks.context) };
    }
}

fn call_acquired(hooks: &lm_hooks_t, wait: &lm_wait_t, wait_ns: u64) {
    if let Some(hook) = hooks.acquired {
        // SAFETY: the program's own function, with what it asked for.
        unsafe { hook(wait, wait_ns, hooks.context) };
    }
}

impl Instrument for Hooks {
    type HoldStart = TimedHoldStart;

    const INIT: Self = Hooks { hooks: ptr::null(), lock: ptr::null(), name: ptr::null(), kind: lm_kind_t::LM_MUTEX };

    /// Names are C's here, and given to `new`.
    fn named(_name: &'static str) -> Self {
        Self::INIT
    }

    fn contended_begin(&self, contended: Contended) {
        self.call(contended, call_contended);
    }

    fn acquired(&self, contended: Contended, wait_ns: u64) {
        self.call(contended, |hooks, wait| call_acquired(hooks, wait, wait_ns));
    }

    fn given_up(&self, contended: Contended, wait_ns: u64) {
        self.call(contended, |hooks, wait| {
            if let Some(hook) = hooks.given_up {
                // SAFETY: the program's own function, with what it asked for.
                unsafe { hook(wait, wait_ns, hooks.context) };
            }
        });
    }

    fn released(&self, contended: Contended, hold_ns: u64) {
        self.call(contended, |hooks, wait| {
            if let Some(hook) = hooks.released {
                // SAFETY: the program's own function, with what it asked for.
                unsafe { hook(wait, hold_ns, hooks.context) };
            }
        });
    }
}
