//! The program at wake-ups, which learns who makes a waiter wait.
//!
//! Every wake-up on the machine runs it, no matter who is woken and for whatever, and most of what that takes an empty program would take,
//! too. So where waits are rare, as those for one lock are, it is attached only while there are some.

use libbpf_rs::Link;

use crate::attaching::attach_one;
use crate::contention::skeleton::ContentionSkel;
use crate::error::KernelError;

/// Looks without a wait, at ten a second, after which it is detached.
const QUIET_LOOKS: u32 = 10;

/// Whether the program is attached, and is to be.
#[derive(Debug)]
pub(in crate::contention) struct Waking {
    link: Option<Link>,
    comes_and_goes: bool,
    quiet_looks: u32,
}

impl Waking {
    /// `comes_and_goes`: it is detached where nobody waits for long.
    pub(in crate::contention) fn new(comes_and_goes: bool) -> Self {
        Self { link: None, comes_and_goes, quiet_looks: 0 }
    }

    /// Attaches it, unless nobody has waited for long.
    pub(in crate::contention) fn attach(&mut self, skeleton: &mut ContentionSkel<'_>) -> Result<(), KernelError> {
        if self.link.is_none() && self.quiet_looks < QUIET_LOOKS {
            self.link = Some(attach_one(&mut skeleton.progs.sched_waking)?);
        }
        Ok(())
    }

    pub(in crate::contention) fn detach(&mut self) {
        self.link = None;
    }

    /// Attaches and detaches it by whether somebody has waited lately, which is asked only where it matters. To be called ten times a second.
    /// If it cannot be attached, although it was before, the next look tries again, and who made somebody wait meanwhile is told as unknown.
    pub(in crate::contention) fn look(
        &mut self,
        somebody_waits: impl FnOnce() -> bool,
        skeleton: &mut ContentionSkel<'_>,
    ) {
        if !self.comes_and_goes {
            return;
        }
        self.quiet_looks = if somebody_waits() { 0 } else { self.quiet_looks.saturating_add(1) };
        if self.quiet_looks >= QUIET_LOOKS {
            self.detach();
        } else {
            let _ = self.attach(skeleton);
        }
    }
}
