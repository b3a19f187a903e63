//! Static objects that can be reached by following pointers, on kernels that list no variables.
//!
//! Every task leads to `init_task`, and from there pointers lead to the first instance of most things a task has. The
//! list of tasks leads to the page reclaimers, each of which knows its memory node.

use lockmeter_profile::Kind;

use crate::btf::Btf;
use crate::fields::{LockPath, LockTypes};
use crate::memory::KernelMemory;

/// An object, its type, and the fields to follow from `init_task` (each a pointer).
struct Route {
    object: &'static str,
    type_name: &'static str,
    steps: &'static [(&'static str, &'static str)],
    /// The last pointer points to this field of the object.
    embedded: Option<&'static str>,
}

const fn route(object: &'static str, type_name: &'static str, steps: &'static [(&'static str, &'static str)]) -> Route {
    Route { object, type_name, steps, embedded: None }
}

const ROUTES: &[Route] = &[
    route("init_task", "task_struct", &[]),
    route("root_task_group", "task_group", &[("task_struct", "sched_task_group")]),
    route("init_signals", "signal_struct", &[("task_struct", "signal")]),
    route("init_sighand", "sighand_struct", &[("task_struct", "sighand")]),
    route("init_files", "files_struct", &[("task_struct", "files")]),
    route("init_fs", "fs_struct", &[("task_struct", "fs")]),
    route("init_struct_pid", "pid", &[("task_struct", "thread_pid")]),
    route("init_nsproxy", "nsproxy", &[("task_struct", "nsproxy")]),
    route("init_net", "net", &[("task_struct", "nsproxy"), ("nsproxy", "net_ns")]),
    route("init_ipc_ns", "ipc_namespace", &[("task_struct", "nsproxy"), ("nsproxy", "ipc_ns")]),
    route("init_pid_ns", "pid_namespace", &[("task_struct", "nsproxy"), ("nsproxy", "pid_ns_for_children")]),
    route("init_cred", "cred", &[("task_struct", "cred")]),
    route("init_user_ns", "user_namespace", &[("task_struct", "cred"), ("cred", "user_ns")]),
    route("root_user", "user_struct", &[("task_struct", "cred"), ("cred", "user")]),
    route("init_css_set", "css_set", &[("task_struct", "cgroups")]),
    Route {
        object: "cgrp_dfl_root",
        type_name: "cgroup_root",
        steps: &[("task_struct", "cgroups"), ("css_set", "dfl_cgrp")],
        embedded: Some("cgrp"),
    },
];

/// Symbols whose type has another name, for kernels that do list variables.
const TYPES_OF_SYMBOLS: &[(&str, &str)] = &[
    ("contig_page_data", "pglist_data"),
    ("init_mm", "mm_struct"),
    ("efi_mm", "mm_struct"),
    ("init_uts_ns", "uts_namespace"),
    ("boot_kmem_cache_node", "kmem_cache_node"),
    ("def_root_domain", "root_domain"),
    ("noop_backing_dev_info", "backing_dev_info"),
];

/// Parents to climb and tasks to pass before the kernel's memory is taken to be something else than thought.
const MOST_TASKS: usize = 1024;

#[derive(Debug)]
struct Landmark {
    object: &'static str,
    type_id: u32,
    start: u64,
    size: u64,
}

/// The objects found.
#[derive(Debug, Default)]
pub(crate) struct Landmarks {
    found: Vec<Landmark>,
}

impl Landmarks {
    /// Follows the routes from any task.
    pub fn find(btf: &Btf, memory: &impl KernelMemory, task: u64) -> Self {
        let mut landmarks = Self::default();
        let Some(init) = init_task(btf, memory, task) else { return landmarks };
        for route in ROUTES {
            if let Some(start) = follow(btf, memory, init, route) {
                landmarks.add(btf, route.object, route.type_name, start);
            }
        }
        for node in memory_nodes(btf, memory, init).unwrap_or_default() {
            landmarks.add(btf, "a memory node", "pglist_data", node);
        }
        landmarks
    }

    fn add(&mut self, btf: &Btf, object: &'static str, type_name: &str, start: u64) {
        let Some(type_id) = btf.struct_named(type_name) else { return };
        let size = btf.size_of(type_id).unwrap_or(0);
        self.found.push(Landmark { object, type_id, start, size });
    }

    /// The lock at this address, its object's type and which object it is.
    pub fn lock_at(
        &self,
        btf: &Btf,
        locks: LockTypes,
        address: u64,
        kind: Kind,
    ) -> Option<(LockPath, String, &'static str)> {
        let landmark = self.found.iter().find(|mark| address.wrapping_sub(mark.start) < mark.size)?;
        let path = locks.at(btf, landmark.type_id, address - landmark.start, kind)?;
        Some((path, btf.get(landmark.type_id)?.name().to_owned(), landmark.object))
    }

    #[cfg(test)]
    pub fn start_of(&self, object: &str) -> Option<u64> {
        self.found.iter().find(|mark| mark.object == object).map(|mark| mark.start)
    }

    /// The objects found, for a report on what this kernel allows.
    pub fn objects(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.found.iter().map(|mark| mark.object)
    }
}

/// The type of a symbol that names a static object.
pub(crate) fn type_of_symbol(symbol: &str) -> Option<&'static str> {
    let route = ROUTES.iter().find(|route| route.object == symbol).map(|route| route.type_name);
    route.or_else(|| TYPES_OF_SYMBOLS.iter().find(|(known, _)| *known == symbol).map(|(_, type_name)| *type_name))
}

fn read(memory: &impl KernelMemory, address: u64) -> Option<u64> {
    memory.read_u64(address).ok().filter(|value| *value != 0)
}

fn at(btf: &Btf, type_name: &str, field: &str) -> Option<u64> {
    btf.offset_of(type_name, field).map(u64::from)
}

/// The task that is its own parent.
fn init_task(btf: &Btf, memory: &impl KernelMemory, mut task: u64) -> Option<u64> {
    let parent_at = at(btf, "task_struct", "real_parent")?;
    for _ in 0..MOST_TASKS {
        let parent = read(memory, task.wrapping_add(parent_at))?;
        if parent == task {
            return Some(task);
        }
        task = parent;
    }
    None
}

fn follow(btf: &Btf, memory: &impl KernelMemory, init: u64, route: &Route) -> Option<u64> {
    let mut address = init;
    for (type_name, field) in route.steps {
        address = read(memory, address.wrapping_add(at(btf, type_name, field)?))?;
    }
    match route.embedded {
        Some(field) => Some(address.wrapping_sub(at(btf, route.type_name, field)?)),
        None => Some(address),
    }
}

/// `kswapdN` is a kernel thread whose data is its node, which in turn points to its thread.
fn memory_nodes(btf: &Btf, memory: &impl KernelMemory, init: u64) -> Option<Vec<u64>> {
    let next_at = at(btf, "task_struct", "tasks")?;
    let comm_at = at(btf, "task_struct", "comm")?;
    let thread_at = at(btf, "task_struct", "worker_private").or_else(|| at(btf, "task_struct", "set_child_tid"))?;
    let data_at = at(btf, "kthread", "data")?;
    let reclaimer_at = at(btf, "pglist_data", "kswapd")?;
    let node_of = |task: u64| {
        let thread = read(memory, task.wrapping_add(thread_at))?;
        let node = read(memory, thread.wrapping_add(data_at))?;
        (read(memory, node.wrapping_add(reclaimer_at)) == Some(task)).then_some(node)
    };
    let mut nodes = Vec::new();
    let mut task = init;
    for _ in 0..MOST_TASKS {
        task = read(memory, task.wrapping_add(next_at))?.wrapping_sub(next_at);
        if task == init {
            break;
        }
        let mut comm = [0; 6];
        if memory.read(task.wrapping_add(comm_at), &mut comm).is_err() {
            break;
        }
        if &comm == b"kswapd" {
            nodes.extend(node_of(task));
        } else if !nodes.is_empty() {
            // They are started one after the other.
            break;
        }
    }
    Some(nodes)
}
