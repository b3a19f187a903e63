//! Who made a task wait, and how that is known.

use lockmeter_profile::{Blocker, BlockerSource, HolderState, Loss, Root, lock_functions};

use crate::contention::interval::Builder;
use crate::contention::tables::SampleKey;
use crate::lock_codes::kind_code;
use crate::thread_states::holder_state_of;

/// How the blocker is known, in the numbers of `enum blocker` in `tables.h`.
const BLOCKER_NEVER_SLEPT: u32 = 0;
const BLOCKER_WOKEN: u32 = 1;
const BLOCKER_NOT_SAMPLED: u32 = 2;
const BLOCKER_WAKEUP_NOT_SEEN: u32 = 3;
const BLOCKER_STACK_LOST: u32 = 4;
const BLOCKER_HANDOVER: u32 = 5;
const BLOCKER_EARLIER: u32 = 6;

/// The same with the names that they have there.
#[cfg(test)]
pub(crate) const BLOCKERS: [(&str, u32); 7] = [
    ("never_slept", BLOCKER_NEVER_SLEPT),
    ("woken", BLOCKER_WOKEN),
    ("not_sampled", BLOCKER_NOT_SAMPLED),
    ("wakeup_not_seen", BLOCKER_WAKEUP_NOT_SEEN),
    ("stack_lost", BLOCKER_STACK_LOST),
    ("handover", BLOCKER_HANDOVER),
    ("earlier", BLOCKER_EARLIER),
];

impl Builder<'_> {
    pub(in crate::contention) fn blocker(&mut self, key: &SampleKey) -> Blocker {
        let owner_hint = (key.owner_tgid != 0).then(|| self.task(key.owner_tgid, &key.owner_comm));
        let stack = if key.blocker == 0 { None } else { self.stack(key.blocker) };
        let source = match (key.blocker_source, stack) {
            (BLOCKER_WOKEN, Some(_)) if self.is_releaser(key.blocker) => BlockerSource::Releaser,
            (BLOCKER_WOKEN, Some(_)) => BlockerSource::Waker,
            (BLOCKER_WOKEN | BLOCKER_STACK_LOST, _) => BlockerSource::StackLost,
            (BLOCKER_NOT_SAMPLED, _) => BlockerSource::NotSampled,
            (BLOCKER_WAKEUP_NOT_SEEN, _) => BlockerSource::WakeupNotSeen,
            (BLOCKER_NEVER_SLEPT, _) => BlockerSource::NeverSlept,
            (BLOCKER_HANDOVER, _) => BlockerSource::Handover,
            (BLOCKER_EARLIER, _) => BlockerSource::EarlierHolder,
            _ => {
                self.interval.losses.add(Loss::UnknownCode, 1);
                BlockerSource::WakeupNotSeen
            }
        };
        let known = matches!(source, BlockerSource::Releaser | BlockerSource::Waker | BlockerSource::StackLost);
        let task = (known && key.blocker_tgid != 0).then(|| self.task(key.blocker_tgid, &key.blocker_comm));
        let root = key.root.map(|root| Root {
            lock: self.likeliest(root.class, kind_code(root.kind_mode)),
            stack: self.stack(root.stack),
            task: None,
            state: self.state(root.state),
        });
        Blocker { source, stack, task, owner_hint, root, state: self.state(key.blocker_state) }
    }

    fn state(&mut self, code: u32) -> Option<HolderState> {
        const NOT_KNOWN: u32 = 0;
        let state = holder_state_of(code);
        if state.is_none() && code != NOT_KNOWN {
            self.interval.losses.add(Loss::UnknownCode, 1);
        }
        state
    }

    fn is_releaser(&mut self, hash: u64) -> bool {
        let names = self.functions(hash);
        lock_functions::is_releaser_stack(&names.iter().map(|name| &**name).collect::<Vec<_>>())
    }
}
