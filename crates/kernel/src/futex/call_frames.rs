//! Looks through unwind information that another user may have written, before stacks are unwound by it.
//!
//! DWARF expressions can loop for ever, and framehop evaluates them without a bound; long entries are evaluated again for
//! every frame. No compiler makes either.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde, EhFrame, Encoding, EndianSlice,
    LittleEndian, Operation, UnwindExpression, UnwindSection,
};
use std::collections::HashSet;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Instructions that one entry may have: they are followed for every frame.
const MOST_INSTRUCTIONS: usize = 16 << 10;

/// Instructions that all entries together may have, each counted once for each entry that leads to it.
const MOST_IN_ALL: usize = 64 << 20;

/// Whether stacks can be unwound by this `.eh_frame`, which lies at an address of its file, in bounded time.
pub fn are_safe(eh_frame: &[u8], address: u64) -> bool {
    let mut frames = EhFrame::new(eh_frame, LittleEndian);
    frames.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut check = Check { frames: &frames, bases: &bases, left: MOST_IN_ALL };
    check.all().unwrap_or(false)
}

struct Check<'a> {
    frames: &'a EhFrame<Bytes<'a>>,
    bases: &'a BaseAddresses,
    left: usize,
}

impl<'a> Check<'a> {
    fn all(&mut self) -> gimli::Result<bool> {
        let mut checked = HashSet::new();
        let mut entries = self.frames.entries(self.bases);
        while let Some(entry) = entries.next()? {
            let CieOrFde::Fde(partial) = entry else { continue };
            // The common part is where this entry says, which may be in the middle of another.
            let fde = partial.parse(EhFrame::cie_from_offset)?;
            let cie = fde.cie();
            let encoding = cie.encoding();
            let is_new = checked.insert(cie.offset());
            if is_new && !self.is_safe(cie.instructions(self.frames, self.bases), encoding)? {
                return Ok(false);
            }
            if !self.is_safe(fde.instructions(self.frames, self.bases), encoding)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_safe(
        &mut self,
        mut instructions: CallFrameInstructionIter<'a, Bytes<'a>>,
        encoding: Encoding,
    ) -> gimli::Result<bool> {
        let mut count = 0;
        while let Some(instruction) = instructions.next()? {
            count += 1;
            if count > MOST_INSTRUCTIONS || self.left == 0 {
                return Ok(false);
            }
            self.left -= 1;
            let is_straight = match instruction {
                CallFrameInstruction::DefCfaExpression { expression }
                | CallFrameInstruction::Expression { expression, .. }
                | CallFrameInstruction::ValExpression { expression, .. } => self.is_straight(&expression, encoding)?,
                _ => true,
            };
            if !is_straight {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an expression ends: it has no jumps.
    fn is_straight(&mut self, expression: &UnwindExpression<usize>, encoding: Encoding) -> gimli::Result<bool> {
        let mut operations = expression.get(self.frames)?.operations(encoding);
        let mut count = 0;
        while let Some(operation) = operations.next()? {
            count += 1;
            if matches!(operation, Operation::Bra { .. } | Operation::Skip { .. }) || count > MOST_INSTRUCTIONS {
                return Ok(false);
            }
            self.left = self.left.saturating_sub(1);
        }
        Ok(true)
    }
}
