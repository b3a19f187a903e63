//! Who has a lock that threads wait for, where the lock does not name its holder, and whether it waits for work.
//!
//! Of a lock that is waited for all the while, the thread that came out of a wait for it last has it: had that thread released the lock,
//! another one would have come out. If it sleeps for that lock again, it came too late. Then another one has it; of those that have ever
//! slept for it, if all but one do so now, that one. Of a lock that names its holder that is asked where the waits do not tell.
//!
//! Workers that take turns at one source of work do so by a lock: one of them has it and reads from a pipe or waits for a connection, the
//! others wait for the lock. All of them are at rest. Who has a lock and waits for an answer, however, has asked for it first, by waking
//! somebody.

use std::collections::HashMap;

use lockmeter_profile::ThreadState;
use lockmeter_symbols::{FutexCall, SharedAddress, SharedMapping};

use super::connections::sleeps_for_connections;
use super::table::Thread;

/// Addresses remembered; beyond, all are forgotten.
const MOST_WORDS: usize = 1 << 14;

/// A futex word: the same one for all processes that map it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct WordId(u32);

/// Where a word lies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Place {
    Private { tgid: u32, address: u64 },
    Shared(SharedAddress),
}

/// The locks that threads wait for, and what the looks since the last drain have found of each.
#[derive(Default)]
pub(super) struct LockTurns {
    by_address: HashMap<(u32, u64), WordId>,
    by_place: HashMap<Place, WordId>,
    looks: HashMap<WordId, LooksAtLock>,
    /// By thread, when a sleep of it began, and whether that is for connections.
    for_connections: HashMap<u64, (u64, bool)>,
}

/// How often somebody was found to wait for a lock.
#[derive(Debug, Default, Clone, Copy)]
struct LooksAtLock {
    holder_waits_for_work: u64,
    holder_does_not: u64,
    holder_unknown: u64,
}

impl LooksAtLock {
    /// Whether the lock serves to take turns in waiting for work. On a busy machine its holder may be found on the way to a CPU.
    const fn is_at_rest(self) -> bool {
        let Self { holder_waits_for_work, holder_does_not, holder_unknown } = self;
        holder_waits_for_work > 0
            && holder_does_not * 3 <= holder_waits_for_work
            && holder_unknown <= holder_waits_for_work
    }
}

/// Those who wait for one lock at a look, and the last that came out.
struct Turn<'a> {
    waiter: &'a Thread,
    waiters: u64,
    oldest_wait_ns: u64,
    /// When it came out, and who.
    last: Option<(u64, u64)>,
    /// Threads that have slept for the lock before, and do not now.
    elsewhere: Vec<u64>,
}

impl Turn<'_> {
    /// The thread that has the lock, and whether it has had it since it came out of a wait for it.
    fn holder(&self, sleeps_for_it: impl Fn(u64) -> bool) -> Option<(u64, bool)> {
        match (self.last, self.elsewhere.as_slice()) {
            (Some((released_ns, last)), _) if released_ns >= self.oldest_wait_ns && !sleeps_for_it(last) => {
                Some((last, true))
            }
            (_, [only]) => Some((*only, false)),
            _ => None,
        }
    }
}

impl LockTurns {
    /// Looks at all threads. Returns by thread the lock that it waits for, or has while it waits for work.
    pub(super) fn look(&mut self, threads: &HashMap<u64, Thread>) -> HashMap<u64, WordId> {
        let mut turns = HashMap::<WordId, Turn<'_>>::new();
        let mut found = HashMap::new();
        let mut are_shared = false;
        for thread in threads.values().filter(|thread| thread.waits_for_lock()) {
            are_shared |= !is_private(thread);
            let word = self.word(thread);
            found.insert(thread.time.id, word);
            let new =
                || Turn { waiter: thread, waiters: 0, oldest_wait_ns: u64::MAX, last: None, elsewhere: Vec::new() };
            let turn = turns.entry(word).or_insert_with(new);
            turn.waiters += 1;
            turn.oldest_wait_ns = turn.oldest_wait_ns.min(thread.time.since_ns);
        }
        if turns.is_empty() {
            return found;
        }
        // Where a word lies that processes share takes reading a list of mappings.
        let has_slept = |thread: &&Thread| thread.last_word != 0 && (are_shared || is_private(thread));
        for thread in threads.values().filter(has_slept) {
            let (word, id) = (self.word(thread), thread.time.id);
            let Some(turn) = turns.get_mut(&word) else { continue };
            if found.get(&id) != Some(&word) {
                turn.elsewhere.push(id);
            }
            if thread.released_ns > turn.last.map_or(0, |(released_ns, _)| released_ns) {
                turn.last = Some((thread.released_ns, id));
            }
        }
        for (word, turn) in turns {
            let holder = turn.holder(|id| found.get(&id) == Some(&word));
            let holder = holder.and_then(|(id, came_out)| Some((threads.get(&id)?, came_out)));
            let (holder, for_work) = match holder {
                Some((holder, came_out)) => (Some(holder), self.waits_for_work(holder, came_out)),
                // Who keeps a lock while it reads may hang. Connections are work for sure.
                None => {
                    let holder = named_holder(turn.waiter, threads);
                    (holder, holder.is_some_and(|holder| self.waits_for_connections(holder)))
                }
            };
            let looks = self.looks.entry(word).or_default();
            match holder {
                Some(holder) if for_work => {
                    looks.holder_waits_for_work += turn.waiters;
                    found.entry(holder.time.id).or_insert(word);
                }
                Some(_) => looks.holder_does_not += turn.waiters,
                None => looks.holder_unknown += turn.waiters,
            }
        }
        found
    }

    /// Whether those who wait for this lock are at rest, as far as the looks since the last drain tell.
    pub(super) fn is_at_rest(&self, word: WordId) -> bool {
        self.looks.get(&word).is_some_and(|looks| looks.is_at_rest())
    }

    /// The addresses of such locks, by process.
    pub(super) fn at_rest(&self) -> impl Iterator<Item = (u32, u64)> {
        self.by_address.iter().filter(|(_, word)| self.is_at_rest(**word)).map(|(address, _)| *address)
    }

    /// To be called when a drain is over.
    pub(super) fn forget_looks(&mut self) {
        self.looks.clear();
        self.for_connections.clear();
        if self.by_address.len() > MOST_WORDS {
            self.by_address.clear();
            self.by_place.clear();
        }
    }

    /// Whether the holder of a lock sleeps for something to do: in a read of a pipe or a local socket or for a connection, and without
    /// having asked for it. Who came out of a wait with the lock has asked if it has woken anybody since. Who took it without a wait may
    /// have woken somebody before it did; it has asked if it woke the one who wakes it.
    fn waits_for_work(&mut self, holder: &Thread, came_out: bool) -> bool {
        let reads =
            [libc::SYS_read, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmsg].contains(&i64::from(holder.call));
        let reads = reads && holder.state() == Some(ThreadState::PipeOrSocket);
        let has_asked = holder.woke_ns > holder.released_ns && (came_out || holder.wakee_tid == holder.waker_tid);
        !has_asked && (reads || self.waits_for_connections(holder))
    }

    fn waits_for_connections(&mut self, holder: &Thread) -> bool {
        let accepts = [libc::SYS_accept, libc::SYS_accept4].contains(&i64::from(holder.call));
        let is_asleep = holder.state().is_some_and(ThreadState::is_blocked);
        let polls = holder.state() == Some(ThreadState::NetworkOrPoll);
        is_asleep && (accepts || (polls && self.is_for_connections(holder)))
    }

    /// Of each sleep it is asked once: it goes on for long where there is little work.
    fn is_for_connections(&mut self, holder: &Thread) -> bool {
        let since_ns = holder.time.since_ns;
        let ask = || (since_ns, sleeps_for_connections(holder.time.tgid, holder.time.tid));
        let known = self.for_connections.entry(holder.time.id).or_insert_with(ask);
        if known.0 != since_ns {
            *known = ask();
        }
        known.1
    }

    /// The word that a thread waits for, or waited for last.
    fn word(&mut self, thread: &Thread) -> WordId {
        let (tgid, address) = (thread.time.tgid, thread.last_word);
        if let Some(word) = self.by_address.get(&(tgid, address)) {
            return *word;
        }
        let shared = if is_private(thread) { None } else { shared_place(tgid, address) };
        let next = WordId(u32::try_from(self.by_place.len()).unwrap_or(u32::MAX));
        let word = *self.by_place.entry(shared.unwrap_or(Place::Private { tgid, address })).or_insert(next);
        self.by_address.insert((tgid, address), word);
        word
    }
}

const fn is_private(thread: &Thread) -> bool {
    !FutexCall { operation: thread.last_operation, expected: 0 }.is_shared()
}

/// The thread that the lock itself names as its holder.
fn named_holder<'a>(waiter: &Thread, threads: &'a HashMap<u64, Thread>) -> Option<&'a Thread> {
    let (site, word) = waiter.site()?;
    let word = word?;
    let tid = word.clone().holder_now(site)?;
    let is_it = |thread: &&Thread| thread.time.tid == tid && (word.is_shared || thread.time.tgid == word.tgid);
    threads.values().find(is_it)
}

/// Where a word lies in what a process shares.
fn shared_place(tgid: u32, address: u64) -> Option<Place> {
    let mappings = SharedMapping::all_of(tgid)?;
    Some(Place::Shared(SharedMapping::at(&mappings, address)?.0))
}
