//! What a lock is called, and how that is known.

use crate::sample::named_enum;

/// A lock class: what all instances of one lock have in common.
///
/// The class, not the address, is a lock's identity, because objects die: a fork storm makes a new `mmap_lock` for every
/// process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lock {
    /// What a report prints: `mm_struct.mmap_lock`, `tasklist_lock`, or for an unnamed lock its class in other words
    /// (`kmalloc-192+0x10`).
    pub name: String,
    /// The type of the object the lock lies in (`ext4_inode_info`), where it lies in one.
    pub object: Option<String>,
    /// How the name is known, or why there is none.
    pub naming: Naming,
    /// Words that say more about the naming: candidates, the function it was inferred from, the slab cache.
    pub detail: String,
}

impl Lock {
    /// Whether this is a lock of the kernel or of a program.
    pub const fn space(&self) -> Space {
        self.naming.space()
    }

    /// Whether the lock has a name (rather than an address in other words).
    pub const fn is_named(&self) -> bool {
        !matches!(self.naming, Naming::Unnamed(_))
    }
}

named_enum! {
    /// Whose lock it is.
    Space {
        /// The kernel's.
        Kernel = 1, "kernel";
        /// A program's.
        User = 2, "user";
    }
}

/// How a lock's name is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Naming {
    /// A symbol of the kernel or a module at the lock's address.
    Symbol,
    /// A per-CPU variable.
    PerCpu,
    /// The slab cache says the object's type, type information the field.
    SlabField,
    /// A generic allocation whose type was inferred: size class, offset, lock kind and the functions on the stacks leave
    /// one candidate.
    InferredType,
    /// The functions on the stacks take only this lock of this kind.
    InferredSite,
    /// A symbol of a program or library at the address of its lock.
    UserSymbol,
    /// A lock of a program, named by the function that initialised it.
    UserCreated,
    /// A lock of a program, named by the function that was first seen to use it while it was contended.
    UserFirstSite,
    /// A lock that processes share, named by the file or memory that it lies in.
    UserShared,
    /// No name, and why.
    Unnamed(Unnamed),
}

named_enum! {
    /// Why a lock has no name.
    Unnamed {
        /// A static lock, but this kernel exports no data symbols (`CONFIG_KALLSYMS_ALL` is off).
        NoDataSymbols = 1, "no data symbols";
        /// A generic allocation (`kmalloc-*`) that several types fit.
        AmbiguousType = 2, "several types fit";
        /// The kernel gives no way to find the slab cache of an address.
        NoSlabIdentity = 3, "slab cache unreadable";
        /// Memory that is neither static, per-CPU nor slab (vmalloc, boot-time tables, kernel stacks).
        UnknownMemory = 4, "not static, per-CPU or slab memory";
        /// The object's type is known, but no field lies at the lock's offset.
        NoFieldAtOffset = 5, "no lock field at this offset";
        /// No type information (BTF) for the object's module or cache.
        NoTypeInformation = 6, "no type information";
        /// The table of lock classes was full.
        TableFull = 7, "lock table full";
        /// The recording says how it was named, or why not, with a code that only a newer lockmeter knows.
        NewerReason = 8, "known to a newer lockmeter only";
        /// A lock of a program whose maker and first user are not known.
        NoUserSite = 9, "neither symbol nor site known";
    }
}

impl Naming {
    /// Whose lock is named so.
    pub const fn space(self) -> Space {
        match self {
            Self::UserSymbol
            | Self::UserCreated
            | Self::UserFirstSite
            | Self::UserShared
            | Self::Unnamed(Unnamed::NoUserSite) => Space::User,
            _ => Space::Kernel,
        }
    }

    /// The stable name used in files, JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Symbol => "symbol",
            Self::PerCpu => "per-cpu",
            Self::SlabField => "slab-field",
            Self::InferredType => "inferred-type",
            Self::InferredSite => "inferred-site",
            Self::UserSymbol => "user-symbol",
            Self::UserCreated => "user-created",
            Self::UserFirstSite => "user-first-site",
            Self::UserShared => "user-shared",
            Self::Unnamed(reason) => reason.name(),
        }
    }

    /// The stable number used in files; reasons for no name start at 16.
    pub const fn code(self) -> u8 {
        match self {
            Self::Symbol => 1,
            Self::PerCpu => 2,
            Self::SlabField => 3,
            Self::InferredType => 4,
            Self::InferredSite => 5,
            Self::UserSymbol => 6,
            Self::UserCreated => 7,
            Self::UserFirstSite => 8,
            Self::UserShared => 9,
            Self::Unnamed(reason) => 16 + reason.code(),
        }
    }

    /// The value whose number is `code`, or `None` if this version knows none.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Symbol),
            2 => Some(Self::PerCpu),
            3 => Some(Self::SlabField),
            4 => Some(Self::InferredType),
            5 => Some(Self::InferredSite),
            6 => Some(Self::UserSymbol),
            7 => Some(Self::UserCreated),
            8 => Some(Self::UserFirstSite),
            9 => Some(Self::UserShared),
            16.. => match Unnamed::from_code(code - 16) {
                Some(reason) => Some(Self::Unnamed(reason)),
                None => None,
            },
            _ => None,
        }
    }
}
