//! Writers of a frozen file system: all of them wait for it until it is thawed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::load::Load;
use crate::processes::{Conversation, Running, find};
use crate::reason::Reason;
use crate::thread_states::{self, Thread};
use crate::truth::Looks;

pub const SOURCE: &str = "by construction: each writer that /proc shows in uninterruptible sleep waits for the thaw";
pub const TASK: &str = "dd";
const WRITERS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// Mounts and freezes; thaws and unmounts when its input ends, whatever this bench does.
const FREEZE: &str = "trap '' INT TERM HUP
truncate -s 64M image && mkfs.ext4 -q image && mkdir -p mount && mount -o loop image mount || { echo no; exit 1; }
fsfreeze -f mount || { umount mount; echo no; exit 1; }
echo frozen
cat >/dev/null
fsfreeze -u mount; umount -l mount";

struct Frozen {
    freezer: Option<Conversation>,
    writers: Vec<Running>,
}

pub fn writers(folder: &Path, _: Option<Command>) -> Result<Box<dyn Load>> {
    find("fsfreeze")?;
    find("mkfs.ext4")?;
    let mut freezer = Command::new("setsid");
    freezer.args(["sh", "-c", FREEZE]).current_dir(folder).stderr(Stdio::null());
    let mut freezer = Conversation::start(&mut freezer)?;
    ensure!(freezer.line()? == "frozen", "no file system can be mounted and frozen here");
    let mut frozen = Frozen { freezer: Some(freezer), writers: Vec::new() };
    let mount: PathBuf = folder.join("mount");
    for number in 0..WRITERS {
        let mut dd = Command::new("dd");
        dd.arg("if=/dev/zero").arg(format!("of={}", mount.join(format!("file{number}")).display()));
        dd.args(["bs=4k", "count=1"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        frozen.writers.push(Running::start(&mut dd, libc::SIGKILL)?);
    }
    let begin = Instant::now();
    while !frozen.writers.iter().all(|writer| thread_states::letter(writer.pid(), writer.pid()) == Some('D')) {
        ensure!(begin.elapsed() < PATIENCE, "the writers do not wait");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Box::new(frozen))
}

impl Load for Frozen {
    fn scope(&self) -> Vec<String> {
        vec!["-a".to_owned()]
    }

    fn look(&mut self, looks: &mut Looks) -> Result<()> {
        let letter = |pid: u32| thread_states::letter(pid, pid).context("a writer is gone");
        let mut threads = Vec::new();
        for writer in &self.writers {
            let blocked = (letter(writer.pid())? == 'D').then_some(Reason::KernelLock);
            threads.push(Thread { tid: writer.pid(), blocked });
        }
        looks.threads(&threads, |_, _| Some((Reason::KernelLock, "s_writers")));
        Ok(())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // The writers can end, even by a signal, only when it is thawed.
        if let Some(freezer) = self.freezer.take() {
            let _ = freezer.end();
        }
    }
}
