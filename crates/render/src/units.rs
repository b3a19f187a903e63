//! Numbers as people read them: durations, counts, shares, rates, dates.

/// Millionths in one.
pub const MILLION: u64 = 1_000_000;

/// Nanoseconds in one second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// `value × times ÷ of`, rounded to nearest, without overflow on the way; 0 where there is nothing to divide by.
pub fn ratio(value: u64, times: u64, of: u64) -> u64 {
    if of == 0 {
        return 0;
    }
    let (product, of) = (u128::from(value) * u128::from(times), u128::from(of));
    u64::try_from((product + of / 2) / of).unwrap_or(u64::MAX)
}

/// `1,234,567`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 wait`, `1,234 waits`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Three significant digits and a unit: `850 ns`, `12.3 µs`, `1.00 s`, `20.5 min`.
pub fn duration(duration_ns: u64) -> String {
    const UNITS: [(u64, &str); 5] =
        [(1_000, "µs"), (1_000_000, "ms"), (SECOND_NS, "s"), (60 * SECOND_NS, "min"), (3_600 * SECOND_NS, "h")];
    if duration_ns < 1_000 {
        return format!("{duration_ns} ns");
    }
    UNITS
        .iter()
        .find_map(|&(unit_ns, unit)| Some(format!("{} {unit}", three_digits(duration_ns, unit_ns)?)))
        .unwrap_or_else(|| format!("{} h", count(ratio(duration_ns, 1, 3_600 * SECOND_NS))))
}

/// A change of a duration, with its sign: `+12.3 µs`, `-1.00 s`.
pub fn change(change_ns: i64) -> String {
    let sign = match change_ns {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", duration(change_ns.unsigned_abs()))
}

/// `value ÷ unit` with three significant digits; `None` from a thousand on, where the next unit reads better.
fn three_digits(value: u64, unit: u64) -> Option<String> {
    let hundredths = ratio(value, 100, unit);
    if hundredths < 1_000 {
        return Some(format!("{}.{:02}", hundredths / 100, hundredths % 100));
    }
    let tenths = ratio(value, 10, unit);
    if tenths < 1_000 {
        return Some(format!("{}.{}", tenths / 10, tenths % 10));
    }
    let ones = ratio(value, 1, unit);
    (ones < 1_000).then(|| ones.to_string())
}

/// Thousandths with about two significant digits: `1,234`, `62`, `3.1`, `0.62`, `0.006`.
pub fn thousandths(value: u64) -> String {
    match value {
        9_950.. => count(ratio(value, 1, 1_000)),
        995.. => format!("{}.{}", ratio(value, 1, 100) / 10, ratio(value, 1, 100) % 10),
        95.. => format!("0.{:02}", ratio(value, 1, 10)),
        1.. => format!("0.{value:03}"),
        0 => "0".to_owned(),
    }
}

/// A share as a sentence says it: `71 %`, `3.1 %`, `0.06 %`; never rounded up to all of it.
pub fn share(ppm: u64) -> String {
    match ppm {
        MILLION.. => format!("{} %", count(ratio(ppm, 1, 10_000))),
        990_000.. => format!("{}.{} %", ppm / 10_000, ppm % 10_000 / 1_000),
        99_500.. => format!("{} %", ratio(ppm, 1, 10_000)),
        1_000.. => format!("{}.{} %", ratio(ppm, 1, 1_000) / 10, ratio(ppm, 1, 1_000) % 10),
        50.. => format!("0.{:02} %", ratio(ppm, 1, 100)),
        1.. => "under 0.01 %".to_owned(),
        0 => "0 %".to_owned(),
    }
}

/// A share as a column of percentages shows it: `71.3`, `0.4`, `<0.1`.
pub fn percent(ppm: u64) -> String {
    if (1..1_000).contains(&ppm) {
        return "<0.1".to_owned();
    }
    let tenths = ratio(ppm, 1, 1_000);
    format!("{}.{}", count(tenths / 10), tenths % 10)
}

/// A moment as `2026-11-03 12:00:00 UTC`.
pub fn moment(unix_ns: u64) -> String {
    let seconds = unix_ns / SECOND_NS;
    let (year, month, day) = civil_date(seconds / 86_400);
    let second_of_day = seconds % 86_400;
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The time of day in UTC, to the microsecond: `17:19:19.123456`.
pub fn time_of_day(unix_ns: u64) -> String {
    let second_of_day = unix_ns / SECOND_NS % 86_400;
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{hour:02}:{minute:02}:{second:02}.{:06}", unix_ns % SECOND_NS / 1_000)
}

/// Year, month and day of a day since the epoch (Howard Hinnant's `civil_from_days`).
const fn civil_date(days_since_epoch: u64) -> (u64, u64, u64) {
    let days = days_since_epoch + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + (month <= 2) as u64, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_three_digits_and_carry_into_the_next_unit() {
        for (duration_ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (12_345, "12.3 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (62_000_000, "62.0 ms"),
            (1_234_567_890, "1.23 s"),
            (1_230 * SECOND_NS, "20.5 min"),
            (u64::MAX, "5,124,096 h"),
        ] {
            assert_eq!(duration(duration_ns), text);
        }
    }

    #[test]
    fn shares_never_look_more_complete_than_they_are() {
        for (ppm, text) in [
            (0, "0 %"),
            (1, "under 0.01 %"),
            (60, "0.01 %"),
            (31_000, "3.1 %"),
            (710_000, "71 %"),
            (999_999, "99.9 %"),
            (1_000_000, "100 %"),
        ] {
            assert_eq!(share(ppm), text);
        }
        assert_eq!(percent(500), "<0.1");
        assert_eq!(percent(713_400), "71.3");
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!([count(0), count(999), count(1_000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([thousandths(1_400), thousandths(62_000), thousandths(1_999_600)], ["1.4", "62", "2,000"]);
        assert_eq!([thousandths(620), thousandths(14), thousandths(999)], ["0.62", "0.014", "1.0"]);
    }

    #[test]
    fn a_moment_reads_as_a_date() {
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(moment(1_772_323_199 * SECOND_NS), "2026-02-28 23:59:59 UTC");
        assert_eq!(moment(1_709_208_000 * SECOND_NS), "2024-02-29 12:00:00 UTC");
    }
}
