//! BPF programs as the kernel shows them: whose they are, and how long they ran.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use bench_bpf_runs::Runs;
use libbpf_rs::query::ProgInfoIter;

/// The three tracepoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllRuns {
    pub begin: Runs,
    pub end: Runs,
    pub waking: Runs,
}

impl std::ops::Sub for AllRuns {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { begin: self.begin - earlier.begin, end: self.end - earlier.end, waking: self.waking - earlier.waking }
    }
}

/// The names of the programs on the three tracepoints.
pub type Names = [&'static str; 3];

pub const EMPTY: Names = ["empty_begin", "empty_end", "empty_waking"];
/// As the contention programs are called; the kernel cuts names at 15 characters.
pub const LOCKMETER: Names = ["contention_begin", "contention_end", "sched_waking"];

const NAME_LENGTH: usize = 15;

/// Runs of this process's programs of these names. They grow only while statistics are on.
pub fn own_runs(names: Names) -> Result<AllRuns> {
    let own = bench_bpf_runs::own();
    let runs = |name: &str| own.get(&name[..name.len().min(NAME_LENGTH)]).copied();
    let [Some(begin), Some(end), Some(waking)] = names.map(runs) else {
        bail!("expected one program each of {names:?} in this process, found {:?}", own.keys());
    };
    Ok(AllRuns { begin, end, waking })
}

/// How many programs a process holds.
pub fn held_by(pid: u32) -> usize {
    programs_of(&pid.to_string()).count()
}

/// The programs that are ours. The kernel frees and lists them for a while after they were detached and closed.
#[derive(Debug, Default)]
pub struct OwnPrograms {
    ids: BTreeSet<u32>,
}

impl OwnPrograms {
    /// Those that this process holds now.
    pub fn remember_own(&mut self) {
        self.ids.extend(programs_of("self"));
    }

    /// Those that a child holds now.
    pub fn remember_child(&mut self, pid: u32) {
        self.ids.extend(programs_of(&pid.to_string()));
    }

    /// Programs of others that look like meters of lock contention: while they run, nothing here is bare.
    pub fn foreign_meters(&self) -> usize {
        let looks_like_one = |name: &str| name.starts_with("contention_") || name.starts_with("tracepoint_lock");
        ProgInfoIter::default()
            .filter(|program| looks_like_one(&program.name.to_string_lossy()) && !self.ids.contains(&program.id))
            .count()
    }
}

/// Kernel memory of this process's maps as the kernel accounts for it, task storage apart.
pub fn own_map_bytes() -> u64 {
    let mut maps: Vec<(u64, u64)> = Vec::new();
    for (_, text) in descriptors("self") {
        if let (Some(id), Some(bytes)) = (number_after(&text, "map_id:"), number_after(&text, "memlock:")) {
            maps.push((id, bytes));
        }
    }
    maps.sort_unstable();
    maps.dedup();
    maps.into_iter().map(|(_, bytes)| bytes).sum()
}

/// A task may still be in a program that was just detached or whose timing was just switched.
pub const SETTLE: Duration = Duration::from_millis(20);

/// Descriptors that are programs, not links to them.
fn descriptors_of_programs(pid: &str) -> impl Iterator<Item = (i32, String)> {
    descriptors(pid).into_iter().filter(|(_, text)| text.contains("prog_jited:"))
}

fn programs_of(pid: &str) -> impl Iterator<Item = u32> {
    descriptors_of_programs(pid).filter_map(|(_, text)| number_after(&text, "prog_id:")?.try_into().ok())
}

fn descriptors(pid: &str) -> Vec<(i32, String)> {
    let folder: PathBuf = ["/proc", pid, "fdinfo"].iter().collect();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let fd = entry.file_name().to_str()?.parse().ok()?;
            // One that was closed meanwhile is none.
            Some((fd, std::fs::read_to_string(entry.path()).ok()?))
        })
        .collect()
}

fn number_after(text: &str, label: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(label)).and_then(|number| number.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_after_its_label_at_the_start_of_a_line() {
        let text = "pos:\t0\nprog_type:\t26\nprog_id:\t4711\n";
        assert_eq!(number_after(text, "prog_id:"), Some(4711));
        assert_eq!(number_after(text, "map_id:"), None);
    }

    #[test]
    fn a_process_without_programs_holds_none() {
        assert_eq!(held_by(std::process::id()), 0);
    }
}
