//! Which holds of kernel locks can be timed here, and how.

use std::time::Duration;

use lockmeter_kernel::contention::{
    ContentionSource, Hooks, Metered, Options, OverBudget, SLEEPING_KINDS, SPINNING_KINDS,
};
use lockmeter_kernel::{HookWay, HooksRefused, KernelError, SharedNames, best_hooks, try_hooks};
use lockmeter_profile::Kind;

use crate::error::RecorderError;

/// How functions of the kernel are hooked, to time whole holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HookChoice {
    /// By fentry where this kernel allows it, else by kprobes, else not at all.
    #[default]
    Auto,
    /// By fentry.
    Fentry,
    /// By kprobes.
    Kprobe,
    /// Not at all.
    None,
}

impl HookChoice {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Fentry, Self::Kprobe, Self::None];

    /// As the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fentry => "fentry",
            Self::Kprobe => "kprobe",
            Self::None => "none",
        }
    }
}

/// Which holds of kernel locks to time, and what that may cost.
#[derive(Debug, Clone)]
pub struct HoldOptions {
    /// How to hook functions.
    pub hooks: HookChoice,
    /// Only locks of this kind.
    pub kind: Option<Kind>,
    /// Spinning locks, too, which slows the whole machine.
    pub spinning: bool,
    /// Leave out holds that are shorter.
    pub min: Option<Duration>,
    /// The most CPU time, of all CPUs, that the hooks of sleeping locks may take; `None`: whatever they take.
    pub budget_ppm: Option<u32>,
    /// The most CPU time, of all CPUs, that the hooks of spinning locks may take.
    pub spin_budget_ppm: u32,
}

/// What `record --hold` does without further flags.
impl Default for HoldOptions {
    fn default() -> Self {
        Self {
            hooks: HookChoice::Auto,
            kind: None,
            spinning: false,
            min: None,
            budget_ppm: Some(10_000),
            spin_budget_ppm: 50_000,
        }
    }
}

impl HoldOptions {
    /// What these options ask for and the kernel allows. What it does not allow is said in `notices`, or is an error if it was
    /// asked for by name.
    pub(crate) fn metered(&self, notices: &mut Vec<String>) -> Result<Metered, RecorderError> {
        let kinds = kinds(self)?;
        let way = match way(self.hooks) {
            Ok(way) => way,
            Err(refused) => return without_hooks(self, &refused, notices),
        };
        if way == HookWay::Kprobe && kinds.iter().any(|kind| SPINNING_KINDS.contains(kind)) {
            return Err(RecorderError::not_allowed(no_spinning_by_kprobes(self.hooks)));
        }
        Ok(Metered::Holds {
            hooks: Some(Hooks {
                way,
                kinds,
                min_hold_ns: self.min.map_or(0, |min| u64::try_from(min.as_nanos()).unwrap_or(u64::MAX)),
                hold_budget_ppm: self.budget_ppm,
                spin_budget_ppm: self.spin_budget_ppm,
            }),
        })
    }

    /// Starts a source that times holds. A kernel may allow function hooks and yet refuse ours: then there are kprobes, or all that
    /// is known without hooks, unless the user chose how to hook.
    pub(crate) fn start(
        &self,
        options: &Options,
        names: &SharedNames,
        notices: &mut Vec<String>,
    ) -> Result<ContentionSource, KernelError> {
        let start = |options: &Options| ContentionSource::start_with(options, names);
        let Metered::Holds { hooks: Some(hooks) } = &options.metered else { return start(options) };
        let refused = match start(options) {
            Err(error) if self.hooks == HookChoice::Auto => error,
            started => return started,
        };
        let sleeping = hooks.kinds.iter().all(|kind| SLEEPING_KINDS.contains(kind));
        if hooks.way == HookWay::Fentry && sleeping && try_hooks(HookWay::Kprobe).is_ok() {
            let hooks = Some(Hooks { way: HookWay::Kprobe, ..hooks.clone() });
            let by_kprobes = Options { metered: Metered::Holds { hooks }, ..options.clone() };
            if let Ok(source) = start(&by_kprobes) {
                notices.push(format!("{refused}; holds are timed by kprobes"));
                return Ok(source);
            }
        }
        let without = Options { metered: Metered::Holds { hooks: None }, ..options.clone() };
        let source = start(&without)?;
        notices.push(format!(
            "{refused}; of kernel locks only mmap_lock's holds are timed whole, of other sleeping locks only the contended part of \
            each hold"
        ));
        Ok(source)
    }
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
fn without_hooks(
    options: &HoldOptions,
    refused: &HooksRefused,
    notices: &mut Vec<String>,
) -> Result<Metered, RecorderError> {
    let HooksRefused { why, mend } = refused;
    if options.spinning || options.min.is_some() || options.kind.is_some() {
        let sentence = format!(
            "--kind, --min and --spin-holds choose what function hooks time, and {why}; {mend}, or leave these flags out"
        );
        return Err(match options.hooks {
            HookChoice::None => RecorderError::usage(sentence),
            _ => RecorderError::not_allowed(sentence),
        });
    }
    match options.hooks {
        HookChoice::Fentry | HookChoice::Kprobe => {
            let sentence = format!("--hooks {}: {why}; {mend}, or leave --hooks out", options.hooks.name());
            return Err(RecorderError::not_allowed(sentence));
        }
        HookChoice::Auto => notices.push(format!(
            "of kernel locks only mmap_lock's holds are timed whole, of other sleeping locks only the contended part of each hold: {why}"
        )),
        HookChoice::None => {}
    }
    Ok(Metered::Holds { hooks: None })
}

/// A probe and a return probe on every spinlock would take many times what fentry hooks take, and these are expensive already.
fn no_spinning_by_kprobes(choice: HookChoice) -> String {
    const WHY: &str =
        "holds of spinlocks need fentry hooks, because kprobes on every spinlock would slow the machine too much";
    match try_hooks(HookWay::Fentry) {
        Err(refused) if choice == HookChoice::Auto => {
            format!("{WHY}, and {}; {}, or leave --spin-holds out", refused.why, refused.mend)
        }
        _ => format!("{WHY}; leave out --hooks {}, or --spin-holds", choice.name()),
    }
}

fn kinds(options: &HoldOptions) -> Result<Vec<Kind>, RecorderError> {
    let all = || SLEEPING_KINDS.into_iter().chain(SPINNING_KINDS);
    let kinds: Vec<Kind> = match options.kind {
        Some(kind) if all().any(|known| known == kind) => vec![kind],
        Some(kind) => {
            let known: Vec<&str> = all().map(Kind::name).collect();
            let sentence = format!("holds of kind {kind} have no functions to hook; choose from {}", known.join(", "));
            return Err(RecorderError::usage(sentence));
        }
        None if options.spinning => all().collect(),
        None => SLEEPING_KINDS.to_vec(),
    };
    if kinds.iter().any(|kind| SPINNING_KINDS.contains(kind)) && !options.spinning {
        return Err(RecorderError::usage(
            "hooking every spinlock slows the whole machine; add --spin-holds to allow it (it switches itself off beyond \
            --spin-budget)",
        ));
    }
    Ok(kinds)
}

/// That hooks took more than their budget, and what becomes of them.
pub fn over_budget(over: OverBudget) -> String {
    let used = over.used_ppm as f64 / 10_000.0;
    let budget = f64::from(over.budget_ppm) / 10_000.0;
    if over.spinning {
        format!(
            "the hooks of spinning locks took {used:.1} % of CPU time, more than --spin-budget ({budget} %), and were switched \
            off; their later holds are not in the recording"
        )
    } else {
        format!(
            "the hooks of sleeping locks take {used:.1} % of CPU time, more than --hold-budget ({budget} %); from now on their \
            holds are timed only part of the time"
        )
    }
}
