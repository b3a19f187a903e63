//! Holds of kernel locks: by function hooks, and the contended part of them.

mod hold_budget;
mod hook_entry;
pub(super) mod hooked;
mod open_holds;
mod slow_holds;
mod untimed;

pub use hooked::{Hooks, OverBudget, SLEEPING_KINDS, SPINNING_KINDS, spin_functions_inlined};
pub(super) use untimed::HoldLengths;
#[cfg(test)]
pub(crate) use untimed::NOT_IN_THE_MODEL;
