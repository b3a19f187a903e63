//! The rules that lockmeter comes with.

use super::{RuleSet, Rules, file};

/// What they are called together, and their version: it is raised with every change of them.
pub(super) const NAME: &str = "lockmeter";
const VERSION: &str = "7";

macro_rules! shipped {
    ($($file:literal),+) => { &[$(($file, include_str!(concat!("../../rules/", $file)))),+] };
}

/// Their files.
pub const SHIPPED: &[(&str, &str)] = shipped!(
    "c-library.toml",
    "cpp.toml",
    "absl.toml",
    "tbb.toml",
    "openmp.toml",
    "qt.toml",
    "glib.toml",
    "rust.toml",
    "go.toml",
    "python.toml",
    "java.toml",
    "javascript.toml",
    "postgresql.toml",
    "mariadb.toml",
    "rocksdb.toml",
    "redis.toml",
    "ruby.toml",
    "sqlite.toml"
);

pub(super) fn add(rules: &mut Rules) {
    let mut checksum = flate2::Crc::new();
    SHIPPED.iter().for_each(|(_, text)| checksum.update(text.as_bytes()));
    rules.sets.push(RuleSet { name: NAME.to_owned(), version: VERSION.to_owned(), checksum: checksum.sum() });
    for (name, text) in SHIPPED {
        if let Err(error) = file::add_to_last_set(rules, name, text) {
            panic!("lockmeter comes with rules that it cannot read: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes sure that what reading them costs at each start of a program stays small: a small program of their size.
    #[test]
    fn the_shipped_rules_are_read() {
        let rules = Rules::shipped();
        assert_eq!(rules.sets().len(), 1);
        assert!(rules.all().count() > 40);
        let bytes: usize = SHIPPED.iter().map(|(_, text)| text.len()).sum();
        assert!(bytes < 64 << 10, "{bytes} bytes of rules are read at each start");
    }
}
