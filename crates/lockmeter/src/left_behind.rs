//! What a metered command started and left running, such as a daemon: metering ends with the command.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;

use lockmeter_cli::messages::say;
use lockmeter_render::units::counted;

/// This many are named in a sentence.
const NAMED: usize = 3;

/// An environment is read up to here: the kernel lets a program begin with one of a few megabytes, and change it to any size.
const MOST_ENVIRONMENT_BYTES: u64 = 8 << 20;

/// A process that outlives the command.
struct LeftBehind {
    pid: u32,
    comm: String,
}

/// Says which processes outlive the command that was started with this environment, if any do.
pub fn say_what_is(environment: &[(&'static str, OsString)]) {
    let left = with_environment(environment);
    if !left.is_empty() {
        say(Sentence(&left));
    }
}

/// The processes that began with the first of these variables as it is: it names a directory that no other recorder uses.
fn with_environment(environment: &[(&'static str, OsString)]) -> Vec<LeftBehind> {
    let Some((name, value)) = environment.first() else { return Vec::new() };
    let variable = [name.as_bytes(), b"=", value.as_bytes()].concat();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // One that has ended shows no environment; one of another user's is not ours to look at.
    let is_ours = |pid: &u32| {
        let Ok(environment) = File::open(format!("/proc/{pid}/environ")) else { return false };
        let entries = BufReader::new(environment.take(MOST_ENVIRONMENT_BYTES)).split(0);
        entries.map_while(Result::ok).any(|entry| entry == variable)
    };
    let named = |pid| {
        // The kernel bounds it, and it may be any bytes.
        let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        LeftBehind { pid, comm: String::from_utf8_lossy(&comm).trim_end().to_owned() }
    };
    pids.filter(is_ours).map(named).collect()
}

/// The sentence about them.
struct Sentence<'a>(&'a [LeftBehind]);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let (processes, they) = (counted(count as u64, "process", "processes"), if count == 1 { "it" } else { "they" });
        write!(f, "lockmeter: {processes} that the command started still ran after its end (")?;
        for (at, LeftBehind { pid, comm }) in self.0.iter().take(NAMED).enumerate() {
            write!(f, "{}{comm}, PID {pid}", if at == 0 { "" } else { "; " })?;
        }
        let more = if count > NAMED { "; …" } else { "" };
        write!(
            f,
            "{more}): what {they} did since is not metered; keep a daemon in the foreground, or meter it with `record -p PID`"
        )
    }
}
