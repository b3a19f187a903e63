//! Rows: locks of one class that lie in an array, so that an address alone tells the class.
//!
//! A program that locks parts of a table has thousands of locks made by one loop. To find each by its own line of the table
//! of locks would cost a miss of the cache at each release.

use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Rows that are kept; each class has one place that it may take.
const ROWS: usize = 32;
/// Fewer locks are not worth a row, and may be a coincidence of the allocator.
const LEAST: u32 = 64;
/// Farther apart than this, locks are not elements of one array.
pub(super) const LONGEST_STRIDE: usize = 1 << 16;
/// The class of a row in which a lock was destroyed or became another. Its place stays empty, so that programs that make
/// and destroy locks all the time do not have all threads forget what they know each time.
const BROKEN: u32 = u32::MAX;

/// Below [`LEAST`] it grows or begins anew; from then on base and stride stay.
struct Row {
    class: AtomicU32,
    /// The call that made its locks, as [`creation`](super::creation) numbers them; 0: none did.
    maker: AtomicU32,
    count: AtomicU32,
    base: AtomicUsize,
    stride: AtomicUsize,
}

#[unsafe(link_section = ".data.lockmeter_inherited")]
static TABLE: [Row; ROWS] = [const {
    Row {
        class: AtomicU32::new(0),
        maker: AtomicU32::new(0),
        count: AtomicU32::new(0),
        base: AtomicUsize::new(0),
        stride: AtomicUsize::new(0),
    }
}; ROWS];

/// Held by the thread that lets a row grow. Others do without: then the row has a gap, and begins anew or ends there.
#[unsafe(link_section = ".data.lockmeter_inherited")]
static GROWING: AtomicU32 = AtomicU32::new(0);

/// Addresses below and above which no row ever had any.
#[unsafe(link_section = ".data.lockmeter_inherited")]
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
#[unsafe(link_section = ".data.lockmeter_inherited")]
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Whether the lock at this address may be in a row.
#[inline(always)]
pub(super) fn may_have(address: usize) -> bool {
    (LOWEST.load(Relaxed)..=HIGHEST.load(Relaxed)).contains(&address)
}

fn widen(first: usize, last: usize) {
    LOWEST.fetch_min(first, Relaxed);
    HIGHEST.fetch_max(last, Relaxed);
}

/// Alone in its line, which all threads read at each release.
#[derive(Debug)]
#[repr(align(64))]
pub struct Changes(AtomicU32);

/// Public for entries written in assembly.
#[unsafe(link_section = ".data.lockmeter_inherited")]
pub static CHANGES: Changes = Changes(AtomicU32::new(0));

/// Another number when an address may have come to mean another lock.
#[inline(always)]
pub(super) fn changes() -> u32 {
    CHANGES.0.load(Acquire)
}

/// Says that an address means another lock than before.
pub(super) fn changed() {
    CHANGES.0.fetch_add(1, Release);
}

/// Addresses from a base, one stride apart. Checked by a multiplication with the inverse of the stride's odd factor: what is
/// not a multiple of the stride comes out too large, and so does what is outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) base: usize,
    pub(super) inverse: usize,
    pub(super) shift: u32,
    pub(super) count: u32,
}

impl Span {
    /// One address.
    pub(super) const fn single(address: usize) -> Self {
        Self { base: address, inverse: 1, shift: 0, count: 1 }
    }

    /// This many addresses, this far apart.
    fn of(base: usize, stride: usize, count: u32) -> Self {
        let shift = stride.trailing_zeros();
        let odd = stride >> shift;
        // Newton's method doubles the bits that are right: three, then 6, 12, 24, 48, 96.
        let inverse =
            (0..5).fold(odd, |inverse, _| inverse.wrapping_mul(2_usize.wrapping_sub(odd.wrapping_mul(inverse))));
        Self { base, inverse, shift, count }
    }

    /// What the product of the inverse and the distance from the base is below for its elements alone, among addresses that are
    /// aligned like this; 0: nothing is, or it does not fit. Then the power of two in the stride needs no look of its own: a
    /// product that is small and no multiple of it would be that of an address that is not aligned.
    pub(super) fn limit(&self, alignment: usize) -> u32 {
        let is_implied = self.count == 1 || 1 << self.shift <= alignment && self.base.is_multiple_of(alignment);
        let limit = if is_implied { u64::from(self.count) << self.shift } else { 0 };
        u32::try_from(limit).unwrap_or(0)
    }

    #[inline(always)]
    pub(super) const fn has(&self, address: usize) -> bool {
        let index = address.wrapping_sub(self.base).wrapping_mul(self.inverse).rotate_right(self.shift);
        index < self.count as usize
    }
}

impl Row {
    fn span(&self) -> Option<Span> {
        let count = self.count.load(Acquire);
        let stride = self.stride.load(Relaxed);
        (count > 1 && stride != 0).then(|| Span::of(self.base.load(Relaxed), stride, count))
    }

    fn begin(&self, class: u32, address: usize) {
        self.set(class, 0, (address, 0, 1));
    }

    fn set(&self, class: u32, maker: u32, (base, stride, count): (usize, usize, u32)) {
        self.count.store(0, Relaxed);
        self.class.store(class, Relaxed);
        self.maker.store(maker, Relaxed);
        self.base.store(base, Relaxed);
        self.stride.store(stride, Relaxed);
        self.count.store(count, Release);
    }

    fn grow(&self, class: u32, address: usize) {
        let (owner, count) = (self.class.load(Relaxed), self.count.load(Relaxed));
        if owner == BROKEN {
            return;
        }
        let from_base = address.wrapping_sub(self.base.load(Relaxed));
        let is_next = match count {
            _ if owner != class => false,
            0 => false,
            1 => (1..=LONGEST_STRIDE).contains(&from_base),
            _ => from_base == self.stride.load(Relaxed) * count as usize,
        };
        if is_next {
            if count == 1 {
                self.stride.store(from_base, Relaxed);
            }
            // Fails if the row was broken meanwhile.
            let _ = self.count.compare_exchange(count, count + 1, AcqRel, Relaxed);
            widen(self.base.load(Relaxed), address);
        } else if count < LEAST {
            self.begin(class, address);
        }
    }

    fn break_up(&self) {
        if self.count.swap(0, AcqRel) >= LEAST {
            self.class.store(BROKEN, Release);
            changed();
        }
    }
}

/// Ends the rows that have this address, but for those of which this says that it belongs there.
fn break_others(address: usize, belongs: impl Fn(&Row) -> bool) {
    for row in &TABLE {
        let is_anothers = row.count.load(Relaxed) > 1 && !belongs(row);
        if is_anothers && row.span().is_some_and(|span| span.has(address)) {
            row.break_up();
        }
    }
}

/// A call made a lock at this address.
pub(super) fn made_by(address: usize, maker: u32) {
    break_others(address, |row| maker != 0 && row.maker.load(Relaxed) == maker);
}

/// Locks of this class, which one call made, are a row: the first, how far apart they are, and how many.
pub(super) fn found(class: u32, maker: u32, row: (usize, usize, u32)) {
    let (first, stride, count) = row;
    if count < LEAST || GROWING.compare_exchange(0, 1, AcqRel, Relaxed).is_err() {
        return;
    }
    let own = &TABLE[class as usize % ROWS];
    let (owner, long) = (own.class.load(Relaxed), own.count.load(Relaxed));
    let is_same = owner == class && own.base.load(Relaxed) == first && own.stride.load(Relaxed) == stride;
    if is_same {
        // Fails if the row was broken meanwhile.
        let _ = own.count.compare_exchange(long, count.max(long), AcqRel, Relaxed);
    } else if owner != BROKEN && long < LEAST {
        own.set(class, maker, row);
    }
    widen(first, first + stride * count as usize);
    GROWING.store(0, Release);
}

/// A lock of a class (0: none) that no call made was first used at this address.
pub(super) fn used(address: usize, class: u32) {
    break_others(address, |row| row.class.load(Relaxed) == class);
    if class != 0 && GROWING.compare_exchange(0, 1, AcqRel, Relaxed).is_ok() {
        TABLE[class as usize % ROWS].grow(class, address);
        GROWING.store(0, Release);
    }
}

/// The lock at this address is no more.
pub(super) fn gone(address: usize) {
    for row in &TABLE {
        if row.count.load(Relaxed) > 1 && row.span().is_some_and(|span| span.has(address)) {
            row.break_up();
        }
    }
}

/// The row of a class, if this lock is in it.
pub(super) fn of(class: u32, address: usize) -> Option<Span> {
    let row = &TABLE[class as usize % ROWS];
    // Long enough, it is no other class's any more.
    let span = row.span().filter(|span| span.count >= LEAST)?;
    (row.class.load(Acquire) == class && span.has(address)).then_some(span)
}

/// The class of the row that this lock is in.
pub(super) fn class_of(address: usize) -> Option<u32> {
    TABLE.iter().map(|row| row.class.load(Relaxed)).find(|class| of(*class, address).is_some())
}

/// After a fork: the classes are those of the parent's segment.
pub(super) fn forget() {
    for row in TABLE.iter().filter(|row| row.class.load(Relaxed) != 0) {
        row.count.store(0, Relaxed);
        row.class.store(0, Relaxed);
    }
    // What is not written to need not be copied.
    if GROWING.load(Relaxed) != 0 {
        GROWING.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_its_elements_and_nothing_else() {
        for stride in [1, 8, 24, 40, 56, 64, 72, 104, 4096, 40_000] {
            let span = Span::of(0x7f00_1000, stride, 100);
            let inside: Vec<usize> =
                (0x7f00_0000..0x7f00_1000 + 120 * stride).filter(|address| span.has(*address)).collect();
            let elements: Vec<usize> = (0..100).map(|index| 0x7f00_1000 + index * stride).collect();
            assert_eq!(inside, elements, "stride {stride}");
        }
    }

    #[test]
    fn below_its_limit_a_product_is_that_of_an_element() {
        for (stride, alignment) in [(24, 8), (40, 8), (56, 8), (88, 8), (12, 4), (4, 4), (24, 4), (64, 8), (4096, 8)] {
            let span = Span::of(0x7f00_1000, stride, 100);
            let limit = span.limit(alignment) as usize;
            assert_eq!(limit == 0, (1 << span.shift) > alignment, "{stride}");
            let is_below = |address: usize| address.wrapping_sub(span.base).wrapping_mul(span.inverse) < limit;
            let aligned = (0x7f00_0000..0x7f00_1000 + 120 * stride).step_by(alignment);
            assert!(
                aligned.into_iter().all(|address| limit == 0 || is_below(address) == span.has(address)),
                "{stride}"
            );
        }
    }

    #[test]
    fn a_single_address_is_its_own_only_element() {
        let single = Span::single(4096);
        assert_eq!((single.limit(8), single.limit(4)), (1, 1));
        assert!(Span::single(4096).has(4096));
        assert!(!Span::single(4096).has(4097));
    }

    #[test]
    fn a_row_grows_while_its_locks_follow_each_other_and_ends_with_one_of_them() {
        let (class, base) = (40_001, 0x5000_0000);
        used(base - 0x0100_0000, class); // Too far away: the row begins anew.
        for index in 0..100 {
            used(base + index * 40, class);
        }
        used(0x6000_0000, class);
        assert_eq!(of(class, base).map(|span| span.count), Some(100));
        assert_eq!(of(class, base + 40 * 100), None);
        assert_eq!(of(class, base + 20), None);
        used(base + 20, class + 1); // Between two elements: no business of the row's.
        assert!(of(class, base + 40).is_some());
        let before = changes();
        used(base + 80, class + 1);
        assert_eq!(of(class, base), None);
        assert_ne!(changes(), before);
    }
}
