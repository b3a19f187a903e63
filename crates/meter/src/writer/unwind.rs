//! Follows a stack through `.eh_frame`, without allocation or lock.
//!
//! The rule of a return address (where its caller's frame begins, where the frame pointer was saved) is computed once, by
//! gimli on fixed-size storage, and cached by address. glibc's `_dl_find_object` finds the module without a lock. Frames
//! whose rule needs more than the stack and frame pointer end the walk; so does anything that points outside the stack.

use core::arch::asm;
use core::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindSection, UnwindTableRow, X86_64,
};

use super::names;
use crate::layout::CACHED_WORDS;

/// The caller's registers, as an interposed function found them at its first instruction.
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    stack_pointer: *const usize,
    frame_pointer: usize,
}

impl Registers {
    /// The stack pointer and frame pointer at the first instruction of a function.
    ///
    /// # Safety
    /// `stack_pointer` points to the return address of a function that does not return while this is in use.
    #[inline]
    pub const unsafe fn at_entry(stack_pointer: *const usize, frame_pointer: usize) -> Self {
        Self { stack_pointer, frame_pointer }
    }

    /// Where the stack pointer will stand after the return.
    #[inline]
    pub(super) fn stack_pointer(&self) -> usize {
        self.stack_pointer as usize + size_of::<usize>()
    }

    #[inline]
    pub(super) const fn frame_pointer(&self) -> usize {
        self.frame_pointer
    }

    #[inline]
    pub(super) fn return_address(&self) -> usize {
        // SAFETY: `at_entry` was promised that it points to the return address.
        unsafe { self.stack_pointer.read() }
    }
}

/// Why a stack has no more frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It ends here.
    Outermost,
    /// There are more than were asked for.
    NoRoom,
    /// No rule, or one that this walk cannot follow.
    Unknown,
}

/// What following a stack depended on, but for the code and for the return address in its first word.
pub(super) struct ReadWords {
    /// Words of the stack: where, and what.
    words: [(usize, usize); CACHED_WORDS],
    count: usize,
    /// Whether the register was needed.
    pub(super) needs_frame_pointer: bool,
}

impl ReadWords {
    pub(super) const fn nothing() -> Self {
        Self { words: [(0, 0); CACHED_WORDS], count: 0, needs_frame_pointer: false }
    }

    fn add(&mut self, at: usize, word: usize) {
        // There is room for two words of each frame.
        if let Some(next) = self.words.get_mut(self.count) {
            *next = (at, word);
            self.count += 1;
        }
    }

    pub(super) fn words(&self) -> &[(usize, usize)] {
        &self.words[..self.count]
    }
}

/// Writes return addresses, innermost first; how many, and why not more.
pub(super) fn stack(registers: &Registers, frames: &mut [u64], read_words: &mut ReadWords) -> (usize, Ended) {
    let mut address = registers.return_address();
    let mut sp = registers.stack_pointer();
    let mut fp = registers.frame_pointer;
    // Where it was saved, if it no longer is the register's.
    let mut fp_at = None;
    let end = stack_end(sp);
    let mut taken = 0;
    loop {
        if address == 0 {
            return (taken, Ended::Outermost);
        }
        let Some(frame) = frames.get_mut(taken) else { return (taken, Ended::NoRoom) };
        *frame = address as u64;
        taken += 1;
        // The call lies before the return address; the return address may belong to the next function.
        let (base, offset, saved_fp) = match rule_of(address - 1) {
            Rule::Outermost => return (taken, Ended::Outermost),
            Rule::Unknown => return (taken, Ended::Unknown),
            Rule::FromStackPointer { offset, saved_fp } => (sp, offset, saved_fp),
            Rule::FromFramePointer { offset, saved_fp } => {
                match fp_at {
                    Some(at) => read_words.add(at, fp),
                    None => read_words.needs_frame_pointer = true,
                }
                (fp, offset, saved_fp)
            }
        };
        let caller_sp = base.wrapping_add_signed(offset);
        let is_sound = caller_sp > sp && caller_sp <= end && caller_sp.is_multiple_of(size_of::<usize>());
        if !is_sound {
            return (taken, Ended::Unknown);
        }
        if let Some(saved) = saved_fp {
            let at = caller_sp.wrapping_add_signed(saved);
            if at < sp || at >= caller_sp {
                return (taken, Ended::Unknown);
            }
            // SAFETY: between two stack pointers of this stack, and aligned as both are.
            fp = unsafe { (at as *const usize).read() };
            fp_at = Some(at);
        }
        let at = caller_sp - size_of::<usize>();
        // SAFETY: just below the caller's stack pointer, above ours.
        address = unsafe { (at as *const usize).read() };
        read_words.add(at, address);
        sp = caller_sp;
    }
}

/// In what [`caller_place`] gives: the words are counted from the frame pointer.
const FROM_FRAME_POINTER: u16 = 1 << 15;

/// Where the function that a call returns to keeps its own return address: in words above its stack pointer or its frame pointer. It is
/// the same for all calls that return there. 0: that is not known.
#[cold]
#[inline(never)]
pub(super) fn caller_place(return_address: usize) -> u16 {
    let (from, offset) = match rule_of(return_address.wrapping_sub(1)) {
        Rule::FromStackPointer { offset, .. } => (0, offset),
        Rule::FromFramePointer { offset, .. } => (FROM_FRAME_POINTER, offset),
        Rule::Outermost | Rule::Unknown => return 0,
    };
    let words = offset / size_of::<usize>() as isize - 1;
    u16::try_from(words).ok().filter(|words| *words < FROM_FRAME_POINTER).map_or(0, |words| words | from)
}

/// Where the caller of an interposed function returns to itself; 0 if that is not known. `place` is what [`caller_place`] gives of the caller.
#[inline(always)]
pub(super) fn callers_return_address(registers: &Registers, place: u16) -> usize {
    let sp = registers.stack_pointer();
    if place == 0 {
        return 0;
    }
    let mut at = sp.wrapping_add(usize::from(place) * size_of::<usize>());
    if place & FROM_FRAME_POINTER != 0 {
        let words = usize::from(place & !FROM_FRAME_POINTER);
        at = registers.frame_pointer.wrapping_add(words * size_of::<usize>());
        if at < sp || at >= stack_end(sp) || !at.is_multiple_of(size_of::<usize>()) {
            return 0;
        }
    }
    // SAFETY: on this stack: the caller's frame is as large each time that it calls from there, or the frame pointer is sound.
    unsafe { (at as *const usize).read() }
}

/// No stack is larger: beyond, the two pointers belong to different memory.
const LARGEST_STACK: usize = 256 << 20;

/// Where the main thread's stack ends; 0 where it is not known.
// With what else is written when the library is loaded.
#[unsafe(link_section = ".data.lockmeter_start")]
static MAIN_STACK_END: AtomicUsize = AtomicUsize::new(0);

pub(super) fn prepare() {
    // SAFETY: the name ends with a NUL.
    let end = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr()) }.cast::<usize>();
    if !end.is_null() {
        // SAFETY: the loader's variable of that type.
        MAIN_STACK_END.store(unsafe { end.read() }, Relaxed);
    }
}

/// How large a thread's stack is where nobody says otherwise.
const USUAL_STACK: usize = 8 << 20;

/// The end of the stack that `sp` is on; `sp` itself if that is neither the main stack nor that of a thread.
///
/// glibc puts a thread's descriptor, which the fs register points to, at the upper end of its stack.
fn stack_end(sp: usize) -> usize {
    let descriptor: usize;
    // SAFETY: the first word of the descriptor is its own address, as the ABI has it.
    unsafe { asm!("mov {0}, qword ptr fs:[0]", out(reg) descriptor, options(nostack, preserves_flags, readonly)) };
    let main = MAIN_STACK_END.load(Relaxed);
    [main, descriptor].into_iter().find(|end| *end > sp && *end - sp < LARGEST_STACK).unwrap_or(sp)
}

/// Whether an address lies on the stack of the thread that asks. One that runs on another stack (a coroutine's) may be wrong about what
/// lies between that and its own, unless these are further apart than stacks usually are large.
#[inline(never)]
pub(super) fn is_on_own_stack(address: usize) -> bool {
    let here = 0_u8;
    let sp = (&raw const here).addr();
    let end = stack_end(sp);
    (sp..end).contains(&address) && end - sp <= USUAL_STACK
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The offset of the caller's stack pointer, and where the frame pointer was saved below that.
    FromStackPointer {
        offset: isize,
        saved_fp: Option<isize>,
    },
    FromFramePointer {
        offset: isize,
        saved_fp: Option<isize>,
    },
    Outermost,
    Unknown,
}

const KIND_BITS: u64 = 0b11;
const HAS_SAVED_FP: u64 = 1 << 2;

impl Rule {
    /// Kind in bits 0 and 1, whether there is a saved frame pointer in bit 2, its offset in bits 8–31, that of the stack
    /// pointer in bits 32–63. Offsets that do not fit make the rule unknown.
    fn pack(self) -> u64 {
        let fields = |kind: u64, offset: isize, saved_fp: Option<isize>| {
            let (Ok(offset), Ok(saved)) = (i32::try_from(offset), i32::try_from(saved_fp.unwrap_or(0))) else {
                return Self::Unknown.pack();
            };
            if saved << 8 >> 8 != saved {
                return Self::Unknown.pack();
            }
            let has = if saved_fp.is_some() { HAS_SAVED_FP } else { 0 };
            kind | has | u64::from((saved as u32) << 8) | u64::from(offset as u32) << 32
        };
        match self {
            Self::Unknown => 0,
            Self::Outermost => 3,
            Self::FromStackPointer { offset, saved_fp } => fields(1, offset, saved_fp),
            Self::FromFramePointer { offset, saved_fp } => fields(2, offset, saved_fp),
        }
    }

    fn unpack(packed: u64) -> Self {
        let offset = (packed >> 32) as u32 as i32 as isize;
        let saved_fp = (packed & HAS_SAVED_FP != 0).then_some((packed as u32 as i32 >> 8) as isize);
        match packed & KIND_BITS {
            1 => Self::FromStackPointer { offset, saved_fp },
            2 => Self::FromFramePointer { offset, saved_fp },
            3 => Self::Outermost,
            _ => Self::Unknown,
        }
    }
}

/// Rules by address. Threads write over each other's entries; an entry torn between two is recognised by `check`.
struct Cached {
    address: AtomicU64,
    rule: AtomicU64,
    check: AtomicU64,
}

const CACHED: usize = 4096;
static CACHE: [Cached; CACHED] =
    [const { Cached { address: AtomicU64::new(0), rule: AtomicU64::new(0), check: AtomicU64::new(0) } }; CACHED];

fn rule_of(address: usize) -> Rule {
    let cached = &CACHE[(address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) % CACHED];
    let key = address as u64;
    if cached.address.load(Acquire) == key {
        let rule = cached.rule.load(Relaxed);
        if cached.check.load(Relaxed) == rule ^ key {
            return Rule::unpack(rule);
        }
    }
    let rule = compute(address).unwrap_or(Rule::Unknown);
    let packed = rule.pack();
    cached.rule.store(packed, Relaxed);
    cached.check.store(packed ^ key, Relaxed);
    cached.address.store(key, Release);
    Rule::unpack(packed)
}

/// How often rules were forgotten.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Another number when code has gone, so that what was found from it may no longer hold.
pub(super) fn changes() -> u32 {
    CHANGES.load(Acquire)
}

/// Forgets all rules: other code may come to lie where some was.
pub(super) fn forget() {
    CHANGES.fetch_add(1, Release);
    for cached in &CACHE {
        cached.address.store(0, Relaxed);
    }
}

/// Fixed-size storage, so that nothing is allocated. It is small, for the thread may have little stack left: six callee-saved
/// registers and the return address are usual, and one remembered row (`DW_CFA_remember_state`).
struct OnStack;

impl UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 10];
    type Stack = [UnwindTableRow<usize, Self>; 2];
}

/// Makes it in a frame of its own, which is gone before it is used: of stacks that are nearly used up each byte counts.
#[cold]
#[inline(never)]
fn new_context() -> UnwindContext<usize, OnStack> {
    UnwindContext::new_in()
}

#[cold]
#[inline(never)]
fn compute(address: usize) -> Option<Rule> {
    let Tables { header, frames, bases } = Tables::of(address)?;
    let mut context = new_context();
    let row = header
        .table()?
        .unwind_info_for_address(&frames, &bases, &mut context, address as u64, EhFrame::cie_from_offset)
        .ok()?;
    rule_in(row)
}

/// Where the function begins that holds this address.
// Not in its caller's frame: of stacks that are nearly used up each byte counts.
#[cold]
#[inline(never)]
fn function_of(address: usize) -> Option<usize> {
    let Tables { header, frames, bases } = Tables::of(address)?;
    let entry = header.table()?.fde_for_address(&frames, &bases, address as u64, EhFrame::cie_from_offset).ok()?;
    usize::try_from(entry.initial_address()).ok()
}

/// Whether the call that returns to one address is a direct one of the function that holds the other: what that function jumped to at its
/// end returns there.
#[cold]
#[inline(never)]
pub(super) fn calls_function_of(return_address: usize, address: usize) -> bool {
    const CALL: u8 = 0xe8;
    const CALL_BYTES: usize = 5;
    let at = return_address.wrapping_sub(CALL_BYTES);
    if function_of(return_address.wrapping_sub(1)).is_none_or(|caller| at < caller) {
        return false;
    }
    // SAFETY: code of a function that is on the stack.
    let [call, a, b, c, d] = unsafe { (at as *const [u8; CALL_BYTES]).read() };
    let called = return_address.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]) as isize);
    call == CALL && function_of(address.wrapping_sub(1)) == Some(called)
}

type Bytes = EndianSlice<'static, LittleEndian>;

/// The unwinding tables of a module.
struct Tables {
    header: ParsedEhFrameHdr<Bytes>,
    frames: EhFrame<Bytes>,
    bases: BaseAddresses,
}

impl Tables {
    /// Those of the module that holds this address.
    #[inline(always)]
    fn of(address: usize) -> Option<Self> {
        let object = names::find_object(address)?;
        let header_bytes = bytes(object.eh_frame_header, object.map_end)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(object.eh_frame_header as u64);
        let header = EhFrameHdr::new(header_bytes, LittleEndian).parse(&bases, size_of::<usize>() as u8).ok()?;
        let gimli::Pointer::Direct(frames_at) = header.eh_frame_ptr() else { return None };
        let frames_at = usize::try_from(frames_at).ok()?;
        if !(object.map_start..object.map_end).contains(&frames_at) {
            return None;
        }
        let frames = EhFrame::new(bytes(frames_at, object.map_end)?, LittleEndian);
        Some(Self { header, frames, bases: bases.set_eh_frame(frames_at as u64) })
    }
}

/// The bytes from an address to the end of its module.
fn bytes(start: usize, end: usize) -> Option<&'static [u8]> {
    let length = end.checked_sub(start).filter(|_| start != 0)?;
    // SAFETY: the loader maps a module's file as one range, and gimli reads only what the tables in it point to, which lies
    // in its first, readable segments. The module stays loaded while one of its functions is on the stack.
    Some(unsafe { core::slice::from_raw_parts(start as *const u8, length) })
}

fn rule_in(row: &UnwindTableRow<usize, OnStack>) -> Option<Rule> {
    if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
        return Some(Rule::Outermost);
    }
    if row.register(X86_64::RA) != Some(RegisterRule::Offset(-(size_of::<usize>() as i64))) {
        return None;
    }
    let saved_fp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => None,
        Some(RegisterRule::Offset(offset)) => Some(isize::try_from(offset).ok()?),
        Some(_) => return None,
    };
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let offset = isize::try_from(*offset).ok()?;
    match *register {
        X86_64::RSP => Some(Rule::FromStackPointer { offset, saved_fp }),
        X86_64::RBP => Some(Rule::FromFramePointer { offset, saved_fp }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_does_not_fit_is_unknown_and_others_come_out_again() {
        for rule in [
            Rule::Outermost,
            Rule::Unknown,
            Rule::FromStackPointer { offset: 8, saved_fp: None },
            Rule::FromStackPointer { offset: 1 << 30, saved_fp: Some(-16) },
            Rule::FromFramePointer { offset: 16, saved_fp: Some(-(1 << 22)) },
        ] {
            assert_eq!(Rule::unpack(rule.pack()), rule);
        }
        let too_far = Rule::FromStackPointer { offset: 8, saved_fp: Some(-(1 << 24)) };
        assert_eq!(Rule::unpack(too_far.pack()), Rule::Unknown);
    }
}
