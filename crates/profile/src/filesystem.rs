//! The file system that a kernel lock belongs to.

use std::fmt;

/// A mounted file system, as its super block describes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Filesystem {
    /// Its type, as `/proc/filesystems` lists it: `ext4`, `cgroup2`.
    pub kind: String,
    /// What it lies on, where it lies on something: `vda`.
    pub device: Option<String>,
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "{} ({device})", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}

/// What is known of the file system of a sampled lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OfFilesystem<F> {
    /// Nothing: an older lockmeter recorded it, or the type of the object that the lock lies in is not known.
    #[default]
    NotLookedUp,
    /// The lock lies in no object of a file system.
    None,
    /// The lock lies in an object of a file system, but what was read there was no super block.
    Unreadable,
    /// This one.
    Known(F),
}

impl<F> OfFilesystem<F> {
    /// The same with the file system in another form.
    pub fn map<G>(self, form: impl FnOnce(F) -> G) -> OfFilesystem<G> {
        match self {
            Self::NotLookedUp => OfFilesystem::NotLookedUp,
            Self::None => OfFilesystem::None,
            Self::Unreadable => OfFilesystem::Unreadable,
            Self::Known(filesystem) => OfFilesystem::Known(form(filesystem)),
        }
    }
}
