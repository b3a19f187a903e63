//! The programs, by kind.

use std::fs;
use std::process::Command;

use super::build::{Build, Compiler};
use super::program::{ALL_LEVELS, Level, METERED, Program, program};
use super::support::text;

/// Sources that are built as libraries.
pub const LIBRARIES: [&str; 3] = ["loaded-library", "audit-library", "starts-threads"];

const LIBRARY_FOLDER: &str = "/usr/lib/x86_64-linux-gnu";

pub fn all() -> Vec<Program> {
    let kinds =
        [locks, threads, signals, processes, confined, seccomp, libraries, sanitizers, allocators, tools, outside];
    kinds.iter().flat_map(|kind| kind()).collect()
}

/// The library whose file name begins so; if there is none, what its file would be called.
fn library_file(begin: &str) -> &'static str {
    let files = fs::read_dir(LIBRARY_FOLDER).into_iter().flatten().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let found = names.filter(|name| name.starts_with(begin)).min_by_key(String::len);
    format!("{LIBRARY_FOLDER}/{}", found.unwrap_or_else(|| begin.to_owned())).leak()
}

/// Where clang's shared runtimes lie, as a flag for the program that loads one.
fn clang_rpath() -> &'static str {
    let output = Command::new("clang").arg("-print-runtime-dir").output();
    let folder = output.map(|output| text(&output.stdout)).unwrap_or_default();
    format!("-Wl,-rpath,{}", folder.trim()).leak()
}

/// Every type of lock by every function that takes one, bound to the newest and to the oldest version of each symbol.
pub fn locks() -> Vec<Program> {
    const ENTRY_POINTS: [&str; 7] = [
        "mutex-entry-points",
        "rwlock-entry-points",
        "spin-entry-points",
        "semaphore-entry-points",
        "condition-entry-points",
        "barrier-entry-points",
        "c11-entry-points",
    ];
    let has_swappable_locks = |source: &str| !["spin", "semaphore", "barrier"].iter().any(|no| source.starts_with(no));
    let mut programs = Vec::new();
    for source in ENTRY_POINTS {
        let with_levels = |program: Program| if has_swappable_locks(source) { program.swapped() } else { program };
        // They have no holds.
        let is_unseen = ["barrier", "semaphore"].iter().any(|kind| source.starts_with(kind));
        let seen = |program: Program| if is_unseen { program.unseen() } else { program };
        programs.push(seen(with_levels(program(source))));
        let old = program(source).named("bound to old versions");
        programs.push(seen(with_levels(old.flags(&["-include", OLD_VERSIONS]))));
    }
    programs.extend([
        program("old-condition"),
        program("priority-ceilings").at(&ALL_LEVELS),
        program("robust-owners").swapped(),
        program("misused-locks").swapped(),
        program("memory-used-again").swapped(),
        program("unmapped-after-unlock").swapped(),
        program("heap-mutexes").swapped(),
        program("standard-cpp-locks").swapped(),
        program("openmp").flags(&["-fopenmp"]).swapped(),
    ]);
    programs
}

const OLD_VERSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/undisturbed/old-versions.h");

pub fn threads() -> Vec<Program> {
    let at_once = |arguments: &[&str]| program("threads-at-once").arguments(arguments);
    vec![
        at_once(&["2000", "65536"]),
        at_once(&["10000", "16384"]).swapped(),
        program("threads-in-turn").swapped(),
        program("smallest-stacks").swapped(),
        program("end-of-stack").arguments(&["5120"]).swapped(),
        program("key-destructors").swapped(),
        program("thread-local-destructors").swapped(),
        program("helper-threads").swapped(),
        program("main-thread-ends").ends_with(0).swapped(),
        program("cancellation").swapped(),
        program("exceptions-and-locks").swapped(),
        program("cancelled-anywhere").swapped(),
        program("threads-ended-by-calls").swapped(),
    ]
}

pub fn signals() -> Vec<Program> {
    vec![
        program("jumps-with-locks-held").swapped(),
        program("handlers-that-jump").swapped(),
        program("handlers-that-post").swapped(),
        program("alternate-stacks").swapped(),
        program("posts-on-small-stacks").arguments(&["8192"]).unseen(),
        program("profiled-by-signals").swapped(),
        program("signals-by-wait").swapped(),
        program("stopped-and-continued").swapped(),
        program("coroutines").swapped(),
        program("wrong-unwind-tables").swapped(),
        program("made-at-run-time").swapped(),
        program("locks-on-protected-pages").swapped(),
        program("handlers-that-fork").swapped(),
    ]
}

pub fn processes() -> Vec<Program> {
    let ended = |how: &str, status: i32| program("killed-by-signals").arguments(&[how]).ends_with(status).swapped();
    vec![
        program("fork-holding-locks").swapped(),
        program("fork-handlers").swapped(),
        program("fork-tree").swapped(),
        program("process-shared-locks"),
        program("shared-with-another-program").swapped(),
        program("raw-clones").swapped(),
        program("shared-memory-clones").swapped(),
        program("spawned-programs").swapped(),
        program("spawns-from-small-stacks").swapped(),
        program("executed-by-a-thread").swapped(),
        program("becomes-a-daemon").swapped(),
        ended("abort", 128 + libc::SIGABRT),
        ended("segv", 128 + libc::SIGSEGV),
        ended("kill", 128 + libc::SIGKILL),
        ended("term", 128 + libc::SIGTERM),
        ended("exit", 99),
        program("exit-handlers").ends_with(33).swapped(),
        program("quick-exit").ends_with(34).swapped(),
        program("child-of-tracer").swapped(),
        program("executes-oddly").swapped(),
        program("executes-on-small-stacks").swapped(),
        program("locks-in-vfork").swapped(),
    ]
}

pub fn confined() -> Vec<Program> {
    let gives_up = |what: &str| program("gives-up-its-rights").arguments(&[what]);
    let contends = || program("contends").swapped();
    let in_cgroup = program("threads-at-once").arguments(&["200", "16384"]).named("in a small memory cgroup");
    let mut programs: Vec<Program> =
        ["setuid", "chroot", "dumpable", "close", "limits", "lock-memory", "no-writable-code"]
            .into_iter()
            .map(|what| gives_up(what).swapped())
            .collect();
    programs.extend([
        gives_up("lock-memory").named("of which it may lock little").under(&["prlimit", "--memlock=8388608"]).swapped(),
        gives_up("lock-memory").named("of which it may lock little without the right to").under(&[
            "prlimit",
            "--memlock=8388608",
            "setpriv",
            "--bounding-set=-ipc_lock",
        ]),
        program("state-of-process").swapped(),
        program("state-of-process").named("without standard input").under_shell(r#"exec "$@" <&-"#).swapped(),
        program("one-thread-only").swapped(),
        program("memory-limits").swapped(),
        program("limits-its-addresses").swapped(),
        contends().named("in little address space").under_shell(r#"ulimit -v 60000; exec "$@" 2"#),
        contends().named("writing no file").under_shell(r#"ulimit -f 0; exec "$@""#).unseen(),
        contends().named("with four descriptors").under_shell(r#"ulimit -n 4; exec "$@""#),
        contends().named("with little stack").under_shell(r#"ulimit -s 128; exec "$@""#),
        contends().named("with an unlimited stack").under_shell(r#"ulimit -s unlimited; exec "$@""#),
        contends().named("with the old memory layout").under(&["setarch", "-L"]),
        contends().named("without random addresses").under(&["setarch", "-R"]),
        contends().named("on one CPU").under(&["taskset", "-c", "0"]),
        contends().named("on one CPU with real-time priority").under(&["taskset", "-c", "0", "chrt", "--fifo", "5"]),
        contends().named("with a huge environment").variable("FILLER", "x".repeat(100_000).as_str()),
        contends().named("as another user").under_shell(ANOTHER_USER).unseen(),
        contends().named("with rights of its own").under_shell(SET_USER_ID).unseen(),
        contends().named("without environment").under(&["env", "-i"]).unseen(),
        program("spawned-programs").named("with 2,000 variables").under_shell(MANY_VARIABLES).swapped(),
        contends().named("in a time namespace").under(&["unshare", "--time", "--monotonic", "86400", "--fork"]),
        contends().named("in a process id namespace").under(&["unshare", "--pid", "--fork", "--mount-proc"]),
        contends().named("in a user namespace").under(&["unshare", "--user", "--map-root-user"]),
        contends().named("with a full /dev/shm").around(&SMALL_SHM).unseen(),
        in_cgroup.under_shell(SMALL_CGROUP).unseen(),
    ]);
    programs
}

/// Not by lockmeter, which would meter it from outside.
const ANOTHER_USER: &str = r#"exec setpriv --reuid 65534 --clear-groups "$@""#;

/// A copy of the program that belongs to nobody and runs with nobody's rights.
const SET_USER_ID: &str =
    r#"cp "$1" set-user-id && chown 65534 set-user-id && chmod 4755 set-user-id && ./set-user-id"#;

const MANY_VARIABLES: &str =
    r#"i=0; while [ $i -lt 2000 ]; do export "VARIABLE_$i=value of it"; i=$((i+1)); done; exec "$@""#;

/// A file system of 256 KB where segments are made, in a mount namespace of its own.
const SMALL_SHM: [&str; 6] = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    r#"mount -t tmpfs -o size=256k none /dev/shm && unset XDG_RUNTIME_DIR && exec "$@""#,
    "sh",
];

/// The program in a control group with 16 MB, which is removed after it.
const SMALL_CGROUP: &str = r#"
    group=/sys/fs/cgroup/memory/lockmeter-test-$$ limit=memory.limit_in_bytes
    [ -d /sys/fs/cgroup/memory ] || group=/sys/fs/cgroup/lockmeter-test-$$ limit=memory.max
    mkdir $group && echo 16777216 > $group/$limit || exit 99
    sh -c 'echo $$ > $0/cgroup.procs; exec "$@"' $group "$@"
    status=$?
    rmdir $group
    exit $status"#;

pub fn seccomp() -> Vec<Program> {
    let form = |form: &str| program("seccomp-filters").arguments(&[form]).swapped();
    let mut programs: Vec<Program> = ["before", "after", "tsync", "exec", "trap", "errno"].map(form).into();
    programs.push(program("strict-mode"));
    programs
}

pub fn libraries() -> Vec<Program> {
    let with = |flags: &[&'static str]| Build::library("loaded-library", flags);
    let mut fills = program("fills-static-storage");
    for copy in 0..20 {
        fills = fills.argument(Build { copy, ..with(&["-DIN_STATIC_BLOCK"]) });
    }
    let interposer = || Build::library("own-interposer", &["-DPRELOADED"]);
    let debian = |name: &'static str| format!("{LIBRARY_FOLDER}/{name}");
    vec![
        program("loads-libraries").argument(with(&[])).swapped(),
        program("plugins-of-every-sort").argument(with(&[])).swapped(),
        fills.swapped(),
        // The environment, which says what to swap, is not there yet when its first lock is taken.
        program("early-locks").swapped(),
        program("own-interposer").swapped(),
        program("own-malloc").swapped(),
        program("contends")
            .named("with threads that a preloaded library starts")
            .variable("LD_PRELOAD", Build::library("starts-threads", &[]))
            .swapped(),
        program("contends").named("with other buffers").under(&["stdbuf", "-oL"]).swapped(),
        program("contends").named("with a false user").under(&["fakeroot"]).swapped().needs_command("fakeroot"),
        program("contends").named("with an interposer preloaded").variable("LD_PRELOAD", interposer()).swapped(),
        program("looked-up-functions").at(&METERED),
        program("contends").named("audited").variable("LD_AUDIT", Build::library("audit-library", &[])).swapped(),
        program("contends").named("bound at once").variable("LD_BIND_NOW", "1").swapped(),
        program("contends")
            .named("without restartable sequences")
            .variable("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
            .swapped(),
        program("contends")
            .named("with false time")
            .under(&["faketime", "-f", "+1d"])
            .swapped()
            .needs_command("faketime"),
        program("contends").named("with a false root").under(&["fakechroot"]).swapped().needs_command("fakechroot"),
        program("contends")
            .named("with malloc checked")
            .variable("LD_PRELOAD", debian("libc_malloc_debug.so.0").as_str())
            .variable("GLIBC_TUNABLES", "glibc.malloc.check=3")
            .swapped(),
    ]
}

pub fn sanitizers() -> Vec<Program> {
    let of_gcc = |flags: &[&'static str]| {
        program("contends").flags(flags).named(&format!("GCC {}", flags.join(" "))).needs_to_build("gcc")
    };
    let of_clang = |flags: &[&'static str]| {
        let sanitized = program("contends").flags(flags).compiler(Compiler::Clang);
        sanitized.named(&format!("clang {}", flags.join(" "))).needs_to_build("libclang-rt-dev")
    };
    let shared_of_clang = |kind| of_clang(&[kind, "-shared-libsan"]).flags(&[clang_rpath()]);
    // Clang's shared ThreadSanitizer, of 14, ends by SIGSEGV bare.
    let kinds: [&dyn Fn() -> Program; 13] = [
        &|| of_gcc(&["-fsanitize=address"]),
        &|| of_gcc(&["-fsanitize=address", "-static-libasan"]),
        &|| of_gcc(&["-fsanitize=thread"]),
        &|| of_gcc(&["-fsanitize=thread", "-static-libtsan"]),
        &|| of_gcc(&["-fsanitize=undefined"]),
        &|| of_gcc(&["-fsanitize=undefined", "-static-libubsan"]),
        &|| of_gcc(&["-fsanitize=leak"]),
        &|| of_clang(&["-fsanitize=address"]),
        &|| shared_of_clang("-fsanitize=address"),
        &|| of_clang(&["-fsanitize=thread"]),
        &|| of_clang(&["-fsanitize=undefined"]),
        &|| shared_of_clang("-fsanitize=undefined"),
        &|| of_clang(&["-fsanitize=memory"]),
    ];
    let mut programs = Vec::new();
    for kind in kinds {
        // A program that must be metered from outside is refused with `--hold`, unless another one runs it.
        programs.push(kind().at(&[Level::Wait]).unseen());
        programs.push(kind().named("below a shell").under_shell(r#""$@""#).unseen());
    }
    programs.extend(real_errors());
    programs
}

/// Errors that a sanitizer must find. What it says of them holds addresses, so the status alone is compared.
fn real_errors() -> Vec<Program> {
    let error = |what: &str, flags: &[&'static str], status| {
        let program = program("real-error").arguments(&[what]).flags(flags).named(&flags.join(" ")).ends_with(status);
        program.under_shell(r#""$@" 2>/dev/null"#).unseen()
    };
    let of_clang =
        |program: Program| program.compiler(Compiler::Clang).named("clang").needs_to_build("libclang-rt-dev");
    vec![
        error("race", &["-fsanitize=thread", "-static-libtsan"], 66).needs_to_build("gcc"),
        of_clang(error("race", &["-fsanitize=thread"], 66)),
        error("overflow", &["-fsanitize=address", "-static-libasan"], 1).needs_to_build("gcc"),
        error("leak", &["-fsanitize=leak"], 23).needs_to_build("gcc"),
        error("undefined", &["-fsanitize=undefined", "-fno-sanitize-recover=undefined"], 1).needs_to_build("gcc"),
        of_clang(error("uninitialized", &["-fsanitize=memory"], 1)),
    ]
}

pub fn allocators() -> Vec<Program> {
    let mut programs = Vec::new();
    for (begin, package) in [
        ("libjemalloc.so", "libjemalloc2"),
        ("libtcmalloc_minimal.so", "libtcmalloc-minimal4"),
        ("libmimalloc.so", "libmimalloc2.0"),
    ] {
        let library = library_file(begin);
        let needing = |program: Program| program.needs_file(library, package).swapped();
        let linked = program("contends").named(&format!("linked to {package}"));
        programs.push(needing(linked.flags(&["-Wl,--no-as-needed", library])));
        let preloaded = program("contends").named(&format!("with {package} preloaded"));
        programs.push(needing(preloaded.variable("LD_PRELOAD", library)));
    }
    programs
}

pub fn tools() -> Vec<Program> {
    let contends = || program("contends").swapped();
    // Left alone: it would take a preloaded library's doings for the program's.
    let checked = |tool: &str| {
        let option = format!("--tool={tool}");
        let program = program("contends").named(&format!("checked by {tool}"));
        program.under(&["valgrind", "-q", &option, "--error-exitcode=9"]).unseen().needs_command("valgrind")
    };
    vec![
        contends().named("debugged by gdb").under_shell(GDB).needs_command("gdb").at(&[Level::Hold, Level::Swap]),
        contends().named("traced by strace").under(&["strace", "-f", "-o", "/dev/null"]).needs_command("strace"),
        checked("memcheck"),
        checked("helgrind").at(&[Level::Hold]),
        checked("drd").at(&[Level::Hold]),
        contends().named("without optimization").flags(&["-O0"]),
        contends().named("with profiling").flags(&["-pg"]),
        contends().named("with coverage").flags(&["--coverage"]),
        contends().named("with bound symbols and a fixed address").flags(&["-no-pie", "-Wl,-z,now"]),
        contends().named("compiled by clang").compiler(Compiler::Clang).needs_to_build("clang"),
        contends()
            .named("without frame pointers and unwind tables")
            .flags(&["-fomit-frame-pointer", "-fno-asynchronous-unwind-tables"]),
    ]
}

const GDB: &str = r#"gdb -nx -q -batch -ex "set debuginfod enabled off" -ex "set print thread-events off" -ex "break main" -ex run -ex next \
    -ex continue --args "$@" 2>&1 | sed -n 's/process [0-9]*/process/; s/0x[0-9a-f]*/ADDRESS/g; /contends\|counted\|standard error\|Inferior\|SIG/p'; exit 7"#;

pub fn outside() -> Vec<Program> {
    let wait = |program: Program| program.at(&[Level::Wait]).unseen();
    vec![
        wait(program("contends").named("static").flags(&["-static"])),
        wait(program("contends").named("static at any address").flags(&["-static-pie"])),
        program("contends").named("static, below a shell").flags(&["-static"]).under_shell(r#""$@""#).unseen(),
        wait(program("contends").named("musl").compiler(Compiler::Musl).needs_to_build("musl-tools")),
        wait(
            program("contends")
                .named("static musl")
                .flags(&["-static"])
                .compiler(Compiler::Musl)
                .needs_to_build("musl-tools"),
        ),
        program("contends")
            .named("musl, below a shell")
            .compiler(Compiler::Musl)
            .under_shell(r#""$@""#)
            .unseen()
            .needs_to_build("musl-tools"),
        program("contends")
            .named("32 bits, below a shell")
            .flags(&["-m32"])
            .under_shell(r#""$@""#)
            .unseen()
            .needs_to_build("gcc-multilib"),
    ]
}
