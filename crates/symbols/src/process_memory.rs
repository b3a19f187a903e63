//! The memory of a running process, read while it runs on: whatever is read may be half changed.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Of one process. What is read after its end is nothing.
#[derive(Debug)]
pub(crate) struct ProcessMemory(File);

impl ProcessMemory {
    /// `None` if it has ended, or may not be looked at.
    pub(crate) fn open(pid: u32) -> Option<Self> {
        Some(Self(File::open(format!("/proc/{pid}/mem")).ok()?))
    }

    pub(crate) fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Some(bytes)
    }

    /// All of these bytes or none.
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        self.0.read_exact_at(into, address).ok()
    }

    pub(crate) fn u64(&self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_ne_bytes)
    }

    pub(crate) fn u32(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_ne_bytes)
    }

    pub(crate) fn text(&self, address: u64, length: usize) -> Option<String> {
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        String::from_utf8(bytes).ok()
    }

    /// Up to its NUL, which must stand among the first this many bytes, or soon after.
    pub(crate) fn string(&self, address: u64, longest: usize) -> Option<String> {
        const PIECE: usize = 64;
        let mut bytes = Vec::new();
        while address != 0 && bytes.len() < longest {
            let at = address.checked_add(bytes.len() as u64)?;
            let mut piece = [0; PIECE];
            let got = self.0.read_at(&mut piece, at).ok().filter(|got| *got > 0)?;
            let end = piece[..got].iter().position(|byte| *byte == 0);
            bytes.extend_from_slice(&piece[..end.unwrap_or(got)]);
            if end.is_some() {
                return String::from_utf8(bytes).ok();
            }
        }
        None
    }
}
