//! Waits of running programs for futexes: what becomes of what [`crate::threads`] counts of them.
//!
//! Nothing is put into the program and nothing stops it. The kernel side counts who slept in a futex call on which word, and
//! copies stacks; this side unwinds them by the files that the process maps, tells locks from conditions by the functions on
//! them, and names the lock.

mod call_frames;
mod holders;
pub(crate) mod named_holder;
pub(crate) mod processes;
mod releases;
pub(crate) mod semaphores;
mod tables;
pub(crate) mod user_stacks;
mod waits;

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use lockmeter_profile::{Interval, Loss};

use crate::double_buffer::{DoubleBuffers, InactiveBuffer};
use crate::error::{ErrorKind, KernelError};
use crate::followed_processes::open_process;
use crate::stack_budget::StackBudget;
use crate::threads::skeleton::types;
use processes::Processes;
#[doc(hidden)]
pub use processes::unwind_by_hostile_elf;
use semaphores::SemaphoreUses;
#[cfg(test)]
pub(crate) use tables::LOSS_CAUSES;
use tables::Word;
use waits::Waits;

/// Half full tables are drained early.
const DRAIN_AT_FILL: f64 = 0.5;

/// The budget of a machine with more CPUs is that of one with this many: all stacks are unwound by one thread, which takes
/// several times as long for it as copying does.
const MOST_CPUS_OF_STACKS: u32 = 4;

/// Bit of `task_struct.flags`, as `/proc/PID/stat` shows them: a thread of the kernel.
const PF_KTHREAD: u64 = 0x0020_0000;

/// No divisor of a clock's rate, so that what programs do at regular times is not met at the same place each time.
pub const USUAL_SAMPLES: u32 = 99;

/// How waits for futexes are metered.
#[derive(Debug, Clone, Copy)]
pub struct FutexOptions {
    /// What stacks may cost.
    pub stacks: StackBudget,
    /// How often it is sampled what a CPU runs.
    pub samples_a_second: u32,
    /// The preloaded library meters the same processes: what it meters is left out.
    pub is_beside_preloaded: bool,
    /// In how much memory names of programs are kept, and in how much again what unwinding their stacks needs; `None`: as much as usual.
    pub most_program_bytes: Option<u64>,
}

impl FutexOptions {
    /// As for one program alone, without the preloaded library.
    pub const fn usual(stacks: StackBudget) -> Self {
        Self { stacks, samples_a_second: USUAL_SAMPLES, is_beside_preloaded: false, most_program_bytes: None }
    }
}

/// What the waits and the looks at threads learn of programs: each file is read once for both, and only the waits see who wakes whom.
#[derive(Clone, Default)]
pub(crate) struct KnownPrograms {
    pub(crate) processes: Rc<RefCell<Processes>>,
    pub(crate) semaphores: Rc<RefCell<SemaphoreUses>>,
}

/// What is known of the waits that the programs count.
pub(crate) struct FutexWaits {
    ring: RingBuffer<'static>,
    buffers: DoubleBuffers<types::futex_buffer>,
    waits: Rc<RefCell<Waits>>,
}

impl FutexWaits {
    /// Waits whose records come through the maps `records` and `buffers`, of this many CPUs.
    pub(crate) fn new(
        options: FutexOptions,
        known: KnownPrograms,
        records: &impl MapCore,
        buffers: &impl MapCore,
        cpus: usize,
    ) -> Result<Self, KernelError> {
        // SAFETY: the generated type of the map's values, plain integers; the loader made two for each CPU.
        let buffers = unsafe { DoubleBuffers::map(buffers, cpus) }?;
        let waits = Rc::new(RefCell::new(Waits::new(options.is_beside_preloaded, known)));
        let ring = read_records(records, &waits)?;
        Ok(Self { ring, buffers, waits })
    }

    /// Becomes readable when a process was seen for the first time, which may not live for long.
    pub(crate) fn news(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring buffer's own descriptor, which is open for as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// Reads the stacks that were copied meanwhile.
    pub(crate) fn read_ring(&self) {
        // An error is that of a callback, and ours has none.
        let _ = self.ring.consume();
    }

    /// Whether the tables are so full that they are to be drained.
    pub(crate) fn are_tables_full(&self, active_buffer: u32) -> bool {
        self.buffers.fill(active_buffer) >= DRAIN_AT_FILL
    }

    /// Who waits for these words is at rest, as the looks since the last drain have found, so that it waits for no lock.
    pub(crate) fn set_words_at_rest(&self, words: impl IntoIterator<Item = (u32, u64)>) {
        let words = words.into_iter().map(|(tgid, address)| Word { tgid, address });
        self.waits.borrow_mut().words_at_rest = words.collect();
    }

    /// Adds what the programs have counted in a buffer to an interval. Returns the time that they spent on stacks.
    pub(crate) fn drain_into(&mut self, buffer: InactiveBuffer, interval: &mut Interval) -> u64 {
        let drained = self.buffers.drain(buffer);
        // After the flip: then the stacks of all that was counted are in the ring buffer.
        self.read_ring();
        for (loss, count) in &drained.losses {
            interval.losses.add(*loss, *count);
        }
        interval.overhead.stack_ns += drained.stack_ns;
        interval.overhead.stacks += drained.stacks_taken;
        self.waits.borrow_mut().drain_into(interval, &drained);
        drained.stack_ns
    }

    /// Adds to an interval, the last one, how many waits for locks go on; `asleep` are the words that threads wait for.
    pub(crate) fn count_unfinished(&self, asleep: impl Iterator<Item = (u32, u64)>, interval: &mut Interval) {
        let waits = self.waits.borrow();
        let unfinished = asleep.filter(|(tgid, address)| !waits.is_idle(Word { tgid: *tgid, address: *address }));
        interval.losses.add(Loss::Unfinished, unfinished.count() as u64);
    }
}

/// CPUs by which the budget of stacks is counted.
pub(crate) fn cpus_of_stacks(cpus: u32) -> u32 {
    cpus.min(MOST_CPUS_OF_STACKS)
}

fn read_records(records: &impl MapCore, waits: &Rc<RefCell<Waits>>) -> Result<RingBuffer<'static>, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot read the ring buffer of stacks", &error);
    let waits = Rc::clone(waits);
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        waits.borrow_mut().take(bytes);
        0
    };
    builder.add(records, take).map_err(refused)?;
    builder.build().map_err(refused)
}

/// Whether the locks of these processes, or of any, can be metered from outside here.
pub fn can_meter(pids: &[u32]) -> Result<(), KernelError> {
    if !cfg!(target_arch = "x86_64") {
        let why = "locks of running programs can be metered on x86-64 only";
        return Err(KernelError::new(ErrorKind::Refused, why));
    }
    for pid in pids {
        has_locks(*pid)?;
    }
    KernelError::unless_privileged("cannot meter locks of running programs")?;
    sees_the_kernels_process_ids()
}

/// The programs say process ids as the kernel counts them, which mean other processes in a container.
fn sees_the_kernels_process_ids() -> Result<(), KernelError> {
    const INITIAL_NAMESPACE: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if namespace.as_os_str() != INITIAL_NAMESPACE => {
            let why = "locks of running programs cannot be metered from inside a container with process ids of its own; run \
                       lockmeter on the host, where such programs can be metered, too";
            Err(KernelError::new(ErrorKind::Refused, why))
        }
        _ => Ok(()),
    }
}

/// Whether a process can have locks of its own that this one may look at.
fn has_locks(pid: u32) -> Result<(), KernelError> {
    // Says what is wrong with the number itself.
    open_process(pid)?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything, flags are the seventh.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    if flags.is_some_and(|flags| flags & PF_KTHREAD != 0) {
        let why = format!("process {pid} is a thread of the kernel, which has no locks of its own");
        return Err(KernelError::new(ErrorKind::NoUserLocks, why));
    }
    match std::fs::File::open(format!("/proc/{pid}/maps")) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let (whose, advice) = if rustix::process::geteuid().is_root() {
                ("is closed to root, too (by a rule of this container or of a security module)", "")
            } else {
                ("belongs to another user", "; run as root or as that user")
            };
            let why = format!("process {pid} {whose}, so its locks cannot be named{advice}");
            Err(KernelError::new(ErrorKind::NotPermitted, why))
        }
        _ => Ok(()),
    }
}
