//! The states of threads, as the programs code them in `thread_state.h`: the numbers of the model (`codes.rs` compares them).

use lockmeter_profile::{HolderState, SystemCall, ThreadState};

/// `None` for numbers that are none of the model's.
pub fn state_of(code: impl TryInto<u8>) -> Option<ThreadState> {
    code.try_into().ok().and_then(ThreadState::from_code)
}

/// `DID_CALL_SHIFT` in `thread_state.h`.
const CALL_SHIFT: u32 = 5;

/// What a holder did: a state, and the system call if that tells more of it.
pub fn holder_state_of(code: u32) -> Option<HolderState> {
    let call = (code >> CALL_SHIFT).checked_sub(1).and_then(|call| call.try_into().ok()).map(SystemCall);
    Some(HolderState { state: state_of(code & ((1 << CALL_SHIFT) - 1))?, call })
}
