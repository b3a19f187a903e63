//! The metered processes as seen from outside: what they map, and their stacks unwound and named.

mod mapped_elf;
mod mappings;

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use framehop::Unwinder;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use lockmeter_profile::{Frame, Lock, Loss, Losses};
use lockmeter_symbols::{
    MappedFile, Origin, SharedAddress, SharedMapping, StaticPlace, TargetFile, UserNames, heap_lock, is_on_main_stack,
    lock_without_address, on_stack, sees_other_files, shared_lock,
};

use mapped_elf::{Opened, OpenedFiles, Section};
use mappings::{Mappings, living_thread};

/// Drains that an ended process is remembered for: its stacks have been named by then, and children that it forked before have been seen.
const REMEMBERED_DRAINS: u32 = 2;

/// Frames that are kept of a stack.
const DEEPEST: usize = 64;

/// Names of locks in shared memory that are remembered.
const MOST_SHARED: usize = 1 << 16;

/// The number of this name in `tables.h`.
const CHUNK_BYTES: u64 = 1024;

/// A copy of the inner end of a user stack, as `copied_stack.h` has it.
#[derive(Debug, Clone, Copy)]
pub struct CopiedStack<'a> {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// From the begin of the chunk that the stack pointer lies in.
    pub copy: &'a [u8],
}

/// Makes one of a record's, whose type each collector has for itself.
macro_rules! copied_stack {
    ($stack:expr) => {{
        let stack = $stack;
        let bytes = (stack.bytes as usize).min(stack.copy.len());
        $crate::futex::processes::CopiedStack {
            ip: stack.ip,
            sp: stack.sp,
            bp: stack.bp,
            copy: stack.copy.get(..bytes).unwrap_or_default(),
        }
    }};
}
pub(crate) use copied_stack;

/// All processes of which a stack was seen.
#[derive(Default)]
pub struct Processes {
    known: HashMap<u32, Process>,
    files: OpenedFiles,
    names: UserNames,
    rules: CacheX86_64,
    /// Locks that processes share, with the address at which each was first seen.
    shared: HashMap<SharedAddress, (Lock, u64)>,
}

/// What is kept of a process also after its end.
#[derive(Default)]
struct Process {
    files: Vec<MappedFile>,
    unwinder: UnwinderX86_64<Section>,
    /// Whose mappings it had when it began, if it runs the same program; 0 if that is not known.
    parent: u32,
    /// What `files` was made from.
    mappings: Mappings,
    /// Held open: paths of another root cannot be followed after the process's end.
    held: Vec<Rc<TargetFile>>,
    /// The mappings were read since the last [`Processes::grow_old`].
    fresh: bool,
    /// It has run since its mappings were read.
    has_run: bool,
    /// How often the mappings have changed.
    changes: u32,
    /// Calls of [`Processes::grow_old`] since it was last asked for.
    age: u32,
}

impl Processes {
    /// Reads what a process maps, so that its stacks can be named when it has ended.
    pub fn look_at(&mut self, tgid: u32) {
        self.refresh(tgid);
    }

    /// A process that may end before its mappings are read has those of the process that forked it; 0 if it runs
    /// another program by now.
    pub fn inherit(&mut self, tgid: u32, parent: u32) {
        let parent = if parent == tgid { 0 } else { parent };
        self.known.entry(tgid).or_default().parent = parent;
    }

    /// How many files, since the last call, turned out to be replaced by others, so that nothing in them is named.
    pub fn take_replaced(&mut self) -> u64 {
        self.files.take_gone() + self.names.take_replaced()
    }

    /// How many files, since the last call, hold more symbols or unwind information than is read.
    pub fn take_read_in_part(&mut self) -> u64 {
        self.files.take_read_in_part() + self.names.take_read_in_part()
    }

    /// Keeps names in so much memory, about, and what unwinding needs in as much again.
    pub fn keep_within(&mut self, bytes: u64) {
        self.names.keep_within(bytes);
        self.files.keep_within(bytes);
    }

    /// From here on mappings are read again when an address is not known, and now of all processes that were asked for and have run since
    /// theirs were read: another program may run in them. Nobody else changes what a process maps. Ended ones are forgotten after a while.
    pub fn grow_old(&mut self, has_run: impl Fn(u32) -> bool) {
        self.known.iter_mut().for_each(|(tgid, process)| process.has_run |= has_run(*tgid));
        let asked_for = self.known.iter().filter(|(_, process)| process.age == 0 && process.has_run);
        let asked_for: Vec<u32> = asked_for.map(|(tgid, _)| *tgid).collect();
        for tgid in asked_for {
            self.refresh(tgid);
        }
        self.known.retain(|tgid, process| {
            process.fresh = false;
            process.age += 1;
            process.age <= REMEMBERED_DRAINS || Path::new(&format!("/proc/{tgid}")).exists()
        });
        self.files.make_room();
    }

    /// Whether a process maps code of a file of such a name.
    pub fn maps_any(&self, tgid: u32, is_such: impl Fn(&str) -> bool) -> bool {
        self.known.get(&tgid).is_some_and(|process| process.files.iter().any(|file| is_such(&file.name)))
    }

    /// A file of such a name that a process maps.
    pub fn file(&self, tgid: u32, is_such: impl Fn(&str) -> bool) -> Option<&MappedFile> {
        self.known.get(&tgid)?.files.iter().find(|file| is_such(&file.name))
    }

    /// All files that a process maps.
    pub fn files(&self, tgid: u32) -> &[MappedFile] {
        self.known.get(&tgid).map_or(&[], |process| &process.files)
    }

    /// Whether a process is remembered.
    pub fn is_known(&self, tgid: u32) -> bool {
        self.known.contains_key(&tgid)
    }

    /// How often the mappings of a process have changed: what was known of its addresses then is not known any more.
    pub fn changes(&self, tgid: u32) -> u32 {
        self.known.get(&tgid).map_or(0, |process| process.changes)
    }

    /// What reports call a lock in memory of which nothing else is known: on the heap, or on the stack of the process's first thread.
    /// Without an address it may as well be a static variable.
    pub fn lock_in_memory(&self, tgid: u32, address: Option<u64>, user: &[Frame]) -> Lock {
        let Some(address) = address else { return lock_without_address(user) };
        let lock = heap_lock(user, Origin::FirstSeen);
        let stack_end = self.known.get(&tgid).map_or(0, |process| process.mappings.stack_end);
        if is_on_main_stack(address, stack_end) { on_stack(lock) } else { lock }
    }

    /// Return addresses of a copied stack, innermost first; the first is where the thread is itself.
    pub fn unwind(&mut self, tgid: u32, stack: CopiedStack<'_>, losses: &mut Losses) -> Vec<u64> {
        if stack.copy.is_empty() {
            losses.add(Loss::UserStackFailed, 1);
            return Vec::new();
        }
        let mut unwound = self.follow(tgid, stack);
        let is_strange = |process: &Process, address: &u64| !process.files.iter().any(|file| file.holds(*address));
        let is_old = self.known.get(&tgid).is_none_or(|process| {
            !process.fresh && unwound.addresses.iter().any(|address| is_strange(process, address))
        });
        if is_old && self.refresh(tgid) {
            unwound = self.follow(tgid, stack);
        }
        let is_gone = self.known.get(&tgid).is_none_or(|process| process.files.is_empty());
        match unwound.end {
            _ if is_gone => losses.add(Loss::ProcessGone, 1),
            End::Outermost => {}
            End::OutOfCopy => losses.add(Loss::StackTooDeep, 1),
            End::Lost => losses.add(Loss::UserStackFailed, 1),
        }
        unwound.addresses
    }

    /// The frames of such a stack.
    pub fn frames(&mut self, tgid: u32, addresses: &[u64]) -> Vec<Frame> {
        let files = self.known.get(&tgid).map_or(&[][..], |process| &process.files);
        addresses.iter().flat_map(|address| self.names.frames(files, *address).as_ref().clone()).collect()
    }

    /// The variable at an address, if it lies in a program's or library's own memory.
    pub fn static_place(&mut self, tgid: u32, address: u64) -> Option<StaticPlace> {
        let files = self.known.get(&tgid).map_or(&[][..], |process| &process.files);
        self.names.static_place(files, address)
    }

    /// The lock at an address, and the one that stands for it in all processes, if that lies in memory that processes share. `used` is a
    /// stack that waits for it.
    pub fn shared_lock(&mut self, tgid: u32, address: u64, used: &[Frame]) -> Option<(Lock, u64)> {
        let is_known =
            |process: &Process| process.fresh || SharedMapping::at(&process.mappings.shared, address).is_some();
        if !self.known.get(&tgid).is_some_and(is_known) {
            self.refresh(tgid);
        }
        let (place, path) = SharedMapping::at(&self.known.get(&tgid)?.mappings.shared, address)?;
        if let Some(known) = self.shared.get(&place) {
            return Some(known.clone());
        }
        let named = (shared_lock(place, path, used, Origin::FirstSeen), address);
        // Without a stack it would have a name that says less for good.
        if !used.is_empty() && self.shared.len() < MOST_SHARED {
            self.shared.insert(place, named.clone());
        }
        Some(named)
    }

    fn follow(&mut self, tgid: u32, stack: CopiedStack<'_>) -> Unwound {
        let process = self.known.entry(tgid).or_default();
        process.age = 0;
        let begin = stack.sp - stack.sp % CHUNK_BYTES;
        let end = begin.saturating_add(stack.copy.len() as u64);
        let mut beyond = false;
        let mut read = |address: u64| {
            beyond = address >= end || address.saturating_add(8) > end;
            let at = address.checked_sub(begin).filter(|_| !beyond).ok_or(())?;
            let at = usize::try_from(at).map_err(|_| ())?;
            stack.copy.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes).ok_or(())
        };
        let registers = UnwindRegsX86_64::new(stack.ip, stack.sp, stack.bp);
        let mut frames = process.unwinder.iter_frames(stack.ip, registers, &mut self.rules, &mut read);
        let mut addresses = Vec::new();
        let finished = loop {
            match frames.next() {
                Ok(Some(frame)) if addresses.len() < DEEPEST => addresses.push(frame.address()),
                Ok(Some(_)) => break Some(End::OutOfCopy),
                Ok(None) => break Some(End::Outermost),
                Err(framehop::Error::ReturnAddressIsNull) => break Some(End::Outermost),
                Err(_) => break None,
            }
        };
        let end = finished.unwrap_or(if beyond { End::OutOfCopy } else { End::Lost });
        Unwound { addresses, end }
    }

    /// Reads the mappings of a process again; whether they differ from those before.
    fn refresh(&mut self, tgid: u32) -> bool {
        let process = self.known.entry(tgid).or_default();
        (process.fresh, process.has_run) = (true, false);
        let (changes, age, parent) = (process.changes + 1, process.age, process.parent);
        let living = living_thread(tgid);
        let mut mappings = Mappings::read(living);
        // A process that has ended has no mappings, and keeps those that it had or was born with.
        if mappings.code.is_empty() && process.mappings.code.is_empty() {
            mappings = self.known.get(&parent).map(|parent| parent.mappings.clone()).unwrap_or_default();
        }
        if mappings.code.is_empty() {
            return false;
        }
        if let Some(process) = self.known.get_mut(&tgid).filter(|process| process.mappings.code == mappings.code) {
            process.mappings.shared = mappings.shared;
            return false;
        }
        let mut next = Process { fresh: true, changes, age, parent, ..Process::default() };
        let is_elsewhere = sees_other_files(living);
        for mapping in mappings.of_code() {
            let elf = match self.files.opened(living, &mapping, is_elsewhere) {
                Opened::Elf(elf) => elf,
                Opened::Gone => {
                    next.files.push(mapping.without_file());
                    continue;
                }
                Opened::Other => continue,
            };
            next.held.extend(elf.held());
            if let Some((file, module)) = elf.mapped(&mapping)
                && !next.files.iter().any(|known| known.holds(file.start))
            {
                next.files.push(file);
                next.unwinder.add_module(module);
            }
        }
        next.mappings = mappings;
        if let Some(process) = self.known.get_mut(&tgid) {
            *process = next;
        }
        true
    }
}

struct Unwound {
    addresses: Vec<u64>,
    end: End,
}

enum End {
    Outermost,
    /// The copy was too short.
    OutOfCopy,
    Lost,
}

/// Addresses of each segment that are unwound from.
const TRIED: u64 = 64;

/// Unwinds stacks of a process that maps these bytes as a file and runs everywhere in it: for fuzzing and mutation tests.
pub fn unwind_by_hostile_elf(bytes: &[u8]) {
    for (file, module, addresses) in mapped_elf::mapped_hostile(bytes) {
        let mut process = Process { files: vec![file.clone()], ..Process::default() };
        process.unwinder.add_module(module);
        let mut processes = Processes { known: HashMap::from([(1, process)]), ..Processes::default() };
        let step = (addresses.end.saturating_sub(addresses.start) / TRIED).max(1);
        for address in (0..TRIED).map(|index| addresses.start.wrapping_add(index.wrapping_mul(step))) {
            let address = address.wrapping_add(file.bias);
            let mut copy = [0; 5120];
            for word in copy.chunks_exact_mut(8) {
                word.copy_from_slice(&address.to_ne_bytes());
            }
            let stack = CopiedStack { ip: address, sp: 0x1000, bp: 0x1100, copy: &copy };
            processes.follow(1, stack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn a_child_that_ended_is_named_by_what_its_parent_maps() {
        let mut processes = Processes::default();
        let (own, ended) = (std::process::id(), u32::MAX);
        processes.look_at(own);
        processes.look_at(ended);
        let address = living_thread as fn(u32) -> u32 as usize as u64 + 1;
        assert_eq!(processes.frames(ended, &[address])[0].function, None);
        processes.inherit(ended, own);
        processes.look_at(ended);
        let frames = processes.frames(ended, &[address]);
        let names: Vec<_> = frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
        assert!(names.iter().any(|name| name.contains("living_thread")), "{names:?}");
    }

    #[test]
    fn this_program_finds_itself() {
        let mut processes = Processes::default();
        processes.look_at(std::process::id());
        let own = this_program_finds_itself as fn() as usize as u64;
        let frames = processes.frames(std::process::id(), &[own + 1]);
        let names: Vec<_> = frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
        assert!(names.iter().any(|name| name.contains("this_program_finds_itself")), "{names:?}");
    }

    /// Makes sure that another program is known in a process that executes one, and that one which sleeps costs nothing.
    #[test]
    fn mappings_are_read_again_once_the_process_has_run() {
        let mut command = std::process::Command::new("sh");
        let mut child =
            command.args(["-c", "read line; exec sleep 60"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let runs = |name: &str| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
        let until = |name: &str| {
            while !runs(name) {
                std::thread::yield_now()
            }
        };
        until("sh");
        let mut processes = Processes::default();
        processes.look_at(pid);
        let before = processes.changes(pid);
        let maps_sleep = |processes: &Processes| processes.maps_any(pid, |file| file == "sleep");
        child.stdin.take();
        until("sleep");
        processes.grow_old(|_| false);
        assert!(!maps_sleep(&processes) && processes.changes(pid) == before, "nobody said that it ran");
        // It is not asked for now, and later does not run.
        processes.grow_old(|_| true);
        assert!(!maps_sleep(&processes));
        processes.known.get_mut(&pid).unwrap().age = 0;
        processes.grow_old(|_| false);
        assert!(maps_sleep(&processes) && processes.changes(pid) == before + 1);
        child.kill().and_then(|()| child.wait()).unwrap();
    }

    /// Makes sure that a process with more files than may be held open is known, and that what it no longer maps is let go.
    #[test]
    fn of_many_deleted_files_not_all_are_held_open() {
        let own = std::process::id();
        if fs::read_dir(format!("/proc/{own}/map_files")).is_err() || !may_open_mapped_files() {
            println!("SKIPPED many deleted files: not root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("library.c"), folder.path().join("library"));
        fs::write(&source, "int take(int at) { return at + 1; }\n").unwrap();
        let mut compiler = std::process::Command::new("cc");
        let built = compiler.args(["-shared", "-fPIC", "-Wl,--build-id", "-o"]).arg(&library).arg(&source).status();
        assert!(built.unwrap().success());
        let mapped: Vec<Mapped> = (0..mapped_elf::MOST_HELD + 100).map(|_| Mapped::copy_of(&library)).collect();
        let mut processes = Processes::default();
        processes.look_at(own);
        assert_eq!(processes.files.held(), mapped_elf::MOST_HELD);
        let known = processes.known[&own].files.iter().filter(|file| file.name == "mapped").count();
        assert_eq!(known, mapped.len());
        drop(mapped);
        processes.look_at(own);
        processes.grow_old(|_| true);
        assert_eq!(processes.files.held(), 0);
    }

    fn may_open_mapped_files() -> bool {
        // SAFETY: takes nothing.
        unsafe { libc::geteuid() == 0 }
    }

    /// A file whose code this process maps, and that no path leads to.
    struct Mapped {
        code: *mut libc::c_void,
        bytes: usize,
    }

    impl Mapped {
        fn copy_of(library: &Path) -> Self {
            let copy = library.with_file_name("mapped");
            fs::copy(library, &copy).unwrap();
            let file = File::open(&copy).unwrap();
            fs::remove_file(&copy).unwrap();
            // More than the file has, so that the modules do not overlap.
            let bytes = file.metadata().unwrap().len() as usize + (64 << 10);
            let (rights, descriptor) = (libc::PROT_READ | libc::PROT_EXEC, std::os::fd::AsRawFd::as_raw_fd(&file));
            // SAFETY: a new mapping of a file that is open; nobody changes it.
            let code =
                unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_PRIVATE, descriptor, 0x1000) };
            assert_ne!(code, libc::MAP_FAILED);
            Self { code, bytes }
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: what `mmap` returned, which nothing refers to any more.
            unsafe { libc::munmap(self.code, self.bytes) };
        }
    }
}
