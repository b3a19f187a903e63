//! The in-process lock meter.
//!
//! Three parts that share one layout:
//!
//! * [`layout`]: the segment, a file that a metered process maps and writes to, and that a collector reads meanwhile;
//! * [`writer`]: what runs inside the metered program. It allocates nothing, takes no lock, does not panic and calls no
//!   function of libc that could come back to an interposed one; it may run in a signal handler;
//! * `reader` (feature `reader`): what runs in the collector and turns segments into intervals of the data model.

pub mod incompatible;
pub mod layout;
#[cfg(feature = "reader")]
pub mod reader;
pub mod writer;
