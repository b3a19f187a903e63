//! Compiles the C++ shim over abseil's mutex where the library is installed; the bench says so where it is not.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(abseil)");
    println!("cargo::rerun-if-changed=src/abseil.cc");
    #[cfg(feature = "abseil")]
    shim();
}

#[cfg(feature = "abseil")]
fn shim() {
    const HEADER: &str = "/usr/include/absl/synchronization/mutex.h";
    /// What `absl::Mutex` needs at link time.
    const LIBRARY: &str = "absl_synchronization";

    println!("cargo::rerun-if-changed={HEADER}");
    if !std::path::Path::new(HEADER).exists() {
        return;
    }
    let compiled =
        cc::Build::new().cpp(true).std("c++17").opt_level(2).file("src/abseil.cc").try_compile("abseil_shim");
    match compiled {
        Ok(()) => {
            println!("cargo::rustc-cfg=abseil");
            println!("cargo::rustc-link-lib=dylib={LIBRARY}");
        }
        Err(error) => println!("cargo::warning=abseil is left out: its shim does not compile: {error}"),
    }
}
