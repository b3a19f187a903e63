//! Who a control group is: a systemd unit, a container, a pod. By its path, as the runtimes document theirs, and by what their state on
//! disk calls it.

use crate::runtime_names::{ContainerNames, KnownNames};

/// Who waited. What is not known is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Workload {
    /// The systemd unit, `[gone]` of a control group that had ended before it could be looked up, `[root]` of none.
    pub unit: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name, or its UID.
    pub pod: String,
    /// The container's name, or the first 12 digits of its id.
    pub container: String,
}

/// One value for all control groups that are gone, or there would be one for each.
const GONE: &str = "[gone]";
/// The root of the hierarchy.
const ROOT: &str = "[root]";

/// Digits of a container's id that runtimes print.
const SHOWN_DIGITS: usize = 12;
/// Digits of a whole id.
const ID_DIGITS: usize = 64;

impl Workload {
    /// Who is in the control group of this path; `id:N` is one that is gone.
    pub fn of_cgroup(path: &str, names: &mut KnownNames) -> Self {
        // The memory controller's own hierarchy has the same folders.
        let path = path.strip_prefix("memory:").unwrap_or(path);
        if path.starts_with("id:") || path.is_empty() {
            return Self { unit: GONE.to_owned(), ..Self::default() };
        }
        let folders: Vec<&str> = path.split('/').filter(|folder| !folder.is_empty()).collect();
        let container = folders.iter().rev().find_map(|folder| container_id(folder)).unwrap_or("");
        let pod = folders.iter().rev().find_map(|folder| pod_uid(folder)).unwrap_or_default();
        let unit = if !pod.is_empty() || !container.is_empty() { "" } else { unit(&folders) };
        let unit = if folders.is_empty() { ROOT } else { unit };
        let named = if container.is_empty() { None } else { names.names(container) };
        let ContainerNames { namespace, pod: pod_name, container: name } = named.cloned().unwrap_or_default();
        let shown_id = &container[..SHOWN_DIGITS.min(container.len())];
        Self {
            unit: unit.to_owned(),
            namespace,
            pod: if pod_name.is_empty() { pod } else { pod_name },
            container: if name.is_empty() { shown_id.to_owned() } else { name },
        }
    }
}

/// The id in the name of a container's folder: by the systemd driver `docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID.scope`,
/// `libpod-ID.scope`; by the cgroupfs driver `ID`, `crio-ID`, `libpod-ID`. A monitor beside a container (`crio-conmon-ID`) is none.
fn container_id(folder: &str) -> Option<&str> {
    let name = folder.strip_suffix(".scope").unwrap_or(folder);
    let name = ["docker-", "cri-containerd-", "crio-", "libpod-"]
        .iter()
        .find_map(|runtime| name.strip_prefix(runtime))
        .unwrap_or(name);
    // containerd's own form: `kubepods-…-podUID.slice:cri-containerd:ID`.
    let name = name.rsplit_once(":cri-containerd:").map_or(name, |(_, id)| id);
    let is_id = name.len() == ID_DIGITS && name.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_id.then_some(name)
}

/// The UID in `kubepods-burstable-podUID.slice` (with `_` for `-`, for systemd nests slices by that) or `podUID`.
fn pod_uid(folder: &str) -> Option<String> {
    let folder = folder.split_once(':').map_or(folder, |(slice, _)| slice);
    let uid = match folder.strip_suffix(".slice") {
        Some(slice) if slice.starts_with("kubepods") => slice.rsplit_once("-pod")?.1,
        Some(_) => return None,
        None => folder.strip_prefix("pod")?,
    };
    let uid = uid.replace('_', "-");
    // A static pod's UID is a hash without dashes.
    let fits = |letter: u8| letter.is_ascii_hexdigit() || letter == b'-';
    (matches!(uid.len(), 32 | 36) && uid.bytes().all(fits)).then_some(uid)
}

/// The innermost service, scope or other unit; else the innermost slice; else the first folder.
fn unit<'a>(folders: &[&'a str]) -> &'a str {
    const UNITS: [&str; 6] = [".service", ".scope", ".socket", ".mount", ".swap", ".timer"];
    let is_unit = |folder: &&&str| UNITS.iter().any(|ending| folder.ends_with(ending));
    let is_slice = |folder: &&&str| folder.ends_with(".slice");
    let found = folders.iter().rev().find(is_unit).or_else(|| folders.iter().rev().find(is_slice));
    found.or(folders.first()).copied().unwrap_or(ROOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_names::RuntimeState;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const UID: &str = "2c48913c-b29f-11e7-9350-020968147796";

    fn check(path: &str, unit: &str, pod: &str, container: &str) {
        let workload =
            Workload { unit: unit.into(), namespace: String::new(), pod: pod.into(), container: container.into() };
        let nowhere = RuntimeState::below("/nonexistent");
        assert_eq!(Workload::of_cgroup(path, &mut KnownNames::new(nowhere)), workload, "{path}");
    }

    #[test]
    fn systemd_units_are_the_innermost_of_a_path() {
        check("/system.slice/nginx.service", "nginx.service", "", "");
        check("/system.slice/system-postgresql.slice/postgresql@15-main.service", "postgresql@15-main.service", "", "");
        check("/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope", "app-x.scope", "", "");
        check("/user.slice/user-1000.slice", "user-1000.slice", "", "");
        check("/machine.slice", "machine.slice", "", "");
        check("/system.slice/nginx.service/worker", "nginx.service", "", "");
        check("/", "[root]", "", "");
        check("/mine/below", "mine", "", "");
    }

    #[test]
    fn groups_that_are_gone_are_one() {
        check("id:4711", "[gone]", "", "");
        check("", "[gone]", "", "");
    }

    #[test]
    fn containers_of_docker_and_podman_are_known_with_both_drivers() {
        check(&format!("/system.slice/docker-{ID}.scope"), "", "", &ID[..12]);
        check(&format!("/docker/{ID}"), "", "", &ID[..12]);
        check(&format!("memory:/docker/{ID}"), "", "", &ID[..12]);
        check(&format!("/machine.slice/libpod-{ID}.scope/container"), "", "", &ID[..12]);
        check(&format!("/libpod_parent/libpod-{ID}"), "", "", &ID[..12]);
        let rootless = "/user.slice/user-1000.slice/user@1000.service/user.slice";
        check(&format!("{rootless}/libpod-{ID}.scope"), "", "", &ID[..12]);
    }

    #[test]
    fn pods_and_their_containers_are_known_under_containerd_and_crio_with_both_drivers() {
        let slice = format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_"));
        let systemd = format!("/kubepods.slice/kubepods-besteffort.slice/{slice}");
        check(&format!("{systemd}/cri-containerd-{ID}.scope"), "", UID, &ID[..12]);
        check(&format!("{systemd}/crio-{ID}.scope"), "", UID, &ID[..12]);
        check(&systemd, "", UID, "");
        check(&format!("/kubepods/burstable/pod{UID}/{ID}"), "", UID, &ID[..12]);
        check(&format!("/kubepods/pod{UID}/crio-{ID}"), "", UID, &ID[..12]);
        check(&format!("/system.slice/containerd.service/{slice}:cri-containerd:{ID}"), "", UID, &ID[..12]);
        let hash = "0123456789abcdef0123456789abcdef";
        check(&format!("/kubepods/burstable/pod{hash}/{ID}"), "", hash, &ID[..12]);
    }

    #[test]
    fn names_of_the_runtime_take_the_place_of_ids() {
        let root = tempfile::tempdir().unwrap();
        let bundle = root.path().join("run/containerd/io.containerd.runtime.v2.task/k8s.io").join(ID);
        std::fs::create_dir_all(&bundle).unwrap();
        let config = r#"{"annotations":{"io.kubernetes.cri.container-name":"app","io.kubernetes.cri.sandbox-name":"shop",
            "io.kubernetes.cri.sandbox-namespace":"prod"}}"#;
        std::fs::write(bundle.join("config.json"), config).unwrap();
        let mut names = KnownNames::new(RuntimeState::below(root.path()));
        let slice = format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
        let paths = [
            format!("/kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-{ID}.scope"),
            format!("/kubepods/burstable/pod{UID}/{ID}"),
            format!("memory:/kubepods/burstable/pod{UID}/{ID}"),
        ];
        for path in paths {
            let found = Workload::of_cgroup(&path, &mut names);
            assert_eq!(
                [&found.unit, &found.namespace, &found.pod, &found.container],
                ["", "prod", "shop", "app"],
                "{path}"
            );
        }
        let other = ID.replace('0', "f");
        let found = Workload::of_cgroup(&format!("/kubepods/pod{UID}/{other}"), &mut names);
        assert_eq!([&found.namespace, &found.pod, &found.container], ["", UID, &other[..12]]);
    }

    #[test]
    fn what_only_looks_like_a_container_is_none() {
        check(&format!("/kubepods/pod{UID}/crio-conmon-{ID}"), "", UID, "");
        check("/system.slice/docker.service", "docker.service", "", "");
        check("/podman/pod", "podman", "", "");
        check(&format!("/docker/{}", &ID[1..]), "docker", "", "");
        check(&format!("/docker/{}", ID.to_uppercase()), "docker", "", "");
        check("/kubepods.slice", "kubepods.slice", "", "");
    }
}
