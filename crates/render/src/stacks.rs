//! Stacks in one line, and words for blockers that have none.

use std::borrow::Cow;
use std::sync::Arc;

use lockmeter_profile::{BlockerSource, HolderState, RowBlocker, RowRoot, RowTask, SystemCall, ThreadState};

/// Stands where a wait has no stack.
pub const NO_STACK: &str = "[no stack taken]";

/// `a < b < c`, innermost first, cut after `limit` frames.
pub fn chain(frames: &[Arc<str>], limit: usize) -> String {
    if frames.is_empty() {
        return NO_STACK.to_owned();
    }
    let shown: Vec<Cow<'_, str>> = frames.iter().take(limit).map(|frame| without_long_arguments(frame)).collect();
    let mut shown = shown.join(" < ");
    if frames.len() > limit {
        shown.push_str(" < …");
    }
    shown
}

/// Arguments of a type or function, in angle brackets, that are longer than this are left out in tables.
const LONGEST_ARGUMENTS: usize = 24;

/// A name of C++ or Rust with its long arguments as `<…>`. What stands in brackets at the beginning is no argument but what a method of
/// Rust belongs to.
pub fn without_long_arguments(name: &str) -> Cow<'_, str> {
    if name.len() <= LONGEST_ARGUMENTS || !name.contains('<') {
        return Cow::Borrowed(name);
    }
    let mut short = String::new();
    let mut rest = name;
    while let Some(at) = rest.find('<') {
        let end = end_of_arguments(&rest[at..]).map_or(rest.len(), |end| at + end);
        let arguments = &rest[at + 1..end];
        // One that stands alone is between two frames.
        let is_operator =
            arguments.starts_with(' ') || ["operator", "operator<"].iter().any(|name| rest[..at].ends_with(name));
        short.push_str(&rest[..=at]);
        if is_operator || end == rest.len() {
            rest = &rest[at + 1..];
            continue;
        }
        if at == 0 && short.len() == 1 {
            short.push_str(&without_long_arguments(arguments));
        } else if arguments.chars().count() <= LONGEST_ARGUMENTS {
            short.push_str(arguments);
        } else {
            short.push('…');
        }
        short.push('>');
        rest = &rest[end + 1..];
    }
    short.push_str(rest);
    Cow::Owned(short)
}

/// Where the bracket closes that opens this text; `->` closes none.
fn end_of_arguments(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        before = c;
    }
    None
}

/// How a blocker is known, or why it is not, as tables say it.
pub const fn source_words(source: BlockerSource) -> &'static str {
    match source {
        BlockerSource::Releaser => "releaser",
        BlockerSource::Waker => "woken by",
        BlockerSource::NeverSlept => "not known: it spun",
        BlockerSource::NotSampled => "not sampled",
        BlockerSource::WakeupNotSeen => "wake-up not seen",
        BlockerSource::Holder => "holder",
        BlockerSource::StackLost => "stack lost",
        BlockerSource::Handover => "released, not yet running",
        BlockerSource::EarlierHolder => "earlier holders",
    }
}

/// `releaser in stress-ng: a < b < c`; only the reason where there is no stack.
pub fn blocker(
    source: BlockerSource,
    task: Option<&str>,
    state: Option<HolderState>,
    (stack, limit): (&[Arc<str>], usize),
) -> String {
    let mut text = source_words(source).to_owned();
    if let Some(task) = task {
        text.push_str(" in ");
        text.push_str(task);
    }
    if let Some(state) = state {
        text.push_str(&format!(" ({})", holder_words(state)));
    }
    if !stack.is_empty() {
        text.push_str(": ");
        text.push_str(&chain(stack, limit));
    }
    text
}

/// `releaser in stress-ng (4711)`; only the reason where the task is not known.
pub fn blocked_by(known: &RowBlocker) -> String {
    blocker(known.source, task(known.by_task.as_ref()).as_deref(), known.state, (&[], 0))
}

/// The same of the end of a chain.
pub fn root_task(root: &RowRoot) -> String {
    let words = blocker(root.source, task(root.by_task.as_ref()).as_deref(), root.state, (&[], 0));
    through(words, root.lock.as_deref())
}

fn task(by_task: Option<&Option<RowTask>>) -> Option<String> {
    by_task?.as_ref().map(|RowTask { tgid, comm }| match tgid {
        Some(tgid) => format!("{comm} ({tgid})"),
        None => comm.clone(),
    })
}

/// What a holder did while others waited.
pub fn holder_words(did: HolderState) -> String {
    let words = match did.state {
        ThreadState::Running => "running".to_owned(),
        ThreadState::Runnable | ThreadState::Woken => "itself waiting for a CPU".to_owned(),
        blocked => format!("itself blocked: {}", crate::threads::words(blocked)),
    };
    match did.call.and_then(SystemCall::name) {
        Some(call) => format!("{words}, in {call}"),
        None => words,
    }
}

/// `releaser: a < b < c, through LOCK`: the lock is that which the blocker waited for.
pub fn root(root: &RowRoot, limit: usize) -> String {
    through(blocker(root.source, None, root.state, (&root.stack, limit)), root.lock.as_deref())
}

fn through(mut text: String, lock: Option<&str>) -> String {
    if let Some(lock) = lock {
        text.push_str(", through ");
        text.push_str(lock);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arguments_are_left_out_and_short_ones_stay() {
        for (name, short) in [
            ("futex_wait", "futex_wait"),
            ("std::vector<int>::push_back(int const&)", "std::vector<int>::push_back(int const&)"),
            ("std::map<std::string, std::vector<std::string>>::find", "std::map<…>::find"),
            ("<std::sync::Mutex<Vec<String>>>::lock", "<std::sync::Mutex<Vec<String>>>::lock"),
            (
                "<std::thread::spawn<alloc::boxed::Box<dyn core::ops::Fn()>, ()>::{closure#1} as core::ops::FnOnce<()>>::call_once",
                "<std::thread::spawn<…>::{closure#1} as core::ops::FnOnce<()>>::call_once",
            ),
            ("call<fn(&str) -> alloc::string::String, core::option::Option<u8>>::go", "call<…>::go"),
            ("std::operator<< <std::char_traits<char>, std::allocator<char>>", "std::operator<< <…>"),
            ("heap, first seen at f < g<std::char_traits<char>, std::allocator<char>>", "heap, first seen at f < g<…>"),
        ] {
            assert_eq!(without_long_arguments(name), short);
        }
    }
}
