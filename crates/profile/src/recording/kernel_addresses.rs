//! Leaves addresses of the kernel out of a recording.
//!
//! `kptr_restrict` hides them from ordinary users, for they help to attack the kernel; a recording may be passed on. Each
//! is replaced by a number that stands for it: the same in one recording, so that single locks and unnamed functions stay
//! distinguishable, and another in the next.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use crate::interval::{Frame, Interval, Tables};
use crate::lock::Lock;

/// Addresses of the kernel have this bit on every architecture that lockmeter runs on.
const KERNEL_HALF: u64 = 1 << 63;

/// The bits of a number that stands for an address: its top bits are 10, and no address of a 64-bit machine begins so.
const HASH_BITS: u64 = (1 << 62) - 1;

/// What stands for the kernel's addresses in one recording.
///
/// The number is SipHash of the address under a random key that is written nowhere, so that without the key neither the
/// address follows from it nor the number from the address.
#[derive(Debug, Default)]
pub(super) struct KernelAddresses(RandomState);

impl KernelAddresses {
    /// The interval as it is to be written.
    pub(super) fn hide<'a>(&self, interval: &'a Interval) -> Cow<'a, Interval> {
        let tables = &interval.tables;
        let is_clean = tables.frames().iter().all(|frame| frame.address < KERNEL_HALF)
            && tables.locks().iter().all(|lock| self.hidden_lock(lock) == *lock)
            && instances(interval).all(|address| address < KERNEL_HALF);
        if is_clean {
            return Cow::Borrowed(interval);
        }
        let mut hidden = interval.clone();
        hidden.tables = Tables::from_entries(
            tables.locks().iter().map(|lock| self.hidden_lock(lock)).collect(),
            tables.tasks().to_vec(),
            tables.cgroups().to_vec(),
            tables.filesystems().to_vec(),
            tables.frames().iter().map(|frame| self.hidden_frame(frame)).collect(),
            tables.stacks().to_vec(),
        );
        let of_bases = hidden.bases.iter_mut().map(|basis| &mut basis.instance);
        let of_waits = hidden.threads.open_waits.iter_mut().map(|wait| &mut wait.instance);
        let of_samples = hidden.sampled.iter_mut().map(|sampled| &mut sampled.instance);
        for instance in of_samples.chain(of_bases).chain(of_waits) {
            *instance = instance.map(|address| self.number(address));
        }
        Cow::Owned(hidden)
    }

    fn number(&self, address: u64) -> u64 {
        if address < KERNEL_HALF { address } else { KERNEL_HALF | (self.0.hash_one(address) & HASH_BITS) }
    }

    fn hidden_frame(&self, frame: &Frame) -> Frame {
        Frame { address: self.number(frame.address), ..frame.clone() }
    }

    /// A lock of which nothing is known is called by its address.
    fn hidden_lock(&self, lock: &Lock) -> Lock {
        Lock { name: self.hidden_text(&lock.name), detail: self.hidden_text(&lock.detail), ..lock.clone() }
    }

    /// The text with the addresses in it replaced.
    fn hidden_text(&self, text: &str) -> String {
        let mut parts = text.split("0x");
        let mut hidden = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (digits, rest) = part.split_at(part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len()));
            hidden.push_str("0x");
            match u64::from_str_radix(digits, 16) {
                Ok(address) if address >= KERNEL_HALF => hidden.push_str(&format!("{:x}", self.number(address))),
                _ => hidden.push_str(digits),
            }
            hidden.push_str(rest);
        }
        hidden
    }
}

/// The addresses of single locks.
fn instances(interval: &Interval) -> impl Iterator<Item = u64> {
    let of_samples = interval.sampled.iter().map(|sampled| sampled.instance);
    let of_waits = interval.threads.open_waits.iter().map(|wait| wait.instance);
    of_samples.chain(interval.bases.iter().map(|basis| basis.instance)).chain(of_waits).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::OfFilesystem;
    use crate::interval::{Blocker, BlockerSource, Sampled};
    use crate::lock::{Naming, Unnamed};
    use crate::sample::{Happened, Key, Kind, Mode, Value};

    const TEXT: u64 = 0xffff_ffff_8123_4567;
    const HEAP: u64 = 0xffff_8880_0000_1040;
    const OF_PROGRAM: u64 = 0x7fff_1234_5678;

    fn frame(address: u64) -> Frame {
        Frame { address, function: None, offset: 0, module: None }
    }

    fn interval() -> Interval {
        let mut interval = Interval::default();
        let naming = Naming::Unnamed(Unnamed::UnknownMemory);
        let lock = Lock { name: format!("{HEAP:#x}"), object: None, naming, detail: format!("near {TEXT:#x}, +0x10") };
        let lock = interval.tables.intern_lock(lock);
        let frames = [TEXT, TEXT + 1, OF_PROGRAM].map(|address| interval.tables.intern_frame(frame(address)));
        let site = Some(interval.tables.intern_stack(frames.to_vec()));
        let (happened, kind, mode) = (Happened::Wait, Kind::Spin, Mode::Exclusive);
        let key = Key::of(happened, lock, kind, mode);
        let blocker = Blocker::unknown(BlockerSource::NeverSlept);
        for instance in [HEAP, HEAP, HEAP + 64, OF_PROGRAM] {
            let estimate = Value::default();
            interval.sampled.push(Sampled {
                key,
                instance: Some(instance),
                filesystem: OfFilesystem::NotLookedUp,
                site,
                blocker,
                stacks: 1,
                estimate,
            });
        }
        interval
    }

    /// Makes sure that no address of the kernel is left, in numbers or in words, and that those of programs are.
    #[test]
    fn no_address_of_the_kernel_is_left() {
        let interval = interval();
        let hidden = KernelAddresses::default().hide(&interval);
        let shown = format!("{hidden:?} {:x?}", (hidden.tables.frames(), instances(&hidden).collect::<Vec<_>>()));
        for address in [TEXT, TEXT + 1, HEAP, HEAP + 64] {
            assert!(!shown.contains(&format!("{address:x}")) && !shown.contains(&address.to_string()), "{shown}");
        }
        assert_eq!(hidden.tables.frames()[2], frame(OF_PROGRAM));
        assert_eq!(instances(&hidden).nth(3), Some(OF_PROGRAM));
        assert!(hidden.tables.locks()[0].detail.ends_with(", +0x10"), "{shown}");
    }

    #[test]
    fn what_was_distinguishable_stays_so_within_a_recording_and_differs_between_two() {
        let (addresses, interval) = (KernelAddresses::default(), interval());
        let hidden = addresses.hide(&interval);
        let [first, again, other, _] = instances(&hidden).collect::<Vec<_>>()[..] else { panic!("four samples") };
        assert!(first == again && first != other);
        assert_eq!(hidden.tables.locks()[0].name, format!("{first:#x}"), "a lock's name stands for the same number");
        assert_ne!(hidden.tables.frames()[0], hidden.tables.frames()[1]);
        assert_eq!(addresses.hide(&interval), hidden);
        assert_ne!(KernelAddresses::default().hide(&interval), hidden);
    }

    /// Makes sure that a number is recognised as the kernel's, and as no address.
    #[test]
    fn the_numbers_are_no_addresses() {
        let addresses = KernelAddresses::default();
        for address in [KERNEL_HALF, TEXT, HEAP, u64::MAX] {
            assert_eq!(addresses.number(address) >> 62, 0b10);
        }
    }
}
