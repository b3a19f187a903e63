//! parking_lot's locks, and idle pools of tokio and rayon: one scene of them, by its name, until the input ends.
//!
//! Not for users: the tests of the rules meter it.

use std::io::Read;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, FairMutex, Mutex, RwLock};

/// Long enough that the others sleep for the lock, whatever they try first.
const HOLD: Duration = Duration::from_millis(5);

static LEDGER: Mutex<u64> = Mutex::new(0);
static TURNS: FairMutex<u64> = FairMutex::new(0);
static PRICES: RwLock<u64> = RwLock::new(0);
static JOB: Mutex<bool> = Mutex::new(false);
static JOBS: Condvar = Condvar::new();

#[inline(never)]
fn post_entry() {
    let mut entries = LEDGER.lock();
    thread::sleep(HOLD);
    *entries += 1;
}

#[inline(never)]
fn play_fair() {
    let mut turns = TURNS.lock();
    thread::sleep(HOLD);
    *turns += 1;
}

#[inline(never)]
fn set_price() {
    let mut price = PRICES.write();
    thread::sleep(HOLD);
    *price += 1;
}

#[inline(never)]
fn read_price() {
    let price = PRICES.read();
    thread::sleep(HOLD);
    std::hint::black_box(*price);
}

fn repeat(threads: usize, work: fn()) {
    for _ in 0..threads {
        thread::spawn(move || {
            loop {
                work();
            }
        });
    }
}

fn compute() {
    let until = Instant::now() + Duration::from_millis(1);
    while Instant::now() < until {}
}

/// Threads that wait for a condition, an element of a channel and another thread's end.
fn idle_threads() {
    thread::spawn(|| JOBS.wait(&mut JOB.lock()));
    let (sender, receiver) = mpsc::channel::<()>();
    thread::spawn(move || receiver.recv());
    std::mem::forget(sender);
    thread::spawn(|| thread::spawn(thread::park).join());
}

fn play(scene: &str) -> bool {
    match scene {
        "mutex" => repeat(4, post_entry),
        // Of the code that uses the lock nothing is left but where the thread begins.
        "inlined" => (0..4).for_each(|_| {
            thread::spawn(|| {
                loop {
                    let mut entries = LEDGER.lock();
                    thread::sleep(HOLD);
                    *entries += 1;
                }
            });
        }),
        "fair" => repeat(4, play_fair),
        "readers" => {
            repeat(1, set_price);
            repeat(3, read_price);
        }
        "idle" => idle_threads(),
        "rayon" => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
            pool.install(|| rayon::join(compute, compute));
            std::mem::forget(pool);
        }
        // Work for a fifth of the time.
        "rayon-sparse" => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
            thread::spawn(move || {
                loop {
                    pool.install(compute);
                    thread::sleep(HOLD);
                }
            });
        }
        "tokio" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
            runtime.block_on(async { tokio::spawn(async { compute() }).await.unwrap() });
            runtime.block_on(async { tokio::task::spawn_blocking(compute).await.unwrap() });
            std::mem::forget(runtime);
        }
        // Tasks want one lock of tokio's: they wait, and no thread does.
        "tokio-mutex" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
            let lock = std::sync::Arc::new(tokio::sync::Mutex::new(()));
            for _ in 0..4 {
                let lock = std::sync::Arc::clone(&lock);
                runtime.spawn(async move {
                    loop {
                        let _held = lock.lock().await;
                        tokio::time::sleep(HOLD).await;
                    }
                });
            }
            std::mem::forget(runtime);
        }
        _ => return false,
    }
    true
}

fn main() -> ExitCode {
    let scene = std::env::args().nth(1).unwrap_or_default();
    if !play(&scene) {
        eprintln!("rust-runtimes: there is no scene `{scene}`");
        return ExitCode::from(2);
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    ExitCode::SUCCESS
}
