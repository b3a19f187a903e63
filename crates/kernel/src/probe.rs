//! What this kernel and these privileges allow.

use std::fs;

use libbpf_rs::btf::{Btf, types};
use lockmeter_symbols::KernelSymbols;

use crate::cgroups::CgroupTree;
use crate::confinement::{self, Policies};
use crate::contention::{
    ContentionSource, Metered, MmapTracepoints, Options, Scope, StackBudget, spin_functions_inlined,
    table_bytes_per_cpu,
};
use crate::error::{CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN, ErrorKind, has_capability};
use crate::futex::{self, FutexOptions};
use crate::hooks::{HookWay, HooksRefused, refused_all, try_hooks};
use crate::kernel_names;
use crate::latency::{self, LatencySource};
use crate::lockdown::{self, Level};
use crate::threads::ThreadSource;

/// Since when the kernel has `lock:contention_begin` and `lock:contention_end`.
const TRACEPOINTS_SINCE: (u32, u32) = (5, 19);

/// Whether something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Yes,
    /// It does not, and lockmeter works with less.
    Less,
    /// It does not, and without it kernel locks cannot be metered.
    No,
}

impl Verdict {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Less => "partly",
            Self::No => "no",
        }
    }
}

/// One row of the doctor's findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// Whether it works.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it, where there is something to do.
    pub mend: Option<String>,
}

impl Finding {
    fn yes(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Yes, found: found.into(), mend: None }
    }

    fn less(what: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Less, found: found.into(), mend: Some(mend.into()) }
    }

    fn no(what: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::No, found: found.into(), mend: Some(mend.into()) }
    }
}

/// Looks at everything, the hard requirements first.
pub fn examine() -> Vec<Finding> {
    let symbols = KernelSymbols::from_proc();
    let mut findings = vec![kernel_version(), privileges()];
    findings.extend(lockdown::level().map(lockdown));
    findings.push(type_information());
    findings.extend(tracepoints());
    findings.push(metering());
    findings.push(metering_programs());
    findings.push(confinement(&confinement::policies()));
    findings.push(metering_what_runs());
    findings.push(function_names(&symbols));
    if let Ok(symbols) = &symbols {
        findings.push(static_lock_names(symbols));
        findings.push(slab_lock_names(symbols));
    }
    findings.push(mmap_tracepoints());
    let refused = HookWay::ALL.map(|way| (way, try_hooks(way).err()));
    findings.push(function_hooks(&refused));
    findings.extend(spin_function_hooks(&refused));
    findings.push(control_groups());
    findings.push(table_memory());
    findings
}

fn kernel_version() -> Finding {
    const WHAT: &str = "kernel";
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (major, minor) = TRACEPOINTS_SINCE;
    if version >= TRACEPOINTS_SINCE {
        Finding::yes(WHAT, format!("Linux {release}"))
    } else {
        Finding::no(
            WHAT,
            format!("Linux {release}"),
            format!("the lock:contention tracepoints came with Linux {major}.{minor}; run that or a newer kernel"),
        )
    }
}

fn privileges() -> Finding {
    const WHAT: &str = "privileges";
    if has_capability(CAP_SYS_ADMIN) {
        return Finding::yes(WHAT, "CAP_SYS_ADMIN");
    }
    let missing: Vec<&str> = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter(|(capability, _)| !has_capability(*capability))
        .map(|(_, name)| name)
        .collect();
    if missing.is_empty() {
        return Finding::yes(WHAT, "CAP_BPF and CAP_PERFMON");
    }
    Finding::no(
        WHAT,
        format!("{} missing", missing.join(" and ")),
        "run as root, or once: sudo setcap cap_bpf,cap_perfmon,cap_syslog+ep $(command -v lockmeter)",
    )
}

fn lockdown(level: Level) -> Finding {
    const WHAT: &str = "lockdown";
    match level {
        Level::None => Finding::yes(WHAT, "none"),
        Level::Integrity => Finding::yes(WHAT, "integrity: BPF programs may read the kernel's memory"),
        Level::Confidentiality => Finding::no(
            WHAT,
            "confidentiality: BPF programs may not read the kernel's memory; no kprobes, tracefs and perf",
            format!("{}; `record --user -- COMMAND` meters the locks of COMMAND without it", lockdown::HOW_TO_ALLOW),
        ),
    }
}

fn type_information() -> Finding {
    const WHAT: &str = "type information";
    const PATH: &str = "/sys/kernel/btf/vmlinux";
    match fs::metadata(PATH) {
        Ok(about) => Finding::yes(WHAT, format!("{PATH}, {} KiB", about.len() / 1024)),
        Err(error) => Finding::no(
            WHAT,
            format!("{PATH}: {error}"),
            "use a kernel built with CONFIG_DEBUG_INFO_BTF (Debian's are)",
        ),
    }
}

fn tracepoints() -> Option<Finding> {
    const WHAT: &str = "lock tracepoints";
    // Without type information its own row says all there is to say.
    let btf = Btf::from_vmlinux().ok()?;
    let missing: Vec<&str> = ["contention_begin", "contention_end", "sched_waking"]
        .into_iter()
        .filter(|name| btf.type_by_name::<types::Typedef<'_>>(&format!("btf_trace_{name}")).is_none())
        .collect();
    Some(if missing.is_empty() {
        Finding::yes(WHAT, "contention_begin, contention_end, sched_waking")
    } else {
        Finding::no(
            WHAT,
            format!("{} missing", missing.join(", ")),
            "they came with Linux 5.19 and need CONFIG_TRACEPOINTS; use such a kernel",
        )
    })
}

fn metering() -> Finding {
    const WHAT: &str = "contention metering";
    match ContentionSource::start(&Options {
        scope: Scope::Machine,
        stacks: StackBudget::DEFAULT,
        metered: Metered::Waits,
    }) {
        Ok(_) => Finding::yes(WHAT, "programs load and attach"),
        Err(error) => Finding::no(
            WHAT,
            error.to_string(),
            match error.kind() {
                ErrorKind::NotPermitted => "see the rows above: privileges, lockdown and type information",
                _ if lockdown::level().is_none() => {
                    "the message above is the kernel's; `mount -t securityfs none /sys/kernel/security`, after which `lockmeter \
                     doctor` shows whether lockdown is the reason; if not, report it with the output of `lockmeter doctor`"
                }
                _ => "the message above is the kernel's; report it with the output of `lockmeter doctor`",
            },
        ),
    }
}

fn metering_programs() -> Finding {
    const WHAT: &str = "locks of running programs";
    let own = std::process::id();
    let futexes = FutexOptions::usual(StackBudget::DEFAULT);
    let names = futex::can_meter(&[own]).and_then(|()| kernel_names::prepare(None));
    match names.and_then(|names| ThreadSource::start(&Scope::process(own), names, Some(futexes), None)) {
        Ok(source) => match source.not_sampled() {
            None => Finding::yes(WHAT, "programs load and attach; CPUs are sampled for spinning"),
            Some(why) => Finding::less(
                WHAT,
                format!("programs load and attach, but CPUs cannot be sampled for spinning: {why}"),
                "allow perf events (sysctl kernel.perf_event_paranoid, CAP_PERFMON, no seccomp filter against perf_event_open)",
            ),
        },
        Err(error) => Finding::less(
            WHAT,
            error.to_string(),
            "`record -p` meters kernel locks only; start the program under `record -- COMMAND` to meter its own",
        ),
    }
}

/// Whether the library may be kept from the programs that are started from here.
fn confinement(policies: &Policies) -> Finding {
    const WHAT: &str = "confinement";
    let selinux = match policies.is_selinux_enforced {
        None => "no SELinux".to_owned(),
        Some(false) => "SELinux does not enforce".to_owned(),
        Some(true) => "SELinux enforces, and leaves this process unconfined".to_owned(),
    };
    let apparmor = match policies.enforced_profiles {
        None => "no AppArmor profiles to be seen".to_owned(),
        Some(profiles) => format!("AppArmor enforces {profiles} profiles, none for this process"),
    };
    match &policies.own {
        None => Finding::yes(WHAT, format!("{selinux}; {apparmor}")),
        Some(own) => Finding::less(
            WHAT,
            format!("{own} confines what is started from here"),
            format!(
                "if a report counts programs as not metered, lift it for the recording (`{}`), or start lockmeter elsewhere",
                own.how_to_lift()
            ),
        ),
    }
}

/// What `lockmeter latency` needs.
fn metering_what_runs() -> Finding {
    const WHAT: &str = "interrupts, timers, work items";
    match LatencySource::start(&latency::Options { runners: latency::RUNNERS.to_vec(), threshold: None, every: true }) {
        Ok(source) => match source.missing() {
            [] => Finding::yes(WHAT, "programs load and attach"),
            missing => {
                let words: Vec<String> = missing.iter().map(ToString::to_string).collect();
                Finding::less(WHAT, words.join("; "), "use a newer kernel; `lockmeter latency` meters the rest")
            }
        },
        Err(error) => Finding::less(
            WHAT,
            error.to_string(),
            "`lockmeter latency` does not work here; waits for locks need other tracepoints",
        ),
    }
}

fn function_names(symbols: &Result<KernelSymbols, lockmeter_symbols::SymbolsError>) -> Finding {
    const WHAT: &str = "function names";
    match symbols {
        Ok(_) => Finding::yes(WHAT, "/proc/kallsyms shows addresses"),
        Err(error) => Finding::no(
            WHAT,
            error.to_string(),
            "run as root or with CAP_SYSLOG, or allow it: sysctl kernel.kptr_restrict=1",
        ),
    }
}

fn static_lock_names(symbols: &KernelSymbols) -> Finding {
    const WHAT: &str = "names of static locks";
    if symbols.has_data_symbols() {
        Finding::yes(WHAT, "/proc/kallsyms has data symbols")
    } else {
        Finding::less(
            WHAT,
            "this kernel has no data symbols; static locks are named after the functions that take them",
            "for exact names use a kernel built with CONFIG_KALLSYMS_ALL",
        )
    }
}

fn slab_lock_names(symbols: &KernelSymbols) -> Finding {
    const WHAT: &str = "names of locks in objects";
    if symbols.address_of("bpf_get_kmem_cache").is_some() {
        Finding::yes(WHAT, "by bpf_get_kmem_cache()")
    } else if symbols.has_data_symbols() {
        Finding::yes(WHAT, "by reading the slab's page (bpf_get_kmem_cache() came with Linux 6.13)")
    } else {
        Finding::less(
            WHAT,
            "neither bpf_get_kmem_cache() nor data symbols; locks are named after the functions that take them",
            "use Linux 6.13 or newer, or a kernel built with CONFIG_KALLSYMS_ALL",
        )
    }
}

/// Which of the ways of timing holds this kernel gives.
fn function_hooks(refused: &[(HookWay, Option<HooksRefused>); 2]) -> Finding {
    const WHAT: &str = "hold times of kernel locks";
    match refused {
        [(_, None), (_, None)] => Finding::yes(WHAT, "whole holds, by function hooks (fentry; kprobes work, too)"),
        [(_, None), (_, Some(kprobe))] => {
            Finding::yes(WHAT, format!("whole holds, by function hooks (fentry; no kprobes: {})", kprobe.why))
        }
        [(_, Some(fentry)), (_, None)] => {
            Finding::yes(WHAT, format!("whole holds of sleeping locks, by kprobes (no fentry: {})", fentry.why))
        }
        [(_, Some(fentry)), (_, Some(kprobe))] => {
            let both = refused_all(fentry, kprobe);
            Finding::less(
                WHAT,
                format!(
                    "whole holds of mmap_lock, by its tracepoints; of other sleeping locks only the contended part: {}",
                    both.why
                ),
                both.mend,
            )
        }
    }
}

/// Whether all functions of spinning locks can be hooked, where functions can.
fn spin_function_hooks(refused: &[(HookWay, Option<HooksRefused>)]) -> Option<Finding> {
    const WHAT: &str = "hold times of spinlocks";
    if let Some((_, Some(fentry))) = refused.iter().find(|(way, _)| *way == HookWay::Fentry) {
        let only_kprobes = refused.iter().any(|(_, refused)| refused.is_none());
        let sentence = format!("not timed: they need fentry, because kprobes cost too much: {}", fentry.why);
        return only_kprobes.then(|| Finding::less(WHAT, sentence, fentry.mend));
    }
    Some(match spin_functions_inlined() {
        Ok((inlined, all)) if inlined.is_empty() => {
            Finding::yes(WHAT, format!("all {all} functions can be hooked (`record --hold --spin-holds`)"))
        }
        Ok((inlined, _)) => Finding::less(
            WHAT,
            format!("not all are seen, because these functions are inlined in this kernel: {}", inlined.join(", ")),
            "use a kernel built with CONFIG_PREEMPT_DYNAMIC (Debian's are), which inlines none",
        ),
        Err(error) => Finding::less(WHAT, error.to_string(), "report it with the output of `lockmeter doctor`"),
    })
}

fn mmap_tracepoints() -> Finding {
    const WHAT: &str = "mmap_lock tracepoints";
    match MmapTracepoints::find() {
        Some(MmapTracepoints::Plain) => Finding::yes(WHAT, "acquire_returned, released"),
        Some(MmapTracepoints::WithPath) => Finding::yes(
            WHAT,
            "acquire_returned, released; up to Linux 6.13 the kernel builds a control group's path for each event, which costs \
            time",
        ),
        None => Finding::less(
            WHAT,
            format!("missing; they came with Linux {}", MmapTracepoints::SINCE),
            "`lockmeter mmap --no-hold` meters the waits without them",
        ),
    }
}

fn control_groups() -> Finding {
    const WHAT: &str = "control groups";
    match CgroupTree::find().root() {
        Some(root) => Finding::yes(WHAT, format!("unified hierarchy at {}", root.display())),
        None => Finding::less(
            WHAT,
            "no unified hierarchy mounted: --cgroup and --by cgroup show ids only",
            "mount -t cgroup2 none /sys/fs/cgroup",
        ),
    }
}

fn table_memory() -> Finding {
    let per_cpu = table_bytes_per_cpu();
    let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1);
    Finding::yes(
        "kernel memory while metering",
        format!("{cpus} CPUs x {} KiB = {} KiB", per_cpu / 1024, cpus * per_cpu / 1024),
    )
}
