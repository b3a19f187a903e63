//! Naming on this machine's own kernel: its types, its symbols, and (as root) its memory.

use std::os::fd::AsRawFd;

use super::*;
use crate::live::Live;

/// Says why a test did not run, so that a green run without a kernel is not mistaken for a tested one.
macro_rules! skip {
    ($($why:tt)+) => {{
        eprintln!("SKIPPED: {}", format!($($why)+));
        return;
    }};
}

struct Kernel {
    types: KernelTypes,
    symbols: Arc<KernelSymbols>,
    memory: Arc<Live>,
}

impl Kernel {
    fn running() -> Result<Self, String> {
        let types = KernelTypes::from_sys().map_err(|error| error.to_string())?;
        let symbols = KernelSymbols::from_proc().map_err(|error| error.to_string())?;
        let memory = Live::open(&types).map_err(|error| format!("BPF cannot be used: {error}"))?;
        Ok(Self { types, symbols: Arc::new(symbols), memory: Arc::new(memory) })
    }

    fn namer(&self) -> LockNamer<Arc<Live>> {
        let task = self.memory.current_task();
        LockNamer::new(Arc::clone(&self.symbols), self.types.clone(), Arc::clone(&self.memory), task)
            .expect("the running kernel's types have what is needed")
    }

    fn offset(&self, type_name: &str, field: &str) -> u64 {
        u64::from(self.types.offset_of(type_name, field).expect("a field of this kernel"))
    }

    fn follow(&self, address: u64, type_name: &str, field: &str) -> u64 {
        self.memory.read_u64(address + self.offset(type_name, field)).expect("a live object")
    }

    /// The `struct file` behind a descriptor of this process.
    fn file(&self, fd: i32) -> u64 {
        let files = self.follow(self.memory.current_task(), "task_struct", "files");
        let table = self.follow(files, "files_struct", "fdt");
        let descriptors = self.follow(table, "fdtable", "fd");
        self.memory.read_u64(descriptors + fd as u64 * 8).expect("an open file")
    }

    /// What the event would say of the lock at a field of a slab object.
    fn identity(&self, object: u64, type_name: &str, field: &str) -> Option<Identity> {
        let cache = self.memory.cache_of(object)?;
        Some(Identity::Slab { cache, offset: self.offset(type_name, field) as u32 })
    }

    /// The slab cache of this name, found in the kernel's list of caches.
    fn cache_named(&self, name: &str) -> Option<u64> {
        let first = self.memory.cache_of(self.follow(self.memory.current_task(), "task_struct", "mm"))?;
        let (list_at, name_at) = (self.offset("kmem_cache", "list"), self.offset("kmem_cache", "name"));
        let mut cache = first;
        loop {
            let known = self.memory.read_u64(cache + name_at).and_then(|at| self.memory.read_string(at, 64));
            if known.is_ok_and(|known| known == name) {
                return Some(cache);
            }
            cache = self.memory.read_u64(cache + list_at).ok()? - list_at;
            if cache == first {
                return None;
            }
        }
    }
}

/// The running kernel, or the end of the test.
macro_rules! running_kernel {
    () => {
        match Kernel::running() {
            Ok(kernel) if kernel.memory.cache_of(kernel.memory.current_task()).is_some() => kernel,
            Ok(_) => skip!("this kernel has no bpf_get_kmem_cache (Linux 6.13), with which the test finds slab caches"),
            Err(why) => skip!("{why}"),
        }
    };
}

/// The one name of a class, and how it is known.
fn only_name<M: KernelMemory>(
    namer: &mut LockNamer<M>,
    identity: Identity,
    kind: Kind,
    stacks: &[&[&str]],
) -> (String, Naming) {
    let stacks: Vec<_> = stacks.iter().map(|stack| (stack.to_vec(), 1)).collect();
    let mut named = namer.name(&identity, kind, &stacks);
    assert_eq!(named.len(), 1, "one name for {identity:?}: {named:?}");
    let (lock, weight) = named.remove(0);
    assert_eq!(weight, WHOLE_PPM);
    (lock.name, lock.naming)
}

#[test]
fn locks_of_this_process_are_named_by_slab_cache_and_field() {
    // Makes sure that real objects of the running kernel lead to the names that people know.
    let kernel = running_kernel!();
    let mut namer = kernel.namer();
    let task = kernel.memory.current_task();
    let mm = kernel.follow(task, "task_struct", "mm");
    let sighand = kernel.follow(task, "task_struct", "sighand");
    let open = std::fs::File::open("/proc/self/exe").expect("the test itself");
    let file = kernel.file(open.as_raw_fd());
    for (object, type_name, field, kind, name) in [
        (mm, "mm_struct", "mmap_lock", Kind::Rwsem, "mm_struct.mmap_lock"),
        (mm, "mm_struct", "mmap_lock.wait_lock", Kind::Spin, "mm_struct.mmap_lock.wait_lock"),
        (mm, "mm_struct", "page_table_lock", Kind::Spin, "mm_struct.page_table_lock"),
        (sighand, "sighand_struct", "siglock", Kind::Spin, "sighand_struct.siglock"),
        (file, "file", "f_pos_lock", Kind::Mutex, "file.f_pos_lock"),
        (task, "task_struct", "pi_lock", Kind::Spin, "task_struct.pi_lock"),
        (task, "task_struct", "perf_event_mutex", Kind::Mutex, "task_struct.perf_event_mutex"),
    ] {
        let identity = kernel.identity(object, type_name, field).expect("a slab object");
        assert_eq!(only_name(&mut namer, identity, kind, &[]), (name.to_owned(), Naming::SlabField));
    }
}

#[test]
fn caches_found_by_name_have_the_fields_of_their_type() {
    let kernel = running_kernel!();
    let mut namer = kernel.namer();
    for (cache, type_name, field, kind, name) in [
        ("ext4_inode_cache", "ext4_inode_info", "vfs_inode.i_rwsem", Kind::Rwsem, "ext4_inode_info.vfs_inode.i_rwsem"),
        ("anon_vma", "anon_vma", "rwsem", Kind::Rwsem, "anon_vma.rwsem"),
        ("dentry", "dentry", "d_lockref", Kind::Spin, "dentry.d_lockref.lock"),
        ("kmem_cache_node", "kmem_cache_node", "list_lock", Kind::Spin, "kmem_cache_node.list_lock"),
        ("proc_inode_cache", "proc_inode", "vfs_inode.i_lock", Kind::Spin, "proc_inode.vfs_inode.i_lock"),
    ] {
        let Some(address) = kernel.cache_named(cache) else {
            eprintln!("SKIPPED: no slab cache {cache} here, or another name stands for it");
            continue;
        };
        let identity = Identity::Slab { cache: address, offset: kernel.offset(type_name, field) as u32 };
        assert_eq!(only_name(&mut namer, identity, kind, &[]), (name.to_owned(), Naming::SlabField));
    }
}

#[test]
fn a_pipe_in_a_generic_cache_is_told_by_the_functions_that_lock_it() {
    let kernel = running_kernel!();
    let mut namer = kernel.namer();
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let pipe = kernel.follow(kernel.file(reader.as_raw_fd()), "file", "private_data");
    let mutex = kernel.identity(pipe, "pipe_inode_info", "mutex").expect("a slab object");
    let (_, naming) = only_name(&mut namer, mutex, Kind::Mutex, &[]);
    assert_eq!(naming, Naming::Unnamed(Unnamed::AmbiguousType), "without a stack nothing tells");
    let named = ("pipe_inode_info.mutex".to_owned(), Naming::InferredType);
    let stack = ["osq_lock", "__mutex_lock.constprop.0", "anon_pipe_write", "vfs_write", "ksys_write"];
    assert_eq!(only_name(&mut namer, mutex, Kind::Mutex, &[&stack]), named);
    assert_eq!(only_name(&mut namer, mutex, Kind::Mutex, &[]), named, "what stacks told once stays");
    assert_eq!(only_name(&mut namer, mutex, Kind::Mutex, &[&["some_new_function"]]), named);

    let queue = kernel.identity(pipe, "pipe_inode_info", "rd_wait").expect("a slab object");
    let stack = ["_raw_spin_lock_irqsave", "__wake_up_sync_key", "pipe_write", "vfs_write"];
    assert_eq!(only_name(&mut namer, queue, Kind::Spin, &[&stack]).0, "pipe_inode_info.rd_wait.lock");
}

#[test]
fn an_eventpoll_in_a_generic_cache_is_told_by_the_functions_that_lock_it() {
    let kernel = running_kernel!();
    let mut namer = kernel.namer();
    // SAFETY: takes no pointer; the descriptor it returns is closed with the process.
    let epoll = unsafe { libc::epoll_create1(0) };
    assert!(epoll >= 0);
    let eventpoll = kernel.follow(kernel.file(epoll), "file", "private_data");
    let wait = ["_raw_spin_lock_irq", "ep_poll", "do_epoll_wait", "__x64_sys_epoll_wait"];
    let wake = ["_raw_read_lock_irqsave", "ep_poll_callback", "__wake_up_common", "__wake_up_sync_key"];
    let control = ["mutex_lock", "do_epoll_ctl", "__x64_sys_epoll_ctl", "do_syscall_64"];
    let lock_kind =
        match kernel.types.vmlinux.field(kernel.types.vmlinux.struct_named("eventpoll").unwrap_or(0), "lock") {
            Some((_, type_id)) if kernel.types.vmlinux.get(type_id).is_some_and(|t| t.name() == "rwlock_t") => {
                Kind::Rwlock
            }
            _ => Kind::Spin,
        };
    for (field, kind, stack) in
        [("lock", lock_kind, wait), ("lock", lock_kind, wake), ("mtx", Kind::Mutex, control), ("wq", Kind::Spin, wait)]
    {
        let identity = kernel.identity(eventpoll, "eventpoll", field).expect("a slab object");
        let (name, naming) = only_name(&mut namer, identity, kind, &[&stack]);
        assert!(name.starts_with(&format!("eventpoll.{field}")), "{name}");
        assert_eq!(naming, Naming::InferredType);
    }
}

#[test]
fn a_class_that_several_types_share_is_split_by_its_stacks() {
    // Makes sure that two objects of one size with a lock at one offset do not get one name.
    let kernel = running_kernel!();
    let mut namer = kernel.namer();
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let pipe = kernel.follow(kernel.file(reader.as_raw_fd()), "file", "private_data");
    let identity = kernel.identity(pipe, "pipe_inode_info", "rd_wait").expect("a slab object");
    let other = ("wakeup_source_activate", "wakeup_source.lock");
    if kernel.types.offset_of("wakeup_source", "lock").ok() != kernel.types.offset_of("pipe_inode_info", "rd_wait").ok()
    {
        skip!("on this kernel no other type is known to lie as a pipe does");
    }
    let stacks = [
        (vec!["pipe_write", "vfs_write"], 60),
        (vec!["pipe_read", "vfs_read"], 10),
        (vec![other.0, "__pm_stay_awake"], 20),
        (vec!["some_new_function"], 10),
    ];
    let named = namer.name(&identity, Kind::Spin, &stacks);
    let parts: Vec<_> = named.iter().map(|(lock, part)| (lock.name.as_str(), lock.is_named(), *part)).collect();
    assert_eq!(parts[0], ("pipe_inode_info.rd_wait.lock", true, 700_000), "{named:?}");
    assert_eq!(parts[1], (other.1, true, 200_000), "{named:?}");
    assert_eq!((parts[2].1, parts[2].2), (false, 100_000), "{named:?}");
}

#[test]
fn every_cpus_run_queue_has_one_name() {
    let kernel = running_kernel!();
    let mut namer = kernel.namer();
    assert_eq!(namer.cpus_found(), crate::percpu::possible_cpus() as usize);
    let (btf, task) = (&kernel.types.vmlinux, kernel.memory.current_task());
    let lock = btf.offset_of("rq", "__lock").expect("the run queue's lock");
    let group = kernel.follow(task, "task_struct", "sched_task_group");
    let queues = kernel.follow(group, "task_group", "cfs_rq");
    let mut classes = std::collections::HashSet::new();
    for cpu in 0..u64::from(crate::percpu::possible_cpus()) {
        let queue = kernel.memory.read_u64(queues + cpu * 8).expect("a queue for each CPU");
        let address = kernel.follow(queue, "cfs_rq", "rq") + u64::from(lock);
        let identity = Identity::Address(address);
        classes.insert(namer.canonical(identity));
        assert_eq!(only_name(&mut namer, identity, Kind::Spin, &[]), ("rq.__lock".to_owned(), Naming::PerCpu));
    }
    assert_eq!(classes.len(), 1);
}

#[test]
fn every_cpu_has_a_preempt_count() {
    // Makes sure that what is read there is one: this thread's CPU runs a program that may not be preempted meanwhile.
    let kernel = running_kernel!();
    let counts = kernel.namer().preempt_counts();
    assert_eq!(counts.len(), crate::percpu::possible_cpus() as usize);
    for address in &counts {
        // The highest bit says that nothing is to be scheduled; what else a CPU can be in takes 24.
        let count = kernel.memory.read_u32(*address).expect("a variable of this kernel");
        assert_eq!(count & 0x7f00_0000, 0, "{count:#x} at {address:#x}");
    }
}

#[test]
fn static_objects_are_found_by_following_pointers() {
    let kernel = running_kernel!();
    let mut namer = kernel.namer();
    let found: Vec<_> = namer.landmarks().collect();
    for object in ["init_task", "init_sighand", "init_net", "a memory node"] {
        assert!(found.contains(&object), "{object} is among {found:?}");
    }
    let node = namer.landmarks.start_of("a memory node").expect("found");
    let zone = node + kernel.offset("pglist_data", "node_zones") + kernel.offset("zone", "lock");
    assert_eq!(only_name(&mut namer, Identity::Address(zone), Kind::Spin, &[]).0, "zone.lock");
    let normal = zone + 2 * u64::from(kernel.types.size_of("zone").expect("zones have a size"));
    assert_eq!(only_name(&mut namer, Identity::Address(normal), Kind::Spin, &[]).0, "zone.lock");
}

#[test]
fn the_struct_page_of_an_address_knows_its_slab_cache() {
    // Makes sure that what a BPF program would compute from the anchor and the layout ends at the right cache.
    let kernel = running_kernel!();
    let mm = kernel.follow(kernel.memory.current_task(), "task_struct", "mm");
    let cache = kernel.memory.cache_of(mm).expect("a slab object");
    let anchor = crate::struct_page_anchor(&kernel.types, &kernel.symbols, &kernel.memory, cache).expect("an anchor");
    let layout = crate::SlabLayout::new(&kernel.types).expect("a layout");
    let page = anchor.page_of(mm);
    let head_word = kernel.memory.read_u64(page + u64::from(layout.compound_head)).expect("a struct page");
    let head = match head_word & 1 {
        0 => page,
        _ if layout.head_may_be_mask && head_word >> 40 == u64::MAX >> 40 => page & head_word,
        _ => head_word - 1,
    };
    let read = |at: u64| kernel.memory.read_u64(at).expect("a struct slab");
    assert_eq!(read(head + u64::from(layout.slab_cache)), cache);
    match layout.slab_mark {
        crate::SlabMark::TypeByte { offset, value } => {
            let page_type = kernel.memory.read_u32(head + u64::from(offset)).expect("a struct page");
            assert_eq!(page_type >> 24, u32::from(value));
        }
        crate::SlabMark::FlagBit(bit) => assert_eq!((read(head + u64::from(layout.page_flags)) >> bit) & 1, 1),
        crate::SlabMark::TypeBitClear { .. } => {}
    }
    let size = u64::from(kernel.memory.read_u32(cache + u64::from(layout.cache_size)).expect("a cache"));
    assert_eq!((mm - anchor.address_of(head)) % size, 0, "objects begin at multiples of their size");
    assert_eq!(anchor.offset_in_struct_page(page + 40), Some(40));
    assert_eq!(anchor.offset_in_struct_page(mm), None);
}

#[test]
fn locks_that_no_type_leads_to_are_named_by_who_takes_them() {
    let kernel = running_kernel!();
    if kernel.symbols.has_data_symbols() {
        skip!("this kernel lists its variables, so that static locks need no guess");
    }
    let mut namer = kernel.namer();
    let in_image = Identity::Address(namer.image.start + 0x20_0000);
    let fork = ["queued_write_lock_slowpath", "_raw_write_lock_irq", "copy_process", "kernel_clone"];
    let (name, naming) = only_name(&mut namer, in_image, Kind::Rwlock, &[&["unheard_of"]]);
    assert_eq!((name.as_str(), naming), ("kernel+0x200000", Naming::Unnamed(Unnamed::NoDataSymbols)));
    assert_eq!(
        only_name(&mut namer, in_image, Kind::Rwlock, &[&fork, &["unheard_of"]]),
        ("tasklist_lock".to_owned(), Naming::InferredSite)
    );
    let inside =
        ["__pv_queued_spin_lock_slowpath", "queued_write_lock_slowpath", "_raw_write_lock_irq", "copy_process"];
    let wait_lock = Identity::Address(namer.image.start + 0x20_0004);
    assert_eq!(only_name(&mut namer, wait_lock, Kind::Spin, &[&inside]).0, "tasklist_lock.raw_lock.wait_lock");
    let breakpoint = ["percpu_rwsem_wait", "__percpu_down_read", "bp_constraints_lock.isra.0", "reserve_bp_slot"];
    let other = Identity::Address(namer.image.start + 0x20_0100);
    assert_eq!(only_name(&mut namer, other, Kind::PercpuRwsem, &[&breakpoint]).0, "bp_cpuinfo_sem");
    let elsewhere = Identity::Address(0xffff_c900_0000_1000);
    let (_, naming) = only_name(&mut namer, elsewhere, Kind::Spin, &[]);
    assert_eq!(naming, Naming::Unnamed(Unnamed::UnknownMemory));
    let futex = ["native_queued_spin_lock_slowpath", "_raw_spin_lock", "futex_wake", "do_futex"];
    assert_eq!(only_name(&mut namer, elsewhere, Kind::Spin, &[&futex]).0, "futex_hash_bucket.lock");
}

#[test]
fn an_unreadable_cache_says_so() {
    let (Ok(types), Ok(symbols)) = (KernelTypes::from_sys(), KernelSymbols::from_proc()) else {
        skip!("no types or no symbols here")
    };
    let mut namer =
        LockNamer::new(Arc::new(symbols), types, crate::NoKernelMemory, 0).expect("works without kernel memory");
    let (name, naming) = only_name(&mut namer, Identity::Slab { cache: 8, offset: 24 }, Kind::Spin, &[]);
    assert_eq!((name.as_str(), naming), ("slab+0x18", Naming::Unnamed(Unnamed::NoSlabIdentity)));
    assert_eq!(namer.cpus_found(), 0);
}

#[test]
fn page_table_locks_lie_in_the_pages_own_record() {
    let Ok(types) = KernelTypes::from_sys() else { skip!("no types here") };
    let (outer, offset) = match types.offset_of("ptdesc", "ptl") {
        Ok(offset) => ("ptdesc", offset),
        Err(_) => ("page", types.offset_of("page", "ptl").expect("split page-table locks")),
    };
    let symbols = Arc::new(KernelSymbols::from_reader(&b""[..]).expect("empty is fine"));
    let mut namer = LockNamer::new(symbols, types, crate::NoKernelMemory, 0).expect("works without kernel memory");
    let (name, _) = only_name(&mut namer, Identity::PageStruct { offset }, Kind::Spin, &[]);
    assert_eq!(name, format!("{outer}.ptl"));
    let (_, naming) = only_name(&mut namer, Identity::PageStruct { offset: 3 }, Kind::Spin, &[]);
    assert_eq!(naming, Naming::Unnamed(Unnamed::NoFieldAtOffset));
}

#[test]
fn parts_make_up_the_whole() {
    let lock = |name: &str| unnamed(name.to_owned(), None, Unnamed::UnknownMemory, "");
    let parts = in_parts_per_million(vec![(lock("a"), 1), (lock("b"), 1), (lock("c"), 1)]);
    assert_eq!(parts.iter().map(|(_, part)| part).sum::<u64>(), WHOLE_PPM);
    assert_eq!(parts[1].1, 333_333);
}

#[test]
fn objects_of_the_running_kernel_lead_to_their_file_systems() {
    // Makes sure that every way from an object to its super block is one that this kernel's types have.
    let kernel = running_kernel!();
    let mut namer = kernel.namer();
    namer.renew_filesystems();
    let btf = &kernel.types.vmlinux;
    for type_name in ["super_block", "inode", "dentry", "file", "address_space", "mount", "kernfs_root"] {
        assert!(namer.filesystems.has_way(btf, type_name), "{type_name}");
    }
    assert!(!namer.filesystems.has_way(btf, "task_struct"));
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let own = std::fs::File::open("/proc/self/status").expect("the test itself");
    let system = std::fs::File::open("/sys/kernel/mm").expect("sysfs");
    for (fd, kind) in [
        (reader.as_raw_fd(), "pipefs"),
        (socket.as_raw_fd(), "sockfs"),
        (own.as_raw_fd(), "proc"),
        (system.as_raw_fd(), "sysfs"),
    ] {
        let known = OfFilesystem::Known(Filesystem { kind: kind.into(), device: None });
        let file = kernel.file(fd);
        assert_eq!(filesystem_of(&kernel, &mut namer, file, "file", "f_pos_lock", Kind::Mutex), known);
        // An inode of these types lies inside another object, so its cache is another one each.
        let inode = kernel.follow(file, "file", "f_inode");
        let super_block = kernel.follow(inode, "inode", "i_sb");
        let read = namer.filesystems.of_object(&namer.memory, "inode", inode);
        assert_eq!(read, known);
        assert_eq!(namer.filesystems.of_object(&namer.memory, "super_block", super_block), known);
        let dentry = kernel.follow(file + kernel.offset("file", "f_path"), "path", "dentry");
        assert_eq!(filesystem_of(&kernel, &mut namer, dentry, "dentry", "d_lockref", Kind::Spin), known);
    }
    // A lock that is called after a struct inside does not say where the object begins.
    let file = kernel.file(own.as_raw_fd());
    let identity = kernel.identity(file, "file", "f_pos_lock").expect("a slab object");
    let (lock, _) = namer.name(&identity, Kind::Mutex, &[]).remove(0);
    let inner = Lock { name: "inner.lock".into(), ..lock };
    let address = file + kernel.offset("file", "f_pos_lock");
    assert_eq!(namer.filesystem(&inner, &identity, Kind::Mutex, address), OfFilesystem::Unreadable);
    let mm = kernel.follow(kernel.memory.current_task(), "task_struct", "mm");
    let none = filesystem_of(&kernel, &mut namer, mm, "mm_struct", "mmap_lock", Kind::Rwsem);
    assert_eq!(none, OfFilesystem::None, "an address space belongs to none");
}

/// The file system that a lock at a field of a slab object has, once it is named.
fn filesystem_of(
    kernel: &Kernel,
    namer: &mut LockNamer<Arc<Live>>,
    object: u64,
    type_name: &str,
    field: &str,
    kind: Kind,
) -> OfFilesystem<Filesystem> {
    let identity = kernel.identity(object, type_name, field).expect("a slab object");
    let (lock, _) = namer.name(&identity, kind, &[]).remove(0);
    namer.filesystem(&lock, &identity, kind, object + kernel.offset(type_name, field))
}

#[test]
fn a_lock_without_a_name_may_belong_to_a_file_system() {
    // Makes sure that what is not known is not called none.
    let (Ok(types), Ok(symbols)) = (KernelTypes::from_sys(), KernelSymbols::from_proc()) else {
        skip!("no types or no symbols here")
    };
    let mut namer =
        LockNamer::new(Arc::new(symbols), types, crate::NoKernelMemory, 0).expect("works without kernel memory");
    let in_slab = Identity::Slab { cache: 8, offset: 24 };
    let no_name = unnamed("slab+0x18".into(), None, Unnamed::NoSlabIdentity, "");
    assert_eq!(namer.filesystem(&no_name, &in_slab, Kind::Spin, 1 << 63), OfFilesystem::NotLookedUp);
    let variable = Identity::Address(namer.image.start + 0x100);
    assert_eq!(namer.filesystem(&no_name, &variable, Kind::Spin, 1 << 63), OfFilesystem::None);
    let lock = |name: &str, object: &str| Lock {
        name: name.into(),
        object: Some(object.into()),
        naming: Naming::SlabField,
        detail: String::new(),
    };
    let elsewhere = Identity::Address(0xffff_c900_0000_1000);
    let of_inode = lock("inode.i_rwsem", "inode");
    assert_eq!(namer.filesystem(&of_inode, &elsewhere, Kind::Rwsem, 1 << 63), OfFilesystem::Unreadable);
    let of_pipe = lock("pipe_inode_info.mutex", "pipe_inode_info");
    assert_eq!(namer.filesystem(&of_pipe, &in_slab, Kind::Mutex, 1 << 63), OfFilesystem::None);
}
