//! What a thread that runs waits for: told from the functions on its stack, as for threads that sleep.

use lockmeter_profile::rules::{DEEPEST, Layer, Rule, installed, is_of_c_library};
use lockmeter_profile::{Frame, Happened, Kind, Lock, Mode};

/// What a thread spins for.
#[derive(Debug, Clone, Copy)]
pub struct UserSpin {
    rule: &'static Rule,
    /// Of which frame.
    at: usize,
}

/// Whether threads that run code of a file of this name may spin in functions without a loop that tells it.
pub fn has_own_spins(file: &str) -> bool {
    installed().watches_spins(file)
}

impl UserSpin {
    /// Tells from a stack, innermost frame first, of a thread that runs. Is it not known to be in a loop that waits, only functions count
    /// that do nothing else. `None`: nothing says what it waits for, if for anything.
    pub fn tell(stack: &[Frame], is_in_loop: bool) -> Option<Self> {
        let rules = installed();
        let stack = &stack[..stack.len().min(DEEPEST)];
        // What the program does in a function of its own, which a lock's called back, is not the lock's.
        let near = stack.iter().take_while(|frame| is_part_of_wait(frame)).count();
        let primitive = stack.iter().take(near).enumerate().find_map(|(at, frame)| {
            let function = frame.function.as_deref()?;
            Some(Self { rule: rules.primitive(function).or_else(|| rules.floor(function))?, at })
        });
        let of = primitive.map_or(Kind::Futex, |found| found.rule.kind);
        let built = rules
            .built_by_runner(stack, of)
            .filter(|found| found.at <= near)
            .map(|found| Self { rule: found.rule, at: found.at });
        // Whether it is a rule that goes by the word's value, only sleepers tell.
        let found = built.or(primitive).filter(|found| found.rule.value.is_none())?;
        (is_in_loop || found.rule.spins).then_some(found)
    }

    /// Waits for locks are `Wait`, all others `Idle`.
    pub const fn happened(self) -> Happened {
        self.rule.is.happened()
    }

    /// The kind of lock.
    pub const fn kind(self) -> Kind {
        self.rule.kind
    }

    /// In which mode it is asked for.
    pub const fn mode(self) -> Mode {
        self.rule.mode
    }

    /// The lock, if the rule names it.
    pub fn lock(self, stack: &[Frame]) -> Option<Lock> {
        self.rule.lock(stack)
    }

    /// Whether the register with the first argument holds the lock's address.
    pub fn has_address(self) -> bool {
        self.rule.layer == Layer::Primitive && self.rule.address_in_argument && self.at == 0
    }
}

/// Whether what stands further in than this frame may belong to a wait.
fn is_part_of_wait(frame: &Frame) -> bool {
    let Some(function) = frame.function.as_deref() else { return true };
    let rules = installed();
    is_of_c_library(frame)
        || rules.primitive(function).is_some()
        || rules.floor(function).is_some()
        || rules.is_part_of_lock(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |(function, file): &(&str, &str)| Frame {
            address: 0,
            function: (!function.is_empty()).then(|| (*function).to_owned()),
            offset: 0,
            module: Some((*file).to_owned()),
        };
        frames.iter().map(frame).collect()
    }

    /// The kind of what a thread in a loop that waits is told to wait for, and whether its lock's address is known.
    fn told(frames: &[(&str, &str)]) -> Option<(Happened, Kind, bool)> {
        UserSpin::tell(&stack(frames), true).map(|spin| (spin.happened(), spin.kind(), spin.has_address()))
    }

    /// A stack, the kind of the lock that it tells, and whether the lock's address is known.
    type Known = (&'static [(&'static str, &'static str)], (Kind, bool));

    #[test]
    fn loops_of_lock_functions_are_for_that_lock() {
        use Happened::Wait;
        const LIBC: &str = "libc.so.6";
        let known: &[Known] = &[
            (&[("pthread_spin_lock", LIBC), ("work", "program")], (Kind::Spin, true)),
            (&[("___pthread_mutex_lock", LIBC), ("work", "program")], (Kind::Mutex, true)),
            (
                &[
                    ("__sched_yield", LIBC),
                    ("std::thread::functions::yield_now", "program"),
                    ("parking_lot::raw_mutex::RawMutex::lock_slow", "program"),
                    ("work", "program"),
                ],
                (Kind::Mutex, false),
            ),
            (
                &[("std::sys::sync::mutex::futex::Mutex::lock_contended", "program"), ("work", "program")],
                (Kind::Mutex, false),
            ),
            (&[("__sched_yield", LIBC), ("tbb::detail::d1::spin_mutex::lock()", "program")], (Kind::Spin, false)),
            (&[("perform_spin_delay", "postgres"), ("s_lock", "postgres")], (Kind::Spin, false)),
            (
                &[("clock_nanosleep", LIBC), ("pg_usleep", "postgres"), ("perform_spin_delay", "postgres")],
                (Kind::Spin, false),
            ),
        ];
        for (frames, (kind, has_address)) in known {
            assert_eq!(told(frames), Some((Wait, *kind, *has_address)), "{frames:?}");
        }
        let spin = UserSpin::tell(&stack(&[("s_lock", "postgres")]), false).unwrap();
        assert_eq!(spin.lock(&stack(&[("s_lock", "postgres")])).unwrap().name, "PostgreSQL spinlock");
    }

    /// A thread that takes a free lock runs there, too.
    #[test]
    fn outside_of_loops_only_functions_count_that_do_nothing_but_spin() {
        let tells = |frames: &[(&str, &str)]| UserSpin::tell(&stack(frames), false).is_some();
        assert!(!tells(&[("pthread_spin_lock", "libc.so.6"), ("work", "program")]));
        assert!(!tells(&[("___pthread_mutex_lock", "libc.so.6"), ("work", "program")]));
        assert!(tells(&[("absl::debian3::base_internal::SpinLock::SlowLock()", "libabsl_base.so.20220623")]));
        assert!(!tells(&[("absl::debian3::base_internal::SpinLock::SlowLock()", "program")]), "of another file");
        assert!(has_own_spins("postgres") && !has_own_spins("program"));
    }

    /// Regression: a loop of the program's own, in a function that `pthread_once` had called, was one for that lock.
    #[test]
    fn a_loop_in_a_function_that_a_lock_has_called_is_the_programs() {
        assert_eq!(told(&[("fill_table", "program"), ("__pthread_once_slow", "libc.so.6"), ("work", "program")]), None);
        assert_eq!(told(&[("take_with_pause", "program"), ("main", "program")]), None);
        assert_eq!(told(&[("", "mariadbd"), ("", "mariadbd"), ("handler::ha_write_row", "mariadbd")]), None);
    }

    /// Its locks and its barriers spin in the same code, and jump there.
    #[test]
    fn openmps_loops_are_for_it_is_not_known_what() {
        assert_eq!(told(&[("", "libgomp.so.1.0.0"), ("work", "program")]), None);
    }
}
