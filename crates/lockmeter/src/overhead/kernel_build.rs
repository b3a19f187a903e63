//! The preset: a part of Linux, built from clean, as the contended-hook proposal of 2020 measured itself.

use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Workload;
use crate::exit::{Failure, Status};
use crate::messages::say;

/// Where Debian's packages put the source.
const SOURCES: &str = "/usr/src";
/// What they are called.
const PREFIX: &str = "linux-source-";
const SUFFIX: &str = ".tar.xz";

/// The source unpacked, and what the build writes.
const DISK_BYTES: u64 = 2 << 30;
/// What two compilers at work need.
const MEMORY_BYTES: u64 = 1 << 30;

/// Folders of the source that together take about half a minute on two CPUs.
const PARTS: [&str; 2] = ["kernel/", "mm/"];

/// Unpacks and configures the source, once; what remains is the build.
pub fn prepare() -> Result<Workload> {
    let archive = archive()?;
    let folder = std::env::temp_dir().join("lockmeter-kernel-build");
    let prepared = folder.join(".lockmeter-prepared");
    if !prepared.exists() {
        check_room()?;
        say(format_args!("lockmeter: unpacking and configuring {} in {} (it stays there for the next time)", archive.display(), folder.display()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let unpack = ["-C".into(), folder.clone().into_os_string(), "--strip-components=1".into(), "-xf".into(), archive.into()];
        step("tar", &unpack)?;
        step("make", &in_folder(&folder, &["tinyconfig"]))?;
        step("make", &in_folder(&folder, &["-j", &cpus(), "prepare"]))?;
        fs::write(&prepared, "").with_context(|| format!("cannot write to {}", folder.display()))?;
    }
    let mut command = vec![OsString::from("make")];
    let jobs = cpus();
    let words: Vec<&str> = ["-j", &jobs].into_iter().chain(PARTS).collect();
    command.extend(in_folder(&folder, &words));
    let folder = folder.display();
    let clean = format!("find {folder}/kernel {folder}/mm {folder}/scripts -name '*.o' -o -name '*.a' -o -name '.*.cmd' | grep -v scripts/ | xargs rm -f");
    Ok(Workload { command, clean: Some(clean) })
}

/// Silent, with the compiler of this machine.
fn in_folder(folder: &Path, words: &[&str]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["-s".into(), "-C".into(), folder.into()];
    arguments.extend(words.iter().map(OsString::from));
    arguments
}

fn archive() -> Result<PathBuf> {
    let entries = fs::read_dir(SOURCES).into_iter().flatten().flatten();
    let is_source = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
    };
    let found = entries.map(|entry| entry.path()).filter(is_source).max();
    found.ok_or_else(|| {
        let sentence = "no kernel source in /usr/src; `apt-get install linux-source flex bison bc` brings it, or `scripts/setup bench`";
        Failure::error(Status::NoTarget, sentence)
    })
}

fn check_room() -> Result<()> {
    let folder = std::env::temp_dir();
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: all-zero is a valid statvfs.
    let mut disk: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated path, and a place that is ours.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut disk) } == 0 && disk.f_bavail * disk.f_frsize < DISK_BYTES {
        let sentence = format!("the kernel build needs 2 GiB in {}, which has less; set TMPDIR to a larger place", folder.display());
        return Err(Failure::error(Status::Failed, sentence));
    }
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    if available.is_some_and(|kilobytes| kilobytes << 10 < MEMORY_BYTES) {
        return Err(Failure::error(Status::Failed, "the kernel build needs 1 GiB of free memory; end something else first"));
    }
    Ok(())
}

fn step(program: &str, arguments: &[OsString]) -> Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program}; `scripts/setup bench` installs what the build needs"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or("it said nothing");
        let sentence = format!("{program} could not prepare the kernel source: {last}; `scripts/setup bench` installs what it needs");
        return Err(Failure::error(Status::Failed, sentence));
    }
    Ok(())
}

fn cpus() -> String {
    std::thread::available_parallelism().map_or(1, usize::from).to_string()
}
