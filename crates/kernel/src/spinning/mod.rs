//! CPU time that programs burn while they wait: samples of what CPUs run, and what the code and the stack in them say.
//!
//! The program is in `cpu_samples.bpf.h`, part of those that keep the threads' time, by whose exact running time the samples are scaled.

mod pause_loop;
mod perf_events;
mod samples;

use std::cell::RefCell;
use std::rc::Rc;

use libbpf_rs::{Link, MapCore, RingBuffer, RingBufferBuilder};
use lockmeter_profile::Interval;

use crate::cgroups::CgroupTree;
use crate::error::KernelError;
use crate::futex::KnownPrograms;
pub(crate) use perf_events::sample_cpus;
use samples::Samples;

/// Samples of what CPUs run, and what is known of them.
pub(crate) struct CpuSampler {
    // Goes first: nothing may write to the ring buffer when it is unmapped.
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    samples: Rc<RefCell<Samples>>,
}

impl CpuSampler {
    /// Reads the samples that come through this map while the program is linked to the CPUs' clocks.
    pub(crate) fn new(links: Vec<Link>, known: KnownPrograms, map: &impl MapCore) -> Result<Self, KernelError> {
        let refused = |error| KernelError::from_libbpf("cannot read the ring buffer of samples", &error);
        let samples = Rc::new(RefCell::new(Samples::new(known.processes)));
        let into = Rc::clone(&samples);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            into.borrow_mut().take(bytes);
            0
        };
        builder.add(map, take).map_err(refused)?;
        Ok(Self { _links: links, ring: builder.build().map_err(refused)?, samples })
    }

    /// Takes over what was sampled meanwhile.
    pub(crate) fn read(&self) {
        // An error is that of a callback, and ours has none.
        let _ = self.ring.consume();
    }

    /// What was sampled until now is no part of the recording.
    pub(crate) fn begin(&self) {
        self.read();
        self.samples.borrow_mut().forget();
    }

    /// Adds what was sampled to an interval that has the threads' times of the same time.
    pub(crate) fn drain_into(&self, interval: &mut Interval, cgroups: &CgroupTree) {
        self.samples.borrow_mut().drain_into(interval, cgroups);
    }
}
