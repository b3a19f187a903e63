//! The collector's side: drains the segments of a session into intervals of the data model.
//!
//! A segment is written by a program that may be broken or hostile: nothing in it is trusted, it is read by offsets into
//! bytes that were read (never mapped, so that a file that is cut cannot fault), and what makes no sense is counted as a loss.

mod awaited;
mod background;
mod before_others;
mod directory;
mod divided;
mod filling;
mod keeper;
mod living;
mod memory;
mod off_cpu;
#[cfg(feature = "planted")]
pub mod planted;
mod plausible;
mod process;
mod remaining_writers;
mod segment;
mod session;
mod shared_locks;
mod source;
mod stops;
mod switches;
mod ticker;
mod ticks;
mod untimed;

pub use before_others::BeforeOthers;
pub use directory::{check_own, check_trusted};
pub use session::{Session, SessionError, SessionErrorKind, TIMED_HOLDS};
pub use source::UserSource;

/// How much is metered inside programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Nothing.
    Off,
    /// Waits.
    Wait,
    /// Waits, and every acquisition with the time it was held.
    Hold,
}

impl Level {
    const fn code(self) -> u32 {
        match self {
            Self::Off => crate::layout::OFF,
            Self::Wait => crate::layout::WAIT,
            Self::Hold => crate::layout::HOLD,
        }
    }
}
