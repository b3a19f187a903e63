//! `cargo build` of a tiny crate, again and again: its helper threads have nothing to do.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::load::{Load, command, process};
use crate::processes::{Running, find};
use crate::thread_states;
use crate::truth::Looks;

pub const SOURCE: &str = "by construction nobody waits for a lock for long; what else, /proc tells";

const MANIFEST: &str = "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
const BUILDS: &str = "for n in 1 2 3 4 5 6; do touch src/main.rs; cargo build -q --offline; done";

struct Builds {
    running: Running,
    metered_by_command: bool,
}

pub fn builds(folder: &Path, under: Option<Command>) -> Result<Box<dyn Load>> {
    find("cargo")?;
    let source = folder.join("src");
    std::fs::create_dir_all(&source).context("cannot make a crate")?;
    std::fs::write(folder.join("Cargo.toml"), MANIFEST).context("cannot make a crate")?;
    std::fs::write(source.join("main.rs"), "fn main() { println!(\"tiny\"); }\n").context("cannot make a crate")?;
    std::fs::write(folder.join("build.rs"), "fn main() {}\n").context("cannot make a crate")?;
    let metered_by_command = under.is_some();
    let mut command = command(&find("sh")?, under);
    command.args(["-c", BUILDS]).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(Box::new(Builds { running: Running::start(&mut command, libc::SIGTERM)?, metered_by_command }))
}

impl Load for Builds {
    fn scope(&self) -> Vec<String> {
        process(self.running.pid())
    }

    fn look(&mut self, looks: &mut Looks) -> Result<()> {
        let mut roots = thread_states::tree(&[self.running.pid()]);
        if self.metered_by_command {
            // The recorder is not metered.
            roots.remove(&self.running.pid());
        }
        let threads = roots.into_iter().flat_map(|pid| thread_states::threads_of(pid).map(move |tid| (pid, tid)));
        looks.threads(&thread_states::of(&threads.collect::<Vec<_>>()), |_, _| None);
        Ok(())
    }

    fn is_over(&mut self) -> Result<Option<bool>> {
        self.running.has_ended().map(Some)
    }

    fn end(mut self: Box<Self>) -> Result<()> {
        self.running.wait()
    }
}
