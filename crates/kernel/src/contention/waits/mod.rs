//! Waits for kernel locks, and who makes tasks wait.

mod blockers;
mod older;
mod waking;

#[cfg(test)]
pub(crate) use blockers::BLOCKERS;
pub use older::OlderWait;
pub(super) use older::OlderWaits;
pub(super) use waking::Waking;
