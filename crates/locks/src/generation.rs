//! Which process a lock's waiters belong to.
//!
//! `fork` copies a lock with its marks and queues, but not the threads that wait for it. In the child nobody would ever take
//! what is reserved for such a thread. So each lock notes the generation of the process, counted in forks, in which somebody
//! last had to wait for it. The first thread that has to wait in a child finds another generation there, and drops the waiters.
//!
//! The kernel says that a process is a child: it clears a page there (`MADV_WIPEONFORK`). No handler has to run for that, so it
//! also holds within handlers of `pthread_atfork`, whatever their order, and for children that a bare system call made.
//!
//! Only slow paths look at any of this.

#[cfg(not(any(loom, shuttle, miri)))]
pub use native::Generation;
#[cfg(all(not(any(loom, shuttle, miri)), feature = "std"))]
pub(crate) use native::keep_in_children;
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) use native::process_mark;
#[cfg(any(loom, shuttle, miri))]
pub use without_forks::Generation;
#[cfg(all(miri, feature = "std"))]
pub(crate) use without_forks::keep_in_children;
#[cfg(any(loom, shuttle, miri))]
pub(crate) use without_forks::process_mark;

#[cfg(not(any(loom, shuttle, miri)))]
mod native {
    use core::ptr;
    use core::sync::atomic::{
        AtomicPtr, AtomicU16, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    };

    use crate::sync::yield_now;

    /// The generation of a process; 0 in the first that uses locks.
    #[derive(Debug)]
    pub struct Generation(AtomicU16);

    /// In a [`Generation`]: a thread of that generation is dropping the waiters of another.
    const CHANGING: u16 = 1 << 15;

    impl Generation {
        /// That of the first process.
        #[allow(clippy::new_without_default)]
        pub const fn first() -> Self {
            Generation(AtomicU16::new(0))
        }

        /// Calls `drop_waiters` if this is another generation than that of the process. When this returns, one thread has done so, and
        /// nobody has come to wait before it had.
        #[inline]
        pub fn enter(&self, drop_waiters: impl FnOnce()) {
            if self.0.load(Acquire) != current() {
                self.change(drop_waiters);
            }
        }

        #[cold]
        #[inline(never)]
        fn change(&self, drop_waiters: impl FnOnce()) {
            let current = current();
            loop {
                let here = self.0.load(Acquire);
                if here == current {
                    return;
                }
                if here == current | CHANGING {
                    // Another thread makes its last few steps.
                    yield_now();
                } else if self.0.compare_exchange(here, current | CHANGING, Acquire, Relaxed).is_ok() {
                    drop_waiters();
                    self.0.store(current, Release);
                    return;
                }
            }
        }
    }

    /// A page that is all zeroes in a forked child. Its first word is one more than the generation, and 0 while that is not known.
    static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
    /// Takes its place where the kernel has no such page: then all processes are of one generation.
    static ONLY_WORD: AtomicU32 = AtomicU32::new(1);
    /// The highest such word that this process or one before it has had, or is about to have.
    static HIGHEST: AtomicU32 = AtomicU32::new(0);
    /// The word that children have, too; 0: each has its own.
    static KEPT: AtomicU32 = AtomicU32::new(0);

    /// The page's size on most machines. Where pages are larger, this gives one of those.
    const PAGE_BYTES: usize = 4096;

    #[inline]
    fn current() -> u16 {
        let page = PAGE.load(Acquire);
        // SAFETY: null, or a word that is never unmapped.
        let known = unsafe { page.as_ref() }.map_or(0, |word| word.load(Relaxed));
        let word = if known == 0 { begin() } else { known };
        (word.wrapping_sub(1) as u16) & !CHANGING
    }

    /// The mark that threads of this process put on what is theirs: no process before it has had the same. Not 0.
    #[inline]
    pub(crate) fn process_mark() -> u32 {
        u32::from(current()) + 1
    }

    /// The word of this process, which is a new one.
    #[cold]
    #[inline(never)]
    fn begin() -> u32 {
        let word = page();
        let new = match KEPT.load(Relaxed) {
            // Counted before it is used: a child that is forked in between must not come to the same.
            0 => HIGHEST.fetch_add(1, Relaxed) + 1,
            kept => kept,
        };
        word.compare_exchange(0, new, AcqRel, Acquire).map_or_else(|first| first, |_| new)
    }

    /// Children forked from now on are of this process's generation: they share locks, and the threads that wait for these.
    #[cfg(feature = "std")]
    pub(crate) fn keep_in_children() {
        current();
        KEPT.store(page().load(Relaxed), Relaxed);
    }

    fn page() -> &'static AtomicU32 {
        // SAFETY: null, or a word that is never unmapped.
        if let Some(word) = unsafe { PAGE.load(Acquire).as_ref() } {
            return word;
        }
        let word = map().unwrap_or((&raw const ONLY_WORD).cast_mut());
        let there = match PAGE.compare_exchange(ptr::null_mut(), word, AcqRel, Acquire) {
            Ok(_) => word,
            Err(first) => {
                if !ptr::eq(word, &raw const ONLY_WORD) {
                    // SAFETY: just mapped, and nobody knows of it.
                    unsafe { libc::munmap(word.cast(), PAGE_BYTES) };
                }
                first
            }
        };
        // SAFETY: a static, or a mapping that is never unmapped; zeroes are a valid word.
        unsafe { &*there }
    }

    fn map() -> Option<*mut AtomicU32> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, which is given back if the kernel does not know such pages. Errno is kept.
        unsafe {
            let errno = libc::__errno_location();
            let before = errno.read();
            let mut mapped = libc::mmap(ptr::null_mut(), PAGE_BYTES, access, flags, -1, 0);
            if mapped != libc::MAP_FAILED && libc::madvise(mapped, PAGE_BYTES, libc::MADV_WIPEONFORK) != 0 {
                libc::munmap(mapped, PAGE_BYTES);
                mapped = libc::MAP_FAILED;
            }
            errno.write(before);
            (mapped != libc::MAP_FAILED).then_some(mapped.cast())
        }
    }

    #[cfg(all(test, feature = "std"))]
    mod tests {
        use super::*;

        /// Makes sure that a child, and a child of that, each find a lock's waiters to be another's, once.
        #[test]
        fn a_forked_child_is_of_the_next_generation() {
            let generation = Generation::first();
            let enter = || {
                let mut dropped = false;
                generation.enter(|| dropped = true);
                dropped
            };
            enter();
            assert!(!enter(), "one process is of one generation");
            let in_child = |body: &dyn Fn() -> bool| {
                // SAFETY: the child uses nothing that another thread might hold.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::alarm(60);
                        libc::_exit(i32::from(!body()));
                    }
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                    status == 0
                }
            };
            assert!(in_child(&|| enter() && !enter() && in_child(&|| enter() && !enter())));
            assert!(!enter(), "a fork changes nothing in the parent");
        }
    }
}

/// Neither models nor miri fork.
#[cfg(any(loom, shuttle, miri))]
mod without_forks {
    #[derive(Debug)]
    pub struct Generation;

    impl Generation {
        pub const fn first() -> Self {
            Generation
        }

        pub fn enter(&self, _drop_waiters: impl FnOnce()) {}
    }

    pub(crate) fn process_mark() -> u32 {
        1
    }

    #[cfg(all(miri, feature = "std"))]
    pub(crate) fn keep_in_children() {}
}
