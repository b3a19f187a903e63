//! The hours that a question is about.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockmeter_render::units::moment;

use crate::failure::Failure;
use crate::store::HOUR_NS;

/// A folder of each hour is looked into.
const MOST_HOURS: u64 = 24 * 366;

/// A moment, in nanoseconds of Unix time: `2h` ago, `2026-11-28`, `2026-11-28T13`, `2026-11-28T13:00`, all in UTC.
pub fn moment_ns(text: &str) -> Result<u64, String> {
    let wrong = || "write a time ago, as 2h or 3d, or a date in UTC, as 2026-11-28 or 2026-11-28T13:00".to_owned();
    let time = match humantime::parse_duration(text) {
        Ok(ago) => SystemTime::now().checked_sub(ago),
        Err(_) => {
            let rest = match text.len() {
                10 => "T00:00:00",
                13 => ":00:00",
                16 => ":00",
                _ => "",
            };
            humantime::parse_rfc3339_weak(&format!("{text}{rest}")).ok()
        }
    };
    let since_epoch = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).ok_or_else(wrong)?;
    u64::try_from(since_epoch.as_nanos()).map_err(|_| wrong())
}

/// Whole hours, as those of the partitions: since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window(Range<u64>);

impl Window {
    /// The hours that these moments and what lies between are in.
    pub fn new(since_ns: u64, until_ns: u64) -> Result<Self, Failure> {
        let hours = since_ns / HOUR_NS..until_ns.div_ceil(HOUR_NS);
        if hours.is_empty() {
            return Err(Failure::usage("--until is not after --since: there is no hour between".to_owned()));
        }
        if hours.end - hours.start > MOST_HOURS {
            return Err(Failure::usage("more than a year cannot be asked at once: choose a later --since".to_owned()));
        }
        Ok(Self(hours))
    }

    /// As many hours, that much earlier.
    pub fn earlier(&self, by: Duration) -> Option<Self> {
        let hours = by.as_secs() / 3600;
        Some(Self(self.0.start.checked_sub(hours)?..self.0.end.checked_sub(hours)?))
    }

    /// Each hour.
    pub fn hours(&self) -> Range<u64> {
        self.0.clone()
    }

    /// When it begins and ends, for programs.
    pub fn ends_ns(&self) -> [u64; 2] {
        [self.0.start, self.0.end].map(|hour| hour * HOUR_NS)
    }
}

/// `2026-11-28 13:00 to 15:00 UTC`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [begin, end] = self.ends_ns().map(moment);
        let same_day = begin[..10] == end[..10];
        write!(f, "{} to {} UTC", &begin[..16], if same_day { &end[11..16] } else { &end[..16] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_the_hours_that_its_ends_are_in() {
        let at = |text: &str| moment_ns(text).unwrap();
        let window = Window::new(at("2026-11-28T13:59"), at("2026-11-28T14:01")).unwrap();
        assert_eq!(window.to_string(), "2026-11-28 13:00 to 15:00 UTC");
        assert_eq!(window.hours().count(), 2);
        let day = Window::new(at("2026-11-28"), at("2026-11-29")).unwrap();
        assert_eq!(day.to_string(), "2026-11-28 00:00 to 2026-11-29 00:00 UTC");
        assert_eq!(
            day.earlier(Duration::from_hours(24)).unwrap().to_string(),
            "2026-11-27 00:00 to 2026-11-28 00:00 UTC"
        );
        assert_eq!(at("2026-11-28T13"), at("2026-11-28 13:00:00"));
        assert!(Window::new(at("2026-11-28T13"), at("2026-11-28T13")).is_err());
        assert!(Window::new(at("2020-01-01"), at("2026-01-01")).is_err());
        let then_ns = u128::from(at("2h"));
        let ago = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() - then_ns;
        assert!((7_200_000_000_000..7_260_000_000_000).contains(&ago));
        for wrong in ["", "2", "yesterday", "2026-13-01", "2026-11-28T25", "99999999999y"] {
            assert!(moment_ns(wrong).is_err(), "{wrong}");
        }
    }
}
