//! From what is to be metered to intervals of it: chooses the sources, starts and follows the command, and runs one loop that
//! hands what was metered to a sink until the time is up, the target ends or a signal asks to stop.
//!
//! `record`, `mmap`, `latency` and `top` differ in their source and their sink only.

mod about;
mod error;
mod hold_hooks;
pub mod preload;
mod recorder;
mod signals;
mod sources;
mod swap_filter;
pub mod target;

pub use about::describe;
pub use error::{RecorderError, RecorderErrorKind};
pub use hold_hooks::{HoldOptions, HookChoice};
pub use lockmeter_symbols::{Asking, ask_servers};
pub use recorder::{Ended, Recorder, Sink};
pub use signals::{StopSignals, Woken, survive_file_size_limit};
pub use sources::{LockOptions, LockSources, SwapOptions, Which};
pub use swap_filter::environment as swap_environment;
