//! How it is written which of a program's locks become which of lockmeter's.

use std::fmt;

/// A kind of pthread lock, and what it can become. `std` is the C library's own, left as it is.
#[derive(Debug)]
struct Swappable {
    /// As the command line has it.
    kind: &'static str,
    /// The first is the C library's.
    variants: &'static [&'static str],
}

const SWAPPABLE: [Swappable; 3] = [
    Swappable { kind: "mutex", variants: &["std", "mutex"] },
    Swappable { kind: "rwlock", variants: &["std", "rwsem", "percpu-rwsem"] },
    Swappable { kind: "spin", variants: &["std", "spin"] },
];

/// One kind of lock, and the variant it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    /// As the command line has it.
    pub kind: &'static str,
    /// What it becomes.
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

/// What becomes of each kind: `mutex=mutex,rwlock=rwsem`.
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

/// What to compare: `mutex=std,mutex`.
pub fn parse_variants(text: &str) -> Result<Variants, String> {
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
