//! How far the kernel is locked down: by `lockdown=` on its command line, or by Secure Boot on some distributions.

use std::fs;

/// Where the kernel says it; part of securityfs.
pub(crate) const PATH: &str = "/sys/kernel/security/lockdown";

/// What to do about [`Level::Confidentiality`].
pub(crate) const HOW_TO_ALLOW: &str =
    "boot with lockdown=integrity or without lockdown= (and with Secure Boot off, where that turns it on)";

/// A level of lockdown; each forbids what those before it forbid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Nothing is forbidden.
    None,
    /// Nobody may change the running kernel.
    Integrity,
    /// Nobody may read the kernel's memory, nor trace it.
    Confidentiality,
}

impl Level {
    /// As the kernel calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Integrity => "integrity",
            Self::Confidentiality => "confidentiality",
        }
    }
}

/// `None` where the kernel does not say it: it knows no lockdown, or securityfs is not mounted.
pub(crate) fn level() -> Option<Level> {
    parse(&fs::read_to_string(PATH).ok()?)
}

/// The level in brackets of `none [integrity] confidentiality`.
fn parse(text: &str) -> Option<Level> {
    [Level::None, Level::Integrity, Level::Confidentiality]
        .into_iter()
        .find(|level| text.split_whitespace().any(|word| word == format!("[{}]", level.name())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_in_brackets_is_the_one_in_force() {
        for (text, level) in [
            ("[none] integrity confidentiality\n", Some(Level::None)),
            ("none [integrity] confidentiality\n", Some(Level::Integrity)),
            ("none integrity [confidentiality]\n", Some(Level::Confidentiality)),
            ("none integrity confidentiality\n", None),
            ("", None),
        ] {
            assert_eq!(parse(text), level, "{text:?}");
        }
    }
}
