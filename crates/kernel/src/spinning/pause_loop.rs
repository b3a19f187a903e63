//! Whether a thread was in a loop that waits: told from the code about its next instruction.
//!
//! Threads that spin on x86-64 execute `pause`, and others do not: it tells the processor that this is a loop which waits for another
//! thread. So a jump back over a `pause` is the end of such a loop.

use std::ops::Range;

/// `CODE_BEFORE` in `tables.h`: where the next instruction stands in a copy.
const NEXT: usize = 48;

const PAUSE: [u8; 2] = [0xf3, 0x90];

/// The jump back stands within this many bytes behind the `pause`: enough for a look at a word, a try, and a count.
const LONGEST_LOOP: usize = 40;

/// Whether the next instruction of this copy of code, as `copy_code` makes it, lies in a loop with a `pause`.
pub fn is_next_in_loop(code: &[u8]) -> bool {
    (0..code.len().saturating_sub(1))
        .filter(|at| code[*at..].starts_with(&PAUSE))
        .filter_map(|pause| loop_with(code, pause))
        .any(|of_loop| of_loop.contains(&NEXT))
}

/// The innermost loop about a `pause`: to its last jump back.
fn loop_with(code: &[u8], pause: usize) -> Option<Range<usize>> {
    let behind = pause + PAUSE.len();
    let jumps = (behind..code.len().min(behind + LONGEST_LOOP)).filter_map(|at| jump_at(code, at));
    let back: Vec<(usize, usize)> = jumps.filter(|(target, _)| *target <= pause).collect();
    let begin = back.iter().map(|(target, _)| *target).max()?;
    let end = back.iter().filter(|(target, _)| *target == begin).map(|(_, end)| *end).max()?;
    Some(begin..end)
}

/// Where a jump at this place leads, and where it ends. What only looks like one does not lead back over a `pause`, as a rule.
fn jump_at(code: &[u8], at: usize) -> Option<(usize, usize)> {
    let (length, distance) = match code.get(at..)? {
        [0xeb | 0x70..=0x7f, near, ..] => (2, i32::from(near.cast_signed())),
        [0xe9, rest @ ..] => (5, i32::from_le_bytes(*rest.first_chunk()?)),
        [0x0f, 0x80..=0x8f, rest @ ..] => (6, i32::from_le_bytes(*rest.first_chunk()?)),
        _ => return None,
    };
    let end = at + length;
    Some((end.checked_add_signed(isize::try_from(distance).ok()?)?, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pthread_spin_lock` of glibc 2.36: a try, the way out, and a loop that looks at the word and tries again.
    const SPIN_LOCK: &[u8] = &[
        0xf0, 0xff, 0x0f, 0x75, 0x0b, 0x31, 0xc0, 0xc3, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xf3, 0x90, 0x83, 0x3f, 0x00,
        0x7f, 0xe9, 0xeb, 0xf7,
    ];

    /// A copy in which the next instruction is at this place of a function.
    fn copy(function: &[u8], next: usize) -> Vec<u8> {
        let mut code = vec![0x90; 2 * NEXT];
        let begin = NEXT - next;
        code[begin..begin + function.len()].copy_from_slice(function);
        code
    }

    #[test]
    fn a_thread_waits_between_the_pause_and_the_jump_back() {
        for (next, waits) in [(0, false), (3, false), (7, false), (16, true), (18, true), (21, true), (23, true)] {
            assert_eq!(is_next_in_loop(&copy(SPIN_LOCK, next)), waits, "at {next}");
        }
    }

    #[test]
    fn a_way_out_of_the_loop_does_not_end_it() {
        let with_way_out = [0xf3, 0x90, 0x83, 0x3f, 0x00, 0x74, 0x10, 0xeb, 0xf7];
        assert!((0..with_way_out.len()).all(|next| is_next_in_loop(&copy(&with_way_out, next))));
        assert!(!is_next_in_loop(&copy(&with_way_out, with_way_out.len())));
    }

    #[test]
    fn a_loop_without_a_pause_works() {
        let mut working = SPIN_LOCK.to_vec();
        working[16..18].copy_from_slice(&[0x66, 0x90]);
        assert!((0..working.len()).all(|next| !is_next_in_loop(&copy(&working, next))));
    }

    #[test]
    fn a_pause_that_nothing_jumps_back_over_is_no_loop() {
        let mut straight = SPIN_LOCK.to_vec();
        straight.truncate(21);
        assert!((0..straight.len()).all(|next| !is_next_in_loop(&copy(&straight, next))));
        assert!(!is_next_in_loop(&[]));
    }
}
