//! Tables that programs fill and a loader drains: two buffers a CPU, mapped.

use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use libbpf_rs::MapCore;
use lockmeter_profile::Loss;

use crate::error::{ErrorKind, KernelError};

/// The tables of all CPUs.
///
/// The programs fill one half of each CPU's while the loader reads and clears the other, so no lock is needed.
pub struct DoubleBuffers<Buffer> {
    first: NonNull<Buffer>,
    cpus: usize,
    tables: PhantomData<Buffer>,
}

impl<Buffer> DoubleBuffers<Buffer> {
    /// Maps the array that holds two buffers a CPU.
    ///
    /// # Safety
    ///
    /// `Half` is the type of the map's values, made of plain integers, so that any bytes are a valid one; the map has two
    /// for each of the CPUs.
    pub unsafe fn map(buffers: &impl MapCore, cpus: usize) -> Result<Self, KernelError> {
        let length = cpus * 2 * size_of::<Buffer>();
        // SAFETY: a fresh shared mapping of a map that we own; the kernel checks fd and length.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                buffers.as_fd().as_raw_fd(),
                0,
            )
        };
        NonNull::new(address.cast::<Buffer>()).filter(|_| address != libc::MAP_FAILED).map_or_else(
            || {
                let error = std::io::Error::last_os_error();
                Err(KernelError::new(ErrorKind::Refused, format!("cannot map the tables of the programs: {error}")))
            },
            |first| Ok(Self { first, cpus, tables: PhantomData }),
        )
    }

    /// How many CPUs have tables.
    pub const fn cpus(&self) -> usize {
        self.cpus
    }

    /// One half of a CPU's tables, to which a program may be writing: to be read word by word, as volatile.
    pub fn buffer(&self, cpu: usize, buffer: u32) -> *const Buffer {
        let index = cpu * 2 + (buffer & 1) as usize;
        assert!(index < self.cpus * 2, "two buffers a CPU are mapped");
        // SAFETY: within the mapping, which lives as long as self.
        unsafe { self.first.as_ptr().add(index) }
    }

    /// The half of a CPU's tables to which no program writes.
    pub fn inactive(&mut self, cpu: usize, buffer: InactiveBuffer) -> &mut Buffer {
        let buffer = self.buffer(cpu, buffer.0).cast_mut();
        // SAFETY: within the mapping, which lives as long as self; the type is plain integers, valid for any bytes. No program writes to
        // this buffer any more, and no other reference to it is handed out while self is borrowed.
        unsafe { &mut *buffer }
    }

    /// What was lost on all CPUs, as the given buffer says, which is cleared. `causes` are in the order of the buffer's counters.
    pub fn take_losses<const N: usize>(
        &mut self,
        buffer: InactiveBuffer,
        causes: [Loss; N],
        counters: fn(&mut Buffer) -> &mut [u64; N],
    ) -> Vec<(Loss, u64)> {
        let mut sums = [0; N];
        for cpu in 0..self.cpus() {
            for (sum, count) in sums.iter_mut().zip(counters(self.inactive(cpu, buffer))) {
                *sum += std::mem::take(count);
            }
        }
        causes.into_iter().zip(sums).filter(|(_, count)| *count > 0).collect()
    }
}

/// The half of which [`LeftBuffer::wait`](crate::switches::LeftBuffer::wait) has made sure that no program writes to it, until the next
/// flip.
#[derive(Debug, Clone, Copy)]
pub struct InactiveBuffer(pub(super) u32);

/// The length of a table in a buffer, from its generated type alone.
pub const fn table_length<Buffer, Slot, const N: usize>(_: fn(&Buffer) -> &[Slot; N]) -> usize {
    N
}

impl<Buffer> Drop for DoubleBuffers<Buffer> {
    fn drop(&mut self) {
        let length = self.cpus * 2 * size_of::<Buffer>();
        // SAFETY: exactly what `map` mapped; nothing borrowed from it outlives self.
        unsafe { libc::munmap(self.first.as_ptr().cast(), length) };
    }
}
