//! One segment, read again and again: what was counted since the last time.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lockmeter_symbols::{BuildId, MappedFile, UserNames};

use super::plausible::{Bounds, ThreadSums};
use crate::layout::{
    BUILD_ID_BYTES, CLASSES, COMMS, Class, Comm, FRAMES, Header, LOCK_PLACES, LOSSES, LockEntry, MAGIC, MODULES, Meta,
    Module, PATH_BYTES, SITE_IS_STACK, SLOTS, STACKS, SWAPS, Segment, Slot, Stack, THREADS, Thread, VERSION, happened,
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
    pub(super) site: u64,
    pub(super) blocker: u64,
    pub(super) count: u64,
    pub(super) total_ns: u64,
    pub(super) max_ns: u64,
}

/// What a slot held when it was last read.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    count: u64,
    total_ns: u64,
}

/// Samples that are taken from a segment at a time. A program with a thousand threads and a hundred samples each has fewer.
const MOST_DELTAS: usize = 1 << 17;

/// Everything that is kept of a segment between two readings.
#[derive(Debug)]
pub(super) struct SegmentReader {
    /// `None` between two readings, if too many are open.
    file: Option<File>,
    /// It holds what cannot be: nothing in it is believed any more.
    refused: bool,
    sums: HashMap<usize, ThreadSums>,
    epoch: u32,
    losses: [u64; LOSSES],
    swaps: [u64; SWAPS],
    heads: HashMap<usize, Vec<u8>>,
    seen: HashMap<(usize, usize), Seen>,
    stacks: HashMap<u64, Vec<u64>>,
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
}

impl Reading {
    /// Of a segment that is not believed: nothing but that.
    fn implausible() -> Self {
        Self { implausible: true, ..Self::default() }
    }
}

/// Fixed-size numbers out of bytes, 0 beyond their end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u64(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }

    fn u32(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }
}

impl SegmentReader {
    pub(super) fn new(file: File) -> Self {
        Self {
            file: Some(file),
            refused: false,
            sums: HashMap::new(),
            epoch: 0,
            losses: [0; LOSSES],
            swaps: [0; SWAPS],
            heads: HashMap::new(),
            seen: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    /// Opens it again where it was closed.
    pub(super) fn open(&mut self, open: impl FnOnce() -> io::Result<File>) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(open()?);
        }
        Ok(())
    }

    /// Until the next reading.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Bytes that are there; a file that ends early has the rest as zeros.
    fn read(&self, at: usize, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match self.file()?.read_at(&mut bytes[filled..], (at + filled) as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    /// The level that the process began with; `None` while the segment is not ready.
    pub(super) fn level_at_start(&self) -> Option<u32> {
        let head = self.read(0, size_of::<Header>()).ok()?;
        let head = Bytes(&head);
        (head.u64(offset_of!(Header, magic)) == MAGIC).then(|| head.u32(offset_of!(Header, level_at_start)))
    }

    /// What was counted since the last time; `None` while the segment is not ready (its writer has not finished its head).
    /// After the end of the process, `is_last`. What is beyond the bounds is not believed, nor is anything else of that segment.
    pub(super) fn drain(&mut self, is_last: bool, bounds: Bounds) -> io::Result<Option<Reading>> {
        if self.refused {
            return Ok(None);
        }
        let reading = self.read_all(is_last, bounds)?;
        self.refused = reading.as_ref().is_some_and(|reading| reading.implausible);
        Ok(reading)
    }

    /// How much is kept of it: a few tens of bytes each.
    pub(super) fn kept(&self) -> usize {
        self.seen.len()
    }

    fn read_all(&mut self, is_last: bool, bounds: Bounds) -> io::Result<Option<Reading>> {
        let head = self.read(0, size_of::<Header>())?;
        let head = Bytes(&head);
        if head.u64(offset_of!(Header, magic)) == 0 {
            return Ok(None);
        }
        let mut reading = Reading::default();
        if head.u64(offset_of!(Header, magic)) != MAGIC || head.u32(offset_of!(Header, version)) != VERSION {
            reading.damaged = 1;
            return Ok(Some(reading));
        }
        for (lost, seen) in self.losses.iter_mut().enumerate() {
            let now = head.u64(offset_of!(Header, losses) + lost * 8);
            reading.losses[lost] = now.saturating_sub(*seen);
            *seen = now;
        }
        for (swap, seen) in self.swaps.iter_mut().enumerate() {
            let now = head.u64(offset_of!(Header, swaps) + swap * 8);
            reading.swaps[swap] = now.saturating_sub(*seen);
            *seen = now;
        }
        if !self.losses.iter().chain(&self.swaps).all(|count| bounds.allow_counter(*count)) {
            return Ok(Some(Reading::implausible()));
        }
        let ended = self.epoch;
        self.epoch = self.epoch.wrapping_add(1);
        // A reader without the right to write gets maxima of the whole run, clamped to the bucket.
        let _ = self.file()?.write_all_at(&self.epoch.to_ne_bytes(), offset_of!(Header, epoch) as u64);
        let threads = (head.u32(offset_of!(Header, threads)) as usize).min(THREADS);
        for thread in 0..threads {
            if !self.drain_thread(thread, (ended, is_last), bounds, &mut reading)? {
                return Ok(Some(Reading::implausible()));
            }
        }
        Ok(Some(reading))
    }

    /// `false` if the thread cannot have done what its table says.
    fn drain_thread(
        &mut self,
        thread: usize,
        (epoch, is_last): (u32, bool),
        bounds: Bounds,
        reading: &mut Reading,
    ) -> io::Result<bool> {
        let start = offset_of!(Segment, threads) + thread * size_of::<Thread>();
        // Each event changes something here, but after it is counted: who is killed in between must not be skipped.
        let begin = offset_of!(Thread, changes);
        let head = self.read(start + begin, offset_of!(Thread, held) - begin)?;
        if self.heads.get(&thread) == Some(&head) && !is_last {
            return Ok(true);
        }
        self.heads.insert(thread, head);
        let bytes = self.read(start + offset_of!(Thread, slots), SLOTS * size_of::<Slot>())?;
        for slot in 0..SLOTS {
            let at = slot * size_of::<Slot>();
            let slot_bytes = Bytes(&bytes[at..at + size_of::<Slot>()]);
            if slot_bytes.u64(offset_of!(Slot, meta)) == 0 {
                continue;
            }
            let seen = self.seen.entry((thread, slot)).or_default();
            match delta(&slot_bytes, seen, epoch) {
                Ok(Some(delta)) => {
                    if !self.sums.entry(thread).or_default().add(&delta, bounds) {
                        return Ok(false);
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
        Ok(true)
    }

    /// What the lock at this place (from 1) is; `None` for none.
    pub(super) fn lock(&self, place: u32) -> Option<LockFacts> {
        let place = (place as usize).checked_sub(1)?;
        if let Some(class) = place.checked_sub(LOCK_PLACES) {
            let at = offset_of!(Segment, classes) + class * size_of::<Class>();
            let fields = [offset_of!(Class, address), offset_of!(Class, site), offset_of!(Class, flags)];
            let facts = if class < CLASSES { self.facts(at, size_of::<Class>(), fields) } else { None };
            return facts.map(|facts| LockFacts { is_class: true, ..facts });
        }
        let at = offset_of!(Segment, locks) + place * size_of::<LockEntry>();
        let fields = [offset_of!(LockEntry, address), offset_of!(LockEntry, made_at), offset_of!(LockEntry, flags)];
        self.facts(at, size_of::<LockEntry>(), fields)
    }

    fn facts(&self, at: usize, length: usize, [address, made_at, flags]: [usize; 3]) -> Option<LockFacts> {
        let bytes = self.read(at, length).ok()?;
        let bytes = Bytes(&bytes);
        let facts = LockFacts {
            address: bytes.u64(address),
            made_at: bytes.u64(made_at),
            flags: bytes.u32(flags),
            is_class: false,
        };
        (facts.address != 0).then_some(facts)
    }

    /// Return addresses of a site, innermost first; empty if there are none.
    pub(super) fn site(&mut self, site: u64) -> Vec<u64> {
        if site == 0 {
            return Vec::new();
        }
        if site & SITE_IS_STACK == 0 {
            return vec![site];
        }
        if let Some(frames) = self.stacks.get(&site) {
            return frames.clone();
        }
        let place = (site & !SITE_IS_STACK) as usize;
        let frames = if place < STACKS { self.stack(place) } else { Vec::new() };
        if !frames.is_empty() {
            self.stacks.insert(site, frames.clone());
        }
        frames
    }

    fn stack(&self, place: usize) -> Vec<u64> {
        let at = offset_of!(Segment, stacks) + place * size_of::<Stack>();
        let Ok(bytes) = self.read(at, size_of::<Stack>()) else { return Vec::new() };
        let bytes = Bytes(&bytes);
        let depth = usize::try_from(bytes.u64(offset_of!(Stack, depth))).unwrap_or(usize::MAX).min(FRAMES);
        (0..depth).map(|frame| bytes.u64(offset_of!(Stack, frames) + frame * 8)).collect()
    }

    /// The name of a thread (place from 1).
    pub(super) fn comm(&self, place: u32) -> Option<String> {
        let place = (place as usize).checked_sub(1).filter(|place| *place < COMMS)?;
        let bytes = self.read(offset_of!(Segment, comms) + place * size_of::<Comm>(), size_of::<Comm>()).ok()?;
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        (length > 0).then(|| String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    /// Everything that process `pid`, whose segment this is, maps and that an address it recorded lies in.
    pub(super) fn modules(&self, pid: u32, names: &mut UserNames) -> Vec<MappedFile> {
        let Ok(head) = self.read(offset_of!(Header, modules), 4) else { return Vec::new() };
        let begun = (Bytes(&head).u32(0) as usize).min(MODULES);
        let Ok(bytes) = self.read(offset_of!(Segment, modules), begun * size_of::<Module>()) else { return Vec::new() };
        bytes.chunks_exact(size_of::<Module>()).filter_map(|module| mapped_file(pid, module, names)).collect()
    }
}

fn mapped_file(pid: u32, bytes: &[u8], names: &mut UserNames) -> Option<MappedFile> {
    let numbers = Bytes(bytes);
    let path = bytes.get(offset_of!(Module, path)..offset_of!(Module, path) + PATH_BYTES)?;
    let length = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    let memory = numbers.u64(offset_of!(Module, start))..numbers.u64(offset_of!(Module, end));
    let bias = numbers.u64(offset_of!(Module, bias));
    let path = Path::new(OsStr::from_bytes(&path[..length]));
    let length = usize::from(*bytes.get(offset_of!(Module, build_id_bytes))?).min(BUILD_ID_BYTES);
    let build_id = bytes.get(offset_of!(Module, build_id)..)?.get(..length).and_then(BuildId::new);
    (memory.start != 0).then(|| names.file_of_process(pid, memory, bias, path, build_id))
}

/// The slot is not one that a writer writes.
#[derive(Debug, PartialEq, Eq)]
struct Nonsense;

/// What a slot counted since it was last seen.
///
/// A writer may be between its two stores: then the time of one event more is there than events. What goes beyond the
/// bucket's bound is left for the next time.
fn delta(bytes: &Bytes<'_>, seen: &mut Seen, epoch: u32) -> Result<Option<Delta>, Nonsense> {
    let meta = Meta::unpack(bytes.u64(offset_of!(Slot, meta)));
    if meta.bucket >= 64 {
        return Err(Nonsense);
    }
    let count = bytes.u64(offset_of!(Slot, count)).wrapping_sub(seen.count);
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
        seen.count = seen.count.wrapping_add(count);
        return Ok(Some(Delta {
            meta,
            lock: bytes.u64(offset_of!(Slot, lock)) as u32,
            releaser_comm: 0,
            site: bytes.u64(offset_of!(Slot, site)),
            blocker: 0,
            count,
            total_ns: 0,
            max_ns: 0,
        }));
    }
    let total_ns = bytes
        .u64(offset_of!(Slot, total_ns))
        .wrapping_sub(seen.total_ns)
        .clamp(count.saturating_mul(lower_ns), count.saturating_mul(upper_ns));
    let longest_ns = bytes.u64(offset_of!(Slot, max_ns));
    let is_of_interval = bytes.u64(offset_of!(Slot, epoch)) == u64::from(epoch);
    let mean_ns = total_ns.div_ceil(count);
    let max_ns = if is_of_interval || count == 1 { longest_ns } else { mean_ns };
    seen.count = seen.count.wrapping_add(count);
    seen.total_ns = seen.total_ns.wrapping_add(total_ns);
    let lock = bytes.u64(offset_of!(Slot, lock));
    Ok(Some(Delta {
        meta,
        lock: lock as u32,
        releaser_comm: (lock >> 32) as u32,
        site: bytes.u64(offset_of!(Slot, site)),
        blocker: bytes.u64(offset_of!(Slot, blocker)),
        count,
        total_ns,
        max_ns: if count == 1 { total_ns } else { max_ns.clamp(mean_ns, upper_ns.max(mean_ns)) },
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Everything can have happened.
    const ALL_TIME: Bounds = Bounds::since(0, u64::MAX);

    fn reader_of(bytes: &[u8]) -> SegmentReader {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        SegmentReader::new(file)
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_crash(
            bytes in prop::collection::vec(any::<u8>(), 0..512),
            slots in prop::collection::vec(any::<u8>(), 0..2048),
            place in any::<u32>(), site in any::<u64>(),
        ) {
            let mut head = MAGIC.to_ne_bytes().to_vec();
            head.extend(VERSION.to_ne_bytes());
            head.extend(&bytes);
            let mut reader = reader_of(&head);
            reader.file().unwrap().write_all_at(&1_u32.to_ne_bytes(), offset_of!(Header, threads) as u64).unwrap();
            let thread = offset_of!(Segment, threads);
            reader.file().unwrap().write_all_at(&slots, (thread + offset_of!(Thread, slots)) as u64).unwrap();
            for _ in 0..2 {
                let Some(reading) = reader.drain(false, ALL_TIME).unwrap() else { continue };
                for delta in reading.deltas {
                    prop_assert!(delta.max_ns <= delta.total_ns);
                }
            }
            reader.lock(place);
            reader.comm(place);
            reader.modules(1, &mut UserNames::new());
            prop_assert!(reader.site(site).len() <= FRAMES);
        }

        #[test]
        fn what_is_drained_adds_up_to_what_was_counted(
            bucket in 0_u8..40, steps in prop::collection::vec((1_u64..50, any::<bool>()), 1..20),
        ) {
            let each_ns = 1_u64 << bucket;
            let (mut count, mut drained_count, mut drained_ns) = (0, 0, 0);
            let mut seen = Seen::default();
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
                if let Some(delta) = delta(&Bytes(&slot), &mut seen, 0).unwrap() {
                    drained_count += delta.count;
                    drained_ns += delta.total_ns;
                }
            }
            prop_assert_eq!(drained_count, count);
            prop_assert!(drained_ns >= count * each_ns && drained_ns <= count * each_ns + each_ns);
        }
    }

    #[test]
    fn a_file_of_another_kind_or_version_is_damaged_and_an_empty_one_not_ready() {
        assert!(reader_of(&[]).drain(false, ALL_TIME).unwrap().is_none());
        assert_eq!(reader_of(b"garbage garbage garbage").drain(false, ALL_TIME).unwrap().unwrap().damaged, 1);
    }
}
