//! The slowest contended holds of a window, and the chains that they make: A waits for B, who waits for C.

use super::names::{IntervalNames, Names, StackName};
use super::query::Query;
use std::sync::Arc;

use crate::interval::{Interval, TaskId};
use crate::report::{ChainLink, RowTask, SlowHoldRow};
use crate::slow_hold::{NextLock, SlowHold};

/// How many are kept to look for chains in.
const MOST_KEPT: usize = 4096;

/// How many a report shows.
const MOST_SHOWN: usize = 64;

/// A chain longer than this is a circle.
const LONGEST_CHAIN: usize = 16;

/// How much earlier than its waiter noticed a lock may have been released.
const SLACK_NS: u64 = 2_000_000;

/// The longest holds, by name.
#[derive(Debug, Clone, Default)]
pub(super) struct SlowHolds {
    kept: Vec<Kept>,
    /// What the names of all that are kept take.
    text_bytes: usize,
}

#[derive(Debug, Clone)]
struct Kept {
    link: ChainLink,
    tid: u32,
    end_unix_ns: u64,
    site: Option<StackName>,
    /// The next lock, who released it, and that one's thread.
    next: Option<(ChainLink, u32)>,
    wanted: bool,
}

impl SlowHolds {
    pub(super) fn add(
        &mut self,
        names: &mut Names,
        interval_names: &mut IntervalNames<'_>,
        interval: &Interval,
        hold: &SlowHold,
        query: &Query,
    ) {
        let tables = &interval.tables;
        let (Some(lock), Some(task)) = (tables.lock(hold.lock), tables.task(hold.task)) else { return };
        let who = |id: TaskId| tables.task(id).map(|task| RowTask { tgid: Some(task.tgid), comm: task.comm.clone() });
        let next = |next: &NextLock| {
            let link = ChainLink {
                lock: tables.lock(next.lock)?.name.clone(),
                kind: next.kind,
                mode: next.mode,
                total_ns: next.waited_ns,
                task: next.task.and_then(who),
                stack: Arc::default(),
                holder: None,
            };
            Some((link, next.tid))
        };
        let kept = Kept {
            link: ChainLink {
                lock: lock.name.clone(),
                kind: hold.kind,
                mode: hold.mode,
                total_ns: hold.total_ns,
                task: who(hold.task),
                stack: Arc::default(),
                holder: Some(hold.holder),
            },
            tid: hold.tid,
            end_unix_ns: hold.end_unix_ns,
            site: hold.site.and_then(|site| interval_names.stack(names, site, true)).map(|stack| stack.all),
            next: hold.next.as_ref().and_then(next),
            wanted: (query.include_own || !task.own) && query.wants_hold(&lock.name, hold.kind, hold.mode, task),
        };
        self.text_bytes += kept.text_bytes();
        self.kept.push(kept);
        if self.kept.len() >= 2 * MOST_KEPT {
            self.kept.sort_by_key(|kept| std::cmp::Reverse(kept.link.total_ns));
            self.kept.truncate(MOST_KEPT);
            self.text_bytes = self.kept.iter().map(Kept::text_bytes).sum();
        }
    }

    /// What those that are kept take, about.
    pub(super) const fn memory_bytes(&self) -> usize {
        self.kept.len() * size_of::<Kept>() + self.text_bytes
    }

    /// The longest, each with what it waited for in turn.
    pub(super) fn rows(&self, names: &Names) -> Vec<SlowHoldRow> {
        let mut wanted: Vec<&Kept> = self.kept.iter().filter(|kept| kept.wanted).collect();
        wanted
            .sort_by(|one, other| (other.link.total_ns, one.end_unix_ns).cmp(&(one.link.total_ns, other.end_unix_ns)));
        wanted.truncate(MOST_SHOWN);
        wanted.into_iter().map(|kept| self.row(kept, names)).collect()
    }

    fn row(&self, first: &Kept, names: &Names) -> SlowHoldRow {
        let mut chain = vec![first.named(names)];
        let (mut begin_ns, mut end_ns) = (first.begin_unix_ns(), first.end_unix_ns);
        let mut at = first;
        while let Some((link, tid)) = at.next.as_ref().filter(|_| chain.len() < LONGEST_CHAIN) {
            // The thread may have held it more than once, one time right before the waiter came.
            let candidates = self.kept.iter().filter(|kept| kept.is(at, &link.lock, *tid));
            let Some(next) = candidates.max_by_key(|kept| kept.overlap_ns(at)) else {
                chain.push(link.clone());
                break;
            };
            chain.push(next.named(names));
            begin_ns = begin_ns.min(next.begin_unix_ns());
            end_ns = end_ns.max(next.end_unix_ns);
            at = next;
        }
        SlowHoldRow { end_unix_ns: first.end_unix_ns, chain, span_ns: end_ns.saturating_sub(begin_ns) }
    }
}

impl Kept {
    fn named(&self, names: &Names) -> ChainLink {
        let stack = self.site.map(|site| names.functions(site)).unwrap_or_default();
        ChainLink { stack, ..self.link.clone() }
    }

    fn text_bytes(&self) -> usize {
        let link = |link: &ChainLink| link.lock.len() + link.task.as_ref().map_or(0, |task| task.comm.len());
        link(&self.link) + self.next.as_ref().map_or(0, |(next, _)| link(next))
    }

    fn begin_unix_ns(&self) -> u64 {
        self.end_unix_ns.saturating_sub(self.link.total_ns)
    }

    fn overlap_ns(&self, other: &Self) -> u64 {
        let end_ns = self.end_unix_ns.min(other.end_unix_ns);
        end_ns.saturating_sub(self.begin_unix_ns().max(other.begin_unix_ns()))
    }

    /// Whether this is the hold of this lock by this thread that ended while `waiter` held its own.
    fn is(&self, waiter: &Kept, lock: &str, tid: u32) -> bool {
        let while_held = waiter.begin_unix_ns().saturating_sub(SLACK_NS)..=waiter.end_unix_ns.saturating_add(SLACK_NS);
        tid != 0 && self.tid == tid && self.link.lock == lock && while_held.contains(&self.end_unix_ns)
    }
}
