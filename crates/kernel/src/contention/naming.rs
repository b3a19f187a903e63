//! From what the programs saw (classes, addresses, hashes) to what an interval says (locks, tasks, functions).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use lockmeter_profile::{
    Basis, Blocker, BlockerSource, Cgroup, CgroupId, Frame, Happened, HoldBasis, HolderTime, Interval, Key, Kind, Lock,
    LockId, Loss, Mode, Naming, NextLock, Sampled, SlowHold, StackId, Tables, Task, TaskId, Total, Value,
    lock_functions,
};
use lockmeter_symbols::{
    Identity, KernelMemory, KernelSymbols, KernelTypes, LockNamer, PageAnchor, Symbol, WHOLE_PPM, struct_page_anchor,
};

use super::skeleton::types;
use super::tables::{Comm, Counted, Drained, SampleKey, TotalKey};
use crate::cgroups::CgroupTree;
use crate::clock::boot_unix_ns;
use crate::error::KernelError;
use crate::peek::KernelReader;

/// Where a class word says what it is; the constants of `tables.h`.
const CLASS_TAG_SHIFT: u32 = 60;
const CLASS_SLAB: u64 = 1;
const CLASS_PAGE: u64 = 2;
const CLASS_MMAP_LOCK: u64 = 3;

/// How the blocker is known, in the numbers of `enum blocker` in `tables.h`.
const BLOCKER_NEVER_SLEPT: u32 = 0;
const BLOCKER_WOKEN: u32 = 1;
const BLOCKER_NOT_SAMPLED: u32 = 2;
const BLOCKER_WAKEUP_NOT_SEEN: u32 = 3;
const BLOCKER_STACK_LOST: u32 = 4;

/// The same with the names that they have there.
#[cfg(test)]
pub(crate) const BLOCKERS: [(&str, u32); 5] = [
    ("never_slept", BLOCKER_NEVER_SLEPT),
    ("woken", BLOCKER_WOKEN),
    ("not_sampled", BLOCKER_NOT_SAMPLED),
    ("wakeup_not_seen", BLOCKER_WAKEUP_NOT_SEEN),
    ("stack_lost", BLOCKER_STACK_LOST),
];

/// The lock of an address space.
pub const MMAP_LOCK: &str = "mm_struct.mmap_lock";

/// The kernel's own way from an address to its slab cache, since Linux 6.13.
const SLAB_CACHE_FUNCTION: &str = "bpf_get_kmem_cache";

/// Frames remembered with their names; a kernel has more addresses than that, but few lie on stacks that wait.
const MOST_FRAMES: usize = 1 << 16;

/// Everything that turns addresses into names.
pub struct Names {
    symbols: Arc<KernelSymbols>,
    /// Programs and trampolines that came after the symbols were read.
    programs: Option<KernelSymbols>,
    namer: LockNamer<KernelReader>,
    memory: KernelLayout,
    has_get_kmem_cache: bool,
    cgroups: CgroupTree,
    own_tgid: u32,
    /// What to add to the programs' clock.
    boot_unix_ns: u64,
    frames: HashMap<u64, Frame>,
    /// Stacks of the drain before: a blocker's stack may be older than the wait that it ended.
    previous_stacks: HashMap<u64, Vec<u64>>,
}

/// Where this kernel keeps what the programs look up.
pub struct KernelLayout {
    /// Where the struct page of an address is; `None` where it could not be found: slabs made short of memory are then
    /// misjudged, and page-table locks have no name.
    pub anchor: Option<PageAnchor>,
    /// The direct map, where slab objects live; empty where only the kernel's own function can tell.
    pub direct_map: Range<u64>,
}

impl KernelLayout {
    fn find(types: &KernelTypes, symbols: &KernelSymbols, reader: &KernelReader, cache: u64) -> Self {
        let anchor = struct_page_anchor(types, symbols, reader, cache).ok();
        let base = symbols.address_of("page_offset_base").and_then(|address| reader.read_u64(address).ok());
        let pages = anchor
            .as_ref()
            .map_or(0, |anchor| (anchor.vmemmap.end - anchor.vmemmap.start) / anchor.page_struct_bytes.max(1));
        let direct_map = base.map_or(0..0, |base| {
            base..base.saturating_add(pages << anchor.as_ref().map_or(0, |anchor| anchor.page_shift))
        });
        Self { anchor, direct_map }
    }
}

/// Tells the programs of a collector where slab objects and struct pages lie: the settings of `lock_class.bpf.h`.
macro_rules! tell_programs {
    ($names:expr, $rodata:expr) => {{
        let (has_get_kmem_cache, memory) = $names.memory();
        $rodata.has_get_kmem_cache = u8::from(has_get_kmem_cache);
        $rodata.direct_map_begin = memory.direct_map.start;
        $rodata.direct_map_end = memory.direct_map.end;
        if let Some(anchor) = &memory.anchor {
            $rodata.page_anchor = anchor.constant;
            $rodata.struct_page_size = u32::try_from(anchor.page_struct_bytes).unwrap_or(0);
            $rodata.struct_pages_begin = anchor.vmemmap.start;
            $rodata.struct_pages_end = anchor.vmemmap.end;
        }
    }};
}
pub(crate) use tell_programs;

/// One interval in the making.
struct Builder<'a> {
    names: &'a mut Names,
    interval: &'a mut Interval,
    caches: &'a [u64],
    stacks: HashMap<u64, Vec<u64>>,
    stack_ids: HashMap<u64, Option<StackId>>,
    /// The locks of a class with the share of each; several only where one class holds objects of several types.
    locks: HashMap<(u64, u32), Vec<(LockId, u64)>>,
    totals: HashMap<Key, Value>,
}

impl Names {
    /// Reads the kernel's symbols and types.
    pub fn prepare() -> Result<Self, KernelError> {
        let symbols = Arc::new(KernelSymbols::from_proc().map_err(|error| KernelError::from_symbols(&error))?);
        let types = KernelTypes::from_sys().map_err(|error| KernelError::from_symbols(&error))?;
        let has_get_kmem_cache = symbols.address_of(SLAB_CACHE_FUNCTION).is_some();
        let reader = KernelReader::load(has_get_kmem_cache)?;
        let own = reader.own_task()?;
        let memory = KernelLayout::find(&types, &symbols, &reader, own.cache.unwrap_or(0));
        let namer = LockNamer::new(Arc::clone(&symbols), types, reader, own.task)
            .map_err(|error| KernelError::from_symbols(&error))?;
        Ok(Self {
            symbols,
            programs: None,
            namer,
            memory,
            has_get_kmem_cache,
            cgroups: CgroupTree::find(),
            own_tgid: std::process::id(),
            boot_unix_ns: boot_unix_ns(),
            frames: HashMap::new(),
            previous_stacks: HashMap::new(),
        })
    }

    /// To be called once functions are hooked: their stacks lead through trampolines that were made for it.
    pub fn learn_programs(&mut self) {
        // Without their names such frames are shown as unknown.
        self.programs = KernelSymbols::programs_from_proc().ok();
        self.frames.clear();
    }

    /// The kernel's functions.
    pub fn symbols(&self) -> &KernelSymbols {
        &self.symbols
    }

    /// Where slab objects and struct pages lie in this kernel, for the programs: see [`tell_programs`].
    pub const fn memory(&self) -> (bool, &KernelLayout) {
        (self.has_get_kmem_cache, &self.memory)
    }

    /// The name of a lock that was waited for at one place; innermost frame first, none where the stack is not known.
    pub fn name_by_stack(&mut self, class: u64, kind: Kind, addresses: &[u64], caches: &[u64]) -> Option<Lock> {
        let functions: Vec<String> = addresses.iter().filter_map(|address| self.frame(*address).function).collect();
        let stack: Vec<&str> = functions.iter().map(String::as_str).collect();
        let stacks: &[(Vec<&str>, u64)] = if stack.is_empty() { &[] } else { &[(stack, 1)] };
        self.namer.name(&identity(class, caches), kind, stacks).into_iter().next().map(|(lock, _)| lock)
    }

    /// A stack in an interval's tables, without the frames of metering itself; `None` if there is none.
    pub fn site(&mut self, addresses: &[u64], tables: &mut Tables) -> Option<StackId> {
        if addresses.is_empty() {
            return None;
        }
        let frames = self.frames_of(addresses);
        let metering = lock_functions::metering_frames(frames.iter().map(|frame| frame.function.as_deref()));
        let frames = frames.into_iter().skip(metering).map(|frame| tables.intern_frame(frame)).collect();
        Some(tables.intern_stack(frames))
    }

    /// Names everything that was drained and puts it into the interval.
    pub fn fill(&mut self, interval: &mut Interval, mut drained: Drained, caches: &[u64]) {
        self.cgroups.learn(drained.totals.keys().map(|key| key.cgroup).filter(|id| *id != 0));
        let fresh = std::mem::take(&mut drained.stacks);
        let mut stacks = std::mem::replace(&mut self.previous_stacks, fresh.clone());
        stacks.extend(fresh);
        let mut builder = Builder {
            names: self,
            interval,
            caches,
            stacks,
            stack_ids: HashMap::new(),
            locks: HashMap::new(),
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
        interval.totals = totals.into_iter().map(|(key, value)| Total { key, value }).collect();
    }

    /// The frames of a stack, innermost first, without the trampolines in it.
    fn frames_of(&mut self, addresses: &[u64]) -> Vec<Frame> {
        let mut frames: Vec<Frame> = Vec::with_capacity(addresses.len());
        let mut after_trampoline = false;
        for address in addresses {
            let frame = self.frame(*address);
            let is_trampoline = frame.function.as_deref().is_some_and(lock_functions::is_trampoline);
            // The hooked function calls the trampoline, which calls it.
            let is_twice = after_trampoline && frames.last().is_some_and(|last| last.function == frame.function);
            if !is_trampoline && !is_twice {
                frames.push(frame);
            }
            after_trampoline = is_trampoline;
        }
        frames
    }

    fn frame(&mut self, address: u64) -> Frame {
        if self.frames.len() >= MOST_FRAMES {
            self.frames.clear();
        }
        let symbols = &self.symbols;
        let program = self.programs.as_ref().and_then(|programs| programs.function(address));
        self.frames
            .entry(address)
            .or_insert_with(|| match nearest(symbols.function(address), program) {
                Some(symbol) => Frame {
                    address,
                    function: Some(symbol.name.to_owned()),
                    offset: symbol.offset,
                    module: symbol.module.map(str::to_owned),
                },
                None => Frame { address, function: None, offset: 0, module: None },
            })
            .clone()
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
            let stacks: Vec<(Vec<String>, u64)> =
                sites.iter().map(|(hash, weight)| (self.function_names(*hash), *weight)).collect();
            let locks = self.name_class(class, kind, &stacks);
            self.locks.insert((class, kind), locks);
        }
    }

    fn name_class(&mut self, class: u64, kind: u32, stacks: &[(Vec<String>, u64)]) -> Vec<(LockId, u64)> {
        if class >> CLASS_TAG_SHIFT == CLASS_MMAP_LOCK {
            return vec![(self.interval.tables.intern_lock(mmap_lock()), WHOLE_PPM)];
        }
        let stacks: Vec<(Vec<&str>, u64)> =
            stacks.iter().map(|(names, weight)| (names.iter().map(String::as_str).collect(), *weight)).collect();
        let identity = identity(class, self.caches);
        let kind = u8::try_from(kind).ok().and_then(Kind::from_code).unwrap_or(Kind::Unknown);
        let named = self.names.namer.name(&identity, kind, &stacks);
        named.into_iter().map(|(lock, share)| (self.interval.tables.intern_lock(lock), share)).collect()
    }

    fn function_names(&mut self, hash: u64) -> Vec<String> {
        let frames = self.stacks.get(&hash).cloned().unwrap_or_default();
        self.names.frames_of(&frames).into_iter().filter_map(|frame| frame.function).collect()
    }

    /// The stack of this hash without the frames of metering itself; `None` if it was lost.
    fn stack(&mut self, hash: u64) -> Option<StackId> {
        if let Some(known) = self.stack_ids.get(&hash) {
            return *known;
        }
        let addresses = self.stacks.get(&hash).cloned();
        let id = addresses.and_then(|addresses| self.names.site(&addresses, &mut self.interval.tables));
        self.stack_ids.insert(hash, id);
        id
    }

    fn task(&mut self, tgid: u32, comm: &Comm) -> TaskId {
        let own = tgid == self.names.own_tgid;
        self.interval.tables.intern_task(Task { tgid, comm: text(comm), own })
    }

    fn cgroup(&mut self, id: u64) -> Option<CgroupId> {
        let path = self.names.cgroups.path(id).map(str::to_owned);
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
    fn add_basis(&mut self, key: &TotalKey, untimed: u64) {
        let whole = Value { count: untimed, ..Value::default() };
        for (lock, part) in split(&whole, self.locks_of(key)) {
            let value = HoldBasis { untimed: part.count, ..HoldBasis::default() };
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
                let names = self.function_names(key.site);
                let own = self.name_class(key.total.class, kind, &[(names, 1)]);
                own.first().map_or(first, |(lock, _)| *lock)
            }
        };
        let Some(total_key) = self.key(&key.total, lock, 1) else { return };
        let sampled = Sampled {
            key: total_key,
            instance: (key.instance != 0).then_some(key.instance),
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

    /// Of several locks that a class may be, the likeliest.
    fn likeliest(&mut self, class: u64, kind: u32) -> LockId {
        if !self.locks.contains_key(&(class, kind)) {
            let locks = self.name_class(class, kind, &[]);
            self.locks.insert((class, kind), locks);
        }
        let locks = self.locks.get(&(class, kind)).map_or(&[][..], Vec::as_slice);
        let likeliest = locks.iter().max_by_key(|(_, share)| *share).map(|(lock, _)| *lock);
        // Every class has a lock, if only one without a name.
        likeliest.unwrap_or(LockId(u32::MAX))
    }

    fn add_slow_hold(&mut self, hold: &types::slow_hold) {
        let kind = kind_code(hold.kind_mode);
        let Some((hold_kind, mode)) = kind_mode_of(hold.kind_mode) else {
            return self.interval.losses.add(Loss::UnknownCode, 1);
        };
        let next_kind_mode = (hold.next.waited_ns != 0).then(|| kind_mode_of(hold.next.kind_mode)).flatten();
        let next = next_kind_mode.map(|(next_kind, next_mode)| {
            let next = &hold.next;
            let task = (next.tid != 0).then(|| self.task(next.tgid, &next.comm.map(i8::cast_unsigned)));
            NextLock {
                lock: self.likeliest(next.class, kind_code(next.kind_mode)),
                kind: next_kind,
                mode: next_mode,
                waited_ns: next.waited_ns,
                task,
                tid: next.tid,
            }
        });
        let slow = SlowHold {
            end_unix_ns: hold.end_ns.saturating_add(self.names.boot_unix_ns),
            total_ns: hold.total_ns,
            lock: self.likeliest(hold.class, kind),
            kind: hold_kind,
            mode,
            task: self.task(hold.tgid, &hold.comm.map(i8::cast_unsigned)),
            tid: hold.tid,
            site: if hold.stack == 0 { None } else { self.stack(hold.stack) },
            holder: HolderTime::from_parts(hold.spent_ns),
            next,
        };
        self.interval.slow_holds.push(slow);
    }

    fn blocker(&mut self, key: &SampleKey) -> Blocker {
        let owner_hint = (key.owner_tgid != 0).then(|| self.task(key.owner_tgid, &key.owner_comm));
        let stack = if key.blocker == 0 { None } else { self.stack(key.blocker) };
        let source = match (key.blocker_source, stack) {
            (BLOCKER_WOKEN, Some(_)) if self.is_releaser(key.blocker) => BlockerSource::Releaser,
            (BLOCKER_WOKEN, Some(_)) => BlockerSource::Waker,
            (BLOCKER_WOKEN | BLOCKER_STACK_LOST, _) => BlockerSource::StackLost,
            (BLOCKER_NOT_SAMPLED, _) => BlockerSource::NotSampled,
            (BLOCKER_WAKEUP_NOT_SEEN, _) => BlockerSource::WakeupNotSeen,
            (BLOCKER_NEVER_SLEPT, _) => BlockerSource::NeverSlept,
            _ => {
                self.interval.losses.add(Loss::UnknownCode, 1);
                BlockerSource::WakeupNotSeen
            }
        };
        let known = matches!(source, BlockerSource::Releaser | BlockerSource::Waker | BlockerSource::StackLost);
        let task = (known && key.blocker_tgid != 0).then(|| self.task(key.blocker_tgid, &key.blocker_comm));
        Blocker { source, stack, task, owner_hint }
    }

    fn is_releaser(&mut self, hash: u64) -> bool {
        let names = self.function_names(hash);
        lock_functions::is_releaser_stack(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// A symbol's end is not known: of two that begin before an address, the nearer one covers it.
fn nearest<'a>(kernel: Option<Symbol<'a>>, program: Option<Symbol<'a>>) -> Option<Symbol<'a>> {
    kernel.into_iter().chain(program).min_by_key(|symbol| symbol.offset)
}

fn identity(class: u64, caches: &[u64]) -> Identity {
    match class >> CLASS_TAG_SHIFT {
        CLASS_SLAB => {
            let index = (class >> 32) as usize & 0xff_ffff;
            Identity::Slab { cache: caches.get(index).copied().unwrap_or(0), offset: class as u32 }
        }
        CLASS_PAGE => Identity::PageStruct { offset: class as u32 },
        _ => Identity::Address(class),
    }
}

/// The lock that the `mmap_lock` tracepoints speak of.
fn mmap_lock() -> Lock {
    Lock {
        name: MMAP_LOCK.to_owned(),
        object: Some("mm_struct".to_owned()),
        naming: Naming::SlabField,
        detail: "as its tracepoints say".to_owned(),
    }
}

/// Shares a value among locks by millionths; what rounding leaves over goes to the first.
pub(crate) fn split<Lock: Copy>(whole: &Value, locks: &[(Lock, u64)]) -> Vec<(Lock, Value)> {
    let part = |amount: u64, share: u64| {
        u64::try_from(u128::from(amount) * u128::from(share) / u128::from(WHOLE_PPM)).unwrap_or(amount)
    };
    let mut parts: Vec<(Lock, Value)> = locks
        .iter()
        .map(|(lock, share)| {
            let value = Value {
                count: part(whole.count, *share),
                total_ns: part(whole.total_ns, *share),
                max_ns: whole.max_ns,
                spin_ns: part(whole.spin_ns, *share),
            };
            (*lock, value)
        })
        .collect();
    let given = parts.iter().fold(Value::default(), |mut sum, (_, value)| {
        sum.merge(value);
        sum
    });
    if let Some((_, first)) = parts.first_mut() {
        first.count += whole.count - given.count;
        first.total_ns += whole.total_ns - given.total_ns;
        first.spin_ns += whole.spin_ns - given.spin_ns;
    }
    parts.retain(|(_, value)| value.count > 0 || value.total_ns > 0);
    parts
}

/// The name up to its first NUL.
pub(crate) fn text(comm: &Comm) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

const fn kind_code(meta: u32) -> u32 {
    meta & 0xff
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

/// `None` for numbers that are none of the model's.
pub(crate) fn kind_mode_of(meta: u32) -> Option<(Kind, Mode)> {
    Some((Kind::from_code(meta as u8)?, Mode::from_code((meta >> 8) as u8)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_split_among_locks_keeps_its_sum() {
        let whole = Value { count: 10, total_ns: 1_000_001, max_ns: 999, spin_ns: 7 };
        let parts = split(&whole, &[(LockId(0), 333_333), (LockId(1), 666_667)]);
        assert_eq!(parts.iter().map(|(_, value)| value.count).sum::<u64>(), whole.count);
        assert_eq!(parts.iter().map(|(_, value)| value.total_ns).sum::<u64>(), whole.total_ns);
        assert_eq!(parts.iter().map(|(_, value)| value.spin_ns).sum::<u64>(), whole.spin_ns);
    }
}
