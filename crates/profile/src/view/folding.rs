//! Adding up what is small where memory is short, so that there is a report of any recording.
//!
//! Totals stay exact: a small stack's estimate, or a thread's counts, go to one that stands for all small ones of the same lock.

use super::rows::BUCKET_BYTES;
use super::{Blamed, Group, ReportBuilder, Site};
use crate::limits::{Limits, TooLarge};
use crate::report::Dimension;
use crate::view::names::{StackName, TextName};

/// What all small ones together are called: where a row has a function, and where it has a thread, which then has no process.
pub const SMALL_ONES: &str = "[small ones, added up]";

/// What can be told apart by less: a group's thread, or the stacks of a site.
type Item = (u64, Group, Option<Site<StackName, TextName>>);

impl ReportBuilder {
    /// Whether what is held fits; adds up what is small until it does, if that is wanted.
    pub(super) fn keep_within(&mut self, limits: &Limits) -> Result<(), TooLarge> {
        self.fold_until(|builder| limits.check(builder.memory_bytes()))
    }

    /// Rows have a histogram each, which is made when everything else is there: adds up what is small until there is room for them too,
    /// if that is wanted.
    pub fn make_room_for_rows(&mut self, limits: &Limits) -> Result<(), TooLarge> {
        let buckets = |builder: &Self| -> usize {
            let sites = builder.groups.values().flat_map(|group| group.sites.values());
            let groups = builder.groups.values().map(|group| group.exact.len());
            sites.map(|site| site.buckets.len()).sum::<usize>() + groups.sum::<usize>()
        };
        match self.folded {
            Some(_) => {
                self.fold_until(|builder| limits.check(builder.memory_bytes() + BUCKET_BYTES * buckets(builder)))
            }
            None => Ok(()),
        }
    }

    fn fold_until(&mut self, check: impl Fn(&Self) -> Result<(), TooLarge>) -> Result<(), TooLarge> {
        let mut fits = check(self);
        while fits.is_err() && self.folded.is_some() && self.fold_smaller_half() {
            fits = check(self);
        }
        fits
    }

    /// Adds up the smaller half; `false` if there is nothing left that could be.
    fn fold_smaller_half(&mut self) -> bool {
        let stack = self.names.small_stack(SMALL_ONES);
        let task = self.names.small_task(SMALL_ONES);
        let label = self.names.label_of(task);
        let by_task = self.query.groups_by(Dimension::Task);
        let small_group = |group: &Group| Group { task: by_task.then_some(Some(task)), ..*group };
        let blamed = |of: Blamed<StackName, TextName>| Blamed {
            stack: of.stack.map(|_| stack),
            task: of.task.map(|_| Some(label)),
            ..of
        };
        // First by whom it is blocked: all of that together is told by rows by blocker. Then who waits.
        let small_site = |site: &Site<StackName, TextName>| {
            let of_caller = Site {
                blocker: site.blocker.map(blamed),
                root: site.root.map(|(_, root)| (None, blamed(root))),
                ..*site
            };
            if of_caller == *site { Site { caller: site.caller.map(|_| stack), ..of_caller } } else { of_caller }
        };
        let mut items: Vec<Item> = Vec::new();
        for (group, measured) in &self.groups {
            let total_ns = measured.exact.values().map(|value| value.total_ns).fold(0, u64::saturating_add);
            if *group != small_group(group) {
                items.push((total_ns, *group, None));
            }
            for (site, estimate) in &measured.sites {
                if *site != small_site(site) {
                    items.push((estimate.run_delay().waited_ns, *group, Some(*site)));
                }
            }
        }
        // Of equal ones the last that came, so that the same recording gives the same report.
        let order = |(ns, group, site): &Item| (*ns, std::cmp::Reverse((group.lock.lock, group.task, *site)));
        items.sort_by_key(order);
        items.truncate(items.len().div_ceil(2));
        let count = items.len() as u64;
        self.folded = self.folded.map(|folded| folded + count);
        for (_, group, site) in items {
            match site {
                Some(site) => {
                    // A group that was added up has taken its sites along.
                    let Some(estimate) = self.groups.get_mut(&group).and_then(|of| of.sites.remove(&site)) else {
                        continue;
                    };
                    self.groups_bytes = self.groups_bytes.saturating_sub(self.site_bytes(&group));
                    self.at_site(group, small_site(&site)).merge(&estimate);
                }
                None => {
                    let Some(mut measured) = self.groups.remove(&group) else { continue };
                    let bytes = self.group_bytes(&group) + measured.sites.len() * self.site_bytes(&group);
                    self.groups_bytes = self.groups_bytes.saturating_sub(bytes);
                    let to = small_group(&group);
                    let sites = std::mem::take(&mut measured.sites);
                    self.measured(to).merge(measured);
                    for (site, estimate) in sites {
                        self.at_site(to, small_site(&site)).merge(&estimate);
                    }
                }
            }
        }
        count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Query;
    use crate::{
        About, Blocker, BlockerSource, Bucket, Frame, Happened, Interval, Key, Kind, Lock, Mode, Naming, OfFilesystem,
        Sampled, Task, Total, Value,
    };

    /// A lock that as many threads wait for, each at a call site of its own, the first longest.
    fn interval(sites: u64) -> Interval {
        let mut interval = Interval { duration_ns: 1_000_000_000, ..Interval::default() };
        let (name, naming) = ("lock".to_owned(), Naming::Symbol);
        let lock = interval.tables.intern_lock(Lock { name, object: None, naming, detail: String::new() });
        for at in 0..sites {
            let task = interval.tables.intern_task(Task { tgid: at as u32, comm: format!("thread_{at}"), own: false });
            let function = Some(format!("site_{at}"));
            let frame = interval.tables.intern_frame(Frame { address: at, function, offset: 0, module: None });
            let site = Some(interval.tables.intern_stack(vec![frame]));
            let total_ns = 1_000_000_000 / (at + 1);
            let key = Key {
                task: Some(task),
                bucket: Bucket::of(total_ns),
                ..Key::of(Happened::Wait, lock, Kind::Mutex, Mode::Exclusive)
            };
            let value = Value { count: 1, total_ns, max_ns: total_ns, spin_ns: 0 };
            interval.totals.push(Total { key, value });
            let blocker = Blocker { stack: site, task: Some(task), ..Blocker::unknown(BlockerSource::Releaser) };
            let filesystem = OfFilesystem::None;
            let sampled = Sampled { key, instance: None, filesystem, site, blocker, stacks: 1, estimate: value };
            interval.sampled.push(sampled);
        }
        interval
    }

    /// Makes sure that what is too much to be held is added up, the largest kept, and that no wait is lost.
    #[test]
    fn small_ones_are_added_up_where_memory_is_short_and_totals_stay_exact() {
        use Dimension::{Blocker, BlockerTask, Caller, Lock, Root, Task};
        let (about, interval, limits) = (About::default(), interval(2_000), Limits::of_recording(0).shared_by(137));
        for by in [&[Lock, Caller][..], &[Lock, Blocker], &[Lock, Caller, Blocker, Root], &[Lock, Task, BlockerTask]] {
            let query = Query::by(by);
            assert!(ReportBuilder::new(&about, &query).add_within(&interval, &limits).is_err(), "{by:?} fits");
            let mut builder = ReportBuilder::folding(&about, &query);
            builder.add_within(&interval, &limits).unwrap();
            builder.make_room_for_rows(&limits).unwrap();
            assert!((1_000..4_000).contains(&builder.folded()), "{by:?}: {}", builder.folded());
            let report = builder.finish_within(&limits).unwrap();
            let sum = |of: fn(&Value) -> u64| report.rows.iter().map(|row| of(&row.value)).sum::<u64>();
            let total = |of: fn(&Value) -> u64| interval.totals.iter().map(|total| of(&total.value)).sum::<u64>();
            assert_eq!(sum(|value| value.total_ns), total(|value| value.total_ns), "{by:?}");
            assert_eq!(sum(|value| value.count), total(|value| value.count), "{by:?}");
            let words = format!("{:?}", report.rows);
            assert!(["site_0\"", "thread_0\""].iter().any(|largest| words.contains(largest)), "{by:?}: {words}");
            assert!(words.contains(SMALL_ONES), "{by:?}: {words}");
        }
    }
}
