//! How durations are written.

use std::time::Duration;

/// Longer recordings are surely mistyped.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// Longer intervals would lose too much if the recorder is killed.
pub const LONGEST_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Any time, with its unit.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    if text.trim().parse::<f64>().is_ok() {
        return Err(format!("a duration needs a unit: {text}s or {text}ms"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 10s, 500ms or 2m"))
}

/// How long to meter.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_time(text)?;
    if duration.is_zero() {
        return Err("a duration of zero meters nothing; give at least 1ms".into());
    }
    if duration > LONGEST {
        return Err("longer than a year; leave -d out to record until Ctrl-C".into());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_a_sensible_size() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        for bad in ["10", "0s", "", "-1s", "1e9s", "500y", "abc", "99999999999999999999s"] {
            assert!(parse_duration(bad).is_err(), "`{bad}` was taken for a duration");
        }
    }
}
