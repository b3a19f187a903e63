//! Which functions are hooked to time holds, and what keeps the hooks within their budgets.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use lockmeter_profile::{Kind, OffTime};

use super::hold_budget::{HoldBudget, Look, Step};
use super::hook_entry::{self, PROBE_NS, SharedFile, TRAMPOLINE_NS};
use super::open_holds::{still_held, still_open};
use crate::attaching::attach_one;
use crate::clock::nanoseconds;
use crate::contention::skeleton::{ContentionSkel, ContentionSkelBuilder, OpenContentionSkel};
use crate::cost::{missed_by_probe, online_cpus, recursion_misses_of};
use crate::error::KernelError;
use crate::hooks::HookWay;

/// Where `hook_events`, `hook_ns` and `hooks_off` of the programs keep the hooks of locks that sleep, and of those that spin.
const SLEEPING: usize = 0;
const SPINNING: usize = 1;

/// Attaching takes some milliseconds each, during which nobody looks whether tables are full.
const ATTACH_FOR: Duration = Duration::from_millis(50);

/// Locks whose functions are hooked unless told otherwise.
pub const SLEEPING_KINDS: [Kind; 3] = [Kind::Mutex, Kind::Rwsem, Kind::PercpuRwsem];

/// Locks whose functions are hooked only when asked for by name.
pub const SPINNING_KINDS: [Kind; 2] = [Kind::Spin, Kind::Rwlock];

/// Not every kernel has them, and who lacks them calls another one.
const ONLY_WITH_DEBUGGING: [&str; 1] = ["_raw_write_lock_nested"];

/// Which holds to time by function hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hooks {
    /// How functions are hooked.
    pub way: HookWay,
    /// Of these kinds.
    pub kinds: Vec<Kind>,
    /// Shorter ones are not counted.
    pub min_hold_ns: u64,
    /// Share of the machine's CPU time that the hooks of sleeping locks may take, in millionths; beyond it they are detached, and attached
    /// again for windows. `None`: whatever they take.
    pub hold_budget_ppm: Option<u32>,
    /// The same of spinning locks, which are switched off for good.
    pub spin_budget_ppm: u32,
}

/// Hooks that took too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// Those of spinning locks, which are off from now on; else those of sleeping locks, which are off at times from now on.
    pub spinning: bool,
    /// The share of the machine's CPU time that they took, in millionths.
    pub used_ppm: u64,
    /// And were allowed.
    pub budget_ppm: u32,
}

/// What a hook program is for.
struct Hooked<'a> {
    function: &'a str,
    kind: Kind,
    way: HookWay,
}

/// The names of hook programs begin so, in the order of attaching: what ends a hold before what begins one, the return of a function
/// before its entry.
const PREFIXES: [(HookWay, &str); 6] = [
    (HookWay::Fentry, "releases_"),
    (HookWay::Fentry, "acquires_"),
    (HookWay::Kprobe, "kprobe_releases_"),
    (HookWay::Kprobe, "kprobe_returns_"),
    (HookWay::Kprobe, "kprobe_enters_"),
    (HookWay::Kprobe, "kprobe_acquires_"),
];

/// `None` for other programs.
fn hooked(program: &str) -> Option<Hooked<'_>> {
    let (way, function) = PREFIXES.into_iter().find_map(|(way, prefix)| Some((way, program.strip_prefix(prefix)?)))?;
    let kind = match function {
        _ if function.contains("mutex") => Kind::Mutex,
        _ if function.starts_with("percpu_") => Kind::PercpuRwsem,
        _ if function.starts_with("_raw_spin_") => Kind::Spin,
        _ if function.starts_with("_raw_") => Kind::Rwlock,
        _ => Kind::Rwsem,
    };
    Some(Hooked { function, kind, way })
}

fn has_function(kernel: Option<&Btf<'_>>, function: &str) -> bool {
    kernel.is_some_and(|btf| btf.type_by_name::<types::Func<'_>>(function).is_some())
}

/// Functions that take or release spinning locks but are not functions here: the compiler put them in their callers' place.
/// With how many there are.
pub fn spin_functions_inlined() -> Result<(Vec<String>, usize), KernelError> {
    let mut storage = MaybeUninit::uninit();
    let open = ContentionSkelBuilder::default()
        .open(&mut storage)
        .map_err(|error| KernelError::from_libbpf("cannot open the contention programs", &error))?;
    let kernel = Btf::from_vmlinux().ok();
    let names: Vec<String> =
        open.open_object().progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
    let spinning: Vec<&str> = names
        .iter()
        .filter_map(|name| hooked(name))
        .filter(|hook| SPINNING_KINDS.contains(&hook.kind) && !ONLY_WITH_DEBUGGING.contains(&hook.function))
        .map(|hook| hook.function)
        .collect();
    let inlined = spinning.iter().filter(|function| !has_function(kernel.as_ref(), function));
    Ok((inlined.map(|function| (*function).to_owned()).collect(), spinning.len()))
}

/// Loads the hooks that are asked for and whose functions this kernel has.
pub(in crate::contention) fn choose(open: &mut OpenContentionSkel<'_>, hooks: Option<&Hooks>) {
    let kernel = Btf::from_vmlinux().ok();
    let has = |function: &str| has_function(kernel.as_ref(), function);
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if let Some(hook) = hooked(&name) {
            let asked_for = hooks.is_some_and(|hooks| hooks.way == hook.way && hooks.kinds.contains(&hook.kind));
            program.set_autoload(asked_for && has(hook.function));
        }
    }
    if let (Some(rodata), Some(hooks)) = (open.maps.rodata_data.as_deref_mut(), hooks) {
        rodata.hooked = 1;
        rodata.min_hold_ns = hooks.min_hold_ns;
        // Whether a hold is too short to count, only its time tells.
        rodata.every_hold |= u8::from(hooks.min_hold_ns > 0);
        rodata.by_kprobe = u8::from(hooks.way == HookWay::Kprobe);
    }
}

/// The hooks' links, those of spinning locks apart.
#[derive(Debug, Default)]
pub(in crate::contention) struct Attached {
    way: Option<HookWay>,
    entry_ns: u64,
    sleeping: SleepHooks,
    spinning: Option<SpinHooks>,
}

/// Those of sleeping locks.
#[derive(Debug, Default)]
struct SleepHooks {
    kinds: Vec<Kind>,
    /// The programs, in the order in which they are attached, and the links of those that are.
    programs: Vec<String>,
    links: Vec<Link>,
    /// Unless they may take what they like.
    budget: Option<HoldBudget>,
    since: Option<Instant>,
    told: bool,
    off: OffTime,
    /// By those that were detached.
    missed_by_probes: u64,
    /// Switched off, and the holds that were going on are to be counted yet: by now no hook runs that saw itself on.
    closes: bool,
    /// Those that were, since this was last asked.
    unfinished: u64,
}

#[derive(Debug)]
struct SpinHooks {
    links: Vec<Link>,
    budget_ppm: u32,
    cpus: u64,
    since: Instant,
    /// What they had cost then.
    spent_ns: u64,
}

impl Attached {
    /// How many hooks there are.
    pub(in crate::contention) fn len(&self) -> usize {
        self.sleeping.programs.len() + self.spinning.as_ref().map_or(0, |spinning| spinning.links.len())
    }

    /// What all hooks cost so far, without stacks.
    pub(in crate::contention) fn spent_ns(&self, skeleton: &ContentionSkel<'_>) -> u64 {
        let Some(bss) = skeleton.maps.bss_data.as_deref() else { return 0 };
        let idle_ns = self.sleeping.budget.as_ref().map_or(0, HoldBudget::idle_ns);
        spent(events(skeleton), bss.hook_ns.iter().sum(), self.entry_ns) + idle_ns
    }

    /// How often the kernel ran none of our programs although a probe was hit: one was running already, or no place was free to
    /// wait for the function's return. Counted since Linux 6.7.
    pub(in crate::contention) fn missed_by_probes(&self) -> u64 {
        match self.way {
            Some(HookWay::Kprobe) => {
                let attached = self.sleeping.links.iter().map(|link| missed_by_probe(link.as_fd()));
                self.sleeping.missed_by_probes + attached.sum::<u64>()
            }
            _ => 0,
        }
    }

    /// For how long the holds of which kinds were not counted since this was last asked.
    pub(in crate::contention) fn off_ns(&mut self) -> BTreeMap<Kind, u64> {
        let now = self.sleeping.since.map_or(Duration::ZERO, |since| since.elapsed());
        let off_ns = self.sleeping.off.cut(nanoseconds(now));
        self.sleeping.kinds.iter().filter(|_| off_ns > 0).map(|kind| (*kind, off_ns)).collect()
    }

    /// How many holds were still going on when hooks were switched off, since this was last asked.
    pub(in crate::contention) fn unfinished(&mut self) -> u64 {
        std::mem::take(&mut self.sleeping.unfinished)
    }

    /// Whether the holds that are going on now have been counted as unfinished: in a gap.
    pub(in crate::contention) fn have_counted_unfinished(&self) -> bool {
        self.sleeping.off.is_off() && !self.sleeping.closes
    }
}

/// Attaches them in the order of [`PREFIXES`]. A kernel may list a function and yet not let anybody hook it: then it does without,
/// unless that is so with all.
pub(in crate::contention) fn attach(skeleton: &mut ContentionSkel<'_>, hooks: &Hooks) -> Result<Attached, KernelError> {
    let cpus = online_cpus();
    let file = SharedFile::open();
    let before_ns = file.as_ref().map(SharedFile::ask_ns);
    let mut attached = Attached { way: Some(hooks.way), ..Attached::default() };
    let (mut spinning, mut refused) = (Vec::new(), None);
    for (_, prefix) in PREFIXES {
        for mut program in skeleton.object_mut().progs_mut().filter(|program| program.autoload()) {
            let name = program.name().to_string_lossy().into_owned();
            let Some(hook) = hooked(&name).filter(|_| name.starts_with(prefix)) else { continue };
            match attach_one(&mut program) {
                Ok(link) if SPINNING_KINDS.contains(&hook.kind) => spinning.push(link),
                Ok(link) => {
                    attached.sleeping.links.push(link);
                    attached.sleeping.programs.push(name);
                }
                Err(error) => refused = Some(error),
            }
        }
    }
    if let Some(error) = refused.filter(|_| attached.len() == 0 && spinning.is_empty()) {
        return Err(error);
    }
    let measured = file.zip(before_ns).and_then(|(file, before_ns)| hook_entry::measured(before_ns, file.ask_ns()));
    attached.entry_ns = measured.unwrap_or(match hooks.way {
        HookWay::Kprobe => PROBE_NS,
        HookWay::Fentry => TRAMPOLINE_NS,
    });
    attached.sleeping.kinds = hooks.kinds.iter().copied().filter(|kind| SLEEPING_KINDS.contains(kind)).collect();
    attached.sleeping.budget = hooks.hold_budget_ppm.map(|ppm| HoldBudget::new(ppm, cpus));
    attached.sleeping.since = Some(Instant::now());
    attached.spinning = (!spinning.is_empty()).then(|| SpinHooks {
        links: spinning,
        budget_ppm: hooks.spin_budget_ppm,
        cpus: cpus.into(),
        since: Instant::now(),
        spent_ns: 0,
    });
    Ok(attached)
}

impl Attached {
    /// Detaches hooks that took more than their share, and attaches those of sleeping locks again when they have made up for it. Tells when
    /// that begins.
    pub(in crate::contention) fn keep_within_budget(
        &mut self,
        skeleton: &mut ContentionSkel<'_>,
    ) -> Option<OverBudget> {
        // One at a look, so that each is told.
        let spinning = self.keep_spinning_within_budget(skeleton);
        spinning.or_else(|| self.sleeping.keep_within_budget(skeleton, self.entry_ns))
    }

    fn keep_spinning_within_budget(&mut self, skeleton: &mut ContentionSkel<'_>) -> Option<OverBudget> {
        let spinning = self.spinning.as_mut()?;
        let bss = skeleton.maps.bss_data.as_deref_mut()?;
        if bss.hooks_off[SPINNING] != 0 {
            // One at a time: detaching takes the kernel up to a third of a second each, and the tables fill meanwhile.
            if spinning.links.pop().is_none() {
                self.spinning = None;
            }
            return None;
        }
        let used_ppm = spinning.used_ppm(spent(bss.hook_events[SPINNING], bss.hook_ns[SPINNING], self.entry_ns));
        let budget_ppm = spinning.budget_ppm;
        let is_over = used_ppm > u64::from(budget_ppm);
        bss.hooks_off[SPINNING] = u32::from(is_over);
        is_over.then_some(OverBudget { spinning: true, used_ppm, budget_ppm })
    }
}

impl SleepHooks {
    fn keep_within_budget(&mut self, skeleton: &mut ContentionSkel<'_>, entry_ns: u64) -> Option<OverBudget> {
        let bss = skeleton.maps.bss_data.as_deref_mut()?;
        let (events, measured_ns) = (bss.hook_events[SLEEPING], bss.hook_ns[SLEEPING]);
        let look = Look {
            at: self.since?.elapsed(),
            spent_ns: spent(events, measured_ns, entry_ns),
            entry_ns: spent(events, 0, entry_ns),
            attached: self.links.len(),
            hooks: self.programs.len(),
        };
        let budget = self.budget.as_mut()?;
        match budget.step(look) {
            Step::Stay => {}
            Step::Close { used_ppm } => {
                bss.hooks_off[SLEEPING] = 1;
                self.closes = true;
                self.off.switch(true, nanoseconds(look.at));
                let budget_ppm = budget.ppm();
                let is_first = !std::mem::replace(&mut self.told, true);
                return is_first.then_some(OverBudget { spinning: false, used_ppm, budget_ppm });
            }
            // One at a time, as above.
            Step::Detach => self.detach_one(skeleton),
            Step::Attach => self.attach_some(skeleton),
            Step::Open => {
                bss.watched = bss.watched.wrapping_add(1);
                bss.hooks_off[SLEEPING] = 0;
                self.off.switch(false, nanoseconds(look.at));
            }
        }
        None
    }

    /// In the opposite order of attaching.
    fn detach_one(&mut self, skeleton: &ContentionSkel<'_>) {
        if std::mem::take(&mut self.closes) {
            self.unfinished += unfinished(skeleton);
        }
        if let Some(link) = self.links.pop() {
            self.missed_by_probes += missed_by_probe(link.as_fd());
        }
    }

    /// One that cannot be attached, although it was before, is tried again at the next look.
    fn attach_some(&mut self, skeleton: &mut ContentionSkel<'_>) {
        let begun = Instant::now();
        while begun.elapsed() < ATTACH_FOR
            && let Some(name) = self.programs.get(self.links.len())
            && let Some(mut program) = skeleton.object_mut().progs_mut().find(|program| program.name() == name.as_str())
            && let Ok(link) = attach_one(&mut program)
        {
            self.links.push(link);
        }
    }
}

/// How many holds have begun that are counted and have not ended.
pub(in crate::contention) fn unfinished(skeleton: &ContentionSkel<'_>) -> u64 {
    let watched = skeleton.maps.bss_data.as_deref().map_or(0, |bss| bss.watched);
    still_held(&skeleton.maps.bss_held_locks, watched) + still_open(&skeleton.maps.cpu_states, watched)
}

impl SpinHooks {
    /// The share of the machine's CPU time, in millionths, that they took since the last look.
    fn used_ppm(&mut self, spent_ns: u64) -> u64 {
        let used_ns = spent_ns.saturating_sub(self.spent_ns);
        let elapsed_ns = nanoseconds(self.since.elapsed()).max(1);
        (self.spent_ns, self.since) = (spent_ns, Instant::now());
        used_ns.saturating_mul(1_000_000) / elapsed_ns.saturating_mul(self.cpus)
    }
}

/// How often hooks ran so far, but for the last few on each CPU.
pub(in crate::contention) fn events(skeleton: &ContentionSkel<'_>) -> u64 {
    skeleton.maps.bss_data.as_deref().map_or(0, |bss| bss.hook_events.iter().sum())
}

/// What this many events cost, of which the programs measured a part.
const fn spent(events: u64, measured_ns: u64, entry_ns: u64) -> u64 {
    measured_ns + events * entry_ns
}

/// Events of hooks that came while the same program was already running on that CPU.
pub(in crate::contention) fn recursion_misses(skeleton: &ContentionSkel<'_>) -> u64 {
    let hooks = skeleton
        .object()
        .progs()
        .filter(|program| program.autoload() && hooked(&program.name().to_string_lossy()).is_some());
    hooks.map(|program| recursion_misses_of(program.as_fd())).sum()
}
