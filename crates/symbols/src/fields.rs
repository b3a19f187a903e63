//! From an offset in a type to the lock that begins there.

use lockmeter_profile::Kind;

use crate::btf::{Btf, DEEPEST_NESTING, Type, TypeKind};

/// Types that people name locks in, wherever they are embedded: `zone.lock`, not `pglist_data.node_zones[].lock`.
const NAMED_BY_THEMSELVES: &[&str] = &[
    "zone",
    "lruvec",
    "per_cpu_pages",
    "futex_hash_bucket",
    "list_lru_one",
    "list_lru_node",
    "swap_cluster_info",
    "rcu_node",
    "vmap_node",
];

/// The way from a type to a lock in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockPath {
    /// `mm_struct.mmap_lock`
    pub name: String,
    /// The same from the outermost type on, where `name` begins at an inner one.
    pub full: String,
    /// The types passed, outermost first: where the lock itself is a member of them, they can stand for it in a
    /// function's parameters.
    pub through: Vec<u32>,
}

/// Which types count as locks of which kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockTypes {
    /// On a `PREEMPT_RT` kernel spinlocks are made of rt-mutexes.
    is_realtime: bool,
}

impl LockTypes {
    pub fn of(btf: &Btf) -> Self {
        let spinlock = btf.struct_named("spinlock").and_then(|id| btf.field(id, "lock"));
        let is_realtime = spinlock
            .and_then(|(_, type_id)| btf.strip(type_id))
            .is_some_and(|(_, inner)| inner.name().starts_with("rt_mutex"));
        Self { is_realtime }
    }

    /// Whether a type of this name (a struct's or a typedef's) is a lock of this kind.
    fn is_lock(self, name: &str, kind: Kind) -> bool {
        match kind {
            Kind::Spin => matches!(name, "spinlock" | "raw_spinlock" | "qspinlock" | "spinlock_t" | "raw_spinlock_t"),
            Kind::Rwlock => matches!(name, "rwlock_t" | "qrwlock" | "rwlock"),
            Kind::Mutex => name == "mutex",
            Kind::Rwsem => name == "rw_semaphore",
            Kind::PercpuRwsem => name == "percpu_rw_semaphore",
            Kind::RtMutex if self.is_realtime => matches!(
                name,
                "rt_mutex" | "rt_mutex_base" | "spinlock" | "spinlock_t" | "mutex" | "rw_semaphore" | "rwlock_t"
            ),
            Kind::RtMutex => matches!(name, "rt_mutex" | "rt_mutex_base"),
            Kind::Semaphore => name == "semaphore",
            // Only programs have these.
            Kind::Condvar | Kind::Barrier | Kind::Join | Kind::Park | Kind::Futex | Kind::File => false,
            Kind::Irq | Kind::Softirq | Kind::Tasklet | Kind::Timer | Kind::Hrtimer | Kind::Work => false,
            Kind::Unknown => Kind::ALL.iter().any(|known| *known != Kind::Unknown && self.is_lock(name, *known)),
        }
    }

    /// The lock of this kind that begins exactly at `offset` in the type `id`.
    pub fn at(self, btf: &Btf, id: u32, offset: u64, kind: Kind) -> Option<LockPath> {
        self.begin(btf, id, offset, kind, false)
    }

    /// As [`LockTypes::at`]; but if the type ends in an array of open length, `offset` may lie in any element of it.
    pub fn at_in_open_array(self, btf: &Btf, id: u32, offset: u64, kind: Kind) -> Option<LockPath> {
        self.begin(btf, id, offset, kind, true)
    }

    fn begin(self, btf: &Btf, id: u32, offset: u64, kind: Kind, open: bool) -> Option<LockPath> {
        let (id, outer) = btf.strip(id)?;
        let mut walk =
            Walk { locks: self, btf, kind, open, text: outer.name().to_owned(), restart: None, through: vec![] };
        if !walk.descend(id, outer, offset, 0) {
            return None;
        }
        let Walk { text: full, restart, through, .. } = walk;
        let name = match restart {
            Some((at, inner)) => format!("{inner}{}", &full[at..]),
            None => full.clone(),
        };
        Some(LockPath { name, full, through })
    }
}

struct Walk<'a> {
    locks: LockTypes,
    btf: &'a Btf,
    kind: Kind,
    open: bool,
    text: String,
    /// Where in `text` a type begins that names its locks by itself, and its name.
    restart: Option<(usize, &'a str)>,
    through: Vec<u32>,
}

impl<'a> Walk<'a> {
    /// Extends the path to the lock at `offset`; leaves it as it was if there is none.
    fn descend(&mut self, id: u32, found: Type<'a>, offset: u64, depth: usize) -> bool {
        if depth > DEEPEST_NESTING {
            return false;
        }
        match found.kind {
            TypeKind::Struct | TypeKind::Union => {
                if offset == 0 && self.locks.is_lock(found.name(), self.kind) {
                    return true;
                }
                let before = (self.text.len(), self.restart, self.through.len());
                self.through.push(id);
                if depth > 0 && NAMED_BY_THEMSELVES.contains(&found.name()) {
                    self.restart = Some((self.text.len(), found.name()));
                }
                let is_found = self.enter_members(found, offset, depth);
                if !is_found {
                    self.text.truncate(before.0);
                    self.restart = before.1;
                    self.through.truncate(before.2);
                }
                is_found
            }
            TypeKind::Array => {
                let Some((element, _)) = found.array() else { return false };
                let Some(size) = self.btf.size_of(element).filter(|size| *size > 0) else { return false };
                let length = self.text.len();
                self.text.push_str("[]");
                let is_found = self.step(element, offset % size, depth);
                if !is_found {
                    self.text.truncate(length);
                }
                is_found
            }
            _ => false,
        }
    }

    fn enter_members(&mut self, outer: Type<'a>, offset: u64, depth: usize) -> bool {
        for member in outer.members() {
            let Some(inner_offset) = offset.checked_sub(u64::from(member.offset)) else { continue };
            if member.is_bitfield || !self.reaches(member.type_id, inner_offset) {
                continue;
            }
            let length = self.text.len();
            if !member.name.is_empty() {
                self.text.push('.');
                self.text.push_str(member.name);
            }
            if self.step(member.type_id, inner_offset, depth) {
                return true;
            }
            self.text.truncate(length);
        }
        false
    }

    /// Whether a member of this type extends to `offset`.
    fn reaches(&self, type_id: u32, offset: u64) -> bool {
        let size = self.btf.size_of(type_id).unwrap_or(0);
        let is_open_array = || {
            let array = self.btf.strip(type_id).and_then(|(_, found)| found.array());
            array.is_some_and(|(_, count)| count == 0)
        };
        offset < size || (self.open && size == 0 && is_open_array())
    }

    /// Descends behind typedefs, some of which (`rwlock_t`) are the only name of a lock type.
    fn step(&mut self, mut type_id: u32, offset: u64, depth: usize) -> bool {
        for _ in 0..DEEPEST_NESTING {
            let Some(found) = self.btf.get(type_id) else { return false };
            if !matches!(found.kind, TypeKind::Typedef | TypeKind::Modifier) {
                return self.descend(type_id, found, offset, depth + 1);
            }
            if offset == 0 && found.kind == TypeKind::Typedef && self.locks.is_lock(found.name(), self.kind) {
                return true;
            }
            type_id = found.target();
        }
        false
    }
}

/// Whether a struct ends in an array of open length, so that its objects are larger than it.
pub(crate) fn ends_open(btf: &Btf, id: u32) -> bool {
    let mut id = id;
    for _ in 0..DEEPEST_NESTING {
        let Some((_, found)) = btf.strip(id) else { return false };
        match found.kind {
            TypeKind::Array => return found.array().is_some_and(|(_, count)| count == 0),
            TypeKind::Struct => match found.members().last() {
                Some(last) => id = last.type_id,
                None => return false,
            },
            TypeKind::Union => {
                return found.members().any(|member| {
                    btf.strip(member.type_id).and_then(|(_, inner)| inner.array()).is_some_and(|(_, count)| count == 0)
                });
            }
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::tests::Builder;

    fn btf() -> Btf {
        let mut types = Builder::new(None);
        let int = types.int("int", 4);
        let raw = types.add(4, "raw_spinlock", 4, &[("raw_lock", int, 0)]);
        let spin = types.add(4, "spinlock", 4, &[("rlock", raw, 0)]);
        let spinlock_t = types.add(8, "spinlock_t", spin, &[]);
        let anonymous = types.add(4, "", 8, &[("cnts", int, 0), ("wait_lock", raw, 4)]);
        let rwlock_t = types.add(8, "rwlock_t", anonymous, &[]);
        let mutex = types.add(4, "mutex", 16, &[("owner", int, 0), ("wait_lock", raw, 8)]);
        let lockref_inner = types.add(4, "", 8, &[("lock", spinlock_t, 0), ("count", int, 4)]);
        let lockref = types.add(5, "lockref", 8, &[("", lockref_inner, 0)]);
        let slots = types.array(spinlock_t, 4);
        let open = types.array(spin, 0);
        let zone = types.add(4, "zone", 8, &[("name", int, 0), ("lock", spinlock_t, 4)]);
        let zones = types.array(zone, 2);
        types.add(
            4,
            "object",
            80,
            &[
                ("first", int, 0),
                ("rw", rwlock_t, 8),
                ("guard", mutex, 16),
                ("ref", lockref, 32),
                ("slots", slots, 40),
                ("zones", zones, 56),
                ("tail", open, 80),
            ],
        );
        types.build(None)
    }

    fn name_at(offset: u64, kind: Kind) -> Option<String> {
        let btf = btf();
        let id = btf.struct_named("object").expect("defined");
        LockTypes::of(&btf).at(&btf, id, offset, kind).map(|path| path.name)
    }

    #[test]
    fn the_path_ends_at_the_outermost_lock_of_the_kind() {
        assert_eq!(name_at(16, Kind::Mutex).as_deref(), Some("object.guard"));
        assert_eq!(name_at(24, Kind::Spin).as_deref(), Some("object.guard.wait_lock"));
        assert_eq!(name_at(8, Kind::Rwlock).as_deref(), Some("object.rw"));
        assert_eq!(name_at(32, Kind::Spin).as_deref(), Some("object.ref.lock"));
        assert_eq!(name_at(48, Kind::Spin).as_deref(), Some("object.slots[]"));
    }

    #[test]
    fn no_lock_is_found_between_locks_or_of_another_kind() {
        assert_eq!(name_at(16, Kind::Rwsem), None);
        assert_eq!(name_at(18, Kind::Mutex), None);
        assert_eq!(name_at(0, Kind::Spin), None);
        assert_eq!(name_at(4000, Kind::Spin), None);
    }

    #[test]
    fn some_types_name_their_locks_by_themselves() {
        let btf = btf();
        let id = btf.struct_named("object").expect("defined");
        let path = LockTypes::of(&btf).at(&btf, id, 68, Kind::Spin).expect("the second zone's lock");
        assert_eq!((path.name.as_str(), path.full.as_str()), ("zone.lock", "object.zones[].lock"));
    }

    #[test]
    fn an_open_array_is_entered_only_when_asked() {
        let btf = btf();
        let id = btf.struct_named("object").expect("defined");
        let locks = LockTypes::of(&btf);
        assert!(ends_open(&btf, id));
        assert_eq!(locks.at(&btf, id, 88, Kind::Spin), None);
        let path = locks.at_in_open_array(&btf, id, 88, Kind::Spin);
        assert_eq!(path.map(|path| path.name).as_deref(), Some("object.tail[]"));
    }
}
