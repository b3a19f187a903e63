//! The classes of locks, and in which order they were taken.

use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// A place in the source.
pub(super) type Site = &'static Location<'static>;

/// A class and subclass of locks. Numbers are never given again, so that what a thread remembers of a class that is gone is
/// no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) class: u32,
    pub(super) subclass: u8,
}

/// A lock's class, as the lock knows it.
#[derive(Debug)]
pub(super) struct LockClass {
    /// 0 before the first acquisition.
    number: AtomicU32,
    key: Key,
}

/// By what locks are of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Named(&'static str),
    MadeAt(&'static str, u32, u32),
    /// Each of them is a class.
    Alone,
}

impl LockClass {
    pub(super) const fn made_at(site: Site) -> Self {
        Self::with(Key::MadeAt(site.file(), site.line(), site.column()))
    }

    pub(super) const fn named(name: &'static str) -> Self {
        Self::with(Key::Named(name))
    }

    pub(super) const fn alone() -> Self {
        Self::with(Key::Alone)
    }

    const fn with(key: Key) -> Self {
        LockClass { number: AtomicU32::new(0), key }
    }

    /// Its number; it gets one if it has none.
    pub(super) fn number(&self) -> u32 {
        match self.number.load(Relaxed) {
            0 => graph().number(self),
            known => known,
        }
    }
}

impl Drop for LockClass {
    fn drop(&mut self) {
        let number = *self.number.get_mut();
        // Another lock may come to lie at its place; it must not inherit its orders.
        if self.key == Key::Alone && number != 0 {
            graph().forget(number);
        }
    }
}

/// One class after another: where the first was taken that was held, and where the second was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) from: Node,
    pub(super) held_since: Site,
    pub(super) to: Node,
    pub(super) taken_at: Site,
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    /// Their names, by number less 1.
    names: Vec<String>,
    numbers: HashMap<Key, u32>,
    after: HashMap<Node, Vec<Edge>>,
}

/// The orders seen so far. A lock of the standard library's: ours would check themselves.
pub(super) fn graph() -> MutexGuard<'static, Graph> {
    static GRAPH: LazyLock<Mutex<Graph>> = LazyLock::new(Mutex::default);
    GRAPH.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Graph {
    fn number(&mut self, lock: &LockClass) -> u32 {
        // Another thread may have been faster.
        let known = match lock.number.load(Relaxed) {
            0 => self.numbers.get(&lock.key).copied(),
            known => Some(known),
        };
        let number = known.unwrap_or_else(|| {
            self.names.push(match lock.key {
                Key::Named(name) => name.to_owned(),
                Key::MadeAt(file, line, column) => format!("lock made at {file}:{line}:{column}"),
                Key::Alone => format!("lock at {:#x}", std::ptr::from_ref(lock).addr()),
            });
            let number = self.names.len() as u32;
            if lock.key != Key::Alone {
                self.numbers.insert(lock.key, number);
            }
            number
        });
        lock.number.store(number, Relaxed);
        number
    }

    pub(super) fn name(&self, node: Node) -> String {
        let name = self.names.get(node.class as usize - 1).map_or("", String::as_str);
        if node.subclass == 0 { name.to_owned() } else { format!("{name} (subclass {})", node.subclass) }
    }

    fn forget(&mut self, class: u32) {
        self.after.retain(|from, _| from.class != class);
        for edges in self.after.values_mut() {
            edges.retain(|edge| edge.to.class != class);
        }
    }

    /// Notes an order. If it is new and closes a circle: the orders that lead back, from `edge.to` to `edge.from`.
    pub(super) fn note(&mut self, edge: Edge) -> Option<Vec<Edge>> {
        let after = self.after.entry(edge.from).or_default();
        if after.iter().any(|known| known.to == edge.to) {
            return None;
        }
        after.push(edge);
        if edge.from == edge.to { Some(Vec::new()) } else { self.path(edge.to, edge.from) }
    }

    /// The shortest chain of orders from one class to another.
    fn path(&self, from: Node, to: Node) -> Option<Vec<Edge>> {
        let mut seen = HashSet::from([from]);
        let mut chains = std::collections::VecDeque::from([(from, Vec::new())]);
        while let Some((at, chain)) = chains.pop_front() {
            for edge in self.after.get(&at).into_iter().flatten() {
                if seen.insert(edge.to) || edge.to == to {
                    let mut longer = chain.clone();
                    longer.push(*edge);
                    if edge.to == to {
                        return Some(longer);
                    }
                    chains.push_back((edge.to, longer));
                }
            }
        }
        None
    }
}
