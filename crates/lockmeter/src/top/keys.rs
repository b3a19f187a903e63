//! From a terminal's bytes to keys and the mouse, and from these to what is to be done.
//!
//! The bytes are read here because a terminal, or what is pasted into it, may send anything: of what is not known, nothing comes.

/// What a person did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    Key(Key),
    /// The left button, at this column and row from 0.
    Click(u16, u16),
    /// The wheel, away from the person or towards, at this column and row.
    WheelUp(u16, u16),
    WheelDown(u16, u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Tab,
    BackTab,
    Escape,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
}

const ESCAPE: u8 = 0x1b;

/// No sequence of a known key or of the mouse is longer.
const LONGEST_SEQUENCE: usize = 24;

/// Makes keys of bytes; a sequence may come in pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// The keys that are complete with these bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Input> {
        self.pending.extend_from_slice(bytes);
        let mut inputs = Vec::new();
        let mut rest = self.pending.as_slice();
        while let Some(parsed) = parse(rest) {
            inputs.extend(parsed.input);
            rest = &rest[parsed.length..];
        }
        self.pending = rest.to_vec();
        inputs
    }

    /// Whether the begin of a sequence waits for its rest.
    pub fn is_in_sequence(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Nothing followed for a while: an escape was the key, and the begin of anything else is nothing.
    pub fn give_up(&mut self) -> Option<Input> {
        let is_escape = std::mem::take(&mut self.pending) == [ESCAPE];
        is_escape.then_some(Input::Key(Key::Escape))
    }
}

/// What stands at the beginning of some bytes, and how many of them it is.
struct Parsed {
    input: Option<Input>,
    length: usize,
}

impl Parsed {
    const fn key(key: Key, length: usize) -> Option<Self> {
        Some(Self { input: Some(Input::Key(key)), length })
    }

    const fn nothing(length: usize) -> Option<Self> {
        Some(Self { input: None, length })
    }
}

/// `None` where the bytes are the begin of a sequence, or none.
fn parse(bytes: &[u8]) -> Option<Parsed> {
    match *bytes.first()? {
        ESCAPE => parse_escape(bytes),
        b'\r' | b'\n' => Parsed::key(Key::Enter, 1),
        b'\t' => Parsed::key(Key::Tab, 1),
        0x7f | 0x08 => Parsed::key(Key::Backspace, 1),
        ..=0x1f => Parsed::nothing(1),
        _ => parse_character(bytes),
    }
}

fn parse_character(bytes: &[u8]) -> Option<Parsed> {
    let chunk = bytes.get(..4).unwrap_or(bytes);
    let valid = match str::from_utf8(chunk) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => str::from_utf8(&chunk[..error.valid_up_to()]).ok()?,
        Err(error) => return error.error_len().and_then(Parsed::nothing),
    };
    let character = valid.chars().next()?;
    Parsed::key(Key::Char(character), character.len_utf8())
}

/// `ESC [ parameters final`, `ESC O final`, or `ESC` before another key, which is a key with Alt and means nothing here.
fn parse_escape(bytes: &[u8]) -> Option<Parsed> {
    let begins = *bytes.get(1)?;
    if begins == ESCAPE {
        return Parsed::key(Key::Escape, 1);
    }
    if begins != b'[' && begins != b'O' {
        return Parsed::nothing(2);
    }
    let body = &bytes[2..];
    let Some(end) = body.iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
        return if body.len() < LONGEST_SEQUENCE { None } else { Parsed::nothing(bytes.len()) };
    };
    let (parameters, last, length) = (&body[..end], body[end], end + 3);
    if parameters.first() == Some(&b'<') {
        return Some(Parsed { input: parse_mouse(&parameters[1..], last), length });
    }
    let key = match (last, parameters) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'Z', _) => Key::BackTab,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => return Parsed::nothing(length),
    };
    Parsed::key(key, length)
}

/// `button;column;row` from 1, as xterm's mode 1006 has it.
fn parse_mouse(parameters: &[u8], last: u8) -> Option<Input> {
    let mut numbers = str::from_utf8(parameters).ok()?.split(';').map(str::parse::<u16>);
    let (button, column, row) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    let (column, row) = (column.checked_sub(1)?, row.checked_sub(1)?);
    match (button, last) {
        (0, b'M') => Some(Input::Click(column, row)),
        (64, b'M') => Some(Input::WheelUp(column, row)),
        (65, b'M') => Some(Input::WheelDown(column, row)),
        _ => None,
    }
}

/// What the keys mean now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The screen of locks, or of what keeps CPUs.
    Watching,
    /// A line of text is being written.
    Writing,
    /// One or several of a list are being chosen.
    Choosing,
    /// A page is being read.
    Reading,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Quit,
    Freeze,
    /// This many steps into the past, or back.
    Back(u64),
    Forward(u64),
    Oldest,
    Newest,
    /// This many rows down, or up.
    Move(i32),
    MovePage(i32),
    Deselect,
    NextPane,
    PreviousPane,
    Expand,
    AskSort,
    AskGroup,
    AskFilter,
    AskFile,
    NextSection,
    Widen,
    Narrow,
    Faster,
    Slower,
    Help,
    FinePrint,
    Type(char),
    Erase,
    /// Takes or leaves one of a list.
    Toggle,
    Accept,
    Dismiss,
    Click(u16, u16),
    Wheel(u16, u16, i32),
}

/// Rows that a turn of the wheel moves by.
const WHEEL_ROWS: i32 = 3;

/// Steps that Page Up and Page Down go where the arrows go one.
const MANY_STEPS: u64 = 10;

/// What an input means.
pub fn action(input: Input, mode: Mode) -> Option<Action> {
    let key = match input {
        Input::Key(key) => key,
        Input::Click(column, row) => return Some(Action::Click(column, row)),
        Input::WheelUp(column, row) => return Some(Action::Wheel(column, row, -WHEEL_ROWS)),
        Input::WheelDown(column, row) => return Some(Action::Wheel(column, row, WHEEL_ROWS)),
    };
    match mode {
        Mode::Watching => watching(key),
        Mode::Writing => match key {
            Key::Char(character) => Some(Action::Type(character)),
            Key::Backspace => Some(Action::Erase),
            Key::Enter => Some(Action::Accept),
            Key::Escape => Some(Action::Dismiss),
            _ => None,
        },
        Mode::Choosing => match key {
            Key::Char(' ') => Some(Action::Toggle),
            Key::Enter => Some(Action::Accept),
            Key::Escape | Key::Char('q' | 'Q') => Some(Action::Dismiss),
            other => moved(other),
        },
        Mode::Reading => match key {
            Key::Enter | Key::Escape | Key::Char('q' | 'Q' | '?' | 'i') => Some(Action::Dismiss),
            other => moved(other),
        },
    }
}

fn moved(key: Key) -> Option<Action> {
    match key {
        Key::Up | Key::Char('k') => Some(Action::Move(-1)),
        Key::Down | Key::Char('j') => Some(Action::Move(1)),
        Key::PageUp => Some(Action::MovePage(-1)),
        Key::PageDown => Some(Action::MovePage(1)),
        _ => None,
    }
}

fn watching(key: Key) -> Option<Action> {
    Some(match key {
        Key::Char('q' | 'Q') => Action::Quit,
        Key::Char(' ' | 'p') => Action::Freeze,
        Key::Left => Action::Back(1),
        Key::Right => Action::Forward(1),
        Key::Char('[') => Action::Back(MANY_STEPS),
        Key::Char(']') => Action::Forward(MANY_STEPS),
        Key::Home => Action::Oldest,
        Key::End => Action::Newest,
        Key::Tab => Action::NextPane,
        Key::BackTab => Action::PreviousPane,
        Key::Enter => Action::Expand,
        Key::Escape => Action::Deselect,
        Key::Char('/') => Action::AskFilter,
        Key::Char('s') => Action::AskSort,
        Key::Char('g' | 'b') => Action::AskGroup,
        Key::Char('w') => Action::AskFile,
        Key::Char('h') => Action::NextSection,
        Key::Char('+' | '=') => Action::Widen,
        Key::Char('-') => Action::Narrow,
        Key::Char('>' | '.') => Action::Faster,
        Key::Char('<' | ',') => Action::Slower,
        Key::Char('?') => Action::Help,
        Key::Char('i') => Action::FinePrint,
        other => return moved(other),
    })
}

/// The keys, as the help page lists them.
pub const HELP: [(&str, &str); 21] = [
    ("↑ ↓  j k", "choose a row; in another pane, scroll"),
    ("Tab, Shift-Tab", "next pane, previous pane"),
    ("Enter", "whole stacks, or short ones"),
    ("Esc", "follow the heaviest row again"),
    ("/", "only locks whose name contains this, or matches it if it has * or ?"),
    ("s", "sort by another column"),
    ("g, b", "group by up to three of lock, caller, blocker, task, cgroup, …"),
    ("h", "waits, waits that timed out, holds: those that there are"),
    ("", ""),
    ("Space, p", "freeze, go on (a recording: pause, play)"),
    ("← →", "one step into the past, one step back"),
    ("[ ]", "ten steps"),
    ("Home, End", "the oldest step that is kept, the newest"),
    ("+ -", "show more steps together, fewer"),
    ("> <", "a recording: play faster, slower"),
    ("", ""),
    ("w", "write what was seen as a recording, for `lockmeter report`"),
    ("i", "what was lost, what the numbers rest on, what metering costs"),
    ("mouse", "click a row or a pane; the wheel scrolls what it is over"),
    ("Ctrl-Z", "suspend; `fg` comes back. Nothing is lost: the next step is longer"),
    ("q, Ctrl-C", "quit"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(bytes: &[u8]) -> Vec<Input> {
        Decoder::default().feed(bytes)
    }

    #[test]
    fn keys_are_read_from_the_sequences_of_terminals() {
        for (bytes, key) in [
            (&b"\x1b[A"[..], Key::Up),
            (b"\x1bOB", Key::Down),
            (b"\x1b[1;5C", Key::Right),
            (b"\x1b[Z", Key::BackTab),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[1~", Key::Home),
            (b"\x1bOF", Key::End),
            (b"\r", Key::Enter),
            (b"\x7f", Key::Backspace),
            ("µ".as_bytes(), Key::Char('µ')),
        ] {
            assert_eq!(inputs(bytes), [Input::Key(key)], "{bytes:?}");
        }
        assert_eq!(inputs(b"\x1b[<0;3;2M\x1b[<0;3;2m\x1b[<65;1;1M"), [Input::Click(2, 1), Input::WheelDown(0, 0)]);
    }

    #[test]
    fn a_sequence_in_pieces_is_one_key_and_a_lone_escape_is_one_once_nothing_follows() {
        let mut decoder = Decoder::default();
        assert!(decoder.feed(b"\x1b").is_empty() && decoder.is_in_sequence());
        assert!(decoder.feed(b"[").is_empty());
        assert_eq!(decoder.feed(b"Aq"), [Input::Key(Key::Up), Input::Key(Key::Char('q'))]);
        assert!(!decoder.is_in_sequence());
        assert!(decoder.feed(b"\x1b").is_empty());
        assert_eq!(decoder.give_up(), Some(Input::Key(Key::Escape)));
        assert!(decoder.feed(&"é".as_bytes()[..1]).is_empty());
        assert_eq!(decoder.feed(&"é".as_bytes()[1..]), [Input::Key(Key::Char('é'))]);
    }

    /// Makes sure that no bytes, such as those of a file pasted by mistake, end the program or are held for ever.
    #[test]
    fn whatever_comes_is_taken_and_what_is_not_known_means_nothing() {
        let mut seed = 1_u64;
        let mut decoder = Decoder::default();
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..7)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let byte = (seed >> 56) as u8;
                    // Sequences are rare among random bytes.
                    *[ESCAPE, b'[', b'<', b';', b'9', b'M', byte, byte].get(byte as usize % 8).unwrap_or(&byte)
                })
                .collect();
            decoder.feed(&bytes);
            assert!(decoder.pending.len() <= LONGEST_SEQUENCE + 3, "{:?}", decoder.pending);
        }
        for nothing in [&b"\x1b[<99;1M"[..], b"\x1b[<0;0;0M", b"\x1b[300;300~", b"\x1b[1;300A\x1b[200~"] {
            assert!(inputs(nothing).iter().all(|input| *input == Input::Key(Key::Up)), "{nothing:?}");
        }
    }

    #[test]
    fn a_key_means_what_the_mode_says() {
        let q = Input::Key(Key::Char('q'));
        assert_eq!(action(q, Mode::Watching), Some(Action::Quit));
        assert_eq!(action(q, Mode::Writing), Some(Action::Type('q')));
        assert_eq!(action(q, Mode::Choosing), Some(Action::Dismiss));
        assert_eq!(action(q, Mode::Reading), Some(Action::Dismiss));
        let space = Input::Key(Key::Char(' '));
        assert_eq!(action(space, Mode::Watching), Some(Action::Freeze));
        assert_eq!(action(space, Mode::Choosing), Some(Action::Toggle));
        assert_eq!(action(Input::Key(Key::Down), Mode::Reading), Some(Action::Move(1)));
        assert_eq!(action(Input::WheelUp(1, 2), Mode::Watching), Some(Action::Wheel(1, 2, -3)));
    }
}
