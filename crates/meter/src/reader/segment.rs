//! One segment, read again and again: what was counted since the last time.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

use lockmeter_symbols::{BuildId, MappedFile, ProcessPath, UserNames};

use super::keeper;
use super::living::{HeldFiles, ProgramFile};
use super::memory::{Memory, u32_at, u64_at};
use super::plausible::{Bounds, ThreadSums};
use super::ticks::BetweenReadings;
use crate::incompatible::is_loader;
use crate::layout::{
    BUILD_ID_BYTES, CLASSES, COMMS, Class, Comm, FIRST_PAGE, FRAMES, LOCK_PLACES, LOSSES, LockEntry, Lost, MODULES,
    Meta, Module, PAGE, PATH_BYTES, Process, Releaser, SHARED_SLOTS, SITE_IS_RELEASE, SITE_IS_STACK, SLOTS_OF_A_PAGE,
    STACKS, SWAPS, Slot, Stack, Thread, happened, unpack_part,
};

/// What the table of locks says of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockFacts {
    pub(super) address: u64,
    pub(super) made_at: u64,
    pub(super) flags: u32,
    /// Several locks that were made at one site: the address is that of the first.
    pub(super) is_class: bool,
}

/// What was counted of one key since the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) meta: Meta,
    /// Place of the lock from 1; 0: other locks.
    pub(super) lock: u32,
    /// Place of the releaser's thread name from 1; 0: not known.
    pub(super) releaser_comm: u32,
    /// The thread, by the id that it knows itself by; 0: not known.
    pub(super) owner: u32,
    pub(super) site: u64,
    pub(super) blocker: u64,
    /// Of a part: whom the holder waited for itself.
    pub(super) root: Option<Releaser>,
    pub(super) count: u64,
    pub(super) total_ns: u64,
    pub(super) max_ns: u64,
}

/// What a slot held when it was last read.
#[derive(Debug, Clone, Copy, Default)]
struct LastRead {
    count: u64,
    total_ns: u64,
}

/// Samples that are taken from a segment at a time, of fewer than a hundred bytes each. A program with 30,000 threads and thirty samples each has
/// fewer.
const MOST_DELTAS: usize = 1 << 20;

/// More threads than a process can have, in what its threads count together.
const MOST_THREADS: u64 = 1 << 22;

/// Stands for the samples that threads share, where the page of a thread's table stands for its own.
const SHARED: u32 = 0;

/// Everything that is kept of a segment between two readings.
#[derive(Debug)]
pub(super) struct SegmentReader {
    /// The page with its head.
    page: u32,
    head: Vec<u8>,
    /// It holds what cannot be: nothing in it is believed any more.
    refused: bool,
    sums: HashMap<u32, ThreadSums>,
    epoch: u32,
    losses: [u64; LOSSES],
    swaps: [u64; SWAPS],
    changes: HashMap<u32, Vec<u8>>,
    last_reads: HashMap<(u32, usize), LastRead>,
    stacks: HashMap<u64, Vec<u64>>,
    /// Modules by their place: what was found once is not looked for again.
    modules: BTreeMap<usize, MappedFile>,
}

/// What a reading found.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) deltas: Vec<Delta>,
    /// By [`crate::layout::Lost`].
    pub(super) losses: [u64; LOSSES],
    /// By [`crate::layout::Swap`].
    pub(super) swaps: [u64; SWAPS],
    /// Parts that made no sense.
    pub(super) damaged: u64,
    /// Events beyond [`MOST_DELTAS`].
    pub(super) left_out: u64,
    /// What the segment says cannot have happened. Said once.
    pub(super) implausible: bool,
    /// Threads that counted anything.
    pub(super) active_threads: u64,
}

impl Reading {
    /// Of a segment that is not believed: nothing but that.
    fn implausible() -> Self {
        Self { implausible: true, ..Self::default() }
    }
}

impl SegmentReader {
    /// Of the segment whose head is on this page.
    pub(super) fn new(page: u32) -> Self {
        Self {
            page,
            head: Vec::new(),
            refused: false,
            sums: HashMap::new(),
            epoch: 0,
            losses: [0; LOSSES],
            swaps: [0; SWAPS],
            changes: HashMap::new(),
            last_reads: HashMap::new(),
            stacks: HashMap::new(),
            modules: BTreeMap::new(),
        }
    }

    /// The page with its head.
    pub(super) fn page(&self) -> usize {
        self.page as usize
    }

    /// What was counted since the last time, given the pages of the tables of its threads. After the end of the process, `is_last`.
    /// What is beyond the bounds is not believed, nor is anything else of that segment.
    pub(super) fn drain(
        &mut self,
        memory: &Memory,
        threads: &[u32],
        is_last: bool,
        bounds: Bounds,
    ) -> io::Result<Option<Reading>> {
        if self.refused {
            return Ok(None);
        }
        let reading = self.read_all(memory, threads, is_last, bounds)?;
        // Names are looked up in tables that may have got more pages meanwhile.
        self.head = memory.read(self.page(), 0, size_of::<Process>())?;
        self.refused = reading.implausible;
        Ok(Some(reading))
    }

    /// The head as it was last read.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Reads the head again: its tables may have got more pages.
    pub(super) fn refresh(&mut self, memory: &Memory) {
        if let Ok(head) = memory.read(self.page(), 0, size_of::<Process>()) {
            self.head = head;
        }
    }

    /// How much of each hold that its process timed is the reading of the clock.
    pub(super) fn reading_ns(&self, between: BetweenReadings) -> u64 {
        between.ns(u64_at(&self.head, offset_of!(Process, tick_ns_shifted)))
    }

    /// Where the stack of its process's first thread ends.
    pub(super) fn stack_end(&self) -> u64 {
        u64_at(&self.head, offset_of!(Process, stack_end))
    }

    /// Whether its process reads the time stamp counter, and not the system's clock.
    pub(super) fn has_counter(&self) -> bool {
        u64_at(&self.head, offset_of!(Process, tick_ns_shifted)) != 0
    }

    /// How much is kept of it: a few tens of bytes each.
    pub(super) fn kept(&self) -> usize {
        self.last_reads.len()
    }

    /// Nothing in it is believed any more.
    pub(super) fn refuse(&mut self) {
        *self = Self { refused: true, ..Self::new(self.page) };
    }

    fn read_all(&mut self, memory: &Memory, threads: &[u32], is_last: bool, bounds: Bounds) -> io::Result<Reading> {
        self.head = memory.read(self.page(), 0, size_of::<Process>())?;
        let mut reading = Reading::default();
        for (lost, last) in self.losses.iter_mut().enumerate() {
            let now = u64_at(&self.head, offset_of!(Process, losses) + lost * 8);
            reading.losses[lost] = now.saturating_sub(*last);
            *last = now;
        }
        for (swap, last) in self.swaps.iter_mut().enumerate() {
            let now = u64_at(&self.head, offset_of!(Process, swaps) + swap * 8);
            reading.swaps[swap] = now.saturating_sub(*last);
            *last = now;
        }
        if !self.losses.iter().chain(&self.swaps).all(|count| bounds.allow_counter(*count)) {
            return Ok(Reading::implausible());
        }
        let ended = self.epoch;
        self.epoch = self.epoch.wrapping_add(1);
        // A reader without the right to write gets maxima of the whole run, clamped to the bucket.
        let _ = memory.put_u32(self.page(), offset_of!(Process, epoch), self.epoch);
        for thread in threads {
            if !self.drain_thread(memory, *thread, (ended, is_last), bounds, &mut reading)? {
                return Ok(Reading::implausible());
            }
        }
        if self.losses[Lost::Site as usize] > 0 && !self.drain_shared(memory, ended, bounds, &mut reading)? {
            return Ok(Reading::implausible());
        }
        Ok(reading)
    }

    /// `false` if the thread cannot have done what its table says.
    fn drain_thread(
        &mut self,
        memory: &Memory,
        thread: u32,
        (epoch, is_last): (u32, bool),
        bounds: Bounds,
        reading: &mut Reading,
    ) -> io::Result<bool> {
        let table = memory.read(thread as usize, 0, size_of::<Thread>())?;
        // Each event changes something here, but after it is counted: who is killed in between must not be skipped.
        let changes = &table[offset_of!(Thread, changes)..offset_of!(Thread, held)];
        let is_changed = self.changes.get(&thread).is_none_or(|before| before != changes);
        if !is_changed && !is_last {
            return Ok(true);
        }
        reading.active_threads += u64::from(is_changed);
        self.changes.insert(thread, changes.to_vec());
        let owner = u32_at(&table, offset_of!(Thread, owner));
        let pages = offset_of!(Thread, slots)..offset_of!(Thread, release_cache);
        for (number, page) in table[pages].chunks_exact(size_of::<u32>()).enumerate() {
            let page = u32_at(page, 0) as usize;
            if page < FIRST_PAGE {
                continue;
            }
            let bytes = memory.read(page, 0, PAGE)?;
            let first = number * SLOTS_OF_A_PAGE;
            if !self.drain_slots(&bytes, (thread, first), owner, epoch, bounds, reading) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn drain_shared(&mut self, memory: &Memory, epoch: u32, bounds: Bounds, reading: &mut Reading) -> io::Result<bool> {
        for first in (0..SHARED_SLOTS).step_by(SLOTS_OF_A_PAGE) {
            let at = offset_of!(Process, shared) + first / SLOTS_OF_A_PAGE * size_of::<u32>();
            let page = u32_at(&self.head, at) as usize;
            if page >= FIRST_PAGE {
                let bytes = memory.read(page, 0, PAGE)?;
                if !self.drain_slots(&bytes, (SHARED, first), 0, epoch, bounds, reading) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The samples on a page: those of the table on page `thread`, from this number on.
    fn drain_slots(
        &mut self,
        bytes: &[u8],
        (thread, first): (u32, usize),
        owner: u32,
        epoch: u32,
        bounds: Bounds,
        reading: &mut Reading,
    ) -> bool {
        let threads = if thread == SHARED { MOST_THREADS } else { 1 };
        for (number, slot) in bytes.chunks_exact(size_of::<Slot>()).enumerate() {
            if u64_at(slot, offset_of!(Slot, meta)) == 0 {
                continue;
            }
            let last = self.last_reads.entry((thread, first + number)).or_default();
            match delta(slot, owner, last, epoch) {
                Ok(Some(delta)) => {
                    if !self.sums.entry(thread).or_default().add(&delta, bounds, threads) {
                        return false;
                    }
                    if reading.deltas.len() < MOST_DELTAS {
                        reading.deltas.push(delta);
                    } else {
                        reading.left_out += delta.count;
                    }
                }
                Ok(None) => {}
                Err(Nonsense) => reading.damaged += 1,
            }
        }
        true
    }

    /// An entry of a table, which begins at this place of the head; `None` where the table has no page, so no entry.
    fn entry(&self, memory: &Memory, table: usize, place: usize, size: usize) -> Option<Vec<u8>> {
        let entries = PAGE / size;
        let page = u32_at(&self.head, table + place / entries * size_of::<u32>()) as usize;
        (page >= FIRST_PAGE).then(|| memory.read(page, place % entries * size, size).ok())?
    }

    /// What the lock at this place (from 1) is; `None` for none.
    pub(super) fn lock(&self, memory: &Memory, place: u32) -> Option<LockFacts> {
        let place = (place as usize).checked_sub(1)?;
        let is_class = place >= LOCK_PLACES;
        let (bytes, [address, made_at, flags]) = match place.checked_sub(LOCK_PLACES) {
            Some(class) if class >= CLASSES => return None,
            Some(class) => (
                self.entry(memory, offset_of!(Process, classes), class, size_of::<Class>())?,
                [offset_of!(Class, address), offset_of!(Class, site), offset_of!(Class, flags)],
            ),
            None => (
                self.entry(memory, offset_of!(Process, locks), place, size_of::<LockEntry>())?,
                [offset_of!(LockEntry, address), offset_of!(LockEntry, made_at), offset_of!(LockEntry, flags)],
            ),
        };
        let (address, made_at) = (u64_at(&bytes, address), u64_at(&bytes, made_at));
        (address != 0).then(|| LockFacts { address, made_at, flags: u32_at(&bytes, flags), is_class })
    }

    /// Return addresses of a site, innermost first; empty if there are none.
    pub(super) fn site(&mut self, memory: &Memory, site: u64) -> Vec<u64> {
        if site == 0 {
            return Vec::new();
        }
        if site & SITE_IS_STACK == 0 {
            return vec![site & !SITE_IS_RELEASE];
        }
        if let Some(frames) = self.stacks.get(&site) {
            return frames.clone();
        }
        let place = (site & !SITE_IS_STACK) as usize;
        let frames = if place < STACKS { self.stack(memory, place) } else { Vec::new() };
        if !frames.is_empty() {
            self.stacks.insert(site, frames.clone());
        }
        frames
    }

    fn stack(&self, memory: &Memory, place: usize) -> Vec<u64> {
        let Some(stack) = self.entry(memory, offset_of!(Process, stacks), place, size_of::<Stack>()) else {
            return Vec::new();
        };
        let depth = usize::try_from(u64_at(&stack, offset_of!(Stack, depth))).unwrap_or(usize::MAX).min(FRAMES);
        (0..depth).map(|frame| u64_at(&stack, offset_of!(Stack, frames) + frame * 8)).collect()
    }

    /// The name of a thread (place from 1).
    pub(super) fn comm(&self, memory: &Memory, place: u32) -> Option<String> {
        let place = (place as usize).checked_sub(1).filter(|place| *place < COMMS)?;
        let bytes = self.entry(memory, offset_of!(Process, comms), place, size_of::<Comm>())?;
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        (length > 0).then(|| String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    /// Everything that the process whose segment this is maps and that an address it recorded lies in.
    pub(super) fn modules(
        &mut self,
        memory: &Memory,
        files: &FilesOfProcess<'_>,
        names: &mut UserNames,
    ) -> Vec<MappedFile> {
        let begun = (u32_at(&self.head, offset_of!(Process, module_count)) as usize).min(MODULES);
        for place in 0..begun {
            let module = self.entry(memory, offset_of!(Process, modules), place, size_of::<Module>());
            let Some(module) = module else { continue };
            let start = u64_at(&module, offset_of!(Module, start));
            let known = self.modules.get(&place);
            if known.is_some_and(|known| known.start == start) {
                continue;
            }
            // A library that was unloaded has moved, with all its addresses: it is still the same file.
            if let Some(known) = known {
                self.stacks.clear();
                let by = start.wrapping_sub(known.start);
                let (end, bias) = (known.end.wrapping_add(by), known.bias.wrapping_add(by));
                let moved = MappedFile { start, end, bias, ..known.clone() };
                self.modules.insert(place, moved);
                continue;
            }
            if let Some(file) = files.mapped_file(&module, names) {
                // Its names are needed anyway, and the process may soon have ended, and the file be gone with it.
                names.load(&file);
                self.modules.insert(place, file);
            }
        }
        self.modules.values().cloned().collect()
    }
}

/// Where the files that a process maps are looked for.
pub(super) struct FilesOfProcess<'a> {
    pub(super) pid: u32,
    /// Its own, where the kernel was asked.
    pub(super) program: Option<&'a ProgramFile>,
    pub(super) held: &'a Mutex<HeldFiles>,
}

impl FilesOfProcess<'_> {
    fn mapped_file(&self, module: &[u8], names: &mut UserNames) -> Option<MappedFile> {
        let path = module.get(offset_of!(Module, path)..offset_of!(Module, path) + PATH_BYTES)?;
        let length = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
        let path = Path::new(OsStr::from_bytes(&path[..length]));
        let is_program = module.get(offset_of!(Module, is_program)) == Some(&1);
        // A loader that is run as a program is called that by the kernel; the program itself knows better.
        let asked = self.program.filter(|program| is_program && !is_loader(program.path.as_os_str().as_bytes()));
        let (path, held) = match asked {
            Some(program) => (program.path.as_path(), program.held.iter().cloned().collect()),
            None => (path, path.file_name().map(|name| keeper::lock(self.held).called(name)).unwrap_or_default()),
        };
        let sees_other_files = self.program.is_some_and(|program| program.sees_other_files);
        let memory = u64_at(module, offset_of!(Module, start))..u64_at(module, offset_of!(Module, end));
        let bias = u64_at(module, offset_of!(Module, bias));
        let length = usize::from(*module.get(offset_of!(Module, build_id_bytes))?).min(BUILD_ID_BYTES);
        let build_id = module.get(offset_of!(Module, build_id)..)?.get(..length).and_then(BuildId::new);
        let path = ProcessPath { pid: self.pid, path, sees_other_files };
        (memory.start != 0).then(|| names.file_of_process(path, memory, bias, &held, build_id))
    }
}

/// The slot is not one that a writer writes.
#[derive(Debug, PartialEq, Eq)]
struct Nonsense;

/// What a slot counted since it was last seen.
///
/// A writer may be between its two stores: then the time of one event more is there than events. What goes beyond the
/// bucket's bound is left for the next time.
fn delta(slot: &[u8], owner: u32, last: &mut LastRead, epoch: u32) -> Result<Option<Delta>, Nonsense> {
    let meta = Meta::unpack(u64_at(slot, offset_of!(Slot, meta)));
    if meta.bucket >= 64 {
        return Err(Nonsense);
    }
    let count = u64_at(slot, offset_of!(Slot, count)).wrapping_sub(last.count);
    if count == 0 {
        return Ok(None);
    }
    // Nobody waits so often: a count that fell wraps to such a number.
    if count > u64::MAX / 2 {
        return Err(Nonsense);
    }
    let lower_ns = if meta.bucket == 0 { 0 } else { 1_u64 << meta.bucket };
    let upper_ns = lower_ns.max(1).saturating_mul(2) - 1;
    if meta.happened == happened::UNTIMED {
        last.count = last.count.wrapping_add(count);
        return Ok(Some(Delta {
            meta,
            lock: u64_at(slot, offset_of!(Slot, lock)) as u32,
            releaser_comm: 0,
            owner,
            site: u64_at(slot, offset_of!(Slot, site)),
            blocker: 0,
            root: None,
            count,
            total_ns: 0,
            max_ns: 0,
        }));
    }
    let total_ns = u64_at(slot, offset_of!(Slot, total_ns)).wrapping_sub(last.total_ns);
    let total_ns = match meta.happened {
        happened::PART_OF_IDLE => total_ns,
        // The bucket is that of the whole waits.
        part if happened::whole_of(part).is_some() => total_ns.min(count.saturating_mul(upper_ns)),
        _ => total_ns.clamp(count.saturating_mul(lower_ns), count.saturating_mul(upper_ns)),
    };
    let longest_ns = u64_at(slot, offset_of!(Slot, max_ns));
    let is_of_interval = u64_at(slot, offset_of!(Slot, epoch)) == u64::from(epoch);
    let mean_ns = total_ns.div_ceil(count);
    let max_ns = if is_of_interval || count == 1 { longest_ns } else { mean_ns };
    last.count = last.count.wrapping_add(count);
    last.total_ns = last.total_ns.wrapping_add(total_ns);
    let (lock, blocker) = (u64_at(slot, offset_of!(Slot, lock)), u64_at(slot, offset_of!(Slot, blocker)));
    let (blocker, root) = match happened::whole_of(meta.happened) {
        Some(_) => unpack_part(lock, blocker),
        None => (blocker, None),
    };
    Ok(Some(Delta {
        meta,
        lock: lock as u32,
        releaser_comm: (lock >> 32) as u32 & 0xffff,
        owner,
        site: u64_at(slot, offset_of!(Slot, site)),
        blocker,
        root,
        count,
        total_ns,
        max_ns: if count == 1 { total_ns } else { max_ns.clamp(mean_ns, upper_ns.max(mean_ns)) },
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_drained_adds_up_to_what_was_counted(
            bucket in 0_u8..40, steps in prop::collection::vec((1_u64..50, any::<bool>()), 1..20),
        ) {
            let each_ns = 1_u64 << bucket;
            let (mut count, mut drained_count, mut drained_ns) = (0, 0, 0);
            let mut last = LastRead::default();
            let meta = Meta { happened: 1, kind: 3, mode: 1, bucket, blocked: 0, comm: 1 }.pack();
            for (step, torn) in steps.iter().chain([&(1, false)]) {
                count += step;
                let ahead = u64::from(*torn) * each_ns;
                let mut slot = vec![0; size_of::<Slot>()];
                let mut put = |at: usize, number: u64| slot[at..at + 8].copy_from_slice(&number.to_ne_bytes());
                put(offset_of!(Slot, meta), meta);
                put(offset_of!(Slot, count), count);
                put(offset_of!(Slot, total_ns), count * each_ns + ahead);
                put(offset_of!(Slot, max_ns), each_ns);
                if let Some(delta) = delta(&slot, 1, &mut last, 0).unwrap() {
                    drained_count += delta.count;
                    drained_ns += delta.total_ns;
                }
            }
            prop_assert_eq!(drained_count, count);
            prop_assert!(drained_ns >= count * each_ns && drained_ns <= count * each_ns + each_ns);
        }
    }
}
