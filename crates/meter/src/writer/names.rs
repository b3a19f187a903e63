//! What a reader needs for names: which files are mapped where, and what threads are called.

use core::ffi::{CStr, c_char, c_void};
use core::mem::{MaybeUninit, size_of};
use core::ptr;
use core::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{build_id, segment, syscalls};
use crate::layout::{COMMS, Lost, MODULES, Module, PATH_BYTES, Segment};

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

/// The directory in which the program was started, with a slash, if its path is relative to that; else empty.
static STARTED_IN: [AtomicU8; PATH_BYTES] = [const { AtomicU8::new(0) }; PATH_BYTES];

pub(super) fn prepare() {
    if !started_as().starts_with(b"/") {
        let mut bytes = [0_u8; PATH_BYTES - 1];
        let length = syscalls::working_directory(&mut bytes);
        if let Some(nul) = length.checked_sub(1).and_then(|nul| bytes.get_mut(nul)) {
            *nul = b'/';
            write_bytes(&STARTED_IN, &bytes);
        }
    }
    // SAFETY: the name ends with a NUL; looking a symbol up when the library is loaded is allowed.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(found as usize, Relaxed);
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
pub(super) fn see_module(segment: &'static Segment, address: usize) -> bool {
    let modules = &segment.modules;
    let begun = (segment.header.modules.load(Acquire) as usize).min(MODULES);
    let holds = |module: &Module| {
        let start = module.start.load(Acquire) as usize;
        start != 0 && (start..module.end.load(Relaxed) as usize).contains(&address)
    };
    if modules.iter().take(begun).any(holds) {
        return true;
    }
    let Some(found) = find_object(address) else { return false };
    let place = segment.header.modules.fetch_add(1, Relaxed) as usize;
    let Some(module) = modules.get(place) else {
        segment.header.modules.store(MODULES as u32, Relaxed);
        segment::lose(Lost::Module);
        return true;
    };
    if !syscalls::populate(ptr::from_ref(module) as usize, size_of::<Module>()) {
        return true;
    }
    // SAFETY: the loader keeps the link map of an object while it is loaded, and this address is in use in it.
    let link_map = unsafe { &*found.link_map };
    // SAFETY: a NUL-terminated name that lives as long as the link map.
    let name = unsafe { CStr::from_ptr(link_map.name) }.to_bytes();
    write_path(&module.path, name);
    // SAFETY: the loader keeps the object mapped there, and this address is in use in it.
    let build_id = unsafe { build_id::in_memory(found.map_start, found.map_end, link_map.bias) };
    let build_id = build_id.filter(|build_id| build_id.len() <= module.build_id.len()).unwrap_or_default();
    for (to, from) in module.build_id.iter().zip(build_id) {
        to.store(*from, Relaxed);
    }
    module.build_id_bytes.store(build_id.len() as u8, Relaxed);
    module.bias.store(link_map.bias as u64, Relaxed);
    module.end.store(found.map_end as u64, Relaxed);
    module.start.store(found.map_start as u64, Release);
    true
}

fn write_path(path: &[AtomicU8; PATH_BYTES], name: &[u8]) {
    if name.is_empty() {
        write_program(path);
    } else {
        write_bytes(path, name);
    }
}

/// The program itself has no name. The kernel tells its file, but to ask costs 25 µs, too much for each process that starts and
/// has no use for it; and once it is asked, the program may have closed `/proc` off. Then it is called what it was started as.
fn write_program(path: &[AtomicU8; PATH_BYTES]) {
    let mut bytes = [0_u8; PATH_BYTES - 1];
    if syscalls::read_link(b"/proc/self/exe\0", &mut bytes) > 0 {
        return write_bytes(path, &bytes);
    }
    let directory = STARTED_IN.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0);
    for (to, from) in path.iter().zip(directory.chain(started_as().iter().copied()).take(PATH_BYTES - 1)) {
        to.store(from, Relaxed);
    }
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

/// The place of this thread's name, from 1; 0 if the table is full.
pub(super) fn comm(segment: &'static Segment) -> u32 {
    let name = syscalls::thread_name();
    let begun = (segment.header.comms.load(Acquire) as usize).min(COMMS);
    let known = segment
        .comms
        .iter()
        .take(begun)
        .position(|comm| comm.text[0].load(Acquire) == name[0] && comm.text[1].load(Relaxed) == name[1]);
    if let Some(place) = known {
        return place as u32 + 1;
    }
    if begun == COMMS || name[0] == 0 {
        return 0;
    }
    let place = segment.header.comms.fetch_add(1, Relaxed) as usize;
    let Some(comm) = segment.comms.get(place) else {
        segment.header.comms.store(COMMS as u32, Relaxed);
        return 0;
    };
    if !syscalls::populate(ptr::from_ref(comm) as usize, size_of_val(comm)) {
        return 0;
    }
    comm.text[1].store(name[1], Relaxed);
    comm.text[0].store(name[0], Release);
    place as u32 + 1
}
