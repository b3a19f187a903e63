//! The library that is preloaded into a command, and the commands that it cannot be preloaded into.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lockmeter_meter::incompatible::{self, Incompatible, ReadAt, Room};
use lockmeter_symbols::{ElfPart, TargetFile};
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection};

use crate::error::RecorderError;

const LIBRARY: &str = "liblockmeter_preload.so";

/// Names another library than the installed one.
const LIBRARY_VARIABLE: &str = "LOCKMETER_PRELOAD";

/// How binaries begin.
const ELF: &[u8] = b"\x7fELF";

/// Scripts whose interpreters are scripts: more are a loop.
const MOST_INTERPRETERS: usize = 4;

/// Program headers beyond this are not those of a program.
const HEAD_BYTES: u64 = 64 << 10;

/// Where the library is: beside lockmeter, or where it is installed.
pub fn library() -> Result<PathBuf, RecorderError> {
    if let Some(named) = env::var_os(LIBRARY_VARIABLE) {
        return fs::canonicalize(&named).map_err(|error| {
            let tried = format!("no library {} (from {LIBRARY_VARIABLE})", named.to_string_lossy());
            RecorderError::from(error).after(&tried)
        });
    }
    let program =
        env::current_exe().map_err(|error| RecorderError::from(error).after("cannot find lockmeter's own file"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    [folder.join(LIBRARY), folder.join("../lib/lockmeter").join(LIBRARY)]
        .into_iter()
        .find_map(|path| fs::canonicalize(path).ok())
        .ok_or_else(|| {
            let folder = folder.display();
            RecorderError::failed(format!(
                "{LIBRARY} is missing beside {folder} (build it with `cargo build -p lockmeter-preload`)"
            ))
        })
}

/// Programs that run another one as another user. What they do depends on their settings, so they are known by the names of their files.
const RUN_AS_ANOTHER_USER: [&str; 11] =
    ["doas", "gosu", "pkexec", "runuser", "s6-setuidgid", "setuidgid", "su", "su-exec", "su-rs", "sudo", "sudo-rs"];

/// Changes the user if it is told to by one of these.
const SETPRIV: &str = "setpriv";
const SETPRIV_USER: [&str; 3] = ["--reuid", "--ruid", "--euid"];

/// Why the library cannot be preloaded into a command.
pub struct Obstacle {
    /// In a sentence, without its full stop.
    pub why: String,
    /// What to run to meter the command from inside all the same, if there is a way.
    pub instead: Option<String>,
    /// Whether the program would do otherwise with the library.
    pub disturbs: bool,
    /// Whether its waits are not told from outside either: its system calls are others.
    pub is_foreign: bool,
}

/// Why the library cannot be preloaded into this command; `None` if it can, or if the program's start will say what is wrong.
pub fn obstacle(command: &[OsString]) -> Option<Obstacle> {
    let (program, arguments) = command.split_first()?;
    if incompatible::is_valgrind(program.as_bytes()) {
        let why = incompatible_obstacle(Path::new(program), Incompatible::Valgrind);
        return Some(Obstacle { why, instead: None, disturbs: true, is_foreign: false });
    }
    let (path, head) = binary(program)?;
    // Before what is wrong with its own file: what it runs is what is to be metered.
    if let Some(name) = runs_as_another_user(program, arguments) {
        return Some(Obstacle {
            why: format!(
                "{name} runs its program as another user, who has no access to this recording, so the program's own locks cannot be \
                 metered from inside"
            ),
            instead: Some(format!("{name} ... lockmeter record ... -- PROGRAM")),
            disturbs: false,
            is_foreign: false,
        });
    }
    let disturbs = needs_runtime_first(&path);
    let is_foreign = is_for_another_machine(&head);
    elf_obstacle(&path, &head).map(|why| Obstacle { why, instead: None, disturbs, is_foreign })
}

/// The name of a program that runs another one as another user.
fn runs_as_another_user<'a>(program: &'a OsStr, arguments: &[OsString]) -> Option<&'a str> {
    let name = Path::new(program).file_name()?.to_str()?;
    let is_user =
        |argument: &OsString| SETPRIV_USER.iter().any(|flag| argument.as_bytes().starts_with(flag.as_bytes()));
    let changes_user = RUN_AS_ANOTHER_USER.contains(&name) || name == SETPRIV && arguments.iter().any(is_user);
    changes_user.then_some(name)
}

/// A program's file.
struct Readable(TargetFile);

impl ReadAt for Readable {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> usize {
        self.0.read_part(at, bytes).unwrap_or(0)
    }
}

fn needs_runtime_first(path: &Path) -> bool {
    TargetFile::open(path).is_ok_and(|file| incompatible::needs_runtime_first(&Readable(file), &mut Room::new()))
}

fn incompatible_obstacle(path: &Path, what: Incompatible) -> String {
    let name = path.display();
    match what {
        Incompatible::Sanitizer => format!(
            "{name} is linked with a sanitizer's shared runtime, which must come before all other libraries, so its own locks cannot \
             be metered from inside"
        ),
        Incompatible::Valgrind => {
            format!(
                "{name} would take lockmeter's library for the program's own, so locks under it cannot be metered from inside"
            )
        }
    }
}

/// Why the kernel does not know how to run this file.
pub fn cannot_run(program: &OsStr) -> &'static str {
    match binary(program) {
        Some((_, head)) if is_for_another_machine(&head) => "it is built for another architecture than this machine's",
        Some((_, head)) if head.starts_with(ELF) => "its file is damaged",
        _ => "it is neither a binary nor a script that begins with `#!`",
    }
}

/// What programs look up that tell a preloaded library of their locks themselves: those of `lockmeter-locks`.
const OWN_LOCKS: &[u8] = b"lockmeter_lock_contended_begin\0";

/// The language of a program whose locks never call pthread, so that a preloaded library would not see them.
pub fn language_without_pthread(program: &OsStr) -> Option<&'static str> {
    let (path, _) = binary(program)?;
    let image = TargetFile::open(&path).ok()?.elf(ElfPart::Language).ok()?;
    let elf = object::File::parse(image.bytes()).ok()?;
    if elf.section_by_name(".go.buildinfo").is_some() {
        return Some("Go");
    }
    // Compilers sign here; stripping symbols leaves it.
    let signatures = elf.section_by_name(".comment")?.data().ok()?;
    let is_rust = contains(signatures, b"rustc");
    let constants = elf.section_by_name(".rodata").and_then(|section| section.data().ok());
    let tells_itself = constants.is_some_and(|constants| contains(constants, OWN_LOCKS));
    (is_rust && !tells_itself).then_some("Rust")
}

/// The file of the program that runs, also if it is a script's interpreter.
pub fn program_file(program: &OsStr) -> Option<PathBuf> {
    binary(program).map(|(path, _)| path)
}

/// The program that runs, also if it is a script's interpreter, with the begin of its file.
fn binary(program: &OsStr) -> Option<(PathBuf, Vec<u8>)> {
    let mut path = find(program)?;
    for _ in 0..MOST_INTERPRETERS {
        let head = TargetFile::open(&path).ok()?.head(HEAD_BYTES).ok()?;
        match interpreter_of_script(&head) {
            Some(interpreter) => path = find(interpreter)?,
            None => return Some((path, head)),
        }
    }
    None
}

/// The file that a shell would run.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = env::var_os("PATH")?;
    let is_program =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
    env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
}

fn interpreter_of_script(head: &[u8]) -> Option<&OsStr> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let interpreter = words.next()?;
    let is_env = interpreter.ends_with(b"/env");
    let named = words.next().filter(|word| is_env && !word.starts_with(b"-") && !word.contains(&b'='));
    Some(OsStr::from_bytes(named.unwrap_or(interpreter)))
}

fn elf_obstacle(path: &Path, head: &[u8]) -> Option<String> {
    let name = path.display();
    if !head.starts_with(ELF) {
        return None;
    }
    if is_for_another_machine(head) {
        return Some(format!(
            "{name} is built for another architecture, so its own locks can be metered neither from inside nor from outside"
        ));
    }
    match elf_interpreter(head) {
        None => {
            return Some(format!("{name} is linked statically, so its own locks cannot be metered from inside"));
        }
        Some(loader) if contains(loader, b"musl") => {
            return Some(format!("{name} uses the musl C library, whose locks cannot be metered from inside"));
        }
        Some(_) => {}
    }
    if needs_runtime_first(path) {
        return Some(incompatible_obstacle(path, Incompatible::Sanitizer));
    }
    is_privileged(path).then(|| {
        format!("{name} runs with privileges of its own (setuid, setgid or capabilities), so its own locks cannot be metered from inside")
    })
}

fn is_for_another_machine(head: &[u8]) -> bool {
    let mut own = [0; 20];
    let is_known = File::open("/proc/self/exe").and_then(|mut own_file| own_file.read_exact(&mut own)).is_ok();
    let same = |at: std::ops::Range<usize>| !is_known || own.get(at.clone()) == head.get(at);
    // Class, and the machine.
    head.starts_with(ELF) && (!same(4..5) || !same(18..20))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The loader that a 64-bit program names; `None` if it names none.
fn elf_interpreter(head: &[u8]) -> Option<&[u8]> {
    let header = FileHeader64::<Endianness>::parse(head).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, head).ok()?;
    segments.iter().find_map(|segment| segment.interpreter(endian, head).ok().flatten())
}

/// Whether the loader ignores LD_PRELOAD for this program when we run it.
fn is_privileged(path: &Path) -> bool {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2000;
    let Ok(data) = fs::metadata(path) else { return false };
    // SAFETY: both take nothing.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let changes_user = data.mode() & SETUID != 0 && data.uid() != user;
    let changes_group = data.mode() & SETGID != 0 && data.gid() != group;
    changes_user || changes_group || (user != 0 && has_capabilities(path))
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both names end with a NUL, and a length of 0 only asks for the size.
    let size = unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    size > 0
}
