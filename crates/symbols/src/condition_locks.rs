//! Locks that are made of a condition variable: the one that waits for the condition waits for a lock, and is not idle.
//!
//! They are recognised by a rule, by the shape of the name of the function that waits (`SharedMutex::lock`), or by the variable: CPython's
//! interpreter lock (the GIL) lies in `_PyRuntime`, also in interpreters that are installed without the names of their inner functions.

use lockmeter_profile::lock_functions::{is_called_like_a_lock, is_user_lock_function, is_user_machinery, own_name};
use lockmeter_profile::rules::{Is, installed};
use lockmeter_profile::{Frame, Kind, Lock, Mode};

use crate::StaticPlace;

/// How far from its inner end a stack is looked at: beyond it are callers.
const DEEPEST: usize = 8;

/// Words that make a function the condition's, not a lock's.
const CONDITIONS: &[&str] = &["cond", "Cond", "condition", "wait", "Wait", "unlock", "Unlock", "signal", "notify"];

const READERS: &[&str] = &["read", "Read", "shared", "Shared", "rdlock", "rlock", "RLock"];

/// The kind and mode of the lock that this stack, which ends in a wait for a condition, waits for, and its name if a rule gives it one;
/// `None` if it is idle.
pub fn lock_made_of_condition(stack: &[Frame]) -> Option<(Kind, Mode, Option<Lock>)> {
    match installed().built(stack, Some(Kind::Condvar)) {
        Some(found) => (found.rule.is == Is::Lock).then(|| (found.rule.kind, found.rule.mode, found.rule.lock(stack))),
        None => by_shape(stack).map(|(kind, mode)| (kind, mode, None)),
    }
}

/// The same by the shape of names alone.
pub(crate) fn by_shape(stack: &[Frame]) -> Option<(Kind, Mode)> {
    let functions = stack.iter().take(DEEPEST).filter_map(|frame| frame.function.as_deref());
    for function in functions {
        let name = own_name(function);
        let is_of_condition = CONDITIONS.iter().any(|word| name.contains(word));
        if is_called_like_a_lock(function) && !is_of_condition && !is_user_lock_function(function) {
            let is_reader = READERS.iter().any(|word| name.contains(word));
            return Some(if is_reader { (Kind::Rwlock, Mode::Read) } else { (Kind::Mutex, Mode::Exclusive) });
        }
        if !is_user_machinery(function) && !is_of_condition {
            return None;
        }
    }
    None
}

/// The lock that a rule says lies in this variable: CPython's interpreter lock is the condition that threads wait for, or the mutex inside.
pub fn lock_in_variable(place: &StaticPlace, kind: Kind) -> Option<Lock> {
    let (variable, _) = place.variable.as_ref()?;
    let name = installed().of_variable(variable, kind)?.name.as_deref()?;
    let lock = place.lock();
    Some(Lock { name: format!("{}:{name}", place.file), detail: lock.name, ..lock })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoVariable;

    fn told(functions: &[&str]) -> Option<(Kind, Mode)> {
        let frame = |name: &&str| Frame { address: 0, function: Some((*name).to_owned()), offset: 0, module: None };
        lock_made_of_condition(&functions.iter().map(frame).collect::<Vec<_>>()).map(|(kind, mode, _)| (kind, mode))
    }

    #[test]
    fn locks_made_of_conditions_are_told_by_who_waits() {
        let exclusive = Some((Kind::Mutex, Mode::Exclusive));
        assert_eq!(told(&["pthread_cond_timedwait", "take_gil", "PyEval_RestoreThread"]), exclusive);
        assert_eq!(told(&["pthread_cond_wait", "boost::shared_mutex::lock()", "serve"]), exclusive);
        let shared = ["pthread_cond_wait", "std::condition_variable::wait(x)", "SharedMutex::lock_shared()", "serve"];
        assert_eq!(told(&shared), Some((Kind::Rwlock, Mode::Read)));
        let metadata = ["pthread_cond_timedwait", "inline_mysql_cond_timedwait", "MDL_wait::timed_wait"];
        let metadata = told(&[&metadata[..], &["MDL_context::acquire_lock"]].concat());
        assert_eq!(metadata, Some((Kind::Rwlock, Mode::Exclusive)));
    }

    #[test]
    fn waits_for_work_are_idle() {
        assert_eq!(told(&["pthread_cond_wait", "std::condition_variable::wait(x)", "Queue::pop()", "main"]), None);
        assert_eq!(told(&["pthread_cond_wait", "uv_cond_wait", "worker", "lock_and_run"]), None);
        assert_eq!(told(&["pthread_cond_wait", "wait_for_work", "do_lock"]), Some((Kind::Mutex, Mode::Exclusive)));
        assert_eq!(told(&["pthread_cond_wait"]), None);
    }

    #[test]
    fn pythons_interpreter_lock_is_told_by_its_variable() {
        let place = |variable: &str| StaticPlace {
            file: "python3.11".to_owned(),
            variable: Some((variable.to_owned(), 0x188)),
            no_variable: NoVariable::NoSymbol,
            address: 0x1000,
        };
        let name = |variable: &str, kind| lock_in_variable(&place(variable), kind).map(|lock| lock.name);
        assert_eq!(name("_PyRuntime", Kind::Condvar).as_deref(), Some("python3.11:GIL"));
        assert_eq!(name("_PyRuntime", Kind::Mutex).as_deref(), Some("python3.11:GIL's mutex"));
        assert_eq!(name("_PyRuntime", Kind::Semaphore), None);
        assert_eq!(name("pool", Kind::Condvar), None);
    }
}
