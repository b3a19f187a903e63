//! Many patterns of names, compared at once.

use crate::lock_functions::{matches_pattern, plain_name};

/// Patterns of names, by their first letters: every frame of a recording is compared with hundreds.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    all: Vec<String>,
    /// The places of those that begin with a letter, by the letter.
    by_letter: Vec<(u8, Vec<u32>)>,
    /// The places of those that begin with `*`.
    any_letter: Vec<u32>,
}

impl Patterns {
    pub(super) fn add(&mut self, pattern: String) {
        let at = self.all.len() as u32;
        match pattern.bytes().next() {
            None | Some(b'*') => self.any_letter.push(at),
            Some(letter) => match self.by_letter.iter_mut().find(|(known, _)| *known == letter) {
                Some((_, places)) => places.push(at),
                None => self.by_letter.push((letter, vec![at])),
            },
        }
        self.all.push(pattern);
    }

    /// As they stand in the file.
    pub fn all(&self) -> &[String] {
        &self.all
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether one of them is the name, without what compilers added to it.
    pub fn matches(&self, name: &str) -> bool {
        let name = plain_name(name);
        let of_letter = self.by_letter.iter().find(|(letter, _)| name.as_bytes().first() == Some(letter));
        let places = of_letter.map_or(&[][..], |(_, places)| places).iter().chain(&self.any_letter);
        places.into_iter().any(|at| matches_pattern(&self.all[*at as usize], name))
    }

    /// Whether one of them is the name or the [bare name](bare_name).
    pub(super) fn match_either(&self, name: &str, bare: &str) -> bool {
        !self.is_empty() && (self.matches(bare) || (name != bare && self.matches(name)))
    }
}

/// A function's name without its parameters, its template's arguments, what it returns, and what compilers and assemblers added.
pub fn bare_name(function: &str) -> &str {
    let bare = function.split_once('(').map_or(function, |(name, _)| name);
    let bare = plain_name(bare);
    let bare = bare.strip_suffix(".abi0").unwrap_or(bare);
    // A template's name begins with what it returns.
    let template = bare.strip_suffix('>').and_then(|bare| bare.rsplit_once('<'));
    template.map_or(bare, |(name, _)| name.rsplit_once(' ').map_or(name, |(_, name)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_what_is_written_before_the_parameters() {
        let atomics =
            "v8::internal::Object v8::internal::FutexEmulation::WaitSync<int>(v8::internal::Isolate*) [clone .isra.0]";
        for (name, bare) in [
            (atomics, "v8::internal::FutexEmulation::WaitSync"),
            ("lock_wait(que_thr_t*)", "lock_wait"),
            ("mine::lock_wait()", "mine::lock_wait"),
            ("LWLockAcquire.part.0", "LWLockAcquire"),
            ("runtime.futex.abi0", "runtime.futex"),
            ("ProcSleep", "ProcSleep"),
        ] {
            assert_eq!(bare_name(name), bare);
        }
    }

    #[test]
    fn patterns_are_found_by_their_first_letter_or_by_a_star() {
        let mut patterns = Patterns::default();
        assert!(!patterns.matches("book_lock") && !patterns.match_either("book_lock", "book_lock"));
        for pattern in ["book_lock*", "*RawMutex*", "exact"] {
            patterns.add(pattern.to_owned());
        }
        assert!(
            patterns.matches("book_lock_slow.isra.0")
                && patterns.matches("<x::RawMutex>::lock")
                && patterns.matches("exact")
        );
        assert!(!patterns.matches("exactly") && !patterns.matches("my_book_lock"));
        assert!(patterns.match_either("int exact<int>(int)", bare_name("int exact<int>(int)")));
    }
}
