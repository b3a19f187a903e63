//! How the library is linked.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=symbol-versions");
    println!("cargo::rerun-if-changed=layout.ld");
    // What is relocated stays writable, as the tables of real functions must be anyhow: one mapping and one system call less for
    // each process that is started, 15 µs.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,norelro");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux")
        && env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64")
    {
        // Code and what it reads in one mapping: one system call less, again.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,noseparate-code");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-T,{}", package().join("layout.ld").display());
        give_symbols_versions();
    }
}

/// Has the linker read `symbol-versions` in the place of the list of exported symbols that rustc writes: that names no versions, and a
/// linker takes names without versions only alone. So the compiler is told to find another program where it looks for the linker: one
/// that changes this argument.
fn give_symbols_versions() {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("linker");
    fs::create_dir_all(&folder).expect("OUT_DIR can be written");
    let script = format!(
        "#!/bin/sh\n\
        for argument; do\n\
        shift\n\
        case $argument in\n\
        --version-script=*) argument=--version-script={} ;;\n\
        esac\n\
        set -- \"$@\" \"$argument\"\n\
        done\n\
        exec {} \"$@\"\n",
        quoted(&package().join("symbol-versions")),
        quoted(&linker())
    );
    let program = folder.join("ld.bfd");
    fs::write(&program, script).expect("OUT_DIR can be written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("OUT_DIR can be written");
    println!("cargo::rustc-cdylib-link-arg=-B{}", folder.display());
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=bfd");
}

fn package() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"))
}

/// GNU's linker, where the compiler finds it.
fn linker() -> PathBuf {
    let compiler = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let asked = Command::new(compiler).arg("-print-prog-name=ld.bfd").output();
    let said = asked.ok().and_then(|asked| String::from_utf8(asked.stdout).ok()).unwrap_or_default();
    let linker = PathBuf::from(said.trim());
    if linker.is_absolute() { linker } else { PathBuf::from("ld.bfd") }
}

/// As one word of the shell's.
fn quoted(path: &Path) -> String {
    let text = path.to_str().expect("paths here are UTF-8");
    format!("'{}'", text.replace('\'', r"'\''"))
}
