//! Who runs when: a thread has its CPU until it sleeps or its slice is over.

use std::cmp::Reverse;

use super::{Event, PICOSECONDS, Step, World};

impl World<'_> {
    pub(super) fn push(&mut self, after_ns: f64, event: Event) {
        self.made += 1;
        let when = (self.now_ns + after_ns) * PICOSECONDS;
        // Simulated times are positive and far below the limit.
        self.events.push(Reverse((when as u128, self.made, event)));
    }

    /// The thread, which is on its CPU, is at something for so long, and then takes the step. Whatever else it was at is called off.
    pub(super) fn occupy(&mut self, thread: usize, ns: f64, step: Step) {
        let state = &mut self.threads[thread];
        state.turn = state.turn.wrapping_add(1);
        state.step = step;
        state.until_ns = self.now_ns + ns;
        let turn = state.turn;
        self.push(ns, Event::Step { thread, turn });
    }

    /// The thread could run: at once if its CPU has nothing else to do.
    pub(super) fn make_ready(&mut self, thread: usize, left_ns: f64, step: Step) {
        let state = &mut self.threads[thread];
        state.step = step;
        state.until_ns = left_ns;
        let cpu = state.cpu;
        match self.cpus[cpu].current {
            None => {
                self.cpus[cpu].queue.push_back(thread);
                self.run_next(cpu);
            }
            Some(_) => self.cpus[cpu].queue.push_back(thread),
        }
    }

    /// One that was woken takes the place of the one that runs.
    pub(super) fn run_instead(&mut self, woken: usize, current: usize) {
        let state = &mut self.threads[woken];
        state.step = Step::Woken;
        state.until_ns = 0.0;
        let cpu = state.cpu;
        self.cpus[cpu].queue.push_front(woken);
        self.preempt(current);
    }

    /// Puts the thread behind all others that wait for its CPU.
    fn preempt(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        state.turn = state.turn.wrapping_add(1);
        state.until_ns = (state.until_ns - self.now_ns).max(0.0);
        let cpu = state.cpu;
        self.cpus[cpu].queue.push_back(thread);
        self.run_next(cpu);
    }

    /// Whether the one that runs here has run long enough, and is not about to leave anyway.
    fn had_its_slice(&self, cpu: usize) -> bool {
        let leaves = self.cpus[cpu].current.is_some_and(|current| self.threads[current].step == Step::Sleep);
        !leaves && self.now_ns - self.cpus[cpu].picked_at_ns >= self.simulation.costs.slice_ns * SHORTEST_SHARE
    }

    /// Another thread may have what this one ran on. Only for a thread that is not to run.
    pub(super) fn leave_cpu(&mut self, thread: usize) {
        let cpu = self.threads[thread].cpu;
        self.cpus[cpu].current = None;
        self.run_next(cpu);
    }

    fn run_next(&mut self, cpu: usize) {
        let Some(next) = self.cpus[cpu].queue.pop_front() else { return };
        self.cpus[cpu].current = Some(next);
        self.cpus[cpu].picked_at_ns = self.now_ns;
        let (left_ns, step) = (self.threads[next].until_ns, self.threads[next].step);
        self.occupy(next, self.simulation.costs.switch_ns / 2.0 + left_ns, step);
    }

    /// The kernel looks whether the one that runs here has run long enough.
    pub(super) fn tick(&mut self, cpu: usize) {
        self.push(self.simulation.costs.slice_ns, Event::Tick { cpu });
        if let Some(current) = self.cpus[cpu].current
            && self.had_its_slice(cpu)
            && !self.cpus[cpu].queue.is_empty()
        {
            self.preempt(current);
        }
    }

    /// Whether the thread is on its CPU.
    pub(super) fn runs(&self, thread: usize) -> bool {
        self.cpus[self.threads[thread].cpu].current == Some(thread)
    }
}

/// A thread that came to its CPU between two ticks keeps it at the next if it has had less of its slice than this.
const SHORTEST_SHARE: f64 = 0.35;
