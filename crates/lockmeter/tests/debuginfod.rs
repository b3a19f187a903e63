//! The symbols of a stripped program are fetched from a debuginfod server where that is asked for, and only there. The server is elfutils'
//! own, on this machine.

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use serde_json::Value;
use support::recorder::Recorder;
use support::report::{is_separate_debug_named as is_named, report_as};
use support::{Folder, child_of, lockmeter, machine, preload_library, refused, run, skip, text, until, user_workload};

/// What the program ends with.
const RAN: i32 = 7;

/// A stripped program in a folder, and a server with its symbols, which are nowhere else.
struct Scene {
    folder: Folder,
    program: PathBuf,
    /// Another one in each run: what was fetched once is kept.
    build_id: String,
    server: Child,
    url: String,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(self.cache().join(&self.build_id));
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

impl Scene {
    /// `None`, said, where there is no server.
    fn begin(test: &str) -> Option<Self> {
        if ["/usr/bin/debuginfod", "/usr/bin/debuginfod-find"].iter().any(|file| !Path::new(file).exists()) {
            skip(test, "needs elfutils' debuginfod and debuginfod-find (scripts/setup test)");
            return None;
        }
        let folder = Folder::new();
        let port = free_port();
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let build_id = format!("{:016x}{port:08x}", since.as_nanos() as u64);
        let flag = format!("-Wl,--build-id=0x{build_id}");
        let program = user_workload(folder.path(), "separate-debug", &[&flag]);
        let mut strip = Command::new("sh");
        strip.current_dir(folder.path()).args([
            "-ec",
            "mkdir served; objcopy --only-keep-debug separate-debug served/its.debug; strip separate-debug",
        ]);
        assert!(run(strip).status.success());
        let mut server = Command::new("/usr/bin/debuginfod");
        server
            .args(["-d", ":memory:", "-t", "0", "-c", "1", "-p", &port.to_string(), "-F"])
            .arg(folder.path().join("served"));
        server.env_clear().env("HOME", folder.path()).current_dir(folder.path());
        let server = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let scene = Self { folder, program, build_id, server, url: format!("http://127.0.0.1:{port}") };
        until("the server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        until("the server has scanned its folder", || {
            scene.metrics().contains("thread_work_total{role=\"scan\"}")
                || scene.metrics().contains("scanned_files_total")
        });
        Some(scene)
    }

    /// What the server says of itself: among other things how often it was asked.
    fn metrics(&self) -> String {
        use std::io::{Read, Write};
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        text(&answer)
    }

    /// How often it was asked for debug files.
    fn asked(&self) -> u64 {
        let metrics = self.metrics();
        let count = |line: &str| {
            let is_it = line.starts_with("http_requests_total{") && line.contains("debuginfo");
            is_it.then(|| line.rsplit_once(' ')?.1.parse::<u64>().ok()).flatten()
        };
        metrics.lines().filter_map(count).sum()
    }

    /// Where lockmeter keeps what it fetches.
    fn cache(&self) -> PathBuf {
        match is_root() {
            true => PathBuf::from("/var/cache/lockmeter/debuginfod"),
            false => self.folder.path().join("cache/lockmeter/debuginfod"),
        }
    }

    /// What is reported of the program, metered with these flags.
    fn reported(&self, flags: &[&str]) -> String {
        let recording = self.folder.file("recording");
        let mut record = lockmeter(["record", "--quiet", "--user"]);
        record.args(flags).args(["-o", &recording, "--"]).arg(&self.program).current_dir(self.folder.path());
        record.env("LOCKMETER_PRELOAD", preload_library()).env("XDG_CACHE_HOME", self.folder.path().join("cache"));
        // Nobody is asked for this.
        record.env("DEBUGINFOD_URLS", &self.url);
        let output = run(record);
        assert_eq!(output.status.code(), Some(RAN), "{}", text(&output.stderr));
        report_as(&recording, "json", &["--by", "lock,caller"])
    }
}

#[test]
fn a_server_is_asked_for_a_stripped_programs_symbols_if_the_user_says_so_and_only_then() {
    let Some(scene) = Scene::begin("debuginfod") else { return };
    let reported = scene.reported(&[]);
    assert!(!is_named(&reported), "{reported}");
    assert_eq!(scene.asked(), 0, "nobody asked for it:\n{}", scene.metrics());
    let report: Value = serde_json::from_str(&reported).unwrap();
    let detail = report["rows"][0]["naming_detail"].as_str().unwrap();
    assert!(detail.contains("stripped") && detail.contains("or record with --debuginfod"), "{detail}");
    let reported = scene.reported(&["--debuginfod", &scene.url]);
    assert!(is_named(&reported), "{reported}\n{}", scene.metrics());
    assert!(scene.asked() > 0, "{}", scene.metrics());
    let cache = scene.cache();
    let data = fs::metadata(&cache).unwrap();
    assert_eq!((data.uid(), data.permissions().mode() & 0o777), (user(), 0o700), "what was fetched is nobody else's");
    // A server that is not there costs its user the names, no more.
    fs::remove_dir_all(cache.join(&scene.build_id)).unwrap();
    let reported = scene.reported(&["--debuginfod", &format!("http://127.0.0.1:{}", free_port())]);
    assert!(!is_named(&reported) && reported.contains("debuginfod has none"), "{reported}");
}

/// Makes sure of a program that is metered from outside.
#[test]
fn a_running_programs_symbols_are_fetched_too() {
    let Some(_machine) = machine("debuginfod, from outside") else { return };
    let Some(scene) = Scene::begin("debuginfod, from outside") else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" wait; exit $?"]).arg(&scene.program);
    let mut shell = shell.stdin(Stdio::piped()).spawn().unwrap();
    until("the program runs", || child_of(shell.id()).is_some());
    let pid = child_of(shell.id()).unwrap();
    let flags = ["--user", "--debuginfod", &scene.url, "-p", &pid.to_string()];
    let recorder = Recorder::start_all(&scene.folder, "recording", &flags);
    drop(shell.stdin.take());
    let recording = recorder.wait().recording();
    assert_eq!(shell.wait().unwrap().code(), Some(RAN));
    let reported = report_as(&recording, "json", &["--by", "lock,caller"]);
    assert!(is_named(&reported), "{reported}\n{}", scene.metrics());
}

#[test]
fn what_is_no_url_of_a_server_is_refused() {
    if !Path::new("/usr/bin/debuginfod-find").exists() {
        return skip("debuginfod's URLs", "needs elfutils' debuginfod-find (scripts/setup test)");
    }
    for bad in ["file:///etc", "http://127.0.0.1:1 ftp://127.0.0.1"] {
        let (status, said) = refused(lockmeter(["record", "--debuginfod", bad, "--", "true"]));
        assert!(status == 2 && said.contains("neither http:// nor https://"), "{status}: {said}");
    }
}

fn user() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() }
}

fn is_root() -> bool {
    user() == 0
}

/// Makes sure that somebody who waits for a server sees for how long yet, at most, and that the line goes when the server does.
#[test]
fn a_server_that_does_not_answer_is_waited_for_visibly() {
    let Some(mut scene) = Scene::begin("a server that does not answer") else { return };
    let _ = scene.server.kill();
    let _ = scene.server.wait();
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    scene.url = format!("http://{}", silent.local_addr().unwrap());
    let recording = scene.folder.file("recording");
    let mut record = lockmeter(["record", "--user", "--debuginfod", &scene.url, "-o", &recording, "--"]);
    record.arg(&scene.program).current_dir(scene.folder.path());
    record.env("LOCKMETER_PRELOAD", preload_library()).env("XDG_CACHE_HOME", scene.folder.path().join("cache"));
    let terminal = terminal::Terminal::start(&mut record, (120, 40));
    let screen = terminal.until_shown("s of at most 60 s");
    assert!(screen.contains("asking debuginfod servers"), "{screen}");
    // Nobody listens there any more: what waits to be accepted is reset.
    drop(silent);
    terminal.until("the line is gone", |screen| !screen.contains("asking debuginfod servers"));
    let (status, _) = terminal.ended();
    assert_eq!(status.code(), Some(RAN));
}
