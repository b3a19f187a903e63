//! Contended loads that run in threads of this process for as long as they live, each thread counting its operations.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use lockmeter_statistics::cpus;
use serde::Serialize;

/// One of the loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadName {
    /// A mutex contended 10,000 times a second: two threads that compute, meet, and read through one descriptor
    #[value(name = "mutex-10k")]
    #[serde(rename = "mutex-10k")]
    Mutex10k,
    /// The same, 150,000 times a second
    #[value(name = "mutex-150k")]
    #[serde(rename = "mutex-150k")]
    Mutex150k,
    /// The same mutex as often as two threads can: small reads through one descriptor, nothing else
    MutexFull,
    /// A spinlock: threads search one futex hash bucket
    Spin,
    /// A sleeping rwsem: four threads map, populate and unmap memory
    Rwsem,
    /// For `lockmeter mmap`: two threads map memory, touch each page of it, and unmap it (only when named)
    PageFaults,
    /// For `lockmeter mmap`: two compilers at a time (only when named)
    Compile,
}

impl LoadName {
    pub const ALL: [Self; 5] = [Self::Mutex10k, Self::Mutex150k, Self::MutexFull, Self::Spin, Self::Rwsem];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Mutex10k => "mutex-10k",
            Self::Mutex150k => "mutex-150k",
            Self::MutexFull => "mutex-full",
            Self::Spin => "spin",
            Self::Rwsem => "rwsem",
            Self::PageFaults => "page-faults",
            Self::Compile => "compile",
        }
    }

    /// Meetings a second that the load is paced to.
    const fn pace(self) -> Option<u32> {
        match self {
            Self::Mutex10k => Some(10_000),
            Self::Mutex150k => Some(150_000),
            Self::MutexFull | Self::Spin | Self::Rwsem | Self::PageFaults | Self::Compile => None,
        }
    }

    pub const fn lock(self) -> &'static str {
        match self {
            Self::Mutex10k | Self::Mutex150k | Self::MutexFull => "file.f_pos_lock, mutex",
            Self::Spin => "futex_hash_bucket.lock, spinlock",
            Self::Rwsem => "mm_struct.mmap_lock, rwsem that sleeps",
            Self::PageFaults | Self::Compile => "mm_struct.mmap_lock, seldom contended",
        }
    }
}

/// Held for as long as it takes to copy this much. With the paced load, long enough that the second thread surely comes
/// while the first one reads; with the full one, short, for many contentions.
const PACED_READ_BYTES: usize = 16 << 10;
const FULL_READ_BYTES: usize = 4 << 10;
const FILE_BYTES: usize = 1 << 20;

/// Sleepers in the bucket that is searched: they make the search, under the lock, long.
const CROWD: usize = 64;
const CROWD_STACK_BYTES: usize = 64 << 10;
const CROWD_BIT: u32 = 1;
const WORKER_BIT: u32 = 2;

const MAPPERS: usize = 4;
const MAPPED_BYTES: usize = 128 << 10;

/// What a page-fault thread maps and touches at a time: 256 faults between one `mmap()` and one `munmap()`.
const TOUCHED_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// Small, so that a slice holds many compilations.
const SOURCE: &str = "struct a { int b[64]; }; static int f(struct a *x) { int s = 0; for (int i = 0; i < 64; i++) s += x->b[i]; \
    return s; }\nint g(struct a *x, int n) { int t = 0; for (int i = 0; i < n; i++) t += f(x + i); return t; }\n";

/// Alone in its cache line: counting must not be contention.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// A running load; dropping it ends it.
pub struct Load {
    pub name: LoadName,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    /// 1 while the workers are to rest.
    paused: AtomicU32,
    /// How much a paced load computes between two meetings.
    steps: AtomicU64,
    counters: Vec<Counter>,
    /// Arrivals at the meetings of the paced load.
    arrivals: Counter,
    /// The word in whose bucket the crowd sleeps; not 0 sends it home.
    word: AtomicU32,
}

impl Shared {
    fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// To be called between two operations: rests as long as the load is to rest.
    fn wait_while_paused(&self) {
        while self.paused.load(Ordering::Relaxed) == 1 && self.running() {
            futex(&self.paused, libc::FUTEX_WAIT_BITSET, 1, u32::MAX);
        }
    }

    /// Only the worker itself writes its counter.
    fn count(&self, worker: usize) {
        let counter = &self.counters[worker].0;
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Load {
    /// Starts the load's threads. They have shown that they work, and rest, when this returns.
    pub fn start(name: LoadName) -> Result<Self> {
        let cpus = cpus::allowed().len();
        if cpus < 2 {
            bail!(
                "locks contend as these loads mean it only on two or more CPUs, and this process may use one: allow it more (taskset)"
            );
        }
        let workers = match name {
            LoadName::Mutex10k | LoadName::Mutex150k | LoadName::MutexFull => 2,
            LoadName::Spin => cpus,
            LoadName::Rwsem => MAPPERS,
            LoadName::PageFaults | LoadName::Compile => 2,
        };
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            paused: AtomicU32::new(0),
            steps: AtomicU64::new(0),
            counters: (0..workers).map(|_| Counter::default()).collect(),
            arrivals: Counter::default(),
            word: AtomicU32::new(0),
        });
        let mut load = Self { name, shared, threads: Vec::new() };
        match name {
            LoadName::Mutex10k | LoadName::Mutex150k => {
                let file = Arc::new(shared_file()?);
                for worker in 0..workers {
                    let file = Arc::clone(&file);
                    load.spawn(move |shared| {
                        cpus::stay_on(worker);
                        meet_and_read(shared, worker, &file);
                    })?;
                }
            }
            LoadName::MutexFull => {
                let file = Arc::new(shared_file()?);
                for worker in 0..workers {
                    let file = Arc::clone(&file);
                    load.spawn(move |shared| read_at_once(shared, worker, &file))?;
                }
            }
            LoadName::Spin => {
                for _ in 0..CROWD {
                    load.spawn(sleep_in_bucket)?;
                }
                for worker in 0..workers {
                    load.spawn(move |shared| search_bucket(shared, worker))?;
                }
            }
            LoadName::Rwsem => {
                for worker in 0..workers {
                    load.spawn(move |shared| map_and_unmap(shared, worker))?;
                }
            }
            LoadName::PageFaults => {
                for worker in 0..workers {
                    load.spawn(move |shared| map_touch_and_unmap(shared, worker))?;
                }
            }
            LoadName::Compile => {
                for worker in 0..workers {
                    load.spawn(move |shared| compile(shared, worker))?;
                }
            }
        }
        load.wait_until_at_work()?;
        if let Some(pace) = name.pace() {
            load.calibrate(pace);
        }
        load.pause();
        Ok(load)
    }

    /// Lets the load work while something is measured. It rests otherwise, so that switching meters is quick and others on
    /// the machine have their share.
    pub fn at_work<T>(&self, measure: impl FnOnce() -> T) -> T {
        self.shared.paused.store(0, Ordering::SeqCst);
        futex(&self.shared.paused, libc::FUTEX_WAKE_BITSET, i32::MAX.cast_unsigned(), u32::MAX);
        let measured = measure();
        self.pause();
        measured
    }

    fn pause(&self) {
        self.shared.paused.store(1, Ordering::SeqCst);
    }

    /// Finds out how much computing makes the rate of meetings the one that is wanted.
    fn calibrate(&self, pace: u32) {
        const TRIALS: usize = 6;
        const TRIAL: Duration = Duration::from_millis(40);
        let wanted = Duration::from_secs(1) / pace;
        let step_ps = step_ps();
        for _ in 0..TRIALS {
            let (begin, before) = (Instant::now(), self.operations());
            std::thread::sleep(TRIAL);
            let rounds = (self.operations() - before) / self.shared.counters.len() as u64;
            let Ok(round) = u32::try_from(rounds).map(|rounds| begin.elapsed() / rounds.max(1)) else { return };
            let steps = self.shared.steps.load(Ordering::Relaxed);
            let change = |time: Duration| u64::try_from(time.as_nanos() * 1_000 / step_ps).unwrap_or(0);
            let steps = steps + change(wanted.saturating_sub(round));
            self.shared.steps.store(steps.saturating_sub(change(round.saturating_sub(wanted))), Ordering::Relaxed);
        }
    }

    fn spawn(&mut self, work: impl FnOnce(&Shared) + Send + 'static) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(self.name.title().to_owned())
            .stack_size(CROWD_STACK_BYTES)
            .spawn(move || work(&shared))
            .context("cannot start a thread of the load")?;
        self.threads.push(thread);
        Ok(())
    }

    fn wait_until_at_work(&self) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let begin = Instant::now();
        while self.shared.counters.iter().any(|counter| counter.0.load(Ordering::Relaxed) == 0) {
            if begin.elapsed() > PATIENCE {
                bail!("the load {} did not get going within {PATIENCE:?}", self.name.title());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Operations of all threads so far.
    pub fn operations(&self) -> u64 {
        self.shared.counters.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.paused.store(0, Ordering::SeqCst);
        futex(&self.shared.paused, libc::FUTEX_WAKE_BITSET, i32::MAX.cast_unsigned(), u32::MAX);
        self.shared.word.store(1, Ordering::SeqCst);
        futex(&self.shared.word, libc::FUTEX_WAKE_BITSET, i32::MAX.cast_unsigned(), u32::MAX);
        for thread in self.threads.drain(..) {
            // A worker that panicked has already said so on standard error.
            let _ = thread.join();
        }
    }
}

/// Computes, waits for the other thread, reads when it reads: one of the two finds the lock taken.
fn meet_and_read(shared: &Shared, worker: usize, file: &File) {
    let mut buffer = vec![0_u8; PACED_READ_BYTES];
    let workers = shared.counters.len() as u64;
    let mut all = 0;
    while shared.running() {
        compute(shared.steps.load(Ordering::Relaxed));
        all += workers;
        shared.arrivals.0.fetch_add(1, Ordering::AcqRel);
        while shared.arrivals.0.load(Ordering::Acquire) < all && shared.running() {
            shared.wait_while_paused();
            std::hint::spin_loop();
        }
        read_round(file, &mut buffer);
        shared.count(worker);
    }
}

fn read_at_once(shared: &Shared, worker: usize, file: &File) {
    let mut buffer = vec![0_u8; FULL_READ_BYTES];
    while shared.running() {
        shared.wait_while_paused();
        read_round(file, &mut buffer);
        shared.count(worker);
    }
}

/// Reads on, from the start again at the end.
fn read_round(file: &File, buffer: &mut [u8]) {
    // SAFETY: writes at most the buffer's length to the buffer.
    let got = unsafe { libc::read(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    if got <= 0 {
        // SAFETY: takes integers only.
        unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_SET) };
    }
}

/// This many steps of something that neither memory nor the clock can slow down or speed up.
fn compute(steps: u64) {
    let mut value = steps;
    for _ in 0..steps {
        value = std::hint::black_box(value.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(13));
    }
}

/// Picoseconds that a step takes: of the fastest trial, for a slow one was interrupted.
fn step_ps() -> u128 {
    const STEPS: u64 = 1_000_000;
    let trial = |_| {
        let begin = Instant::now();
        compute(STEPS);
        begin.elapsed().as_nanos()
    };
    (0..5).map(trial).min().unwrap_or(0).max(1) * 1_000 / u128::from(STEPS)
}

fn sleep_in_bucket(shared: &Shared) {
    while shared.word.load(Ordering::SeqCst) == 0 {
        futex(&shared.word, libc::FUTEX_WAIT_BITSET, 0, CROWD_BIT);
    }
}

/// Asks for one sleeper of a bit that no sleeper has: the kernel walks all of them under the bucket's lock.
fn search_bucket(shared: &Shared, worker: usize) {
    while shared.running() {
        shared.wait_while_paused();
        futex(&shared.word, libc::FUTEX_WAKE_BITSET, 1, WORKER_BIT);
        shared.count(worker);
    }
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32, bitset: u32) {
    let none = std::ptr::null::<libc::timespec>();
    // SAFETY: the word outlives the call; the unused pointers are null.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            none,
            none.cast::<u32>(),
            bitset,
        );
    }
}

fn map_and_unmap(shared: &Shared, worker: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    while shared.running() {
        shared.wait_while_paused();
        // SAFETY: a new mapping anywhere touches no memory that is in use.
        let area =
            unsafe { libc::mmap(std::ptr::null_mut(), MAPPED_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if area != libc::MAP_FAILED {
            // SAFETY: the mapping just made, which nobody else knows.
            unsafe { libc::munmap(area, MAPPED_BYTES) };
        }
        shared.count(worker);
    }
}

fn map_touch_and_unmap(shared: &Shared, worker: usize) {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    while shared.running() {
        shared.wait_while_paused();
        // SAFETY: a new mapping anywhere touches no memory that is in use.
        let area = unsafe { libc::mmap(std::ptr::null_mut(), TOUCHED_BYTES, access, flags, -1, 0) };
        if area != libc::MAP_FAILED {
            // One page a fault: a huge page would make it one for all.
            // SAFETY: advice about the mapping just made.
            unsafe { libc::madvise(area, TOUCHED_BYTES, libc::MADV_NOHUGEPAGE) };
            for offset in (0..TOUCHED_BYTES).step_by(PAGE_BYTES) {
                // SAFETY: inside the mapping, which is writable and which nobody else knows.
                unsafe { area.cast::<u8>().add(offset).write_volatile(1) };
            }
            // SAFETY: the mapping just made; nothing points into it any more.
            unsafe { libc::munmap(area, TOUCHED_BYTES) };
        }
        shared.count(worker);
    }
}

/// Without a compiler nothing is counted, which the start of the load finds.
fn compile(shared: &Shared, worker: usize) {
    while shared.running() {
        shared.wait_while_paused();
        let compiler =
            Command::new("cc").args(["-O1", "-x", "c", "-S", "-o", "/dev/null", "-"]).stdin(Stdio::piped()).spawn();
        let Ok(mut compiler) = compiler else { return };
        if let Some(mut source) = compiler.stdin.take() {
            // A compiler that ends early is counted as failed below.
            let _ = source.write_all(SOURCE.as_bytes());
        }
        if compiler.wait().is_ok_and(|status| status.success()) {
            shared.count(worker);
        }
    }
}

/// A file of the load's own, without a name from the start: nothing is left behind.
fn shared_file() -> Result<File> {
    let path: PathBuf = std::env::temp_dir().join(format!("kernel-overhead-{}", std::process::id()));
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .with_context(|| format!("cannot make the file to read from, {}", path.display()))?;
    std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    file.write_all(&vec![1; FILE_BYTES]).context("cannot fill the file to read from")?;
    Ok(file)
}
