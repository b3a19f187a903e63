//! Who runs where: threads stay on their CPU until they sleep or their slice is over.

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
        self.threads[thread].ready_at_ns = self.now_ns;
        match self.cpus[cpu].current {
            None => {
                self.cpus[cpu].queue.push_back(thread);
                self.run_next(cpu);
            }
            // Who has had most of its slice makes room for one that slept.
            Some(current) if self.had_its_slice(cpu) && self.acting != Some(current) => {
                self.cpus[cpu].queue.push_front(thread);
                self.preempt(current);
            }
            Some(_) => self.cpus[cpu].queue.push_back(thread),
        }
    }

    /// Puts the thread behind all others that wait for its CPU.
    fn preempt(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        state.turn = state.turn.wrapping_add(1);
        state.until_ns = (state.until_ns - self.now_ns).max(0.0);
        state.ready_at_ns = self.now_ns;
        let cpu = state.cpu;
        self.cpus[cpu].queue.push_back(thread);
        self.run_next(cpu);
    }

    /// Whether whoever runs here has run long enough, and is not about to leave anyway.
    fn had_its_slice(&self, cpu: usize) -> bool {
        let leaves = self.cpus[cpu].current.is_some_and(|current| self.threads[current].step == Step::Sleep);
        !leaves && self.now_ns - self.cpus[cpu].picked_at_ns >= self.play.costs.slice_ns * SHORTEST_SHARE
    }

    /// Another thread may have what this one ran on. Only for a thread that is not to run.
    pub(super) fn leave_cpu(&mut self, thread: usize) {
        let cpu = self.threads[thread].cpu;
        self.cpus[cpu].current = None;
        self.run_next(cpu);
    }

    fn run_next(&mut self, cpu: usize) {
        let Some(next) = self.cpus[cpu].queue.pop_front().or_else(|| self.pull(cpu, HOT_NS)) else { return };
        self.cpus[cpu].current = Some(next);
        self.cpus[cpu].picked_at_ns = self.now_ns;
        let (left_ns, step) = (self.threads[next].until_ns, self.threads[next].step);
        self.occupy(next, self.play.costs.switch_ns / 2.0 + left_ns, step);
    }

    /// Takes a thread that has waited for so long for another CPU.
    fn pull(&mut self, cpu: usize, waited_ns: f64) -> Option<usize> {
        let now_ns = self.now_ns;
        let threads = &self.threads;
        let waited = |thread: &usize| now_ns - threads[*thread].ready_at_ns >= waited_ns;
        let from = self.cpus.iter_mut().max_by_key(|other| other.queue.len())?;
        let at = from.queue.iter().position(waited)?;
        let thread = from.queue.remove(at)?;
        self.threads[thread].cpu = cpu;
        Some(thread)
    }

    /// The kernel looks whether whoever runs here has run long enough, or an idle CPU could have somebody.
    pub(super) fn tick(&mut self, cpu: usize) {
        self.push(self.play.costs.slice_ns, Event::Tick { cpu });
        match self.cpus[cpu].current {
            Some(current) if self.had_its_slice(cpu) && !self.cpus[cpu].queue.is_empty() => self.preempt(current),
            Some(_) => {}
            None => {
                if let Some(thread) = self.pull(cpu, 0.0) {
                    self.cpus[cpu].queue.push_back(thread);
                    self.run_next(cpu);
                }
            }
        }
    }

    /// Whether the thread is on its CPU.
    pub(super) fn runs(&self, thread: usize) -> bool {
        self.cpus[self.threads[thread].cpu].current == Some(thread)
    }
}

/// A thread that was on its CPU less long ago stays there, for its data is in that CPU's cache (the kernel's `migration_cost_ns`).
const HOT_NS: f64 = 500_000.0;
/// A thread that came to its CPU between two ticks keeps it at the next if it has had less of its slice than this.
const SHORTEST_SHARE: f64 = 0.35;
