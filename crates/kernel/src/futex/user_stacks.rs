//! What the stack of a program's thread tells of its sleep, no matter who took it: the source of waits, or a look at all threads.

use lockmeter_profile::{Frame, Kind, Lock};
use lockmeter_symbols::{UserWait, lock_in_variable};

use super::processes::Processes;

/// Whether a file is the library through which a program is metered from inside, which is no part of it.
pub fn is_preloaded_file(name: &str) -> bool {
    name.starts_with("liblockmeter_preload")
}

pub fn is_of_preloaded(frame: &Frame) -> bool {
    frame.module.as_deref().is_some_and(is_preloaded_file)
}

/// Leaves out what lies inside the first function with a name: it says nothing to anybody. Returns how many frames those were.
pub fn leave_nameless_out(frames: &mut Vec<Frame>) -> usize {
    let nameless = frames.iter().take_while(|frame| frame.function.is_none()).count();
    if nameless < frames.len() {
        frames.drain(..nameless);
    }
    nameless
}

/// Of a futex call only what can tell kinds of waits apart: the value of a counter would make every stack another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FutexCallKey {
    operation: u32,
    expected: u64,
}

impl FutexCallKey {
    /// Locks are recognised by small numbers and by what is no thread's id: other values make no difference.
    pub fn of(operation: u32, expected: u64) -> Self {
        let told_by = expected.trailing_zeros() == 31 || expected == 0xffff_ffff;
        Self { operation, expected: if told_by { expected } else { expected.min(3) } }
    }
}

/// The lock behind a futex word.
pub struct LockBehind {
    /// What is waited for, by the lock and by the stack.
    pub wait: UserWait,
    /// `None`: it lies on the heap.
    pub lock: Option<Lock>,
    /// `None`: the word is not part of it.
    pub address: Option<u64>,
    /// Whether it is the program's own, of which any may lie there.
    pub is_own: bool,
}

impl LockBehind {
    /// `is_shared`: other processes may map the word.
    pub fn find(
        processes: &mut Processes,
        (tgid, word, is_shared): (u32, u64, bool),
        told: UserWait,
        frames: &[Frame],
    ) -> Self {
        let mut address = told.lock_address(word);
        let place = address.and_then(|address| processes.static_place(tgid, address));
        let kind = if told.is_made_of_condition() { Kind::Condvar } else { told.kind };
        let in_variable = place.as_ref().and_then(|place| lock_in_variable(place, kind));
        let own = told.program_lock().and_then(|own| own.lock(frames));
        let is_own = own.is_some();
        let wait = if !is_own && in_variable.is_some() { told.for_a_lock() } else { told };
        let mut lock = own.or(in_variable).or_else(|| place.map(|place| place.lock()));
        if lock.is_none()
            && is_shared
            && let Some((shared, stands_for_it)) = processes.shared_lock(tgid, address.unwrap_or(word), frames)
        {
            address = address.is_some().then_some(stands_for_it);
            lock = Some(shared);
        }
        Self { wait, lock, address, is_own }
    }
}
