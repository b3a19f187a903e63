//! Which CPU a thread runs on, where that is not left to the kernel.
//!
//! Where a CPU is refused, as in a container that has fewer than it was told, the thread runs wherever the kernel lets it.

/// The CPUs that this thread may run on.
pub fn allowed() -> Vec<usize> {
    // SAFETY: an all-zero set of CPUs is an empty one, and the kernel writes no more than its size.
    let allowed = unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed);
        allowed
    };
    let all = 0..usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: reads a set that is ours, at places that it has.
    all.filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) }).collect()
}

/// This thread stays on one of the CPUs that it may run on: numbers count them round and round.
pub fn stay_on(number: usize) {
    let here = allowed();
    if let Some(cpu) = here.get(number % here.len().max(1)) {
        confine_to(*cpu);
    }
}

/// This thread stays where it is.
pub fn stay_here() {
    // SAFETY: reads the number of the CPU.
    confine_to(usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0));
}

fn confine_to(cpu: usize) {
    // SAFETY: an all-zero set of CPUs is an empty one; the kernel reads it, and only this thread is confined.
    unsafe {
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut only);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const only);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes sure that threads are dealt out: two neighbours share a CPU only where there is but one.
    #[test]
    fn neighbours_stay_on_cpus_of_their_own() {
        let on = |number: usize| {
            std::thread::spawn(move || {
                stay_on(number);
                std::thread::yield_now();
                // SAFETY: reads the number of the CPU.
                unsafe { libc::sched_getcpu() }
            })
            .join()
            .unwrap()
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(on(0) == on(1), cpus == 1);
        assert_eq!(on(0), on(cpus));
    }
}
