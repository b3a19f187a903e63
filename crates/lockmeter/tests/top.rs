//! `lockmeter top` on a terminal: how it ends, and that the terminal is then as it was before.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::{Folder, lockmeter, machine, refused, run, signal, text, until};

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// What `top` begins with once it owns the screen.
const ALTERNATE_SCREEN: &str = "\x1b[?1049h";
const NORMAL_SCREEN: &str = "\x1b[?1049l";

/// `top` on a terminal of its own, and what it left of that.
struct OnTerminal {
    folder: Folder,
    script: Child,
}

impl OnTerminal {
    fn start(arguments: &str) -> Self {
        let folder = Folder::new();
        let here = folder.path().display();
        // The shell gets the terminal's Ctrl-C too, and must outlive it.
        let line = format!(
            "trap : INT; stty -g >{here}/before; sh -c 'echo $$ >{here}/pid; exec {} top {arguments}'; echo $? >{here}/status; stty -g >{here}/after",
            env!("CARGO_BIN_EXE_lockmeter")
        );
        let output = fs::File::create(folder.path().join("screen")).unwrap();
        let script = Command::new("script")
            .args(["--quiet", "--flush", "--command", &line, "/dev/null"])
            // It runs the line by whatever shell this machine's user has.
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(output)
            .spawn()
            .unwrap();
        let started = Self { folder, script };
        until("top shows its screen", || started.read("screen").contains(ALTERNATE_SCREEN));
        started
    }

    fn read(&self, name: &str) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = fs::File::open(self.folder.path().join(name)) {
            file.read_to_end(&mut bytes).unwrap();
        }
        text(&bytes)
    }

    fn press(&mut self, keys: &str) {
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, number: i32) {
        signal(self.read("pid").trim().parse().unwrap(), number);
    }

    /// Waits for the end of `top`.
    fn ended(mut self, status: &str) {
        until("top has ended", || !self.read("after").is_empty());
        self.script.wait().unwrap();
        assert_eq!(self.read("status").trim(), status);
        assert!(self.read("screen").contains(NORMAL_SCREEN), "{}", self.read("screen"));
        assert_eq!(self.read("after"), self.read("before"), "the terminal's modes");
    }
}

#[test]
fn top_ends_by_q_alone_and_leaves_the_terminal_as_it_was() {
    let Some(_machine) = machine("top_ends_by_q_alone_and_leaves_the_terminal_as_it_was") else { return };
    let mut top = OnTerminal::start("");
    top.press("x");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(top.read("after"), "", "it ended by another key");
    top.press("q");
    top.ended("0");
    let mut top = OnTerminal::start("--latency");
    top.press("q");
    top.ended("0");
}

/// Makes sure that holds are seen live as `record --hold` sees them: by hooks of functions where this kernel allows them, and else with
/// the same reason why not and what is seen instead.
#[test]
fn top_shows_holds_as_record_does_or_says_why_it_cannot() {
    let Some(_machine) = machine("top_shows_holds_as_record_does_or_says_why_it_cannot") else { return };
    let folder = Folder::new();
    let recorded = run(lockmeter(["record", "--hold", "-a", "-d", "500ms", "-o", &folder.file("recording")]));
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let shown = run(lockmeter(["top", "--hold", "-a", "-d", "1500ms", "-n", "3"]));
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let why_not = |said: &str| {
        said.lines().find(|line| line.contains("only mmap_lock's holds are timed whole")).map(str::to_owned)
    };
    let recorded = why_not(&text(&recorded.stderr));
    let shown = why_not(&text(&shown.stdout));
    assert_eq!(recorded.is_none(), shown.is_none(), "{recorded:?}, {shown:?}");
    if let (Some(recorded), Some(shown)) = (recorded, shown) {
        assert!(recorded.ends_with(&shown), "record: {recorded}\ntop: {shown}");
    }
    // What was not asked for is nothing to say.
    let shown = run(lockmeter(["top", "--hold", "--hooks", "none", "-a", "-d", "500ms", "-n", "3"]));
    assert!(shown.status.success() && why_not(&text(&shown.stdout)).is_none(), "{}", text(&shown.stdout));
    let (status, said) = refused(lockmeter(["top", "--hooks", "fentry", "-a", "-d", "500ms"]));
    assert!(status == 2 && said.contains("--hold"), "{status}: {said}");
}

#[test]
fn top_leaves_the_terminal_as_it_was_however_it_ends() {
    let Some(_machine) = machine("top_leaves_the_terminal_as_it_was_however_it_ends") else { return };
    OnTerminal::start("-d 500ms").ended("0");
    let mut top = OnTerminal::start("");
    // The key, which the terminal makes a signal of.
    top.press("\x03");
    top.ended("0");
    for number in [SIGINT, SIGTERM] {
        let top = OnTerminal::start("");
        top.signal(number);
        top.ended("0");
    }
}
