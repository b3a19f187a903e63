//! Waits for kernel locks, and who makes tasks wait.

mod blockers;
mod waking;

#[cfg(test)]
pub(crate) use blockers::BLOCKERS;
pub(super) use waking::Waking;
