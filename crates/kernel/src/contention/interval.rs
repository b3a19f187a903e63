//! From what the programs counted (classes, hashes of stacks) to an interval (locks, tasks, call sites).

use std::collections::HashMap;
use std::sync::Arc;

use lockmeter_profile::{
    Basis, Cgroup, CgroupId, FilesystemId, Happened, HoldBasis, Interval, Key, Kind, LockId, Loss, Mode, OfFilesystem,
    Sampled, StackId, Task, TaskId, Total, Value,
};

use super::tables::{Counted, Drained, SampleKey, TotalKey, Untimed};
use crate::cgroups::CgroupTree;
use crate::clock::boot_unix_ns;
use crate::comm::{Comm, text};
use crate::kernel_names::{Functions, KernelNames, SharedNames};
use crate::lock_codes::{context_of, kind_code, kind_mode_of};
use crate::lock_shares::split;

/// Makes intervals, one after another.
pub struct Intervals {
    names: SharedNames,
    cgroups: CgroupTree,
    own_tgid: u32,
    /// What to add to the programs' clock.
    boot_unix_ns: u64,
    /// Stacks of the drain before: a blocker's stack may be older than the wait that it ended.
    previous_stacks: HashMap<u64, Vec<u64>>,
}

/// One interval in the making.
pub(super) struct Builder<'a> {
    pub(super) names: &'a mut KernelNames,
    cgroups: &'a CgroupTree,
    own_tgid: u32,
    pub(super) boot_unix_ns: u64,
    pub(super) interval: &'a mut Interval,
    caches: &'a [u64],
    stacks: HashMap<u64, Vec<u64>>,
    functions: HashMap<u64, Functions>,
    stack_ids: HashMap<u64, Option<StackId>>,
    /// The locks of a class with the share of each; several only where one class holds objects of several types.
    locks: HashMap<(u64, u32), Vec<(LockId, u64)>>,
    /// Of single locks, by their address: each is read once.
    filesystems: HashMap<(LockId, u64), OfFilesystem<FilesystemId>>,
    totals: HashMap<Key, Value>,
}

impl Intervals {
    pub fn new(names: SharedNames) -> Self {
        Self {
            names,
            cgroups: CgroupTree::find(),
            own_tgid: std::process::id(),
            boot_unix_ns: boot_unix_ns(),
            previous_stacks: HashMap::new(),
        }
    }

    /// Names everything that was drained and puts it into the interval.
    pub fn fill(&mut self, interval: &mut Interval, mut drained: Drained, caches: &[u64]) {
        self.cgroups.learn(drained.totals.keys().map(|key| key.cgroup).filter(|id| *id != 0));
        let fresh = std::mem::take(&mut drained.stacks);
        let mut stacks = std::mem::replace(&mut self.previous_stacks, fresh.clone());
        stacks.extend(fresh);
        let mut names = self.names.borrow_mut();
        names.renew_filesystems();
        let mut builder = Builder {
            names: &mut names,
            cgroups: &self.cgroups,
            own_tgid: self.own_tgid,
            boot_unix_ns: self.boot_unix_ns,
            interval,
            caches,
            stacks,
            functions: HashMap::new(),
            stack_ids: HashMap::new(),
            locks: HashMap::new(),
            filesystems: HashMap::new(),
            totals: HashMap::new(),
        };
        builder.name_locks(&drained);
        for (key, counted) in &drained.totals {
            builder.add_total(key, counted);
        }
        for (key, untimed) in &drained.untimed {
            builder.add_basis(key, *untimed);
        }
        for (key, counted) in &drained.samples {
            builder.add_sample(key, counted);
        }
        for hold in &drained.slow_holds {
            builder.add_slow_hold(hold);
        }
        let totals = std::mem::take(&mut builder.totals);
        interval.totals.extend(totals.into_iter().map(|(key, value)| Total { key, value }));
    }
}

impl Builder<'_> {
    /// Finds the lock, or the locks, behind every class.
    fn name_locks(&mut self, drained: &Drained) {
        let mut sites: HashMap<(u64, u32), Vec<(u64, u64)>> = HashMap::new();
        for key in drained.totals.keys() {
            sites.entry((key.class, kind_code(key.meta))).or_default();
        }
        for (key, counted) in &drained.samples {
            sites.entry((key.total.class, kind_code(key.total.meta))).or_default().push((key.site, counted.total_ns));
        }
        for ((class, kind), sites) in sites {
            let stacks: Vec<(Functions, u64)> =
                sites.iter().map(|(hash, weight)| (self.functions(*hash), *weight)).collect();
            let locks = self.name_class(class, kind, &stacks);
            self.locks.insert((class, kind), locks);
        }
    }

    fn name_class(&mut self, class: u64, kind: u32, stacks: &[(Functions, u64)]) -> Vec<(LockId, u64)> {
        let kind = u8::try_from(kind).ok().and_then(Kind::from_code).unwrap_or(Kind::Unknown);
        let named = self.names.name_locks(class, kind, stacks, self.caches);
        named.into_iter().map(|(lock, share)| (self.interval.tables.intern_lock(lock), share)).collect()
    }

    /// The functions on a stack, found out once for all keys that have it.
    pub(super) fn functions(&mut self, hash: u64) -> Functions {
        let names = &mut self.names;
        let stack = self.stacks.get(&hash).map_or(&[][..], Vec::as_slice);
        Arc::clone(self.functions.entry(hash).or_insert_with(|| names.functions(stack)))
    }

    /// The stack of this hash without the frames of metering itself; `None` if it was lost.
    pub(super) fn stack(&mut self, hash: u64) -> Option<StackId> {
        if let Some(known) = self.stack_ids.get(&hash) {
            return *known;
        }
        let tables = &mut self.interval.tables;
        let id = self.stacks.get(&hash).and_then(|addresses| self.names.site(addresses, tables));
        self.stack_ids.insert(hash, id);
        id
    }

    pub(super) fn task(&mut self, tgid: u32, comm: &Comm) -> TaskId {
        let own = tgid == self.own_tgid;
        self.interval.tables.intern_task(Task { tgid, comm: text(comm), own })
    }

    fn cgroup(&mut self, id: u64) -> Option<CgroupId> {
        let path = self.cgroups.path(id).map(str::to_owned);
        (id != 0).then(|| self.interval.tables.intern_cgroup(Cgroup { id, path }))
    }

    /// `None`, counted, for codes that are none of the model's.
    fn key(&mut self, key: &TotalKey, lock: LockId, count: u64) -> Option<Key> {
        let Some((happened, kind, mode)) = codes_of(key) else {
            self.interval.losses.add(Loss::UnknownCode, count);
            return None;
        };
        // A folded slot knows neither task nor cgroup; the idle task has process id 0 but a name.
        let folded = key.tgid == 0 && key.comm[0] == 0;
        Some(Key {
            happened,
            lock,
            kind,
            mode,
            task: (!folded).then(|| self.task(key.tgid, &key.comm)),
            cgroup: self.cgroup(key.cgroup),
            context: context_of(key.meta),
            cpu: key.cpu,
            bucket: key.bucket(),
        })
    }

    /// The locks of its class.
    fn locks_of(&self, key: &TotalKey) -> &[(LockId, u64)] {
        self.locks.get(&(key.class, kind_code(key.meta))).map_or(&[], Vec::as_slice)
    }

    fn add_total(&mut self, key: &TotalKey, counted: &Counted) {
        let whole = Value {
            count: counted.count,
            total_ns: counted.total_ns,
            max_ns: counted.max_ns,
            spin_ns: counted.spin_ns,
        };
        for (lock, value) in split(&whole, self.locks_of(key)) {
            // Several classes can be one lock: each CPU's copy of a per-CPU variable is a class of its own.
            if let Some(key) = self.key(key, lock, value.count) {
                self.totals.entry(key).or_default().merge(&value);
            }
        }
    }

    /// How many of the holds of a total were not timed.
    fn add_basis(&mut self, key: &TotalKey, untimed: Untimed) {
        let whole = Value { count: untimed.count, ..Value::default() };
        for (lock, part) in split(&whole, self.locks_of(key)) {
            let share = part.count as f64 / untimed.count.max(1) as f64;
            let variance_ns2 = untimed.variance_ns2 * share * share;
            let value = HoldBasis { untimed: part.count, variance_ns2, ..HoldBasis::default() };
            if let Some(key) = self.key(key, lock, part.count) {
                self.interval.bases.push(Basis { key, instance: None, site: None, value });
            }
        }
    }

    fn add_sample(&mut self, key: &SampleKey, counted: &Counted) {
        let kind = kind_code(key.total.meta);
        let locks = self.locks.get(&(key.total.class, kind)).cloned().unwrap_or_default();
        let lock = match locks[..] {
            [] => return self.interval.losses.add(Loss::DanglingReference, 1),
            [(only, _)] => only,
            // The class holds several types: this stack says which of them it met.
            [(first, _), ..] => {
                let names = self.functions(key.site);
                let own = self.name_class(key.total.class, kind, &[(names, 1)]);
                own.first().map_or(first, |(lock, _)| *lock)
            }
        };
        let Some(total_key) = self.key(&key.total, lock, 1) else { return };
        let sampled = Sampled {
            key: total_key,
            instance: (key.instance != 0).then_some(key.instance),
            filesystem: self.filesystem(lock, &key.total, key.instance),
            site: self.stack(key.site),
            blocker: self.blocker(key),
            stacks: counted.stacks,
            estimate: Value {
                count: (counted.count + 512) >> 10,
                total_ns: counted.total_ns,
                max_ns: counted.max_ns,
                spin_ns: counted.spin_ns,
            },
        };
        self.interval.sampled.push(sampled);
    }

    /// The file system of a single lock.
    fn filesystem(&mut self, lock: LockId, key: &TotalKey, instance: u64) -> OfFilesystem<FilesystemId> {
        if let Some(known) = self.filesystems.get(&(lock, instance)) {
            return *known;
        }
        let kind = u8::try_from(kind_code(key.meta)).ok().and_then(Kind::from_code).unwrap_or(Kind::Unknown);
        let tables = &mut self.interval.tables;
        let of = match tables.lock(lock) {
            Some(named) => self.names.filesystem(named, key.class, kind, instance, self.caches),
            None => OfFilesystem::NotLookedUp,
        };
        let of = of.map(|filesystem| tables.intern_filesystem(filesystem));
        self.filesystems.insert((lock, instance), of);
        of
    }

    /// Of several locks that a class may be, the likeliest.
    pub(super) fn likeliest(&mut self, class: u64, kind: u32) -> LockId {
        if !self.locks.contains_key(&(class, kind)) {
            let locks = self.name_class(class, kind, &[]);
            self.locks.insert((class, kind), locks);
        }
        let locks = self.locks.get(&(class, kind)).map_or(&[][..], Vec::as_slice);
        let likeliest = locks.iter().max_by_key(|(_, share)| *share).map(|(lock, _)| *lock);
        // Every class has a lock, if only one without a name.
        likeliest.unwrap_or(LockId(u32::MAX))
    }
}

/// The numbers of `enum happened`, `kind` and `mode` in the programs' headers are those of the model (`codes.rs` compares them).
fn codes_of(key: &TotalKey) -> Option<(Happened, Kind, Mode)> {
    /// What the programs say of waits: most events are some.
    const UNMARKED: u8 = 0;
    let (kind, mode) = kind_mode_of(key.meta)?;
    let happened = match key.happened() {
        UNMARKED => Happened::Wait,
        code => Happened::from_code(code)?,
    };
    Some((happened, kind, mode))
}
