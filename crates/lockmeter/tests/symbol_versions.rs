//! Functions of which the C library exports several versions: a program that was linked with an old one gets what that does, metered or not.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::preload_library;

fn output_of(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The functions that a library exports: address, name and version.
fn exports(library: &Path) -> Vec<(String, String, Option<String>)> {
    let listing = output_of(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library));
    let lines = listing.lines().filter_map(|line| {
        let [address, kind, symbol] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
        let (name, version) = symbol.split_once('@').map_or((symbol, None), |(name, version)| (name, Some(version)));
        let version = version.map(|version| version.trim_start_matches('@').to_owned());
        matches!(kind, "T" | "W" | "i").then(|| (address.to_owned(), name.to_owned(), version))
    });
    lines.collect()
}

/// The C library that programs here are linked with.
fn libc() -> PathBuf {
    PathBuf::from(output_of(Command::new("cc").arg("-print-file-name=libc.so.6")).trim())
}

/// A program that prints what its reference to each of these functions in these versions was bound to: the file, and where in it.
fn program_that_refers_to(versions: &[(&str, &str)], folder: &Path) -> PathBuf {
    let mut source = String::from("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n");
    let mut table = String::new();
    for (at, (name, version)) in versions.iter().enumerate() {
        writeln!(source, "extern char reference_{at}[]; __asm__(\".symver reference_{at}, {name}@{version}\");")
            .unwrap();
        writeln!(table, "{{reference_{at}, \"{name}@{version}\"}},").unwrap();
    }
    write!(
        source,
        "static struct {{ void *address; const char *name; }} all[] = {{{table}}};\n\
        int main(void) {{ for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {{ Dl_info info;\n\
        if (dladdr(all[i].address, &info)) printf(\"%s %s %lx\\n\", all[i].name, info.dli_fname,\n\
        (unsigned long)all[i].address - (unsigned long)info.dli_fbase); }} }}\n"
    )
    .unwrap();
    let (file, program) = (folder.join("references.c"), folder.join("references"));
    fs::write(&file, source).unwrap();
    // With positions that the loader fills in: a fixed program would be given stubs of its own.
    output_of(Command::new("cc").args(["-fPIE", "-pie", "-w", "-o"]).arg(&program).arg(&file));
    program
}

/// Makes sure that a reference to any version of a function that the library takes the place of is bound to it, and that two versions are bound
/// to one function there only if they are one in the C library, too.
#[test]
fn every_version_of_a_function_is_served_by_its_own() {
    let library = preload_library();
    let interposed: BTreeSet<String> = exports(library).into_iter().map(|(_, name, _)| name).collect();
    let of_libc = exports(&libc());
    let versions: Vec<(&str, &str)> = of_libc
        .iter()
        .filter(|(_, name, _)| interposed.contains(name))
        .filter_map(|(_, name, version)| Some((name.as_str(), version.as_deref()?)))
        .collect();
    assert!(versions.len() > interposed.len(), "{versions:?}");
    let folder = tempfile::tempdir().unwrap();
    let program = program_that_refers_to(&versions, folder.path());
    let bound = output_of(Command::new(&program).env("LD_PRELOAD", library));
    let bound: BTreeMap<&str, (&str, &str)> = bound
        .lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [name, file, address] => Some((name, (file, address))),
            _ => None,
        })
        .collect();
    let address_in_libc = |name: &str, version: &str| {
        let is_it = |(_, a_name, a_version): &&(_, String, Option<String>)| {
            a_name == name && a_version.as_deref() == Some(version)
        };
        of_libc.iter().find(is_it).map(|(address, ..)| address.as_str())
    };
    for &(name, version) in &versions {
        let (file, address) = bound[format!("{name}@{version}").as_str()];
        assert_eq!(Path::new(file), library, "{name}@{version} is not metered");
        for &(_, other) in versions.iter().filter(|(another, _)| *another == name) {
            let is_one_in_libc = address_in_libc(name, version) == address_in_libc(name, other);
            let is_one_here = address == bound[format!("{name}@{other}").as_str()].1;
            assert_eq!(is_one_here, is_one_in_libc, "{name}@{version} and {name}@{other}");
        }
    }
    // Those that are known to differ, so that the comparison above has something to tell apart.
    for name in ["pthread_cond_wait", "posix_spawn"] {
        let different: BTreeSet<_> =
            bound.iter().filter(|(bound, _)| bound.starts_with(&format!("{name}@"))).map(|(_, place)| place).collect();
        assert_eq!(different.len(), 2, "{name}");
    }
}

/// What the library needs of itself is not for the program.
#[test]
fn nothing_but_functions_of_libc_and_the_hooks_of_locks_is_exported() {
    let of_libc: BTreeSet<String> = exports(&libc()).into_iter().map(|(_, name, _)| name).collect();
    let others: Vec<String> = exports(preload_library())
        .into_iter()
        .map(|(_, name, _)| name)
        .filter(|name| !of_libc.contains(name) && !name.starts_with("lockmeter_lock_"))
        .collect();
    assert_eq!(others, Vec::<String>::new());
}

/// Regression: forty bytes behind a condition variable of the oldest kind were overwritten.
#[test]
fn a_program_linked_with_the_oldest_versions_does_as_without_a_meter() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("old-versions");
    let source = support::workload_sources().join("user/old-versions.c");
    let flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o"];
    output_of(Command::new("cc").args(flags).arg(&program).arg(source));
    let bare = output_of(&mut Command::new(&program));
    preload_library();
    for flags in [&[][..], &["--hold"], &["--swap", "mutex=mutex"], &["--hold", "--swap", "mutex=mutex"]] {
        let mut recorder = support::lockmeter([]);
        recorder.args(["record", "--quiet", "--user"]).args(flags).arg("-o").arg(folder.path().join("recording"));
        assert_eq!(output_of(recorder.arg("--").arg(&program)), bare, "{flags:?}");
    }
}
