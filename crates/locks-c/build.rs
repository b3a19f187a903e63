//! Writes `include/lockmeter/locks.h` beside the libraries.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=cbindgen.toml");
    // A thread may have a restartable sequence of ours noted when it is done with it: its code must stay mapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // By its name here programs ask for the library that they were linked with. The number counts up when they would break.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblmlocks.so.0");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // OUT_DIR is `target/PROFILE/build/PACKAGE-HASH/out`; the libraries lie in `target/PROFILE`.
    let include = out.ancestors().nth(3).expect("OUT_DIR is that deep").join("include");
    println!("cargo::rustc-env=LOCKS_INCLUDE={}", include.display());
    let package = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    match cbindgen::generate(package) {
        Ok(header) => {
            header.write_to_file(include.join("lockmeter/locks.h"));
        }
        // Let rustc say what is wrong with the source.
        Err(cbindgen::Error::ParseSyntaxError { .. }) => {}
        Err(error) => panic!("no header: {error}"),
    }
}
