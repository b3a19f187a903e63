//! glibc's mutex: 0 is free, 1 is held, 2 is held and somebody may sleep. A waiter sets 2 and sleeps; a holder that finds 2 when
//! it sets 0 wakes one; the one that comes first takes it (`nptl/lowlevellock.c`, `sysdeps/nptl/lowlevellock.h`).

use super::{Step, World};

impl World<'_> {
    pub(super) fn step_of_sleeping(&mut self, thread: usize) {
        match self.threads[thread].step {
            Step::Ask => self.ask_once(thread),
            Step::Release => self.set_free(thread),
            Step::Compare => self.compared(thread, self.word.holder.is_some() && self.word.wake),
            Step::Refused | Step::Woken => self.contend(thread),
            Step::Released | Step::Sleep | Step::Watch | Step::Queue | Step::Look | Step::Impatient => {}
        }
    }

    /// From 0 to 1.
    fn ask_once(&mut self, thread: usize) {
        let wrote_ns = self.write_word(thread);
        if self.word.holder.is_none() {
            self.word.wake = false;
            return self.hold(thread, wrote_ns);
        }
        if self.word.wake { self.call_to_sleep(thread, wrote_ns) } else { self.contend(thread) }
    }

    /// To 2: held if it was 0, else asleep.
    fn contend(&mut self, thread: usize) {
        let wrote_ns = self.write_word(thread);
        self.word.wake = true;
        if self.word.holder.is_none() { self.hold(thread, wrote_ns) } else { self.call_to_sleep(thread, wrote_ns) }
    }

    /// To 0.
    fn set_free(&mut self, thread: usize) {
        let wrote_ns = self.write_word(thread);
        self.word.holder = None;
        let wake = std::mem::take(&mut self.word.wake);
        let woke_ns = if wake { self.wake_one() } else { 0.0 };
        self.occupy(thread, wrote_ns + woke_ns, Step::Released);
    }
}
