//! Fuzz targets: functions that take any bytes and must neither panic nor work more than the bytes are worth.
//!
//! `scripts/fuzz TARGET SECONDS` runs one under LLVM's fuzzer; `tests/replay.rs` feeds each its seeds and some mutations of
//! them in every `make test`. A new target is a module with a function and its seeds, and a line in [`TARGETS`].

pub mod hostile_recordings;
pub mod mutations;
pub mod predict;
pub mod recording;

/// A function that takes any bytes, and bytes from real encoders to start from.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// What `scripts/fuzz` calls it.
    pub name: &'static str,
    /// Panics where something is wrong.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// How many mutations of each seed a test replays, so that all take a few seconds.
    pub replayed: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "recording", run: recording::recording, seeds: recording::seeds, replayed: 300 },
    Target { name: "predict", run: predict::predict, seeds: predict::seeds, replayed: 40 },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
