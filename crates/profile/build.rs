//! Compiles the recording's schema. Nothing generated is committed, and no `protoc` binary is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/recording.proto");
    let schema = protox::compile(["recording.proto"], ["proto"])?;
    prost_build::Config::new().compile_fds(schema)?;
    Ok(())
}
