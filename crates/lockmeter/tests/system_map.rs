//! Symbols of the kernel from a file.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use support::{Folder, json, lockmeter, machine, refused};

/// How far the made-up map has the kernel from where it is.
const MOVED: u64 = 0x1c0_0000;

/// The running kernel's symbols, as if it had not been moved when it started, with a name for each variable of its own.
fn map() -> String {
    let listed = fs::read_to_string("/proc/kallsyms").unwrap();
    let of_kernel = listed.lines().filter(|line| !line.contains('['));
    let moved = of_kernel.filter_map(|line| {
        let (address, rest) = line.split_once(' ')?;
        let address = u64::from_str_radix(address, 16).ok().filter(|address| *address >= 1 << 63)?;
        Some(format!("{:016x} {rest}\n", address - MOVED))
    });
    moved.collect()
}

#[test]
fn a_map_of_the_running_kernel_is_read_and_another_is_refused() {
    let Some(_machine) = machine("a System.map") else { return };
    let folder = Folder::new();
    let (file, recording) = (folder.file("System.map"), folder.file("recording"));
    fs::write(&file, map()).unwrap();
    let record = ["record", "--system-map", &file, "-a", "-d", "200ms", "-o", &recording];
    support::run(lockmeter(record));
    assert!(json(lockmeter(["report", "--format", "json", &recording]))["head"]["named_ns"].is_u64());
    // Every second function of it lies elsewhere.
    let other: String = map()
        .lines()
        .enumerate()
        .map(|(number, line)| {
            let (address, rest) = line.split_once(' ').unwrap();
            let address = u64::from_str_radix(address, 16).unwrap() + if number % 2 == 0 { 0x1000 } else { 0 };
            format!("{address:016x} {rest}\n")
        })
        .collect();
    fs::write(&file, other).unwrap();
    let (_, said) = refused(lockmeter(record));
    assert!(said.contains("is not this kernel's") && said.contains("uname -r"), "{said}");
    let with_command = ["record", "--system-map", &file, "-o", &recording, "--", "true"];
    let (_, said) = refused(lockmeter(with_command));
    assert!(said.contains("is not this kernel's"), "a command is not run without its names: {said}");
    fs::write(&file, "no symbols\n").unwrap();
    let (_, said) = refused(lockmeter(record));
    assert!(said.contains("hardly any functions"), "{said}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let (_, said) = refused(lockmeter(record));
    assert!(said.contains("chmod go-w"), "{said}");
}
