//! Kinds and modes of locks, as the programs code them in `lock_kind.bpf.h`: the numbers of the model (`codes.rs` compares them).

use lockmeter_profile::{Context, Kind, Mode};

/// The code of the kind in a word of kind, mode and bucket.
pub const fn kind_code(meta: u32) -> u32 {
    meta & 0xff
}

/// `None` for numbers that are none of the model's.
pub fn kind_mode_of(meta: u32) -> Option<(Kind, Mode)> {
    Some((Kind::from_code(meta as u8)?, Mode::from_code((meta >> 8) as u8 & 0xf)?))
}

/// Where a wait that spins was; `None` where that is not known, and for what sleeps.
pub const fn context_of(meta: u32) -> Option<Context> {
    Context::from_code((meta >> 12) as u8 & 0xf)
}

/// What the flags of `lock:contention_begin` say, as `kind_mode_of` in `lock_kind.bpf.h`.
pub const fn kind_mode_of_flags(flags: u32) -> (Kind, Mode) {
    const SPIN: u32 = 1;
    const READ: u32 = 2;
    const WRITE: u32 = 4;
    const RT: u32 = 8;
    const PERCPU: u32 = 16;
    const MUTEX: u32 = 32;
    let mode = match flags {
        _ if flags & READ != 0 => Mode::Read,
        _ if flags & WRITE != 0 => Mode::Write,
        _ => Mode::Exclusive,
    };
    let is_exclusive = matches!(mode, Mode::Exclusive);
    let kind = match flags {
        _ if flags & !(SPIN | READ | WRITE | RT | PERCPU | MUTEX) != 0 => Kind::Unknown,
        _ if flags & MUTEX != 0 => Kind::Mutex,
        _ if flags & PERCPU != 0 => Kind::PercpuRwsem,
        _ if flags & RT != 0 => Kind::RtMutex,
        _ if flags & SPIN != 0 && is_exclusive => Kind::Spin,
        _ if flags & SPIN != 0 => Kind::Rwlock,
        _ if is_exclusive => Kind::Semaphore,
        _ => Kind::Rwsem,
    };
    (kind, mode)
}
