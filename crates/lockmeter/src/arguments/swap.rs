//! Flags that say which of a program's locks become which of lockmeter's, and those of `lockmeter compare`.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use regex_lite::Regex;

use super::values::parse_timeout;

/// A kind of pthread lock, and what it can become. `std` is the C library's own, left as it is.
#[derive(Debug)]
pub struct Swappable {
    /// As the command line has it.
    pub kind: &'static str,
    /// The first is the C library's.
    pub variants: &'static [&'static str],
}

const SWAPPABLE: [Swappable; 3] = [
    Swappable { kind: "mutex", variants: &["std", "mutex"] },
    Swappable { kind: "rwlock", variants: &["std", "rwsem", "percpu-rwsem"] },
    Swappable { kind: "spin", variants: &["std", "spin"] },
];

/// One kind of lock, and the variant it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    pub kind: &'static str,
    pub variant: &'static str,
}

impl Swap {
    /// Whether nothing is swapped.
    pub fn is_std(self) -> bool {
        self.variant == "std"
    }
}

impl fmt::Display for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.variant)
    }
}

/// What becomes of which kind of lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swaps(pub Vec<Swap>);

impl fmt::Display for Swaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let swaps: Vec<String> = self.0.iter().map(Swap::to_string).collect();
        f.write_str(&swaps.join(","))
    }
}

/// One kind of lock, and the variants to compare: the first is what the others are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variants(pub Vec<Swap>);

fn split(text: &str) -> Result<(&str, &str), String> {
    text.split_once('=').ok_or_else(|| format!("write it as KIND=VARIANT, such as rwlock=rwsem, not `{text}`"))
}

fn find_kind(kind: &str) -> Result<&'static Swappable, String> {
    let kinds = || SWAPPABLE.iter().map(|swappable| swappable.kind).collect::<Vec<_>>().join(", ");
    let found = SWAPPABLE.iter().find(|swappable| swappable.kind == kind);
    found.ok_or_else(|| format!("locks of the kind `{kind}` cannot be swapped; choose from {}", kinds()))
}

fn find(swappable: &Swappable, variant: &str) -> Result<Swap, String> {
    let found = swappable.variants.iter().find(|known| **known == variant);
    let variant = found.ok_or_else(|| {
        let variants = swappable.variants.join(", ");
        format!("a {} cannot become `{variant}`; choose from {variants}", swappable.kind)
    })?;
    Ok(Swap { kind: swappable.kind, variant })
}

pub fn parse_swaps(text: &str) -> Result<Swaps, String> {
    let mut swaps: Vec<Swap> = Vec::new();
    for part in text.split(',') {
        let (kind, variant) = split(part.trim())?;
        let swap = find(find_kind(kind)?, variant)?;
        if swaps.iter().any(|known| known.kind == swap.kind) {
            return Err(format!("a {kind} can become one thing only; `compare` runs several in turn"));
        }
        swaps.push(swap);
    }
    Ok(Swaps(swaps))
}

fn parse_variants(text: &str) -> Result<Variants, String> {
    let (kind, list) = split(text)?;
    let swappable = find_kind(kind)?;
    let mut variants = Vec::new();
    for variant in list.split(',') {
        let swap = find(swappable, variant.trim())?;
        if variants.contains(&swap) {
            return Err(format!("`{variant}` is named twice"));
        }
        variants.push(swap);
    }
    if variants.len() < 2 {
        return Err(format!("there is nothing to compare with; give two variants, such as {kind}=std,{list}"));
    }
    Ok(Variants(variants))
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  lockmeter compare --swap mutex=std,mutex -- ./benchmark
  lockmeter compare --swap rwlock=std,rwsem,percpu-rwsem --runs 15 -- ./benchmark --threads 4
  lockmeter compare --swap mutex=std,mutex --metric '([0-9.]+) requests per second' -- ./load
  lockmeter compare --swap mutex=std,mutex --metric 'p99: ([0-9.]+) ms' --lower-is-better -- ./load

Variants: mutex: std, mutex; rwlock: std, rwsem, percpu-rwsem; spin: std, spin. `std` is the C library's lock,
called through the same preloaded library as the others, so that the ratio is that of the locks.";

#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct CompareArguments {
    /// What to compare: a kind of pthread lock, and what it becomes; the first is compared with
    #[arg(long, value_name = "KIND=VARIANT,VARIANT…", value_parser = parse_variants)]
    pub swap: Variants,
    /// Only locks whose name, or the name of the function that makes or first takes them, contains or matches this
    #[arg(long, value_name = "PATTERN")]
    pub lock: Option<String>,
    /// How often each variant runs
    #[arg(long, value_name = "COUNT", default_value_t = 9, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub runs: u32,
    /// How often each variant runs before that, not measured
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub warmup: u32,
    /// End a run that takes longer than this, and leave its variant out [default: ten times the longest run so far, at least 1m]
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub timeout: Option<Duration>,
    /// Compare a number that the command prints instead of the time it takes: what the first group of this matches last
    #[arg(long, value_name = "REGEX", value_parser = parse_metric)]
    pub metric: Option<Regex>,
    /// A higher number is better (the default with --metric)
    #[arg(long, requires = "metric", conflicts_with = "lower_is_better")]
    pub higher_is_better: bool,
    /// A lower number is better
    #[arg(long, requires = "metric")]
    pub lower_is_better: bool,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How to write the result
    #[arg(long, value_enum, default_value_t = CompareFormat::Table)]
    pub format: CompareFormat,
    /// Where to write it instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The command to run
    #[arg(last = true, value_name = "COMMAND", required = true, num_args = 1.., allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// For people
    Table,
    /// For programs
    Json,
    /// For spreadsheets: every run
    Csv,
}

fn parse_metric(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_takes_its_own_variants_and_no_others() {
        assert_eq!(
            parse_swaps("mutex=mutex,rwlock=percpu-rwsem").unwrap().to_string(),
            "mutex=mutex,rwlock=percpu-rwsem"
        );
        for bad in ["", "mutex", "mutex=", "mutex=rwsem", "futex=mutex", "mutex=mutex,mutex=std", "spin=mutex"] {
            assert!(parse_swaps(bad).is_err(), "`{bad}` was taken for a swap");
        }
    }

    #[test]
    fn a_comparison_needs_two_different_variants_of_one_kind() {
        assert_eq!(parse_variants("rwlock=std,rwsem").unwrap().0.len(), 2);
        for bad in ["rwlock", "rwlock=std", "rwlock=std,std", "rwlock=std,mutex", "rwlock=std,mutex=std"] {
            assert!(parse_variants(bad).is_err(), "`{bad}` was taken for variants");
        }
    }
}
