//! The kernel's types, and those of its modules as they are needed.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::btf::{Btf, TypeKind};
use crate::error::{SymbolsError, SymbolsErrorKind};

const DIRECTORY: &str = "/sys/kernel/btf";

/// The kernel's type information.
#[derive(Clone)]
pub struct KernelTypes {
    pub(crate) vmlinux: Arc<Btf>,
    directory: Option<PathBuf>,
}

impl fmt::Debug for KernelTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelTypes").field("types", &self.vmlinux.ids().len()).finish_non_exhaustive()
    }
}

impl KernelTypes {
    /// Reads the running kernel's types from `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    ///
    /// [`SymbolsErrorKind::NoTypeInformation`] if the kernel was built without,
    /// [`SymbolsErrorKind::BadTypeInformation`] if it cannot be understood.
    pub fn from_sys() -> Result<Self, SymbolsError> {
        let path = Path::new(DIRECTORY).join("vmlinux");
        let data = std::fs::read(&path).map_err(|error| {
            let sentence = format!(
                "this kernel has no type information (BTF); use one built with CONFIG_DEBUG_INFO_BTF, as Debian's are: {}",
                path.display()
            );
            SymbolsError::io(SymbolsErrorKind::NoTypeInformation, sentence, error)
        })?;
        Ok(Self { directory: Some(PathBuf::from(DIRECTORY)), ..Self::from_bytes(data)? })
    }

    /// Reads types from raw BTF, for another kernel's or for tests; modules are then unknown.
    ///
    /// # Errors
    ///
    /// [`SymbolsErrorKind::BadTypeInformation`].
    pub fn from_bytes(data: Vec<u8>) -> Result<Self, SymbolsError> {
        Ok(Self { vmlinux: Arc::new(Btf::from_bytes(data, None)?), directory: None })
    }

    /// Byte offset of a field such as `("task_struct", "sched_task_group")`; members of named structs by `a.b`.
    ///
    /// # Errors
    ///
    /// [`SymbolsErrorKind::MissingField`] if this kernel has no such type or field.
    pub fn offset_of(&self, struct_name: &str, path: &str) -> Result<u32, SymbolsError> {
        self.vmlinux.offset_of(struct_name, path).ok_or_else(|| {
            SymbolsError::new(SymbolsErrorKind::MissingField, format!("this kernel has no {struct_name}.{path}"))
        })
    }

    /// Whether this kernel has a struct of this name.
    pub fn has_struct(&self, name: &str) -> bool {
        self.vmlinux.struct_named(name).is_some()
    }

    /// Size of a struct in bytes.
    ///
    /// # Errors
    ///
    /// [`SymbolsErrorKind::MissingField`] if this kernel has no such struct.
    pub fn size_of(&self, struct_name: &str) -> Result<u32, SymbolsError> {
        let id = self.vmlinux.struct_named(struct_name);
        id.and_then(|id| self.vmlinux.size_of(id)).and_then(|size| u32::try_from(size).ok()).ok_or_else(|| {
            SymbolsError::new(SymbolsErrorKind::MissingField, format!("this kernel has no struct {struct_name}"))
        })
    }
}

/// A type together with the type information that defines it.
#[derive(Debug, Clone)]
pub(crate) struct Defined {
    pub scope: Arc<Btf>,
    pub id: u32,
}

impl Defined {
    pub fn name(&self) -> &str {
        self.scope.get(self.id).map_or("", |found| found.name())
    }

    pub fn size(&self) -> u64 {
        self.scope.size_of(self.id).unwrap_or(0)
    }
}

/// The types of modules, read when a name is not the kernel's.
///
/// Only the modules in which something was found stay in memory: all of a distribution kernel's together are as large
/// as the kernel's own.
#[derive(Debug)]
pub(crate) struct Types {
    pub vmlinux: Arc<Btf>,
    directory: Option<PathBuf>,
    modules: HashMap<String, Option<Arc<Btf>>>,
    /// Structs that no module has.
    absent: HashSet<String>,
}

impl Types {
    pub fn new(kernel: KernelTypes) -> Self {
        Self { vmlinux: kernel.vmlinux, directory: kernel.directory, modules: HashMap::new(), absent: HashSet::new() }
    }

    /// The structs of these names: the kernel's, or else those of the first module that has any.
    pub fn structs_named(&mut self, names: &[String]) -> Vec<Defined> {
        let found = structs_in(&self.vmlinux, names);
        if !found.is_empty() {
            return found;
        }
        if names.iter().all(|name| self.absent.contains(name)) {
            return Vec::new();
        }
        let found = self.structs_in_modules(names);
        if found.is_empty() {
            self.absent.extend(names.iter().cloned());
        }
        found
    }

    fn structs_in_modules(&mut self, names: &[String]) -> Vec<Defined> {
        let known = self.modules.values().flatten().map(|scope| structs_in(scope, names));
        if let Some(found) = known.into_iter().find(|found| !found.is_empty()) {
            return found;
        }
        let files = self.directory.as_ref().and_then(|directory| std::fs::read_dir(directory).ok());
        let modules = files.into_iter().flatten().flatten().filter_map(|file| file.file_name().into_string().ok());
        for module in modules.filter(|module| module != "vmlinux") {
            if self.modules.contains_key(&module) {
                continue;
            }
            let Some(scope) = self.read_module(&module) else { continue };
            let found = structs_in(&scope, names);
            if !found.is_empty() {
                self.modules.insert(module, Some(scope));
                return found;
            }
        }
        Vec::new()
    }

    fn read_module(&self, module: &str) -> Option<Arc<Btf>> {
        let data = std::fs::read(self.directory.as_ref()?.join(module)).ok()?;
        Btf::from_bytes(data, Some(Arc::clone(&self.vmlinux))).ok().map(Arc::new)
    }

    /// The types of a module.
    pub fn module(&mut self, name: &str) -> Option<Arc<Btf>> {
        if let Some(known) = self.modules.get(name) {
            return known.clone();
        }
        let read = self.read_module(name);
        self.modules.insert(name.to_owned(), read.clone());
        read
    }
}

fn structs_in(scope: &Arc<Btf>, names: &[String]) -> Vec<Defined> {
    let ids = names.iter().flat_map(|name| scope.by_name(TypeKind::Struct, name));
    ids.map(|id| Defined { scope: Arc::clone(scope), id }).collect()
}
