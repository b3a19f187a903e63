//! The build id of a loaded file, as it stands in memory: what lies on disk under its name may be another build by now.

use core::mem::size_of;
use core::slice;

/// Programs have about a dozen.
const MOST_SEGMENTS: usize = 64;
/// Headers lie in the first page.
const PAGE: usize = 4096;
/// Type of the note, whose name is `GNU` with its NUL.
const NT_GNU_BUILD_ID: u32 = 3;
const GNU: &[u8] = b"GNU\0";

/// The build id of the object that is loaded from `start` to `end`, if it has one in memory.
///
/// # Safety
/// The loader has mapped a file there, and keeps it mapped as long as the result is used.
pub(super) unsafe fn in_memory(start: usize, end: usize, bias: usize) -> Option<&'static [u8]> {
    if end.checked_sub(start)? < PAGE || !start.is_multiple_of(PAGE) {
        return None;
    }
    // SAFETY: the first page of what the loader mapped; `segments` makes sure that it is readable before notes are read.
    let page = unsafe { slice::from_raw_parts(start as *const u8, PAGE) };
    let segments = segments(page)?;
    let note = |segment: &libc::Elf64_Phdr| {
        if segment.p_type != libc::PT_NOTE {
            return None;
        }
        let of_file = segment.p_vaddr..segment.p_vaddr.checked_add(segment.p_memsz)?;
        let holds = |loaded: &libc::Elf64_Phdr| {
            loaded.p_type == libc::PT_LOAD
                && loaded.p_flags & libc::PF_R != 0
                && loaded.p_vaddr <= of_file.start
                && loaded.p_vaddr.checked_add(loaded.p_filesz).is_some_and(|end| end >= of_file.end)
        };
        let at = bias.wrapping_add(usize::try_from(of_file.start).ok()?);
        let length = usize::try_from(segment.p_memsz).ok()?;
        let inside = at >= start && at.checked_add(length).is_some_and(|note_end| note_end <= end);
        if !inside || !segments.clone().any(|loaded| holds(&loaded)) {
            return None;
        }
        // SAFETY: inside a readable segment of the object, which the caller keeps loaded.
        build_id_in(unsafe { slice::from_raw_parts(at as *const u8, length) })
    };
    segments.clone().find_map(|segment| note(&segment))
}

/// The program headers, if the page holds them all.
fn segments(page: &[u8]) -> Option<impl Iterator<Item = libc::Elf64_Phdr> + Clone + '_> {
    if !page.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let header = read::<libc::Elf64_Ehdr>(page, 0)?;
    let (at, count) = (usize::try_from(header.e_phoff).ok()?, usize::from(header.e_phnum));
    let is_usual = usize::from(header.e_phentsize) == size_of::<libc::Elf64_Phdr>() && count <= MOST_SEGMENTS;
    let end = at.checked_add(count.checked_mul(size_of::<libc::Elf64_Phdr>())?)?;
    (is_usual && end <= page.len())
        .then(|| (0..count).filter_map(move |entry| read(page, at + entry * size_of::<libc::Elf64_Phdr>())))
}

/// A structure of integers out of bytes.
fn read<T: Integers>(bytes: &[u8], at: usize) -> Option<T> {
    let bytes = bytes.get(at..at.checked_add(size_of::<T>())?)?;
    // SAFETY: as many bytes as it has, of which any are a value; the pointer need not be aligned.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// What any bytes are a value of.
trait Integers {}
impl Integers for libc::Elf64_Ehdr {}
impl Integers for libc::Elf64_Phdr {}

/// Looks through the notes of a segment: lengths of name and contents, type, then both, each filled up to four bytes.
fn build_id_in(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let (name_bytes, rest) = number(notes)?;
        let (bytes, rest) = number(rest)?;
        let (kind, rest) = number(rest)?;
        let (name, rest) = rest.split_at_checked(name_bytes.checked_next_multiple_of(4)? as usize)?;
        let contents = rest.get(..bytes as usize)?;
        if kind == NT_GNU_BUILD_ID && name == GNU {
            return Some(contents);
        }
        notes = rest.get(bytes.checked_next_multiple_of(4)? as usize..)?;
    }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_ne_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, name: &[u8], contents: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [name.len() as u32, contents.len() as u32, kind] {
            note.extend(number.to_ne_bytes());
        }
        for part in [name, contents] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes() {
        let notes = [note(1, GNU, &[0; 16]), note(3, b"Go\0", &[1; 5]), note(3, GNU, &[7; 20])].concat();
        assert_eq!(build_id_in(&notes), Some(&[7_u8; 20][..]));
    }

    #[test]
    fn notes_that_are_cut_hold_no_build_id() {
        let whole = note(3, GNU, &[7; 20]);
        for length in 0..whole.len() {
            assert_eq!(build_id_in(&whole[..length]), None, "{length} bytes");
        }
        assert_eq!(build_id_in(&note(3, &[0xff; 4], &[7; 20])), None);
    }

    #[test]
    fn a_page_that_is_no_binary_has_no_segments() {
        assert!(segments(&[0; PAGE]).is_none());
        let mut page = [0; PAGE];
        page[..5].copy_from_slice(b"\x7fELF\x02");
        // Sizes of zero are not those of program headers.
        assert!(segments(&page).is_none());
    }
}
