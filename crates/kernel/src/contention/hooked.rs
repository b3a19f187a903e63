//! Which functions are hooked to time holds, and the switch that turns the hooks of spinning locks off.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::Instant;

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, ProgramMut};
use lockmeter_profile::Kind;

use super::skeleton::{ContentionSkel, ContentionSkelBuilder, OpenContentionSkel};
use crate::cost::{missed_by_probe, recursion_misses_of};
use crate::error::KernelError;
use crate::hooks::HookWay;

/// What a hook costs beyond what it measures of itself: the way into it and back.
const TRAMPOLINE_NS: u64 = 60;

/// The same of a kprobe, which saves and restores all registers and looks itself up: an estimate.
const PROBE_NS: u64 = 250;

/// Where `hook_events` and `hook_ns` of the programs keep the hooks of spinning locks.
const SPINNING: usize = 1;

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
    /// Share of the machine's CPU time that the hooks of spinning locks may take, in millionths; beyond it they are switched off.
    pub spin_budget_ppm: u32,
}

/// Hooks that were switched off because they took too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchedOff {
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
pub(super) fn choose(open: &mut OpenContentionSkel<'_>, hooks: Option<&Hooks>) {
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
pub(super) struct Attached {
    way: Option<HookWay>,
    sleeping: Vec<Link>,
    spinning: Option<SpinHooks>,
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
    pub(super) fn len(&self) -> usize {
        self.sleeping.len() + self.spinning.as_ref().map_or(0, |spinning| spinning.links.len())
    }

    /// What all hooks cost so far, without stacks.
    pub(super) fn spent_ns(&self, skeleton: &ContentionSkel<'_>) -> u64 {
        let way_in_ns = match self.way {
            Some(HookWay::Kprobe) => PROBE_NS,
            _ => TRAMPOLINE_NS,
        };
        let Some(bss) = skeleton.maps.bss_data.as_deref() else { return 0 };
        spent(events(skeleton), bss.hook_ns.iter().sum(), way_in_ns)
    }

    /// How often the kernel ran none of our programs although a probe was hit: one was running already, or no place was free to
    /// wait for the function's return. Counted since Linux 6.7.
    pub(super) fn missed_by_probes(&self) -> u64 {
        match self.way {
            Some(HookWay::Kprobe) => self.sleeping.iter().map(|link| missed_by_probe(link.as_fd())).sum(),
            _ => 0,
        }
    }
}

/// Attaches them in the order of [`PREFIXES`]. A kernel may list a function and yet not let anybody hook it: then it does without,
/// unless that is so with all.
pub(super) fn attach(
    skeleton: &mut ContentionSkel<'_>,
    hooks: &Hooks,
    cpus: usize,
    attach: impl Fn(&mut ProgramMut<'_>) -> Result<Link, KernelError>,
) -> Result<Attached, KernelError> {
    let mut attached = Attached { way: Some(hooks.way), ..Attached::default() };
    let (mut spinning, mut refused) = (Vec::new(), None);
    for (_, prefix) in PREFIXES {
        for mut program in skeleton.object_mut().progs_mut().filter(|program| program.autoload()) {
            let name = program.name().to_string_lossy().into_owned();
            let Some(hook) = hooked(&name).filter(|_| name.starts_with(prefix)) else { continue };
            match attach(&mut program) {
                Ok(link) if SPINNING_KINDS.contains(&hook.kind) => spinning.push(link),
                Ok(link) => attached.sleeping.push(link),
                Err(error) => refused = Some(error),
            }
        }
    }
    if let Some(error) = refused.filter(|_| attached.sleeping.is_empty() && spinning.is_empty()) {
        return Err(error);
    }
    attached.spinning = (!spinning.is_empty()).then(|| SpinHooks {
        links: spinning,
        budget_ppm: hooks.spin_budget_ppm,
        cpus: cpus as u64,
        since: Instant::now(),
        spent_ns: 0,
    });
    Ok(attached)
}

impl Attached {
    /// Switches the hooks of spinning locks off if they took more than their share since the last look, and says so; later
    /// calls detach them.
    pub(super) fn keep_within_budget(&mut self, skeleton: &mut ContentionSkel<'_>) -> Option<SwitchedOff> {
        let spinning = self.spinning.as_mut()?;
        let bss = skeleton.maps.bss_data.as_deref_mut()?;
        if bss.spin_hooks_off != 0 {
            // One at a time: detaching takes the kernel up to a third of a second each, and the tables fill meanwhile.
            if spinning.links.pop().is_none() {
                self.spinning = None;
            }
            return None;
        }
        let used_ppm = spinning.used_ppm(spent(bss.hook_events[SPINNING], bss.hook_ns[SPINNING], TRAMPOLINE_NS));
        let budget_ppm = spinning.budget_ppm;
        let is_over = used_ppm > u64::from(budget_ppm);
        bss.spin_hooks_off = u32::from(is_over);
        is_over.then_some(SwitchedOff { used_ppm, budget_ppm })
    }
}

impl SpinHooks {
    /// The share of the machine's CPU time, in millionths, that they took since the last look.
    fn used_ppm(&mut self, spent_ns: u64) -> u64 {
        let used_ns = spent_ns.saturating_sub(self.spent_ns);
        let elapsed_ns = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        (self.spent_ns, self.since) = (spent_ns, Instant::now());
        used_ns.saturating_mul(1_000_000) / elapsed_ns.saturating_mul(self.cpus)
    }
}

/// How often hooks ran so far, but for the last few on each CPU.
pub(super) fn events(skeleton: &ContentionSkel<'_>) -> u64 {
    skeleton.maps.bss_data.as_deref().map_or(0, |bss| bss.hook_events.iter().sum())
}

/// What so many events cost, of which the programs measured a part.
const fn spent(events: u64, measured_ns: u64, way_in_ns: u64) -> u64 {
    measured_ns + events * way_in_ns
}

/// Events of hooks that came while the same program was already running on that CPU.
pub(super) fn recursion_misses(skeleton: &ContentionSkel<'_>) -> u64 {
    let hooks = skeleton
        .object()
        .progs()
        .filter(|program| program.autoload() && hooked(&program.name().to_string_lossy()).is_some());
    hooks.map(|program| recursion_misses_of(program.as_fd())).sum()
}
