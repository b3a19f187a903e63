//! Users A and B, root, and the programs that root meters, against each other: none gets or changes what is another's, and
//! none keeps another's lockmeter from its work. Output files have `output_files.rs`, recordings `hostile_recordings.rs`.

mod support;

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::mem::{offset_of, size_of};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use lockmeter_meter::layout::{MEMORY_FILE, Meta, PAGE, Process, Slot};
use lockmeter_meter::reader::planted;
use support::users::{A, Arena, B, CLEANER, PLANTER, ROOT, make_fifo, make_zero_device, own_folder};
use support::{run, text, until, wait};

/// Exit status for a process that is not metered.
const NO_TARGET: i32 = 5;
/// More address space than lockmeter needs, and less than an endless file.
const MOST_MEMORY: u64 = 768 << 20;
/// No process has this id, and no kernel gives it.
const NOBODYS_PID: &str = "4194999";

/// Root switches a program that does not exist: there is nothing of root's to switch.
fn root_finds_nothing_to_switch(arena: &Arena) {
    for how in ["off", "on"] {
        let ended = run(arena.lockmeter(ROOT, &[how, NOBODYS_PID]));
        assert_eq!(ended.status.code(), Some(NO_TARGET), "{}", text(&ended.stderr));
    }
}

/// What root does where a user has prepared a session: the victim is unharmed, and the user's folder as it was.
fn root_passes_by(arena: &Arena, session: &Path) {
    let before = names(session);
    arena.root_records(|_| ());
    root_finds_nothing_to_switch(arena);
    arena.assert_victim_is_unharmed();
    assert_eq!(names(session), before, "root changed a user's session");
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Where the session of a recorder was, which printed it.
fn session_in(printed: &[u8]) -> PathBuf {
    PathBuf::from(text(printed).trim())
}

#[test]
fn a_link_in_place_of_a_sessions_memory_leads_root_nowhere() {
    let Some(arena) = Arena::open("links to root's files") else { return };
    let session = arena.session_of(PLANTER);
    symlink(arena.victim(), session.join(MEMORY_FILE)).unwrap();
    root_passes_by(&arena, &session);
}

#[test]
fn another_name_of_a_file_in_place_of_a_sessions_memory_leads_root_nowhere() {
    let Some(arena) = Arena::open("hard links to root's files") else { return };
    let session = arena.session_of(PLANTER);
    // As where `fs.protected_hardlinks` is off. On one file system, as hard links are.
    let victim = Path::new("/dev/shm").join(arena.path("").file_name().unwrap()).with_extension("victim");
    arena.will_remove(&victim);
    fs::write(&victim, "root's").unwrap();
    fs::hard_link(&victim, session.join(MEMORY_FILE)).unwrap();
    root_passes_by(&arena, &session);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "root's");
}

#[test]
fn a_pipe_in_place_of_a_sessions_memory_is_not_waited_for_by_root() {
    let Some(arena) = Arena::open("pipes in users' sessions") else { return };
    let session = arena.session_of(PLANTER);
    make_fifo(&session.join(MEMORY_FILE), A);
    make_fifo(&session.join("session"), A);
    make_fifo(&session.join("switches"), A);
    root_passes_by(&arena, &session);
}

#[test]
fn a_device_in_place_of_a_sessions_memory_is_not_read_by_root() {
    let Some(arena) = Arena::open("devices in users' sessions") else { return };
    let session = arena.session_of(PLANTER);
    make_zero_device(&session.join(MEMORY_FILE), A);
    root_passes_by(&arena, &session);
}

#[test]
fn what_a_user_says_of_a_session_is_not_read_by_root() {
    let Some(arena) = Arena::open("endless files in users' sessions") else { return };
    let session = arena.session_of(PLANTER);
    fs::write(session.join(MEMORY_FILE), "").unwrap();
    symlink("/dev/zero", session.join("session")).unwrap();
    root_passes_by(&arena, &session);
}

#[test]
fn a_link_in_place_of_a_session_leads_root_nowhere() {
    let Some(arena) = Arena::open("links in place of sessions") else { return };
    let (session, target) = (arena.session_of(PLANTER), arena.folder_of(ROOT, "target"));
    fs::remove_dir(&session).unwrap();
    fs::write(target.join(MEMORY_FILE), [0xff; 64]).unwrap();
    symlink(&target, &session).unwrap();
    arena.root_records(|_| ());
    root_finds_nothing_to_switch(&arena);
    assert_eq!(fs::read(target.join(MEMORY_FILE)).unwrap(), [0xff; 64]);
    assert!(session.is_symlink());
}

#[test]
fn a_session_of_root_that_others_can_change_is_used_no_more() {
    let Some(arena) = Arena::open("a session that is open to all") else { return };
    let session = arena.session_of(ROOT);
    fs::set_permissions(&session, Permissions::from_mode(0o777)).unwrap();
    symlink(arena.victim(), session.join(MEMORY_FILE)).unwrap();
    root_passes_by(&arena, &session);
}

#[test]
fn what_a_dead_recorder_left_is_removed_by_its_own_user_alone() {
    let Some(arena) = Arena::open("stale sessions of others") else { return };
    let session = arena.session_of(CLEANER);
    root_passes_by(&arena, &session);
    let record = |user: u32| {
        let ended = run(arena.lockmeter(user, &["record", "--user", "-o", "/dev/null", "--", "true"]));
        assert!(ended.status.success(), "{}", text(&ended.stderr));
    };
    record(B);
    assert!(session.exists());
    record(CLEANER);
    assert!(!session.exists());
}

/// Makes sure that a session is made where no other user can move it, whatever root inherited.
fn root_does_not_use(arena: &Arena, runtime: &Path) {
    let output = arena.root_records(|command| {
        command.env("XDG_RUNTIME_DIR", runtime);
    });
    let session = session_in(&output.stdout);
    assert!(session.starts_with("/dev/shm") || session.starts_with("/tmp"), "{}", session.display());
}

#[test]
fn a_runtime_folder_of_another_user_is_not_used() {
    let Some(arena) = Arena::open("XDG_RUNTIME_DIR of another user") else { return };
    let runtime = arena.folder_of(A, "runtime");
    root_does_not_use(&arena, &runtime);
    assert_eq!(names(&runtime), [""; 0]);
    // Nor by another user than root.
    fs::set_permissions(&runtime, Permissions::from_mode(0o777)).unwrap();
    let mut record =
        arena.lockmeter(B, &["record", "--user", "-o", "/dev/null", "--", "sh", "-c", "echo $LOCKMETER_DIR"]);
    record.env("XDG_RUNTIME_DIR", &runtime);
    assert!(!session_in(&run(record).stdout).starts_with(&runtime));
    // Its own user does.
    fs::set_permissions(&runtime, Permissions::from_mode(0o700)).unwrap();
    let mut record =
        arena.lockmeter(A, &["record", "--user", "-o", "/dev/null", "--", "sh", "-c", "echo $LOCKMETER_DIR"]);
    record.env("XDG_RUNTIME_DIR", &runtime);
    assert!(session_in(&run(record).stdout).starts_with(&runtime));
}

#[test]
fn a_runtime_folder_below_one_of_another_user_is_not_used() {
    let Some(arena) = Arena::open("XDG_RUNTIME_DIR below another user's folder") else { return };
    let home = arena.folder_of(A, "home");
    root_does_not_use(&arena, &own_folder(&home.join("runtime"), ROOT));
}

#[test]
fn a_link_in_place_of_the_runtime_folder_is_not_followed() {
    let Some(arena) = Arena::open("a link as XDG_RUNTIME_DIR") else { return };
    let target = arena.folder_of(ROOT, "target");
    let link = arena.path("link");
    symlink(&target, &link).unwrap();
    root_does_not_use(&arena, &link);
    assert_eq!(names(&target), [""; 0]);
}

#[test]
fn a_runtime_folder_that_is_none_is_not_used() {
    let Some(arena) = Arena::open("odd values of XDG_RUNTIME_DIR") else { return };
    for odd in ["", "relative", "/no/such/folder", "/dev/null", "/dev/shm/../../tmp/..", "/proc/self/cwd"] {
        root_does_not_use(&arena, Path::new(odd));
    }
}

#[test]
fn a_runtime_folder_that_is_swapped_meanwhile_harms_nobody() {
    let Some(arena) = Arena::open("XDG_RUNTIME_DIR swapped meanwhile") else { return };
    let home = arena.folder_of(A, "home");
    let (real, hidden) = (own_folder(&home.join("runtime"), ROOT), home.join("hidden"));
    let target = arena.folder_of(ROOT, "target");
    fs::write(target.join("kept"), "kept").unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let _ = fs::rename(&real, &hidden);
                let _ = symlink(&target, &real);
                let _ = fs::remove_file(&real);
                let _ = fs::rename(&hidden, &real);
            }
        });
        for _ in 0..5 {
            root_does_not_use(&arena, &real);
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert_eq!(names(&target), ["kept"]);
}

#[test]
fn names_that_a_user_took_first_keep_nobody_from_recording() {
    let Some(arena) = Arena::open("names taken first") else { return };
    let next = support::users::ended_process();
    for pid in next..next + 500 {
        for number in 0..2 {
            let path = PathBuf::from(format!("/dev/shm/lockmeter-{pid}-{number}"));
            if fs::create_dir(&path).is_ok() {
                chown(&path, Some(A), Some(A)).unwrap();
                symlink(arena.victim(), path.join(MEMORY_FILE)).unwrap();
                arena.will_remove(&path);
            }
        }
    }
    let session = session_in(&arena.root_records(|_| ()).stdout);
    assert!(session.starts_with("/dev/shm"), "{}", session.display());
    arena.assert_victim_is_unharmed();
}

/// A program that a recorder meters, until it is dropped.
struct Metered {
    recorder: Child,
    session: PathBuf,
    pid: u32,
    /// What the program records to, and the page with the head of its segment.
    memory: PathBuf,
    head: usize,
}

impl Metered {
    /// A shell that waits for the end of its standard input.
    fn start(arena: &Arena, user: u32, recording: &Path) -> Self {
        let arguments = ["record", "--user", "--hold", "--interval", "100ms", "-o", recording.to_str().unwrap(), "--"];
        let mut command = arena.lockmeter(user, &arguments);
        command.args(["sh", "-c", "echo $LOCKMETER_DIR; echo $$; read line; exit 0"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut recorder = command.spawn().unwrap();
        let mut lines = BufReader::new(recorder.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap();
        let session = PathBuf::from(next());
        let pid = next().parse().unwrap();
        let memory = session.join(MEMORY_FILE);
        let (head, _) = planted::pages_of(&File::open(&memory).unwrap(), pid).unwrap();
        Self { recorder, session, pid, memory, head }
    }

    /// A number in the head of the program's segment.
    fn number(&self, at: usize) -> std::io::Result<u32> {
        let mut bytes = [0; 4];
        File::open(&self.memory)?.read_exact_at(&mut bytes, (self.head * PAGE + at) as u64)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Waits until the recorder has looked at the segments so often again.
    fn until_drained(&self, times: u32) {
        let epoch = || self.number(offset_of!(Process, epoch));
        let begin = epoch().unwrap();
        until("the recorder has looked at the segment", || epoch().is_ok_and(|now| now >= begin + times));
    }

    /// Ends the program; the recorder must end as it did, and leave nothing.
    fn ends_well(mut self) -> String {
        drop(self.recorder.stdin.take());
        let mut said = String::new();
        let mut stderr = self.recorder.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
        let status = wait(&mut self.recorder, "the recorder");
        assert!(status.success(), "{status}: {said}");
        assert!(!self.session.is_dir() || self.session.is_symlink(), "{} was left", self.session.display());
        said
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}

#[test]
fn nobody_can_look_into_roots_session() {
    let Some(arena) = Arena::open("root's session") else { return };
    let metered = Metered::start(&arena, ROOT, &arena.path("recording"));
    let data = fs::metadata(&metered.session).unwrap();
    assert_eq!((data.uid(), data.mode() & 0o777), (ROOT, 0o700));
    assert_eq!(fs::metadata(&metered.memory).unwrap().mode() & 0o777, 0o600);
    metered.ends_well();
}

#[test]
fn a_user_cannot_switch_what_root_meters() {
    let Some(arena) = Arena::open("root's programs switched by a user") else { return };
    let metered = Metered::start(&arena, ROOT, &arena.path("recording"));
    let level = || metered.number(offset_of!(Process, level)).unwrap();
    let before = level();
    let ended = run(arena.lockmeter(A, &["off", &metered.pid.to_string()]));
    assert_eq!(ended.status.code(), Some(NO_TARGET), "{}", text(&ended.stderr));
    assert_eq!(level(), before);
    metered.ends_well();
}

#[test]
fn root_leaves_the_switching_of_a_users_program_to_that_user() {
    let Some(arena) = Arena::open("a user's programs switched by root") else { return };
    let home = arena.folder_of(A, "home");
    let metered = Metered::start(&arena, A, &home.join("recording"));
    let pid = metered.pid.to_string();
    let ended = run(arena.lockmeter(ROOT, &["off", &pid]));
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(NO_TARGET), "{said}");
    assert!(said.contains(&format!("user {A}")), "{said}");
    let ended = run(arena.lockmeter(A, &["off", &pid]));
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    metered.ends_well();
}

#[test]
fn a_program_that_puts_links_pipes_and_devices_beside_its_segment_harms_nobody() {
    let Some(arena) = Arena::open("odd files in a live session") else { return };
    let metered = Metered::start(&arena, ROOT, &arena.path("recording"));
    let at = |name: &str| metered.session.join(name);
    symlink(arena.victim(), at("link")).unwrap();
    symlink(arena.victim(), at("switches")).unwrap();
    make_fifo(&at("pipe"), ROOT);
    make_zero_device(&at("device"), ROOT);
    fs::create_dir_all(at("a/b/c/d")).unwrap();
    metered.until_drained(3);
    arena.assert_victim_is_unharmed();
    metered.ends_well();
    arena.assert_victim_is_unharmed();
}

#[test]
fn pipes_in_place_of_what_the_recorder_reads_stop_nobody() {
    let Some(arena) = Arena::open("pipes in a live session") else { return };
    let metered = Metered::start(&arena, ROOT, &arena.path("recording"));
    fs::remove_file(metered.session.join("session")).unwrap();
    make_fifo(&metered.session.join("session"), ROOT);
    make_fifo(&metered.session.join("switches"), ROOT);
    metered.until_drained(3);
    let pid = metered.pid.to_string();
    for how in ["on", "off"] {
        let ended = run(arena.lockmeter(ROOT, &[how, &pid]));
        let said = text(&ended.stderr);
        assert!(!ended.status.success() && said.contains("cannot switch process"), "{how}: {said}");
    }
    metered.ends_well();
}

#[test]
fn an_endless_file_in_place_of_the_sessions_is_read_in_part() {
    let Some(arena) = Arena::open("an endless file in a live session") else { return };
    let metered = Metered::start(&arena, ROOT, &arena.path("recording"));
    // A gigabyte of nothing, and as much of switches.
    for name in ["session", "switches"] {
        let file = File::options().write(true).create(true).truncate(true).open(metered.session.join(name)).unwrap();
        file.set_len(1 << 30).unwrap();
    }
    metered.until_drained(3);
    let mut on = arena.lockmeter(ROOT, &["on", &metered.pid.to_string()]);
    let memory = libc::rlimit { rlim_cur: MOST_MEMORY, rlim_max: MOST_MEMORY };
    // SAFETY: between fork and exec one system call, given a structure that was copied.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut on, move || {
            match libc::setrlimit(libc::RLIMIT_AS, &raw const memory) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
    let ended = run(on);
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    metered.ends_well();
}

/// Makes sure that the recorder reads the memory that it made, and none that took its place.
#[test]
fn a_program_that_puts_another_memory_in_place_of_its_own_misleads_nobody() {
    let Some(arena) = Arena::open("a session with another memory") else { return };
    let metered = Metered::start(&arena, ROOT, &arena.path("recording"));
    fs::remove_file(&metered.memory).unwrap();
    symlink(arena.victim(), &metered.memory).unwrap();
    let ended = run(arena.lockmeter(ROOT, &["off", &metered.pid.to_string()]));
    assert_eq!(ended.status.code(), Some(NO_TARGET), "{}", text(&ended.stderr));
    metered.ends_well();
    arena.assert_victim_is_unharmed();
}

/// Makes sure that a session is removed whatever is in it.
#[test]
fn a_session_full_of_files_is_removed() {
    let Some(arena) = Arena::open("a session full of files") else { return };
    let metered = Metered::start(&arena, ROOT, &arena.path("recording"));
    for number in 0..80_000 {
        File::create(metered.session.join(format!("file-{number}"))).unwrap();
    }
    metered.ends_well();
}

#[test]
fn a_program_that_swaps_its_session_for_a_link_has_nothing_removed_elsewhere() {
    let Some(arena) = Arena::open("a session swapped for a link") else { return };
    let metered = Metered::start(&arena, ROOT, &arena.path("recording"));
    let target = arena.folder_of(ROOT, "target");
    fs::write(target.join(MEMORY_FILE), [0xff; 64]).unwrap();
    let session = metered.session.clone();
    let moved = session.with_extension("moved");
    arena.will_remove(&moved);
    arena.will_remove(&session);
    fs::rename(&session, &moved).unwrap();
    symlink(&target, &session).unwrap();
    metered.ends_well();
    assert_eq!(fs::read(target.join(names(&target).first().unwrap())).unwrap(), [0xff; 64]);
    assert_eq!(names(&target).len(), 1);
}

/// Makes sure that nothing of a segment is mapped by the recorder: it would be ended by SIGBUS.
#[test]
fn a_program_that_truncates_its_segment_while_it_is_read_stops_nobody() {
    let Some(arena) = Arena::open("a segment that is truncated") else { return };
    let metered = Metered::start(&arena, ROOT, &arena.path("recording"));
    let length = fs::metadata(&metered.memory).unwrap().len();
    let file = File::options().write(true).open(&metered.memory).unwrap();
    for _ in 0..2_000 {
        file.set_len(100).unwrap();
        file.set_len(length).unwrap();
    }
    let status = metered_kill(metered);
    assert!(status.contains("137") || status.contains("138") || status.is_empty(), "{status}");
}

/// Ends the program by a signal, for its segment is damaged; what the recorder ended with, empty for success.
fn metered_kill(mut metered: Metered) -> String {
    support::signal(metered.pid, libc::SIGKILL);
    let status = wait(&mut metered.recorder, "the recorder");
    assert!(!metered.session.exists(), "the recorder left its session");
    status.code().map_or_else(|| panic!("the recorder was killed: {status}"), |code| code.to_string())
}

/// Makes sure that a program cannot have the report say what no program can have done.
#[test]
fn a_program_that_scribbles_over_its_segment_is_refused_and_counted() {
    let Some(arena) = Arena::open("a segment that is scribbled over") else { return };
    let recording = arena.path("recording");
    let metered = Metered::start(&arena, ROOT, &recording);
    let file = File::options().read(true).write(true).open(&metered.memory).unwrap();
    // The program has taken no lock: a page of its own serves as a table of samples.
    let samples = offset_of!(Process, shared);
    let mut page = [0; 4];
    file.read_exact_at(&mut page, (metered.head * PAGE + samples) as u64).unwrap();
    let slot = u32::from_ne_bytes(page) as usize * PAGE + size_of::<Slot>();
    let meta = Meta { happened: 2, kind: 3, mode: 1, bucket: 3, blocked: 0, comm: 0 }.pack();
    for (at, number) in [
        (slot + offset_of!(Slot, meta), meta),
        (slot + offset_of!(Slot, count), u64::MAX / 2),
        (slot + offset_of!(Slot, total_ns), u64::MAX / 2),
        (metered.head * PAGE + offset_of!(Process, losses), 1),
    ] {
        file.write_all_at(&number.to_ne_bytes(), at as u64).unwrap();
    }
    metered.ends_well();
    let report = run(arena.lockmeter(ROOT, &["report", recording.to_str().unwrap()]));
    let shown = text(&report.stdout);
    assert!(shown.contains("1 process with implausible records"), "{shown}");
    assert!(!shown.contains("92233"), "{shown}");
}

#[test]
fn what_another_user_puts_into_a_session_that_its_program_opened_is_not_used() {
    let Some(arena) = Arena::open("a session that a program opens") else { return };
    let home = arena.folder_of(A, "home");
    let recording = home.join("recording");
    let metered = Metered::start(&arena, A, &recording);
    fs::set_permissions(&metered.session, Permissions::from_mode(0o777)).unwrap();
    let mine = home.join("mine");
    fs::write(&mine, [0xff; 64]).unwrap();
    chown(&mine, Some(A), Some(A)).unwrap();
    symlink(&mine, metered.session.join("switches")).unwrap();
    let other = metered.session.join("other");
    fs::copy(&metered.memory, &other).unwrap();
    chown(&other, Some(B), Some(B)).unwrap();
    fs::rename(&other, &metered.memory).unwrap();
    let ended = run(arena.lockmeter(A, &["off", &metered.pid.to_string()]));
    assert_eq!(ended.status.code(), Some(NO_TARGET), "{}", text(&ended.stderr));
    assert_eq!(fs::read(&mine).unwrap(), [0xff; 64]);
    metered.ends_well();
    assert_eq!(fs::read(&mine).unwrap(), [0xff; 64]);
}

/// A program that runs as root no matter who starts it, and says in which environment.
fn setuid_program(arena: &Arena) -> PathBuf {
    let (source, program) = (arena.path("setuid.c"), arena.path("setuid"));
    let code = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        int main(void)
        {
            pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
            char line[4096];
            FILE *maps = fopen("/proc/self/maps", "r");
            int preloaded = 0;
            pthread_mutex_lock(&lock);
            pthread_mutex_unlock(&lock);
            while (fgets(line, sizeof(line), maps))
                preloaded |= strstr(line, "lockmeter_preload") != NULL;
            printf("euid %d preloaded %d\n", (int)geteuid(), preloaded);
            return 0;
        }
    "#;
    fs::write(&source, code).unwrap();
    let mut compiler = std::process::Command::new("cc");
    compiler.arg("-O2").arg("-pthread").arg("-o").arg(&program).arg(&source);
    let built = run(compiler);
    assert!(built.status.success(), "{}", text(&built.stderr));
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    program
}

#[test]
fn a_program_that_becomes_root_does_not_report_to_a_user() {
    let Some(arena) = Arena::open("setuid programs") else { return };
    let program = setuid_program(&arena);
    let program = program.to_str().unwrap();
    let home = arena.folder_of(A, "home");
    let recording = home.join("recording");
    // Started by a shell, so that its own first sentence does not keep it from being metered.
    let ended = run(arena.lockmeter(
        A,
        &[
            "record",
            "--user",
            "--hold",
            "-o",
            recording.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            &format!("{program}; true"),
        ],
    ));
    assert_eq!(text(&ended.stdout), "euid 0 preloaded 0\n", "{}", text(&ended.stderr));
}

#[test]
fn a_program_that_becomes_root_takes_no_session_from_its_environment() {
    let Some(arena) = Arena::open("setuid programs with a forged session") else { return };
    let program = setuid_program(&arena);
    let folder = arena.folder_of(A, "forged");
    let mut forged = std::process::Command::new(program);
    std::os::unix::process::CommandExt::uid(&mut forged, A);
    let library = arena.path("liblockmeter_preload.so");
    forged.env("LOCKMETER_DIR", &folder).env("LOCKMETER_SESSION", "9 2 0 0").env("LD_PRELOAD", library);
    assert_eq!(text(&run(forged).stdout), "euid 0 preloaded 0\n");
    assert_eq!(names(&folder), [""; 0]);
}
