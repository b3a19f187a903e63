//! Single contended holds and the chains they make, as text and as JSON.

use lockmeter_profile::{ChainLink, HolderTime, SlowHoldRow};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json::object;
use crate::stacks::chain;
use crate::units::{duration, moment};

/// What a holder did, in the words of tables: heading and JSON key of each part, in the order of [`HolderTime::PARTS`].
pub const PARTS: [(&str, &str); 6] = [
    ("ran", "running_ns"),
    ("runnable, not running", "runnable_ns"),
    ("asleep for I/O", "io_ns"),
    ("waiting for a lock", "lock_ns"),
    ("reclaiming memory", "reclaim_ns"),
    ("asleep", "asleep_ns"),
];

/// The lines of one hold, with names as they are: the lock, then what its holder waited for, each further in.
pub fn lines(hold: &SlowHoldRow, frames: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (depth, link) in hold.chain.iter().enumerate() {
        let indent = "  ".repeat(depth + 1);
        let verb = match (depth, &link.holder) {
            (0, _) => "held",
            (_, Some(_)) => "waiting for, meanwhile held",
            (_, None) => "waiting for",
        };
        let task = match &link.task {
            Some(task) => format!(" by {} ({})", task.comm, task.tgid.unwrap_or(0)),
            None => String::new(),
        };
        let when = if depth == 0 { format!(", until {}", moment(hold.end_unix_ns)) } else { String::new() };
        let lock = format!("{} ({})", link.lock, link.mode);
        lines.push(format!("{indent}{:>7} {verb} {lock}{task}{when}", duration(link.total_ns)));
        if let Some(holder) = &link.holder {
            lines.push(format!("{indent}        {}", holder_words(link.total_ns, holder)));
        }
        if !link.stack.is_empty() && frames > 0 {
            lines.push(format!("{indent}        released by {}", chain(&link.stack, frames)));
        }
    }
    if hold.chain.len() > 1 {
        lines.push(format!("    a chain of {} locks, {} in all", hold.chain.len(), duration(hold.span_ns)));
    }
    lines
}

/// `ran 1.2 ms, asleep for I/O 20 ms`, longest first.
fn holder_words(total_ns: u64, holder: &HolderTime) -> String {
    let unknown_ns = total_ns.saturating_sub(holder.known_ns());
    let named = PARTS.iter().map(|(words, _)| *words).zip(holder.parts());
    let mut parts: Vec<(&str, u64)> =
        named.chain([("not known", unknown_ns)]).filter(|(_, spent)| *spent > 0).collect();
    parts.sort_by_key(|(_, spent_ns)| std::cmp::Reverse(*spent_ns));
    let words: Vec<String> = parts.iter().map(|(words, spent_ns)| format!("{words} {}", duration(*spent_ns))).collect();
    words.join(", ")
}

/// All of them, for JSON.
pub struct SlowHoldsJson<'a>(pub &'a [SlowHoldRow]);

impl Serialize for SlowHoldsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(HoldJson))
    }
}

struct HoldJson<'a>(&'a SlowHoldRow);

impl Serialize for HoldJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let links: Vec<LinkJson<'_>> = self.0.chain.iter().map(LinkJson).collect();
        object!(serializer, {
            "end_unix_ns": self.0.end_unix_ns,
            "span_ns": self.0.span_ns,
            "chain": links,
        })
    }
}

struct LinkJson<'a>(&'a ChainLink);

impl Serialize for LinkJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let link = self.0;
        object!(serializer, {
            "lock": link.lock,
            "kind": link.kind.name(),
            "mode": link.mode.name(),
            "total_ns": link.total_ns,
            "task": link.task.as_ref().map(|task| task.comm.as_str()),
            "tgid": link.task.as_ref().and_then(|task| task.tgid),
            "stack": link.stack,
            "holder": link.holder.as_ref().map(HolderJson),
        })
    }
}

struct HolderJson<'a>(&'a HolderTime);

impl Serialize for HolderJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(PARTS.len()))?;
        for ((_, key), spent_ns) in PARTS.iter().zip(self.0.parts()) {
            map.serialize_entry(key, &spent_ns)?;
        }
        map.end()
    }
}
