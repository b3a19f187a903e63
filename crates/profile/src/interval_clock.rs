//! Where one interval ends and the next begins.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::interval::Interval;

/// Nanoseconds since the Unix epoch, by the wall clock.
pub fn unix_now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Cuts a source's time into intervals without gaps. The wall clock is read once, so that intervals stay in order when it is set.
#[derive(Debug)]
pub struct IntervalClock {
    begin: Instant,
    begin_unix_ns: u64,
}

impl IntervalClock {
    /// The first interval begins now.
    pub fn start() -> Self {
        Self { begin: Instant::now(), begin_unix_ns: unix_now_ns() }
    }

    /// Ends an interval, of which only the time is filled in, and begins the next.
    pub fn cut(&mut self) -> Interval {
        let mut interval = Interval::default();
        self.cut_into(&mut interval);
        interval
    }

    /// The same for an interval that holds something already.
    pub fn cut_into(&mut self, interval: &mut Interval) {
        let now = Instant::now();
        interval.start_unix_ns = self.begin_unix_ns;
        interval.duration_ns = u64::try_from((now - self.begin).as_nanos()).unwrap_or(u64::MAX);
        *self = Self { begin: now, begin_unix_ns: interval.start_unix_ns + interval.duration_ns };
    }
}
