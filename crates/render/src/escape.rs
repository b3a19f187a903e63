//! Escapes for names of the measured system, so that none can steer a terminal, forge a line or end a field.
//!
//! Escaped is every character that is not visible text: C0 and C1 controls and DEL, line and paragraph separators,
//! bidirectional controls, zero-width and other format characters, blanks that are no space, private and unassigned code
//! points, and letters and marks that show nothing. A terminal obeys some of them, and the others hide or reorder text (Unicode
//! Technical Report 36 and Technical Standard 39; "Trojan Source", CVE-2021-42574). Letters of every script, their combining
//! marks, symbols and emoji stay. A backslash stays, too, so that escaping twice is the same as escaping once.

use std::borrow::Cow;
use std::io;

/// Letters and marks that show nothing, though Unicode counts them as printable (`Default_Ignorable_Code_Point`, less the variation
/// selectors of emoji and of CJK), and the plane of tags.
const INVISIBLE: [std::ops::RangeInclusive<char>; 7] = [
    '\u{34f}'..='\u{34f}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{3164}'..='\u{3164}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{e0000}'..='\u{e0fff}',
];

/// Whether a character is escaped.
pub fn is_harmful(c: char) -> bool {
    match c {
        ' '..='~' => false,
        ..='\u{9f}' => true,
        _ => INVISIBLE.iter().any(|range| range.contains(&c)) || !is_printable(c),
    }
}

/// As the standard library judges it, which escapes what is not printable, but a combining mark only where it has no letter before it.
fn is_printable(c: char) -> bool {
    let mut bytes = *b"a\0\0\0\0";
    let end = 1 + c.encode_utf8(&mut bytes[1..]).len();
    String::from_utf8_lossy(&bytes[..end]).escape_debug().count() == 2
}

/// A name for text: as it is, or with each harmful character as `\u{1b}`, `\n`, `\r` or `\t`.
pub fn escaped(name: &str) -> Cow<'_, str> {
    if !name.contains(is_harmful) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if is_harmful(c) { spell_for_people(c, &mut text) } else { text.push(c) }
    }
    Cow::Owned(text)
}

fn spell_for_people(c: char, text: &mut String) {
    text.extend(c.escape_default());
}

/// One escape for each UTF-16 code unit, as JSON (RFC 8259) has it: a parser gives the name back.
fn spell_for_json(c: char, text: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        text.push_str(&format!("\\u{unit:04x}"));
    }
}

/// How a sink spells harmful characters, and which of them it writes itself.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    own: &'static [&'static str],
    spell: fn(char, &mut String),
}

impl Form {
    /// Lines of text.
    pub const TEXT: Self = Self::text(&["\n"]);
    /// JSON, which has harmful characters in its strings only.
    pub const JSON: Self = Self { own: &["\n"], spell: spell_for_json };
    /// Records of RFC 4180, whose lines end so.
    pub const CSV: Self = Self::text(&["\r\n"]);

    /// Text with control sequences of the sink's own.
    pub(crate) const fn text(own: &'static [&'static str]) -> Self {
        Self { own, spell: spell_for_people }
    }
}

/// The last step of every sink: escapes all harmful characters but those that the form itself has. Each of these must come in
/// one write, as it does from `write!` with the sequence in a literal or an argument.
///
/// It lets the sink's own line breaks pass. A name must be [`escaped`] where a line is made, lest its line breaks be taken for
/// them.
#[derive(Debug)]
pub struct Escaping<W> {
    out: W,
    form: Form,
    /// The first bytes of a character whose last ones are in the next write.
    begun: Vec<u8>,
}

impl<W: io::Write> Escaping<W> {
    /// Writes to `out` in this form.
    pub const fn new(out: W, form: Form) -> Self {
        Self { out, form, begun: Vec::new() }
    }

    /// Lines of text.
    pub const fn text(out: W) -> Self {
        Self::new(out, Form::TEXT)
    }

    fn escape(&self, mut text: &str, into: &mut String) {
        while let Some(at) = text.find(is_harmful) {
            into.push_str(&text[..at]);
            text = &text[at..];
            if let Some(own) = self.form.own.iter().find(|own| text.starts_with(**own)) {
                into.push_str(own);
                text = &text[own.len()..];
            } else if let Some(c) = text.chars().next() {
                (self.form.spell)(c, into);
                text = &text[c.len_utf8()..];
            }
        }
        into.push_str(text);
    }
}

impl<W: io::Write> io::Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let begun = std::mem::take(&mut self.begun);
        let all = if begun.is_empty() { Cow::Borrowed(bytes) } else { Cow::Owned([&begun, bytes].concat()) };
        let mut text = String::with_capacity(all.len() + 16);
        let mut rest = &*all;
        while !rest.is_empty() {
            match str::from_utf8(rest) {
                Ok(valid) => {
                    self.escape(valid, &mut text);
                    break;
                }
                Err(error) => {
                    let (valid, invalid) = rest.split_at(error.valid_up_to());
                    self.escape(&String::from_utf8_lossy(valid), &mut text);
                    let Some(length) = error.error_len() else {
                        self.begun = invalid.to_vec();
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &invalid[length..];
                }
            }
        }
        self.out.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn written(form: Form, writes: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut escaping = Escaping::new(&mut out, form);
        for bytes in writes {
            escaping.write_all(bytes).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_steers_hides_or_reorders_is_escaped_and_visible_text_stays() {
        assert_eq!(escaped("evil\x1b[2J\n"), "evil\\u{1b}[2J\\n");
        let harmful = [
            '\0'..='\x1f',
            '\x7f'..='\u{a0}',
            '\u{ad}'..='\u{ad}',
            '\u{61c}'..='\u{61c}',
            '\u{200b}'..='\u{200f}',
            '\u{2028}'..='\u{202e}',
            '\u{2060}'..='\u{206f}',
            '\u{3164}'..='\u{3164}',
            '\u{e000}'..='\u{f8ff}',
            '\u{feff}'..='\u{feff}',
            '\u{fff9}'..='\u{fffb}',
            '\u{e0000}'..='\u{e01ef}',
            '\u{10fffe}'..='\u{10ffff}',
        ];
        for c in harmful.into_iter().flatten() {
            let text = escaped(c.encode_utf8(&mut [0; 4])).into_owned();
            assert!(text.len() > 1 && text.chars().all(|c| c.is_ascii_graphic()), "{c:?} became {text:?}");
        }
        for visible in ["kworker/0:1", "é", "e\u{301}", "中文", "שלום", "नमस्ते", "🔒❤\u{fe0f}", "C:\\x", "\u{fffd}"]
        {
            assert_eq!(escaped(visible), visible);
        }
    }

    #[test]
    fn escaping_twice_is_the_same_as_once() {
        let once = escaped("\x1b[31m\\\u{202e}").into_owned();
        assert_eq!(escaped(&once), once);
    }

    #[test]
    fn a_form_lets_nothing_harmful_pass_but_its_own() {
        const NAME: &[u8] = "a\x1b[1m\u{9b}b\r\n".as_bytes();
        assert_eq!(written(Form::TEXT, &[NAME]), "a\\u{1b}[1m\\u{9b}b\\r\n");
        assert_eq!(written(Form::CSV, &[NAME, b"\n\r"]), "a\\u{1b}[1m\\u{9b}b\r\n\\n\\r");
        assert_eq!(written(Form::text(&["\x1b[1m"]), &[NAME]), "a\x1b[1m\\u{9b}b\\r\\n");
        assert_eq!(written(Form::JSON, &["\"\u{202e}\u{e0041}\"".as_bytes()]), "\"\\u202e\\udb40\\udc41\"");
    }

    #[test]
    fn a_character_in_two_writes_is_judged_as_one_and_bytes_that_are_none_do_not_pass() {
        assert_eq!(written(Form::TEXT, &[b"\xe2\x80", b"\xaex\xc3", b"\xa9"]), "\\u{202e}x\u{e9}");
        assert_eq!(written(Form::TEXT, &[b"\x9b31m\xff", b"y"]), "\u{fffd}31m\u{fffd}y");
    }
}
