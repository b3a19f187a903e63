//! The tracepoints of `mmap_lock`.

use libbpf_rs::btf::{Btf, BtfKind, types};
use libbpf_rs::{Link, ProgramMut};

use crate::contention::skeleton::ContentionSkel;
use crate::error::{ErrorKind, KernelError};

/// How the tracepoints of `mmap_lock` hand over what they know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmapTracepoints {
    /// Address space, mode, success.
    Plain,
    /// With the path of the memory control group between them, which the kernel puts together for each event (up to 6.13).
    WithPath,
}

impl MmapTracepoints {
    /// Since when the kernel has them.
    pub const SINCE: &'static str = "5.11";

    /// How this kernel has them; `None` if it has not.
    pub fn find() -> Option<Self> {
        let btf = Btf::from_vmlinux().ok()?;
        let typedef = btf.type_by_name::<types::Typedef<'_>>("btf_trace_mmap_lock_released")?;
        let function = typedef.next_type()?.next_type().filter(|function| function.kind() == BtfKind::FuncProto)?;
        // The first parameter is the tracepoint's own.
        match types::FuncProto::try_from(function).ok()?.len() {
            3 => Some(Self::Plain),
            4 => Some(Self::WithPath),
            _ => None,
        }
    }
}

pub(in crate::contention) fn needed_tracepoints() -> Result<MmapTracepoints, KernelError> {
    MmapTracepoints::find().ok_or_else(|| {
        KernelError::new(
            ErrorKind::KernelTooOld,
            format!(
                "this kernel has no mmap_lock tracepoints: they came with Linux {} and need CONFIG_MMU; use such a kernel, or \
                 `--no-hold`, which needs only lock:contention_begin",
                MmapTracepoints::SINCE
            ),
        )
    })
}

/// Attaches the end of a hold before its begin: a begin without its end would leave a lock held.
pub(in crate::contention) fn attach(
    skeleton: &mut ContentionSkel<'_>,
    tracepoints: MmapTracepoints,
    attach_one: impl Fn(&mut ProgramMut<'_>) -> Result<Link, KernelError>,
) -> Result<[Link; 2], KernelError> {
    let programs = &mut skeleton.progs;
    Ok(match tracepoints {
        MmapTracepoints::Plain => [attach_one(&mut programs.mmap_released)?, attach_one(&mut programs.mmap_acquired)?],
        MmapTracepoints::WithPath => {
            [attach_one(&mut programs.mmap_released_with_path)?, attach_one(&mut programs.mmap_acquired_with_path)?]
        }
    })
}
