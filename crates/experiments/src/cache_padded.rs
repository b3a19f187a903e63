//! What shares no cache line with anything else.

/// At the beginning of two cache lines of its own, which processors load in pairs.
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);
