//! From groups to rows: names resolved, estimates scaled, histograms summed up.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::{Ordering, Reverse};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::buckets::Buckets;
use super::names::{Names, StackName, TextName};
use super::scaling::{Estimate, Portion, divide_bucket, scale_bucket};
use super::{
    Blamed, Group, HolderStates, Measured, ReportBuilder, RunDelay, Site, SiteEstimate, SomeSamples, Uniform,
    merge_samples,
};
use crate::filesystem::OfFilesystem;
use crate::interval::BlockerSource;
use crate::limits::{Limits, TooLarge};
use crate::quantile::quantile_ns;
use crate::report::{Dimension, Row, RowBlocker, RowRoot, RowTask, UNKNOWN_FILESYSTEM};
use crate::sample::{Bucket, Context, Happened, HoldBasis, Kind, Mode, Value};
use crate::slow_hold::HolderTime;

/// Place of a stack among all stacks in the order of their functions, so that rows do not depend on the order in which the
/// stacks came.
type StackRank = u32;

/// The same of a text among all texts.
type TextRank = u32;

/// A group as names tell it apart, in the order of the names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NamedGroup<'a> {
    happened: Happened,
    own: bool,
    lock: &'a str,
    kind: Kind,
    mode: Mode,
    object: Option<&'a str>,
    task: Option<TaskLabel<'a>>,
    cgroup: Option<Option<Cow<'a, str>>>,
    context: Option<Option<Context>>,
    cpu: Option<Option<u32>>,
}

/// A task in the order of [`RowTask`].
type TaskLabel<'a> = (Option<u32>, &'a str);

/// What tells rows apart. `None`: not asked for; an inner `None`: not known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey<'a> {
    happened: Happened,
    own: bool,
    lock: Option<&'a str>,
    kind: Option<Kind>,
    mode: Option<Mode>,
    object: Option<Option<&'a str>>,
    task: Option<TaskLabel<'a>>,
    cgroup: Option<Option<Cow<'a, str>>>,
    context: Option<Option<Context>>,
    cpu: Option<Option<u32>>,
    site: Site<StackRank, TextRank>,
}

/// What a row adds up.
#[derive(Debug, Default)]
struct RowSum<'a> {
    histogram: Buckets<(u64, u64)>,
    value: Value,
    /// Of holds.
    basis: Option<Box<HoldBasis>>,
    run_delay: RunDelay,
    samples: SomeSamples,
    /// Of some part it is not known what it rests on.
    lacks_basis: bool,
    /// It is a lock of a program's.
    is_of_program: bool,
    /// Of the part that was metered longest.
    off_ns: Option<u64>,
    stacks: u64,
    kind: Uniform<Kind>,
    mode: Uniform<Mode>,
    releaser: Uniform<Option<&'a str>>,
    states: Option<Box<HolderStates>>,
}

/// A part of a group that goes to one row.
struct Part<'a> {
    site: Site<StackRank, TextRank>,
    buckets: Buckets<Portion>,
    /// `None` where stacks do not tell.
    basis: Option<HoldBasis>,
    run_delay: RunDelay,
    samples: SomeSamples,
    max_ns: u64,
    stacks: u64,
    releaser: Uniform<Option<&'a str>>,
    states: Option<Box<HolderStates>>,
}

/// What a row takes for each bucket of its histogram.
pub(super) const BUCKET_BYTES: usize = size_of::<(u8, Portion)>() + 2 * size_of::<(Bucket, u64, u64)>();

/// What all rows take, about, and what they may.
struct Memory<'a> {
    bytes: usize,
    limits: &'a Limits,
}

impl Memory<'_> {
    fn add_buckets(&mut self, buckets: usize) -> Result<(), TooLarge> {
        self.bytes = self.bytes.saturating_add(buckets.saturating_mul(BUCKET_BYTES));
        self.limits.check(self.bytes)
    }
}

/// The rows, longest total first.
///
/// Groups are consumed as sums of rows are made of them, and these as rows are, so that a large report is in memory once.
pub(super) fn rows(
    builder: &ReportBuilder,
    groups: HashMap<Group, Measured>,
    limits: &Limits,
) -> Result<Vec<Row>, TooLarge> {
    let stacks = RankedStacks::new(&builder.names, builder.query.is_sampled());
    let mut sums = BTreeMap::<RowKey<'_>, RowSum<'_>>::new();
    let mut memory = Memory { bytes: builder.memory_bytes(), limits };
    for (group, measured) in named_groups(builder, groups) {
        let parts = if builder.query.is_sampled() {
            shared_out(builder, &stacks, group.lock, &measured, &mut memory)?
        } else {
            memory.add_buckets(measured.exact.len())?;
            vec![Part::whole(&measured, Site::NONE)]
        };
        let off_ns = off_ns(builder, &group, &measured);
        let is_of_program = !matches!(measured.owner, Uniform::Same(None) | Uniform::Unseen);
        // Its sites are in the parts now.
        drop(measured);
        for part in parts {
            let sum = sums.entry(row_key(builder, &group, part.site)).or_default();
            sum.add(&group, part);
            sum.is_of_program |= is_of_program;
            sum.off_ns = Some(sum.off_ns.map_or(off_ns, |other| other.min(off_ns)));
        }
    }
    let duration_ns = builder.duration_ns;
    let by_caller = ContendedCallers::of(&stacks, &sums);
    let more = |key: &RowKey<'_>| (contended(key, &sums, &by_caller, &stacks, duration_ns), holder(key, &sums));
    let is_held = |(_, key): &(usize, &RowKey<'_>)| matches!(key.happened, Happened::Hold | Happened::ContendedHold);
    let mut of_holds: HashMap<usize, _> =
        sums.keys().enumerate().filter(is_held).map(|(at, key)| (at, more(key))).collect();
    let mut rows: Vec<Row> = sums
        .into_iter()
        .enumerate()
        // What holders did, and which holds were contended, stands in the rows of the holds.
        .filter(|(_, (key, _))| {
            key.happened != Happened::ContendedAcquisition && !HolderTime::PARTS.contains(&key.happened)
        })
        .map(|(at, (key, sum))| {
            let (contended, holder) = of_holds.remove(&at).unwrap_or_default();
            Row { contended, holder: holder.map(Box::new), ..row(builder, &stacks, key, sum) }
        })
        .collect();
    // A stable sort: of equal totals the first by name stays first.
    rows.sort_by_cached_key(|row| Reverse(row.value.total_ns));
    Ok(rows)
}

/// Functions of a hold's caller beyond these do not tell it from others: they are those of one call, inlined into each other.
const MOST_INLINED: usize = 16;

/// What tells the contended acquisitions of callers.
struct ContendedCallers<'a> {
    of_programs: ContendedByCaller<'a>,
    /// By all that rows are told apart by but the caller.
    of_kernel: BTreeMap<RowKey<'a>, KernelHolds>,
}

/// Waits by what their stack begins with, for each number of functions that callers of holds have.
type ContendedByCaller<'a> = BTreeMap<(RowKey<'a>, Vec<Arc<str>>), u64>;

/// What was counted of a kernel lock, by all callers.
#[derive(Debug, Default, Clone, Copy)]
struct KernelHolds {
    waits: u64,
    holds: u64,
    /// Of the holds that were timed, and what they stand for: how many were contended, and of how many of these there is no stack.
    contended: u64,
    without_stack: u64,
    /// And of how many by callers of which no hold was sampled.
    of_other_callers: u64,
}

impl<'a> ContendedCallers<'a> {
    fn of(stacks: &RankedStacks<'a>, sums: &BTreeMap<RowKey<'a>, RowSum<'a>>) -> Self {
        let mut of_kernel = BTreeMap::<_, KernelHolds>::new();
        let kernel = sums.iter().filter(|(key, sum)| key.site.caller.is_some() && !sum.is_of_program);
        for (key, sum) in kernel {
            let all = of_kernel.entry(without_caller(key)).or_default();
            let add = |to: &mut u64| *to = to.saturating_add(sum.value.count);
            match key.happened {
                Happened::Wait => add(&mut all.waits),
                Happened::Hold => add(&mut all.holds),
                Happened::ContendedAcquisition => {
                    add(&mut all.contended);
                    if key.site.caller == Some(RankedStacks::NONE) {
                        add(&mut all.without_stack);
                    } else if !sums.contains_key(&RowKey { happened: Happened::Hold, ..key.clone() }) {
                        add(&mut all.of_other_callers);
                    }
                }
                _ => {}
            }
        }
        Self { of_programs: contended_by_caller(stacks, sums), of_kernel }
    }

    /// How many acquisitions of a kernel lock were contended whose holds this caller ended: its part of all that were.
    fn of_kernel(&self, key: &RowKey<'a>, sums: &BTreeMap<RowKey<'a>, RowSum<'a>>, duration_ns: u64) -> Option<u64> {
        let all = self.of_kernel.get(&without_caller(key)).copied().unwrap_or_default();
        let counted = |key: &RowKey<'_>| sums.get(key).map_or(0, |sum| sum.value.count);
        let count = counted(key);
        if all.waits == 0 {
            return Some(0);
        }
        // An older recording, or too few stacks.
        if all.contended == 0 || all.without_stack > all.contended / 2 {
            return None;
        }
        let own = match key.site.caller {
            Some(RankedStacks::NONE) => all.of_other_callers,
            _ => counted(&RowKey { happened: Happened::ContendedAcquisition, ..key.clone() }),
        };
        // Those without a stack are anybody's.
        let of_all = own as f64 + all.without_stack as f64 * count as f64 / all.holds.max(1) as f64;
        let contended = while_held(sums.get(key), all.waits, None, duration_ns) as f64;
        Some(((contended * of_all / all.contended as f64).round() as u64).min(count))
    }
}

/// The waits of programs' locks by where they were asked for, of which holds know the innermost call.
fn contended_by_caller<'a>(
    stacks: &RankedStacks<'a>,
    sums: &BTreeMap<RowKey<'a>, RowSum<'a>>,
) -> ContendedByCaller<'a> {
    let functions = |key: &RowKey<'a>| Some(stacks.functions(key.site.caller?));
    let of_programs =
        |happened| move |(key, sum): &(&RowKey<'_>, &RowSum<'_>)| key.happened == happened && sum.is_of_program;
    let lengths: BTreeSet<usize> = sums
        .iter()
        .filter(of_programs(Happened::Hold))
        .filter_map(|(key, _)| Some(functions(key)?.len()).filter(|length| (1..=MOST_INLINED).contains(length)))
        .collect();
    let mut contended = ContendedByCaller::new();
    for (key, sum) in sums.iter().filter(of_programs(Happened::Wait)) {
        let Some(functions) = functions(key) else { continue };
        for begin in lengths.iter().filter_map(|length| functions.get(..*length)) {
            let count = contended.entry((without_caller(key), begin.to_vec())).or_default();
            *count = count.saturating_add(sum.value.count);
        }
    }
    contended
}

fn without_caller<'a>(key: &RowKey<'a>) -> RowKey<'a> {
    RowKey { happened: Happened::Wait, site: Site { caller: None, ..key.site }, ..key.clone() }
}

/// Of a row of holds: how many of its acquisitions had to wait. A program's lock is waited for and held by the call that acquires it.
/// A kernel lock is waited for there and held by the one that releases it: then the release says whether the acquisition was contended.
fn contended<'a>(
    key: &RowKey<'a>,
    sums: &BTreeMap<RowKey<'a>, RowSum<'a>>,
    by_caller: &ContendedCallers<'a>,
    stacks: &RankedStacks<'a>,
    duration_ns: u64,
) -> Option<u64> {
    if key.happened != Happened::Hold || key.site.blocker.is_some() || key.site.root.is_some() {
        return None;
    }
    // Of holds of locks that spin it is not known, so their waits are in other rows.
    if key.context == Some(None) {
        return None;
    }
    // A task that slept may have moved to another CPU before it released the lock.
    if key.cpu.is_some() && !matches!(key.kind, Some(Kind::Spin | Kind::Rwlock)) {
        return None;
    }
    if let Some(caller) = key.site.caller {
        if !sums.get(key).is_some_and(|sum| sum.is_of_program) {
            return by_caller.of_kernel(key, sums, duration_ns);
        }
        let functions = stacks.functions(caller);
        let is_told = (1..=MOST_INLINED).contains(&functions.len());
        let count = || by_caller.of_programs.get(&(without_caller(key), functions.to_vec())).copied().unwrap_or(0);
        return is_told.then(count);
    }
    let Some(waits) = sums.get(&RowKey { happened: Happened::Wait, ..key.clone() }) else { return Some(0) };
    Some(while_held(sums.get(key), waits.value.count, waits.off_ns, duration_ns))
}

/// The part of so many waits that falls into the time in which holds were counted: waits may have been counted for longer.
fn while_held(holds: Option<&RowSum<'_>>, waits: u64, waits_off_ns: Option<u64>, duration_ns: u64) -> u64 {
    let metered_ns = |off_ns: Option<u64>| u128::from(duration_ns.saturating_sub(off_ns.unwrap_or(0)));
    let (held_ns, waited_ns) = (holds.map_or(0, |sum| metered_ns(sum.off_ns)), metered_ns(waits_off_ns));
    let count = u128::from(waits) * held_ns.min(waited_ns) / waited_ns.max(1);
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Of a row of contended holds: what the holders did.
fn holder(key: &RowKey<'_>, sums: &BTreeMap<RowKey<'_>, RowSum<'_>>) -> Option<HolderTime> {
    let part = |happened| sums.get(&RowKey { happened, ..key.clone() }).map_or(0, |sum| sum.value.total_ns);
    (key.happened == Happened::ContendedHold).then(|| HolderTime::from_parts(HolderTime::PARTS.map(part)))
}

/// The functions of a stack, as rows have them.
type Functions = Arc<[Arc<str>]>;

/// Stacks in the order of their functions.
struct RankedStacks<'a> {
    names: &'a Names,
    /// Each stack, and its functions once they were asked for: rows share them.
    by_rank: Vec<(StackName, OnceCell<Functions>)>,
    rank_of: Vec<StackRank>,
    text_ranks: Vec<TextRank>,
    text_by_rank: Vec<TextName>,
}

impl<'a> RankedStacks<'a> {
    /// None are ranked if no row is by stack.
    fn new(names: &'a Names, is_needed: bool) -> Self {
        if !is_needed {
            return Self {
                names,
                by_rank: Vec::new(),
                rank_of: Vec::new(),
                text_ranks: Vec::new(),
                text_by_rank: Vec::new(),
            };
        }
        let text_ranks = ranks(names.texts(), |one, other| one.cmp(other));
        let text_rank = |text: &u32| text_ranks[*text as usize];
        let mut rank_of =
            ranks(names.stacks(), |one, other| one.iter().map(text_rank).cmp(other.iter().map(text_rank)));
        // The stack without frames comes first, whether or not there is one.
        let has_empty = names.stacks().iter().any(|stack| stack.is_empty());
        rank_of.iter_mut().for_each(|rank| *rank += StackRank::from(!has_empty));
        let mut by_rank: Vec<_> =
            (0..).take(rank_of.len()).map(|stack| (rank_of[stack as usize], StackName(stack))).collect();
        by_rank.sort_unstable();
        let first = (!has_empty).then(|| (StackName(u32::MAX), OnceCell::from(Arc::default())));
        let by_rank = first.into_iter().chain(by_rank.into_iter().map(|(_, stack)| (stack, OnceCell::new()))).collect();
        let mut text_by_rank = vec![TextName(0); text_ranks.len()];
        for (text, rank) in (0..).zip(&text_ranks) {
            text_by_rank[*rank as usize] = TextName(text);
        }
        Self { names, by_rank, rank_of, text_ranks, text_by_rank }
    }

    const NONE: StackRank = 0;

    fn rank(&self, site: &Site<StackName, TextName>) -> Site<StackRank, TextRank> {
        let rank = |stack: StackName| self.rank_of[stack.0 as usize];
        let text_rank = |text: TextName| self.text_ranks[text.0 as usize];
        let blamed = |of: Blamed<StackName, TextName>| Blamed {
            source: of.source,
            stack: of.stack.map(rank),
            task: of.task.map(|task| task.map(|(tgid, comm)| (tgid, text_rank(comm)))),
        };
        Site {
            caller: site.caller.map(rank),
            blocker: site.blocker.map(blamed),
            root: site.root.map(|(lock, root)| (lock, blamed(root))),
            instance: site.instance,
            filesystem: site.filesystem.map(|of| of.map(text_rank)),
        }
    }

    fn text(&self, rank: TextRank) -> &'a str {
        self.names.text_of(self.text_by_rank[rank as usize])
    }

    fn task(&self, known: Option<(u32, TextRank)>) -> Option<RowTask> {
        known.map(|(tgid, comm)| RowTask { tgid: Some(tgid), comm: self.text(comm).to_owned() })
    }

    fn functions(&self, rank: StackRank) -> Functions {
        let (stack, functions) = &self.by_rank[rank as usize];
        Arc::clone(functions.get_or_init(|| self.names.functions(*stack)))
    }
}

/// The place of each item in their order.
fn ranks<T>(items: &[T], order: impl Fn(&T, &T) -> Ordering) -> Vec<StackRank> {
    let mut places: Vec<u32> = (0..).take(items.len()).collect();
    places.sort_unstable_by(|one, other| order(&items[*one as usize], &items[*other as usize]));
    let mut ranks = vec![0; items.len()];
    for (place, rank) in places.into_iter().zip(0..) {
        ranks[place as usize] = rank;
    }
    ranks
}

/// The groups with their names: what several intervals knew under several handles comes together here.
fn named_groups(builder: &ReportBuilder, groups: HashMap<Group, Measured>) -> BTreeMap<NamedGroup<'_>, Measured> {
    let objects = known_objects(&builder.names);
    let mut named = BTreeMap::<NamedGroup<'_>, Measured>::new();
    for (group, measured) in groups {
        match named.entry(named_group(builder, &objects, &group)) {
            Entry::Vacant(vacant) => drop(vacant.insert(measured)),
            Entry::Occupied(mut same) => same.get_mut().merge(measured),
        }
    }
    named
}

/// The object type of each lock name that is known to lie in one type only.
fn known_objects(names: &Names) -> HashMap<&str, Uniform<&str>> {
    let mut objects = HashMap::<&str, Uniform<&str>>::new();
    for lock in names.locks() {
        if let Some(object) = &lock.object {
            objects.entry(&lock.name).or_default().see(object);
        }
    }
    objects
}

fn named_group<'a>(
    builder: &'a ReportBuilder,
    objects: &HashMap<&'a str, Uniform<&'a str>>,
    group: &Group,
) -> NamedGroup<'a> {
    let names = &builder.names;
    let lock = names.lock(group.lock.lock);
    // A lock whose object was not known at first is the one that later was.
    let object = lock.object.as_deref().or_else(|| objects.get(lock.name.as_str())?.same());
    let task = |known: Option<_>| match known.map(|task| names.task_of(task)) {
        Some((tgid, comm)) => (Some(tgid), &**comm),
        None => (None, "[unknown]"),
    };
    NamedGroup {
        happened: group.happened,
        own: group.own,
        lock: &lock.name,
        kind: group.lock.kind,
        mode: group.lock.mode,
        object: builder.query.groups_by(Dimension::Object).then_some(object).flatten(),
        task: group.task.map(task),
        cgroup: group.cgroup.map(|cgroup| cgroup.map(|id| names.cgroup_label(id))),
        context: group.context,
        cpu: group.cpu,
    }
}

/// For how long nothing could be counted in a group.
fn off_ns(builder: &ReportBuilder, group: &NamedGroup<'_>, measured: &Measured) -> u64 {
    match measured.owner {
        Uniform::Same(None) if group.happened == Happened::Hold => {
            builder.off.holds.get(&group.kind).copied().unwrap_or(0)
        }
        Uniform::Same(None) => 0,
        Uniform::Same(Some(tgid)) => builder.off.of(tgid),
        Uniform::Different | Uniform::Unseen => builder.off.all_ns,
    }
}

/// Shares out what was counted in a group among the sites sampled in it.
fn shared_out<'a>(
    builder: &'a ReportBuilder,
    stacks: &RankedStacks<'_>,
    lock_name: &str,
    measured: &Measured,
    memory: &mut Memory<'_>,
) -> Result<Vec<Part<'a>>, TooLarge> {
    let mut sites: Vec<(Site<StackRank, TextRank>, &SiteEstimate)> =
        measured.sites.iter().map(|(site, estimate)| (stacks.rank(site), estimate)).collect();
    if sites.is_empty() {
        return Ok(vec![Part::whole(measured, site_without_stacks(builder, lock_name, measured))]);
    }
    sites.sort_by_key(|(site, _)| *site);
    let longest_ns = measured.exact.values().map(|value| value.max_ns).max().unwrap_or(0);
    let is_divided = builder.query.is_by_blame();
    let told_apart =
        sites.iter().filter_map(|(_, estimate)| Some(estimate.basis.as_ref()?.untimed)).fold(0, u64::saturating_add);
    let is_told_apart = told_apart == measured.basis.untimed;
    let releaser = |estimate: &SiteEstimate| match estimate.releaser {
        Uniform::Same(name) => Uniform::Same(name.map(|name: TextName| &**builder.names.text_of(name))),
        Uniform::Unseen => Uniform::Unseen,
        Uniform::Different => Uniform::Different,
    };
    let mut parts: Vec<Part<'_>> = sites
        .iter()
        .map(|(site, estimate)| Part {
            site: *site,
            buckets: Buckets::default(),
            basis: is_told_apart.then(|| estimate.basis.as_deref().copied().unwrap_or_default()),
            run_delay: if is_divided { RunDelay::default() } else { estimate.run_delay() },
            samples: estimate.samples.clone(),
            max_ns: estimate.max_ns.min(longest_ns),
            stacks: estimate.stacks,
            releaser: releaser(estimate),
            states: estimate.states.clone(),
        })
        .collect();
    let mut without_stacks = Part {
        site: site_without_stacks(builder, lock_name, measured),
        buckets: Buckets::default(),
        basis: is_told_apart.then(HoldBasis::default),
        run_delay: RunDelay::default(),
        samples: None,
        max_ns: 0,
        stacks: 0,
        releaser: Uniform::Unseen,
        states: None,
    };
    for (bucket, value) in measured.exact.iter() {
        let exact = Portion { count: value.count, total_ns: value.total_ns, spin_ns: value.spin_ns };
        // Only what was sampled in it has a share of the bucket: most of many sites were not.
        let sampled = sites.iter().enumerate().filter_map(|(at, (_, site))| Some((at, *site.buckets.get(bucket)?)));
        let has_part = |estimate: &Estimate| {
            estimate.portion.count > 0 || estimate.stacks > 0 || is_divided && estimate.portion.total_ns > 0
        };
        let (of, estimates): (Vec<usize>, Vec<Estimate>) = sampled.filter(|(_, estimate)| has_part(estimate)).unzip();
        if of.is_empty() {
            // Of none of these there is a stack: none of the others is theirs.
            memory.add_buckets(1)?;
            *without_stacks.buckets.entry(bucket) = exact;
            without_stacks.max_ns = without_stacks.max_ns.max(value.max_ns);
            continue;
        }
        memory.add_buckets(of.len())?;
        let shares = match is_divided {
            true => divide_bucket(exact, &estimates),
            false => scale_bucket(exact, Bucket(bucket).lower_ns(), value.max_ns, &estimates),
        };
        for (at, share) in of.into_iter().zip(shares) {
            parts[at].take(bucket, share, longest_ns);
        }
    }
    parts.push(without_stacks);
    parts.retain(|part| !part.buckets.is_empty() || part.samples.is_some());
    Ok(parts)
}

/// The site of a group in which no stack was taken.
fn site_without_stacks(builder: &ReportBuilder, lock_name: &str, measured: &Measured) -> Site<StackRank, TextRank> {
    let by = |dimension| builder.query.groups_by(dimension);
    let only_spun = measured.exact.values().all(|value| value.spin_ns >= value.total_ns);
    let source = if only_spun { BlockerSource::NeverSlept } else { BlockerSource::NotSampled };
    let nobody = |by_stack, by_task| {
        (by(by_stack) || by(by_task)).then(|| Blamed {
            source,
            stack: by(by_stack).then_some(RankedStacks::NONE),
            task: by(by_task).then_some(None),
        })
    };
    Site {
        caller: by(Dimension::Caller).then_some(RankedStacks::NONE),
        blocker: nobody(Dimension::Blocker, Dimension::BlockerTask),
        root: nobody(Dimension::Root, Dimension::RootTask).map(|root| (None, root)),
        instance: by(Dimension::Instance).then_some(None),
        filesystem: by(Dimension::Filesystem).then(|| match builder.names.lacks_filesystem(lock_name) {
            true => OfFilesystem::None,
            false => OfFilesystem::Unreadable,
        }),
    }
}

impl Part<'_> {
    /// All of a group.
    fn whole(measured: &Measured, site: Site<StackRank, TextRank>) -> Self {
        let portion = |value: &Value| Portion { count: value.count, total_ns: value.total_ns, spin_ns: value.spin_ns };
        Self {
            site,
            buckets: measured.exact.iter().map(|(bucket, value)| (bucket, portion(value))).collect(),
            basis: Some(measured.basis),
            run_delay: measured.run_delay,
            samples: (measured.samples.number() > 0).then(|| Box::new(measured.samples)),
            max_ns: measured.exact.values().map(|value| value.max_ns).max().unwrap_or(0),
            stacks: 0,
            releaser: Uniform::Unseen,
            states: None,
        }
    }

    fn take(&mut self, bucket: u8, share: Portion, longest_ns: u64) {
        if share == Portion::default() {
            return;
        }
        // The longest wait is at least as long as the mean one, whether or not it was sampled.
        let mean_ns = share.total_ns.div_ceil(share.count.max(1));
        self.max_ns = self.max_ns.max(mean_ns.min(longest_ns));
        *self.buckets.entry(bucket) = share;
    }
}

impl<'a> RowSum<'a> {
    fn add(&mut self, group: &NamedGroup<'_>, part: Part<'a>) {
        let waited_ns = part.buckets.iter().map(|(_, portion)| portion.total_ns).fold(0, u64::saturating_add);
        if let Some(delay_ns) = part.run_delay.share_of(waited_ns) {
            self.run_delay.merge(RunDelay { delay_ns, waited_ns });
        }
        for (bucket, portion) in part.buckets.into_iter() {
            let (count, total_ns) = self.histogram.entry(bucket);
            *count = count.saturating_add(portion.count);
            *total_ns = total_ns.saturating_add(portion.total_ns);
            self.value.merge(&Value {
                count: portion.count,
                total_ns: portion.total_ns,
                max_ns: part.max_ns,
                spin_ns: portion.spin_ns,
            });
        }
        if let Some(samples) = part.samples.as_deref() {
            self.value.merge(&samples.added());
            merge_samples(&mut self.samples, Some(samples));
        }
        match part.basis {
            Some(basis) if basis == HoldBasis::default() => {}
            Some(basis) => self.basis.get_or_insert_default().merge(&basis),
            None => self.lacks_basis = true,
        }
        self.stacks = self.stacks.saturating_add(part.stacks);
        self.kind.see(group.kind);
        self.mode.see(group.mode);
        self.releaser.merge(part.releaser);
        HolderStates::merge_into(&mut self.states, part.states.as_deref());
    }
}

fn row_key<'a>(builder: &ReportBuilder, group: &NamedGroup<'a>, site: Site<StackRank, TextRank>) -> RowKey<'a> {
    let by = |dimension| builder.query.groups_by(dimension);
    // An address alone would say nothing, so single locks carry their class.
    let has_lock = by(Dimension::Lock) || by(Dimension::Instance);
    RowKey {
        happened: group.happened,
        own: group.own,
        lock: has_lock.then_some(group.lock),
        kind: (has_lock || by(Dimension::Kind)).then_some(group.kind),
        mode: (has_lock || by(Dimension::Mode)).then_some(group.mode),
        object: by(Dimension::Object).then_some(group.object),
        task: group.task,
        cgroup: group.cgroup.clone(),
        context: group.context,
        cpu: group.cpu,
        site,
    }
}

fn row(builder: &ReportBuilder, stacks: &RankedStacks<'_>, key: RowKey<'_>, sum: RowSum<'_>) -> Row {
    let naming = key.lock.and_then(|lock| builder.names.naming(lock));
    let histogram: Vec<_> =
        sum.histogram.iter().map(|(bucket, (count, total_ns))| (Bucket(bucket), *count, *total_ns)).collect();
    let quantile = |millionths| quantile_ns(&histogram, sum.value.max_ns, millionths);
    Row {
        happened: key.happened,
        lock: key.lock.map(str::to_owned),
        naming: naming.map(|best| best.naming),
        naming_detail: naming.map(|best| best.detail.into()),
        kind: sum.kind.same(),
        mode: sum.mode.same(),
        instance: key.site.instance.flatten(),
        object: key.object.flatten().map(str::to_owned),
        filesystem: key.site.filesystem.and_then(|of| match of {
            OfFilesystem::None => None,
            OfFilesystem::NotLookedUp | OfFilesystem::Unreadable => Some(UNKNOWN_FILESYSTEM.to_owned()),
            OfFilesystem::Known(rank) => Some(stacks.text(rank).to_owned()),
        }),
        task: key.task.map(|(tgid, comm)| RowTask { tgid, comm: comm.to_owned() }),
        cgroup: key.cgroup.flatten().map(Cow::into_owned),
        context: key.context.flatten(),
        cpu: key.cpu.flatten(),
        caller: key.site.caller.map(|rank| stacks.functions(rank)),
        blocker: key.site.blocker.map(|blocker| {
            Box::new(RowBlocker {
                source: blocker.source,
                stack: stacks.functions(blocker.stack.unwrap_or(RankedStacks::NONE)),
                task: sum.releaser.same().flatten().map(str::to_owned),
                by_task: blocker.task.map(|task| stacks.task(task)),
                state: sum.states.as_ref().and_then(|states| states.mostly()),
            })
        }),
        root: key.site.root.map(|(lock, root)| {
            Box::new(RowRoot {
                lock: lock.map(|lock| builder.names.lock(lock).name.clone()),
                source: root.source,
                stack: stacks.functions(root.stack.unwrap_or(RankedStacks::NONE)),
                state: sum.states.as_ref().and_then(|states| states.mostly()),
                by_task: root.task.map(|task| stacks.task(task)),
            })
        }),
        value: sum.value,
        contended: None,
        holder: None,
        run_delay_ns: sum.run_delay.share_of(sum.value.total_ns).filter(|_| key.happened == Happened::Wait),
        basis: (key.happened == Happened::Hold && !sum.lacks_basis).then(|| sum.basis.unwrap_or_default()),
        off_ns: sum.off_ns.unwrap_or(0),
        p50_ns: quantile(500_000),
        p99_ns: quantile(990_000),
        stacks: sum.stacks,
        estimated: builder.query.is_sampled(),
        own: key.own,
        sampled_spin: sum.samples.as_ref().map(|samples| samples.spun).filter(|spun| spun.samples > 0).map(Box::new),
        parked: sum.samples.map(|samples| samples.parked).filter(|parked| parked.looks > 0).map(Box::new),
        histogram,
    }
}
