//! The frame of every page: one file, one style sheet, one script, and packed data.

use std::io::{self, Write};

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::write::GzEncoder;
use lockmeter_profile::About;
use sha2::{Digest, Sha256};

use crate::escape::{Escaping, Form, escaped};
use crate::foot::FootLine;
use crate::table::sentence;
use crate::terminal::Weight;

const STYLE: &str = include_str!("page.css");

const TEMPLATE: &str = include_str!("page.html");

/// A page, part by part. What is not data is HTML: names in it are escaped by [`text`].
pub(super) struct Document<'a> {
    /// As text.
    pub title: String,
    /// As text.
    pub about: String,
    pub notices: String,
    pub verdict: String,
    /// Behind what the script draws of the verdict.
    pub waiting: String,
    /// The places of what the script draws.
    pub sections: &'a str,
    pub fine_print: String,
    pub script: &'a str,
    /// What the same command prints with `--format json`.
    pub report: Packed,
    /// What the script knows beside it.
    pub data: Packed,
}

impl Document<'_> {
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        // Names are escaped where they enter the text; this is for what forgot to.
        let mut out = Escaping::new(out, Form::TEXT);
        let mut parts = TEMPLATE.split("{{");
        out.write_all(parts.next().unwrap_or_default().as_bytes())?;
        for part in parts {
            let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
            out.write_all(self.part(name)?.as_bytes())?;
            out.write_all(rest.as_bytes())?;
        }
        out.flush()
    }

    fn part(&self, name: &str) -> io::Result<String> {
        Ok(match name {
            "policy" => policy(self.script),
            "title" => text(&self.title),
            "style" => STYLE.to_owned(),
            "script" => self.script.to_owned(),
            "about" => text(&self.about),
            "notices" => self.notices.clone(),
            "verdict" => self.verdict.clone(),
            "waiting" => self.waiting.clone(),
            "sections" => self.sections.to_owned(),
            "fine_print" => self.fine_print.clone(),
            "report" => self.report.0.clone(),
            "data" => self.data.0.clone(),
            other => unreachable!("the template asks for {other}"),
        })
    }
}

/// Allows this script, the style sheet and an empty icon, and nothing else.
fn policy(script: &str) -> String {
    let hash = |source: &str| BASE64_STANDARD.encode(Sha256::digest(source));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(script),
        hash(STYLE)
    )
}

/// Data as a page has it.
pub(super) struct Packed(String);

impl Packed {
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(bytes)?;
        Ok(Self(BASE64_STANDARD.encode(gzip.finish()?)))
    }

    pub const fn len(&self) -> usize {
        self.0.len()
    }
}

/// Names in a text may have any length; beyond this they would only take the room of others. The JSON has all of them.
const LONGEST_TEXT: usize = 10_000;

/// A text as HTML has it, in an element or an attribute.
pub(super) fn text(text: &str) -> String {
    let text = escaped(text);
    let (shown, rest) = text.char_indices().nth(LONGEST_TEXT).map_or((&*text, ""), |(at, _)| text.split_at(at));
    let end = if rest.is_empty() { "" } else { "…" };
    let mut html = String::with_capacity(shown.len() + 16);
    for c in shown.chars().chain(end.chars()) {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

pub(super) fn items(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| format!("<li><p>{}</p></li>\n", text(&line))).collect()
}

/// A sentence at the head of a page.
pub(super) fn headline(words: &str) -> String {
    format!("<p class=\"headline\">{}</p>\n", text(&sentence(words)))
}

/// What must be known before anything else is read: warnings, and the lines of a foot that warn, such as losses.
pub(super) fn notices(foot: Vec<FootLine>, warnings: &[String]) -> String {
    warned(foot, warnings)
        .unwrap_or_else(|| "<p class=\"quiet\">Nothing was lost, and there is no warning.</p>".to_owned())
}

/// The same; `None` if there is nothing to say.
pub(super) fn warned(foot: Vec<FootLine>, warnings: &[String]) -> Option<String> {
    let warning = |line: &String| sentence(line.strip_prefix("warning: ").unwrap_or(line));
    let lines: Vec<String> = foot
        .into_iter()
        .filter(|(_, weight)| matches!(weight, Weight::Warning))
        .map(|(line, _)| line.trim().to_owned())
        .filter(|line| line != "lost:")
        .collect();
    if warnings.is_empty() && lines.is_empty() {
        return None;
    }
    let warnings = match warnings {
        [] => String::new(),
        _ => format!("<ul class=\"warnings\">\n{}</ul>\n", items(warnings.iter().map(warning))),
    };
    let lost = match lines.as_slice() {
        [] => String::new(),
        _ => format!("<p>Lost, or not metered:</p>\n<ul>\n{}</ul>\n", items(lines.into_iter())),
    };
    Some(format!("{warnings}{lost}"))
}

/// The lines of a foot, and how a recording was made.
pub(super) fn fine_print(lines: &[String], about: &About) -> String {
    let command: Vec<&str> = about.command_line.iter().map(String::as_str).collect();
    let rules: Vec<String> = about.rules.iter().map(|set| format!("{} {}", set.name, set.version)).collect();
    let facts = [
        ("Recorded because of", about.reason.clone()),
        ("Recorded with", command.join(" ")),
        ("Machine", format!("{}, {} CPUs", about.machine, about.cpus)),
        ("Kernel", format!("Linux {}", about.kernel_release)),
        ("Recorded by", format!("lockmeter {}", about.lockmeter_version)),
        ("Page made by", format!("lockmeter {}", env!("CARGO_PKG_VERSION"))),
        ("Rules", rules.join(", ")),
    ];
    let facts = facts.iter().filter(|(_, fact)| !fact.is_empty());
    let facts: String = facts.map(|(name, fact)| format!("<dt>{}</dt><dd>{}</dd>\n", text(name), text(fact))).collect();
    let (lost, others): (Vec<&String>, Vec<&String>) = lines.iter().partition(|line| line.starts_with("  "));
    let lost = match lost.as_slice() {
        [] => String::new(),
        _ => format!("<ul>\n{}</ul>\n", items(lost.into_iter().map(|line| line.trim().to_owned()))),
    };
    let others: String = others.iter().map(|line| format!("<p>{}</p>\n", text(line))).collect();
    let others = others.replacen("<p>lost:</p>\n", &format!("<p>lost:</p>\n{lost}"), 1);
    format!("{others}<dl>\n{facts}</dl>\n")
}

/// A script of these parts, in the order in which they need each other.
macro_rules! script {
    ($($part:literal,)+) => {
        concat!("'use strict';\n(async () => {\n", $(include_str!(concat!("scripts/", $part)),)+ "})();\n")
    };
}
pub(super) use script;

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes sure that no escape gets into a page, not even by a part that was not escaped, and that packed data is whatever it was.
    #[test]
    fn what_forgot_to_escape_is_escaped() {
        let raw = "\x1b[31m\u{202e}".to_owned();
        let document = Document {
            title: raw.clone(),
            about: raw.clone(),
            notices: raw.clone(),
            verdict: raw.clone(),
            waiting: raw.clone(),
            sections: "",
            fine_print: raw.clone(),
            script: "",
            report: Packed::new(raw.as_bytes()).unwrap(),
            data: Packed::new(raw.as_bytes()).unwrap(),
        };
        let mut page = Vec::new();
        document.write(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains(['\x1b', '\u{202e}']), "{page}");
        assert_eq!(page.matches("\\u{1b}[31m\\u{202e}").count(), 7, "{page}");
        assert!(page.contains(&Packed::new(raw.as_bytes()).unwrap().0));
    }

    #[test]
    fn text_is_no_element_and_no_end_of_an_attribute() {
        assert_eq!(text(&"x".repeat(LONGEST_TEXT)).len(), LONGEST_TEXT);
        assert_eq!(text(&"<".repeat(LONGEST_TEXT + 1)), "&lt;".repeat(LONGEST_TEXT) + "…");
        assert_eq!(text("<b a='1' c=\"2\">&amp;"), "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;amp;");
    }
}
