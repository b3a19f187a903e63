//! Stacks in one line, and words for blockers that have none.

use std::sync::Arc;

use lockmeter_profile::BlockerSource;

/// Stands where a wait has no stack.
pub const NO_STACK: &str = "[no stack taken]";

/// `a < b < c`, innermost first, cut after `limit` frames.
pub fn chain(frames: &[Arc<str>], limit: usize) -> String {
    if frames.is_empty() {
        return NO_STACK.to_owned();
    }
    let mut shown = frames[..frames.len().min(limit)].join(" < ");
    if frames.len() > limit {
        shown.push_str(" < …");
    }
    shown
}

/// How a blocker is known, or why it is not, as tables say it.
pub const fn source_words(source: BlockerSource) -> &'static str {
    match source {
        BlockerSource::Releaser => "releaser",
        BlockerSource::Waker => "woken by",
        BlockerSource::NeverSlept => "spinner: nobody woke it",
        BlockerSource::NotSampled => "not sampled",
        BlockerSource::WakeupNotSeen => "wake-up not seen",
        BlockerSource::Holder => "holder",
        BlockerSource::StackLost => "stack lost",
    }
}

/// `releaser in stress-ng: a < b < c`; only the reason where there is no stack.
pub fn blocker(source: BlockerSource, task: Option<&str>, stack: &[Arc<str>], limit: usize) -> String {
    let mut text = source_words(source).to_owned();
    if let Some(task) = task {
        text.push_str(" in ");
        text.push_str(task);
    }
    if !stack.is_empty() {
        text.push_str(": ");
        text.push_str(&chain(stack, limit));
    }
    text
}
