//! What new processes are told, and what the files of a session are called.

use super::VERSION;

/// Names the directory of the segments to the preloaded library.
pub const DIRECTORY_VARIABLE: &str = "LOCKMETER_DIR";
/// Tells the preloaded library how to meter: a [`Session`].
pub const SESSION_VARIABLE: &str = "LOCKMETER_SESSION";
/// The file in that directory that holds what new processes are told: a [`Session`].
pub const SESSION_FILE: &str = "session";
/// The file in that directory with the memory that programs record to: pages, from [`SessionHead`](super::SessionHead) on.
pub const MEMORY_FILE: &str = "memory";

/// Metering is off.
pub const OFF: u32 = 0;
/// Waits are metered.
pub const WAIT: u32 = 1;
/// Waits are metered, acquisitions counted and holds timed.
pub const HOLD: u32 = 2;

/// How new processes are to meter. They find it in their environment, as text: opening a file would cost each of them 10 µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// [`OFF`], [`WAIT`] or [`HOLD`].
    pub level: u32,
    /// Nanoseconds a tick of the time stamp counter, times 2^32; 0 where only `clock_gettime` will do.
    pub tick_ns_shifted: u64,
    /// Holds that each thread times for a second of its CPU time; 0: all of them.
    pub timed_holds: u32,
}

impl Session {
    /// As text: [`VERSION`] and the fields, with spaces between.
    #[cfg(feature = "reader")]
    pub fn to_text(self) -> String {
        format!("{VERSION} {} {} {}", self.level, self.tick_ns_shifted, self.timed_holds)
    }

    /// From that text; `None` if it is of another version or none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut numbers = text.split(|byte| *byte == b' ').map(number);
        let mut next = || numbers.next().flatten();
        if next()? != u64::from(VERSION) {
            return None;
        }
        let session = Self {
            level: u32::try_from(next()?).ok()?,
            tick_ns_shifted: next()?,
            timed_holds: u32::try_from(next()?).ok()?,
        };
        numbers.next().is_none().then_some(session)
    }
}

/// A decimal number.
fn number(text: &[u8]) -> Option<u64> {
    let add = |number: u64, digit: &u8| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, add) }
}

#[cfg(all(test, feature = "reader"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_how_to_meter_and_takes_nothing_else_for_it() {
        let session = Session { level: HOLD, tick_ns_shifted: u64::MAX, timed_holds: 25_000 };
        let text = session.to_text();
        assert_eq!(Session::parse(text.as_bytes()), Some(session));
        let of_another_version = text.replacen(&VERSION.to_string(), &(VERSION + 1).to_string(), 1);
        for wrong in
            [&*of_another_version, &format!("{text} 1"), &format!("{text}0000000"), &text[..text.len() - 6], "", "x"]
        {
            assert_eq!(Session::parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
