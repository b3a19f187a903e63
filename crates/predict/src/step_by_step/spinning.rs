//! lockmeter's `Mutex` (`crates/locks/src/mutex.rs`): waiters queue, the first looks at the lock in growing intervals, all of them
//! for as long as sleeping would cost; then they sleep. Left out: the heir of a lock that was waited for a millisecond.

use super::{Patience, Step, World};

/// The constants of `crates/locks/src/spinning.rs`.
const SPIN_NS: f64 = 20_000.0;
const BEFORE_LOOKING_NS: f64 = 300.0;
const LONGEST_BACKOFF_NS: f64 = 1_000.0;

impl World<'_> {
    pub(super) fn step_of_spinning(&mut self, thread: usize) {
        match self.threads[thread].step {
            Step::Ask => self.ask_and_spin(thread),
            Step::Look => self.look(thread),
            Step::Impatient => self.lose_patience(thread),
            Step::Release => self.release_to_spinners(thread),
            Step::Compare => self.compared(thread, self.word.holder.is_some() && self.word.wake),
            Step::Refused | Step::Woken => {
                self.word.sleepers -= 1;
                self.threads[thread].on_duty = true;
                self.begin_to_spin(thread);
            }
            Step::Released | Step::Sleep => {}
        }
    }

    fn ask_and_spin(&mut self, thread: usize) {
        if self.word.holder.is_none() {
            return self.take(thread);
        }
        self.threads[thread].on_duty = false;
        self.begin_to_spin(thread);
    }

    fn take(&mut self, thread: usize) {
        let wrote_ns = self.write_word(thread);
        self.word.wake = self.threads[thread].on_duty && self.word.sleepers > 0;
        self.threads[thread].on_duty = false;
        self.hold(thread, wrote_ns);
    }

    fn begin_to_spin(&mut self, thread: usize) {
        self.threads[thread].patience = Patience { backoff: 1.0, ..Patience::default() };
        self.word.spinners.push_back(thread);
        if self.word.spinners.len() == 1 {
            return self.look(thread);
        }
        let ns = BEFORE_LOOKING_NS + SPIN_NS;
        self.threads[thread].patience.until_ns = self.now_ns + ns;
        self.occupy(thread, ns, Step::Impatient);
    }

    /// The first of the spinners takes the lock if it is free.
    fn look(&mut self, thread: usize) {
        if self.word.holder.is_none() {
            self.leave_spinners(thread);
            return self.take(thread);
        }
        // Reading takes the line from its holder, whose next write takes it back.
        let read_ns = self.write_word(thread);
        let holder_is_here =
            self.word.holder.is_some_and(|holder| self.threads[holder].cpu == self.threads[thread].cpu);
        let pause_ns = self.play.costs.pause_ns;
        let now_ns = self.now_ns;
        let patience = &mut self.threads[thread].patience;
        let looks_at_clock = patience.paused_ns >= BEFORE_LOOKING_NS;
        if looks_at_clock && patience.until_ns == 0.0 {
            patience.until_ns = now_ns + SPIN_NS;
        }
        if looks_at_clock && (now_ns >= patience.until_ns || holder_is_here) {
            self.leave_spinners(thread);
            return self.lie_down(thread);
        }
        let pauses_ns = patience.backoff * pause_ns;
        patience.paused_ns += pauses_ns;
        patience.backoff = (patience.backoff * 2.0).min((LONGEST_BACKOFF_NS / pause_ns).floor()).max(1.0);
        self.occupy(thread, read_ns + pauses_ns, Step::Look);
    }

    fn lose_patience(&mut self, thread: usize) {
        self.leave_spinners(thread);
        self.lie_down(thread);
    }

    /// Leaves the queue, and gives the turn to the next if it was first.
    fn leave_spinners(&mut self, thread: usize) {
        let was_first = self.word.spinners.front() == Some(&thread);
        self.word.spinners.retain(|other| *other != thread);
        let Some(next) = self.word.spinners.front().copied().filter(|_| was_first) else { return };
        self.threads[next].patience.paused_ns = BEFORE_LOOKING_NS;
        self.threads[next].patience.backoff = (LONGEST_BACKOFF_NS / self.play.costs.pause_ns).floor().max(1.0);
        if self.runs(next) {
            self.occupy(next, self.play.costs.line_ns, Step::Look);
        } else {
            self.threads[next].step = Step::Look;
            self.threads[next].until_ns = 0.0;
        }
    }

    fn lie_down(&mut self, thread: usize) {
        self.word.sleepers += 1;
        if self.word.holder.is_none() {
            return self.occupy(thread, 0.0, Step::Refused);
        }
        let wrote_ns = self.write_word(thread);
        self.word.wake = true;
        self.call_to_sleep(thread, wrote_ns);
    }

    fn release_to_spinners(&mut self, thread: usize) {
        let wrote_ns = self.write_word(thread);
        self.word.holder = None;
        // WAKE stays until somebody takes the lock.
        let woke_ns = if self.word.wake { self.wake_one() } else { 0.0 };
        self.occupy(thread, wrote_ns + woke_ns, Step::Released);
    }
}
