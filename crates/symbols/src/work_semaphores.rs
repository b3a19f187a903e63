//! Semaphores that hand out work: whoever waits for one is idle, and waits for no lock.

use lockmeter_profile::Frame;

use crate::java_parks::JAVA_MACHINE;

/// Whether this stack, which ends in a wait for a semaphore, waits for work. HotSpot's locks are mutexes; with semaphores it tells its
/// threads that there is work or that it is done.
pub fn is_wait_for_work(stack: &[Frame]) -> bool {
    let caller = stack.iter().find(|frame| !is_of_libc(frame));
    caller.and_then(|frame| frame.module.as_deref()) == Some(JAVA_MACHINE)
}

/// Whether a frame belongs to the C library.
pub(crate) fn is_of_libc(frame: &Frame) -> bool {
    let module = frame.module.as_deref().unwrap_or_default();
    ["libc.so", "libc-", "libpthread"].iter().any(|start| module.starts_with(start))
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
