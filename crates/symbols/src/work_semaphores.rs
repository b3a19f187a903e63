//! Semaphores that hand out work, or tell that a thread has ended: the one that waits for one is idle, and waits for no lock.

use lockmeter_profile::rules::{Is, installed, is_of_c_library};
use lockmeter_profile::{Frame, Kind};

use crate::heap_locks::{evaluates_python, is_of_python};

/// Whether a rule says that this stack, which ends in a wait for a semaphore, waits for no lock.
pub fn is_wait_for_work(stack: &[Frame]) -> bool {
    installed().built(stack, Some(Kind::Semaphore)).is_some_and(|found| found.rule.is != Is::Lock)
}

/// Whether the thread with the first stack waited until the thread with the second one ended. CPython's `Thread.join` waits for a lock
/// that the interpreter releases when all of the thread's Python code has returned.
pub fn is_wait_for_end_of_thread(waiter: &[Frame], releaser: &[Frame]) -> bool {
    let is_pythons = |stack: &[Frame]| stack.iter().find(|frame| !is_of_c_library(frame)).is_some_and(is_of_python);
    // Where a thread begins, without names of inner functions.
    let is_begin =
        |frame: &Frame| is_of_c_library(frame) && matches!(frame.function.as_deref(), None | Some("start_thread"));
    let is_whole = releaser.iter().rev().take(2).any(is_begin);
    let code_has_returned = is_whole && !releaser.iter().any(evaluates_python);
    is_pythons(waiter) && is_pythons(releaser) && waiter.iter().any(evaluates_python) && code_has_returned
}

/// The function by which Python's own code was left for a wait. All of its waits for semaphores lie in one function, but `with lock` calls
/// that otherwise than `join` and `acquire` do.
pub fn call_of_evaluator(stack: &[Frame]) -> Option<&str> {
    let evaluator = stack.iter().position(evaluates_python)?;
    stack[..evaluator].last()?.function.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |(function, module): &(&str, &str)| Frame {
            address: 0,
            function: (!function.is_empty()).then(|| (*function).to_owned()),
            offset: 0,
            module: Some((*module).to_owned()),
        };
        frames.iter().map(frame).collect()
    }

    #[test]
    fn python_code_that_waits_for_what_no_python_code_releases_waits_for_the_end_of_a_thread() {
        let (inner, code) = (("", "python3.11"), ("_PyEval_EvalFrameDefault", "python3.11"));
        let (begin, call) = (("start_thread", "libc.so.6"), ("sem_post", "libc.so.6"));
        let told = |releaser: &[(&str, &str)]| is_wait_for_end_of_thread(&stack(&[inner, code]), &stack(releaser));
        assert!(told(&[inner, inner, begin]));
        assert!(told(&[call, inner, inner, ("", "libc.so.6"), ("clone", "libc.so.6")]), "from outside");
        assert!(!told(&[inner, code, inner, begin]), "a lock");
        assert!(!told(&[inner, inner]), "nobody knows what is further out");
        assert!(!told(&[("post", "libpool.so"), begin]), "another library's");
        assert!(
            !is_wait_for_end_of_thread(&stack(&[inner, begin]), &stack(&[inner, inner, begin])),
            "not by Python code"
        );
    }

    #[test]
    fn the_java_machines_semaphores_hand_out_work_and_those_of_its_libraries_may_be_locks() {
        let told = |frames: &[(&str, &str)]| is_wait_for_work(&stack(frames));
        let machine = ("GangWorker::loop()", "libjvm.so");
        assert!(told(&[("__new_sem_wait_slow64.constprop.0", "libc.so.6"), ("sem_wait", "libc.so.6"), machine]));
        assert!(told(&[("", "libjvm.so"), ("start_thread", "libc.so.6")]), "a machine without symbols");
        assert!(!told(&[("sem_wait", "libc.so.6"), ("Java_Pool_take", "libpool.so"), machine]));
        assert!(!told(&[("sem_wait", "libc.so.6"), ("main", "server")]));
        assert!(!told(&[]));
    }
}
