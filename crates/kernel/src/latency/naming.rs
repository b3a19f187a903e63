//! From what the programs saw (keys, addresses, ticks) to what an interval says (names, durations).

use std::sync::Arc;

use lockmeter_profile::{
    Basis, Bucket, Happened, HoldBasis, Interval, Key, Kind, Lock, LongRun, Loss, Mode, Naming, RunWait, Task, Total,
    Unnamed, Value,
};
use lockmeter_symbols::KernelSymbols;

use super::skeleton::types;
use super::tables::{Drained, Durations, Runner};
use crate::comm::text;
use crate::error::KernelError;
use crate::kernel_names::{self, KernelNames};
use crate::lock_codes::kind_mode_of;

/// `enum runner` in `tables.h`.
const KINDS: [(u8, Kind); 6] =
    [(1, Kind::Irq), (2, Kind::Softirq), (3, Kind::Tasklet), (4, Kind::Timer), (5, Kind::Hrtimer), (6, Kind::Work)];
const IRQ: u64 = 1;
const SOFTIRQ: u64 = 2;
const WORK_ASLEEP: u8 = 7;

/// In the order of the kernel's numbers, as `/proc/softirqs` calls them.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// In the order of `enum vector` in `tables.h`, as `/proc/interrupts` calls them.
const VECTORS: [(&str, &str); 5] = [
    ("LOC", "local timer interrupts"),
    ("RES", "rescheduling interrupts"),
    ("CAL", "function call interrupts"),
    ("IWI", "IRQ work interrupts"),
    ("TRM", "thermal event interrupts"),
];
const VECTOR_NUMBERS: u64 = 0xff00;

/// What makes the key of a softirq by its label in `/proc/softirqs`.
pub fn softirq_key(label: &str) -> Option<u64> {
    let vector = SOFTIRQS.iter().position(|name| *name == label)?;
    Some(SOFTIRQ << RUNNER_SHIFT | vector as u64)
}

/// What makes the key of an interrupt of the CPU itself by its label in `/proc/interrupts`.
pub fn vector_key(label: &str) -> Option<u64> {
    let vector = VECTORS.iter().position(|(name, _)| *name == label)?;
    Some(IRQ << RUNNER_SHIFT | (VECTOR_NUMBERS + vector as u64) << IRQ_NUMBER_SHIFT)
}

/// The number of a device's interrupt, if the key is of one.
pub fn irq_number(key: u64) -> Option<u64> {
    let number = (key & !(0xff << RUNNER_SHIFT)) >> IRQ_NUMBER_SHIFT;
    (key >> RUNNER_SHIFT == IRQ && number < VECTOR_NUMBERS).then_some(number)
}

/// Where a key says what it is; `RUNNER_KEY` and `IRQ_ID` of `tables.h`.
const RUNNER_SHIFT: u32 = 56;
const KERNEL_ADDRESS_TOP: u64 = 0xff << 56;
const IRQ_NUMBER_SHIFT: u32 = 40;
const HANDLER_MASK: u64 = (1 << IRQ_NUMBER_SHIFT) - 1;
const HANDLER_TOP: u64 = !HANDLER_MASK;

/// A bit for each runner, as the programs are told which to count.
pub fn runner_bits(runners: &[Kind]) -> u32 {
    let bits = KINDS.iter().filter(|(_, kind)| runners.contains(kind)).map(|(code, _)| 1 << code);
    let asleep = if runners.contains(&Kind::Work) { 1 << WORK_ASLEEP } else { 0 };
    bits.sum::<u32>() | asleep
}

/// What turns the programs' times into those of an interval.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// How long a tick of the timer wheel is.
    pub tick_ns: u64,
    /// When the kernel's monotonic clock was at 0, by the wall clock when metering began, as the intervals.
    pub boot_unix_ns: u64,
}

/// What turns addresses into names.
pub enum Names {
    /// Of functions.
    Functions(Arc<KernelSymbols>),
    /// Also of the locks that long runs waited for.
    Locks(Box<KernelNames>),
}

impl Names {
    /// Reads the kernel's symbols, and its types where locks are to be named.
    pub fn prepare(with_locks: bool) -> Result<Self, KernelError> {
        if with_locks {
            return Ok(Self::Locks(Box::new(KernelNames::prepare(None)?)));
        }
        let symbols = KernelSymbols::from_proc().map_err(|error| KernelError::from_symbols(&error))?;
        Ok(Self::Functions(Arc::new(symbols)))
    }

    pub fn tell_programs(&self, rodata: &mut types::rodata) {
        if let Self::Locks(names) = self {
            kernel_names::tell_programs!(names, rodata);
        }
    }

    /// Names everything that was drained and puts it into the interval.
    pub fn fill(&mut self, interval: &mut Interval, drained: &Drained, clocks: &Clocks, caches: &[u64]) {
        for (key, runner) in &drained.runners {
            self.add_runner(interval, *key, runner, clocks.tick_ns);
        }
        for (cpu, run) in &drained.long_runs {
            if let Some(run) = self.long_run(interval, drained, *cpu, run, clocks, caches) {
                interval.long_runs.push(run);
            }
        }
        interval.long_runs.sort_by_key(|run| run.begin_unix_ns);
    }

    fn symbols(&self) -> &KernelSymbols {
        match self {
            Self::Functions(symbols) => symbols,
            Self::Locks(names) => names.symbols(),
        }
    }

    fn add_runner(&self, interval: &mut Interval, key: u64, runner: &Runner, tick_ns: u64) {
        let Some((happened, kind)) = told(key) else { return };
        let lock = interval.tables.intern_lock(self.what_ran(key, kind, &runner.name));
        if runner.untimed > 0 {
            let key = Key::of(happened, lock, kind, Mode::Exclusive);
            interval.bases.push(Basis {
                key,
                instance: None,
                site: None,
                value: HoldBasis { untimed: runner.untimed, ..HoldBasis::default() },
            });
        }
        let mut add = |happened, bucket, value: Value| {
            let key = Key { bucket, ..Key::of(happened, lock, kind, Mode::Exclusive) };
            interval.totals.push(Total { key, value });
        };
        for (bucket, durations) in (0..).zip(&runner.runs).filter(|(_, durations)| durations.count > 0) {
            add(happened, Bucket(bucket), value_of(durations));
        }
        for (bucket, durations) in (0..).zip(&runner.delays).filter(|(_, durations)| durations.count > 0) {
            if kind == Kind::Timer {
                for (bucket, value) in in_ticks(durations, tick_ns) {
                    add(Happened::Delay, bucket, value);
                }
            } else {
                add(Happened::Delay, Bucket(bucket), value_of(durations));
            }
        }
    }

    /// The name of what ran takes the place of a lock's.
    fn what_ran(&self, key: u64, kind: Kind, name: &str) -> Lock {
        let id = key & !(0xff << RUNNER_SHIFT);
        match kind {
            Kind::Softirq => softirq(id),
            Kind::Irq => self.interrupt(id, name),
            _ => self.function(id | KERNEL_ADDRESS_TOP),
        }
    }

    fn interrupt(&self, id: u64, name: &str) -> Lock {
        let number = id >> IRQ_NUMBER_SHIFT;
        let vector = number.checked_sub(VECTOR_NUMBERS).and_then(|at| VECTORS.get(usize::try_from(at).ok()?));
        if let Some((name, words)) = vector {
            return named(name, words);
        }
        let handler = self.function((id & HANDLER_MASK) | HANDLER_TOP);
        Lock { detail: handler.name, ..named(&format!("{number} {name}"), "") }
    }

    fn function(&self, address: u64) -> Lock {
        match self.symbols().function(address) {
            Some(symbol) => named(symbol.name, symbol.module.unwrap_or_default()),
            None => Lock {
                naming: Naming::Unnamed(Unnamed::UnknownMemory),
                ..named(&format!("{address:#x}"), "no function lies at this address")
            },
        }
    }

    fn long_run(
        &mut self,
        interval: &mut Interval,
        drained: &Drained,
        cpu: u32,
        run: &types::long_run,
        clocks: &Clocks,
        caches: &[u64],
    ) -> Option<LongRun> {
        const NOT_KNOWN: u64 = u64::MAX;
        let (_, kind) = told(run.key)?;
        let name = drained.runners.get(&run.key).map_or("", |runner| &runner.name);
        let lock = interval.tables.intern_lock(self.what_ran(run.key, kind, name));
        let comm = text(&run.comm.map(i8::cast_unsigned));
        let own = run.tgid == std::process::id();
        let unit_ns = if kind == Kind::Timer { clocks.tick_ns } else { 1 };
        let mut waits = self.waits(interval, run, caches);
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.total_ns));
        Some(LongRun {
            begin_unix_ns: clocks.boot_unix_ns.saturating_add(run.begin_ns),
            cpu,
            lock,
            kind,
            run_ns: run.run_ns,
            asleep_ns: run.asleep_ns,
            delay_ns: (run.delay_ns != NOT_KNOWN).then(|| run.delay_ns.saturating_mul(unit_ns)),
            task: Some(interval.tables.intern_task(Task { tgid: run.tgid, comm, own })),
            waits,
        })
    }

    fn waits(&mut self, interval: &mut Interval, run: &types::long_run, caches: &[u64]) -> Vec<RunWait> {
        let Self::Locks(names) = self else { return Vec::new() };
        let waited = run.waits.iter().filter(|wait| wait.count > 0);
        waited
            .filter_map(|wait| {
                let Some((kind, mode)) = kind_mode_of(wait.kind_mode) else {
                    interval.losses.add(Loss::UnknownCode, wait.count.into());
                    return None;
                };
                let addresses: Vec<u64> = wait.frames.into_iter().take_while(|address| *address != 0).collect();
                let lock = names.name_by_stack(wait.class, kind, &addresses, caches)?;
                Some(RunWait {
                    lock: interval.tables.intern_lock(lock),
                    site: names.site(&addresses, &mut interval.tables),
                    kind,
                    mode,
                    count: wait.count.into(),
                    total_ns: wait.total_ns,
                })
            })
            .collect()
    }
}

/// What a key tells of; `None` for one that no program makes.
fn told(key: u64) -> Option<(Happened, Kind)> {
    match (key >> RUNNER_SHIFT) as u8 {
        WORK_ASLEEP => Some((Happened::Idle, Kind::Work)),
        code => KINDS.iter().find(|(known, _)| *known == code).map(|(_, kind)| (Happened::Run, *kind)),
    }
}

fn named(name: &str, detail: &str) -> Lock {
    Lock { name: name.to_owned(), object: None, naming: Naming::Symbol, detail: detail.to_owned() }
}

fn softirq(vector: u64) -> Lock {
    let known = usize::try_from(vector).ok().and_then(|vector| SOFTIRQS.get(vector));
    known.map_or_else(|| named(&format!("softirq {vector}"), ""), |name| named(name, ""))
}

const fn value_of(durations: &Durations) -> Value {
    Value { count: durations.count, total_ns: durations.total, max_ns: durations.max, spin_ns: durations.own_ns }
}

/// A bucket of whole ticks as durations. The first holds those that came in their tick and those that came one late.
fn in_ticks(durations: &Durations, tick_ns: u64) -> Vec<(Bucket, Value)> {
    let value = |count: u64, ticks: u64, max: u64| Value {
        count,
        total_ns: ticks.saturating_mul(tick_ns),
        max_ns: max.saturating_mul(tick_ns),
        spin_ns: 0,
    };
    let mut values = Vec::new();
    if durations.max <= 1 {
        let (in_time, late) = (durations.count - durations.total, durations.total);
        values.extend((in_time > 0).then(|| (Bucket(0), value(in_time, 0, 0))));
        values.extend((late > 0).then(|| (Bucket::of(tick_ns), value(late, late, 1))));
    } else {
        let mean = durations.total / durations.count.max(1);
        let bucket = Bucket::of(mean.saturating_mul(tick_ns));
        values.push((bucket, value(durations.count, durations.total, durations.max)));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_in_time_and_one_tick_late_are_told_apart() {
        let durations = Durations { count: 10, total: 3, max: 1, own_ns: 0 };
        let values = in_ticks(&durations, 4_000_000);
        assert_eq!(values.len(), 2);
        assert_eq!((values[0].0, values[0].1.count, values[0].1.max_ns), (Bucket(0), 7, 0));
        assert_eq!((values[1].1.count, values[1].1.total_ns, values[1].1.max_ns), (3, 12_000_000, 4_000_000));
    }

    #[test]
    fn the_numbers_of_runners_are_those_of_the_programs() {
        let tables = include_str!("tables.h");
        for (code, kind) in KINDS {
            assert!(tables.contains(&format!("RUNNER_{} = {code},", kind.name().to_uppercase())), "{kind}");
        }
        assert!(tables.contains(&format!("RUNNER_WORK_ASLEEP = {WORK_ASLEEP},")));
    }
}
