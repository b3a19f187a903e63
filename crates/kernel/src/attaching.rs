//! Attaching programs, for all collectors.

use libbpf_rs::{Link, ProgramMut};

use crate::error::KernelError;

/// Attaches a program where its section says.
pub fn attach_one(program: &mut ProgramMut<'_>) -> Result<Link, KernelError> {
    program.attach().map_err(|error| {
        KernelError::from_libbpf(&format!("cannot attach {}", program.name().to_string_lossy()), &error)
    })
}
