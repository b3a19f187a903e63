//! Attaching programs and running iterators, for all collectors.

use std::io::Read;

use libbpf_rs::{Iter, Link, ProgramMut};

use crate::error::{ErrorKind, KernelError};

/// Attaches a program where its section says.
pub fn attach_one(program: &mut ProgramMut<'_>) -> Result<Link, KernelError> {
    program.attach().map_err(|error| {
        KernelError::from_libbpf(&format!("cannot attach {}", program.name().to_string_lossy()), &error)
    })
}

/// A look at some hundred threads writes less.
const USUAL_BYTES: usize = 64 << 10;

/// Runs an iterator over all that it goes through, and gives what it wrote. `what` is what cannot be done if that fails.
pub fn run_iterator(iterator: &Link, what: &str) -> Result<Vec<u8>, KernelError> {
    let mut written = Vec::with_capacity(USUAL_BYTES);
    let read = Iter::new(iterator).map_err(|error| error.to_string());
    read.and_then(|mut iterator| iterator.read_to_end(&mut written).map_err(|error| error.to_string()))
        .map_err(|why| KernelError::new(ErrorKind::Refused, format!("{what}: {why}")))?;
    Ok(written)
}
