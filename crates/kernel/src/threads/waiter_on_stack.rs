//! Which kernel lock a thread sleeps for whose wait nobody saw begin.
//!
//! A sleeper for a lock keeps a record of itself on its kernel stack, which names its task and is linked into the lock's list of
//! waiters. The list leads to the lock.

use lockmeter_profile::Kind;

/// How much of a stack, from its inner end, the record may lie in.
const STACK_BYTES: usize = 1024;

/// Waiters passed on the way to the lock.
const MOST_WAITERS: usize = 256;

/// Reads a word of kernel memory.
pub(super) type ReadWord<'a> = dyn Fn(u64) -> Option<u64> + 'a;

/// Where the list of waiters stands in a lock and in a waiter's record, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lists {
    pub(crate) mutex: Option<WaiterList>,
    pub(crate) rwsem: Option<WaiterList>,
    pub(crate) percpu_rwsem: Option<WaiterList>,
    pub(crate) semaphore: Option<WaiterList>,
}

/// Of one kind of lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaiterList {
    /// In the lock.
    pub(crate) head: u32,
    /// In the waiter's record: the links, and its task.
    pub(crate) links: u32,
    pub(crate) task: u32,
}

impl Lists {
    /// As the kernel's types have it. `offset_of` tells the place of a field in a struct.
    pub(crate) fn find(offset_of: impl Fn(&str, &str) -> Option<u32>) -> Self {
        let list = |lock: (&str, &str), waiter: &str, links: &str, task: &str| {
            Some(WaiterList {
                head: offset_of(lock.0, lock.1)?,
                links: offset_of(waiter, links)?,
                task: offset_of(waiter, task)?,
            })
        };
        Self {
            mutex: list(("mutex", "wait_list"), "mutex_waiter", "list", "task"),
            rwsem: list(("rw_semaphore", "wait_list"), "rwsem_waiter", "list", "task"),
            percpu_rwsem: list(("percpu_rw_semaphore", "waiters.head"), "wait_queue_entry", "entry", "private"),
            semaphore: list(("semaphore", "wait_list"), "semaphore_waiter", "list", "task"),
        }
    }

    const fn of(&self, kind: Kind) -> Option<WaiterList> {
        match kind {
            Kind::Mutex => self.mutex,
            Kind::Rwsem => self.rwsem,
            Kind::PercpuRwsem => self.percpu_rwsem,
            Kind::Semaphore => self.semaphore,
            _ => None,
        }
    }

    /// The address of the lock that a task sleeps for, whose saved stack pointer this is. `is_lock` says whether a lock may lie at an
    /// address: the records of other waiters lie on stacks.
    pub(super) fn lock_of(
        &self,
        kind: Kind,
        task: u64,
        stack_pointer: u64,
        read: &ReadWord<'_>,
        is_lock: &dyn Fn(u64) -> bool,
    ) -> Option<u64> {
        let list = self.of(kind)?;
        let words = (0..STACK_BYTES as u64 / 8).map(|at| stack_pointer.wrapping_add(at * 8));
        let records = words.filter(|at| read(*at) == Some(task)).map(|at| at.wrapping_sub(list.task.into()));
        records.into_iter().find_map(|record| lock_in_list(record.wrapping_add(list.links.into()), list, read, is_lock))
    }
}

/// Follows the links until one is a lock's.
fn lock_in_list(first: u64, list: WaiterList, read: &ReadWord<'_>, is_lock: &dyn Fn(u64) -> bool) -> Option<u64> {
    let mut at = read(first)?;
    // What links back is a list, and no other words that happen to stand beside the task.
    if read(at.wrapping_add(8))? != first {
        return None;
    }
    for _ in 0..MOST_WAITERS {
        let lock = at.wrapping_sub(list.head.into());
        if is_lock(lock) {
            return Some(lock);
        }
        at = read(at)?;
        if at == first {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const LIST: WaiterList = WaiterList { head: 16, links: 0, task: 16 };

    /// Two waiters on their stacks at 0x1000 and 0x2000, for the lock at 0x9000.
    fn memory() -> HashMap<u64, u64> {
        HashMap::from([
            (0x1100, 0x2200),
            (0x1108, 0x9010),
            (0x1110, 0xaaa),
            (0x2200, 0x9010),
            (0x2208, 0x1100),
            (0x2210, 0xbbb),
            (0x9010, 0x1100),
            (0x9018, 0x2200),
        ])
    }

    fn lock_of(memory: &HashMap<u64, u64>, task: u64, stack: u64) -> Option<u64> {
        let lists = Lists { mutex: Some(LIST), rwsem: None, percpu_rwsem: None, semaphore: None };
        let read = |at: u64| Some(memory.get(&at).copied().unwrap_or(0));
        lists.lock_of(Kind::Mutex, task, stack, &read, &|lock| lock == 0x9000)
    }

    #[test]
    fn a_waiters_record_leads_past_other_waiters_to_the_lock() {
        assert_eq!(lock_of(&memory(), 0xaaa, 0x1000), Some(0x9000));
        assert_eq!(lock_of(&memory(), 0xbbb, 0x2000), Some(0x9000));
        assert_eq!(lock_of(&memory(), 0xccc, 0x1000), None, "another task");
    }

    #[test]
    fn words_that_are_no_list_lead_nowhere() {
        let mut memory = memory();
        memory.insert(0x2208, 0x7777);
        assert_eq!(lock_of(&memory, 0xaaa, 0x1000), None);
    }
}
