//! Names of tasks.

/// A fixed-length, NUL-padded name.
pub type Comm = [u8; 16];

/// The name up to its first NUL.
pub fn text(comm: &Comm) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}
