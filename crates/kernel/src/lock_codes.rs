//! Kinds and modes of locks, as the programs code them in `lock_kind.bpf.h`: the numbers of the model (`codes.rs` compares them).

use lockmeter_profile::{Kind, Mode};

/// The code of the kind in a word of kind, mode and bucket.
pub const fn kind_code(meta: u32) -> u32 {
    meta & 0xff
}

/// `None` for numbers that are none of the model's.
pub fn kind_mode_of(meta: u32) -> Option<(Kind, Mode)> {
    Some((Kind::from_code(meta as u8)?, Mode::from_code((meta >> 8) as u8)?))
}
