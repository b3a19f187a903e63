//! Files of a program that another user changes while lockmeter reads them, or made to do harm.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use lockmeter_symbols::{BuildId, ElfPart, FilePlace, MappedFile, TargetFile, UserNames};
use proptest::prelude::*;
use tempfile::TempDir;

/// The user that owns what is hostile, where the test may make it so.
const NOBODY: u32 = 65534;

/// How long a hang is waited for.
const HANGS: Duration = Duration::from_secs(300);

fn is_root() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// A folder that everybody can look into.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A program with a function and a variable, neither trusted nor ours if this runs as root.
fn hostile_program(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    let text = "int hot_lock[16];\nint take(int at) { return hot_lock[at]; }\nint main(void) { return take(1); }\n";
    fs::write(&source, text).unwrap();
    run(Command::new("cc").args(["-O0", "-g", "-no-pie", "-Wl,--build-id", "-o"]).arg(&program).arg(&source));
    make_hostile(&program);
    program
}

/// From here on another user can change this file.
fn make_hostile(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o777)).unwrap();
    if is_root() {
        chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// A shell of the other user.
fn other_user(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir("/");
    if is_root() {
        shell.uid(NOBODY).gid(NOBODY);
    }
    shell
}

fn mapped(program: &Path) -> MappedFile {
    let build_id = BuildId::of_file(&TargetFile::open(program).unwrap());
    assert!(build_id.is_some());
    let place = FilePlace::Here(program.to_owned());
    let known_as = place.clone();
    MappedFile { start: 0, end: u64::MAX, bias: 0, name: "program".to_owned(), place, known_as, build_id }
}

/// Where a symbol lies, by another reader.
fn address_of(program: &Path, symbol: &str) -> u64 {
    let listed = Command::new("nm").arg(program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = listed.lines().find(|line| line.ends_with(&format!(" {symbol}"))).unwrap();
    u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
}

fn function_at(names: &mut UserNames, file: &MappedFile, address: u64) -> Option<String> {
    names.frames(std::slice::from_ref(file), address + 1)[0].function.clone()
}

/// Fails instead of hanging.
fn ends<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = mpsc::channel();
    std::thread::spawn(move || sender.send(what()));
    result.recv_timeout(HANGS).expect("it hangs, or it panicked")
}

/// Regression: the reader had it mapped, and ended by SIGBUS.
#[test]
fn a_file_that_its_owner_truncates_is_named_as_it_was_read() {
    let folder = folder();
    let program = hostile_program(folder.path());
    let (take, main, lock) =
        (address_of(&program, "take"), address_of(&program, "main"), address_of(&program, "hot_lock"));
    let file = mapped(&program);
    let mut names = UserNames::new();
    assert_eq!(function_at(&mut names, &file, take).as_deref(), Some("take"));
    let image = TargetFile::open(&program).unwrap().elf(ElfPart::Symbols).unwrap();
    run(&mut other_user(&format!(": > {}", program.display())));
    assert_eq!(fs::metadata(&program).unwrap().len(), 0);
    assert!(image.bytes().iter().any(|byte| *byte != 0));
    assert_eq!(function_at(&mut names, &file, main).as_deref(), Some("main"));
    let place = names.static_place(&[file], lock + 4).unwrap();
    assert_eq!(place.variable, Some(("hot_lock".to_owned(), 4)));
}

/// Each read sees the whole file, a part of it or none, while another process truncates and writes it.
#[test]
fn a_file_that_is_truncated_all_the_time_harms_nobody() {
    let folder = folder();
    let program = hostile_program(folder.path());
    let copy = folder.path().join("copy");
    fs::copy(&program, &copy).unwrap();
    make_hostile(&copy);
    let script = format!("while :; do : > {0}; cat {1} > {0}; done", copy.display(), program.display());
    let mut writer = other_user(&script).spawn().unwrap();
    let take = address_of(&program, "take");
    let mut seen = [0_u32; 2];
    // Until both states were met, whatever the machine does meanwhile.
    while seen.iter().any(|times| *times < 20) {
        let file = MappedFile { build_id: None, place: FilePlace::Here(copy.clone()), ..mapped(&program) };
        let found = function_at(&mut UserNames::new(), &file, take);
        seen[usize::from(found.as_deref() == Some("take"))] += 1;
    }
    writer.kill().unwrap();
    writer.wait().unwrap();
}

#[test]
fn nothing_but_a_regular_file_is_opened() {
    let folder = folder();
    let fifo = folder.path().join("fifo");
    run(Command::new("mkfifo").arg(&fifo));
    for path in [fifo, "/dev/zero".into(), folder.path().to_owned()] {
        let shown = path.display().to_string();
        let opened = ends(move || TargetFile::open(&path).map(|_| ()));
        assert_eq!(opened.unwrap_err().kind(), std::io::ErrorKind::InvalidInput, "{shown}");
    }
}

/// A FIFO takes the file's place again and again: the check and the opening must be of the same file.
#[test]
fn a_fifo_swapped_in_does_not_hang_the_reader() {
    let folder = folder();
    let program = hostile_program(folder.path());
    let area = folder.path().join("area");
    fs::create_dir(&area).unwrap();
    make_hostile(&area);
    let script = format!(
        "cd {0}; while :; do mkfifo new; mv -f new target; cp {1} other; mv -f other target; done",
        area.display(),
        program.display()
    );
    let mut writer = other_user(&script).spawn().unwrap();
    let target = area.join("target");
    let seen = ends(move || {
        let mut seen = [0_u32; 2];
        while seen.iter().any(|times| *times < 50) {
            let opened = TargetFile::open(&target);
            if let Ok(file) = &opened {
                assert!(file.metadata().is_file());
            }
            seen[usize::from(opened.is_ok())] += 1;
        }
        seen
    });
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert!(seen.iter().all(|times| *times >= 50));
}

fn link_debug_file(program: &Path, debug: &Path) {
    fs::write(debug, "for the checksum").unwrap();
    let mut link = Command::new("objcopy");
    link.arg(format!("--add-gnu-debuglink={}", debug.display())).arg(program);
    run(&mut link);
    fs::remove_file(debug).unwrap();
    run(Command::new("mkfifo").arg(debug));
}

#[test]
fn a_debug_link_of_another_users_file_to_a_fifo_hangs_nobody() {
    let folder = folder();
    let program = hostile_program(folder.path());
    link_debug_file(&program, &folder.path().join("program.debug"));
    make_hostile(&program);
    let (file, take) = (mapped(&program), address_of(&program, "take"));
    let found = ends(move || function_at(&mut UserNames::new(), &file, take));
    assert_eq!(found.as_deref(), Some("take"));
}

/// What a file of ours links to may still be another user's: that user can write into the folder.
#[test]
fn a_debug_link_to_a_fifo_in_a_folder_of_others_hangs_nobody() {
    let folder = folder();
    let program = hostile_program(folder.path());
    link_debug_file(&program, &folder.path().join("program.debug"));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    if is_root() {
        chown(&program, Some(0), Some(0)).unwrap();
    }
    make_hostile(folder.path());
    let (file, take) = (mapped(&program), address_of(&program, "take"));
    let found = ends(move || function_at(&mut UserNames::new(), &file, take));
    assert_eq!(found.as_deref(), Some("take"));
}

/// Makes sure that another user's debug file is not read to its end if it was made long, though its checksum is right: ours is.
#[test]
fn a_long_debug_file_is_used_only_if_it_is_ours() {
    if !is_root() {
        println!("SKIPPED debug files of others: not root");
        return;
    }
    let folder = folder();
    let program = hostile_program(folder.path());
    let (debug, take) = (folder.path().join("program.debug"), address_of(&program, "take"));
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&debug));
    let found = || function_at(&mut UserNames::new(), &mapped(&program), take);
    for (bytes, owner, expected) in [(0, NOBODY, Some("take")), (300 << 20, 0, Some("take")), (300 << 20, NOBODY, None)]
    {
        let length = fs::metadata(&debug).unwrap().len();
        OpenOptions::new().write(true).open(&debug).unwrap().set_len(length.max(bytes)).unwrap();
        run(Command::new("objcopy").args(["--strip-all", "--remove-section=.gnu_debuglink"]).arg(&program));
        run(Command::new("objcopy").arg(format!("--add-gnu-debuglink={}", debug.display())).arg(&program));
        fs::set_permissions(&debug, fs::Permissions::from_mode(0o644)).unwrap();
        chown(&debug, Some(owner), None).unwrap();
        assert_eq!(found().as_deref(), expected, "{bytes} bytes of user {owner}");
    }
}

/// A file that only we can change is read as it lies there, with all of its parts.
#[test]
fn a_file_of_our_own_is_not_copied() {
    let folder = folder();
    let program = hostile_program(folder.path());
    assert!(TargetFile::open(&program).unwrap().elf(ElfPart::Symbols).unwrap().is_copy());
    let own = folder.path().join("own");
    fs::copy(&program, &own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!TargetFile::open(&own).unwrap().elf(ElfPart::Symbols).unwrap().is_copy());
}

/// The header of a section by its name, as an offset in the file.
fn section_header(bytes: &[u8], name: &str) -> usize {
    let number =
        |at: usize, size: usize| bytes[at..at + size].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (table, count, names) = (number(0x28, 8), number(0x3c, 2), number(0x3e, 2));
    let names = number(table + names * 64 + 24, 8);
    let is_it = |at: &usize| bytes[names + number(*at, 4)..].starts_with(format!("{name}\0").as_bytes());
    (0..count).map(|index| table + index * 64).find(is_it).unwrap()
}

/// Makes a section larger, at another place of the file that is a hole.
fn make_sparse(program: &Path, section: &str, bytes: u64) {
    let content = fs::read(program).unwrap();
    let header = section_header(&content, section) as u64;
    let at = (content.len() as u64).next_multiple_of(4096);
    let mut file = OpenOptions::new().write(true).open(program).unwrap();
    file.set_len(at + bytes).unwrap();
    file.write_all_at(&[at.to_le_bytes(), bytes.to_le_bytes()].concat(), header + 24).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.flush().unwrap();
}

#[test]
fn a_symbol_table_of_two_gigabytes_is_read_in_part_and_that_is_counted() {
    for is_ours in [false, true] {
        let folder = folder();
        let program = hostile_program(folder.path());
        let lock = address_of(&program, "hot_lock");
        make_sparse(&program, ".symtab", (2 << 30) / 24 * 24);
        if is_ours {
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            chown(&program, Some(own_user()), None).unwrap();
        }
        let file = mapped(&program);
        let image = TargetFile::open(&program).unwrap().elf(ElfPart::Symbols).unwrap();
        assert!(image.is_copy() && image.is_cut());
        assert!(image.bytes().len() < 100 << 20, "{} bytes", image.bytes().len());
        let mut names = UserNames::new();
        assert_eq!(names.static_place(std::slice::from_ref(&file), lock).unwrap().variable, None);
        assert_eq!(names.take_read_in_part(), 1);
        assert_eq!(function_at(&mut names, &file, lock), None);
        assert_eq!(names.take_read_in_part(), 0, "once for each file");
    }
}

fn own_user() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() }
}

/// Puts other bytes in the place of a section.
fn replace_section(program: &Path, name: &str, with: &[u8]) {
    let mut content = fs::read(program).unwrap();
    let header = section_header(&content, name);
    content.resize(content.len().next_multiple_of(8), 0);
    let place = [content.len() as u64, with.len() as u64].map(u64::to_le_bytes).concat();
    content[header + 24..header + 40].copy_from_slice(&place);
    content.extend(with);
    fs::write(program, content).unwrap();
}

#[test]
fn names_that_fill_the_table_are_cut() {
    let folder = folder();
    let program = hostile_program(folder.path());
    let lock = address_of(&program, "hot_lock");
    replace_section(&program, ".strtab", &[b'n'; 1 << 20]);
    let (name, _) = UserNames::new().static_place(&[mapped(&program)], lock).unwrap().variable.unwrap();
    assert!(name.len() <= 4096, "{} bytes", name.len());
}

/// The first symbol of a table is none.
const NO_SYMBOL: [u8; 24] = [0; 24];

/// A symbol of 24 bytes: defined, an object or function.
fn symbol(kind: u8, address: u64, size: u64) -> Vec<u8> {
    [&[1, 0, 0, 0, kind, 0, 1, 0][..], &address.to_le_bytes(), &size.to_le_bytes()].concat()
}

/// Makes sure that the names of variables are bounded together: each of these has one of four kilobytes, in two bytes' room.
#[test]
fn variables_that_share_a_long_name_are_kept_in_part_and_that_is_counted() {
    const STT_OBJECT: u8 = 1;
    let folder = folder();
    let program = hostile_program(folder.path());
    replace_section(&program, ".strtab", &[&b"\0"[..], &[b'n'; 4090], b"\0"].concat());
    let symbols = (0..40_000).flat_map(|index| symbol(STT_OBJECT, 0x1000 + index * 16, 16));
    replace_section(&program, ".symtab", &NO_SYMBOL.into_iter().chain(symbols).collect::<Vec<_>>());
    let mut names = UserNames::new();
    let file = mapped(&program);
    assert!(names.static_place(std::slice::from_ref(&file), 0x1008).unwrap().variable.is_some());
    assert_eq!(names.static_place(&[file], 0x1008 + 39_999 * 16).unwrap().variable, None);
    assert_eq!(names.take_read_in_part(), 1);
}

#[test]
fn beyond_their_memory_only_the_names_of_the_file_used_last_are_kept() {
    let (folder, other_folder) = (folder(), folder());
    let programs = [hostile_program(folder.path()), hostile_program(other_folder.path())];
    let (take, main) = (address_of(&programs[0], "take"), address_of(&programs[0], "main"));
    let [first, last] = programs.each_ref().map(|program| mapped(program));
    let known = |most_bytes: Option<u64>| {
        let mut names = UserNames::new();
        most_bytes.into_iter().for_each(|bytes| names.keep_within(bytes));
        for file in [&first, &last] {
            assert_eq!(function_at(&mut names, file, take).as_deref(), Some("take"));
        }
        names
    };
    let (mut all, mut newest) = (known(None), known(Some(1)));
    programs.iter().for_each(|program| fs::remove_file(program).unwrap());
    assert_eq!(function_at(&mut all, &first, main).as_deref(), Some("main"));
    assert_eq!(function_at(&mut newest, &last, main).as_deref(), Some("main"));
    assert_eq!(function_at(&mut newest, &first, main), None);
}

/// Regression: its end was computed, which is beyond the last address.
#[test]
fn a_function_that_ends_beyond_the_last_address_harms_nobody() {
    const STT_FUNC: u8 = 2;
    let folder = folder();
    let program = hostile_program(folder.path());
    replace_section(&program, ".symtab", &[&NO_SYMBOL[..], &symbol(STT_FUNC, 0x1000, u64::MAX)].concat());
    let (mut names, file) = (UserNames::new(), mapped(&program));
    assert!(function_at(&mut names, &file, 0x1008).is_some());
    assert_eq!(function_at(&mut names, &file, u64::MAX - 2), function_at(&mut names, &file, 0x1008));
}

/// A link in the tree of files of a process with another root leads to where it does for that process.
#[test]
fn links_of_a_process_do_not_lead_out_of_its_root() {
    if !is_root() {
        println!("SKIPPED links of another root: not root");
        return;
    }
    let folder = folder();
    let (outside, root) = (folder.path().join("file"), folder.path().join("root"));
    let inside = root.join(outside.strip_prefix("/").unwrap());
    fs::create_dir_all(inside.parent().unwrap()).unwrap();
    fs::write(&outside, "outside").unwrap();
    fs::write(&inside, "inside").unwrap();
    symlink(&outside, root.join("link")).unwrap();
    symlink("../../../../../../../etc/passwd", root.join("up")).unwrap();
    let (ready, is_ready) = mpsc::channel();
    let (end, is_over) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let root = std::ffi::CString::new(root.as_os_str().as_bytes()).unwrap();
        // SAFETY: the first takes no memory, the second a string that ends with a NUL; both concern this thread only.
        let is_there = unsafe { libc::unshare(libc::CLONE_FS) == 0 && libc::chroot(root.as_ptr()) == 0 };
        // SAFETY: takes nothing.
        ready.send(is_there.then(|| unsafe { libc::gettid() })).unwrap();
        let _ = is_over.recv();
    });
    let tid = is_ready.recv().unwrap().expect("chroot") as u32;
    let head = |path: &str| TargetFile::open_in_root_of(tid, Path::new(path)).and_then(|file| file.head(64));
    assert_eq!(head("/link").unwrap(), b"inside");
    assert!(head("/up").is_err());
    drop(end);
    other.join().unwrap();
}

/// Makes sure of 500 files' names with far fewer descriptors than that at a time.
#[test]
fn names_of_many_files_need_few_descriptors() {
    let folder = folder();
    let program = hostile_program(folder.path());
    let take = address_of(&program, "take");
    let mut names = UserNames::new();
    let before = fs::read_dir("/proc/self/fd").unwrap().count();
    for number in 0..500 {
        let copy = folder.path().join(format!("library-{number}"));
        fs::copy(&program, &copy).unwrap();
        assert_eq!(function_at(&mut names, &mapped(&copy), take).as_deref(), Some("take"));
    }
    // Other tests of this process have some, too.
    let after = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(after < before + 100, "{before} descriptors before, {after} after");
}

/// The headers of a file, where a changed byte does most.
fn small_program() -> Vec<u8> {
    let folder = folder();
    let program = hostile_program(folder.path());
    let (symbols, packed) = (folder.path().join("symbols"), folder.path().join("symbols.xz"));
    run(Command::new("objcopy").arg("--strip-debug").arg(&program).arg(&symbols));
    run(Command::new("xz").arg(&symbols));
    run(Command::new("objcopy").arg(format!("--add-section=.gnu_debugdata={}", packed.display())).arg(&program));
    fs::read(program).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any file is read without a panic, whatever its bytes say.
    #[test]
    fn damaged_files_are_read_without_a_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..5), 1..24)) {
        use std::sync::OnceLock;
        static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
        let mut bytes = PROGRAM.get_or_init(small_program).clone();
        let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let [symbols, packed] = [".symtab", ".gnu_debugdata"].map(|name| section_header(&bytes, name));
        let (symbols, packed) = (number(symbols + 24), number(packed + 24)..number(packed + 24) + number(packed + 32));
        for (index, byte, area) in &changes {
            let range = [0..64, table..bytes.len(), symbols..symbols + 512, 0..bytes.len(), packed.clone()][usize::from(*area)].clone();
            let at = range.start + index.index(range.len());
            bytes[at] = *byte;
        }
        lockmeter_symbols::hostile_elf::elf(&bytes);
    }
}
