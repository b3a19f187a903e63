//! The terminal while `top` has it. However it is left, by a key, a signal or a panic, it is then as it was before.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, Once, PoisonError};

use lockmeter_cli::output;
use lockmeter_render::Colour;
use ratatui_core::backend::Backend;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::{Terminal, TerminalOptions, Viewport};
use ratatui_termion::TermionBackend;
use rustix::process::getpgrp;
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::SIGTSTP;

use super::canvas::{Canvas, Palette};

/// The alternate screen, empty and without a cursor; buttons and the wheel of the mouse, by xterm's modes 1000 and 1006.
const OWN_SCREEN: &str = "\x1b[?1049h\x1b[2J\x1b[?25l\x1b[?1000h\x1b[?1006h";
const USERS_SCREEN: &str = "\x1b[?1006l\x1b[?1000l\x1b[?25h\x1b[?1049l";

/// Around what one frame changes: terminals that know this (mode 2026, synchronized output) show it at once, not piece by piece.
const FRAME_BEGINS: &[u8] = b"\x1b[?2026h";
const FRAME_ENDS: &[u8] = b"\x1b[?2026l";

/// The modes to go back to, while the terminal is ours.
static MODES_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

type Drawn = Terminal<TermionBackend<io::BufWriter<io::Stdout>>>;

pub struct Screen {
    terminal: Drawn,
    palette: Palette,
}

impl Screen {
    /// Whether there is a terminal to draw on and to read keys from, and this is the job that has it.
    pub fn is_possible() -> bool {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_in_front = tcgetpgrp(&stdin).is_ok_and(|group| group == getpgrp());
        stdin.is_terminal() && stdout.is_terminal() && is_in_front && !is_dumb
    }

    /// Takes the terminal.
    pub fn open() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // What it says belongs on the user's screen.
                give_back();
                before(panic);
            }));
        });
        take()?;
        let terminal = nothing_drawn().inspect_err(|_| give_back())?;
        Ok(Self { terminal, palette: Palette::of(Colour::detect(true)) })
    }

    /// Keys come from here.
    pub fn keyboard(&self) -> BorrowedFd<'static> {
        // SAFETY: descriptor 0 was found to be a terminal, and nothing in this program closes it.
        unsafe { BorrowedFd::borrow_raw(0) }
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut Canvas<'_>)) -> io::Result<()> {
        self.terminal.autoresize()?;
        // Nothing is on its way to the terminal while this runs, which may panic.
        draw(&mut Canvas::new(self.terminal.get_frame().buffer_mut(), self.palette));
        self.terminal.backend_mut().write_all(FRAME_BEGINS)?;
        self.terminal.flush()?;
        self.terminal.swap_buffers();
        self.terminal.backend_mut().write_all(FRAME_ENDS)?;
        Backend::flush(self.terminal.backend_mut())
    }

    pub fn width(&self) -> io::Result<u16> {
        Ok(self.terminal.size()?.width)
    }

    /// Gives the terminal to the shell and stops, until the shell has this go on.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        self.resume()
    }

    /// Takes the terminal again after the one that had it meanwhile.
    pub fn resume(&mut self) -> io::Result<()> {
        take()?;
        self.terminal = nothing_drawn()?;
        Ok(())
    }
}

/// A terminal on which all is to be drawn.
fn nothing_drawn() -> io::Result<Drawn> {
    let backend = TermionBackend::new(io::BufWriter::new(io::stdout()));
    let viewport = match output::size(io::stdout()) {
        (Some(_), Some(_)) => Viewport::Fullscreen,
        // A serial line does not know its size.
        _ => Viewport::Fixed(Rect::new(0, 0, 80, 24)),
    };
    Terminal::with_options(backend, TerminalOptions { viewport })
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Keys come one by one and unseen; Ctrl-C and Ctrl-Z stay signals, so that they work whatever this program does.
fn take() -> io::Result<()> {
    let mut before = MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    let modes = tcgetattr(io::stdin().as_fd())?;
    let mut ours = modes.clone();
    ours.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
    ours.input_modes -= InputModes::IXON;
    tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &ours)?;
    before.get_or_insert(modes);
    let mut out = io::stdout();
    out.write_all(OWN_SCREEN.as_bytes())?;
    out.flush()
}

/// Once, no matter who calls first. Nothing is left to do where the terminal is gone.
fn give_back() {
    let Some(before) = MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let mut out = io::stdout();
    let _ = out.write_all(USERS_SCREEN.as_bytes()).and_then(|()| out.flush());
    let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &before);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set where a test runs as the program on a terminal.
    const ON_TERMINAL: &str = "LOCKMETER_TEST_ON_TERMINAL";

    /// Makes sure that a panic, on whatever thread, gives the terminal back, and that what it says stands on the user's screen.
    #[test]
    fn a_panic_leaves_the_terminal_as_it_was() {
        if std::env::var_os(ON_TERMINAL).is_some() {
            let mut screen = Screen::open().unwrap();
            screen
                .draw(|canvas| {
                    canvas.text(canvas.area(), "drawn", canvas.palette.plain);
                })
                .unwrap();
            std::thread::spawn(move || panic!("a hole in {}", screen.width().unwrap())).join().unwrap_err();
            return;
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let test = std::thread::current().name().unwrap().to_owned();
        command.args(["--exact", &test, "--nocapture"]).env(ON_TERMINAL, "1");
        let (status, shown) = crate::terminal::Terminal::start(&mut command, (80, 24)).ended();
        assert!(status.success(), "{status}: {shown}");
        let (on_its_screen, on_the_users) = shown.split_once(USERS_SCREEN).expect("the screen was given back");
        assert!(on_its_screen.contains(OWN_SCREEN) && on_its_screen.contains("drawn"), "{shown}");
        assert!(on_the_users.contains("a hole in 80"), "{shown}");
    }
}
