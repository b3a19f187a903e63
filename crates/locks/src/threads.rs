//! The threads that use locks: a number for each, its place in queues of spinners, and where it runs.
//!
//! A thread gets its number when a lock first makes it wait, and gives it back when it ends. Records are never freed, so that
//! a late look at the record of a thread that has ended reads a record all the same.

// Without thread-local storage there are no numbers to give.
#![cfg_attr(not(any(feature = "std", loom, shuttle)), allow(dead_code, unused_imports))]

#[cfg(any(all(feature = "std", not(feature = "preload")), loom, shuttle))]
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::generation;
use crate::rests::Rests;
use crate::spin_queue::Node;
use crate::spinning::Sections;
use crate::sync::{AtomicPtr, AtomicU32, const_unless_model, yield_now};

/// Threads that have a number at the same time. Those beyond wait without queueing, and are unknown as owners.
#[cfg(not(any(loom, shuttle)))]
pub(crate) const CAPACITY: usize = 8192;
#[cfg(any(loom, shuttle))]
const CAPACITY: usize = 8;

/// A thread's number: its place in the table of records, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(u32);

/// The number of no thread: the owner is not known.
pub(crate) const UNKNOWN: u32 = 0;

/// A thread's number, or [`UNKNOWN`], as locks keep it where space counts.
pub(crate) const fn short(number: u32) -> u16 {
    const { assert!(CAPACITY < u16::MAX as usize, "a number must fit") };
    // Larger is only [`ANONYMOUS`], which is in no table either way.
    if number < u16::MAX as u32 { number as u16 } else { u16::MAX }
}

impl Slot {
    pub(crate) fn from_number(number: u32) -> Option<Slot> {
        (number != UNKNOWN && number as usize <= CAPACITY).then_some(Slot(number))
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Its place in tables, from 0.
    pub(crate) fn place(self) -> usize {
        self.0 as usize - 1
    }
}

/// What is known of a thread. Two cache lines, so that spinning on one disturbs nobody else.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Record {
    /// Its place in the queue of spinners that it is in.
    pub(crate) node: Node,
    /// 0: nobody's; else the [claim](generation::claim) of the process whose thread has it. Once numbers are shared with other
    /// processes, their robust mutexes say whose it is.
    claim: AtomicU32,
    /// How many look through `cpu` just now: its thread does not end meanwhile.
    lookers: AtomicU32,
    /// The `cpu_id` of its rseq area: the CPU on which the kernel last let it run. Null: not known.
    cpu: AtomicPtr<u32>,
    /// The sections that it waits for.
    pub(crate) sections: Sections,
    /// When it gives up its CPU.
    pub(crate) rests: Rests,
}

impl Record {
    const_unless_model! {
        const fn new() -> Self {
            Record {
                node: Node::new(),
                claim: AtomicU32::new(0),
                lookers: AtomicU32::new(0),
                cpu: AtomicPtr::new(core::ptr::null_mut()),
                sections: Sections::new(),
                rests: Rests::new(),
            }
        }
    }

    /// The CPU on which the thread runs, or ran last.
    pub(crate) fn cpu(&self) -> Option<u32> {
        if !self.is_of_this_process() {
            // Of a thread that this process was forked without.
            return None;
        }
        // Either the ending thread sees us looking, and waits, or we see that it has withdrawn the pointer.
        self.lookers.fetch_add(1, SeqCst);
        let cpu = self.cpu.load(SeqCst);
        let number = if cpu.is_null() {
            None
        } else {
            // SAFETY: the area lives while its thread does, which does not end while somebody looks; the kernel writes it
            // meanwhile, as an aligned word.
            Some(unsafe { cpu.read_volatile() })
        };
        self.lookers.fetch_sub(1, Release);
        number
    }

    /// From now on its thread's CPU is known from here, or from nowhere.
    #[cfg(all(feature = "std", not(feature = "preload"), not(any(loom, shuttle))))]
    pub(crate) fn publish_cpu(&self, cpu: *mut u32) {
        self.cpu.store(cpu, SeqCst);
    }

    #[cfg(all(feature = "std", not(feature = "preload"), not(any(loom, shuttle))))]
    pub(crate) fn is_cpu_known(&self) -> bool {
        !self.cpu.load(Relaxed).is_null()
    }

    /// The thread ends, or has no such area any more.
    pub(crate) fn withdraw_cpu(&self) {
        self.cpu.store(core::ptr::null_mut(), SeqCst);
        while self.is_of_this_process() && self.lookers.load(SeqCst) != 0 {
            yield_now();
        }
    }
}

impl Record {
    fn is_of_this_process(&self) -> bool {
        // Models have one process, and no look for nothing.
        cfg!(any(loom, shuttle)) || self.claim.load(Relaxed) == generation::claim()
    }

    /// A thread of this process has it, which is in no queue.
    #[cfg(any(feature = "std", feature = "preload", loom, shuttle))]
    fn take_over(&self) {
        self.claim.store(generation::claim(), Relaxed);
        self.node.leave_behind();
    }

    /// Takes it, if it is nobody's.
    fn is_claimed_now(&self) -> bool {
        (cfg!(any(loom, shuttle)) || self.claim.load(Relaxed) == 0)
            && self.claim.compare_exchange(0, generation::claim(), Acquire, Relaxed).is_ok()
    }

    /// In a forked child, by the thread that forked: no other thread of the parent is here. Threads that the child has started since
    /// keep their records.
    #[cold]
    #[cfg(any(feature = "std", feature = "preload", loom, shuttle))]
    pub(crate) fn forget_threads_of_the_parent(own: Option<Slot>) {
        let now = generation::claim();
        for (record, number) in RECORDS.iter().zip(1..) {
            // Reading takes no memory, and most records were never used.
            let claim = record.claim.load(Relaxed);
            if claim == 0 || claim == now {
                continue;
            }
            record.lookers.store(0, Relaxed);
            if own.is_some_and(|own| own.0 == number) {
                record.claim.store(now, Release);
            } else {
                record.cpu.store(core::ptr::null_mut(), Relaxed);
                record.claim.store(0, Release);
            }
        }
    }
}

#[cfg(all(feature = "preload", not(any(loom, shuttle))))]
impl Record {
    /// Takes the first record that is nobody's.
    pub(crate) fn claim(cpu: *mut u32) -> Option<Slot> {
        let place = RECORDS.iter().position(Record::is_claimed_now)?;
        RECORDS[place].cpu.store(cpu, Release);
        Some(Slot(place as u32 + 1))
    }

    /// Its thread ends.
    pub(crate) fn give_back(&self) {
        self.withdraw_cpu();
        self.claim.store(0, Release);
    }
}

#[cfg(not(any(loom, shuttle)))]
static RECORDS: Pages<[Record; CAPACITY]> = Pages([const { Record::new() }; CAPACITY]);

/// What fills whole pages, so that these can be mapped anew: see [`between_processes`](crate::between_processes).
#[cfg(not(any(loom, shuttle)))]
#[repr(C, align(4096))]
struct Pages<T>(T);

#[cfg(not(any(loom, shuttle)))]
impl<T> core::ops::Deref for Pages<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(loom)]
loom::lazy_static! {
    static ref RECORDS: Vec<Record> = (0..CAPACITY).map(|_| Record::new()).collect();
}
#[cfg(shuttle)]
shuttle::lazy_static! {
    static ref RECORDS: Vec<Record> = (0..CAPACITY).map(|_| Record::new()).collect();
}

/// Where the records lie, and how many bytes of whole pages they fill.
#[cfg(all(feature = "std", not(feature = "preload"), not(any(loom, shuttle))))]
pub(crate) fn pages_of_records() -> (*mut core::ffi::c_void, usize) {
    (core::ptr::from_ref(&RECORDS).cast_mut().cast(), size_of_val(&RECORDS))
}

/// The record of the thread with this number.
pub(crate) fn record(slot: Slot) -> &'static Record {
    &RECORDS[slot.place()]
}

/// The records of those whose numbers are next to this thread's: threads that began at about the same time, as those that share locks mostly
/// have.
pub(crate) fn neighbours(own: Slot) -> impl Iterator<Item = &'static Record> {
    const EACH_SIDE: usize = 16;
    let place = own.place();
    let places = place.saturating_sub(EACH_SIDE)..CAPACITY.min(place + EACH_SIDE + 1);
    places.filter(move |other| *other != place).map(|other| &RECORDS[other])
}

#[cfg(all(feature = "preload", not(any(loom, shuttle))))]
use crate::preloaded::{cells, registration};
// Both cells are without a destructor, so that they can be read to the thread's very end.
#[cfg(all(feature = "std", not(feature = "preload"), not(any(loom, shuttle))))]
std::thread_local! {
    /// What [`owner_word`] says; 0 before this thread has a number. Changes no more after that, not even when the thread has
    /// given its number back: what it locked it must unlock with the same word.
    static WORD: Cell<u64> = const { Cell::new(0) };
    /// This thread's number while it has one.
    static NUMBER: Cell<u32> = const { Cell::new(UNKNOWN) };
    /// What [`draws`] keep.
    static DRAWS: Cell<u32> = const { Cell::new(0) };
}
#[cfg(loom)]
loom::thread_local! {
    static WORD: Cell<u64> = Cell::new(0);
    static NUMBER: Cell<u32> = Cell::new(UNKNOWN);
}
#[cfg(shuttle)]
shuttle::thread_local! {
    static WORD: Cell<u64> = Cell::new(0);
    static NUMBER: Cell<u32> = Cell::new(UNKNOWN);
}

/// In the low half of [`owner_word`].
pub(crate) const OWNED: u64 = 1;

/// The owner word of threads that have no number.
const ANONYMOUS: u64 = (u32::MAX as u64) << 32 | OWNED;

/// What a lock's state is while this thread owns it and nobody waits: its number in the high half, [`OWNED`] in the low one;
/// 0 if the thread must go through [`own_slot`] first. For fast paths.
#[cfg(any(feature = "std", feature = "preload", loom, shuttle))]
#[inline(always)]
pub(crate) fn owner_word() -> u64 {
    cells::word()
}

/// Without thread-local storage nobody has a number.
#[cfg(not(any(feature = "std", feature = "preload", loom, shuttle)))]
#[inline(always)]
pub(crate) fn owner_word() -> u64 {
    ANONYMOUS
}

/// The number of the owner that an owner word names.
pub(crate) fn owner_number(word: u64) -> u32 {
    (word >> 32) as u32
}

/// This thread's place; it gets one if it has none and there is room. From here on [`owner_word`] is not 0.
#[cfg(any(feature = "std", feature = "preload", loom, shuttle))]
pub(crate) fn own_slot() -> Option<Slot> {
    if owner_word() == 0 {
        // Before anything else: a registration may allocate, and an allocator may lock.
        cells::set_word(ANONYMOUS);
        if let Some(slot) = registration::register() {
            // What is there is of the thread that had the number before.
            let Record { rests, sections, .. } = record(slot);
            if !cfg!(any(loom, shuttle)) {
                record(slot).take_over();
            }
            rests.forget();
            sections.forget();
            cells::set_number(slot.number());
            cells::set_word(u64::from(slot.number()) << 32 | OWNED);
        }
    }
    let own = current_slot()?;
    if !record(own).is_of_this_process() {
        // It has forked since its last wait.
        Record::forget_threads_of_the_parent(Some(own));
    }
    Some(own)
}

/// This thread's place, if it has one already.
#[cfg(any(feature = "std", feature = "preload", loom, shuttle))]
pub(crate) fn current_slot() -> Option<Slot> {
    Slot::from_number(cells::number())
}

/// Draws a thread's reads at random, so that no rhythm of a program's meets them: for counts that all threads share and none wants
/// to touch each time.
#[cfg(all(any(feature = "std", feature = "preload"), not(any(loom, shuttle))))]
pub(crate) mod draws {
    use super::{cells, with_own_sections};

    /// At most so many reads until one is drawn; half of that on the average. In a thread's draws this bit says that one is: the
    /// bits below count reads, from a start that the bits above, a random number, tell.
    const MOST_READS: u32 = 1 << 7;
    const RANDOM_SHIFT: u32 = 8;
    const RANDOM_BITS: u32 = u32::BITS - RANDOM_SHIFT;

    /// Counts a read of this thread's, and says whether it is drawn. If so, [`reads`] is to be asked.
    #[inline(always)]
    pub(crate) fn next_is_drawn() -> bool {
        let draws = cells::draws().wrapping_add(1);
        cells::set_draws(draws);
        draws & MOST_READS != 0
    }

    /// For how many reads the one that was drawn stands, itself among them.
    pub(crate) fn reads() -> u32 {
        let random = cells::draws() >> RANDOM_SHIFT;
        let reads = MOST_READS - start(random);
        let random = random.wrapping_mul(0x005f_77f5).wrapping_add(1) % (1 << RANDOM_BITS);
        cells::set_draws(random << RANDOM_SHIFT | start(random));
        with_own_sections(|sections| sections.reads_were_drawn(reads));
        reads
    }

    fn start(random: u32) -> u32 {
        random / ((1 << RANDOM_BITS) / MOST_READS)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn drawn_reads_stand_for_all_and_have_no_rhythm() {
            let mut gaps: Vec<u32> = Vec::new();
            let mut since = 0;
            for _ in 0..100_000 {
                since += 1;
                if next_is_drawn() {
                    assert_eq!(reads(), since);
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

/// Every read is drawn: without thread-local storage they cannot be counted, and a model checker decides for itself what happens when.
#[cfg(not(all(any(feature = "std", feature = "preload"), not(any(loom, shuttle)))))]
pub(crate) mod draws {
    use super::with_own_sections;

    pub(crate) fn next_is_drawn() -> bool {
        true
    }

    pub(crate) fn reads() -> u32 {
        with_own_sections(|sections| sections.reads_were_drawn(1));
        1
    }
}

/// What this thread knows of the sections that it waits for says nothing about its next wait.
pub(crate) fn forget_sections() {
    with_own_sections(Sections::forget);
}

fn with_own_sections(then: impl FnOnce(&Sections)) {
    if !cfg!(any(loom, shuttle))
        && let Some(own) = current_slot()
    {
        then(&record(own).sections);
    }
}

/// Where a thread keeps its word, its number and its draws.
#[cfg(any(all(feature = "std", not(feature = "preload")), loom, shuttle))]
mod cells {
    use super::*;

    #[inline(always)]
    pub(super) fn word() -> u64 {
        WORD.with(Cell::get)
    }

    pub(super) fn set_word(word: u64) {
        WORD.with(|cell| cell.set(word));
    }

    pub(super) fn number() -> u32 {
        NUMBER.with(Cell::get)
    }

    pub(super) fn set_number(number: u32) {
        NUMBER.with(|cell| cell.set(number));
    }

    #[cfg(not(any(loom, shuttle)))]
    #[inline(always)]
    pub(super) fn draws() -> u32 {
        DRAWS.with(Cell::get)
    }

    #[cfg(not(any(loom, shuttle)))]
    #[inline(always)]
    pub(super) fn set_draws(draws: u32) {
        DRAWS.with(|cell| cell.set(draws));
    }
}

/// Without thread-local storage nobody has a number.
#[cfg(not(any(feature = "std", feature = "preload", loom, shuttle)))]
pub(crate) fn own_slot() -> Option<Slot> {
    None
}

/// The same.
#[cfg(not(any(feature = "std", feature = "preload", loom, shuttle)))]
pub(crate) fn current_slot() -> Option<Slot> {
    None
}

#[cfg(all(feature = "std", not(feature = "preload"), not(any(loom, shuttle))))]
pub(crate) mod registration {
    use super::*;
    use crate::between_processes::Places;
    use crate::rseq_area;

    /// Gives the number back when the thread ends.
    struct Leave;

    impl Drop for Leave {
        fn drop(&mut self) {
            let Some(slot) = Slot::from_number(NUMBER.replace(UNKNOWN)) else { return };
            if let Some(places) = Places::shared() {
                places.give_back(slot);
            } else {
                let record = record(slot);
                record.withdraw_cpu();
                record.claim.store(0, Release);
            }
            FIRST_FREE.fetch_min(slot.number() - 1, Relaxed);
        }
    }

    std::thread_local! {
        static LEAVE: Leave = const { Leave };
    }

    /// No record before this one was free when somebody looked last. A hint, so that thousands of threads are quick to start.
    static FIRST_FREE: AtomicU32 = AtomicU32::new(0);

    /// The first free place from the hint on, round and round, that `take` took.
    fn find(take: impl Fn(usize) -> bool) -> Option<Slot> {
        let first = FIRST_FREE.load(Relaxed) as usize;
        let place = (first..CAPACITY).chain(0..first).find(|&place| take(place))?;
        FIRST_FREE.store(place as u32 + 1, Relaxed);
        Some(Slot(place as u32 + 1))
    }

    #[cold]
    pub(super) fn register() -> Option<Slot> {
        // A thread that is ending gets no number again: nobody would give it back.
        LEAVE.try_with(|_| ()).ok()?;
        if let Some(places) = Places::shared() {
            let slot = find(|place| places.claim(Slot(place as u32 + 1)))?;
            places.publish_cpu(slot);
            return Some(slot);
        }
        let slot = find(|place| RECORDS[place].is_claimed_now())?;
        record(slot).cpu.store(rseq_area::glibc_cpu(), Release);
        Some(slot)
    }

    /// In a forked child: the number is its parent's. It gets one of its own when it needs one.
    pub(crate) fn forget_number() {
        NUMBER.set(UNKNOWN);
        WORD.set(0);
    }
}

#[cfg(any(loom, shuttle))]
mod registration {
    use super::*;

    pub(super) fn register() -> Option<Slot> {
        let place = (0..CAPACITY).find(|place| RECORDS[*place].is_claimed_now())?;
        Some(Slot(place as u32 + 1))
    }
}
