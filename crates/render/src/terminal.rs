//! What a terminal may be sent: colour where it is wanted, and nothing that the measured system put into a name.

use std::borrow::Cow;
use std::ffi::OsString;

/// Whether output carries colour and weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    #[default]
    Never,
    /// ANSI escapes for bold, dim and yellow.
    Always,
}

/// A way to set text apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    Plain,
    Bold,
    Dim,
    Warning,
}

impl Colour {
    /// Colour on a terminal, unless `NO_COLOR` is set to something (<https://no-color.org>) or the terminal is a dumb one.
    pub fn detect(is_terminal: bool) -> Self {
        Self::wanted(is_terminal, |name| std::env::var_os(name))
    }

    /// As [`Colour::detect`], with the environment passed in.
    pub fn wanted(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = variable("TERM").is_some_and(|term| term == "dumb");
        if is_terminal && !refused && !dumb { Self::Always } else { Self::Never }
    }

    /// `text`, set apart.
    pub(crate) fn paint(self, text: &str, weight: Weight) -> Cow<'_, str> {
        let code = match (self, weight) {
            (Self::Never, _) | (_, Weight::Plain) => return Cow::Borrowed(text),
            (Self::Always, Weight::Bold) => "1",
            (Self::Always, Weight::Dim) => "2",
            (Self::Always, Weight::Warning) => "33",
        };
        Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m"))
    }
}

/// `text` with control and direction-changing characters escaped: thread names and cgroup paths may hold any.
pub fn printable(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if harmful(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_a_pipe_and_a_dumb_terminal_each_turn_colour_off() {
        let environment =
            |name: &'static str, value: &'static str| move |asked: &str| (asked == name).then(|| OsString::from(value));
        assert_eq!(Colour::wanted(true, |_| None), Colour::Always);
        assert_eq!(Colour::wanted(false, |_| None), Colour::Never);
        assert_eq!(Colour::wanted(true, environment("NO_COLOR", "1")), Colour::Never);
        assert_eq!(Colour::wanted(true, environment("NO_COLOR", "")), Colour::Always);
        assert_eq!(Colour::wanted(true, environment("TERM", "dumb")), Colour::Never);
    }

    #[test]
    fn a_thread_name_cannot_steer_the_terminal() {
        assert_eq!(printable("evil\x1b[2J\n"), "evil\\u{1b}[2J\\n");
        assert_eq!(printable("kworker/0:1"), "kworker/0:1");
    }
}
