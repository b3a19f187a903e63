//! Reading kernel memory.

use std::fmt;

/// Kernel memory at this address could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable {
    /// The address asked for.
    pub address: u64,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel memory at {:#x} cannot be read", self.address)
    }
}

impl std::error::Error for Unreadable {}

/// Reads kernel memory. The one that can run a BPF program implements it; tests read recorded bytes.
pub trait KernelMemory {
    /// Fills `into` with the bytes at `address`, all of them or none.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable>;

    /// The 8 bytes at `address`, in this machine's byte order.
    fn read_u64(&self, address: u64) -> Result<u64, Unreadable> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The 4 bytes at `address`, in this machine's byte order.
    fn read_u32(&self, address: u64) -> Result<u32, Unreadable> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// The string at `address`, up to its NUL or `longest` bytes.
    fn read_string(&self, address: u64, longest: usize) -> Result<String, Unreadable> {
        /// Small and aligned, so that no read crosses into a page that the string does not reach.
        const PIECE: usize = 16;
        let mut text = Vec::new();
        while text.len() < longest {
            let at = address.wrapping_add(text.len() as u64);
            let mut piece = [0; PIECE];
            let piece = &mut piece[..PIECE - at as usize % PIECE];
            self.read(at, piece)?;
            let end = piece.iter().position(|byte| *byte == 0);
            text.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
            if end.is_some() {
                break;
            }
        }
        text.truncate(longest);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl<M: KernelMemory + ?Sized> KernelMemory for &M {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        (**self).read(address, into)
    }
}

impl<M: KernelMemory + ?Sized> KernelMemory for std::rc::Rc<M> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        (**self).read(address, into)
    }
}

impl<M: KernelMemory + ?Sized> KernelMemory for std::sync::Arc<M> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        (**self).read(address, into)
    }
}

/// No kernel memory at all: names then rest on symbols, types and stacks alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoKernelMemory;

impl KernelMemory for NoKernelMemory {
    fn read(&self, address: u64, _into: &mut [u8]) -> Result<(), Unreadable> {
        Err(Unreadable { address })
    }
}
