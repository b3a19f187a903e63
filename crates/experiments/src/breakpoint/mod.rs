//! Breakpoint constraints accounting, the change of 2022: (a) the kernel's own, through `perf_event_open`; (b) its designs before
//! and after, in user space.

pub mod designs;
pub mod kernel;
pub mod race;

use std::fmt;

use serde::Serialize;

/// As `perf bench breakpoint thread` takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Breakpoints that every thread inherits.
    pub breakpoints: usize,
    /// Threads that create and join others at once.
    pub parallelism: usize,
    /// Threads in a batch.
    pub threads: usize,
    /// Batches, of all parallel threads together.
    pub repeat: usize,
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Timing {
    /// What ran.
    pub shape: Shape,
    /// From the first thread's creation to the last one's end.
    pub total_ns: u64,
}

impl Timing {
    /// Microseconds for each thread created and joined.
    pub fn usecs_per_op(&self) -> f64 {
        let operations = self.shape.threads * self.shape.repeat;
        to_f64(self.total_ns) / 1e3 / to_f64(operations as u64)
    }

    /// The same for each parallel thread.
    pub fn usecs_per_op_per_cpu(&self) -> f64 {
        self.usecs_per_op() * to_f64(self.shape.parallelism as u64)
    }
}

/// The fields of `perf bench breakpoint thread`.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { breakpoints, parallelism, repeat, .. } = self.shape;
        writeln!(f, "# Created/joined {repeat} threads with {breakpoints} breakpoints and {parallelism} parallelism")?;
        writeln!(f, " {:>14}: {:.3} [sec]\n", "Total time", to_f64(self.total_ns) / 1e9)?;
        writeln!(f, " {:>14.6} usecs/op", self.usecs_per_op())?;
        writeln!(f, " {:>14.6} usecs/op/cpu", self.usecs_per_op_per_cpu())
    }
}

#[expect(clippy::cast_precision_loss, reason = "times and counts stay below 2^52")]
const fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_a_thread_created_and_joined() {
        let shape = Shape { breakpoints: 4, parallelism: 64, threads: 64, repeat: 30 };
        let timing = Timing { shape, total_ns: 67_761_000 };
        assert!((timing.usecs_per_op() - 35.292).abs() < 0.001);
        assert!((timing.usecs_per_op_per_cpu() - 2_258.7).abs() < 0.1);
    }
}
