//! All targets under LLVM's fuzzer; `LOCKMETER_FUZZ_TARGET` says which.

#![no_main]

use std::sync::OnceLock;

use lockmeter_fuzz::{Target, target};

fn chosen() -> &'static Target {
    static CHOSEN: OnceLock<&Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var("LOCKMETER_FUZZ_TARGET").unwrap_or_default();
        target(&name).unwrap_or_else(|| panic!("no target `{name}`"))
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (chosen().run)(bytes));
