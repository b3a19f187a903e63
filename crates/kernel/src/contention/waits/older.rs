//! Waits that began before metering did.

use libbpf_rs::Link;
use lockmeter_profile::{Kind, Mode};

use crate::attaching::{attach_one, run_iterator};
use crate::contention::skeleton::ContentionSkel;
use crate::contention::skeleton::types::older_wait;
use crate::error::KernelError;

/// A wait, for a lock that sleeps, of a task that slept already when metering began.
#[derive(Debug, Clone, Copy)]
pub struct OlderWait {
    /// Who waits.
    pub tid: u32,
    /// How often it had left its CPU when it was found asleep: by this the programs know that it has not woken since.
    pub switches: u32,
    /// The address of the lock.
    pub lock: u64,
    /// Its kind.
    pub kind: Kind,
    /// How it is waited for.
    pub mode: Mode,
    /// From when on it counts.
    pub begin_ns: u64,
}

/// Tells the programs of such waits, which then end as others do. Not of those that have ended, or that they know.
#[derive(Debug, Default)]
pub(in crate::contention) struct OlderWaits {
    iterator: Option<Link>,
}

impl OlderWaits {
    pub(in crate::contention) fn tell(
        &mut self,
        waits: &[OlderWait],
        skeleton: &mut ContentionSkel<'_>,
    ) -> Result<(), KernelError> {
        if waits.is_empty() {
            return Ok(());
        }
        if self.iterator.is_none() {
            self.iterator = Some(attach_one(&mut skeleton.progs.adopt_older_waits)?);
        }
        let (Some(iterator), Some(bss)) = (&self.iterator, skeleton.maps.bss_data.as_deref_mut()) else {
            return Ok(());
        };
        for some in waits.chunks(bss.older_waits.len()) {
            for (place, wait) in bss.older_waits.iter_mut().zip(some) {
                *place = older_wait {
                    lock: wait.lock,
                    begin_ns: wait.begin_ns,
                    kind_mode: u32::from(wait.kind.code()) | u32::from(wait.mode.code()) << 8,
                    tid: wait.tid,
                    switches: wait.switches,
                    unused: 0,
                };
            }
            bss.older_waits_told = some.len() as u32;
            // It goes through all tasks, and writes nothing.
            run_iterator(iterator, "cannot tell the programs of older waits")?;
        }
        Ok(())
    }
}
