//! A random sample of a thread's reads: for a count that all threads share, and that none should change at each read. At random, so that a
//! program that reads two locks in turn does not have the same one counted each time.

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
mod counted {
    use crate::current_thread::{sampling_state, set_sampling_state};

    /// A sample is taken after at most this many reads, half of it on average. In the thread's variable this bit says that it is time; the
    /// bits below count reads up from a random start, and the bits above are the random number that chose the start.
    const MOST_READS: u32 = 1 << 7;
    const RANDOM_SHIFT: u32 = 8;
    const RANDOM_BITS: u32 = u32::BITS - RANDOM_SHIFT;

    /// Counts a read of this thread, and says whether it is a sample. If so, [`weight`] must be called next.
    #[inline(always)]
    pub(crate) fn is_sample() -> bool {
        let state = sampling_state().wrapping_add(1);
        set_sampling_state(state);
        state & MOST_READS != 0
    }

    /// How many reads this sample stands for, itself among them.
    pub(crate) fn weight() -> u32 {
        let random = sampling_state() >> RANDOM_SHIFT;
        let weight = MOST_READS - start(random);
        let random = random.wrapping_mul(0x005f_77f5).wrapping_add(1) % (1 << RANDOM_BITS);
        set_sampling_state(random << RANDOM_SHIFT | start(random));
        weight
    }

    fn start(random: u32) -> u32 {
        random / ((1 << RANDOM_BITS) / MOST_READS)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn samples_stand_for_all_reads_and_have_no_period() {
            let mut gaps: Vec<u32> = Vec::new();
            let mut since = 0;
            for _ in 0..100_000 {
                since += 1;
                if is_sample() {
                    assert_eq!(weight(), since);
                    gaps.push(since);
                    since = 0;
                }
            }
            assert!((1_400..1_700).contains(&gaps.len()), "{}", gaps.len());
            let short = gaps.iter().filter(|&&gap| gap <= MOST_READS / 4).count();
            assert!((gaps.len() / 5..gaps.len() / 3).contains(&short), "{short} of {}", gaps.len());
        }
    }
}

/// Every read is a sample: without thread-local storage reads cannot be counted, and a model checker chooses itself what happens when.
#[cfg(not(all(feature = "std", not(any(loom, shuttle)))))]
mod counted {
    pub(crate) fn is_sample() -> bool {
        true
    }

    pub(crate) fn weight() -> u32 {
        1
    }
}

pub(crate) use counted::{is_sample, weight};
