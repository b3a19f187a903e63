//! Colour on a terminal, where it is wanted.

use std::borrow::Cow;
use std::ffi::OsString;

use crate::escape::Form;

/// Whether output carries colour and weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    #[default]
    Never,
    /// ANSI escapes for bold, dim and yellow.
    Always,
}

const RESET: &str = "\x1b[0m";
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const WARNING: &str = "\x1b[33m";

/// A way to set text apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// As the rest.
    Plain,
    /// What is read first.
    Bold,
    /// What is read last.
    Dim,
    /// What makes the rest less certain.
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
            (Self::Always, Weight::Bold) => BOLD,
            (Self::Always, Weight::Dim) => DIM,
            (Self::Always, Weight::Warning) => WARNING,
        };
        Cow::Owned(format!("{code}{text}{RESET}"))
    }

    /// Lines of text that may be painted.
    pub(crate) const fn form(self) -> Form {
        match self {
            Self::Never => Form::TEXT,
            Self::Always => Form::text(&["\n", RESET, BOLD, DIM, WARNING]),
        }
    }
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
}
