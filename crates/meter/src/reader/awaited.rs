//! Programs that were executed to be metered and never began with the library.

use std::mem::size_of;
use std::time::Duration;

use super::memory::{Memory, u32_at};
use super::plausible::Bounds;
use crate::layout::{AWAITED, AWAITED_PAGE};

/// How long programs that are being executed when a recording ends are waited for, and how often it is looked.
const LAST_LOOKS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How many programs are awaited, by the hash of their path.
#[derive(Debug)]
pub(super) struct AwaitedPrograms {
    before: Vec<u32>,
    /// Of those, how many were counted.
    counted: Vec<u32>,
}

impl AwaitedPrograms {
    pub(super) fn new() -> Self {
        Self { before: vec![0; AWAITED], counted: vec![0; AWAITED] }
    }

    /// How many more have not begun now that were awaited at the last look already.
    pub(super) fn look(&mut self, memory: &Memory, bounds: Bounds) -> u64 {
        let now = awaited(memory, bounds);
        let lasting: Vec<u32> = now.iter().zip(&self.before).map(|(now, before)| *now.min(before)).collect();
        self.before = now;
        self.count(&lasting)
    }

    /// At the end: how many more have not begun, and do not within a moment.
    pub(super) fn last_look(&mut self, memory: &Memory, bounds: Bounds) -> u64 {
        let mut now = awaited(memory, bounds);
        for _ in 0..LAST_LOOKS {
            if now.iter().zip(&self.counted).all(|(now, counted)| now <= counted) {
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
            now = awaited(memory, bounds);
        }
        self.count(&now)
    }

    fn count(&mut self, lasting: &[u32]) -> u64 {
        let more =
            lasting.iter().zip(&self.counted).map(|(lasting, counted)| u64::from(lasting.saturating_sub(*counted)));
        let more = more.sum();
        // One that nobody awaited may have begun in the place of one that was counted.
        self.counted.copy_from_slice(lasting);
        more
    }
}

/// What stands there; nothing where that cannot be.
fn awaited(memory: &Memory, bounds: Bounds) -> Vec<u32> {
    let page = memory.read(AWAITED_PAGE, 0, AWAITED * size_of::<u32>()).unwrap_or_default();
    let count = |place: usize| u32_at(&page, place * size_of::<u32>());
    (0..AWAITED).map(|place| if bounds.allow_counter(count(place).into()) { count(place) } else { 0 }).collect()
}
