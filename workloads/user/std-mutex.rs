//! A mutex of Rust's standard library, which never calls pthread: threads hold it across a sleep, at two call sites. Prints
//! one line of JSON with what the waiters measured themselves. Begins when standard input ends.

use std::io::Read;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

static HOT: Mutex<u64> = Mutex::new(0);

const THREADS: u32 = 4;
const ROUNDS: u32 = 50;
const HOLD: Duration = Duration::from_millis(3);

/// Waited time of one acquisition.
fn hold_for(time: Duration) -> Duration {
    let begin = Instant::now();
    let mut acquisitions = HOT.lock().unwrap();
    let waited = begin.elapsed();
    *acquisitions += 1;
    thread::sleep(time);
    waited
}

#[inline(never)]
fn often() -> Duration {
    std::hint::black_box(hold_for(HOLD))
}

#[inline(never)]
fn seldom() -> Duration {
    std::hint::black_box(hold_for(2 * HOLD))
}

/// Waited time of all acquisitions, and of those by [`seldom`].
fn work() -> (Duration, Duration) {
    let (mut all, mut of_seldom) = (Duration::ZERO, Duration::ZERO);
    for round in 0..ROUNDS {
        let is_seldom = round % 4 == 0;
        let waited = if is_seldom { seldom() } else { often() };
        all += waited;
        of_seldom += if is_seldom { waited } else { Duration::ZERO };
    }
    (all, of_seldom)
}

fn main() {
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let threads: Vec<_> = (0..THREADS).map(|_| thread::spawn(work)).collect();
    let waited: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    println!(
        "{{\"acquisitions\":{},\"wait_ns\":{},\"seldom_wait_ns\":{}}}",
        HOT.lock().unwrap(),
        waited.iter().map(|(all, _)| all).sum::<Duration>().as_nanos(),
        waited.iter().map(|(_, of_seldom)| of_seldom).sum::<Duration>().as_nanos()
    );
}
