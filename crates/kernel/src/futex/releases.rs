//! Divides a wait among those who had the lock meanwhile: from one release to the next, the lock was the next releaser's. And finds whom
//! these waited for themselves: the root.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use lockmeter_profile::{HolderState, ThreadState};

/// Releases that are kept of a lock. A wait during which there were more is divided from the first of these on.
const RELEASES: usize = 64;

/// Locks whose releases are kept.
const MOST_LOCKS: usize = 1 << 14;

/// Waits that are kept of a thread, and threads of which they are.
const WAITS: usize = 8;
const MOST_THREADS: usize = 1 << 15;

/// A wait follows another closely if this part of it is longer than what lies between them.
const CLOSELY: u64 = 4;

/// A lock: the process, and the address.
pub(super) type LockAddress = (u32, u64);

/// A release that woke a sampled waiter.
struct Release<By> {
    at_ns: u64,
    thread: u32,
    by: Rc<By>,
    slept: Vec<PastSleep>,
}

/// Sleeps, or times without a CPU, of a thread that released a lock later: one, or several of one kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct PastSleep {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// For so long of that.
    pub(super) spent_ns: u64,
    pub(super) did: HolderState,
}

/// What a thread did for most of the time: a reason why it slept, or it ran or could have.
fn mostly(slept: &[PastSleep], since_ns: u64, until_ns: u64) -> HolderState {
    let (mut sums, mut runnable_ns) = (BTreeMap::<HolderState, u64>::new(), 0);
    for PastSleep { begin_ns, end_ns, spent_ns, did } in slept {
        let both_ns = (*end_ns).min(until_ns).saturating_sub((*begin_ns).max(since_ns));
        // Several of a kind lie evenly between the first and the last.
        let part = u128::from(both_ns) * u128::from(*spent_ns) / u128::from(end_ns.saturating_sub(*begin_ns).max(1));
        let part_ns = u64::try_from(part).unwrap_or(both_ns);
        match did.state {
            ThreadState::Runnable => runnable_ns += part_ns,
            _ => *sums.entry(*did).or_default() += part_ns,
        }
    }
    let (asleep_ns, all_ns) = (sums.values().sum::<u64>(), until_ns.saturating_sub(since_ns));
    let most = sums.into_iter().max_by_key(|(_, ns)| *ns).filter(|_| asleep_ns * 2 >= all_ns);
    let has_no_cpu = (runnable_ns + asleep_ns) * 2 >= all_ns;
    let awake = if has_no_cpu { ThreadState::Runnable } else { ThreadState::Running };
    most.map_or(HolderState::of(awake), |(did, _)| did)
}

/// A sampled wait of a thread.
struct PastWait<By, Lock> {
    address: LockAddress,
    begin_ns: u64,
    /// When the lock was released, and when the thread ran.
    end_ns: u64,
    ran_ns: u64,
    /// Who had most of it, with the lock; or whom that one waited for.
    root: Rc<Root<By, Lock>>,
}

/// The end of a chain of blockers.
#[derive(Debug, PartialEq)]
pub(super) struct Root<By, Lock> {
    /// What it had, and the last of the others waited for.
    pub(super) lock: Lock,
    pub(super) by: Rc<By>,
    pub(super) did: Option<HolderState>,
}

/// What one holder had of a wait.
#[derive(Debug)]
pub(super) struct Part<By, Lock> {
    /// `None`: those whose releases are no longer kept.
    pub(super) by: Option<Rc<By>>,
    /// Whom it waited for itself meanwhile.
    pub(super) root: Option<Rc<Root<By, Lock>>>,
    /// What the holder did meanwhile, or, where it waited, the root did.
    pub(super) did: Option<HolderState>,
    pub(super) ns: u64,
}

/// The last releases of locks, and the last waits of threads.
pub(super) struct Releases<By, Lock> {
    locks: HashMap<LockAddress, VecDeque<Release<By>>>,
    waits: HashMap<u32, VecDeque<PastWait<By, Lock>>>,
}

impl<By, Lock> Default for Releases<By, Lock> {
    fn default() -> Self {
        Self { locks: HashMap::new(), waits: HashMap::new() }
    }
}

impl<By, Lock: Clone> Releases<By, Lock> {
    /// A thread released the lock.
    pub(super) fn note(&mut self, lock: LockAddress, at_ns: u64, thread: u32, (by, slept): (Rc<By>, Vec<PastSleep>)) {
        if self.locks.len() >= MOST_LOCKS && !self.locks.contains_key(&lock) {
            self.locks.clear();
        }
        let last = self.locks.entry(lock).or_default();
        if last.len() == RELEASES {
            last.pop_front();
        }
        // What two CPUs send may come in another order.
        let at = last.partition_point(|before| before.at_ns <= at_ns);
        last.insert(at, Release { at_ns, thread, by, slept });
    }

    /// A thread's wait for this lock was ended by a release; these were its parts.
    pub(super) fn waited(
        &mut self,
        thread: u32,
        (begin_ns, end_ns): (u64, u64),
        (address, lock): (LockAddress, &Lock),
        parts: &[Part<By, Lock>],
    ) {
        let Some(Part { by: Some(by), root, did, .. }) = parts.iter().max_by_key(|part| part.ns) else { return };
        let own = || Rc::new(Root { lock: lock.clone(), by: Rc::clone(by), did: *did });
        let root = root.as_ref().map_or_else(own, Rc::clone);
        if self.waits.len() >= MOST_THREADS && !self.waits.contains_key(&thread) {
            self.waits.clear();
        }
        let last = self.waits.entry(thread).or_default();
        // Those that follow each other closely and have one root are kept as one: as long as all together, and ended by the last.
        if let Some(before) = last.back_mut() {
            let gap_ns = begin_ns.saturating_sub(before.ran_ns);
            let is_close = begin_ns >= before.ran_ns && gap_ns < (end_ns - begin_ns) / CLOSELY;
            if is_close && before.address == address && Rc::ptr_eq(&before.root.by, &root.by) {
                (before.begin_ns, before.end_ns, before.ran_ns) = (before.begin_ns + gap_ns, end_ns, end_ns);
                return;
            }
        }
        if last.len() == WAITS {
            last.pop_front();
        }
        last.push_back(PastWait { address, begin_ns, end_ns, ran_ns: end_ns, root });
    }

    /// The thread ran again so long after its last wait was ended.
    pub(super) fn ran(&mut self, thread: u32, after_ns: u64) {
        if let Some(last) = self.waits.get_mut(&thread).and_then(VecDeque::back_mut) {
            last.ran_ns = last.end_ns + after_ns;
        }
    }

    /// What each releaser had of a wait for this lock. The rest was nobody's: the releaser did not run yet. The one that released the lock
    /// first after the wait's end had it then.
    pub(super) fn divide(&self, lock: LockAddress, begin_ns: u64, end_ns: u64) -> Vec<Part<By, Lock>> {
        let mut parts = Vec::new();
        let Some(last) = self.locks.get(&lock) else { return parts };
        let is_whole = last.len() < RELEASES || last.front().is_some_and(|first| first.at_ns <= begin_ns);
        let mut since_ns = begin_ns;
        for Release { at_ns, thread, by, slept } in last.iter().filter(|release| release.at_ns > begin_ns) {
            if since_ns >= end_ns {
                break;
            }
            let at_ns = (*at_ns).min(end_ns);
            if since_ns == begin_ns && !is_whole {
                add(&mut parts, Part { by: None, root: None, did: None, ns: at_ns - since_ns });
            } else {
                let mut own_ns = at_ns - since_ns;
                for wait in self.waits.get(thread).into_iter().flatten() {
                    let both_ns = wait.ran_ns.min(at_ns).saturating_sub(wait.begin_ns.max(since_ns)).min(own_ns);
                    own_ns -= both_ns;
                    if wait.address != lock {
                        let root = Some(Rc::clone(&wait.root));
                        add(&mut parts, Part { by: Some(Rc::clone(by)), did: wait.root.did, root, ns: both_ns });
                    }
                }
                let did = Some(mostly(slept, since_ns, at_ns));
                add(&mut parts, Part { by: Some(Rc::clone(by)), root: None, did, ns: own_ns });
            }
            since_ns = at_ns;
        }
        parts
    }
}

fn add<By, Lock>(parts: &mut Vec<Part<By, Lock>>, more: Part<By, Lock>) {
    let is_same = |part: &Part<By, Lock>| {
        part.by.as_ref().map(Rc::as_ptr) == more.by.as_ref().map(Rc::as_ptr)
            && part.root.as_ref().map(Rc::as_ptr) == more.root.as_ref().map(Rc::as_ptr)
            && part.did == more.did
    };
    match parts.iter_mut().find(|part| is_same(part)) {
        _ if more.ns == 0 => {}
        Some(part) => part.ns += more.ns,
        None => parts.push(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Told<Name> = (Name, Option<(u32, Name)>, u64);

    fn told(parts: &[Part<String, u32>]) -> Vec<Told<String>> {
        let by = |part: &Part<String, u32>| part.by.as_ref().map_or("earlier".to_owned(), |by| by.to_string());
        let root = |root: &Rc<Root<String, u32>>| (root.lock, root.by.to_string());
        parts.iter().map(|part| (by(part), part.root.as_ref().map(root), part.ns)).collect()
    }

    fn expected(parts: &[Told<&str>]) -> Vec<Told<String>> {
        let root = |(lock, by): (u32, &str)| (lock, by.to_owned());
        parts.iter().map(|(by, of, ns)| ((*by).to_owned(), of.map(root), *ns)).collect()
    }

    fn by(name: &str) -> Rc<String> {
        Rc::new(name.to_owned())
    }

    #[test]
    fn each_holder_is_blamed_for_its_time() {
        let (long, short) = (by("long"), by("short"));
        let mut releases = Releases::default();
        let lock = (1, 0x1000);
        releases.note(lock, 500, 7, (Rc::clone(&short), Vec::new()));
        releases.note(lock, 2_000, 8, (Rc::clone(&long), Vec::new()));
        releases.note(lock, 2_020, 7, (Rc::clone(&short), Vec::new()));
        releases.note(lock, 2_010, 7, (Rc::clone(&short), Vec::new()));
        let parts = releases.divide(lock, 1_000, 2_020);
        assert_eq!(told(&parts), expected(&[("long", None, 1_000), ("short", None, 20)]));
        assert!(releases.divide((1, 0x2000), 1_000, 2_020).is_empty());
    }

    #[test]
    fn what_came_before_the_releases_that_are_kept_is_nobodys_by_name() {
        let known = by("known");
        let mut releases = Releases::<String, u32>::default();
        let lock = (1, 0x1000);
        for number in 0..=RELEASES as u64 {
            releases.note(lock, 1_000 + number * 10, 7, (Rc::clone(&known), Vec::new()));
        }
        let end_ns = 1_000 + RELEASES as u64 * 10;
        let parts = releases.divide(lock, 0, end_ns);
        assert_eq!(told(&parts), expected(&[("earlier", None, 1_010), ("known", None, end_ns - 1_010)]));
        assert_eq!(told(&releases.divide(lock, end_ns - 5, end_ns)), expected(&[("known", None, 5)]));
    }

    #[test]
    fn a_wait_that_timed_out_is_blamed_on_who_released_the_lock_next() {
        let (first, second) = (by("first"), by("second"));
        let mut releases = Releases::<String, u32>::default();
        let lock = (1, 0x10);
        releases.note(lock, 1_000, 1, (first, Vec::new()));
        releases.note(lock, 9_000, 2, (second, Vec::new()));
        assert_eq!(
            told(&releases.divide(lock, 400, 5_400)),
            expected(&[("first", None, 600), ("second", None, 4_400)])
        );
        assert_eq!(told(&releases.divide(lock, 2_000, 7_000)), expected(&[("second", None, 5_000)]));
        assert!(releases.divide(lock, 9_500, 9_900).is_empty(), "nobody has released it since");
    }

    #[test]
    fn until_the_releaser_ran_the_lock_was_nobodys() {
        let lock = (1, 0x10);
        let mut releases = Releases::default();
        releases.note(lock, 1_000, 1, (by("first"), Vec::new()));
        let parts = releases.divide(lock, 100, 1_000);
        releases.waited(2, (100, 1_000), (lock, &10), &parts);
        releases.ran(2, 300);
        releases.note(lock, 1_500, 2, (by("second"), Vec::new()));
        assert_eq!(told(&releases.divide(lock, 200, 1_500)), expected(&[("first", None, 800), ("second", None, 200)]));
    }

    #[test]
    fn a_holder_that_slept_is_said_to_have_slept() {
        let lock = (1, 0x10);
        let mut releases = Releases::<String, u32>::default();
        let slept = |begin_ns, end_ns, state| PastSleep {
            begin_ns,
            end_ns,
            spent_ns: end_ns - begin_ns,
            did: HolderState::of(state),
        };
        let sleeps = vec![slept(0, 900, ThreadState::Sleep), slept(950, 1_600, ThreadState::DiskIo)];
        releases.note(lock, 1_700, 1, (by("writer"), sleeps));
        let did = |begin_ns| releases.divide(lock, begin_ns, 1_700)[0].did.map(|did| did.state);
        assert_eq!(did(1_000), Some(ThreadState::DiskIo));
        assert_eq!(did(100), Some(ThreadState::Sleep));
        assert_eq!(did(1_500), Some(ThreadState::DiskIo), "for half of the time");
        assert_eq!(did(1_600), Some(ThreadState::Running));
    }

    #[test]
    fn a_holder_with_many_short_sleeps_is_said_to_have_slept_and_one_without_a_cpu_to_have_had_none() {
        let write = HolderState { state: ThreadState::DiskIo, call: Some(lockmeter_profile::SystemCall(74)) };
        let without_cpu = HolderState::of(ThreadState::Runnable);
        let kind = |begin_ns, end_ns, spent_ns, did| PastSleep { begin_ns, end_ns, spent_ns, did };
        assert_eq!(mostly(&[kind(0, 1_000, 600, write)], 500, 1_000), write);
        assert_eq!(mostly(&[kind(0, 1_000, 400, write)], 500, 1_000).state, ThreadState::Running);
        assert_eq!(mostly(&[kind(0, 1_000, 400, write), kind(0, 900, 300, without_cpu)], 0, 1_000), without_cpu);
    }

    /// The third has a lock for long; the second waits for it, with the lock that the first waits for.
    #[test]
    fn a_chain_is_followed_to_its_root() {
        let (first, second, third) = ((1, 0x10), (1, 0x20), (1, 0x30));
        let mut releases = Releases::default();
        releases.note(third, 900, 3, (by("third"), Vec::new()));
        let parts = releases.divide(third, 100, 900);
        releases.waited(2, (100, 900), (third, &30), &parts);
        releases.note(second, 1_000, 2, (by("second"), Vec::new()));
        let parts = releases.divide(second, 200, 1_000);
        assert_eq!(told(&parts), expected(&[("second", Some((30, "third")), 700), ("second", None, 100)]));
        releases.waited(1, (200, 1_000), (second, &20), &parts);
        releases.note(first, 1_100, 1, (by("first"), Vec::new()));
        let parts = releases.divide(first, 300, 1_100);
        assert_eq!(told(&parts), expected(&[("first", Some((30, "third")), 700), ("first", None, 100)]));
    }
}
