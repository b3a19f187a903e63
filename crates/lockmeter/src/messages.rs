//! What is said on standard error.

use std::fmt::Display;
use std::io::Write;

/// Says a line. Whoever reads may be gone: a recording goes on without being watched.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
