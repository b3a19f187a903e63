//! How the library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // What is relocated stays writable, as the tables of real functions must be anyhow: one mapping and one system call less for
    // each process that is started, 15 µs.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,norelro");
}
