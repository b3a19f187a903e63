//! Whom the agent's metrics name as waiting: a container that a real runtime has begun, by the names in its state on disk.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::agent::Agent;
use support::{BINARY, Folder, machine, run, skip, text, until, wait, workload_path};

/// As containerd keeps a pod's containers, below its state.
const BUNDLES: &str = "io.containerd.runtime.v2.task/k8s.io";
const POD_UID: &str = "2c48913c-b29f-11e7-9350-020968147796";

/// A container begun by runc, from a bundle as containerd's CRI plugin writes them.
struct Container {
    id: String,
    bundle: PathBuf,
    runc: Child,
}

impl Container {
    fn start(state: &Path, workload: &str) -> Self {
        // As many digits as an id has, and another for each run.
        let id = format!("{:064x}", u128::from(std::process::id()) << 64 | 0xfeed);
        let bundle = state.join(BUNDLES).join(&id);
        fs::create_dir_all(bundle.join("rootfs/tmp")).unwrap();
        let mut spec = Command::new("runc");
        spec.arg("spec").current_dir(&bundle);
        assert!(run(spec).status.success());
        let file = bundle.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let program = workload_path(workload);
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!([program, "--seconds", "600"]);
        config["process"]["capabilities"] = json!({});
        config["root"]["readonly"] = json!(false);
        config["linux"]["cgroupsPath"] = json!(format!("/kubepods/burstable/pod{POD_UID}/{id}"));
        config["annotations"] = json!({
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.container-name": "app",
            "io.kubernetes.cri.sandbox-name": "shop-7d4f",
            "io.kubernetes.cri.sandbox-namespace": "prod",
        });
        let mounts = config["mounts"].as_array_mut().unwrap();
        for shared in ["/usr", "/lib", "/lib64", "/bin", program.parent().unwrap().to_str().unwrap()] {
            let options = ["rbind", "ro"];
            mounts.push(json!({ "destination": shared, "source": shared, "type": "bind", "options": options }));
        }
        fs::write(&file, config.to_string()).unwrap();
        let mut runc = Command::new("runc");
        runc.args(["run", "--bundle"]).arg(&bundle).arg(&id).stdin(Stdio::null()).stdout(Stdio::null());
        let runc = runc.spawn().unwrap();
        Self { id, bundle, runc }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let mut kill = Command::new("runc");
        kill.args(["delete", "--force", &self.id]);
        run(kill);
        wait(&mut self.runc, "the container");
        let _ = fs::remove_dir_all(&self.bundle);
    }
}

#[test]
fn a_containers_waits_have_the_names_of_its_pod() {
    let Some(_machine) = machine("a container's names") else { return };
    let version = Command::new("runc").arg("--version").output();
    if !version.as_ref().is_ok_and(|version| version.status.success()) {
        return skip("a container's names", "there is no runc");
    }
    let folder = Folder::new();
    let state = folder.path().join("containerd");
    let container = Container::start(&state, "file-pos");
    // The machine's own /run stays as it is.
    let script = format!(
        "mount -t tmpfs tmpfs /run; mkdir /run/containerd; mount --bind {} /run/containerd; exec {BINARY} \"$@\"",
        state.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", &script, "sh"]);
    let agent = Agent::start(&folder, "workloads = true", command);
    let waits = |labels: &str| agent.sum("lockmeter_workload_lock_waits_total", labels);
    until("the container waits", || waits("namespace=\"prod\",pod=\"shop-7d4f\",container=\"app\"") > 0.0);
    assert_eq!(waits(POD_UID), 0.0, "{}", agent.metrics());
    drop(container);
    assert_eq!(agent.end(), Some(0), "{}", text(&version.unwrap().stdout));
}
