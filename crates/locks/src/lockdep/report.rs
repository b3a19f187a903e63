//! What is said of an order that could deadlock.

use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use super::graph::{Edge, graph};

/// One lock taken while another was held.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Step {
    /// The class that was held.
    pub held: String,
    /// Where it was taken.
    pub held_since: &'static Location<'static>,
    /// The class that was taken after it.
    pub taken: String,
    /// Where.
    pub taken_at: &'static Location<'static>,
}

/// An order of locks that could deadlock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// What this thread does just now.
    pub now: Step,
    /// The chain of orders, seen before, that leads back from the lock now taken to the one that is held; empty if both are of
    /// one class.
    pub before: Vec<Step>,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { held, held_since, taken, taken_at } = &self.now;
        writeln!(formatter, "possible deadlock: this thread takes {taken}\n    at {taken_at}")?;
        writeln!(formatter, "while it holds {held}\n    taken at {held_since}")?;
        if self.before.is_empty() {
            return write!(
                formatter,
                "which is of the same class: if it is the same lock, or another thread nests them the other way round, they wait for ever"
            );
        }
        write!(formatter, "but the other way round")?;
        for step in &self.before {
            write!(
                formatter,
                "\n  {} was taken\n    at {}\n  while {} was held\n    taken at {}",
                step.taken, step.taken_at, step.held, step.held_since
            )?;
        }
        Ok(())
    }
}

/// What happens on a report; each order is reported once.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum OnReport {
    /// It is printed to standard error, and the program goes on.
    #[default]
    Print,
    /// The thread panics, before it takes the lock.
    Panic,
    /// This is called, with no lock of the checker's held.
    Call(fn(&Report)),
}

static ON_REPORT: Mutex<OnReport> = Mutex::new(OnReport::Print);

/// Says what happens on a report from now on.
pub fn on_report(what: OnReport) {
    *ON_REPORT.lock().unwrap_or_else(PoisonError::into_inner) = what;
}

pub(super) fn report(now: Edge, back: &[Edge]) {
    let graph = graph();
    let step = |edge: &Edge| Step {
        held: graph.name(edge.from),
        held_since: edge.held_since,
        taken: graph.name(edge.to),
        taken_at: edge.taken_at,
    };
    let report = Report { now: step(&now), before: back.iter().map(step).collect() };
    drop(graph);
    let what = *ON_REPORT.lock().unwrap_or_else(PoisonError::into_inner);
    match what {
        OnReport::Print => eprintln!("lockmeter-locks: {report}"),
        OnReport::Panic => panic!("{report}"),
        OnReport::Call(hook) => hook(&report),
    }
}
