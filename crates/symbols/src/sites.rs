//! Locks known by the functions that take them: static ones on kernels that list no variables, and locks in arrays,
//! vmalloc memory and kernel stacks, which no type leads to.
//!
//! An entry belongs here only if its functions, when they wait for a lock of this kind *in such memory*, wait for this
//! one. The source file that shows it stands beside each entry. Fields are checked against the kernel's types, so an
//! entry for another version's field is skipped.

use lockmeter_profile::Kind;
use lockmeter_profile::lock_functions::matches_pattern;

/// In which memory an entry's lock lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The kernel's image.
    Static,
    /// Anything but the image: boot-time tables, vmalloc, kernel stacks, per-CPU chunks, arrays in generic slab caches.
    Elsewhere,
}

/// A lock and the functions that take no other of its kind in such memory.
pub(crate) struct Site {
    /// A symbol, or `struct.field`.
    pub name: &'static str,
    pub kinds: &'static [Kind],
    pub memory: Memory,
    /// Whole names, or beginnings that end in `*`.
    pub functions: &'static [&'static str],
}

const fn fixed(name: &'static str, kinds: &'static [Kind], functions: &'static [&'static str]) -> Site {
    Site { name, kinds, memory: Memory::Static, functions }
}

const fn elsewhere(name: &'static str, kinds: &'static [Kind], functions: &'static [&'static str]) -> Site {
    Site { name, kinds, memory: Memory::Elsewhere, functions }
}

const SPIN: &[Kind] = &[Kind::Spin];
const RWLOCK: &[Kind] = &[Kind::Rwlock];
const MUTEX: &[Kind] = &[Kind::Mutex];
const RWSEM: &[Kind] = &[Kind::Rwsem];
const PERCPU: &[Kind] = &[Kind::PercpuRwsem];

/// The table. Where two entries match the same function, the first wins.
#[rustfmt::skip]
pub(crate) const SITES: &[Site] = &[
    // kernel/fork.c, kernel/exit.c, kernel/ptrace.c, kernel/signal.c, kernel/sys.c
    fixed("tasklist_lock", RWLOCK, &[
        "copy_process", "release_task", "do_exit", "exit_notify", "do_wait", "__do_wait", "wait_task_zombie",
        "wait_consider_task", "exit_ptrace", "ptrace_*", "kill_something_info", "kill_pid_info*", "ksys_setsid",
        "__do_sys_setsid", "sys_setsid", "sys_setpgid", "__do_sys_setpgid", "forget_original_parent",
        "mm_update_next_owner", "send_sigio", "send_sigurg", "__do_sys_setpriority", "__do_sys_getpriority",
        "do_prlimit", "disassociate_ctty", "session_clear_tty", "zap_pid_ns_processes", "de_thread",
        "find_child_reaper", "do_tkill", "do_send_specific", "__do_SAK", "wait_task_continued", "wait_task_stopped",
    ]),
    // kernel/cgroup/cgroup.c
    fixed("cgroup_threadgroup_rwsem", PERCPU, &[
        "cgroup_can_fork", "cgroup_css_set_fork", "copy_process", "exit_signals", "begin_new_exec",
        "cgroup_attach_lock", "cgroup_procs_write*", "__cgroup_procs_write", "cgroup_update_dfl_csses", "de_thread",
        "cgroup_attach_task_all", "cgroup_transfer_tasks", "cgroup_post_fork", "__x64_sys_execve", "bprm_execve",
    ]),
    fixed("cgroup_mutex", MUTEX, &[
        "cgroup_kn_lock_live", "cgroup_mkdir", "cgroup_rmdir", "cgroup_lock_and_drain_offline", "proc_cgroup_show",
        "css_killed_work_fn", "css_release_work_fn", "css_free_rwork_fn", "cgroup_procs_write*",
        "cgroup_subtree_control_write", "cgroup_setup_root", "cgroup_destroy_root", "cgroup_do_get_tree",
        "proc_cgroupstats_show", "cgroup_bpf_prog_attach", "cgroup_bpf_release",
    ]),
    fixed("css_set_lock", SPIN, &[
        "cgroup_post_fork", "cgroup_css_set_fork", "cgroup_exit", "cgroup_task_exit", "cgroup_release",
        "cgroup_task_release", "cgroup_task_dead", "find_css_set", "put_css_set*", "cgroup_migrate*",
        "cgroup_attach_task", "css_task_iter_*", "proc_cgroup_show", "cgroup_css_set_put_fork", "task_get_cgroup1",
    ]),
    fixed("cgroup_file_kn_lock", SPIN, &["cgroup_file_notify", "cgroup_file_show", "cgroup_addrm_files"]),
    fixed("cgroup_rstat_lock", SPIN, &["__cgroup_rstat_lock", "cgroup_rstat_flush*"]),
    // kernel/events/hw_breakpoint.c: a percpu-rwsem and per-task mutexes since 6.1, one mutex before
    fixed("bp_cpuinfo_sem", PERCPU, &[
        "bp_constraints_lock", "reserve_bp_slot", "release_bp_slot", "modify_bp_slot", "register_perf_hw_breakpoint",
        "hw_breakpoint_event_init", "bp_perf_event_destroy", "modify_user_hw_breakpoint*", "hw_breakpoint_is_used",
        "dbg_reserve_bp_slot",
    ]),
    fixed("nr_bp_mutex", MUTEX, &[
        "reserve_bp_slot", "release_bp_slot", "modify_bp_slot", "register_perf_hw_breakpoint",
        "bp_perf_event_destroy",
    ]),
    // kernel/events/core.c
    fixed("pmus_lock", MUTEX, &["perf_pmu_register", "perf_pmu_unregister", "perf_event_sysfs_init"]),
    fixed("perf_sched_mutex", MUTEX, &["account_event", "perf_event_alloc"]),
    fixed("pmu.events_lock", SPIN, &["perf_event_alloc", "__free_event"]),
    // kernel/events/uprobes.c, lib/percpu_counter.c
    fixed("delayed_uprobe_lock", MUTEX, &["uprobe_clear_state", "delayed_uprobe_*", "update_ref_ctr"]),
    fixed("percpu_counters_lock", SPIN, &[
        "percpu_counter_destroy*", "__percpu_counter_init*", "percpu_counter_cpu_dead",
    ]),
    // net/core/rtnetlink.c, net/core/net_namespace.c, net/core/dev.c
    fixed("rtnl_mutex", MUTEX, &[
        "rtnl_lock", "rtnl_lock_killable", "rtnl_trylock", "rtnetlink_rcv_msg", "rtnl_newlink", "rtnl_dumpit",
        "dev_ioctl", "register_netdev", "unregister_netdev", "addrconf_*", "linkwatch_event", "devinet_ioctl",
        "default_device_exit_batch", "rtnl_net_lock", "netdev_run_todo",
    ]),
    fixed("pernet_ops_rwsem", RWSEM, &[
        "copy_net_ns", "cleanup_net", "register_pernet_*", "unregister_pernet_*", "register_netdevice_notifier",
    ]),
    // fs/namespace.c
    fixed("namespace_sem", RWSEM, &[
        "namespace_lock", "namespace_unlock", "do_mount", "path_mount", "do_add_mount", "do_loopback",
        "do_move_mount", "path_umount", "do_umount", "ksys_umount", "copy_mnt_ns", "m_start", "m_stop",
        "mounts_open_common", "mnt_already_visible", "lock_mount", "do_lock_mount", "graft_tree", "put_mnt_ns",
        "copy_tree", "dissolve_on_fput", "collect_paths",
    ]),
    fixed("mount_lock.lock", SPIN, &[
        "lock_mount_hash", "mntput_no_expire*", "mnt_change_mountpoint", "attach_recursive_mnt", "umount_tree",
        "do_umount", "clone_mnt", "vfs_create_mount", "__legitimize_mnt", "cleanup_mnt", "mnt_get_count",
        "attach_mnt", "commit_tree", "mnt_make_writable", "mnt_hold_writers", "sb_prepare_remount_readonly",
        "do_mount", "path_mount", "do_change_type",
    ]),
    // fs/dcache.c
    fixed("rename_lock.lock", SPIN, &[
        "d_move", "d_exchange", "d_splice_alias*", "d_walk", "is_subdir", "prepend_path", "d_ancestor", "__d_path",
        "read_seqbegin_or_lock",
    ]),
    // fs/inode.c
    fixed("inode_hash_lock", SPIN, &[
        "iget_locked", "iget5_locked*", "ilookup*", "inode_insert5", "insert_inode_locked*", "__insert_inode_hash",
        "__remove_inode_hash", "find_inode_nowait", "iunique", "find_inode*",
    ]),
    // fs/super.c, fs/file_table.c, fs/locks.c, fs/eventpoll.c
    fixed("sb_lock", SPIN, &[
        "sget_fc", "sget", "put_super", "iterate_supers*", "super_lock*", "user_get_super", "deactivate_locked_super",
        "grab_super", "__iterate_supers", "kill_super_notify", "generic_shutdown_super",
    ]),
    fixed("epnested_mutex", MUTEX, &["do_epoll_ctl", "__x64_sys_epoll_ctl", "__do_sys_epoll_ctl"]),
    fixed("file_rwsem", PERCPU, &[
        "flock_lock_inode", "posix_lock_inode", "locks_remove_*", "flock_lock_inode_wait", "locks_lock_inode_wait",
        "do_lock_file_wait", "locks_start", "time_out_leases",
    ]),
    fixed("blocked_lock_lock", SPIN, &[
        "locks_delete_block", "posix_lock_inode", "locks_insert_block", "flock_lock_inode", "locks_wake_up_blocks",
    ]),
    // kernel/pid.c (replaced by a mutex-free scheme in newer kernels)
    fixed("pidmap_lock", SPIN, &[
        "alloc_pid", "free_pid", "free_pids", "put_pid*", "disable_pid_allocation", "detach_pid", "__change_pid",
        "change_pid",
    ]),
    // kernel/user.c, kernel/ucount.c
    fixed("uidhash_lock", SPIN, &["find_user", "alloc_uid", "free_uid"]),
    fixed("ucounts_lock", SPIN, &["alloc_ucounts", "put_ucounts", "get_ucounts"]),
    // kernel/sched/core.c, kernel/sched/rt.c
    fixed("task_group_lock", SPIN, &[
        "sched_create_group", "sched_online_group", "sched_release_group", "online_fair_sched_group",
    ]),
    fixed("sched_domains_mutex", MUTEX, &[
        "rebuild_sched_domains*", "partition_sched_domains*", "sched_cpu_activate", "sched_cpu_deactivate",
    ]),
    // kernel/cpu.c
    fixed("cpu_hotplug_lock", PERCPU, &[
        "cpus_read_lock", "cpus_write_lock", "_cpu_up", "_cpu_down", "__cpuhp_*", "static_key_*", "jump_label_*",
        "synchronize_rcu_expedited*", "cpuhp_*",
    ]),
    // kernel/jump_label.c, arch/x86/kernel/alternative.c, kernel/trace, kernel/module
    fixed("jump_label_mutex", MUTEX, &["jump_label_lock", "static_key_*", "jump_label_*", "__static_key_*"]),
    fixed("text_mutex", MUTEX, &[
        "arch_jump_label_transform_*", "text_poke_*", "arch_static_call_transform", "bpf_arch_text_poke",
        "arch_prepare_optimized_kprobe",
    ]),
    fixed("tracepoints_mutex", MUTEX, &["tracepoint_probe_*", "register_tracepoint_module_notifier"]),
    fixed("event_mutex", MUTEX, &[
        "perf_trace_init", "perf_trace_destroy", "ftrace_set_clr_event", "event_trace_*", "perf_kprobe_*",
        "trace_remove_event_call", "__ftrace_set_clr_event", "event_enable_write",
    ]),
    fixed("trampoline_mutex", MUTEX, &["bpf_trampoline_get", "bpf_trampoline_put"]),
    fixed("module_mutex", MUTEX, &["load_module", "__do_sys_delete_module", "m_start", "modules_open"]),
    // kernel/rcu
    fixed("rcu_state.barrier_mutex", MUTEX, &["rcu_barrier"]),
    fixed("rcu_state.exp_mutex", MUTEX, &["synchronize_rcu_expedited*"]),
    fixed("rcu_state.exp_wake_mutex", MUTEX, &["rcu_exp_wait_wake", "rcu_exp_sel_wait_wake", "wait_rcu_exp_gp"]),
    fixed("rcu_node.lock", SPIN, &[
        "rcu_report_qs_rnp", "rcu_report_qs_rdp", "rcu_gp_*", "force_qs_rnp", "note_gp_changes", "rcu_core",
        "rcu_note_context_switch", "rcu_preempt_deferred_qs_irqrestore", "rcu_report_exp_*", "rcu_start_this_gp",
        "__note_gp_changes", "rcu_accelerate_cbs*", "sync_rcu_exp_*", "rcu_read_unlock_special",
        "rcu_check_gp_start_stall", "rcu_cleanup_dead_rnp", "rcu_exp_handler",
    ]),
    // kernel/rcu/tasks.h: one for each flavour, of the same function
    fixed("rcu_tasks.barrier_q_mutex", MUTEX, &["rcu_barrier_tasks_*"]),
    // kernel/workqueue.c
    fixed("wq_pool_mutex", MUTEX, &[
        "alloc_workqueue*", "apply_wqattrs_*", "alloc_unbound_pwq", "workqueue_*", "destroy_workqueue",
        "pwq_release_workfn",
    ]),
    fixed("wq_mayday_lock", SPIN, &["rescuer_thread", "pool_mayday_timeout"]),
    // kernel/printk, kernel/time
    fixed("console_sem", &[Kind::Semaphore], &[
        "console_lock", "console_trylock", "console_unlock", "vprintk_emit", "do_con_write", "con_*",
    ]),
    fixed("tick_broadcast_lock", SPIN, &[
        "tick_broadcast_*", "___tick_broadcast_oneshot_control", "tick_handle_oneshot_broadcast",
        "__tick_broadcast_oneshot_control",
    ]),
    fixed("timekeeper_lock", SPIN, &[
        "timekeeping_advance", "do_settimeofday64", "do_adjtimex", "update_wall_time", "timekeeping_inject_offset",
    ]),
    fixed("jiffies_lock", SPIN, &["tick_do_update_jiffies64", "tick_periodic", "tick_sched_do_timer", "tick_nohz_*"]),
    // mm/vmalloc.c
    fixed("vmap_purge_lock", MUTEX, &[
        "_vm_unmap_aliases", "reclaim_and_purge_vmap_areas", "drain_vmap_area_work", "purge_vmap_*", "set_memory_*",
        "change_page_attr_set_clr",
    ]),
    fixed("vmap_area_lock", SPIN, &[
        "alloc_vmap_area", "find_vmap_area*", "remove_vm_area", "insert_vmap_area", "free_unmap_vmap_area",
        "setup_vmalloc_vm", "__get_vm_area_node",
    ]),
    fixed("free_vmap_area_lock", SPIN, &[
        "alloc_vmap_area", "__purge_vmap_area_lazy", "purge_vmap_node", "pcpu_get_vm_areas", "va_alloc",
    ]),
    // arch/x86/mm
    fixed("pgd_lock", SPIN, &[
        "pgd_alloc", "pgd_free", "__change_page_attr*", "should_split_large_page", "sync_global_pgds*",
        "arch_sync_kernel_mappings", "split_large_page",
    ]),
    fixed("cpa_lock", SPIN, &["__change_page_attr_set_clr", "set_direct_map_*"]),
    // mm/percpu.c
    fixed("pcpu_lock", SPIN, &[
        "pcpu_alloc*", "free_percpu", "pcpu_balance_*", "pcpu_reclaim_populated", "pcpu_memcg_*",
    ]),
    fixed("pcpu_alloc_mutex", MUTEX, &["pcpu_alloc*", "pcpu_balance_*"]),
    // mm/slab_common.c, mm/shrinker.c, mm/rmap.c, mm/mmu_notifier, mm/swapfile.c, mm/oom_kill.c, mm/page_alloc.c
    fixed("slab_mutex", MUTEX, &[
        "kmem_cache_create*", "__kmem_cache_create_args", "kmem_cache_destroy", "slabinfo_*", "slab_start",
        "slab_stop", "s_start",
    ]),
    fixed("shrinker_mutex", MUTEX, &[
        "shrinker_register", "shrinker_free", "shrinker_debugfs_*", "prealloc_memcg_shrinker", "alloc_shrinker_info",
        "shrinker_memcg_alloc",
    ]),
    fixed("shrinker_rwsem", RWSEM, &[
        "shrink_slab*", "register_shrinker*", "unregister_shrinker", "prealloc_shrinker", "alloc_shrinker_info",
    ]),
    fixed("swap_lock", SPIN, &[
        "__do_sys_swapon", "__do_sys_swapoff", "enable_swap_info", "si_swapinfo", "add_to_avail_list",
    ]),
    fixed("swap_avail_lock", SPIN, &[
        "get_swap_pages", "folio_alloc_swap", "swap_alloc_slow", "add_to_avail_list", "del_from_avail_list",
    ]),
    fixed("oom_lock", MUTEX, &[
        "__alloc_pages_may_oom", "mem_cgroup_out_of_memory", "pagefault_out_of_memory", "out_of_memory",
    ]),
    fixed("mmlist_lock", SPIN, &["mmput*", "__mmput", "try_to_unmap_one", "copy_nonpresent_pte", "try_to_unuse"]),
    fixed("ksm_thread_mutex", MUTEX, &["ksm_do_scan", "ksm_scan_thread", "run_store"]),
    fixed("ksm_mmlist_lock", SPIN, &["__ksm_enter", "__ksm_exit", "scan_get_next_rmap_item"]),
    fixed("khugepaged_mm_lock", SPIN, &["__khugepaged_enter", "__khugepaged_exit", "khugepaged_*", "khugepaged"]),
    fixed("hugetlb_lock", SPIN, &[
        "alloc_hugetlb_folio*", "free_huge_folio", "hugetlb_*", "dequeue_hugetlb_*", "gather_surplus_pages",
    ]),
    fixed("memcg_idr_lock", SPIN, &["mem_cgroup_id_*", "mem_cgroup_alloc"]),
    fixed("percpu_charge_mutex", MUTEX, &["drain_all_stock"]),
    fixed("pcpu_drain_mutex", MUTEX, &["drain_all_pages", "__drain_all_pages"]),
    fixed("lru_add_drain_all.lock", MUTEX, &["lru_add_drain_all", "__lru_add_drain_all"]),
    fixed("cgwb_lock", SPIN, &["cgwb_*", "wb_get_create", "inode_switch_wbs*", "wb_memcg_offline", "bdi_unregister"]),
    fixed("bdi_lock", SPIN, &["bdi_register*", "bdi_unregister", "bdi_remove_from_list"]),
    // net/unix/af_unix.c, net/ipv4, net/netlink
    fixed("unix_gc_lock", SPIN, &[
        "unix_add_edges", "unix_del_edges", "unix_inflight", "unix_notinflight", "unix_gc", "__unix_gc",
        "unix_update_edges", "wait_for_unix_gc",
    ]),
    fixed("nl_table_lock", RWLOCK, &[
        "netlink_table_grab", "netlink_broadcast*", "netlink_lock_table", "do_one_broadcast", "netlink_insert",
        "netlink_release",
    ]),
    fixed("nl_table_wait.lock", SPIN, &["netlink_unlock_table", "netlink_table_grab"]),
    fixed("genl_mutex", MUTEX, &["genl_lock", "genl_rcv_msg", "genl_register_family", "genl_unregister_family"]),
    fixed("cb_lock", RWSEM, &["genl_rcv", "genl_register_family", "genl_unregister_family"]),
    // block, drivers
    fixed("block_class_lock", MUTEX, &["blk_request_module", "__register_blkdev"]),
    fixed("tty_mutex", MUTEX, &["tty_open", "tty_release*", "tty_init_dev", "ptmx_open", "tty_kopen"]),
    fixed("misc_mtx", MUTEX, &["misc_open", "misc_register", "misc_deregister"]),
    fixed("base_crng.lock", SPIN, &[
        "crng_make_state", "crng_reseed", "crng_fast_key_erasure", "_get_random_bytes", "get_random_bytes_user",
    ]),
    fixed("input_pool.lock", SPIN, &[
        "_mix_pool_bytes", "mix_pool_bytes", "extract_entropy", "_credit_init_bits", "mix_interrupt_randomness",
        "add_device_randomness",
    ]),
    // mm/rmap.c, kernel/sched/core.c: in slab objects, for kernels that do not tell whose
    elsewhere("anon_vma.rwsem", RWSEM, &[
        "unlink_anon_vmas", "anon_vma_clone", "anon_vma_fork", "__anon_vma_prepare", "folio_lock_anon_vma_read",
    ]),
    elsewhere("task_struct.pi_lock", SPIN, &["try_to_wake_up"]),
    // kernel/futex/core.c: one table per memory node, or per process from 6.16
    elsewhere("futex_hash_bucket.lock", SPIN, &[
        "futex_*", "__futex_*", "do_futex", "exit_pi_state_list", "requeue_futex", "handle_futex_death",
        "get_futex_key", "__x64_sys_futex*",
    ]),
    // mm/vmalloc.c: an array of nodes from 6.9
    elsewhere("vmap_node.busy.lock", SPIN, &[
        "alloc_vmap_area", "find_vmap_area", "find_unlink_vmap_area", "remove_vm_area", "find_vm_area", "vmap_node_*",
        "show_numa_info", "vmalloc_info_show",
    ]),
    elsewhere("vmap_node.lazy.lock", SPIN, &["free_vmap_area_noflush", "__purge_vmap_area_lazy", "purge_vmap_node"]),
    elsewhere("vmap_node.pool_lock", SPIN, &["node_pool_add_va", "node_pool_del_va", "decay_va_pool_node"]),
    elsewhere("vmap_block_queue.lock", SPIN, &["new_vmap_block", "vb_alloc", "vb_free", "purge_fragmented_*"]),
    // mm/page_alloc.c, mm/swap.c, mm/vmscan.c: the memory node may lie in boot-time memory
    elsewhere("zone.lock", SPIN, &[
        "rmqueue*", "__rmqueue_pcplist", "rmqueue_bulk", "free_pcppages_bulk", "free_one_page",
        "get_page_from_freelist", "__free_pages_ok", "free_unref_page*", "free_frozen_page*",
        "unreserve_highatomic_pageblock", "isolate_freepages*", "compact_unlock_should_abort",
        "reserve_highatomic_pageblock", "page_reporting_process_zone", "page_reporting_cycle", "frag_show_print",
        "pagetypeinfo_*", "undo_isolate_page_range", "__isolate_free_page", "drain_pages_zone",
        "take_pages_from_buddy",
    ]),
    elsewhere("lruvec.lru_lock", SPIN, &[
        "folio_lruvec_lock*", "lru_add_fn", "folio_batch_move_lru", "__page_cache_release", "folios_put_refs",
        "shrink_inactive_list", "shrink_active_list", "move_folios_to_lru", "isolate_lru_folios", "lru_add_drain_cpu",
        "lru_note_cost*", "evict_folios", "release_pages", "isolate_migratepages_block", "__folio_batch_add_and_move",
        "lru_activate", "isolate_folios", "isolate_lru_page", "folio_isolate_lru", "try_to_inc_max_seq", "walk_mm",
        "shrink_lruvec", "lru_gen_*",
    ]),
    elsewhere("pglist_data.kswapd_wait.lock", SPIN, &["wakeup_kswapd", "kswapd_try_to_sleep", "kswapd"]),
    // mm/list_lru.c: arrays per node and per memory cgroup
    elsewhere("list_lru_one.lock", SPIN, &[
        "list_lru_add*", "list_lru_del*", "list_lru_walk_*", "lock_list_lru_of_memcg", "__list_lru_walk_one",
    ]),
    elsewhere("list_lru_node.lock", SPIN, &[
        "list_lru_add*", "list_lru_del*", "list_lru_walk_*", "__list_lru_walk_one",
    ]),
    // mm/swapfile.c
    elsewhere("swap_cluster_info.lock", SPIN, &[
        "swap_*", "cluster_alloc_*", "__swap_*", "alloc_swap_scan_*", "free_swap_and_cache_nr", "folio_alloc_swap",
    ]),
    // fs/mbcache.c, net/ipv4/inet_hashtables.c, net/ipv4/udp.c, net/core/neighbour.c: tables made at start
    elsewhere("inet_bind_hashbucket.lock", SPIN, &[
        "inet_csk_get_port", "__inet_hash_connect", "inet_put_port", "__inet_inherit_port", "inet_csk_destroy_sock",
        "tcp_v4_connect",
    ]),
    elsewhere("inet_listen_hashbucket.lock", SPIN, &["__inet_hash", "inet_unhash", "inet_hash"]),
    elsewhere("inet_hashinfo.ehash_locks[]", SPIN, &[
        "inet_ehash_insert", "inet_ehash_nolisten", "inet_unhash", "__inet_check_established", "inet_twsk_kill",
        "inet_twsk_hashdance*", "inet_twsk_deschedule_put",
    ]),
    elsewhere("udp_hslot.lock", SPIN, &[
        "udp_lib_get_port", "udp_lib_unhash", "udp_lib_rehash", "__udp4_lib_mcast_deliver",
    ]),
    elsewhere("net.unx.table.locks[]", SPIN, &[
        "unix_table_double_lock", "unix_insert_socket", "unix_remove_socket", "unix_autobind", "unix_bind*",
        "unix_release_sock", "unix_create1",
    ]),
    // block/blk-mq.c: dynamic per-CPU memory
    elsewhere("blk_mq_ctx.lock", SPIN, &[
        "blk_mq_insert_request*", "blk_mq_flush_busy_ctxs", "flush_busy_ctx", "dispatch_rq_from_ctx",
        "blk_mq_dequeue_from_ctx",
    ]),
    // mm/filemap.c, kernel/sched/wait_bit.c: hashed tables of wait queues
    fixed("folio_wait_table[].lock", SPIN, &[
        "folio_wake_bit", "folio_wait_bit_common", "folio_unlock", "folio_end_writeback", "folio_add_wait_queue",
        "folio_wait_bit",
    ]),
    fixed("bit_wait_table[].lock", SPIN, &[
        "wake_up_bit", "__wake_up_bit", "__wait_on_bit*", "out_of_line_wait_on_bit*", "wake_up_var",
    ]),
    // kernel/sched/completion.c: mostly on kernel stacks
    elsewhere("completion.wait.lock", SPIN, &[
        "complete", "complete_all", "complete_with_flags", "wait_for_completion*", "do_wait_for_common",
        "__wait_for_common", "swake_up_locked", "swake_up_all_locked", "try_wait_for_completion",
    ]),
    // kernel/stop_machine.c, kernel/time/hrtimer.c: dynamic per-CPU memory
    elsewhere("per_cpu_pages.lock", SPIN, &[
        "rmqueue_pcplist", "free_unref_page_commit", "decay_pcp_high", "drain_zone_pages",
    ]),
];

/// kernel/sched/wait.c: somebody's wait queue, most often on a kernel stack. Asked last, because its functions work for
/// all.
static SOME_WAIT_QUEUE: Site = elsewhere(
    "wait_queue_head.lock",
    SPIN,
    &["__wake_up*", "prepare_to_wait*", "finish_wait", "add_wait_queue*", "remove_wait_queue"],
);

/// Functions above the lock's that are looked at: farther ones took part in too much else.
const LOOKED_AT: usize = 5;

/// The entry for a lock of this kind in such memory that was taken from these functions (innermost first), and the
/// function that matched. The innermost match wins.
pub(crate) fn find<'s>(
    memory: Memory,
    kind: Kind,
    functions: impl Iterator<Item = &'s str>,
    is_possible: impl Fn(&Site) -> bool,
) -> Option<(&'static Site, &'s str)> {
    let functions: Vec<&str> = functions.take(LOOKED_AT).collect();
    let first_among = |sites: &'static [Site]| {
        functions.iter().find_map(|function| {
            let matches = |site: &&Site| {
                site.memory == memory
                    && site.kinds.contains(&kind)
                    && site.functions.iter().any(|pattern| matches_pattern(pattern, function))
                    && is_possible(site)
            };
            sites.iter().find(matches).map(|site| (site, *function))
        })
    };
    first_among(SITES).or_else(|| first_among(std::slice::from_ref(&SOME_WAIT_QUEUE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(memory: Memory, kind: Kind, functions: &[&str]) -> Option<&'static str> {
        find(memory, kind, functions.iter().copied(), |_| true).map(|(site, _)| site.name)
    }

    #[test]
    fn a_lock_is_told_by_the_innermost_function_that_takes_one_of_its_kind() {
        let stack = ["cgroup_can_fork", "copy_process"];
        assert_eq!(name_of(Memory::Static, Kind::PercpuRwsem, &stack), Some("cgroup_threadgroup_rwsem"));
        assert_eq!(name_of(Memory::Static, Kind::Rwlock, &stack), Some("tasklist_lock"));
        assert_eq!(name_of(Memory::Elsewhere, Kind::Rwlock, &stack), None);
        assert_eq!(name_of(Memory::Static, Kind::Spin, &["a", "b", "c", "d", "e", "inode_insert5"]), None, "too far");
    }

    #[test]
    fn functions_that_work_for_all_are_asked_last() {
        let stack = ["finish_wait", "kswapd_try_to_sleep"];
        assert_eq!(name_of(Memory::Elsewhere, Kind::Spin, &stack), Some("pglist_data.kswapd_wait.lock"));
        assert_eq!(name_of(Memory::Elsewhere, Kind::Spin, &["finish_wait"]), Some("wait_queue_head.lock"));
    }

    #[test]
    fn every_entry_has_functions_and_a_star_only_at_the_end() {
        for site in SITES {
            assert!(!site.functions.is_empty(), "{} has functions", site.name);
            for pattern in site.functions {
                assert!(!pattern.trim_end_matches('*').contains('*'), "{pattern} of {}", site.name);
                assert!(pattern.len() > 3, "{pattern} of {} says something", site.name);
            }
        }
    }
}
