//! The preset: a part of Linux, built from clean, as the contended-hook proposal of 2020 measured itself.

use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::say;
use lockmeter_meter::reader::check_own;
use lockmeter_render::units::counted;

use super::Workload;

/// Where Debian's packages put the source.
const SOURCES: &str = "/usr/src";
/// What they are called.
const PREFIX: &str = "linux-source-";
const SUFFIX: &str = ".tar.xz";

/// The source unpacked, and what the build writes.
const DISK_BYTES: u64 = 2 << 30;
/// What two compilers at work need.
const MEMORY_BYTES: u64 = 1 << 30;

/// Folders of the source: some 90 files, half a second each.
const PARTS: [&str; 2] = ["kernel/", "mm/"];

/// Unpacks, configures and builds the source, once; what remains is to translate its files again.
pub fn prepare() -> Result<Workload> {
    let folder = own_folder()?;
    // An empty folder is nothing to leave behind.
    let archive = archive().inspect_err(|_| drop(fs::remove_dir(&folder)))?;
    let prepared = folder.join(".lockmeter-prepared");
    if !prepared.exists() {
        check_room()?;
        say(format_args!(
            "lockmeter-lab: unpacking and building {} in {} (it stays there for the next time)",
            archive.display(),
            folder.display()
        ));
        let unpack =
            ["-C".into(), folder.clone().into_os_string(), "--strip-components=1".into(), "-xf".into(), archive.into()];
        step("tar", &unpack)?;
        step("make", &in_folder(&folder, &["tinyconfig"]))?;
        let jobs = cpus().to_string();
        // Building once writes down the command of each file.
        step("make", &in_folder(&folder, &[&["-j", &jobs], &PARTS[..]].concat()))?;
        fs::write(&prepared, "").with_context(|| format!("cannot write to {}", folder.display()))?;
    }
    let commands = translations(&folder)?;
    let name = format!("compiling kernel/ and mm/ of Linux, {} at a time", counted(cpus() as u64, "file", "files"));
    // All CPUs work at once, as under `make -j`; make itself, which takes seconds to start, stays out of it.
    let batch = |files: &[String]| {
        let all: Vec<String> = files.iter().map(|command| format!("({command}) & pids=\"$pids $!\"; ")).collect();
        let folder = folder.display();
        super::shell(&format!("cd {folder} && pids=; {} for pid in $pids; do wait $pid || exit 1; done", all.concat()))
    };
    Ok(Workload { name, commands: commands.chunks_exact(cpus()).map(batch).collect(), clean: None })
}

/// The folder in which the source is built, and stays. What lies in it is run: nobody else may have put it there.
fn own_folder() -> Result<PathBuf> {
    let folder = crate::scratch::parent()?.join("lockmeter-kernel-build");
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make {}", folder.display()));
        }
        _ => {}
    }
    check_own(&folder).map_err(|error| {
        Failure::error(
            Status::Failed,
            format!("{error}, so nothing in it is run; remove it, or set TMPDIR to another place"),
        )
    })?;
    Ok(folder)
}

/// The compiler's command line for each file, as the build system keeps it beside the file.
fn translations(folder: &Path) -> Result<Vec<String>> {
    let mut commands = Vec::new();
    for part in PARTS {
        for entry in
            fs::read_dir(folder.join(part)).with_context(|| format!("cannot read {}", folder.display()))?.flatten()
        {
            if entry.file_name().to_string_lossy().ends_with(".o.cmd") {
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                let command = text.lines().next().and_then(|line| line.split_once(" := "));
                commands.extend(
                    command.map(|(_, command)| command.to_owned()).filter(|command| command.contains(" -c -o ")),
                );
            }
        }
    }
    commands.sort();
    if commands.len() < cpus() {
        let sentence = format!("{} holds no built kernel; remove it, and it is made again", folder.display());
        return Err(Failure::error(Status::Failed, sentence));
    }
    Ok(commands)
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
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
    };
    let found = entries.map(|entry| entry.path()).filter(is_source).max();
    found.ok_or_else(|| {
        let sentence = "no kernel source in /usr/src; `apt-get install linux-source flex bison bc` brings it, or `scripts/setup bench`";
        Failure::error(Status::NoTarget, sentence)
    })
}

fn check_room() -> Result<()> {
    let folder = crate::scratch::parent()?;
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: all-zero is a valid statvfs.
    let mut disk: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated path, and a place that is ours.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut disk) } == 0 && disk.f_bavail * disk.f_frsize < DISK_BYTES {
        let sentence = format!(
            "the kernel build needs 2 GiB in {}, which has less; set TMPDIR to a larger place",
            folder.display()
        );
        return Err(Failure::error(Status::Failed, sentence));
    }
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    if available.is_some_and(|kilobytes| kilobytes << 10 < MEMORY_BYTES) {
        return Err(Failure::error(
            Status::Failed,
            "the kernel build needs 1 GiB of free memory; end something else first",
        ));
    }
    Ok(())
}

fn step(program: &str, arguments: &[OsString]) -> Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output =
        output.with_context(|| format!("cannot run {program}; `scripts/setup bench` installs what the build needs"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or("it printed nothing");
        let sentence = format!(
            "{program} could not prepare the kernel source: {last}; `scripts/setup bench` installs what it needs"
        );
        return Err(Failure::error(Status::Failed, sentence));
    }
    Ok(())
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
