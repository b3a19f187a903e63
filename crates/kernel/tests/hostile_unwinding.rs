//! Unwind information of a program that was made to do harm.

use std::fs;
use std::process::Command;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use lockmeter_kernel::futex::unwind_by_hostile_elf;
use proptest::prelude::*;

/// How long a hang is waited for.
const HANGS: Duration = Duration::from_secs(300);

/// Fails instead of hanging.
fn ends(what: impl FnOnce() + Send + 'static) {
    let (sender, result) = mpsc::channel();
    std::thread::spawn(move || {
        what();
        sender.send(())
    });
    result.recv_timeout(HANGS).expect("it hangs, or it panicked");
}

/// A program of one page of code at 0x1000, with this `.eh_frame` at 0x2000.
fn program(eh_frame: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.eh_frame\0.shstrtab\0";
    let (frames_at, names_at) = (0x1000_u64, 0x1000 + eh_frame.len() as u64);
    let table_at = names_at + NAMES.len() as u64;
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // A shared library for x86-64, version 1; entry, tables of segments and sections, flags, and the sizes of all these.
    bytes.extend([3_u16, 62, 1, 0].iter().flat_map(|half| half.to_le_bytes()));
    bytes.extend([0, 64, table_at].iter().flat_map(|long| long.to_le_bytes()));
    bytes.extend([0_u16, 0, 64, 56, 1, 64, 3, 2].iter().flat_map(|half| half.to_le_bytes()));
    // Loaded, readable, executable.
    bytes.extend([1_u32, 5].iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend([0_u64, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000].iter().flat_map(|long| long.to_le_bytes()));
    bytes.resize(frames_at as usize, 0);
    bytes.extend(eh_frame);
    bytes.extend(NAMES);
    let mut section = |name: u32, kind: u32, flags: u64, address: u64, at: u64, size: u64| {
        bytes.extend([name, kind].iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend([flags, address, at, size, 0, 8, 0].iter().flat_map(|long| long.to_le_bytes()));
    };
    section(0, 0, 0, 0, 0, 0);
    section(1, 1, 2, 0x2000, frames_at, eh_frame.len() as u64);
    section(11, 3, 0, 0, names_at, NAMES.len() as u64);
    bytes
}

/// One function of the whole page, with these instructions.
fn eh_frame(instructions: &[u8]) -> Vec<u8> {
    // Version 1, no augmentation, factors 1 and -8, return address in 16; the frame begins at rsp + 8.
    let mut common = vec![0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1];
    common.resize(common.len().next_multiple_of(8) + 4, 0);
    let mut function = Vec::new();
    function.extend((common.len() as u32 + 8).to_le_bytes());
    function.extend([0x1000_u64, 0x1000].iter().flat_map(|long| long.to_le_bytes()));
    function.extend(instructions);
    function.resize(function.len().next_multiple_of(8) + 4, 0);
    [&(common.len() as u32).to_le_bytes()[..], &common, &(function.len() as u32).to_le_bytes(), &function, &[0; 4]]
        .concat()
}

/// Regression: the recorder evaluated it for ever.
#[test]
fn an_expression_that_loops_is_not_followed() {
    // The frame's address is an expression of three bytes: jump back to its begin.
    ends(|| unwind_by_hostile_elf(&program(&eh_frame(&[0x0f, 3, 0x2f, 0xfd, 0xff]))));
    // The same in the rule of a register.
    ends(|| unwind_by_hostile_elf(&program(&eh_frame(&[0x10, 6, 3, 0x2f, 0xfd, 0xff]))));
}

#[test]
fn a_function_of_a_million_instructions_is_not_followed_for_every_frame() {
    let long = [0x0a, 0x0b].repeat(8 << 20);
    ends(move || unwind_by_hostile_elf(&program(&eh_frame(&long))));
}

fn compiled() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    fs::write(
        &source,
        "#include <stdio.h>\nint main(int count, char **words) { return printf(\"%s\", words[count - 1]); }\n",
    )
    .unwrap();
    let built = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(&source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    fs::read(program).unwrap()
}

fn section(bytes: &[u8], name: &str) -> std::ops::Range<usize> {
    let number =
        |at: usize, size: usize| bytes[at..at + size].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (table, count, names) = (number(0x28, 8), number(0x3c, 2), number(0x3e, 2));
    let names = number(table + names * 64 + 24, 8);
    let is_it = |at: &usize| bytes[names + number(*at, 4)..].starts_with(format!("{name}\0").as_bytes());
    let header = (0..count).map(|index| table + index * 64).find(is_it).unwrap();
    number(header + 24, 8)..number(header + 24, 8) + number(header + 32, 8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Stacks are unwound without a panic by whatever a file says.
    #[test]
    fn damaged_unwind_information_is_followed_without_a_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..24)
    ) {
        static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
        let mut bytes = PROGRAM.get_or_init(compiled).clone();
        let frames = section(&bytes, ".eh_frame");
        for (index, byte, area) in &changes {
            let range = [64..64 + 13 * 56, frames.clone(), frames.clone()][usize::from(*area)].clone();
            let at = range.start + index.index(range.len());
            bytes[at] = *byte;
        }
        unwind_by_hostile_elf(&bytes);
    }
}
