//! The agent's shipped unit under a real systemd: it is told when the agent is ready, reloads it, and starts it again when it hangs.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::agent::get;
use support::{BINARY, Folder, child_of, machine, run, signal, skip, text, until, wait};

const SYSTEMD: &str = "/lib/systemd/systemd";

/// A systemd that is the first process of its own name spaces, and knows no unit but ours and a few empty ones.
struct Systemd {
    outside: Child,
    groups: Vec<String>,
}

impl Systemd {
    fn start(folder: &Folder, address: &str) -> Self {
        // Where systemd keeps its groups: of a hybrid hierarchy both.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let fields = |line: &str| (line.split(' ').nth(4).unwrap_or("").to_owned(), line.to_owned());
        let hierarchies: Vec<(String, String)> = mounts
            .lines()
            .filter(|line| line.contains(" - cgroup2 ") || line.contains("name=systemd"))
            .map(fields)
            .collect();
        let name = format!("lockmeter-systemd-{}", std::process::id());
        let groups: Vec<String> = hierarchies.iter().map(|(mount, _)| format!("{mount}/{name}")).collect();
        let mut script = String::new();
        for (mount, line) in &hierarchies {
            let kind =
                if line.contains(" - cgroup2 ") { "cgroup2 cgroup2" } else { "cgroup -o none,name=systemd cgroup" };
            // A mount shows the name space's groups only if it was made inside.
            script += &format!("umount {mount}; mount -t {kind} {mount}\n");
        }
        let here = folder.path().display();
        let binaries = Path::new(BINARY).parent().unwrap().display();
        let unit =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/lockmeter-agent.service").canonicalize().unwrap();
        script += &format!(
            "mount -t proc proc /proc
            for hidden in /run /var/lib /etc/systemd/system /etc/init.d /usr/lib/systemd/system \
                /usr/lib/systemd/system-generators; do mount -t tmpfs tmpfs $hidden; done
            mkdir -p /run/systemd/system /etc/systemd/system/lockmeter-agent.service.d
            for target in sysinit basic shutdown multi-user umount; do
                echo '[Unit]' >/usr/lib/systemd/system/$target.target
            done
            cp {} /etc/systemd/system/
            cat >/etc/systemd/system/lockmeter-agent.service.d/test.conf <<END
[Service]
ExecStart=
ExecStart={BINARY} agent --config {here}/agent.toml
WatchdogSec=4
RestartSec=1
StandardError=append:{here}/said
# It has a /tmp of its own, and all this may lie in the other.
BindReadOnlyPaths={binaries} {here}
END
            export container=lockmeter-test
            exec {SYSTEMD} --system --unit=multi-user.target --log-target=null\n",
            unit.display()
        );
        fs::write(
            folder.file("agent.toml"),
            format!("listen = \"{address}\"\ninterval = \"1s\"\n[recorder]\nafter = \"1s\"\n"),
        )
        .unwrap();
        let enter: String =
            groups.iter().map(|group| format!("mkdir {group}; echo $$ >{group}/cgroup.procs\n")).collect();
        let own = "exec unshare --pid --fork --mount --propagation private --cgroup --ipc --kill-child sh -ec \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-ec", &format!("{enter}{own}"), "sh", &script]);
        let outside = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let systemd = Self { outside, groups };
        until("systemd is up", || systemd.control(&["is-system-running"]).contains("running"));
        systemd
    }

    /// What `systemctl` says.
    fn control(&self, arguments: &[&str]) -> String {
        let Some(first) = child_of(self.outside.id()) else { return String::new() };
        let mut command = Command::new("nsenter");
        command.args(["-t", &first.to_string(), "--mount", "--pid", "--cgroup", "systemctl"]).args(arguments);
        let output = run(command);
        text(&output.stdout) + &text(&output.stderr)
    }

    fn property(&self, name: &str) -> String {
        self.control(&["show", "--value", "--property", name, "lockmeter-agent"]).trim().to_owned()
    }

    /// The agent's process, as this side of the name space counts it.
    fn agent(&self, folder: &Folder) -> u32 {
        let config = folder.file("agent.toml");
        let is_agent = |pid: &u32| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| text(&line).contains(&config) && text(&line).contains("agent"))
                && child_of(self.outside.id()) == parent_of(*pid)
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_agent).unwrap()
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

impl Drop for Systemd {
    fn drop(&mut self) {
        if let Some(first) = child_of(self.outside.id()) {
            // With the first process of a name space all of it ends.
            signal(first, libc::SIGKILL);
        }
        wait(&mut self.outside, "systemd");
        for group in &self.groups {
            let mut remove = Command::new("find");
            remove.args([group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]);
            run(remove);
        }
    }
}

#[test]
fn systemd_starts_its_unit_reloads_it_and_starts_it_again_when_it_hangs() {
    let Some(_machine) = machine("the unit under systemd") else { return };
    if !Path::new(SYSTEMD).exists() {
        return skip("the unit under systemd", "there is no systemd");
    }
    let folder = Folder::new();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let systemd = Systemd::start(&folder, &address);
    let said = || fs::read_to_string(folder.file("said")).unwrap_or_default();
    let started = systemd.control(&["start", "lockmeter-agent"]);
    assert_eq!((systemd.property("ActiveState").as_str(), started.as_str()), ("active", ""), "{}", said());
    // It is called started only when it serves.
    let metrics = || get(&address, "/metrics", "").1;
    assert!(metrics().contains("lockmeter_agent_info"), "{}", said());
    until("it meters under its unit's restrictions", || {
        metrics().contains("lockmeter_thread_seconds_total{state=\"running\"}")
    });
    assert!(metrics().contains("lockmeter_agent_detail_metered{detail=\"programs\"} 1"), "{}", said());

    let first = systemd.property("WatchdogTimestampMonotonic");
    until("systemd hears that it goes on", || systemd.property("WatchdogTimestampMonotonic") != first);
    assert_eq!(systemd.control(&["reload", "lockmeter-agent"]), "");
    until("it has read its configuration again", || {
        metrics().contains("lockmeter_agent_reloads_total{result=\"done\"} 1")
    });

    let hung = systemd.agent(&folder);
    signal(hung, libc::SIGSTOP);
    until("systemd has started it again", || systemd.property("NRestarts") == "1");
    until("it serves again", || metrics().contains("lockmeter_agent_info"));
    assert_ne!(systemd.agent(&folder), hung);
    signal(systemd.agent(&folder), libc::SIGUSR1);
    until("it writes into its state directory", || {
        metrics().contains("lockmeter_agent_recordings_total{trigger=\"signal\",result=\"written\"} 1")
    });

    assert_eq!(systemd.control(&["stop", "lockmeter-agent"]), "");
    let ended = ["ActiveState", "Result", "ExecMainStatus"].map(|name| systemd.property(name));
    assert_eq!(ended, ["inactive", "success", "0"], "{}", said());
}
