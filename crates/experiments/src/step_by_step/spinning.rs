//! lockmeter's `Mutex` (`crates/locks/src/mutex.rs`): waiters watch the lock for a while, then queue; the first looks at
//! the lock, in intervals that grow while others use it, all of them for as long as sleeping would cost; then they sleep. Left out: the
//! heir of a lock that was waited for a millisecond, and that waiters stay away from sections shorter than passing the lock on takes.

use super::{Patience, SpinTimes, Step, World};

impl World<'_> {
    pub(super) fn step_of_spinning(&mut self, thread: usize, times: SpinTimes) {
        match self.threads[thread].step {
            Step::Ask => self.ask_and_spin(thread, times),
            Step::Watch => self.watch(thread, times),
            Step::Queue => self.queue(thread, times),
            Step::Look => self.look(thread, times),
            Step::Impatient => self.lose_patience(thread, times),
            Step::Release => self.release_to_spinners(thread),
            Step::Compare => self.compared(thread, self.word.holder.is_some() && self.word.wake),
            Step::Refused | Step::Woken => {
                self.word.sleepers -= 1;
                self.threads[thread].on_duty = true;
                self.begin_to_spin(thread, times);
            }
            Step::Released | Step::Sleep => {}
        }
    }

    fn ask_and_spin(&mut self, thread: usize, times: SpinTimes) {
        if self.word.holder.is_none() {
            return self.take(thread);
        }
        self.threads[thread].on_duty = false;
        self.begin_to_spin(thread, times);
    }

    fn take(&mut self, thread: usize) {
        let wrote_ns = self.write_word(thread);
        self.word.wake = self.threads[thread].on_duty && self.word.sleepers > 0;
        self.threads[thread].on_duty = false;
        self.hold(thread, wrote_ns);
    }

    fn begin_to_spin(&mut self, thread: usize, times: SpinTimes) {
        let pause_ns = self.simulation.costs.pause_ns;
        let backoff = pauses(times.first_backoff_ns, pause_ns);
        self.threads[thread].patience = Patience { backoff, paused_ns: pause_ns, ..Patience::default() };
        // The try that failed, or the wake-up's.
        let tried_ns = self.write_word(thread);
        self.occupy(thread, tried_ns + pause_ns, Step::Watch);
    }

    /// Before queueing it takes the lock if it is free, and looks again at once for as long as it watches.
    fn watch(&mut self, thread: usize, times: SpinTimes) {
        if self.word.holder.is_none() {
            return self.take(thread);
        }
        let read_ns = self.write_word(thread);
        let pause_ns = self.simulation.costs.pause_ns;
        let patience = &mut self.threads[thread].patience;
        patience.line_stayed = read_ns == 0.0;
        if patience.paused_ns < times.watching_ns {
            patience.paused_ns += pause_ns;
            return self.occupy(thread, read_ns + pause_ns, Step::Watch);
        }
        self.occupy(thread, read_ns, Step::Queue);
    }

    fn queue(&mut self, thread: usize, times: SpinTimes) {
        let before = self.word.spinners.back().copied();
        self.word.spinners.push_back(thread);
        let Some(before) = before else { return self.look(thread, times) };
        // One before it that shares its CPU does not run, for it runs itself.
        let shares_cpu = self.threads[before].cpu == self.threads[thread].cpu;
        let ns = times.before_looking_ns + if shares_cpu { 0.0 } else { times.spin_ns };
        self.threads[thread].patience.until_ns = self.now_ns + ns;
        self.occupy(thread, ns, Step::Impatient);
    }

    /// The first of the spinners takes the lock if it is free.
    fn look(&mut self, thread: usize, times: SpinTimes) {
        if self.word.holder.is_none() {
            self.leave_spinners(thread, times);
            return self.take(thread);
        }
        // Reading takes the line from its holder, whose next write takes it back.
        let read_ns = self.write_word(thread);
        let holder_is_here =
            self.word.holder.is_some_and(|holder| self.threads[holder].cpu == self.threads[thread].cpu);
        let pause_ns = self.simulation.costs.pause_ns;
        let now_ns = self.now_ns;
        let patience = &mut self.threads[thread].patience;
        let looks_at_clock = patience.paused_ns >= times.before_looking_ns;
        if looks_at_clock && patience.until_ns == 0.0 {
            patience.until_ns = now_ns + times.spin_ns;
        }
        if looks_at_clock && (now_ns >= patience.until_ns || holder_is_here) {
            self.leave_spinners(thread, times);
            return self.lie_down(thread);
        }
        // The first look finds the line where queueing has left it, and says nothing.
        if patience.has_looked {
            patience.line_stayed = read_ns == 0.0;
        }
        patience.has_looked = true;
        let pauses_ns = if patience.line_stayed { pause_ns } else { patience.backoff * pause_ns };
        patience.paused_ns += pauses_ns;
        if !patience.line_stayed {
            patience.backoff = (patience.backoff * 2.0).min(pauses(times.longest_backoff_ns, pause_ns));
        }
        self.occupy(thread, read_ns + pauses_ns, Step::Look);
    }

    /// It was not its turn in all that time: it tries once, and sleeps.
    fn lose_patience(&mut self, thread: usize, times: SpinTimes) {
        self.leave_spinners(thread, times);
        if self.word.holder.is_none() { self.take(thread) } else { self.lie_down(thread) }
    }

    /// Leaves the queue, and gives the turn to the next if it was first.
    fn leave_spinners(&mut self, thread: usize, times: SpinTimes) {
        let was_first = self.word.spinners.front() == Some(&thread);
        self.word.spinners.retain(|other| *other != thread);
        let Some(next) = self.word.spinners.front().copied().filter(|_| was_first) else { return };
        let pause_ns = self.simulation.costs.pause_ns;
        let patience = &mut self.threads[next].patience;
        patience.paused_ns = times.before_looking_ns;
        patience.backoff = pauses(times.longest_backoff_ns, pause_ns);
        // In the middle of its pauses, after which it sees that it is its turn.
        let gap_ns = if patience.line_stayed { pause_ns } else { patience.backoff * pause_ns };
        let seen_ns = self.random.unit() * gap_ns;
        if self.runs(next) {
            self.occupy(next, self.simulation.costs.line_ns + seen_ns, Step::Look);
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

fn pauses(ns: f64, pause_ns: f64) -> f64 {
    (ns / pause_ns).floor().max(1.0)
}
