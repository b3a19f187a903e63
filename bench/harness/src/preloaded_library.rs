//! The library that is preloaded into what is metered.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// Its path: beside the bench, where cargo builds both.
pub fn preloaded_library() -> Result<PathBuf> {
    let bench = env::current_exe().context("cannot tell where this program is")?;
    let library = bench.with_file_name("liblockmeter_preload.so");
    ensure!(
        library.exists(),
        "{} is missing; `cargo build --release -p lockmeter-preload` makes it",
        library.display()
    );
    Ok(library)
}
