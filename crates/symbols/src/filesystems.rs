//! From the object that a lock lies in to its file system.
//!
//! The object leads to its super block, and that names the type of the file system and what it lies on. An object that was freed
//! since the lock was waited for leads anywhere: what is read counts only if the type is one that the kernel lists and the
//! device is a word.

use std::collections::{HashMap, HashSet};

use lockmeter_profile::{Filesystem, OfFilesystem};

use crate::btf::{Btf, DEEPEST_NESTING, Type, TypeKind};
use crate::memory::KernelMemory;

/// A step from an object towards its super block: to what a field points to, as `("struct", "field")`, or to what it points to in
/// the middle, which is the second field of that other struct.
type Step = ((&'static str, &'static str), Option<(&'static str, &'static str)>);

/// How types of objects lead to their super block.
#[rustfmt::skip]
const WAYS: &[(&str, &[Step])] = &[
    ("super_block", &[]),
    ("inode", &[INODE]),
    ("dentry", &[(("dentry", "d_sb"), None)]),
    ("file", &[(("file", "f_inode"), None), INODE]),
    ("address_space", &[(("address_space", "host"), None), INODE]),
    ("mount", &[(("mount", "mnt.mnt_sb"), None)]),
    // sysfs and the hierarchies of control groups: the first of the super blocks that show the tree.
    ("kernfs_root", &[(("kernfs_root", "supers"), Some(("kernfs_super_info", "node"))), (("kernfs_super_info", "sb"), None)]),
    ("journal_s", &[(("journal_s", "j_inode"), None), INODE]),
    ("ext4_sb_info", &[(("ext4_sb_info", "s_sb"), None)]),
    ("xfs_mount", &[(("xfs_mount", "m_super"), None)]),
    ("btrfs_fs_info", &[(("btrfs_fs_info", "sb"), None)]),
];

const INODE: Step = (("inode", "i_sb"), None);

/// Longest name of a file system's type that is read.
const LONGEST_KIND: usize = 64;

/// Size of `super_block.s_id`.
const LONGEST_DEVICE: usize = 32;

/// Finds the file systems of objects.
#[derive(Debug)]
pub(crate) struct Filesystems {
    /// Of the types that were asked for: `None` for those that lead to no super block.
    ways: HashMap<String, Option<Way>>,
    /// Absent if this kernel's types lack what is needed.
    super_block: Option<SuperBlock>,
    /// The types that the kernel lists.
    registered: HashSet<String>,
    /// Those read before, by their super block.
    known: HashMap<u64, Option<Filesystem>>,
}

/// Offsets to read a pointer at, one after another: from the object to the address of its super block. Nothing is read at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    /// Of a struct inside the object.
    begin: u64,
    /// What to add to reach the field that is read, and then to what was read.
    steps: Vec<(u64, u64)>,
}

/// Offsets of fields.
#[derive(Debug)]
struct SuperBlock {
    kind: u64,
    device: u64,
    /// In `struct file_system_type`.
    kind_name: u64,
}

impl Filesystems {
    pub fn new(btf: &Btf) -> Self {
        let offset = |of, field| btf.offset_of(of, field).map(u64::from);
        let super_block = offset("super_block", "s_type").zip(offset("super_block", "s_id"));
        let super_block = super_block.zip(offset("file_system_type", "name"));
        Self {
            ways: HashMap::new(),
            super_block: super_block.map(|((kind, device), kind_name)| SuperBlock { kind, device, kind_name }),
            registered: HashSet::new(),
            known: HashMap::new(),
        }
    }

    /// Forgets what was read: super blocks come and go, and so do types, with their modules.
    pub fn renew(&mut self) {
        self.known.clear();
        // Without the list nothing that is read counts.
        self.registered = std::fs::read_to_string("/proc/filesystems").map(|list| listed(&list)).unwrap_or_default();
    }

    /// Whether objects of this type belong to file systems.
    pub fn has_way(&mut self, scope: &Btf, type_name: &str) -> bool {
        if !self.ways.contains_key(type_name) {
            self.ways.insert(type_name.to_owned(), way(scope, type_name));
        }
        self.ways[type_name].is_some()
    }

    /// The file system of the object at an address.
    pub fn of_object(&mut self, memory: &impl KernelMemory, type_name: &str, object: u64) -> OfFilesystem<Filesystem> {
        let Some(way) = self.ways.get(type_name).and_then(Option::as_ref) else { return OfFilesystem::None };
        let super_block = way.follow(memory, object);
        let read = super_block.and_then(|address| {
            if !self.known.contains_key(&address) {
                self.known.insert(address, self.read(memory, address));
            }
            self.known[&address].clone()
        });
        read.map_or(OfFilesystem::Unreadable, OfFilesystem::Known)
    }

    fn read(&self, memory: &impl KernelMemory, super_block: u64) -> Option<Filesystem> {
        let fields = self.super_block.as_ref()?;
        let kind = memory.read_u64(super_block.wrapping_add(fields.kind)).ok()?;
        let name = memory.read_u64(kind.wrapping_add(fields.kind_name)).ok()?;
        let kind = memory.read_string(name, LONGEST_KIND).ok().filter(|kind| self.registered.contains(kind))?;
        let mut device = [0; LONGEST_DEVICE];
        memory.read(super_block.wrapping_add(fields.device), &mut device).ok()?;
        let device = word(&device)?;
        // A file system that lies on nothing has its type's name there.
        let device = (device != kind).then(|| device.to_owned());
        Some(Filesystem { kind, device })
    }
}

impl Way {
    fn follow(&self, memory: &impl KernelMemory, object: u64) -> Option<u64> {
        let begin = object.wrapping_add(self.begin);
        self.steps.iter().try_fold(begin, |at, (field, back)| {
            Some(memory.read_u64(at.wrapping_add(*field)).ok()?.wrapping_sub(*back))
        })
    }
}

/// What `/proc/filesystems` lists: the last word of each line.
fn listed(list: &str) -> HashSet<String> {
    list.lines().filter_map(|line| Some(line.split_whitespace().next_back()?.to_owned())).collect()
}

/// The text before the first NUL, if it is one word that can be printed.
fn word(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let text = &bytes[..end];
    (!text.is_empty() && text.iter().all(u8::is_ascii_graphic)).then(|| str::from_utf8(text).ok()).flatten()
}

/// How objects of this type lead to their super block, if they do: by themselves, or by a struct inside.
fn way(btf: &Btf, type_name: &str) -> Option<Way> {
    let (id, outer) = btf.strip(btf.struct_named(type_name)?)?;
    let (begin, steps) = struct_with_way(btf, id, outer, 0)?;
    let step = |((of, field), back): &Step| {
        let back = match back {
            Some((of, field)) => btf.offset_of(of, field)?,
            None => 0,
        };
        Some((u64::from(btf.offset_of(of, field)?), u64::from(back)))
    };
    Some(Way { begin, steps: steps.iter().map(step).collect::<Option<_>>()? })
}

/// The first struct that leads on, from the outermost, with its offset.
fn struct_with_way(btf: &Btf, id: u32, outer: Type<'_>, depth: usize) -> Option<(u64, &'static [Step])> {
    if let Some((_, steps)) = WAYS.iter().find(|(name, _)| *name == outer.name()) {
        return Some((0, steps));
    }
    outer.members().filter(|member| !member.is_bitfield).find_map(|member| {
        let (inner_id, inner) = btf.strip(member.type_id)?;
        if depth >= DEEPEST_NESTING || inner_id == id || !matches!(inner.kind, TypeKind::Struct | TypeKind::Union) {
            return None;
        }
        let (offset, steps) = struct_with_way(btf, inner_id, inner, depth + 1)?;
        Some((offset + u64::from(member.offset), steps))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::tests::Builder;
    use crate::memory::Unreadable;

    /// Where the objects of the tests lie.
    const INODE: u64 = 0x1000;
    const SUPER_BLOCK: u64 = 0x2000;
    const KIND: u64 = 0x3000;
    const NAME: u64 = 0x4000;

    /// Offsets in the structs of [`btf`].
    const VFS_INODE: u64 = 16;
    const I_SB: u64 = 8;
    const S_ID: u64 = 8;

    fn btf() -> Btf {
        let mut types = Builder::new(None);
        let int = types.int("int", 4);
        let pointer = types.int("pointer", 8);
        let byte = types.int("char", 1);
        let id = types.array(byte, LONGEST_DEVICE as u32);
        types.add(4, "file_system_type", 8, &[("name", pointer, 0)]);
        types.add(4, "super_block", 40, &[("s_type", pointer, 0), ("s_id", id, S_ID as u32)]);
        let inode = types.add(4, "inode", 16, &[("i_lock", int, 0), ("i_sb", pointer, I_SB as u32)]);
        let inner = types.add(4, "some_inode_base", 24, &[("flags", int, 0), ("vfs", inode, 8)]);
        types.add(4, "some_inode_info", 32, &[("own_lock", int, 0), ("base", inner, VFS_INODE as u32 - 8)]);
        types.add(4, "file", 8, &[("f_renamed_inode", pointer, 0)]);
        types.add(4, "pipe_inode_info", 8, &[("lock", int, 0)]);
        types.build(None)
    }

    /// Memory of which only what was written can be read.
    #[derive(Default)]
    struct Written(HashMap<u64, u8>);

    impl Written {
        fn write(&mut self, at: u64, bytes: &[u8]) {
            self.0.extend((at..).zip(bytes.iter().copied()));
        }

        /// An inode of a file system of this type, on this.
        fn with_inode(kind: &str, device: &[u8]) -> Self {
            let mut memory = Self::default();
            memory.write(INODE + VFS_INODE + I_SB, &SUPER_BLOCK.to_ne_bytes());
            memory.write(SUPER_BLOCK, &KIND.to_ne_bytes());
            memory.write(KIND, &NAME.to_ne_bytes());
            memory.write(NAME, &[0; 80]);
            memory.write(NAME, kind.as_bytes());
            memory.write(SUPER_BLOCK + S_ID, &[0; LONGEST_DEVICE]);
            memory.write(SUPER_BLOCK + S_ID, device);
            memory
        }
    }

    impl KernelMemory for Written {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
            for (at, byte) in (address..).zip(into) {
                *byte = *self.0.get(&at).ok_or(Unreadable { address })?;
            }
            Ok(())
        }
    }

    fn filesystems() -> Filesystems {
        let registered = listed("nodev\ttmpfs\n\text4\nnodev\tcgroup2\n");
        Filesystems { registered, ..Filesystems::new(&btf()) }
    }

    fn found(memory: &Written) -> OfFilesystem<Filesystem> {
        let mut filesystems = filesystems();
        assert!(filesystems.has_way(&btf(), "some_inode_info"));
        filesystems.of_object(memory, "some_inode_info", INODE)
    }

    fn known(kind: &str, device: Option<&str>) -> OfFilesystem<Filesystem> {
        OfFilesystem::Known(Filesystem { kind: kind.into(), device: device.map(str::to_owned) })
    }

    #[test]
    fn an_inode_inside_another_object_leads_to_its_file_system() {
        assert_eq!(found(&Written::with_inode("ext4", b"vda1")), known("ext4", Some("vda1")));
        // What lies on nothing has its own name as its device.
        assert_eq!(found(&Written::with_inode("cgroup2", b"cgroup2")), known("cgroup2", None));
    }

    /// The object may have been freed, and anything may lie there now.
    #[test]
    fn what_is_no_super_block_of_a_listed_type_is_not_believed() {
        for memory in [
            Written::default(),
            Written::with_inode("ext5", b"vda1"),
            Written::with_inode("", b"vda1"),
            Written::with_inode("ext4 ", b"vda1"),
            Written::with_inode("ext4", b""),
            Written::with_inode("ext4", b"\x1b[2Jvda1"),
            Written::with_inode("ext4", b"vda\n1"),
            Written::with_inode("ext4", b"vda 1"),
            Written::with_inode("ext4", "vdä".as_bytes()),
            Written::with_inode("ext4", &[b'x'; LONGEST_DEVICE]),
        ] {
            assert_eq!(found(&memory), OfFilesystem::Unreadable);
        }
    }

    #[test]
    fn types_that_lead_to_no_super_block_belong_to_no_file_system() {
        let mut filesystems = filesystems();
        for type_name in ["pipe_inode_info", "no_such_struct", "file"] {
            assert!(!filesystems.has_way(&btf(), type_name), "{type_name}");
            assert_eq!(filesystems.of_object(&Written::default(), type_name, INODE), OfFilesystem::None);
        }
    }

    /// Makes sure that a super block that was unmounted, and its memory used again, is not taken for the one before.
    #[test]
    fn what_was_read_is_forgotten_when_it_is_renewed() {
        let mut filesystems = filesystems();
        assert!(filesystems.has_way(&btf(), "some_inode_info"));
        let mut look = |kind| filesystems.of_object(&Written::with_inode(kind, b"vda"), "some_inode_info", INODE);
        assert_eq!(look("ext4"), known("ext4", Some("vda")));
        assert_eq!(look("tmpfs"), known("ext4", Some("vda")), "read once a round");
        filesystems.renew();
        filesystems.registered = listed("nodev\ttmpfs\n");
        let look = filesystems.of_object(&Written::with_inode("tmpfs", b"vda"), "some_inode_info", INODE);
        assert_eq!(look, known("tmpfs", Some("vda")));
    }
}
