//! Which of several types an object has, from the functions that took its lock.
//!
//! A generic cache (`kmalloc-192`) says an object's size, the event says at which offset which kind of lock lies.
//! Usually a handful of types fit both. The functions on the stack decide: they take a pointer to the type, or to
//! something that points to it, or are named after it.

use std::collections::HashMap;
use std::sync::Arc;

use lockmeter_profile::Kind;
use lockmeter_profile::lock_functions::{matches_pattern, serves_any_object};

use crate::btf::{Btf, TypeKind};
use crate::fields::{LockPath, LockTypes, ends_open};
use crate::slab_cache::SizeClass;
use crate::types::Defined;

/// A type that may be the object's.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub type_name: String,
    pub path: LockPath,
    /// Names of the types between the object and its lock.
    inner: Vec<String>,
    /// The outermost of them, where it has a name.
    first_inner: Option<String>,
}

impl Candidate {
    pub fn new(found: &Defined, path: LockPath) -> Self {
        let first_inner = path.through.get(1).and_then(|id| found.scope.get(*id)).map(|inner| inner.name().to_owned());
        let first_inner = first_inner.filter(|name| !name.is_empty());
        let inner = path.through.iter().skip(1).filter_map(|id| found.scope.get(*id));
        let inner = inner.map(|inner| inner.name().to_owned());
        let inner = inner.filter(|name| !name.is_empty() && !IN_EVERYTHING.contains(&name.as_str())).collect();
        Self { type_name: found.name().to_owned(), path, inner, first_inner }
    }
}

/// The name of the lock and its type, where all candidates begin with different types but share the one in them that
/// has the lock: `udp_sock` and `raw6_sock` are both an `inet_sock` first.
pub(crate) fn shared_field(candidates: &[Candidate]) -> Option<(String, String)> {
    let (first, others) = candidates.split_first()?;
    let shared = first.first_inner.as_ref().filter(|name| !IN_EVERYTHING.contains(&name.as_str()))?;
    let (_, below) = first.path.full.split_once('.')?;
    let is_same = |other: &Candidate| {
        other.first_inner.as_ref() == Some(shared)
            && other.path.full.split_once('.').is_some_and(|(_, other_below)| other_below == below)
    };
    let (_, field) = below.split_once('.')?;
    (!others.is_empty() && others.iter().all(is_same)).then(|| (format!("{shared}.{field}"), shared.clone()))
}

/// All types defined in `scope` whose objects are of this size class and have such a lock at `offset`.
pub(crate) fn candidates(
    scope: &Arc<Btf>,
    locks: LockTypes,
    class: SizeClass,
    offset: u64,
    kind: Kind,
) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for id in scope.ids() {
        let Some(outer) = scope.get(id).filter(|outer| outer.kind == TypeKind::Struct) else { continue };
        let Some(size) = scope.size_of(id).filter(|size| *size <= class.up_to && *size > 0) else { continue };
        if outer.name().is_empty() || IN_EVERYTHING.contains(&outer.name()) {
            continue;
        }
        let is_open = size <= class.above;
        if is_open && !ends_open(scope, id) {
            continue;
        }
        let path =
            if is_open { locks.at_in_open_array(scope, id, offset, kind) } else { locks.at(scope, id, offset, kind) };
        let Some(path) = path else { continue };
        if !found.iter().any(|known| known.type_name == outer.name()) {
            found.push(Candidate::new(&Defined { scope: Arc::clone(scope), id }, path));
        }
    }
    found
}

/// Functions that work on one type that their prototypes do not show. Patterns as in the table of sites.
#[rustfmt::skip]
const TYPES_BY_FUNCTION: &[(&[&str], &str)] = &[
    // fs/pipe.c, fs/splice.c: the pipe hangs on the file's or inode's private pointer
    (&[
        "pipe_*", "anon_pipe_*", "fifo_pipe_*", "fifo_open", "splice_*", "do_tee", "alloc_pipe_info",
    ], "pipe_inode_info"),
    // fs/eventpoll.c, fs/eventfd.c, fs/timerfd.c, fs/signalfd.c
    (&["ep_*", "__ep_*", "do_epoll_*", "eventpoll_*", "reverse_path_check*"], "eventpoll"),
    (&["eventfd_*"], "eventfd_ctx"),
    (&["timerfd_*"], "timerfd_ctx"),
    // fs/jbd2
    (&["jbd2_*", "start_this_handle", "add_transaction_credits", "kjournald2"], "journal_s"),
    // kernel/events, kernel/workqueue.c, kernel/audit*.c, fs/notify, io_uring
    (&["perf_event_*", "event_function*", "ctx_sched_*", "_perf_ioctl", "find_get_context"], "perf_event_context"),
    (&[
        "__queue_work", "worker_thread", "process_one_work", "create_worker", "worker_*", "flush_work",
    ], "worker_pool"),
    (&[
        "fsnotify_add_event", "fsnotify_insert_event", "inotify_read", "inotify_poll", "fsnotify_destroy_event",
    ], "fsnotify_group"),
    (&["io_uring_*", "io_submit_*", "io_cqring_*", "__do_sys_io_uring_*", "io_req_*", "io_issue_sqe"], "io_ring_ctx"),
    (&["io_wq_*", "io_worker_*", "io_wqe_*"], "io_wq_acct"),
    // ipc
    (&["do_semtimedop", "__do_semtimedop", "semctl_*", "do_semtimedop*"], "sem_array"),
    (&["do_msgsnd", "do_msgrcv", "do_mq_*"], "msg_queue"),
    // fs/kernfs, fs/super.c, fs/fs-writeback.c
    (&["kernfs_*"], "kernfs_root"),
    (&[
        "inode_sb_list_*", "evict", "new_inode", "iget_locked", "evict_inodes", "drop_pagecache_sb",
        "invalidate_inodes", "freeze_super", "thaw_super",
    ], "super_block"),
    (&[
        "wb_*", "inode_io_list_*", "__mark_inode_dirty", "writeback_*", "locked_inode_to_wb_and_lock_list",
        "__folio_end_writeback", "__folio_start_writeback", "folio_account_dirtied", "folio_account_cleaned",
    ], "bdi_writeback"),
    // drivers/tty
    (&["n_tty_*"], "n_tty_data"),
    (&["tty_port_*"], "tty_port"),
    (&["tty_*", "ptm_*", "pty_*"], "tty_struct"),
    // drivers/virtio, block
    (&["virtblk_*", "virtio_queue_rq*"], "virtio_blk_vq"),
    (&[
        "blk_mq_dispatch_*", "__blk_mq_sched_*", "blk_mq_sched_*", "blk_mq_get_tag", "blk_mq_mark_tag_wait",
    ], "blk_mq_hw_ctx"),
    (&["dd_*"], "deadline_data"),
    (&["bfq_*"], "bfq_data"),
    (&["kyber_*"], "kyber_queue_data"),
    // fs/ext4/ext4.h: the group locks of a file system hang on its super block
    (&[
        "ext4_free_inode", "__ext4_new_inode", "ext4_mb_*", "ext4_free_blocks", "ext4_*_bitmap*", "ext4_lock_group",
    ], "blockgroup_lock"),
    // net/netlink, net/packet, net/sched
    (&["netlink_*"], "netlink_sock"),
    (&["packet_*", "tpacket_*"], "packet_sock"),
    (&["__dev_xmit_skb", "qdisc_*", "net_tx_action", "__qdisc_run"], "Qdisc"),
    (&["fib6_*"], "fib6_table"),
    // kernel/futex/core.c: private tables from 6.16
    (&["futex_*", "__futex_*", "do_futex"], "futex_private_hash"),
    // mm
    (&["list_lru_*", "lock_list_lru_of_memcg"], "list_lru_memcg"),
    (&["swap_*", "scan_swap_map_slots", "cluster_*"], "swap_info_struct"),
    (&[
        "lru_*", "folio_lruvec_lock*", "folio_batch_move_lru", "shrink_lruvec", "folios_put_refs",
    ], "mem_cgroup_per_node"),
];

/// Types that so much points to that a pointer to them is weak evidence.
#[rustfmt::skip]
const HUBS: &[&str] = &[
    "task_struct",
    "mm_struct",
    "file",
    "inode",
    "net",
    "device",
    "page",
    "folio",
    "super_block",
    "net_device",
    "module",
    "cgroup",
    "cred",
    "user_namespace",
    "dentry",
    "sk_buff",
];

/// Types that lie in so many others that they stand for none.
#[rustfmt::skip]
pub(crate) const IN_EVERYTHING: &[&str] = &[
    "wait_queue_head",
    "swait_queue_head",
    "completion",
    "lockref",
    "mutex",
    "rw_semaphore",
    "percpu_rw_semaphore",
    "xarray",
    "idr",
    "ida",
    "kref",
    "rcuwait",
    "work_struct",
    "delayed_work",
    "timer_list",
    "hrtimer",
    "rcu_sync",
    "srcu_struct",
    "spinlock",
    "raw_spinlock",
    "rt_mutex",
    "rt_mutex_base",
    "semaphore",
    "klist",
    "kset",
    "percpu_counter",
    "ratelimit_state",
    "local_lock",
];

/// Words in the names of functions and types that say nothing of what they belong to.
#[rustfmt::skip]
const EMPTY_WORDS: &[&str] = &[
    "do", "sys", "x64", "se", "get", "put", "set", "new", "init", "free", "alloc", "kernel", "generic", "vfs", "lock",
    "unlock", "try", "wake", "add", "del", "list", "task", "work", "the", "to", "in", "by", "is", "struct", "info",
    "data", "read", "write", "file", "open", "release", "wait", "queue", "event", "node", "page", "dev", "device",
    "start", "stop", "run", "process",
];

/// How much a piece of evidence counts. Only their order and rough distance matter: a type in the prototype outweighs a
/// likeness of names, a listed function outweighs both, and one far pointer alone decides nothing.
mod weight {
    pub const LISTED: u32 = 14;
    pub const PARAMETER: u32 = 10;
    pub const EMBEDDED_PARAMETER: u32 = 6;
    pub const SAME_FIRST_WORD: u32 = 5;
    pub const SAME_WORD: u32 = 3;
    pub const ONE_POINTER_AWAY: u32 = 3;
    pub const ONE_POINTER_FROM_HUB: u32 = 1;
}

/// Functions above the lock's that count. The first counts eightfold, the last once.
const FUNCTIONS: u32 = 8;

/// Less than this decides nothing: a likeness of names in the innermost functions, or a parameter within reach.
const LEAST_SCORE: u32 = 30;

/// A type wins if its score is this many times (over two) the next one's.
const LEAST_LEAD_HALVES: u32 = 3;

/// What a stack says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Index of the winner among the candidates.
    pub candidate: usize,
    /// The strongest piece of evidence, in words.
    pub because: String,
}

/// The candidate that the functions (innermost first, without the lock's own) speak for.
pub(crate) fn judge<'s>(
    scopes: &[Arc<Btf>],
    candidates: &[Candidate],
    functions: impl Iterator<Item = &'s str>,
) -> Option<Verdict> {
    let mut scores = Scores::new(candidates);
    for (function, nearness) in functions.filter(|function| !serves_any_object(function)).zip((1..=FUNCTIONS).rev()) {
        scores.add_function(scopes, function, nearness);
    }
    scores.winner()
}

struct Scores<'a> {
    candidates: &'a [Candidate],
    by_type: HashMap<&'a str, usize>,
    scores: Vec<u32>,
    /// The strongest piece for each.
    reasons: Vec<(u32, String)>,
    /// The best likeness of names for each. It counts once: all functions of a subsystem begin with one word.
    alike: Vec<(u32, String)>,
}

impl<'a> Scores<'a> {
    fn new(candidates: &'a [Candidate]) -> Self {
        let by_type = candidates.iter().enumerate().map(|(at, candidate)| (candidate.type_name.as_str(), at)).collect();
        let reasons = vec![(0, String::new()); candidates.len()];
        Self { candidates, by_type, scores: vec![0; candidates.len()], alike: reasons.clone(), reasons }
    }

    fn add_function(&mut self, scopes: &[Arc<Btf>], function: &str, nearness: u32) {
        // The strongest evidence of each sort counts once a function, however many parameters repeat it.
        let mut best: HashMap<usize, (u32, String)> = HashMap::new();
        let mut note = |at: usize, weight: u32, reason: &dyn Fn() -> String| {
            let known = best.entry(at).or_default();
            if weight > known.0 {
                *known = (weight, reason());
            }
        };
        for scope in scopes {
            for taken in parameter_structs(scope, function) {
                let Some((type_id, taken)) = scope.strip(taken) else { continue };
                let name = taken.name();
                if let Some(at) = self.by_type.get(name) {
                    note(*at, weight::PARAMETER, &|| format!("{function}() takes a {name}"));
                }
                for (at, candidate) in self.candidates.iter().enumerate() {
                    if candidate.inner.iter().any(|inner| inner == name) {
                        note(at, weight::EMBEDDED_PARAMETER, &|| {
                            format!("{function}() takes a {name}, which is a part of it")
                        });
                    }
                }
                let far = if HUBS.contains(&name) { weight::ONE_POINTER_FROM_HUB } else { weight::ONE_POINTER_AWAY };
                for pointed in pointed_from(scope, type_id) {
                    if let Some(at) = self.by_type.get(pointed) {
                        note(*at, far, &|| format!("{function}() takes a {name}, which points to it"));
                    }
                }
            }
        }
        for (at, candidate) in self.candidates.iter().enumerate() {
            let type_name = candidate.type_name.as_str();
            let is_meant = |listed: &str| listed == type_name || candidate.inner.iter().any(|inner| inner == listed);
            if TYPES_BY_FUNCTION.iter().any(|(patterns, listed)| {
                is_meant(listed) && patterns.iter().any(|pattern| matches_pattern(pattern, function))
            }) {
                note(at, weight::LISTED, &|| format!("{function}() works on one"));
            }
            let alike = likeness(function, type_name) * nearness;
            if alike > self.alike[at].0 {
                self.alike[at] = (alike, format!("{function}() is named after it"));
            }
        }
        for (at, (weight, reason)) in best {
            let score = weight * nearness;
            self.scores[at] += score;
            if score > self.reasons[at].0 {
                self.reasons[at] = (score, reason);
            }
        }
    }

    fn winner(mut self) -> Option<Verdict> {
        for ((score, reason), (alike, named_after)) in self.scores.iter_mut().zip(&mut self.reasons).zip(self.alike) {
            *score += alike;
            if alike > reason.0 {
                *reason = (alike, named_after);
            }
        }
        let (candidate, best) = self.scores.iter().copied().enumerate().max_by_key(|(_, score)| *score)?;
        let rest = self.scores.iter().enumerate().filter(|(at, _)| *at != candidate);
        let second = rest.map(|(_, score)| *score).max().unwrap_or(0);
        let leads = best * 2 >= second * LEAST_LEAD_HALVES;
        (best >= LEAST_SCORE && leads)
            .then(|| Verdict { candidate, because: std::mem::take(&mut self.reasons[candidate].1) })
    }
}

/// The structs that a function takes pointers to.
fn parameter_structs<'b>(scope: &'b Btf, function: &'b str) -> impl Iterator<Item = u32> + 'b {
    let prototypes = scope.by_name(TypeKind::Function, function).filter_map(|id| scope.get(scope.get(id)?.target()));
    prototypes.flat_map(|prototype| prototype.parameters()).filter_map(|parameter| Some(scope.pointee(parameter)?.0))
}

/// Names of the structs that a struct's members point to.
fn pointed_from(scope: &Btf, struct_id: u32) -> impl Iterator<Item = &str> {
    let members = scope.get(struct_id).into_iter().flat_map(|outer| outer.members());
    members.filter_map(|member| Some(scope.pointee(member.type_id)?.1.name())).filter(|name| !name.is_empty())
}

/// How alike the names of a function and of a type are.
fn likeness(function: &str, type_name: &str) -> u32 {
    let words = |name| str::split(name, '_').filter(|word| word.len() > 1 && !EMPTY_WORDS.contains(word));
    let Some(first) = words(type_name).next() else { return 0 };
    match words(function).position(|word| word == first) {
        Some(0) => weight::SAME_FIRST_WORD,
        Some(_) => weight::SAME_WORD,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_alike_when_they_share_the_word_that_matters() {
        assert_eq!(likeness("pipe_write", "pipe_inode_info"), weight::SAME_FIRST_WORD);
        assert_eq!(likeness("do_pipe_flags", "pipe_inode_info"), weight::SAME_FIRST_WORD);
        assert_eq!(likeness("ext4_journal_start", "journal_s"), weight::SAME_WORD);
        assert_eq!(likeness("do_file_open", "file_lock"), 0);
        assert_eq!(likeness("", ""), 0);
    }
}
