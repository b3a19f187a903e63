//! How a loader steers its programs while they run: which half of the tables they fill, and whether they count.

use std::time::Duration;

use crate::double_buffer::InactiveBuffer;

/// Without `membarrier`, how long a program that saw the old buffer may still be writing to it.
const GRACE_WITHOUT_MEMBARRIER: Duration = Duration::from_millis(50);

/// Programs that fill one half of their tables while the other is drained. The variables are there once they are loaded.
pub trait DoubleBuffered {
    /// The number of the buffer that they fill.
    fn active_buffer(&mut self) -> Option<&mut u32>;

    /// What grows at each drain, if they remember something until then.
    fn generation(&mut self) -> Option<&mut u32> {
        None
    }
}

/// Programs that can be told not to count.
pub trait Pausable {
    /// Grows each time they go on.
    fn resumed(&mut self) -> Option<&mut u32>;

    /// Whether they are not to count.
    fn paused(&mut self) -> Option<&mut u32>;
}

/// The buffer that the programs fill.
pub fn active_buffer(programs: &mut impl DoubleBuffered) -> u32 {
    programs.active_buffer().map_or(0, |buffer| *buffer & 1)
}

/// A buffer that is no longer active, but may still be written to.
#[must_use]
pub struct LeftBuffer(u32);

impl LeftBuffer {
    /// Waits until no program writes to it.
    pub fn wait(self) -> InactiveBuffer {
        wait_for_running_programs();
        InactiveBuffer(self.0)
    }
}

/// Makes the other buffer active.
pub fn flip(programs: &mut impl DoubleBuffered) -> LeftBuffer {
    let old = active_buffer(programs);
    if let Some(buffer) = programs.active_buffer() {
        *buffer = old ^ 1;
    }
    if let Some(generation) = programs.generation() {
        *generation = generation.wrapping_add(1);
    }
    LeftBuffer(old)
}

/// Stops counting without detaching (`true`), or goes on (`false`).
pub fn pause(programs: &mut impl Pausable, paused: bool) {
    if let Some(resumed) = programs.resumed()
        && !paused
    {
        *resumed = resumed.wrapping_add(1);
    }
    if let Some(switch) = programs.paused() {
        *switch = u32::from(paused);
    }
}

/// Programs run inside RCU read sections, and a global membarrier returns after all that were running have ended.
fn wait_for_running_programs() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: membarrier takes integers and touches no memory of ours.
    if unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0 {
        std::thread::sleep(GRACE_WITHOUT_MEMBARRIER);
    }
}
