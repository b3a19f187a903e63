//! What a Java thread waits for and who has it, read from the memory of its process.
//!
//! All locks of `java.util.concurrent`, and all queues and pools, put threads to sleep in one function, `Unsafe.park`. Its callers are
//! compiled Java code without names, but each thread names the object for which it is parked: `Thread.parkBlocker`, by the class of
//! which `jstack` tells "parking to wait for". The machine itself notes which monitor a thread is about to enter. OpenJDK describes its
//! own structures in tables for such readers (`vmStructs.hpp`, exported as `gHotSpotVMStructs`): with these and `/proc/PID/mem` nothing
//! has to be loaded into the program, nor does it stop.
//!
//! The program runs on meanwhile, so whatever is read may be nonsense: it counts only if it leads to the name of a class.

use std::collections::{HashMap, HashSet};

use lockmeter_profile::rules::installed;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

use crate::elf_image::ElfPart;
use crate::process_memory::ProcessMemory;
use crate::program_locks::ProgramLock;
use crate::user_names::MappedFile;

/// The library that is the Java machine.
pub const JAVA_MACHINE: &str = "libjvm.so";

/// Tables and lists that claim more than this are not read to their ends.
const MOST_FIELDS: usize = 16 << 10;
const MOST_THREADS: usize = 16 << 10;
const MOST_CLASSES: usize = 1 << 12;

/// Longer names, and larger objects, are none of those looked for.
const LONGEST_NAME: usize = 256;
const LARGEST_OBJECT: usize = 1 << 10;

/// Behind the mark and the compressed class.
const FIRST_FIELD: usize = 12;

/// Classes that extend others of `java.lang.Thread`, at most so many times.
const DEEPEST_CLASS: usize = 16;

const THREAD: &str = "java/lang/Thread";
/// Of the classes in which threads park, these are no thread's own `Runnable`.
const LOCKS: &str = "java/util/concurrent/locks/";

/// What a thread says that it is parked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parked {
    /// A lock.
    Lock(ProgramLock),
    /// A condition, a queue, a latch or the like.
    Other,
    /// Nothing: it is not parked any more, or nobody said.
    ForNothing,
}

/// The lock that a thread waits for right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedByJava {
    /// Of a monitor the address, and the class of its object as Java writes it. Other locks are objects, which may move.
    pub monitor: Option<(u64, String)>,
    /// The thread that has it, by the id that the process knows.
    pub holder: Option<u32>,
}

/// A Java machine in a process.
#[derive(Debug)]
pub struct JavaMachine {
    memory: ProcessMemory,
    layout: Layout,
    /// By the thread's id for the kernel: the machine's own record of it.
    threads: HashMap<u32, u64>,
    /// Threads that it has no record of: they run no Java code, or began since.
    strangers: HashSet<u32>,
    /// The names of classes by their addresses.
    classes: HashMap<u64, Option<String>>,
    /// Where `Thread.parkBlocker` lies in a thread's object, once one was seen that says it.
    blocker_at: Option<usize>,
}

/// Where this build of the machine keeps what is needed.
#[derive(Debug)]
struct Layout {
    /// The variable with the list of threads.
    thread_list: u64,
    length_of_list: u64,
    threads_of_list: u64,
    system_thread: u64,
    system_id: u64,
    object_of_thread: u64,
    class_of_object: u64,
    name_of_class: u64,
    super_of_class: u64,
    /// Not every build describes them.
    monitors: Option<Monitors>,
    layout_of_class: u64,
    length_of_symbol: u64,
    body_of_symbol: u64,
    /// How compressed addresses of objects and of classes are made whole.
    objects: Compression,
    classes: Compression,
}

/// Where it keeps who waits for which monitor, and who has it.
#[derive(Debug, Clone, Copy)]
struct Monitors {
    awaited_by_thread: u64,
    object: u64,
    owner: u64,
    /// Of a thread, the highest address of its stack, and the bytes below.
    stack_base: u64,
    stack_size: u64,
}

/// Where the machine keeps how far a compressed address is shifted, and what is added: it sets them as it starts.
#[derive(Debug, Clone, Copy)]
struct Compression {
    base: u64,
    shift: u64,
}

impl Compression {
    fn whole(self, memory: &ProcessMemory, compressed: u32) -> Option<u64> {
        let shifted = u64::from(compressed).checked_shl(memory.u32(self.shift)?)?;
        shifted.checked_add(memory.u64(self.base)?)
    }
}

/// The machine's own table: by type and field the offset, or the address of a static one.
struct Fields(HashMap<(String, String), u64>);

impl Fields {
    fn read(memory: &ProcessMemory, symbols: &HashMap<String, u64>) -> Option<Self> {
        let variable = |name: &str| memory.u64(*symbols.get(&format!("gHotSpotVMStruct{name}"))?);
        let table = variable("s")?;
        let size = variable("EntryArrayStride")?;
        let [type_at, field_at, static_at, offset_at, address_at] =
            ["TypeName", "FieldName", "IsStatic", "Offset", "Address"]
                .map(|name| variable(&format!("Entry{name}Offset")));
        let mut fields = HashMap::new();
        for entry in (0..MOST_FIELDS as u64).map_while(|index| table.checked_add(index.checked_mul(size)?)) {
            let word = |at: Option<u64>| entry.checked_add(at?);
            let type_name = memory.u64(word(type_at)?)?;
            if type_name == 0 {
                break;
            }
            let is_static = memory.u32(word(static_at)?)? != 0;
            let value = memory.u64(word(if is_static { address_at } else { offset_at })?)?;
            let name = memory.u64(word(field_at)?)?;
            if let (Some(type_name), Some(name)) =
                (memory.string(type_name, LONGEST_NAME), memory.string(name, LONGEST_NAME))
            {
                fields.insert((type_name, name), value);
            }
        }
        Some(Self(fields))
    }

    /// The first of these that is there: types and fields were renamed from version to version.
    fn any(&self, names: &[(&str, &str)]) -> Option<u64> {
        names.iter().find_map(|(of, field)| self.0.get(&((*of).to_owned(), (*field).to_owned()))).copied()
    }
}

impl Layout {
    fn read(memory: &ProcessMemory, symbols: &HashMap<String, u64>) -> Option<Self> {
        let fields = Fields::read(memory, symbols)?;
        let compression = |of: &str, before: &str| {
            let at = |field: &str| {
                let (new, old) = (format!("_{field}"), format!("{before}._{field}"));
                fields.any(&[(of, &new), (of, &old)])
            };
            Some(Compression { base: at("base")?, shift: at("shift")? })
        };
        Some(Self {
            thread_list: fields.any(&[("ThreadsSMRSupport", "_java_thread_list")])?,
            length_of_list: fields.any(&[("ThreadsList", "_length")])?,
            threads_of_list: fields.any(&[("ThreadsList", "_threads")])?,
            system_thread: fields.any(&[("Thread", "_osthread"), ("JavaThread", "_osthread")])?,
            system_id: fields.any(&[("OSThread", "_thread_id")])?,
            object_of_thread: fields.any(&[("JavaThread", "_threadObj")])?,
            class_of_object: fields
                .any(&[("oopDesc", "_metadata._compressed_klass"), ("oopDesc", "_compressed_klass")])?,
            name_of_class: fields.any(&[("Klass", "_name")])?,
            super_of_class: fields.any(&[("Klass", "_super")])?,
            monitors: Monitors::find(&fields),
            layout_of_class: fields.any(&[("Klass", "_layout_helper")])?,
            length_of_symbol: fields.any(&[("Symbol", "_length")])?,
            body_of_symbol: fields.any(&[("Symbol", "_body"), ("Symbol", "_body[0]")])?,
            objects: compression("CompressedOops", "_narrow_oop")?,
            classes: compression("CompressedKlassPointers", "_narrow_klass")?,
        })
    }
}

impl Monitors {
    fn find(fields: &Fields) -> Option<Self> {
        let of_thread = |field| fields.any(&[("JavaThread", field), ("Thread", field)]);
        Some(Self {
            awaited_by_thread: of_thread("_current_pending_monitor")?,
            object: fields.any(&[("ObjectMonitor", "_object")])?,
            owner: fields.any(&[("ObjectMonitor", "_owner")])?,
            stack_base: of_thread("_stack_base")?,
            stack_size: of_thread("_stack_size")?,
        })
    }
}

impl JavaMachine {
    /// The machine in this process, which maps it there; `None` if it is none that describes itself.
    pub fn find(pid: u32, library: &MappedFile) -> Option<Self> {
        let file = library.place.open().ok()?;
        let image = file.elf(ElfPart::Symbols).ok()?;
        let elf = ElfFile64::<object::LittleEndian, _>::parse(image.bytes()).ok()?;
        let exported = elf.dynamic_symbols().filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| name.starts_with("gHotSpotVMStruct"))?;
            Some((name.to_owned(), symbol.address().wrapping_add(library.bias)))
        });
        let symbols: HashMap<String, u64> = exported.collect();
        let memory = ProcessMemory::open(pid)?;
        let layout = Layout::read(&memory, &symbols)?;
        Some(Self {
            memory,
            layout,
            threads: HashMap::new(),
            strangers: HashSet::new(),
            classes: HashMap::new(),
            blocker_at: None,
        })
    }

    /// From here on threads are looked for again that it had no record of.
    pub fn grow_old(&mut self) {
        self.strangers.clear();
    }

    /// What a thread is parked for right now.
    pub fn parked_for(&mut self, tid: u32) -> Parked {
        let Some((_, class)) = self.blocker(tid) else { return Parked::ForNothing };
        let lock = installed().of_class(&class).and_then(|(id, _)| ProgramLock::of(id));
        lock.map_or(Parked::Other, Parked::Lock)
    }

    /// The lock that a thread waits for right now: a monitor, or one that it is parked for.
    pub fn awaited_by(&mut self, tid: u32) -> Option<AwaitedByJava> {
        self.awaited_monitor(tid).or_else(|| {
            let (lock, class) = self.blocker(tid).filter(|(_, class)| installed().of_class(class).is_some())?;
            let holder = self.owner_of_lock(lock, &class);
            Some(AwaitedByJava { monitor: None, holder })
        })
    }

    fn awaited_monitor(&mut self, tid: u32) -> Option<AwaitedByJava> {
        let Monitors { awaited_by_thread, object, owner, .. } = self.layout.monitors?;
        let thread = self.thread(tid)?;
        let monitor = self.memory.u64(thread.checked_add(awaited_by_thread)?).filter(|monitor| *monitor != 0)?;
        let object = self.memory.u64(monitor.checked_add(object)?)?;
        // Since version 16 through a handle.
        let through_handle = self.memory.u64(object);
        let objects = through_handle.into_iter().chain([object]);
        let class = objects.into_iter().find_map(|object| self.class(object).and_then(|class| self.name(class)))?;
        let holder = self.memory.u64(monitor.checked_add(owner)?).and_then(|owner| self.thread_at(owner));
        Some(AwaitedByJava { monitor: Some((monitor, class.replace('/', "."))), holder })
    }

    /// The thread with this record, or with this address on its stack: a monitor names either as its owner.
    fn thread_at(&self, owner: u64) -> Option<u32> {
        let Monitors { stack_base, stack_size, .. } = self.layout.monitors?;
        let is_on_stack = |thread: u64| {
            let base = self.memory.u64(thread.checked_add(stack_base)?)?;
            let size = self.memory.u64(thread.checked_add(stack_size)?)?;
            (base.checked_sub(size)?..base).contains(&owner).then_some(())
        };
        let is_it = |thread: u64| owner != 0 && (thread == owner || is_on_stack(thread).is_some());
        self.threads.iter().find(|(_, thread)| is_it(**thread)).map(|(tid, _)| *tid)
    }

    /// The thread that a lock of `java.util.concurrent` names as its owner: in the one field of it that is a thread.
    fn owner_of_lock(&mut self, lock: u64, class_of_lock: &str) -> Option<u32> {
        let class = self.class(lock)?;
        let bytes = self.memory.u32(class.checked_add(self.layout.layout_of_class)?)? as usize;
        let is_whole = bytes <= LARGEST_OBJECT && self.name(class)? == class_of_lock;
        let fields = if is_whole { FIRST_FIELD..bytes } else { 0..0 };
        let owner = fields.step_by(4).find_map(|at| {
            let object = self.field(lock, at)?;
            self.size_of_thread(object).is_some().then_some(object)
        })?;
        let is_it = |thread: u64| {
            let handle = self.memory.u64(thread.checked_add(self.layout.object_of_thread)?)?;
            Some(self.memory.u64(handle)? == owner)
        };
        self.threads.iter().find(|(_, thread)| is_it(**thread) == Some(true)).map(|(tid, _)| *tid)
    }

    /// The object for which a thread is parked, and its class.
    fn blocker(&mut self, tid: u32) -> Option<(u64, String)> {
        let thread = self.thread(tid)?;
        let handle = self.memory.u64(thread.checked_add(self.layout.object_of_thread)?)?;
        let object = self.memory.u64(handle)?;
        if let Some(at) = self.blocker_at {
            return self.object_in_field(object, at);
        }
        let bytes = self.size_of_thread(object)?;
        let (at, blocker) = (FIRST_FIELD..bytes).step_by(4).find_map(|at| {
            let blocker = self.object_in_field(object, at)?;
            blocker.1.starts_with(LOCKS).then_some((at, blocker))
        })?;
        self.blocker_at = Some(at);
        Some(blocker)
    }

    /// The machine's record of a thread.
    fn thread(&mut self, tid: u32) -> Option<u64> {
        let is_of = |machine: &Self, thread: u64| {
            let system = machine.memory.u64(thread.checked_add(machine.layout.system_thread)?)?;
            let id = machine.memory.u32(system.checked_add(machine.layout.system_id)?)?;
            Some(id)
        };
        if let Some(thread) = self.threads.get(&tid).copied()
            && is_of(self, thread) == Some(tid)
        {
            return Some(thread);
        }
        if self.strangers.contains(&tid) {
            return None;
        }
        let list = self.memory.u64(self.layout.thread_list)?;
        let length = self.memory.u32(list.checked_add(self.layout.length_of_list)?)? as usize;
        let first = self.memory.u64(list.checked_add(self.layout.threads_of_list)?)?;
        let pointers =
            (0..length.min(MOST_THREADS) as u64).map_while(|index| self.memory.u64(first.checked_add(index * 8)?));
        let threads: Vec<u64> = pointers.collect();
        self.threads = threads.into_iter().filter_map(|thread| Some((is_of(self, thread)?, thread))).collect();
        let found = self.threads.get(&tid).copied();
        if found.is_none() && self.strangers.len() < MOST_THREADS {
            self.strangers.insert(tid);
        }
        found
    }

    /// The bytes of a `java.lang.Thread`, as which this object began: fields of its own class lie behind.
    fn size_of_thread(&mut self, object: u64) -> Option<usize> {
        let mut class = self.class(object)?;
        for _ in 0..DEEPEST_CLASS {
            if self.name(class)? == THREAD {
                let bytes = self.memory.u32(class.checked_add(self.layout.layout_of_class)?)? as usize;
                return (bytes <= LARGEST_OBJECT).then_some(bytes);
            }
            class = self.memory.u64(class.checked_add(self.layout.super_of_class)?)?;
        }
        None
    }

    /// The object that a field of another one refers to, and its class.
    fn object_in_field(&mut self, object: u64, at: usize) -> Option<(u64, String)> {
        let object = self.field(object, at)?;
        let class = self.class(object)?;
        Some((object, self.name(class)?))
    }

    fn field(&self, object: u64, at: usize) -> Option<u64> {
        let field = self.memory.u32(object.checked_add(at as u64)?).filter(|field| *field != 0)?;
        self.layout.objects.whole(&self.memory, field)
    }

    fn class(&self, object: u64) -> Option<u64> {
        let compressed = self.memory.u32(object.checked_add(self.layout.class_of_object)?)?;
        self.layout.classes.whole(&self.memory, compressed)
    }

    fn name(&mut self, class: u64) -> Option<String> {
        if let Some(known) = self.classes.get(&class) {
            return known.clone();
        }
        let read = |machine: &Self| {
            let symbol = machine.memory.u64(class.checked_add(machine.layout.name_of_class)?)?;
            let length = machine.memory.bytes(symbol.checked_add(machine.layout.length_of_symbol)?);
            let length = usize::from(u16::from_ne_bytes(length?));
            let body = symbol.checked_add(machine.layout.body_of_symbol)?;
            let name = machine.memory.text(body, length).filter(|_| (1..LONGEST_NAME).contains(&length))?;
            name.bytes().all(|byte| byte.is_ascii_graphic()).then_some(name)
        };
        let name = read(self);
        if self.classes.len() < MOST_CLASSES {
            self.classes.insert(class, name.clone());
        }
        name
    }
}
