//! Semaphores that hand out work: whoever waits for one is idle, and waits for no lock.

use lockmeter_profile::rules::{Is, installed};
use lockmeter_profile::{Frame, Kind};

/// Whether a rule says that this stack, which ends in a wait for a semaphore, waits for no lock.
pub fn is_wait_for_work(stack: &[Frame]) -> bool {
    installed().built(stack, Some(Kind::Semaphore)).is_some_and(|found| found.rule.is != Is::Lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_java_machines_semaphores_hand_out_work_and_those_of_its_libraries_may_be_locks() {
        let frame = |(function, module): &(&str, &str)| Frame {
            address: 0,
            function: (!function.is_empty()).then(|| (*function).to_owned()),
            offset: 0,
            module: Some((*module).to_owned()),
        };
        let told = |stack: &[(&str, &str)]| is_wait_for_work(&stack.iter().map(frame).collect::<Vec<_>>());
        let machine = ("GangWorker::loop()", "libjvm.so");
        assert!(told(&[("__new_sem_wait_slow64.constprop.0", "libc.so.6"), ("sem_wait", "libc.so.6"), machine]));
        assert!(told(&[("", "libjvm.so"), ("start_thread", "libc.so.6")]), "a machine without symbols");
        assert!(!told(&[("sem_wait", "libc.so.6"), ("Java_Pool_take", "libpool.so"), machine]));
        assert!(!told(&[("sem_wait", "libc.so.6"), ("main", "server")]));
        assert!(!told(&[]));
    }
}
