//! A thread's rseq area, in which the kernel says on which CPU it last let the thread run.
//!
//! glibc (2.35 or newer) registers one for each thread, in the thread's own memory. So that other processes can look, too, a thread
//! can move to an area that lies in memory which they share: a thread has one area at a time. glibc's then says that it is not
//! registered, and who uses it does as on a kernel without rseq: `sched_getcpu` asks the vDSO, and readers of a
//! [`PercpuRwLock`](crate::PercpuRwLock) do without it.

use core::sync::atomic::{AtomicIsize, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::glibc_rseq;

/// What the kernel fills: the first version of `struct rseq`, which every kernel takes.
#[derive(Debug)]
#[repr(C, align(32))]
pub(crate) struct Area {
    cpu_id_start: AtomicU32,
    cpu_id: AtomicU32,
    rseq_cs: AtomicU64,
    flags: AtomicU32,
    reserved: [AtomicU32; 3],
}

const AREA_BYTES: u32 = size_of::<Area>() as u32;
const CPU_ID: usize = core::mem::offset_of!(Area, cpu_id);
const UNREGISTERED: u32 = u32::MAX;

const RSEQ_FLAG_UNREGISTER: u32 = 1;
/// With which glibc registers, and so must everybody: it stands before the abort handlers of restartable sequences.
#[cfg(not(target_arch = "aarch64"))]
const SIGNATURE: u32 = 0x5305_3053;
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u32 = 0xd428_bc00;

/// Where this thread's `cpu_id` lies in glibc's area; null if there is none.
pub(crate) fn glibc_cpu() -> *mut u32 {
    glibc_area().map_or(core::ptr::null_mut(), |area| area.wrapping_add(CPU_ID).cast())
}

/// The place of this thread's area, whether or not it is registered.
fn glibc_area() -> Option<*mut u8> {
    const NOT_ASKED: isize = isize::MIN;
    const NONE: isize = isize::MAX;
    /// From the thread pointer.
    static OFFSET: AtomicIsize = AtomicIsize::new(NOT_ASKED);
    let mut offset = OFFSET.load(Relaxed);
    if offset == NOT_ASKED {
        offset = glibc_rseq::offset().unwrap_or(NONE);
        OFFSET.store(offset, Relaxed);
    }
    if offset == NONE { None } else { Some(thread_pointer()?.wrapping_offset(offset)) }
}

impl Area {
    /// Where the kernel keeps the thread's CPU while this area is registered.
    pub(crate) fn cpu(&self) -> *mut u32 {
        self.cpu_id.as_ptr()
    }

    /// This thread's area is this one from now on, and no more glibc's; false if that is refused, and then nothing has changed.
    ///
    /// # Safety
    ///
    /// The area is no other thread's, and stays where it is until [`move_back`](Self::move_back), the thread's end or exec.
    pub(crate) unsafe fn move_here(&self) -> bool {
        let Some(glibc) = glibc_area() else { return false };
        self.cpu_id.store(UNREGISTERED, Relaxed);
        self.rseq_cs.store(0, Relaxed);
        self.flags.store(0, Relaxed);
        // It must be given up with the length that it was registered with, and glibc does not tell that one.
        let Some(bytes) = possible_lengths().into_iter().find(|&bytes| rseq(glibc, bytes, RSEQ_FLAG_UNREGISTER)) else {
            return false;
        };
        GLIBC_BYTES.store(bytes, Relaxed);
        let moved = rseq(self.start(), AREA_BYTES, 0);
        if !moved {
            rseq(glibc, bytes, 0);
        }
        moved
    }

    /// This thread's area is glibc's again. False: the kernel does not let go of this one.
    pub(crate) fn move_back(&self) -> bool {
        if !rseq(self.start(), AREA_BYTES, RSEQ_FLAG_UNREGISTER) {
            return false;
        }
        if let Some(glibc) = glibc_area() {
            rseq(glibc, GLIBC_BYTES.load(Relaxed), 0);
        }
        true
    }

    fn start(&self) -> *mut u8 {
        self.cpu_id_start.as_ptr().cast()
    }
}

/// How long glibc's area is, in every thread; known once the first has moved.
static GLIBC_BYTES: AtomicU32 = AtomicU32::new(AREA_BYTES);

/// How long glibc's area may be: as the first version, or, from glibc 2.41 on, as the kernel asks for.
fn possible_lengths() -> [u32; 2] {
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
    const AT_RSEQ_ALIGN: libc::c_ulong = 28;
    // SAFETY: looks up numbers; 0 where the kernel gave none.
    let (features, align) = unsafe { (libc::getauxval(AT_RSEQ_FEATURE_SIZE), libc::getauxval(AT_RSEQ_ALIGN)) };
    let whole = u32::try_from(features.next_multiple_of(align.max(1))).unwrap_or(AREA_BYTES);
    [AREA_BYTES, whole.max(AREA_BYTES)]
}

fn rseq(area: *mut u8, bytes: u32, flags: u32) -> bool {
    // SAFETY: the area is this thread's: glibc's, or one that was given to it until it gives it back.
    unsafe { libc::syscall(libc::SYS_rseq, area, bytes, flags, SIGNATURE) == 0 }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn thread_pointer() -> Option<*mut u8> {
    let pointer: *mut u8;
    // SAFETY: reads the thread's own control block, whose first word is its address.
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    Some(pointer)
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn thread_pointer() -> Option<*mut u8> {
    let pointer: *mut u8;
    // SAFETY: reads the thread's own pointer.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    Some(pointer)
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
fn thread_pointer() -> Option<*mut u8> {
    None
}
