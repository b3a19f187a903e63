//! How values are written on the command line: durations, shares, groupings, windows.

use std::time::Duration;

use lockmeter_cli::durations::{LONGEST_INTERVAL, parse_time};
use lockmeter_kernel::contention::StackBudget;
use lockmeter_profile::{Dimension, Kind, Mode};

/// Shorter intervals would spend more on reading the tables than on metering.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);
/// Nothing ends in less.
const SHORTEST_THRESHOLD: Duration = Duration::from_micros(1);

/// One or two dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dimensions(pub Vec<Dimension>);

/// A part of a recording, as offsets from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: Duration,
    pub to: Option<Duration>,
}

pub(super) fn parse_threshold(text: &str) -> Result<Duration, String> {
    let threshold = parse_time(text)?;
    if threshold < SHORTEST_THRESHOLD {
        return Err("every run takes at least that long; give at least 1us".into());
    }
    Ok(threshold)
}

pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_time(text)?;
    if !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
        return Err("give an interval between 50ms and 1h".into());
    }
    Ok(interval)
}

pub(super) fn parse_budget(text: &str) -> Result<StackBudget, String> {
    parse_share_ppm(text).map(|ppm| StackBudget::Share { ppm })
}

/// A share in millionths.
pub(super) fn parse_share_ppm(text: &str) -> Result<u32, String> {
    let percent: f64 = text
        .strip_suffix('%')
        .and_then(|number| number.trim().parse().ok())
        .ok_or("write the share as a percentage, such as 1% or 0.3%")?;
    if !(0.01..=100.0).contains(&percent) {
        return Err("give a share between 0.01% and 100%".into());
    }
    Ok((percent * 10_000.0).round() as u32)
}

/// Rows by more would hardly add anything up.
const MOST_DIMENSIONS: usize = 3;

pub(super) fn parse_dimensions(text: &str) -> Result<Dimensions, String> {
    let names = || Dimension::ALL.iter().map(|dimension| dimension.name()).collect::<Vec<_>>().join(", ");
    let mut dimensions = Vec::new();
    for name in text.split(',') {
        let dimension =
            name.trim().parse().map_err(|()| format!("no such grouping `{name}`; choose from {}", names()))?;
        if dimensions.contains(&dimension) {
            return Err(format!("`{name}` is named twice"));
        }
        dimensions.push(dimension);
    }
    if dimensions.len() > MOST_DIMENSIONS {
        return Err(format!("at most {MOST_DIMENSIONS} groupings can be combined"));
    }
    Ok(Dimensions(dimensions))
}

/// Permissions in octal, as chmod takes them.
pub(super) fn parse_permissions(text: &str) -> Result<u32, String> {
    let is_octal = !text.is_empty() && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| "write permissions in octal, such as 0644 or 640".to_owned())
}

pub(super) fn parse_mode(text: &str) -> Result<Mode, String> {
    text.parse().map_err(|()| "choose from exclusive, read, write".to_owned())
}

pub(super) fn parse_kind(text: &str) -> Result<Kind, String> {
    let names = || Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
    text.parse().map_err(|()| format!("no such kind of lock; choose from {}", names()))
}

pub(super) fn parse_window(text: &str) -> Result<Window, String> {
    let (from, to) = text.split_once("..").ok_or("write a window as 2s..5s, 10s.. or ..1m")?;
    let from = if from.is_empty() { Duration::ZERO } else { parse_time(from)? };
    let to = if to.is_empty() { None } else { Some(parse_time(to)?) };
    if to.is_some_and(|to| to <= from) {
        return Err("the window ends before it begins".into());
    }
    Ok(Window { from, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_may_be_open_at_either_end() {
        assert_eq!(
            parse_window("2s..5s"),
            Ok(Window { from: Duration::from_secs(2), to: Some(Duration::from_secs(5)) })
        );
        assert_eq!(parse_window("..1s"), Ok(Window { from: Duration::ZERO, to: Some(Duration::from_secs(1)) }));
        assert!(parse_window("5s..2s").is_err());
        assert!(parse_window("5s").is_err());
    }

    #[test]
    fn permissions_are_octal() {
        assert_eq!((parse_permissions("0644"), parse_permissions("640")), (Ok(0o644), Ok(0o640)));
        for bad in ["", "+644", "648", "1777", "rw", "-1"] {
            assert!(parse_permissions(bad).is_err(), "`{bad}` was taken for permissions");
        }
    }

    #[test]
    fn budgets_are_percentages() {
        assert_eq!(parse_budget("1%"), Ok(StackBudget::Share { ppm: 10_000 }));
        for bad in ["1", "0%", "101%", "x%", ""] {
            assert!(parse_budget(bad).is_err(), "`{bad}` was taken for a budget");
        }
    }
}
