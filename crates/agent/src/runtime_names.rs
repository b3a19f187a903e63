//! What runtimes call a container and its pod, as their state on disk says. No runtime is asked: where its socket is differs, and a question
//! may take long.
//!
//! | runtime | file | by |
//! |---|---|---|
//! | containerd, also of k3s | `io.containerd.runtime.v2.task/NAMESPACE/ID/config.json` | annotations `io.kubernetes.cri.*` (containerd `pkg/cri/annotations`) |
//! | Docker, also behind cri-dockerd | `/var/lib/docker/containers/ID/config.v2.json` | `Name`; labels `io.kubernetes.*` (kubelet `types/labels.go`) |
//! | CRI-O | `overlay-containers/ID/userdata/config.json` | annotations `io.kubernetes.*` (CRI-O `pkg/annotations`) |
//! | Podman | `overlay-containers/containers.json` | `names` (containers/storage `containers.go`) |

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde_json::Value;

/// What a container is called. What is not known is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerNames {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
}

/// Where containerd keeps its bundles, by default and under k3s.
const BUNDLES: [&str; 2] =
    ["run/containerd/io.containerd.runtime.v2.task", "run/k3s/containerd/io.containerd.runtime.v2.task"];
/// Where Docker keeps what it knows of containers.
const DOCKER: &str = "var/lib/docker/containers";
/// Where containers/storage keeps what is there for a run and what is there for longer.
const STORAGE: [&str; 2] =
    ["run/containers/storage/overlay-containers", "var/lib/containers/storage/overlay-containers"];

/// What files of a container may be large; a pod's specification takes tens of kilobytes.
const MOST_BYTES: u64 = 4 << 20;

/// Names of annotations or labels: of the namespace, the pod and the container.
type Keys = [&'static str; 3];
const OF_CONTAINERD: Keys =
    ["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.container-name"];
const OF_KUBELET: Keys = ["io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.container.name"];

/// Reads what is below a root.
pub struct RuntimeState {
    root: PathBuf,
}

impl RuntimeState {
    /// Of the machine whose root this is.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// What the container of this whole id is called; `None` if no runtime's state says so, or may be read.
    pub fn names(&self, id: &str) -> Option<ContainerNames> {
        self.of_containerd(id).or_else(|| self.of_docker(id)).or_else(|| self.of_storage(id))
    }

    fn of_containerd(&self, id: &str) -> Option<ContainerNames> {
        BUNDLES.iter().find_map(|bundles| {
            let bundles = self.root.join(bundles);
            let namespaces = std::fs::read_dir(bundles).ok()?.flatten();
            let mut found = namespaces.filter_map(|namespace| json(&namespace.path().join(id).join("config.json")));
            found.find_map(|config| named(config.get("annotations")?, OF_CONTAINERD))
        })
    }

    fn of_docker(&self, id: &str) -> Option<ContainerNames> {
        let config = json(&self.root.join(DOCKER).join(id).join("config.v2.json"))?;
        let of_pod = config.pointer("/Config/Labels").and_then(|labels| named(labels, OF_KUBELET));
        let name = || config.get("Name")?.as_str().map(|name| name.trim_start_matches('/').to_owned());
        of_pod.or_else(|| Some(ContainerNames { container: name()?, ..ContainerNames::default() }))
    }

    fn of_storage(&self, id: &str) -> Option<ContainerNames> {
        STORAGE.iter().find_map(|storage| {
            let storage = self.root.join(storage);
            let config = json(&storage.join(id).join("userdata/config.json"));
            let of_pod = config.and_then(|config| named(config.get("annotations")?, OF_KUBELET));
            of_pod.or_else(|| {
                let containers = json(&storage.join("containers.json"))?;
                let entry = containers.as_array()?.iter().find(|entry| entry.get("id").is_some_and(|of| of == id))?;
                let container = entry.pointer("/names/0")?.as_str()?.to_owned();
                Some(ContainerNames { container, ..ContainerNames::default() })
            })
        })
    }
}

/// Of annotations or labels; a pod's own container, which keeps its network, has no name.
fn named(texts: &Value, keys: Keys) -> Option<ContainerNames> {
    let [namespace, pod, container] = keys.map(|key| texts.get(key).and_then(Value::as_str).unwrap_or("").to_owned());
    (!pod.is_empty()).then_some(ContainerNames { namespace, pod, container })
}

/// The content of a file of root, or of our own, that nobody else has put there.
fn json(path: &Path) -> Option<Value> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).ok()?;
    let data = file.metadata().ok()?;
    let is_trusted = data.uid() == 0 || data.uid() == geteuid().as_raw();
    if !data.is_file() || !is_trusted {
        return None;
    }
    // One that is longer is cut, and so no JSON.
    let mut text = Vec::new();
    File::take(file, MOST_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Names that were looked up, whether there were any or not.
pub struct KnownNames {
    state: RuntimeState,
    known: HashMap<String, Known>,
    round: u64,
}

struct Known {
    names: Option<ContainerNames>,
    looked: u64,
    used: u64,
}

/// A container without a name is looked up again after this many rounds: its runtime may have written its files since.
const ROUNDS_WITHOUT: u64 = 30;
/// One that nobody asked for during this many rounds is forgotten.
const ROUNDS_UNUSED: u64 = 360;

impl KnownNames {
    /// Nothing yet.
    pub fn new(state: RuntimeState) -> Self {
        Self { state, known: HashMap::new(), round: 0 }
    }

    /// As [`RuntimeState::names`], from memory where that is possible.
    pub fn names(&mut self, id: &str) -> Option<&ContainerNames> {
        let (state, round) = (&self.state, self.round);
        let look = || Known { names: state.names(id), looked: round, used: round };
        let known = self.known.entry(id.to_owned()).or_insert_with(look);
        if known.names.is_none() && round - known.looked >= ROUNDS_WITHOUT {
            *known = look();
        }
        known.used = round;
        known.names.as_ref()
    }

    /// An interval has ended.
    pub fn end_round(&mut self) {
        self.round += 1;
        let round = self.round;
        self.known.retain(|_, known| round - known.used < ROUNDS_UNUSED);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// A root with one file, as a runtime writes it.
    fn root(path: &str, text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        root
    }

    fn names(path: &str, text: &str) -> Option<ContainerNames> {
        RuntimeState::below(root(path, text).path()).names(ID)
    }

    fn expected(namespace: &str, pod: &str, container: &str) -> Option<ContainerNames> {
        Some(ContainerNames { namespace: namespace.into(), pod: pod.into(), container: container.into() })
    }

    #[test]
    fn a_pods_container_is_named_by_containerd_also_under_k3s() {
        let config = r#"{"ociVersion":"1.1.0","process":{"user":{"uid":0}},"annotations":{
            "io.kubernetes.cri.container-name":"app","io.kubernetes.cri.container-type":"container",
            "io.kubernetes.cri.sandbox-id":"feed","io.kubernetes.cri.sandbox-name":"shop-7d4f-x2x9k",
            "io.kubernetes.cri.sandbox-namespace":"prod","io.kubernetes.cri.sandbox-uid":"2c48913c"}}"#;
        for bundles in BUNDLES {
            let found = names(&format!("{bundles}/k8s.io/{ID}/config.json"), config);
            assert_eq!(found, expected("prod", "shop-7d4f-x2x9k", "app"));
        }
    }

    #[test]
    fn the_container_that_keeps_a_pods_network_has_the_pods_name_only() {
        let config = r#"{"annotations":{"io.kubernetes.cri.container-type":"sandbox",
            "io.kubernetes.cri.sandbox-name":"shop","io.kubernetes.cri.sandbox-namespace":"prod"}}"#;
        let found = names(&format!("{}/k8s.io/{ID}/config.json", BUNDLES[0]), config);
        assert_eq!(found, expected("prod", "shop", ""));
    }

    #[test]
    fn dockers_containers_have_their_name_or_their_pods() {
        let path = format!("{DOCKER}/{ID}/config.v2.json");
        let alone = format!(r#"{{"ID":"{ID}","Name":"/web","Config":{{"Hostname":"x","Labels":{{}}}}}}"#);
        assert_eq!(names(&path, &alone), expected("", "", "web"));
        let of_pod = r#"{"Name":"/k8s_app_shop_prod_uid_0","Config":{"Labels":{"io.kubernetes.container.name":"app",
            "io.kubernetes.pod.name":"shop","io.kubernetes.pod.namespace":"prod"}}}"#;
        assert_eq!(names(&path, of_pod), expected("prod", "shop", "app"));
    }

    #[test]
    fn containers_of_crio_have_their_pods_names_and_those_of_podman_their_own() {
        let config = r#"{"annotations":{"io.kubernetes.container.name":"app","io.kubernetes.pod.name":"shop",
            "io.kubernetes.pod.namespace":"prod","io.kubernetes.cri-o.ContainerType":"container"}}"#;
        for storage in STORAGE {
            let found = names(&format!("{storage}/{ID}/userdata/config.json"), config);
            assert_eq!(found, expected("prod", "shop", "app"));
        }
        let containers = format!(
            r#"[{{"id":"beef","names":["other"]}},{{"id":"{ID}","names":["web"],"image":"9f","layer":"8a","metadata":"{{}}"}}]"#
        );
        let path = format!("{}/containers.json", STORAGE[1]);
        assert_eq!(names(&path, &containers), expected("", "", "web"));
    }

    #[test]
    fn what_is_no_state_of_a_runtime_names_nobody() {
        let path = format!("{}/k8s.io/{ID}/config.json", BUNDLES[0]);
        for text in
            ["", "{", "[]", "{}", r#"{"annotations":[]}"#, r#"{"annotations":{"io.kubernetes.cri.sandbox-name":7}}"#]
        {
            assert_eq!(names(&path, text), None, "{text}");
        }
        let large =
            format!(r#"{{"annotations":{{"io.kubernetes.cri.sandbox-name":"shop"}},"x":"{}"}}"#, "x".repeat(5 << 20));
        assert_eq!(names(&path, &large), None);
        // A link, as a container could have left one in a volume that somebody mounts there.
        let root = root("elsewhere.json", r#"{"annotations":{"io.kubernetes.cri.sandbox-name":"shop"}}"#);
        let link = root.path().join(&path);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(root.path().join("elsewhere.json"), &link).unwrap();
        assert_eq!(RuntimeState::below(root.path()).names(ID), None);
    }

    #[test]
    fn names_are_looked_up_once_and_again_only_where_there_were_none() {
        let path = format!("{DOCKER}/{ID}/config.v2.json");
        let root = root("empty", "");
        let mut known = KnownNames::new(RuntimeState::below(root.path()));
        assert_eq!(known.names(ID), None);
        let file = root.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, r#"{"Name":"/web"}"#).unwrap();
        (1..ROUNDS_WITHOUT).for_each(|_| known.end_round());
        assert_eq!(known.names(ID), None, "not again at once");
        known.end_round();
        assert_eq!(known.names(ID).cloned(), expected("", "", "web"));
        fs::remove_file(&file).unwrap();
        (0..2 * ROUNDS_WITHOUT).for_each(|_| known.end_round());
        assert_eq!(known.names(ID).cloned(), expected("", "", "web"), "the container may be gone by now");
        (0..ROUNDS_UNUSED).for_each(|_| known.end_round());
        assert!(known.known.is_empty());
    }
}
