//! What reading a recording may cost.
//!
//! A chunk compresses a thousandfold at best, and an empty entry takes two bytes of its message: without a bound, a small
//! file would keep its reader busy for hours. Each bound is a sum over the file that may grow with the bytes read. Measured
//! recordings stay below a tenth of each (`docs/reference/file-format.md`).

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::filesystem::OfFilesystem;
use crate::interval::{Interval, StackId, TaskId};
use crate::lock::Lock;
use crate::sample::Key;

/// A bound on one sum: what any file may have, and what each byte of the file adds.
#[derive(Debug, Clone, Copy)]
struct Bound {
    any_file: u64,
    each_byte: u64,
}

/// Bytes of inflated messages. Recordings of busy machines inflate to four times their size.
const INFLATED: Bound = Bound { any_file: 64 << 20, each_byte: 32 };

/// Table entries, samples, and what these list: frames of stacks, waits of long runs. Recordings have one for five bytes.
const ENTRIES: Bound = Bound { any_file: 2 << 20, each_byte: 1 };

/// Bytes of names, each counted as often as entries refer to it. Recordings have two for each byte.
const TEXT: Bound = Bound { any_file: 128 << 20, each_byte: 48 };

/// No stack is deeper: the kernel takes 127 frames at most, lockmeter fewer.
pub(super) const MAX_STACK_FRAMES: usize = 1024;

/// No message lists more frames, in all its stacks together.
pub(super) const MAX_FRAMES: usize = 4 << 20;

/// Which sum is too large for the bytes read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Excess {
    what: &'static str,
    most: u64,
    read_bytes: u64,
}

impl Excess {
    pub(super) fn sentence(&self, name: &str) -> String {
        format!(
            "{name} is not a recording made by lockmeter: {} bytes of it hold more than {} {}; fetch a good copy or record again",
            self.read_bytes, self.most, self.what
        )
    }
}

/// What was spent so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Costs {
    pub(super) read_bytes: u64,
    pub(super) inflated_bytes: u64,
    pub(super) entries: u64,
    pub(super) text_bytes: u64,
}

impl Costs {
    pub(super) fn inflate(&mut self, bytes: u64) -> Result<(), Excess> {
        self.inflated_bytes = self.inflated_bytes.saturating_add(bytes);
        self.within(self.inflated_bytes, INFLATED, "bytes once inflated")
    }

    pub(super) fn decode(&mut self, entries: u64) -> Result<(), Excess> {
        self.entries = self.entries.saturating_add(entries);
        self.within(self.entries, ENTRIES, "entries and frames")
    }

    pub(super) fn refer(&mut self, text_bytes: u64) -> Result<(), Excess> {
        self.text_bytes = self.text_bytes.saturating_add(text_bytes);
        self.within(self.text_bytes, TEXT, "bytes of names that its samples refer to")
    }

    fn within(&self, sum: u64, bound: Bound, what: &'static str) -> Result<(), Excess> {
        let most = self.read_bytes.saturating_mul(bound.each_byte).saturating_add(bound.any_file);
        if sum <= most { Ok(()) } else { Err(Excess { what, most, read_bytes: self.read_bytes }) }
    }
}

/// The fields of `proto::Interval` that list something themselves.
const STACKS: u32 = 7;
const LONG_RUNS: u32 = 12;
const SLOW_HOLDS: u32 = 13;
const THREAD_TIMES: u32 = 19;

/// What a message would decode to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// Top-level fields.
    pub(super) fields: usize,
    /// What these list.
    pub(super) listed: usize,
    /// Of the deepest stack.
    pub(super) deepest: usize,
}

/// Counts what is in a message without building it. `None` if the bytes are no message.
pub(super) fn weigh(message: &[u8]) -> Option<Weight> {
    let mut weight = Weight::default();
    for_each_field(message, |tag, content| {
        weight.fields += 1;
        if let (STACKS | LONG_RUNS | SLOW_HOLDS | THREAD_TIMES, Some(content)) = (tag, content) {
            let listed = listed_in(content)?;
            weight.listed += listed;
            weight.deepest = if tag == STACKS { weight.deepest.max(listed) } else { weight.deepest };
        }
        Some(())
    })?;
    Some(weight)
}

/// Fields of a message; of a packed one, or of what might be one, the numbers in it.
fn listed_in(content: &[u8]) -> Option<usize> {
    let mut listed = 0;
    for_each_field(content, |_, packed| {
        // The last byte of a number is the one without the highest bit.
        listed += packed.map_or(1, |packed| packed.iter().filter(|byte| **byte < 0x80).count().max(1));
        Some(())
    })?;
    Some(listed)
}

/// Calls with each field's number and, where it has a length, its content.
fn for_each_field(mut rest: &[u8], mut call: impl FnMut(u32, Option<&[u8]>) -> Option<()>) -> Option<()> {
    while !rest.is_empty() {
        let (tag, wire_type) = decode_key(&mut rest).ok()?;
        if wire_type == WireType::LengthDelimited {
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            let (content, after) = rest.split_at_checked(length)?;
            rest = after;
            call(tag, Some(content))?;
        } else {
            skip_field(wire_type, tag, &mut rest, DecodeContext::default()).ok()?;
            call(tag, None)?;
        }
    }
    Some(())
}

/// How many bytes of names the entries of an interval refer to: what a view copies and compares at most.
pub(super) fn text_bytes(interval: &Interval) -> u64 {
    let tables = &interval.tables;
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let frames: Vec<usize> =
        tables.frames().iter().map(|frame| length(&frame.function) + length(&frame.module)).collect();
    let frame_bytes = |frames_of: &[crate::FrameId]| -> u64 {
        frames_of.iter().map(|frame| frames.get(frame.0 as usize).map_or(0, |bytes| *bytes as u64)).sum()
    };
    let stacks: Vec<u64> = tables.stacks().iter().map(|stack| frame_bytes(stack)).collect();
    let stack = |id: Option<StackId>| id.and_then(|id| stacks.get(id.0 as usize)).copied().unwrap_or(0);
    let lock_bytes = |lock: &Lock| (lock.name.len() + lock.detail.len() + length(&lock.object)) as u64;
    let lock = |id| tables.lock(id).map_or(0, lock_bytes);
    let task = |id: Option<TaskId>| id.and_then(|id| tables.task(id)).map_or(0, |task| task.comm.len() as u64);
    let key = |key: &Key| {
        let cgroup = key.cgroup.and_then(|id| tables.cgroup(id)).map_or(0, |cgroup| length(&cgroup.path) as u64);
        lock(key.lock) + task(key.task) + cgroup
    };
    let mut sum: u64 = stacks.iter().sum();
    sum += interval.totals.iter().map(|total| key(&total.key)).sum::<u64>();
    sum += interval.bases.iter().map(|basis| key(&basis.key) + stack(basis.site)).sum::<u64>();
    let filesystem = |of| match of {
        OfFilesystem::Known(id) => {
            tables.filesystem(id).map_or(0, |known| known.kind.len() + length(&known.device)) as u64
        }
        _ => 0,
    };
    sum += interval
        .sampled
        .iter()
        .map(|sampled| key(&sampled.key) + task(sampled.blocker.task) + filesystem(sampled.filesystem))
        .sum::<u64>();
    let threads = &interval.threads;
    sum += threads.times.iter().map(|time| task(Some(time.task))).sum::<u64>();
    sum += threads
        .sleeps
        .iter()
        .map(|sleep| task(Some(sleep.task)) + stack(sleep.site) + sleep.lock.map_or(0, lock))
        .sum::<u64>();
    for spin in &threads.spins {
        sum += task(Some(spin.task)) + stack(spin.site) + spin.wait.map_or(0, |wait| lock(wait.lock));
    }
    for parked in &threads.parked {
        sum += task(Some(parked.task)) + stack(parked.site) + lock(parked.wait.lock);
    }
    for wait in &threads.open_waits {
        sum += lock(wait.lock) + task(Some(wait.task)) + stack(wait.site);
        sum += wait.holder.map_or(0, |holder| task(Some(holder.task)) + stack(holder.site));
    }
    for hold in &interval.slow_holds {
        sum += lock(hold.lock) + task(Some(hold.task));
        sum += hold.next.map_or(0, |next| lock(next.lock) + task(next.task));
    }
    for run in &interval.long_runs {
        sum += lock(run.lock) + task(run.task);
        sum += run.waits.iter().map(|wait| lock(wait.lock) + stack(wait.site)).sum::<u64>();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stacks_list_is_counted_packed_or_not() {
        // Two stacks: frames 1, 300 and 2 packed; frames 5 and 6 as fields of their own.
        let message = [&[0x3A, 6, 0x0A, 4, 1, 0xAC, 0x02, 2][..], &[0x3A, 4, 8, 5, 8, 6], &[0x10, 7]].concat();
        assert_eq!(weigh(&message), Some(Weight { fields: 3, listed: 5, deepest: 3 }));
        assert_eq!(weigh(&[0x3A, 6, 0]), None, "cut");
    }

    #[test]
    fn what_a_file_may_cost_grows_with_what_was_read() {
        let mut costs = Costs { read_bytes: 10, ..Costs::default() };
        assert!(costs.decode(ENTRIES.any_file + 10).is_ok());
        let excess = costs.decode(1).unwrap_err();
        assert_eq!(
            excess.sentence("x"),
            "x is not a recording made by lockmeter: 10 bytes of it hold more than 2097162 entries and frames; fetch a good copy \
             or record again"
        );
        costs.read_bytes += 1;
        assert!(costs.decode(0).is_ok());
        assert!(costs.inflate(u64::MAX).is_err() && costs.refer(u64::MAX).is_err());
    }
}
