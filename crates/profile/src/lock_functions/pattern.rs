//! How names of functions are compared with those in the tables.

/// Endings that compilers give to copies and pieces of a function.
const COMPILER_ENDINGS: &[&str] = &["isra", "constprop", "part", "cold", "llvm", "lto_priv"];

/// A function's name without the endings that compilers add (`.isra.0`, `.constprop.0`, `.part.0`, `.cold`).
pub fn plain_name(name: &str) -> &str {
    let mut plain = name;
    while let Some((stem, ending)) = plain.rsplit_once('.') {
        let is_number = !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_digit());
        let (stem, ending) = if is_number { stem.rsplit_once('.').unwrap_or((plain, "")) } else { (stem, ending) };
        if stem.is_empty() || !COMPILER_ENDINGS.contains(&ending) {
            break;
        }
        plain = stem;
    }
    plain
}

/// Whether a function has a name of one of these patterns; it is the [plain](plain_name) one.
pub(super) fn matches_any(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| matches_pattern(pattern, name))
}

/// A `*` stands for anything, also for nothing.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    // Most patterns differ in their first letter: every frame of a recording is compared with a hundred of them.
    if !pattern.starts_with('*') && pattern.as_bytes().first() != name.as_bytes().first() {
        return false;
    }
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|start| name.strip_prefix(start)) else { return false };
    let Some(end) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compilers_append_is_removed_and_nothing_else() {
        for name in
            ["f.isra.0", "f.constprop.12", "f.part.0", "f.cold", "f.isra.0.cold", "f.part.0.isra.3", "f.llvm.123"]
        {
            assert_eq!(plain_name(name), "f");
        }
        for name in ["main.(*Server).lock", "f", "sync.0", ".part.0", "a.b.c", "f.", ""] {
            assert_eq!(plain_name(name), name);
        }
    }

    #[test]
    fn a_star_stands_for_anything_or_nothing() {
        for (pattern, name) in
            [("up", "up"), ("a*", "a"), ("*b", "ab"), ("a*b", "ab"), ("a*b*c", "a_b_b_c"), ("a*b*", "abc")]
        {
            assert!(matches_pattern(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("up", "upper"), ("a*b", "a"), ("aa*aa", "aaa"), ("a*b*c", "acb"), ("a*b*b", "ab")] {
            assert!(!matches_pattern(pattern, name), "{pattern} {name}");
        }
    }
}
