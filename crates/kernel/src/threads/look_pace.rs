//! How often all threads are looked at.

/// How often all threads are looked at, which costs by their number. The exact times, and waits for locks, need no look; what threads sleep
/// for is estimated from fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookPace {
    /// Once in this many ticks.
    Ticks(u32),
    /// At each tick, as long as looks take no more than this share of one CPU, in millionths; beyond, as often as it allows, and every two
    /// seconds all the same.
    Share {
        /// 10,000 is one per cent.
        ppm: u32,
    },
}

impl LookPace {
    /// Ten times a second.
    pub const EACH_TICK: Self = Self::Ticks(1);
}

/// Beyond, what threads sleep for would be a guess.
const LONGEST_PAUSE_NS: u64 = 2_000_000_000;

/// Says at which ticks all threads are looked at.
pub(super) struct LookSchedule {
    pace: LookPace,
    /// Ticks since the last one that was due.
    ticks: u32,
    /// When the share of a CPU pays for the next one.
    next_ns: u64,
}

impl LookSchedule {
    pub(super) const fn at(pace: LookPace) -> Self {
        Self { pace, ticks: 0, next_ns: 0 }
    }

    /// Whether all threads are to be looked at at this tick.
    pub(super) fn is_due(&mut self, now_ns: u64) -> bool {
        match self.pace {
            LookPace::Ticks(ticks) => {
                self.ticks += 1;
                let is_due = self.ticks >= ticks;
                if is_due {
                    self.ticks = 0;
                }
                is_due
            }
            LookPace::Share { .. } => now_ns >= self.next_ns,
        }
    }

    /// A look at all threads, whoever asked for it, has used this much CPU time.
    pub(super) fn took(&mut self, cpu_ns: u64, now_ns: u64) {
        if let LookPace::Share { ppm } = self.pace {
            let pause_ns = cpu_ns.saturating_mul(1_000_000) / u64::from(ppm.max(1));
            self.next_ns = self.next_ns.max(now_ns).saturating_add(pause_ns).min(now_ns + LONGEST_PAUSE_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// How many looks there are in ten seconds of which each takes so long, with one more at the end of each second.
    fn looks_in_ten_seconds(pace: LookPace, each_ns: u64) -> u64 {
        let mut schedule = LookSchedule::at(pace);
        let mut count = 0;
        for tick in 1..=100 {
            let now_ns = tick * 100 * MS;
            for is_due in [schedule.is_due(now_ns), tick % 10 == 0] {
                if is_due {
                    schedule.took(each_ns, now_ns);
                    count += 1;
                }
            }
        }
        count
    }

    #[test]
    fn looks_that_cost_little_come_at_each_tick_and_others_take_no_more_than_their_share() {
        let share = LookPace::Share { ppm: 2_500 };
        assert_eq!(looks_in_ten_seconds(LookPace::EACH_TICK, 50 * MS), 110);
        assert_eq!(looks_in_ten_seconds(LookPace::Ticks(20), MS), 15);
        // 0.1 ms ten times a second is a tenth of a per cent of a CPU.
        assert_eq!(looks_in_ten_seconds(share, MS / 10), 110);
        // A millisecond is paid for after 400.
        let paid = looks_in_ten_seconds(share, MS);
        assert!((24..=28).contains(&paid), "{paid}");
        // The looks at the ends of the seconds have to be, and after the first no others come.
        assert_eq!(looks_in_ten_seconds(share, 80 * MS), 11);
        // Where no interval ends, one comes after two seconds all the same.
        let mut schedule = LookSchedule::at(share);
        schedule.took(80 * MS, 0);
        assert!(!schedule.is_due(1_900 * MS) && schedule.is_due(2_000 * MS));
    }
}
