//! A command on a terminal of its own, and what that terminal shows.

#![allow(dead_code, reason = "each test uses a part")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// No screen takes longer to show what a test waits for.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often it is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A command that has a terminal.
pub struct Terminal {
    child: Child,
    ours: File,
    /// Open, so that the terminal outlives the command.
    theirs: Option<OwnedFd>,
    reader: Option<thread::JoinHandle<()>>,
    modes_before: libc::termios,
    shown: Arc<Mutex<Shown>>,
}

/// What came, and what a terminal makes of it.
pub struct Shown {
    pub parser: vt100::Parser,
    pub bytes: Vec<u8>,
}

impl Shown {
    pub fn lines(&self) -> Vec<String> {
        let screen = self.parser.screen();
        screen.rows(0, screen.size().1).map(|line| line.trim_end().to_owned()).collect()
    }

    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// How many cells have a colour.
    pub fn coloured(&self) -> usize {
        let screen = self.parser.screen();
        let (rows, columns) = screen.size();
        let cells = (0..rows).flat_map(|row| (0..columns).filter_map(move |column| screen.cell(row, column)));
        let plain = vt100::Color::Default;
        cells.filter(|cell| cell.fgcolor() != plain || cell.bgcolor() != plain).count()
    }
}

impl Terminal {
    /// Starts the command on a terminal of this many columns and rows.
    pub fn start(command: &mut Command, size: (u16, u16)) -> Self {
        Self::start_with(command, size, &[])
    }

    /// The same, with these variables in its environment.
    pub fn start_with(command: &mut Command, (columns, rows): (u16, u16), variables: &[(&str, &str)]) -> Self {
        let (ours, theirs) = open(columns, rows);
        let (input, output, errors) =
            (theirs.try_clone().unwrap(), theirs.try_clone().unwrap(), theirs.try_clone().unwrap());
        command.stdin(input).stdout(output).stderr(errors);
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR").envs(variables.iter().copied());
        let begin_session = || {
            // SAFETY: both take integers only; descriptor 0 is the terminal, which becomes that of the new session.
            let begun = unsafe { libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) >= 0 };
            if begun { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: between fork and exec it makes two system calls and allocates nothing.
        unsafe { command.pre_exec(begin_session) };
        let modes_before = modes(&theirs);
        let child = command.spawn().unwrap();
        // What a command is started with stays open as long as the command could be started again.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let shown = Arc::new(Mutex::new(Shown { parser: vt100::Parser::new(rows, columns, 0), bytes: Vec::new() }));
        let (mut screen, into) = (ours.try_clone().unwrap(), Arc::clone(&shown));
        let reader = thread::spawn(move || {
            let mut bytes = [0; 8192];
            // What came and is not shown yet.
            let mut held = Vec::new();
            // An error says that nobody has the other end any more.
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                held.extend_from_slice(&bytes[..read]);
                let mut shown = into.lock().unwrap();
                shown.bytes.extend_from_slice(&bytes[..read]);
                let whole = held.drain(..length_of_whole_frames(&held)).collect::<Vec<_>>();
                shown.parser.process(&whole);
            }
            into.lock().unwrap().parser.process(&held);
        });
        Self { child, ours, theirs: Some(theirs), reader: Some(reader), modes_before, shown }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, number: libc::c_int) {
        // SAFETY: takes two integers; the process is this one's child and not yet waited for.
        unsafe { libc::kill(self.pid().cast_signed(), number) };
    }

    pub fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Presses keys, and gives the screen once it has this text.
    pub fn press_and_wait(&mut self, keys: &str, text: &str) -> String {
        self.press(keys);
        self.until_shown(text)
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        let mut shown = self.shown.lock().unwrap();
        shown.parser.screen_mut().set_size(rows, columns);
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: an open terminal and an initialised size. The kernel tells the command.
        assert_eq!(unsafe { libc::ioctl(self.ours.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
    }

    pub fn read<T>(&self, read: impl FnOnce(&Shown) -> T) -> T {
        read(&self.shown.lock().unwrap())
    }

    pub fn text(&self) -> String {
        self.read(Shown::text)
    }

    /// Waits until the screen is so, and gives it as it was then.
    pub fn until(&self, what: &str, so: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        self.until_so(what, || {
            last = self.text();
            so(&last)
        });
        last
    }

    /// Waits until something else is so.
    pub fn until_so(&self, what: &str, mut so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !so() {
            assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain until {what}:\n{}", self.text());
            thread::sleep(LOOK_AGAIN);
        }
    }

    pub fn until_shown(&self, text: &str) -> String {
        self.until(&format!("the screen has {text:?}"), |screen| screen.contains(text))
    }

    pub fn has_modes_of_before(&self) -> bool {
        self.theirs.as_ref().is_some_and(|theirs| same(&modes(theirs), &self.modes_before))
    }

    /// As a shell does that gets the terminal back.
    pub fn set_modes_of_before(&self) {
        let theirs = self.theirs.as_ref().unwrap();
        // SAFETY: an open terminal, and modes that were read from it.
        assert_eq!(unsafe { libc::tcsetattr(theirs.as_raw_fd(), libc::TCSANOW, &raw const self.modes_before) }, 0);
    }

    /// Whether the terminal is as it was before the command.
    pub fn is_users(&self) -> bool {
        self.shows_what_was_there() && self.has_modes_of_before()
    }

    /// Whether it shows what it showed before the command, with a cursor and without the mouse.
    fn shows_what_was_there(&self) -> bool {
        self.read(|shown| {
            let screen = shown.parser.screen();
            let has_mouse = screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None;
            !screen.alternate_screen() && !screen.hide_cursor() && !has_mouse
        })
    }

    /// Whether the process is stopped, as by Ctrl-Z.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    /// Waits for the command's end. The terminal must then be the user's again. Gives all that was written to it.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the command still runs after {PATIENCE:?}:\n{}", self.text());
            thread::sleep(LOOK_AGAIN);
        };
        assert!(self.has_modes_of_before(), "the terminal has other modes than before");
        // With the last that has it open, what is still to be read comes to its end.
        self.theirs = None;
        self.reader.take().map(thread::JoinHandle::join);
        assert!(self.shows_what_was_there(), "the terminal still shows the command:\n{}", self.text());
        let bytes = self.read(|shown| shown.bytes.clone());
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How much of what a terminal is sent it shows: of a frame (mode 2026, synchronized output) nothing before it is whole.
fn length_of_whole_frames(sent: &[u8]) -> usize {
    const BEGIN: &[u8] = b"\x1b[?2026h";
    const END: &[u8] = b"\x1b[?2026l";
    let last = |sequence: &[u8]| sent.windows(sequence.len()).rposition(|bytes| bytes == sequence);
    match last(BEGIN) {
        Some(begin) if last(END).is_none_or(|end| end < begin) => begin,
        _ => sent.len(),
    }
}

fn open(columns: u16, rows: u16) -> (File, OwnedFd) {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut ours, mut theirs) = (0, 0);
    let no_name = std::ptr::null_mut();
    // SAFETY: fills two integers; no name and no modes are asked for, and the size is initialised.
    let opened = unsafe { libc::openpty(&raw mut ours, &raw mut theirs, no_name, std::ptr::null(), &raw const size) };
    assert_eq!(opened, 0, "{}", io::Error::last_os_error());
    for descriptor in [ours, theirs] {
        // SAFETY: an open descriptor. What other tests start meanwhile must not keep the terminal open.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: both were just opened and belong to nobody else.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

fn modes(terminal: &OwnedFd) -> libc::termios {
    // SAFETY: all zero is a valid termios, which is then filled.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: an open terminal.
    assert_eq!(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut modes) }, 0);
    modes
}

fn same(one: &libc::termios, other: &libc::termios) -> bool {
    let flags = |modes: &libc::termios| (modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag, modes.c_cc);
    flags(one) == flags(other)
}
