//! From what the event said about a lock to its name.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use lockmeter_profile::lock_functions::{beyond_locks, outer_lock};
use lockmeter_profile::{Filesystem, Kind, Lock, Naming, OfFilesystem, Unnamed};

use crate::btf::Btf;
use crate::error::SymbolsError;
use crate::evidence::{self, Candidate, Verdict};
use crate::fields::{LockPath, LockTypes};
use crate::filesystems::Filesystems;
use crate::kernel_symbols::{KernelSymbols, Symbol};
use crate::landmarks::{Landmarks, type_of_symbol};
use crate::memory::KernelMemory;
use crate::percpu::PerCpu;
use crate::sites::{self, Memory, Site};
use crate::slab_cache::{Aliases, size_class, types_in};
use crate::types::{KernelTypes, Types};

/// What a lock's class is, as taken at the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Identity {
    /// In a slab object.
    Slab {
        /// Address of its `struct kmem_cache`.
        cache: u64,
        /// Offset of the lock in the object, in bytes.
        offset: u32,
    },
    /// Anywhere else: static, per-CPU, vmalloc, boot-time memory, a kernel stack.
    Address(u64),
    /// In a `struct page` or what overlays it.
    PageStruct {
        /// Offset of the lock in the `struct page`, in bytes.
        offset: u32,
    },
}

/// The whole of a class, in the unit of [`LockNamer::name`]'s weights.
pub const WHOLE_PPM: u64 = 1_000_000;

/// Classes remembered. Past this they are forgotten and found again: addresses of dead objects would otherwise pile up.
const MOST_CLASSES: usize = 8192;

/// Stacks remembered with their verdict, of all classes together: about four megabytes.
const MOST_VERDICTS: usize = 16_384;

/// Frames of a stack that decide its verdict.
const DECISIVE_FRAMES: usize = 16;

/// Candidates listed in the detail of a lock that several types fit.
const LISTED_CANDIDATES: usize = 5;

/// Longest cache name read.
const LONGEST_CACHE_NAME: usize = 64;

/// Gives locks their names.
#[derive(Debug)]
pub struct LockNamer<M> {
    symbols: Arc<KernelSymbols>,
    types: Types,
    memory: M,
    locks: LockTypes,
    image: Range<u64>,
    percpu: PerCpu,
    landmarks: Landmarks,
    aliases: Aliases,
    caches: CacheFields,
    filesystems: Filesystems,
    classes: HashMap<(Identity, Kind), Class>,
    /// Verdicts remembered in all classes.
    verdicts: usize,
}

/// Offsets in `struct kmem_cache`.
#[derive(Debug)]
struct CacheFields {
    name: u64,
    object_size: u64,
}

/// What is known of a class.
#[derive(Debug)]
enum Class {
    /// Its name, once and for all.
    Settled(Lock),
    /// The functions on its stacks may tell.
    Open(OpenClass),
}

#[derive(Debug)]
struct OpenClass {
    /// Types that fit; empty where only the table of sites can tell.
    candidates: Vec<Candidate>,
    /// For generic caches, to look for candidates in the modules that stacks lead to.
    size_class: Option<crate::slab_cache::SizeClass>,
    offset: u64,
    scopes: Vec<Arc<Btf>>,
    memory: Memory,
    /// The slab cache and the offset in its objects.
    in_cache: String,
    /// What to say where the stacks do not tell more: the one type that fits, or that there is no name.
    otherwise: Lock,
    verdicts: HashMap<u64, Option<Lock>>,
    /// The names that the last stacks led to.
    last: Vec<(Lock, u64)>,
    /// Some stack has led to a name.
    is_told: bool,
}

impl<M: KernelMemory> LockNamer<M> {
    /// Makes a namer. `task` is the address of any `struct task_struct` (or 0): from it per-CPU memory and the kernel's
    /// first objects are found.
    ///
    /// # Errors
    ///
    /// [`crate::SymbolsErrorKind::MissingField`] if the types are those of no kernel this can work with.
    pub fn new(symbols: Arc<KernelSymbols>, types: KernelTypes, memory: M, task: u64) -> Result<Self, SymbolsError> {
        let caches = CacheFields {
            name: u64::from(types.offset_of("kmem_cache", "name")?),
            object_size: u64::from(types.offset_of("kmem_cache", "object_size")?),
        };
        let btf = &types.vmlinux;
        let task = symbols.address_of("init_task").unwrap_or(task);
        Ok(Self {
            locks: LockTypes::of(btf),
            image: symbols.image(),
            percpu: PerCpu::find(btf, &symbols, &memory, task),
            landmarks: Landmarks::find(btf, &memory, task),
            aliases: Aliases::from_sys(),
            caches,
            filesystems: Filesystems::new(btf),
            classes: HashMap::new(),
            verdicts: 0,
            types: Types::new(types),
            symbols,
            memory,
        })
    }

    /// The kernel's memory.
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// How many CPUs' per-CPU variables can be told.
    pub fn cpus_found(&self) -> usize {
        self.percpu.cpus()
    }

    /// Where each CPU keeps its `preempt_count`, by its number; 0 where that is not known.
    pub fn preempt_counts(&self) -> Vec<u64> {
        let btf = &self.types.vmlinux;
        // From Linux 6.2 to 6.14 it lies in a struct.
        let in_struct = || {
            let offset = u64::from(btf.offset_of("pcpu_hot", "preempt_count")?);
            let copies = self.percpu.copies_of(btf, "pcpu_hot")?;
            Some(copies.into_iter().map(|copy| if copy == 0 { 0 } else { copy.wrapping_add(offset) }).collect())
        };
        self.percpu.copies_of(btf, "__preempt_count").or_else(in_struct).unwrap_or_default()
    }

    /// Which static objects were found without their symbols (`init_task`, memory nodes, …).
    pub fn landmarks(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.landmarks.objects()
    }

    /// A key that is the same for the same variable on all CPUs: per-CPU addresses become their first CPU's.
    ///
    /// Callers that merge classes by address can use it first.
    pub fn canonical(&self, identity: Identity) -> Identity {
        match identity {
            Identity::Address(address) => match self.percpu.on_first_cpu(address) {
                Some(first) => Identity::Address(first),
                None => identity,
            },
            _ => identity,
        }
    }

    /// The name of a lock class.
    ///
    /// `stacks` are sampled site stacks of the class (function names, innermost first), each with its weight. Usually
    /// one lock comes back, with [`WHOLE_PPM`]; a generic slab class whose stacks lead to several types comes back as
    /// several locks, in parts per million of the stacks' weight. With no stacks a class keeps the names its last
    /// stacks led to.
    pub fn name(&mut self, identity: &Identity, kind: Kind, stacks: &[(Vec<&str>, u64)]) -> Vec<(Lock, u64)> {
        let key = (self.canonical(*identity), kind);
        // Taken out while it is worked on, so that the rest of the namer stays at hand.
        let mut class = match self.classes.remove(&key) {
            Some(class) => class,
            None => self.first_look(&key.0, kind),
        };
        let named = match &mut class {
            Class::Settled(lock) => vec![(lock.clone(), WHOLE_PPM)],
            Class::Open(open) => {
                if !stacks.is_empty() {
                    open.last = self.name_by_stacks(open, &key.0, kind, stacks);
                }
                open.last.clone()
            }
        };
        if self.classes.len() >= MOST_CLASSES {
            self.classes.clear();
            self.verdicts = 0;
        }
        self.classes.insert(key, class);
        named
    }

    /// Forgets which file systems were found: to be called before each round of [`LockNamer::filesystem`].
    pub fn renew_filesystems(&mut self) {
        self.filesystems.renew();
    }

    /// The file system of a single lock that was named before: that of the object it lies in.
    ///
    /// The object is read now, and may have been freed since its lock was waited for.
    pub fn filesystem(
        &mut self,
        lock: &Lock,
        identity: &Identity,
        kind: Kind,
        address: u64,
    ) -> OfFilesystem<Filesystem> {
        if !lock.is_named() {
            // An object of unknown type may be one of a file system's.
            return if self.is_variable(identity) { OfFilesystem::None } else { OfFilesystem::NotLookedUp };
        }
        let Some(object) = &lock.object else { return OfFilesystem::None };
        let Some(found) = self.types.structs_named(std::slice::from_ref(object)).into_iter().next() else {
            return OfFilesystem::NotLookedUp;
        };
        if !self.filesystems.has_way(&found.scope, object) {
            return OfFilesystem::None;
        }
        // Only in the slab it is known where the object begins.
        let Identity::Slab { offset, .. } = identity else { return OfFilesystem::Unreadable };
        // Where the name begins at an inner struct, it does not say where the object begins.
        let path = self.locks.at_in_open_array(&found.scope, found.id, u64::from(*offset), kind);
        if path.is_none_or(|path| path.name != lock.name) {
            return OfFilesystem::Unreadable;
        }
        self.filesystems.of_object(&self.memory, object, address.wrapping_sub(u64::from(*offset)))
    }

    /// Whether it is a variable of the kernel or of a module, or lies in the record of a page.
    fn is_variable(&self, identity: &Identity) -> bool {
        match identity {
            Identity::Address(address) => self.image.contains(address),
            Identity::PageStruct { .. } => true,
            Identity::Slab { .. } => false,
        }
    }

    /// What can be said without stacks.
    fn first_look(&mut self, identity: &Identity, kind: Kind) -> Class {
        match identity {
            Identity::Slab { cache, offset } => self.look_at_slab(*cache, u64::from(*offset), kind),
            Identity::Address(address) => self.look_at_address(*address, kind),
            Identity::PageStruct { offset } => Class::Settled(self.page_lock(u64::from(*offset), kind)),
        }
    }

    fn look_at_address(&self, address: u64, kind: Kind) -> Class {
        let btf = &self.types.vmlinux;
        if let Some(symbol) = self.symbols.data(address) {
            return Class::Settled(self.static_lock(&symbol, kind));
        }
        if let Some(found) = self.percpu.lock_at(btf, self.locks, address, kind) {
            let detail = format!("per-CPU variable {}", found.variable);
            return Class::Settled(Lock { name: found.name, object: found.object, naming: Naming::PerCpu, detail });
        }
        if let Some((path, object, which)) = self.landmarks.lock_at(btf, self.locks, address, kind) {
            return Class::Settled(Lock {
                name: path.name,
                object: Some(object),
                naming: Naming::Symbol,
                detail: format!("{which}, reached from the list of tasks"),
            });
        }
        let is_static = self.image.contains(&address);
        let unnamed = if is_static {
            // Relative to the image, so that it is the same lock after the next boot of this kernel.
            let name = format!("kernel+{:#x}", address - self.image.start);
            unnamed(name, None, Unnamed::NoDataSymbols, "static, and this kernel lists no variables")
        } else {
            unnamed(format!("{address:#x}"), None, Unnamed::UnknownMemory, "boot-time, vmalloc or stack memory")
        };
        let memory = if is_static { Memory::Static } else { Memory::Elsewhere };
        Class::Open(OpenClass::by_site(memory, unnamed))
    }

    fn static_lock(&self, symbol: &Symbol<'_>, kind: Kind) -> Lock {
        let detail = symbol.module.map_or_else(String::new, |module| format!("in module {module}"));
        let path = self.path_in_static(symbol, kind);
        let object = path.as_ref().and_then(|(object, _)| object.clone());
        let name = match path {
            Some((_, name)) => name,
            None if symbol.offset == 0 => symbol.name.to_owned(),
            None => format!("{}+{:#x}", symbol.name, symbol.offset),
        };
        Lock { name, object, naming: Naming::Symbol, detail }
    }

    /// The field of a static object whose type is known by its symbol's name, or must be a lock with another one
    /// inside.
    fn path_in_static(&self, symbol: &Symbol<'_>, kind: Kind) -> Option<(Option<String>, String)> {
        let btf = &self.types.vmlinux;
        let listed = type_of_symbol(symbol.name).or_else(|| btf.struct_named(symbol.name).map(|_| symbol.name));
        if let Some(type_name) = listed {
            let path = self.locks.at(btf, btf.struct_named(type_name)?, symbol.offset, kind)?;
            return Some((Some(type_name.to_owned()), path.name));
        }
        /// Lock types whose own inner lock can be contended, with words that the names of such variables have.
        const OUTER_LOCKS: &[(&str, &[&str])] = &[
            ("mutex", &["mutex", "mtx", "lock"]),
            ("percpu_rw_semaphore", &["rwsem", "sem", "hotplug_lock"]),
            ("rw_semaphore", &["sem", "lock"]),
            ("wait_queue_head", &["wait", "wq", "queue"]),
        ];
        OUTER_LOCKS.iter().filter(|_| symbol.offset > 0).find_map(|(type_name, words)| {
            let id = btf.struct_named(type_name).filter(|_| words.iter().any(|word| symbol.name.contains(word)))?;
            let path = self.locks.at(btf, id, symbol.offset, kind)?;
            Some((None, format!("{}{}", symbol.name, path.full.strip_prefix(type_name)?)))
        })
    }

    fn page_lock(&self, offset: u64, kind: Kind) -> Lock {
        let btf = &self.types.vmlinux;
        for type_name in ["ptdesc", "page"] {
            let path = btf.struct_named(type_name).and_then(|id| self.locks.at(btf, id, offset, kind));
            if let Some(path) = path {
                let detail = "page-table lock, in the page's own record".to_owned();
                return Lock { name: path.name, object: Some(type_name.to_owned()), naming: Naming::SlabField, detail };
            }
        }
        unnamed(format!("page+{offset:#x}"), Some("page"), Unnamed::NoFieldAtOffset, "in a struct page")
    }

    fn look_at_slab(&mut self, cache: u64, offset: u64, kind: Kind) -> Class {
        let Some((name, object_size)) = self.read_cache(cache) else {
            let lock =
                unnamed(format!("slab+{offset:#x}"), None, Unnamed::NoSlabIdentity, "its slab cache is unreadable");
            return Class::Open(OpenClass::by_site(Memory::Elsewhere, lock));
        };
        if name == "page->ptl" {
            let detail = "slab cache page->ptl".to_owned();
            let object = Some("ptdesc".to_owned());
            return Class::Settled(Lock { name: "ptdesc.ptl".to_owned(), object, naming: Naming::SlabField, detail });
        }
        let Typed { mut candidates, has_type } = self.types_in_cache(&name, object_size, offset, kind);
        let class = size_class(&name);
        if class.is_none() && candidates.len() == 1 {
            let only = candidates.swap_remove(0);
            return Class::Settled(slab_lock(
                only.path,
                only.type_name,
                Naming::SlabField,
                format!("slab cache {name}"),
            ));
        }
        if class.is_none()
            && let Some(lock) = evidence::shared_field(&candidates)
        {
            let types: Vec<&str> = candidates.iter().map(|candidate| candidate.type_name.as_str()).collect();
            let detail = format!("slab cache {name}, in one of {}", types.join(", "));
            let (lock, object) = lock;
            return Class::Settled(Lock { name: lock, object: Some(object), naming: Naming::SlabField, detail });
        }
        let scopes = vec![Arc::clone(&self.types.vmlinux)];
        if let Some(class) = class {
            for found in evidence::candidates(&scopes[0], self.locks, class, offset, kind) {
                if !candidates.iter().any(|known| known.type_name == found.type_name) {
                    candidates.push(found);
                }
            }
        }
        let cache_and_offset = format!("{name}+{offset:#x}");
        let no_type = |why| unnamed(cache_and_offset.clone(), None, why, &format!("slab cache {name}"));
        let otherwise = match (class.is_some() || !candidates.is_empty(), has_type) {
            (true, _) => only_or_ambiguous(&cache_and_offset, &candidates),
            (false, true) => no_type(Unnamed::NoFieldAtOffset),
            (false, false) => no_type(Unnamed::NoTypeInformation),
        };
        let open = OpenClass {
            candidates,
            size_class: class,
            offset,
            scopes,
            in_cache: cache_and_offset,
            ..OpenClass::by_site(Memory::Elsewhere, otherwise)
        };
        Class::Open(open)
    }

    /// A cache's name and the size of its objects.
    fn read_cache(&self, cache: u64) -> Option<(String, u64)> {
        let name = self.memory.read_u64(cache.wrapping_add(self.caches.name)).ok()?;
        let name = self.memory.read_string(name, LONGEST_CACHE_NAME).ok().filter(|name| !name.is_empty())?;
        let size = self.memory.read_u32(cache.wrapping_add(self.caches.object_size)).ok()?;
        Some((name, u64::from(size)))
    }

    /// The types that the names of a cache stand for and that have such a lock at the offset.
    fn types_in_cache(&mut self, cache: &str, object_size: u64, offset: u64, kind: Kind) -> Typed {
        let mut typed = Typed { candidates: Vec::new(), has_type: false };
        for name in self.aliases.sharing(cache) {
            let found = self.types.structs_named(&types_in(name));
            let fitting = found.iter().filter(|found| found.size() <= object_size);
            for found in fitting {
                typed.has_type = true;
                let Some(path) = self.locks.at_in_open_array(&found.scope, found.id, offset, kind) else { continue };
                if !typed.candidates.iter().any(|known| known.type_name == found.name()) {
                    typed.candidates.push(Candidate::new(found, path));
                }
                break;
            }
        }
        typed
    }

    fn name_by_stacks(
        &mut self,
        open: &mut OpenClass,
        identity: &Identity,
        kind: Kind,
        stacks: &[(Vec<&str>, u64)],
    ) -> Vec<(Lock, u64)> {
        let mut weights: Vec<(Lock, u64)> = Vec::new();
        let mut undecided = 0_u64;
        for (stack, weight) in stacks {
            // A stack without weight still tells.
            let weight = (*weight).max(1);
            match self.verdict(open, kind, stack) {
                Some(lock) => match weights.iter_mut().find(|(known, _)| known.name == lock.name) {
                    Some((_, sum)) => *sum = sum.saturating_add(weight),
                    None => weights.push((lock, weight)),
                },
                None => undecided = undecided.saturating_add(weight),
            }
        }
        weights.sort_by(|(a, a_weight), (b, b_weight)| b_weight.cmp(a_weight).then_with(|| a.name.cmp(&b.name)));
        if weights.is_empty() {
            // Stacks that say nothing do not take away what earlier ones said, but their modules may have more types.
            return if open.is_told { open.last.clone() } else { vec![(open.otherwise.clone(), WHOLE_PPM)] };
        }
        open.is_told = true;
        // One address is one lock, and where all that tell agree the silent ones go with them.
        if matches!(identity, Identity::Address(_)) || weights.len() == 1 {
            weights.truncate(1);
            weights[0].1 = WHOLE_PPM;
            return weights;
        }
        if undecided > 0 {
            match weights.iter_mut().find(|(known, _)| known.name == open.otherwise.name) {
                Some((_, sum)) => *sum = sum.saturating_add(undecided),
                None => weights.push((open.otherwise.clone(), undecided)),
            }
        }
        in_parts_per_million(weights)
    }

    /// What one stack says about a class.
    fn verdict(&mut self, open: &mut OpenClass, kind: Kind, stack: &[&str]) -> Option<Lock> {
        let mut hasher = DefaultHasher::new();
        stack[..stack.len().min(DECISIVE_FRAMES)].hash(&mut hasher);
        let key = hasher.finish();
        if let Some(known) = open.verdicts.get(&key) {
            return known.clone();
        }
        if open.size_class.is_some() {
            self.add_modules(open, kind, stack);
        }
        let by_type = evidence::judge(&open.scopes, &open.candidates, beyond_locks(stack));
        let lock = match by_type {
            Some(verdict) => Some(inferred(open, &verdict)),
            None => self.by_site(open, kind, stack),
        };
        if self.verdicts >= MOST_VERDICTS {
            open.verdicts.clear();
            self.forget_verdicts();
        }
        self.verdicts += 1;
        open.verdicts.insert(key, lock.clone());
        lock
    }

    fn forget_verdicts(&mut self) {
        for class in self.classes.values_mut() {
            if let Class::Open(open) = class {
                open.verdicts = HashMap::new();
            }
        }
        self.verdicts = 0;
    }

    /// Adds the types of the modules whose functions are on the stack.
    fn add_modules(&mut self, open: &mut OpenClass, kind: Kind, stack: &[&str]) {
        let Some(class) = open.size_class else { return };
        for function in stack.iter().take(DECISIVE_FRAMES) {
            let Some(module) = self.symbols.module_of(function) else { continue };
            let Some(scope) = self.types.module(module) else { continue };
            if open.scopes.iter().any(|known| Arc::ptr_eq(known, &scope)) {
                continue;
            }
            open.candidates.extend(evidence::candidates(&scope, self.locks, class, open.offset, kind));
            open.scopes.push(scope);
            open.otherwise = only_or_ambiguous(&open.in_cache, &open.candidates);
        }
    }

    fn by_site(&self, open: &OpenClass, kind: Kind, stack: &[&str]) -> Option<Lock> {
        // The spinlock inside a mutex has no entry of its own, but the mutex may.
        let outer = outer_lock(stack).filter(|_| kind == Kind::Spin);
        let (kind, field) = outer.unwrap_or((kind, ""));
        let (site, function) = sites::find(open.memory, kind, beyond_locks(stack), |site| self.is_possible(site))?;
        let object = site.name.split('.').next().filter(|first| self.types.vmlinux.struct_named(first).is_some());
        Some(Lock {
            name: format!("{}{field}", site.name),
            object: object.map(str::to_owned),
            naming: Naming::InferredSite,
            detail: format!("taken in {function}()"),
        })
    }

    /// Whether this kernel's types have the field that an entry names.
    fn is_possible(&self, site: &Site) -> bool {
        let btf = &self.types.vmlinux;
        let mut parts = site.name.split('.');
        let (Some(first), Some(field)) = (parts.next(), parts.next()) else { return true };
        match btf.struct_named(first) {
            Some(id) => btf.field(id, field.trim_end_matches("[]")).is_some(),
            None => site.memory == Memory::Static,
        }
    }
}

impl PerCpu {
    /// The address of the same variable on the first CPU.
    fn on_first_cpu(&self, address: u64) -> Option<u64> {
        Some(self.first_base()?.wrapping_add(u64::from(self.offset_of(address)?)))
    }
}

impl OpenClass {
    fn by_site(memory: Memory, otherwise: Lock) -> Self {
        Self {
            candidates: Vec::new(),
            size_class: None,
            offset: 0,
            scopes: Vec::new(),
            memory,
            last: vec![(otherwise.clone(), WHOLE_PPM)],
            is_told: false,
            in_cache: String::new(),
            otherwise,
            verdicts: HashMap::new(),
        }
    }
}

/// What a cache's names lead to.
struct Typed {
    candidates: Vec<Candidate>,
    /// Whether any of the names is a type's, with or without a lock at the offset.
    has_type: bool,
}

fn unnamed(name: String, object: Option<&str>, why: Unnamed, detail: &str) -> Lock {
    Lock { name, object: object.map(str::to_owned), naming: Naming::Unnamed(why), detail: detail.to_owned() }
}

fn slab_lock(path: LockPath, object: String, naming: Naming, mut detail: String) -> Lock {
    if path.full != path.name {
        detail.push_str(", ");
        detail.push_str(&path.full);
    }
    Lock { name: path.name, object: Some(object), naming, detail }
}

fn inferred(open: &OpenClass, verdict: &Verdict) -> Lock {
    let candidate = &open.candidates[verdict.candidate];
    let detail = format!("{} in {}", verdict.because, open.in_cache);
    slab_lock(candidate.path.clone(), candidate.type_name.clone(), Naming::InferredType, detail)
}

/// The lock in the only type that fits; else none has a name, and these are the types.
fn only_or_ambiguous(in_cache: &str, candidates: &[Candidate]) -> Lock {
    let [only] = candidates else { return ambiguous(in_cache.to_owned(), candidates) };
    let detail = format!("the only type that fits {in_cache}");
    slab_lock(only.path.clone(), only.type_name.clone(), Naming::InferredType, detail)
}

fn ambiguous(name: String, candidates: &[Candidate]) -> Lock {
    let mut listed: Vec<&str> = candidates.iter().map(|candidate| candidate.path.full.as_str()).collect();
    listed.sort_unstable();
    let more = listed.len().saturating_sub(LISTED_CANDIDATES);
    listed.truncate(LISTED_CANDIDATES);
    let mut detail = if listed.is_empty() { "no known type fits".to_owned() } else { listed.join(", ") };
    if more > 0 {
        detail.push_str(&format!(" and {more} more"));
    }
    unnamed(name, None, Unnamed::AmbiguousType, &detail)
}

fn in_parts_per_million(mut weights: Vec<(Lock, u64)>) -> Vec<(Lock, u64)> {
    let whole: u128 = weights.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let mut left = WHOLE_PPM;
    for (_, weight) in weights.iter_mut().skip(1) {
        *weight = (u128::from(*weight) * u128::from(WHOLE_PPM) / whole.max(1)) as u64;
        left -= *weight;
    }
    // The first takes what rounding left over, so that the parts make up the whole.
    weights[0].1 = left;
    weights
}

#[cfg(test)]
#[path = "namer_tests.rs"]
mod tests;
