//! System calls by name.

use syscalls::x86_64::Sysno;

/// A system call of Linux on x86-64, by its number: elsewhere a recording cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SystemCall(pub u16);

impl SystemCall {
    /// As its manual page is called; `None` of one that is not known.
    pub fn name(self) -> Option<&'static str> {
        Sysno::new(self.0.into()).map(|call| call.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_have_the_names_of_their_numbers() {
        for (number, name) in [
            (0, "read"),
            (74, "fsync"),
            (334, "rseq"),
            (424, "pidfd_send_signal"),
            (332, "statx"),
            (449, "futex_waitv"),
            (462, "mseal"),
        ] {
            assert_eq!(SystemCall(number).name(), Some(name));
        }
        assert_eq!([337, 423, 512, u16::MAX].map(|number| SystemCall(number).name()), [None; 4]);
    }
}
