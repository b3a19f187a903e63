//! What a slab cache's name says about the objects in it.

use std::collections::HashMap;

/// Caches whose name is not their objects' type. Several types: the first that this kernel has and that fits.
const TYPES: &[(&str, &[&str])] = &[
    ("9p_inode_cache", &["v9fs_inode"]),
    ("AF_VSOCK", &["vsock_sock"]),
    ("MPTCP", &["mptcp_sock"]),
    ("MPTCPv6", &["mptcp6_sock", "mptcp_sock"]),
    ("PING", &["inet_sock"]),
    ("PINGv6", &["raw6_sock"]),
    ("RAW", &["raw_sock"]),
    ("RAWv6", &["raw6_sock"]),
    ("SCTP", &["sctp_sock"]),
    ("SCTPv6", &["sctp6_sock"]),
    ("TCP", &["tcp_sock"]),
    ("TCPv6", &["tcp6_sock"]),
    ("UDP", &["udp_sock"]),
    ("UDP-Lite", &["udp_sock"]),
    ("UDPLITEv6", &["udp6_sock"]),
    ("UDPv6", &["udp6_sock"]),
    ("UNIX", &["unix_sock"]),
    ("UNIX-STREAM", &["unix_sock"]),
    ("bdev_cache", &["bdev_inode"]),
    ("bfilp", &["backing_file"]),
    ("blkdev_ioc", &["io_context"]),
    ("btrfs_extent_buffer", &["extent_buffer"]),
    ("cifs_inode_cache", &["cifsInodeInfo"]),
    ("cred_jar", &["cred"]),
    ("dax_cache", &["dax_device"]),
    ("eventpoll_epi", &["epitem"]),
    ("eventpoll_pwq", &["eppoll_entry"]),
    ("ext4_groupinfo_4k", &["ext4_group_info"]),
    ("fat_inode_cache", &["msdos_inode_info"]),
    ("file_lock_ctx", &["file_lock_context"]),
    ("files_cache", &["files_struct"]),
    ("filp", &["file"]),
    ("fs_cache", &["fs_struct"]),
    ("inode_cache", &["inode"]),
    ("ip4-frags", &["ipq"]),
    ("isofs_inode_cache", &["iso_inode_info"]),
    ("jbd2_journal_head", &["journal_head"]),
    ("jbd2_transaction_s", &["transaction_s"]),
    ("kernfs_iattrs_cache", &["kernfs_iattrs"]),
    ("kernfs_node_cache", &["kernfs_node"]),
    ("key_jar", &["key"]),
    ("kvm_mmu_page_header", &["kvm_mmu_page"]),
    ("mnt_cache", &["mount"]),
    ("net_namespace", &["net"]),
    ("nf_conntrack", &["nf_conn"]),
    ("nfs_inode_cache", &["nfs_inode"]),
    ("numa_policy", &["mempolicy"]),
    ("posix_timers_cache", &["k_itimer"]),
    ("proc_inode_cache", &["proc_inode"]),
    ("radix_tree_node", &["xa_node", "radix_tree_node"]),
    ("request_sock_subflow_v4", &["mptcp_subflow_request_sock"]),
    ("request_sock_subflow_v6", &["mptcp_subflow_request_sock"]),
    ("rpc_inode_cache", &["rpc_inode"]),
    ("sighand_cache", &["sighand_struct"]),
    ("signal_cache", &["signal_struct"]),
    ("skbuff_fclone_cache", &["sk_buff_fclones"]),
    ("skbuff_head_cache", &["sk_buff"]),
    ("sock_inode_cache", &["socket_alloc"]),
    ("uid_cache", &["user_struct"]),
    ("xfs_buf_item", &["xfs_buf_log_item"]),
    ("xfs_ili", &["xfs_inode_log_item"]),
    ("xt_hashlimit", &["dsthash_ent"]),
];

/// Endings of cache names, and what to put in their place to get a type's name.
const ENDINGS: &[(&str, &[&str])] = &[
    ("_inode_cache", &["_inode_info", "_inode", "_i"]),
    ("_cachep", &["", "_struct", "_s"]),
    ("_cache", &["", "_struct", "_s", "_info"]),
    ("_slab", &["", "_struct"]),
    ("_struct", &[""]),
    ("", &["_struct", "_s", "_info"]),
];

/// The types whose objects a cache of this name may hold, the likeliest first.
pub(crate) fn types_in(cache: &str) -> Vec<String> {
    if let Ok(at) = TYPES.binary_search_by_key(&cache, |(name, _)| name) {
        return TYPES[at].1.iter().map(|name| (*name).to_owned()).collect();
    }
    // `pid_2` holds a `pid` of a second-level namespace, `request_sock_TCP` and `bio-184` are families of one type.
    let family = cache.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['_', '-']);
    let mut names = vec![cache.to_owned()];
    if let Some(protocol) = cache.strip_prefix("request_sock_") {
        let protocol = protocol.trim_end_matches("v6").to_ascii_lowercase();
        names.push(format!("{protocol}_request_sock"));
    }
    if let Some(protocol) = cache.strip_prefix("tw_sock_") {
        let protocol = protocol.trim_end_matches("v6").to_ascii_lowercase();
        names.push(format!("{protocol}_timewait_sock"));
    }
    for (ending, replacements) in ENDINGS {
        if let Some(stem) = cache.strip_suffix(ending) {
            names.extend(replacements.iter().map(|replacement| format!("{stem}{replacement}")));
        }
    }
    if family != cache && !family.is_empty() {
        names.push(family.to_owned());
    }
    names
}

/// The sizes of objects that a generic cache takes: more than `above`, at most `up_to` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeClass {
    pub above: u64,
    pub up_to: u64,
}

/// The kernel's own size classes (`mm/slab_common.c`).
const CLASSES: &[u64] = &[0, 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// The size class of a generic cache: `kmalloc-192`, `kmalloc-cg-1k`, `kmalloc-rnd-03-64`, `dma-kmalloc-96`,
/// `msg_msg-8k`.
pub(crate) fn size_class(cache: &str) -> Option<SizeClass> {
    let is_generic =
        ["kmalloc-", "dma-kmalloc-", "msg_msg-", "memdup_user-"].iter().any(|name| cache.starts_with(name));
    let size = cache.rsplit('-').next().filter(|_| is_generic)?;
    let size = match size.strip_suffix('k') {
        Some(kilobytes) => kilobytes.parse::<u64>().ok()?.checked_mul(1024)?,
        None => size.parse().ok()?,
    };
    size_class_of(size)
}

/// The size class that ends at this size.
fn size_class_of(size: u64) -> Option<SizeClass> {
    let above = *CLASSES.iter().rev().find(|class| **class < size)?;
    Some(SizeClass { above, up_to: size })
}

/// Caches that the kernel merged because their objects are of one size: all names for each one's first name.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    /// Cache name → directory that stands for the merged cache.
    merged: HashMap<String, String>,
}

impl Aliases {
    /// Reads which cache names share a cache; empty where the kernel does not say.
    pub fn from_sys() -> Self {
        let entries = std::fs::read_dir("/sys/kernel/slab").into_iter().flatten().flatten();
        let merged = entries.filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            Some((entry.file_name().into_string().ok()?, target.file_name()?.to_str()?.to_owned()))
        });
        Self { merged: merged.collect() }
    }

    #[cfg(test)]
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        Self { merged: pairs.iter().map(|(name, target)| ((*name).to_owned(), (*target).to_owned())).collect() }
    }

    /// All cache names that share the cache of this name, itself first.
    pub fn sharing<'a>(&'a self, cache: &'a str) -> Vec<&'a str> {
        let mut others: Vec<&str> = match self.merged.get(cache) {
            Some(target) => {
                let same = self.merged.iter().filter(|(name, other)| *other == target && name.as_str() != cache);
                same.map(|(name, _)| name.as_str()).collect()
            }
            None => Vec::new(),
        };
        others.sort_unstable();
        others.insert(0, cache);
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_types_is_sorted_so_that_it_can_be_searched() {
        assert!(TYPES.is_sorted_by_key(|(name, _)| name));
    }

    #[test]
    fn a_caches_name_leads_to_its_type() {
        for (cache, name) in [
            ("mm_struct", "mm_struct"),
            ("filp", "file"),
            ("sighand_cache", "sighand_struct"),
            ("ext4_inode_cache", "ext4_inode_info"),
            ("tracefs_inode_cache", "tracefs_inode"),
            ("userfaultfd_ctx_cache", "userfaultfd_ctx"),
            ("pid_2", "pid"),
            ("bio-184", "bio"),
            ("request_sock_TCPv6", "tcp_request_sock"),
            ("tw_sock_TCP", "tcp_timewait_sock"),
            ("jbd2_transaction_s", "transaction_s"),
        ] {
            assert!(types_in(cache).iter().any(|candidate| candidate == name), "{cache} holds {name}");
        }
    }

    #[test]
    fn generic_caches_have_a_size_class() {
        let class = |above, up_to| Some(SizeClass { above, up_to });
        assert_eq!(size_class("kmalloc-192"), class(128, 192));
        assert_eq!(size_class("kmalloc-cg-1k"), class(512, 1024));
        assert_eq!(size_class("kmalloc-rnd-03-64"), class(32, 64));
        assert_eq!(size_class("dma-kmalloc-96"), class(64, 96));
        assert_eq!(size_class("kmalloc-rcl-8k"), class(4096, 8192));
        assert_eq!(size_class("bio-184"), None);
        assert_eq!(size_class("kmalloc-x"), None);
    }

    #[test]
    fn merged_caches_are_known_by_all_their_names() {
        let aliases = Aliases::of(&[("pid", ":A-192"), ("cred", ":A-192"), ("other", ":0-8")]);
        assert_eq!(aliases.sharing("pid"), ["pid", "cred"]);
        assert_eq!(aliases.sharing("alone"), ["alone"]);
    }
}
