//! What a reader needs for names: which files are mapped where, and what threads are called.

use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use super::{build_id, pages, segment, syscalls, tls};
use crate::incompatible::is_loader;
use crate::layout::{BUILD_ID_BYTES, COMMS, Comm, Lost, MEMORY_FILE, MODULES, Module, PATH_BYTES, Process};

/// `struct dl_find_object` of glibc.
#[repr(C)]
pub(super) struct Found {
    flags: u64,
    pub(super) map_start: usize,
    pub(super) map_end: usize,
    link_map: *const LinkMap,
    pub(super) eh_frame_header: usize,
    reserved: [u64; 7],
}

/// The begin of `struct link_map`.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
}

/// glibc's `_dl_find_object` (2.35 and later), which takes no lock and may be called in signal handlers; 0 where it is missing.
// Beside what else is written when the library is loaded: each page more costs every process that starts 1 µs or two.
#[unsafe(link_section = ".data.lockmeter_start")]
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

/// Longest path of the session's directory.
const DIRECTORY_BYTES: usize = 1024;
/// The path of the session's memory, up to a NUL.
// With what else is written when the library is loaded.
#[unsafe(link_section = ".data.lockmeter_start")]
static MEMORY_PATH: [AtomicU8; DIRECTORY_BYTES + MEMORY_FILE.len() + 2] =
    [const { AtomicU8::new(0) }; DIRECTORY_BYTES + MEMORY_FILE.len() + 2];

/// What the process is called, once it is another name than its program's.
#[unsafe(link_section = ".data.lockmeter_child")]
static PROCESS_NAME: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// As many programs and libraries stand in the table of the process that forked this one and lie at the same addresses here.
#[unsafe(link_section = ".data.lockmeter_child")]
static MODULES_OF_PARENT: AtomicU32 = AtomicU32::new(0);

pub(super) fn prepare() {
    // SAFETY: the name ends with a NUL; looking a symbol up when the library is loaded is allowed.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(found as usize, Relaxed);
    // Such names mean another file to everybody else, or not the program.
    let name = started_as();
    if name.starts_with(b"/proc/") || name.starts_with(b"/dev/fd/") || is_loader(name) {
        look_up_program();
    }
}

/// The program's file, where its name is one that only the program itself understands.
static PROGRAM: [AtomicU8; PATH_BYTES] = [const { AtomicU8::new(0) }; PATH_BYTES];

/// Finds it by calls that the loader has made as well.
#[cold]
fn look_up_program() {
    const MAPS_BYTES: usize = 4096;
    let mut maps = [0_u8; MAPS_BYTES];
    let Some(descriptor) = syscalls::open(b"/proc/self/maps\0", libc::O_RDONLY | libc::O_CLOEXEC, 0) else { return };
    let length = syscalls::read(descriptor, &mut maps);
    syscalls::close(descriptor);
    let own = own_headers() as u64;
    let path =
        maps.get(..length).unwrap_or_default().split(|byte| *byte == b'\n').find_map(|line| mapped_at(line, own));
    if let Some(path) = path {
        write_bytes(&PROGRAM, path);
    }
}

/// The file of a line of `maps`, if this address lies in it.
fn mapped_at(line: &[u8], address: u64) -> Option<&[u8]> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(u64::from);
    let number = |text: &[u8]| text.iter().try_fold(0_u64, |number, byte| Some(number << 4 | digit(*byte)?));
    let mut ends = line.split(|byte| matches!(byte, b'-' | b' '));
    let (start, end) = (number(ends.next()?)?, number(ends.next()?)?);
    let path = line.iter().position(|byte| *byte == b'/').and_then(|at| line.get(at..));
    path.filter(|_| (start..end).contains(&address))
}

/// Keeps the path of the session's memory; `None` if the directory's path is too long.
pub(super) fn keep_memory_path(directory: &[u8]) -> Option<&'static [u8]> {
    if directory.is_empty() || directory.len() > DIRECTORY_BYTES {
        return None;
    }
    for (to, from) in MEMORY_PATH.iter().zip(directory.iter().chain(b"/").chain(MEMORY_FILE.as_bytes())) {
        to.store(*from, Relaxed);
    }
    memory_path()
}

/// The path of the session's memory, with its NUL; `None` where there is no session.
pub(super) fn memory_path() -> Option<&'static [u8]> {
    // SAFETY: written once, when the library is loaded, and the last byte is never.
    let path = unsafe { CStr::from_ptr(MEMORY_PATH.as_ptr().cast()) };
    (!path.is_empty()).then(|| path.to_bytes_with_nul())
}

/// The session's directory; `None` where there is no session.
pub(super) fn directory() -> Option<&'static [u8]> {
    memory_path()?.strip_suffix(b"\0")?.strip_suffix(MEMORY_FILE.as_bytes())?.strip_suffix(b"/")
}

/// The loaded object that an address lies in.
pub(super) fn find_object(address: usize) -> Option<Found> {
    let function = FIND_OBJECT.load(Relaxed);
    if function == 0 || address == 0 {
        return None;
    }
    // SAFETY: the address of a function of this type, from `dlsym`.
    let find: unsafe extern "C" fn(*mut c_void, *mut Found) -> libc::c_int = unsafe { core::mem::transmute(function) };
    let mut found = MaybeUninit::<Found>::zeroed();
    // SAFETY: writes one `Found`; any address may be asked for.
    let status = unsafe { find(address as *mut c_void, found.as_mut_ptr()) };
    // SAFETY: zeroed, which is valid, and then filled.
    (status == 0).then(|| unsafe { found.assume_init() })
}

/// The loader's name of the object that an address lies in (empty: the program itself), and what to take off an address to get
/// that of its file.
pub(super) fn module_of(address: usize) -> Option<(&'static CStr, usize)> {
    let found = find_object(address)?;
    // SAFETY: the loader keeps the link map of an object while it is loaded, and this address is in use in it.
    let link_map = unsafe { &*found.link_map };
    // SAFETY: a NUL-terminated name that lives as long as the link map.
    Some((unsafe { CStr::from_ptr(link_map.name) }, link_map.bias))
}

/// Makes sure that the module of this address is in the table, where it lies in one. Says whether it does.
pub(super) fn see_module(segment: &'static Process, address: usize) -> bool {
    let begun = (segment.module_count.load(Acquire) as usize).min(MODULES);
    if module_with(segment, begun, address).is_some() {
        return true;
    }
    let is_program = is_in(&PROGRAM_MODULE, address);
    let inherited = if is_program { None } else { inherited_module(address) };
    let found = if is_program || inherited.is_some() { None } else { find_object(address) };
    if !is_program && inherited.is_none() && found.is_none() {
        return false;
    }
    let place = segment.module_count.fetch_add(1, Relaxed) as usize;
    let module = pages::entry_or_take::<Module>(segment, &segment.modules, place);
    let Some(module) = module.filter(|_| place < MODULES) else {
        segment.module_count.store(begun as u32, Relaxed);
        segment.losses[Lost::Module as usize].fetch_add(1, Relaxed);
        return true;
    };
    if is_program {
        copy_facts(&PROGRAM_MODULE, module);
        module.start.store(PROGRAM_MODULE.start.load(Relaxed), Release);
        return true;
    }
    if inherited.is_some_and(|inherited| copy_module(inherited, module)) {
        return true;
    }
    if let Some(found) = found.or_else(|| find_object(address)) {
        write_module(&found, module);
    }
    true
}

/// Puts the program itself into the table.
pub(super) fn see_program(segment: &'static Process) {
    for (to, from) in PROGRAM_NAME.iter().zip(process_name()) {
        to.store(from, Relaxed);
    }
    see_module(segment, own_headers());
    let begun = (segment.module_count.load(Acquire) as usize).min(MODULES);
    if let Some(program) = module_with(segment, begun, own_headers()) {
        copy_facts(program, &PROGRAM_MODULE);
        PROGRAM_MODULE.start.store(program.start.load(Relaxed), Release);
    }
}

/// What the program is called, for forked children, which would look it up by page faults.
#[unsafe(link_section = ".data.lockmeter_start")]
static PROGRAM_NAME: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The program itself, for forked children: another process's memory would cost them a page fault.
#[unsafe(link_section = ".data.lockmeter_start")]
static PROGRAM_MODULE: Module = Module {
    start: AtomicU64::new(0),
    end: AtomicU64::new(0),
    bias: AtomicU64::new(0),
    build_id: [const { AtomicU8::new(0) }; BUILD_ID_BYTES],
    build_id_bytes: AtomicU8::new(0),
    is_program: AtomicU8::new(0),
    spare: [0; _],
    path: [const { AtomicU8::new(0) }; PATH_BYTES],
};

/// Whether a module is valid and holds this address.
fn is_in(module: &Module, address: usize) -> bool {
    let start = module.start.load(Acquire) as usize;
    start != 0 && (start..module.end.load(Relaxed) as usize).contains(&address)
}

/// Where the program's headers lie.
fn own_headers() -> usize {
    // SAFETY: reads what the kernel gave the process.
    (unsafe { libc::getauxval(libc::AT_PHDR) }) as usize
}

/// The module that this address lies in, among the first of those of a process.
fn module_with(process: &'static Process, count: usize, address: usize) -> Option<&'static Module> {
    let mut modules = (0..count).filter_map(|place| pages::entry::<Module>(&process.modules, place));
    modules.find(|module| is_in(module, address))
}

/// What the process that forked this one knew of the module of this address: to ask the loader again takes a forked child many page faults.
fn inherited_module(address: usize) -> Option<&'static Module> {
    module_with(segment::parent()?, MODULES_OF_PARENT.load(Relaxed) as usize, address)
}

/// No library is known any more to be where it was when this process was forked.
pub(super) fn forget_inherited() {
    if MODULES_OF_PARENT.load(Relaxed) != 0 {
        MODULES_OF_PARENT.store(0, Relaxed);
    }
}

/// Says whether it was there to the end: pages of a process that has ended are another's some time.
fn copy_module(from: &Module, to: &Module) -> bool {
    let start = from.start.load(Acquire);
    copy_facts(from, to);
    fence(Acquire);
    let is_there = start != 0 && from.start.load(Relaxed) == start && segment::parent().is_some();
    if is_there {
        to.start.store(start, Release);
    }
    is_there
}

/// All but where it begins, which is written last.
fn copy_facts(from: &Module, to: &Module) {
    for (to, from) in to.path.iter().zip(&from.path) {
        let byte = from.load(Relaxed);
        to.store(byte, Relaxed);
        if byte == 0 {
            break;
        }
    }
    for (to, from) in to.build_id.iter().zip(&from.build_id) {
        to.store(from.load(Relaxed), Relaxed);
    }
    to.build_id_bytes.store(from.build_id_bytes.load(Relaxed), Relaxed);
    to.is_program.store(from.is_program.load(Relaxed), Relaxed);
    to.bias.store(from.bias.load(Relaxed), Relaxed);
    to.end.store(from.end.load(Relaxed), Relaxed);
}

fn write_module(found: &Found, module: &Module) {
    // SAFETY: the loader keeps the link map of an object while it is loaded, and the address that was asked for is in use in it.
    let link_map = unsafe { &*found.link_map };
    // SAFETY: a NUL-terminated name that lives as long as the link map.
    let name = unsafe { CStr::from_ptr(link_map.name) }.to_bytes();
    write_path(module, name);
    // SAFETY: the loader keeps the object mapped there, and an address in it is in use.
    let build_id = unsafe { build_id::in_memory(found.map_start, found.map_end, link_map.bias) };
    let build_id = build_id.filter(|build_id| build_id.len() <= module.build_id.len()).unwrap_or_default();
    for (to, from) in module.build_id.iter().zip(build_id) {
        to.store(*from, Relaxed);
    }
    module.build_id_bytes.store(build_id.len() as u8, Relaxed);
    module.bias.store(link_map.bias as u64, Relaxed);
    module.end.store(found.map_end as u64, Relaxed);
    module.start.store(found.map_start as u64, Release);
}

/// Whether what is loaded at the addresses of this module is still the same file.
pub(super) fn is_loaded(module: &Module) -> bool {
    let (start, end) = (module.start.load(Relaxed) as usize, module.end.load(Relaxed) as usize);
    let Some(found) = find_object(start) else { return false };
    if (found.map_start, found.map_end) != (start, end) {
        return false;
    }
    // SAFETY: the loader keeps the link map of an object while it is loaded. One that another thread unloads at this moment is as
    // good as gone, and its memory is the loader's own.
    let link_map = unsafe { &*found.link_map };
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(link_map.name) }.to_bytes();
    // The program itself is never unloaded.
    name.is_empty()
        || module.path.iter().take(PATH_BYTES - 1).zip(name).all(|(there, byte)| there.load(Relaxed) == *byte)
}

/// The program itself has no name: it is called what it was started as. The recorder asks the kernel, as long as the process lives.
fn write_path(module: &Module, name: &[u8]) {
    let is_program = name.is_empty();
    module.is_program.store(is_program.into(), Relaxed);
    if !is_program {
        return write_bytes(&module.path, name);
    }
    let found = PROGRAM.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0);
    if PROGRAM[0].load(Relaxed) != 0 {
        module.path.iter().zip(found).for_each(|(to, from)| to.store(from, Relaxed));
        return;
    }
    let program = started_as();
    let folder = if program.starts_with(b"/") { None } else { working_folder() };
    let folder = folder.into_iter().flat_map(|folder| folder.iter().chain(b"/"));
    for (to, from) in module.path.iter().zip(folder.chain(program).take(PATH_BYTES - 1)) {
        to.store(*from, Relaxed);
    }
}

/// The folder in which the program was started, as shells tell their children.
fn working_folder() -> Option<&'static [u8]> {
    // SAFETY: the name ends with a NUL. A program that changes its environment in another thread meanwhile would lose by itself.
    let folder = unsafe { libc::getenv(c"PWD".as_ptr()) };
    // SAFETY: the environment's text ends with a NUL.
    (!folder.is_null()).then(|| unsafe { CStr::from_ptr(folder) }.to_bytes())
}

fn write_bytes(path: &[AtomicU8; PATH_BYTES], bytes: &[u8]) {
    for (to, from) in path.iter().zip(bytes.iter().take(PATH_BYTES - 1)) {
        to.store(*from, Relaxed);
    }
}

/// The path by which the program was started: a script's is the script.
fn started_as() -> &'static [u8] {
    // SAFETY: reads what the kernel gave the process.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    // SAFETY: the kernel puts the path, with its NUL, at the upper end of the stack, which ends with zeros.
    if path.is_null() { b"" } else { unsafe { CStr::from_ptr(path) }.to_bytes() }
}

/// What a process is called: as its program, unless it is a child of a thread with another name.
fn process_name() -> [u64; 2] {
    for name in [&PROCESS_NAME, &PROGRAM_NAME] {
        let name = [&name[0], &name[1]].map(|word| word.load(Relaxed));
        if name[0] != 0 {
            return name;
        }
    }
    let name = started_as().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    words_of(name)
}

/// A name as the kernel keeps it: fifteen bytes and a NUL.
fn words_of(name: &[u8]) -> [u64; 2] {
    let mut bytes = [0_u8; 16];
    for (to, from) in bytes.iter_mut().take(15).zip(name.iter().take_while(|byte| **byte != 0)) {
        *to = *from;
    }
    let [low, high] = [0, 8].map(|at| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    });
    [low, high]
}

/// To be called in a forked child: it is called what the thread that forked it was. As many modules stand in its parent's table.
pub(super) fn inherit(parent: Option<&'static Process>, modules: u32) {
    let place = tls::comm() as usize - 1;
    // The first is the process's own name, which it inherits anyhow.
    if let Some(name) = parent.filter(|_| place > 0).and_then(|parent| pages::entry::<Comm>(&parent.comms, place)) {
        for (to, from) in PROCESS_NAME.iter().zip(&name.text) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
    // Of one that has recorded nothing itself, what it inherited holds.
    if parent.is_some() {
        MODULES_OF_PARENT.store(modules.min(MODULES as u32), Relaxed);
    }
    tls::set_comm(0);
}

/// Writes the name of the process, which is the first in its table.
pub(super) fn name_process(segment: &'static Process) {
    number_of(segment, process_name());
}

/// The place of a thread's name, from 1; 0 if the table is full.
pub(super) fn comm(segment: &'static Process, name: &[u8]) -> u32 {
    number_of(segment, words_of(name))
}

fn number_of(segment: &'static Process, name: [u64; 2]) -> u32 {
    let begun = (segment.comm_count.load(Acquire) as usize).min(COMMS);
    let is_it = |place: &usize| {
        pages::entry::<Comm>(&segment.comms, *place)
            .is_some_and(|comm| comm.text[0].load(Acquire) == name[0] && comm.text[1].load(Relaxed) == name[1])
    };
    if let Some(place) = (0..begun).find(is_it) {
        return place as u32 + 1;
    }
    if begun == COMMS || name[0] == 0 {
        return 0;
    }
    let place = segment.comm_count.fetch_add(1, Relaxed) as usize;
    let Some(comm) = pages::entry_or_take::<Comm>(segment, &segment.comms, place) else {
        return 0;
    };
    comm.text[1].store(name[1], Relaxed);
    comm.text[0].store(name[0], Release);
    place as u32 + 1
}
