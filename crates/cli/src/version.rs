//! What `--version` tells of a build.

use std::sync::OnceLock;

/// What follows the program's name: its version, the commit, and what was built in. `commit` is what `scripts/source-version commit` printed when `make`
/// began the build, or `None` where Cargo was run alone. One program has one version: further calls return the first one's.
pub fn long_version(version: &str, commit: Option<&str>, features: &[(&str, bool)]) -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| text(version, commit, features))
}

fn text(version: &str, commit: Option<&str>, features: &[(&str, bool)]) -> String {
    let commit = match commit {
        Some("") => "unknown (not built from a git checkout)",
        Some(commit) => commit,
        None => "unknown (not built by make)",
    };
    let always = [("debug-assertions", cfg!(debug_assertions))];
    let features: Vec<String> = features
        .iter()
        .chain(&always)
        .map(|(name, is_there)| format!("{}{name}", if *is_there { '+' } else { '-' }))
        .collect();
    format!("{version}\ncommit: {commit}\nfeatures: {}", features.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_whose_commit_is_not_known_says_so() {
        let said = |commit| text("0.1.0", commit, &[("static", true), ("other", false)]);
        assert!(said(Some("0123456789ab of 2026-11-28")).contains("\ncommit: 0123456789ab of 2026-11-28\n"));
        assert!(said(Some("")).contains("\ncommit: unknown (not built from a git checkout)\n"));
        assert!(said(None).contains("\ncommit: unknown (not built by make)\n"));
        assert!(said(None).contains("\nfeatures: +static -other "));
    }
}
