//! The naive meter: how long every acquisition of `mmap_lock` takes, contended or not, as the mail of 2020 measured it. Built only to be
//! measured.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject};

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::pedantic)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/naive.skel.rs"));
}
use skeleton::{NaiveSkel, NaiveSkelBuilder};

/// Of its histogram: as in `naive.bpf.c`.
const BUCKETS: u32 = 64;

/// The naive meter, loaded. Dropping it detaches it.
pub struct Naive {
    links: Vec<Link>,
    skeleton: NaiveSkel<'static>,
}

impl Naive {
    /// Loads it, attached to nothing yet. The error is a sentence.
    pub fn load() -> Result<Self, String> {
        let refused = |error: libbpf_rs::Error| {
            format!("the naive meter needs root and the tracepoints of mmap_lock (Linux 5.11 or newer): {error}")
        };
        libbpf_rs::set_print(None);
        // The skeleton borrows its storage for as long as it lives, which is as long as the process.
        let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let skeleton = NaiveSkelBuilder::default().open(storage).map_err(refused)?.load().map_err(refused)?;
        Ok(Self { links: Vec::new(), skeleton })
    }

    /// Switches it on or off.
    pub fn switch(&mut self, on: bool) -> Result<(), String> {
        if !on {
            self.links.clear();
        } else if self.links.is_empty() {
            let refused = |error| format!("cannot attach the naive meter: {error}");
            let programs = &mut self.skeleton.progs;
            self.links = vec![programs.has.attach().map_err(refused)?, programs.asks.attach().map_err(refused)?];
        }
        Ok(())
    }

    /// How many acquisitions it has timed.
    pub fn timed(&self) -> u64 {
        let of_bucket = |bucket: u32| {
            let counts =
                self.skeleton.maps.histogram.lookup_percpu(&bucket.to_ne_bytes(), MapFlags::ANY).ok().flatten();
            let counts = counts.unwrap_or_default();
            counts.iter().filter_map(|count| count.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))).sum::<u64>()
        };
        (0..BUCKETS).map(of_bucket).sum()
    }
}
