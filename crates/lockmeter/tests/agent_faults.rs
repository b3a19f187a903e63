//! The agent when something goes wrong: it is killed, its disk is full, another one runs, it may not meter, or it costs too much.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use support::agent::{Agent, get};
use support::{
    BINARY, Folder, Load, bpf_programs_of, json, lockmeter, machine, pinned_objects, program_exists, run, signal, text,
    until, wait,
};

/// A load that contends for kernel locks.
fn load() -> Load {
    Load::start("file-pos", &["--rate", "5000"])
}

fn recordings(folder: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Intervals of a recording, which must be readable.
fn intervals(path: &Path) -> u64 {
    let report = json(lockmeter(["report", "--format", "json", path.to_str().unwrap()]));
    report["intervals"].as_u64().unwrap()
}

/// Kills agents in the midst of a recording, at different moments, and looks at what is left.
fn kill_at_random(times: u32) {
    let folder = Folder::new();
    let recordings_folder = folder.file("recordings");
    let pinned = pinned_objects();
    let _load = load();
    let config = format!("[recorder]\nfolder = \"{recordings_folder}\"\nafter = \"1h\"\nmost_recordings = 1000");
    for round in 0..times {
        let mut agent = Agent::plain(&folder, &config);
        let programs = bpf_programs_of(agent.pid());
        assert!(programs.len() >= 8, "the agent's programs cannot be seen: {programs:?}");
        let metered = || agent.sum("lockmeter_agent_intervals_total", "");
        until("it meters", || metered() > 0.0);
        signal(agent.pid(), libc::SIGUSR1);
        thread::sleep(Duration::from_millis(u64::from(round) * 1_237 % 3_000));
        let before = metered() as u64;
        agent.child.kill().unwrap();
        wait(&mut agent.child, "the killed agent");
        until("the killed agent's programs are gone", || !programs.iter().any(|id| program_exists(*id)));
        let left = recordings(&recordings_folder);
        // Killed before it began to write, it leaves nothing. Else the interval may be missing that was being written, and no other.
        let written = left.last().map_or(0, |newest| intervals(newest));
        assert!(left.len() <= round as usize + 1, "{left:?}");
        assert!(left.len() <= round as usize || written + 1 >= before, "round {round}: {written} of {before}");
    }
    let left = recordings(&recordings_folder);
    let is_named = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("flight-");
    assert!(!left.is_empty() && left.iter().all(is_named), "{left:?}");
    assert_eq!(pinned_objects(), pinned, "something is left in /sys/fs/bpf");
}

#[test]
fn killed_at_any_moment_it_loses_an_interval_at_most_and_leaves_nothing_behind() {
    let Some(_machine) = machine("killed agents") else { return };
    kill_at_random(4);
}

#[test]
#[ignore = "minutes; make test-all runs it"]
fn killed_at_fifty_moments_it_loses_an_interval_at_most_and_leaves_nothing_behind() {
    let Some(_machine) = machine("fifty killed agents") else { return };
    kill_at_random(50);
}

#[test]
fn two_agents_meter_the_same_and_a_third_at_a_taken_address_says_so() {
    let Some(_machine) = machine("two agents") else { return };
    let (folder, other_folder) = (Folder::new(), Folder::new());
    let agents = [Agent::plain(&folder, ""), Agent::plain(&other_folder, "")];
    let _load = load();
    let waits = |agent: &Agent| agent.sum("lockmeter_lock_wait_seconds_count", "f_pos_lock");
    until("both have metered the load", || agents.iter().all(|agent| waits(agent) > 0.0));
    let config = folder.file("taken.toml");
    fs::write(&config, format!("listen = \"{}\"\n", agents[0].address)).unwrap();
    let ended = run(lockmeter(["agent", "--config", &config]));
    let said = text(&ended.stderr);
    assert!(ended.status.code() == Some(1) && said.contains("give another address as `listen`"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for agent in agents {
        assert_eq!(agent.end(), Some(0));
    }
}

/// A file system of its own, with hardly any room.
struct Tiny(String);

impl Tiny {
    fn mount(path: String) -> Self {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", &path]);
        assert!(run(mount).status.success());
        Self(path)
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        unmount.args(["--lazy", &self.0]);
        run(unmount);
    }
}

#[test]
fn a_full_disk_fails_a_recording_and_leaves_no_half_one() {
    let Some(_machine) = machine("an agent and a full disk") else { return };
    let folder = Folder::new();
    let disk = Tiny::mount(folder.file("recordings"));
    let filler = format!("{}/filler", disk.0);
    // Until no page is left.
    let _ = fs::write(&filler, vec![0; 8 << 20]);
    let agent = Agent::plain(&folder, &format!("[recorder]\nfolder = \"{}\"\nafter = \"1s\"", disk.0));
    let counted = |result: &str| agent.sum("lockmeter_agent_recordings_total", &format!("result=\"{result}\""));
    until("it meters", || agent.sum("lockmeter_agent_intervals_total", "") > 1.0);
    signal(agent.pid(), libc::SIGUSR1);
    until("it has failed", || counted("failed") == 1.0);
    assert!(agent.has_said("No space left on device"));
    assert_eq!(recordings(&disk.0), [Path::new(&filler)], "half a recording");
    fs::remove_file(&filler).unwrap();
    signal(agent.pid(), libc::SIGUSR1);
    until("it is written", || counted("written") == 1.0);
    assert!(intervals(&recordings(&disk.0)[0]) > 1);
    assert_eq!(agent.end(), Some(0));
}

#[test]
fn without_capabilities_it_says_what_to_add_to_its_unit_or_container() {
    let Some(_machine) = machine("an agent without capabilities") else { return };
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin,-bpf,-perfmon", "--inh-caps=-all", "--", BINARY, "agent"]);
    let ended = run(command);
    let said = text(&ended.stderr);
    assert_eq!((ended.status.code(), said.lines().count()), (Some(3), 1), "{said}");
    for part in ["CapabilityBoundingSet=", "hostPID: true", "add: [BPF, PERFMON, SYSLOG, SYS_PTRACE, DAC_READ_SEARCH]"]
    {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_kernel_without_type_information_is_named_as_the_cause() {
    let Some(_machine) = machine("an agent without BTF") else { return };
    let folder = Folder::new();
    let script = format!("mount --bind {} /sys/kernel/btf; exec {BINARY} agent", folder.path().display());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", &script]).stdin(Stdio::null());
    let ended = run(command);
    let said = text(&ended.stderr);
    assert!(ended.status.code() == Some(3) && said.contains("BTF"), "{said}");
    assert!(!said.contains("hostPID"), "capabilities are not what it lacks: {said}");
}

#[test]
fn beyond_its_budget_it_sheds_detail_after_detail_and_says_so() {
    let Some(_machine) = machine("an agent with a tiny budget") else { return };
    let folder = Folder::new();
    let agent = Agent::plain(&folder, "cpu_budget_percent = 0.001");
    let _load = load();
    let metered = |detail: &str| agent.sum("lockmeter_agent_detail_metered", detail);
    for detail in ["latency", "programs", "threads"] {
        until("it is shed", || metered(detail) == 0.0);
    }
    // What it said when shows that it was one after another, also if nobody asked in between.
    assert_eq!(
        agent.said_after("metering less, to keep the cpu budget: "),
        ["kernel locks, programs, threads", "kernel locks, threads", "kernel locks only"]
    );
    assert_eq!(agent.sum("lockmeter_agent_details_shed_total", "cpu"), 3.0);
    assert!(agent.sum("lockmeter_agent_budget_used_ratio", "cpu") > 1.0);
    let waits = || agent.sum("lockmeter_lock_wait_seconds_count", "f_pos_lock");
    // What was metered before is in the next interval's metrics.
    let intervals = || agent.sum("lockmeter_agent_intervals_total", "");
    let shed_at = intervals();
    until("what was metered before is counted", || intervals() >= shed_at + 2.0);
    let of_threads = || agent.sum("lockmeter_thread_seconds_total", "");
    let (before, seconds) = (waits(), of_threads());
    until("waits for kernel locks are metered on", || waits() > before);
    assert_eq!(of_threads(), seconds, "the time of threads is metered all the same");
    // A budget that is kept brings them back with the next reload.
    let config = fs::read_to_string(&agent.config).unwrap().replace("0.001", "100.0");
    fs::write(&agent.config, config).unwrap();
    signal(agent.pid(), libc::SIGHUP);
    until("everything is metered again", || metered("") == 3.0);
    assert_eq!(get(&agent.address, "/metrics", "").0, 200);
    assert_eq!(agent.end(), Some(0));
}
