//! What is attached: lockmeter's programs as `record -p PID` attaches them, or empty ones.

use std::mem::MaybeUninit;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bench_harness::as_f64;
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use lockmeter_kernel::contention::{Scope, StackBudget};
use lockmeter_kernel::futex::FutexOptions;
use lockmeter_kernel::threads::ThreadSource;
use lockmeter_kernel::{KernelError, prepare_kernel_names};
use lockmeter_profile::{Interval, Overhead};

use crate::loads::Load;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::pedantic)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/empty.skel.rs"));
}
use skeleton::{EmptySkel, EmptySkelBuilder};

/// As often as `lockmeter record` reads the copied stacks.
const TICK: Duration = Duration::from_millis(100);

/// A program that does nothing: what is metered while others are the load.
pub struct Idler(Child);

impl Idler {
    pub fn start() -> Result<Self> {
        let mut command = Command::new("sleep");
        command.arg("infinity").stdin(Stdio::null());
        Ok(Self(command.spawn().context("cannot run sleep")?))
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        // It may have been killed by somebody else.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// lockmeter, attached to the load or to somebody idle.
pub fn attach(load: Load, idler: &Idler, stacks: StackBudget) -> Result<ThreadSource> {
    let pid = if load.is_metered() { std::process::id() } else { idler.0.id() };
    let futexes = FutexOptions::usual(stacks);
    Ok(ThreadSource::start(&Scope::process(pid), prepare_kernel_names(None)?, Some(futexes), None)?)
}

/// Does for a while what `lockmeter record` does, and returns what it drained.
pub fn record_for(source: &mut ThreadSource, time: Duration) -> Interval {
    let begin = Instant::now();
    while let Some(left) = time.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
        thread::sleep(left.min(TICK));
        look_or_panic(source.tick());
    }
    let mut interval = Interval::default();
    let end = look_or_panic(source.end_interval());
    look_or_panic(source.drain_into(end, &mut interval));
    interval
}

/// It fails with nothing but what starting fails with.
fn look_or_panic<T>(looked: Result<T, KernelError>) -> T {
    looked.unwrap_or_else(|error| panic!("a look at the threads failed: {error}"))
}

/// Time of a copied stack, over all that were copied; `None` of none.
pub fn stack_ns(overhead: &Overhead) -> Option<f64> {
    (overhead.stacks > 0).then(|| as_f64(overhead.stack_ns) / as_f64(overhead.stacks))
}

pub fn attach_empty() -> Result<EmptySkel<'static>> {
    // The skeleton borrows its storage for as long as it lives, which is as long as the process.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut skeleton = EmptySkelBuilder::default().open(storage)?.load()?;
    skeleton.attach()?;
    Ok(skeleton)
}
