//! The states of threads, as the programs code them in `thread_state.h`: the numbers of the model (`codes.rs` compares them).

use lockmeter_profile::ThreadState;

/// `None` for numbers that are none of the model's.
pub fn state_of(code: impl TryInto<u8>) -> Option<ThreadState> {
    code.try_into().ok().and_then(ThreadState::from_code)
}
