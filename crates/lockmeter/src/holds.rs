//! `record --hold`: which holds of kernel locks can be timed here, and how.

use anyhow::Result;
use clap::ValueEnum;
use lockmeter_kernel::contention::{Hooks, Metered, OverBudget, SLEEPING_KINDS, SPINNING_KINDS};
use lockmeter_kernel::{HookWay, HooksRefused, best_hooks, try_hooks};
use lockmeter_profile::view::NamePattern;
use lockmeter_profile::{Interval, Kind};

use crate::arguments::{HookChoice, RecordArguments};
use crate::exit::{Failure, Status};
use crate::messages::{inform_once, say};

/// What the flags ask for and the kernel allows.
pub fn metered(arguments: &RecordArguments) -> Result<Metered> {
    if !arguments.hold || arguments.user {
        return Ok(Metered::Waits);
    }
    let kinds = kinds(arguments)?;
    let way = match way(arguments.hooks) {
        Ok(way) => way,
        Err(refused) => return without_hooks(arguments, &refused),
    };
    if way == HookWay::Kprobe && kinds.iter().any(|kind| SPINNING_KINDS.contains(kind)) {
        return Err(Failure::error(Status::NotAllowed, no_spinning_by_kprobes(arguments.hooks)));
    }
    Ok(Metered::Holds {
        hooks: Some(Hooks {
            way,
            kinds,
            min_hold_ns: arguments.min.map_or(0, |min| u64::try_from(min.as_nanos()).unwrap_or(u64::MAX)),
            hold_budget_ppm: arguments.hold_budget(),
            spin_budget_ppm: arguments.spin_budget,
        }),
    })
}

/// The way to hook functions; else why there is none.
fn way(choice: HookChoice) -> Result<HookWay, HooksRefused> {
    let only = |way| try_hooks(way).map(|()| way);
    match choice {
        HookChoice::Auto => best_hooks(),
        HookChoice::Fentry => only(HookWay::Fentry),
        HookChoice::Kprobe => only(HookWay::Kprobe),
        HookChoice::None => Err(HooksRefused { why: "--hooks none was given".to_owned(), mend: "leave it out" }),
    }
}

/// What is known of holds without hooks, if that is what was asked for.
fn without_hooks(arguments: &RecordArguments, refused: &HooksRefused) -> Result<Metered> {
    let HooksRefused { why, mend } = refused;
    if arguments.spin_holds || arguments.min.is_some() || arguments.kind.is_some() {
        let sentence = format!(
            "--kind, --min and --spin-holds choose what function hooks time, and {why}; {mend}, or leave these flags out"
        );
        let status = if arguments.hooks == HookChoice::None { Status::Usage } else { Status::NotAllowed };
        return Err(Failure::error(status, sentence));
    }
    match arguments.hooks {
        HookChoice::Fentry | HookChoice::Kprobe => {
            let sentence = format!("--hooks {}: {why}; {mend}, or leave --hooks out", name_of(arguments.hooks));
            return Err(Failure::error(Status::NotAllowed, sentence));
        }
        HookChoice::Auto => inform_once(format!(
            "lockmeter: no whole holds of kernel locks but mmap_lock's, for {why}; of locks that sleep, the part while others slept for them"
        )),
        HookChoice::None => {}
    }
    Ok(Metered::Holds { hooks: None })
}

fn name_of(choice: HookChoice) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A probe and a return probe on every spinlock would take many times what fentry hooks take, and these are dear already.
fn no_spinning_by_kprobes(choice: HookChoice) -> String {
    const WHY: &str =
        "holds of spinlocks need fentry hooks, for kprobes on every spinlock would slow the machine too much";
    match try_hooks(HookWay::Fentry) {
        Err(refused) if choice == HookChoice::Auto => {
            format!("{WHY}, and {}; {}, or leave --spin-holds out", refused.why, refused.mend)
        }
        _ => format!("{WHY}; leave out --hooks {}, or --spin-holds", name_of(choice)),
    }
}

fn kinds(arguments: &RecordArguments) -> Result<Vec<Kind>> {
    let all = || SLEEPING_KINDS.into_iter().chain(SPINNING_KINDS);
    let kinds: Vec<Kind> = match arguments.kind {
        Some(kind) if all().any(|known| known == kind) => vec![kind],
        Some(kind) => {
            let known: Vec<&str> = all().map(Kind::name).collect();
            let sentence = format!("holds of kind {kind} have no functions to hook; choose from {}", known.join(", "));
            return Err(Failure::error(Status::Usage, sentence));
        }
        None if arguments.spin_holds => all().collect(),
        None => SLEEPING_KINDS.to_vec(),
    };
    if kinds.iter().any(|kind| SPINNING_KINDS.contains(kind)) && !arguments.spin_holds {
        return Err(Failure::error(
            Status::Usage,
            "hooking every spinlock slows the whole machine; add --spin-holds to say that it may (it switches itself off beyond --spin-budget)",
        ));
    }
    Ok(kinds)
}

/// Says that hooks took more than their budget, and what becomes of them.
pub fn say_over_budget(over: OverBudget) {
    let used = over.used_ppm as f64 / 10_000.0;
    let budget = f64::from(over.budget_ppm) / 10_000.0;
    if over.spinning {
        say(format_args!(
            "lockmeter: the hooks of spinning locks took {used:.1} % of CPU time and were switched off, their holds end here; --spin-budget \
             allows more than {budget} %"
        ));
    } else {
        say(format_args!(
            "lockmeter: the hooks of sleeping locks take {used:.1} % of CPU time; from here on their holds are counted in windows, so that it is \
             {budget} %; --hold-budget allows more"
        ));
    }
}

/// Whether any lock had a name that fits what was asked for; if not, those most like it.
#[derive(Debug, Default)]
pub struct Named {
    seen: std::collections::BTreeSet<String>,
    fitted: bool,
}

/// How many names to suggest.
const SUGGESTIONS: usize = 3;

impl Named {
    /// Leaves only the locks asked for in the interval.
    pub fn narrow(&mut self, arguments: &RecordArguments, interval: &mut Interval) {
        let Some(pattern) = pattern(arguments) else { return };
        for lock in interval.tables.locks() {
            self.fitted |= pattern.matches(&lock.name);
            self.seen.insert(lock.name.clone());
        }
        let query =
            lockmeter_profile::view::Query { lock: Some(pattern.clone()), include_own: true, ..Default::default() };
        query.narrow(interval);
    }

    /// A sentence for a pattern that nothing fitted.
    pub fn complaint(&self, arguments: &RecordArguments) -> Option<String> {
        let pattern = pattern(arguments).filter(|_| !self.fitted)?;
        let mut near: Vec<(usize, &str)> =
            self.seen.iter().map(|name| (distance(&pattern.to_string(), name), name.as_str())).collect();
        near.sort_unstable();
        let near: Vec<&str> = near.into_iter().take(SUGGESTIONS).map(|(_, name)| name).collect();
        let seen = match near[..] {
            [] => "no lock was seen at all".to_owned(),
            _ => format!("nearest of {} that were: {}", self.seen.len(), near.join(", ")),
        };
        Some(format!("lockmeter: no lock whose name fits `{pattern}` was seen; {seen}"))
    }
}

/// The locks to meter, if not all. With `--swap` the pattern says which to swap.
fn pattern(arguments: &RecordArguments) -> Option<&NamePattern> {
    arguments.lock.as_ref().filter(|_| arguments.swap.is_none())
}

/// How many letters of the pattern, in their order, a name lacks.
fn distance(pattern: &str, name: &str) -> usize {
    let mut letters = name.chars();
    let wanted: Vec<char> = pattern.chars().filter(|letter| !matches!(letter, '*' | '?')).collect();
    let found =
        wanted.iter().filter(|wanted| letters.by_ref().any(|letter| letter.eq_ignore_ascii_case(wanted))).count();
    (wanted.len() - found) * 8 + name.len().abs_diff(wanted.len()) / 4
}
