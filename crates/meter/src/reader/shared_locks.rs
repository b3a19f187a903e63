//! Which locks of a session's processes are one: those that lie at one place of a file, or of a piece of memory, that several map.

use std::collections::HashMap;
use std::mem::{offset_of, size_of};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockmeter_profile::{Frame, Lock};
use lockmeter_symbols::{Origin, SharedAddress, SharedMapping, shared_lock};

use super::living::{Nested, living_here};
use super::memory::{Memory, u32_at, u64_at};
use crate::layout::{
    ENTRY_NUMBER_SHIFT, ENTRY_SHARED, FIRST_PAGE, LockEntry, PAGE, PageKind, Process, SESSION_PAGE, SHARED_LOCKS,
    SessionHead,
};

/// Processes whose mappings are kept.
const MOST_PROCESSES: usize = 1 << 14;
/// How many processes are looked at again at a time, in turn: each takes some 100 µs.
const MOST_AGAIN: u64 = 16;
/// Places whose names are kept.
const MOST_NAMES: usize = 1 << 16;

/// What is known of a process.
#[derive(Debug, Default)]
struct Known {
    parent: u32,
    /// Locks of its that say that processes may share them, when it was last looked at.
    locks: u32,
    /// `None` while they are not known.
    mappings: Option<Vec<SharedMapping>>,
    /// At which look they were asked for last.
    asked: u64,
}

/// The locks of a session that processes share.
#[derive(Debug)]
pub(super) struct SharedLocks {
    /// The session's memory: who maps it is one of its processes, and no locks of programs lie there.
    inode: u64,
    numbers: HashMap<SharedAddress, u16>,
    /// What reports call the lock there, and the address that it was first seen at.
    names: HashMap<SharedAddress, (Lock, u64)>,
    processes: HashMap<u32, Known>,
    /// What the session's counter was at the last look.
    counter: u32,
    /// How often it was looked again.
    looks: u64,
}

pub(super) fn lock(shared: &Mutex<SharedLocks>) -> MutexGuard<'_, SharedLocks> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedLocks {
    /// Those of the session whose memory has this inode.
    pub(super) fn new(inode: u64) -> Arc<Mutex<Self>> {
        let (numbers, names, processes) = (HashMap::new(), HashMap::new(), HashMap::new());
        Arc::new(Mutex::new(Self { inode, numbers, names, processes, counter: 0, looks: 0 }))
    }

    /// Whether any process has a lock that says that it may be shared.
    pub(super) const fn is_any(&self) -> bool {
        self.counter != 0
    }

    /// Numbers the locks that processes have begun to use since the last time. Says whether there were any.
    pub(super) fn look(&mut self, memory: &Memory) -> bool {
        let at = offset_of!(SessionHead, shared_locks);
        let counter = memory.read(SESSION_PAGE, at, size_of::<u32>()).map_or(0, |bytes| u32_at(&bytes, 0));
        let is_new = counter != self.counter;
        if is_new {
            self.counter = counter;
            // To look for processes in other namespaces takes too long to do it so often.
            self.number_locks(memory, |_, is_new| is_new, living_here);
        }
        is_new
    }

    /// As [`look`](Self::look), and sees whether processes map something else now where such locks lie. To be called once an interval.
    pub(super) fn look_again(&mut self, memory: &Memory) {
        self.look(memory);
        self.looks += 1;
        if self.is_any() {
            let sharing = self.processes.values().filter(|known| known.locks > 0).count() as u64;
            let (turns, turn) = (sharing.div_ceil(MOST_AGAIN).max(1), self.looks);
            let mut nested = Nested::default();
            let is_wanted = |process, is_new| is_new || u64::from(process) % turns == turn % turns;
            self.number_locks(memory, is_wanted, |pid, inode| nested.living(pid, inode));
        }
    }

    /// A process has ended, and was read to its end.
    pub(super) fn forget(&mut self, process: u32) {
        self.processes.remove(&process);
    }

    /// Numbers the locks of processes with such numbers, given whether they have new ones. `living` as [`Nested::living`].
    fn number_locks(
        &mut self,
        memory: &Memory,
        is_wanted: impl Fn(u32, bool) -> bool,
        mut living: impl FnMut(u32, u64) -> Option<u32>,
    ) {
        let owned = memory.owned().unwrap_or_default().into_iter();
        for owned in owned.filter(|owned| owned.kind == PageKind::Process) {
            let Ok(head) = memory.read(owned.page as usize, 0, size_of::<Process>()) else { continue };
            let locks = u32_at(&head, offset_of!(Process, shared_locks));
            let known = self.known(owned.process, &head);
            if locks == 0 || !is_wanted(owned.process, known.locks != locks) {
                continue;
            }
            known.locks = locks;
            let pid = living(u32_at(&head, offset_of!(Process, pid)), self.inode);
            self.ask_for_mappings(owned.process, pid);
            self.number_locks_of(memory, (owned.page, owned.process), &head);
        }
    }

    fn known(&mut self, process: u32, head: &[u8]) -> &mut Known {
        if self.processes.len() >= MOST_PROCESSES && !self.processes.contains_key(&process) {
            self.processes.clear();
        }
        let parent = u32_at(head, offset_of!(Process, parent));
        self.processes.entry(process).or_insert_with(|| Known { parent, ..Known::default() })
    }

    /// Asks the kernel what a process maps that has this id here; `None` of one that has ended.
    fn ask_for_mappings(&mut self, process: u32, pid: Option<u32>) {
        let Some(known) = self.processes.get_mut(&process) else { return };
        known.asked = self.looks;
        if let Some(mut mappings) = pid.and_then(SharedMapping::all_of) {
            // But for the session's memory.
            mappings.retain(|mapping| mapping.place.inode != self.inode);
            known.mappings = Some(mappings);
        }
    }

    /// Writes to the entries of a process's locks which locks of the session they are.
    fn number_locks_of(&mut self, memory: &Memory, (page, process): (u32, u32), head: &[u8]) {
        if self.mappings(process).is_none() {
            return;
        }
        let mut is_changed = false;
        let tables = offset_of!(Process, locks)..offset_of!(Process, classes);
        let pages = head[tables].chunks_exact(size_of::<u32>()).map(|page| u32_at(page, 0) as usize);
        for table in pages.filter(|page| *page >= FIRST_PAGE) {
            let Ok(entries) = memory.read(table, 0, PAGE) else { continue };
            for (number, entry) in entries.chunks_exact(size_of::<LockEntry>()).enumerate() {
                let flags = u32_at(entry, offset_of!(LockEntry, flags));
                let address = u64_at(entry, offset_of!(LockEntry, address));
                if flags & ENTRY_SHARED == 0 || address == 0 {
                    continue;
                }
                let place = self.shared_address(process, address).map(|(place, _)| place);
                let now = place.map_or(0, |place| self.number(place));
                if now != (flags >> ENTRY_NUMBER_SHIFT) as u16 {
                    is_changed = true;
                    let at = number * size_of::<LockEntry>()
                        + offset_of!(LockEntry, flags)
                        + ENTRY_NUMBER_SHIFT as usize / 8;
                    let _ = memory.write(table, at, &now.to_ne_bytes());
                }
            }
        }
        if is_changed {
            // Behind the numbers, which the process forgets then.
            let changes = u32_at(head, offset_of!(Process, shared_changes)).wrapping_add(1);
            let _ = memory.put_u32(page as usize, offset_of!(Process, shared_changes), changes);
        }
    }

    /// The number of the lock at this place, from 1; 0 if there are too many.
    fn number(&mut self, place: SharedAddress) -> u16 {
        let next = self.numbers.len() + 1;
        match self.numbers.get(&place) {
            Some(number) => *number,
            None if next > SHARED_LOCKS => 0,
            None => *self.numbers.entry(place).or_insert(next as u16),
        }
    }

    /// Whether it is known what this process maps.
    pub(super) fn knows(&self, process: u32) -> bool {
        self.mappings(process).is_some()
    }

    /// What lies at this address of a process, and the path of what is mapped there: as the process itself said, or its parents, of whom
    /// it has inherited what they mapped.
    fn shared_address(&self, process: u32, address: u64) -> Option<(SharedAddress, &str)> {
        SharedMapping::at(self.mappings(process)?, address)
    }

    fn mappings(&self, process: u32) -> Option<&[SharedMapping]> {
        let mut next = process;
        loop {
            let known = self.processes.get(&next)?;
            if let Some(mappings) = &known.mappings {
                return Some(mappings);
            }
            // Parents have lower numbers, unless somebody makes them up.
            next = Some(known.parent).filter(|parent| *parent < next)?;
        }
    }

    /// What reports call the lock at this address of a process, and the address that it was first seen at; `None` if no other process can
    /// see it. The process has this head, and this id here while it lives. `used` are the frames of who made the lock, or used it first.
    pub(super) fn name(
        &mut self,
        (process, head, pid): (u32, &[u8], Option<u32>),
        address: u64,
        (used, origin): (&[Frame], Origin),
    ) -> Option<(Lock, u64)> {
        let asked = self.known(process, head).asked;
        if asked != self.looks && self.shared_address(process, address).is_none() {
            self.ask_for_mappings(process, pid);
        }
        let (place, path) = self.shared_address(process, address)?;
        if let Some(known) = self.names.get(&place) {
            return Some(known.clone());
        }
        let named = (shared_lock(place, path, used, origin), address);
        if self.names.len() < MOST_NAMES {
            self.names.insert(place, named.clone());
        }
        Some(named)
    }
}
