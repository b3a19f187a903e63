//! What is said on standard error.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use lockmeter_render::escape::escaped;

/// Whether only errors are wanted.
static QUIET: AtomicBool = AtomicBool::new(false);

/// What the program is called.
static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// From here on messages that begin with the program's name begin with this one.
pub fn name_program(name: &'static str) {
    // A program that has a name keeps it.
    let _ = PROGRAM.set(name);
}

/// What the program is called.
pub fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("lockmeter")
}

/// From here on [`inform`] says nothing.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether only errors are wanted.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Says a line that is no error: what is done, and how.
pub fn inform(line: impl Display) {
    if !is_quiet() {
        say(line);
    }
}

/// Says what a source has to say, if it was not said before: `overhead` starts sources again for each run.
pub fn notice_once(sentence: String) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.contains(&sentence) {
        inform(format_args!("{}: {sentence}", program()));
        said.insert(sentence);
    }
}

/// Says one line: what names in it hold, line breaks too, is escaped. The reader may be gone: a recording goes on without being
/// watched.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", escaped(&line.to_string()));
}

/// Says several lines, which hold no names.
pub fn explain(lines: &'static str) {
    let _ = writeln!(std::io::stderr(), "{lines}");
}
