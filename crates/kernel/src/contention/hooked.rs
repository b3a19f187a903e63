//! Which functions are hooked to time holds, and the switch that turns the hooks of spinning locks off.

use std::time::Instant;

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::skel::{OpenSkel, Skel};
use libbpf_rs::{Link, ProgramMut};
use lockmeter_profile::Kind;

use super::skeleton::{ContentionSkel, OpenContentionSkel};
use crate::error::KernelError;

/// What a hook costs beyond what it measures of itself: the way into it and back.
const TRAMPOLINE_NS: u64 = 60;

/// Locks whose functions are hooked unless told otherwise.
pub const SLEEPING_KINDS: [Kind; 3] = [Kind::Mutex, Kind::Rwsem, Kind::PercpuRwsem];

/// Locks whose functions are hooked only when asked for by name.
pub const SPINNING_KINDS: [Kind; 2] = [Kind::Spin, Kind::Rwlock];

/// Which holds to time by function hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hooks {
    /// Of these kinds.
    pub kinds: Vec<Kind>,
    /// Shorter ones are not counted.
    pub min_hold_ns: u64,
    /// Share of the machine's CPU time that the hooks of spinning locks may take, in millionths; beyond it they are switched off.
    pub spin_budget_ppm: u32,
}

impl Hooks {
    /// Five per cent: what SGI's meter took for hold times.
    pub const SPIN_BUDGET_PPM: u32 = 50_000;
}

/// The function that a hook program is for, and the kind of lock; `None` for other programs.
fn hooked(program: &str) -> Option<(&str, Kind)> {
    let function = program.strip_prefix("acquires_").or_else(|| program.strip_prefix("releases_"))?;
    let kind = match function {
        _ if function.contains("mutex") => Kind::Mutex,
        _ if function.starts_with("percpu_") => Kind::PercpuRwsem,
        _ if function.starts_with("_raw_spin_") => Kind::Spin,
        _ if function.starts_with("_raw_") => Kind::Rwlock,
        _ => Kind::Rwsem,
    };
    Some((function, kind))
}

/// Loads the hooks that are asked for and whose functions this kernel has.
pub(super) fn choose(open: &mut OpenContentionSkel<'_>, hooks: Option<&Hooks>) {
    let kernel = Btf::from_vmlinux().ok();
    let has =
        |function: &str| kernel.as_ref().is_some_and(|btf| btf.type_by_name::<types::Func<'_>>(function).is_some());
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if let Some((function, kind)) = hooked(&name) {
            program.set_autoload(hooks.is_some_and(|hooks| hooks.kinds.contains(&kind)) && has(function));
        }
    }
    if let (Some(rodata), Some(hooks)) = (open.maps.rodata_data.as_deref_mut(), hooks) {
        rodata.min_hold_ns = hooks.min_hold_ns;
    }
}

/// The hooks' links, those of spinning locks apart.
#[derive(Debug, Default)]
pub(super) struct Attached {
    sleeping: Vec<Link>,
    spinning: Option<SpinHooks>,
}

#[derive(Debug)]
struct SpinHooks {
    links: Vec<Link>,
    budget_ppm: u32,
    cpus: u64,
    since: Instant,
    /// What the programs had counted then.
    events: u64,
    spent_ns: u64,
}

impl Attached {
    /// How many hooks there are.
    pub(super) fn len(&self) -> usize {
        self.sleeping.len() + self.spinning.as_ref().map_or(0, |spinning| spinning.links.len())
    }
}

/// Attaches releases before acquisitions.
pub(super) fn attach(
    skeleton: &mut ContentionSkel<'_>,
    hooks: &Hooks,
    cpus: usize,
    attach: impl Fn(&mut ProgramMut<'_>) -> Result<Link, KernelError>,
) -> Result<Attached, KernelError> {
    let mut attached = Attached::default();
    let mut spinning = Vec::new();
    for prefix in ["releases_", "acquires_"] {
        for mut program in skeleton.object_mut().progs_mut().filter(|program| program.autoload()) {
            let name = program.name().to_string_lossy().into_owned();
            match hooked(&name).filter(|_| name.starts_with(prefix)) {
                Some((_, kind)) if SPINNING_KINDS.contains(&kind) => spinning.push(attach(&mut program)?),
                Some(_) => attached.sleeping.push(attach(&mut program)?),
                None => {}
            }
        }
    }
    attached.spinning = (!spinning.is_empty()).then(|| SpinHooks {
        links: spinning,
        budget_ppm: hooks.spin_budget_ppm,
        cpus: cpus as u64,
        since: Instant::now(),
        events: 0,
        spent_ns: 0,
    });
    Ok(attached)
}

impl Attached {
    /// Switches the hooks of spinning locks off if they took more than their share since the last look; says what they took.
    pub(super) fn keep_within_budget(&mut self, skeleton: &mut ContentionSkel<'_>) -> Option<u64> {
        let spinning = self.spinning.as_mut()?;
        let bss = skeleton.maps.bss_data.as_deref_mut()?;
        let (events, spent_ns) = (bss.spin_hook_events, bss.spin_hook_ns);
        let used_ns = spent_ns - spinning.spent_ns + (events - spinning.events) * TRAMPOLINE_NS;
        let elapsed_ns = u64::try_from(spinning.since.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        let used_ppm = used_ns.saturating_mul(1_000_000) / elapsed_ns.saturating_mul(spinning.cpus);
        (spinning.events, spinning.spent_ns, spinning.since) = (events, spent_ns, Instant::now());
        if used_ppm <= u64::from(spinning.budget_ppm) {
            return None;
        }
        // At once; detaching sixty functions takes a while.
        bss.spin_hooks_off = 1;
        self.spinning = None;
        Some(used_ppm)
    }
}
