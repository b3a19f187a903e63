//! The thread that a lock of a program names as its holder.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::comm::Comm;

/// What a lock of glibc's or the kernel's holds beside the id of its owner.
const OWNER: u32 = 0x3fff_ffff;

/// The thread's id, as its process knows it; `None` if the lock names nobody.
pub fn thread_id_of_owner(word: u32) -> Option<u32> {
    Some(word & OWNER).filter(|tid| *tid != 0)
}

/// Whether the threads of a process have other ids for themselves than for the kernel: in a container. Not said of one that has ended.
pub fn counts_threads_otherwise(tgid: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let (its, own) = (namespace(&tgid.to_string()), namespace("self"));
    its.is_some() && its != own
}

/// What a process calls the thread with this id.
pub fn inner_id(tgid: u32, tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tgid}/task/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().last()?.parse().ok()
}

/// What the kernel calls the threads that a process knows by these ids; `None` if both call them the same.
pub fn outer_ids(tgid: u32) -> Option<HashMap<u32, u32>> {
    if !counts_threads_otherwise(tgid) {
        return None;
    }
    let threads = fs::read_dir(format!("/proc/{tgid}/task")).ok()?.flatten();
    let outer = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Some(outer.filter_map(|outer| Some((inner_id(tgid, outer)?, outer))).collect())
}

/// The process and the name of the thread whose id stands there in the memory of a process; `is_shared`: it may be of another one.
pub fn holder_in_memory(tgid: u32, address: u64, is_shared: bool) -> Option<(u32, Comm)> {
    let mut word = [0; 4];
    File::open(format!("/proc/{tgid}/mem")).ok()?.read_exact_at(&mut word, address).ok()?;
    let tid = thread_id_of_owner(u32::from_ne_bytes(word))?;
    let tid = outer_ids(tgid).map_or(Some(tid), |outer| outer.get(&tid).copied())?;
    let thread = if is_shared { format!("/proc/{tid}") } else { format!("/proc/{tgid}/task/{tid}") };
    let status = fs::read_to_string(format!("{thread}/status")).ok()?;
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_ascii);
    let mut comm = Comm::default();
    let name = fs::read(format!("{thread}/comm")).ok()?;
    let name = name.trim_ascii_end();
    comm.get_mut(..name.len())?.copy_from_slice(name);
    Some((field("Tgid:")?.parse().ok()?, comm))
}
