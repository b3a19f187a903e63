//! HTML: one self-contained page of a recording: opens offline, asks nobody for anything, and can be attached to a ticket.
//!
//! What must be read first (losses, warnings, the verdict) and the fine print are text in the page, so that they are there where scripts
//! are not run. All else is drawn by the page's own script from the numbers of the same views as every other format. The content security
//! policy allows the page's one script and one style sheet, by their hashes, and nothing else; names of the measured system are in the
//! page's data only, which is packed (gzip, base64), and in the text, escaped.

mod data;
mod slices;

use std::io::{self, Write};

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::write::GzEncoder;
use lockmeter_profile::{Dimension, Report};
use sha2::{Digest, Sha256};

use crate::escape::{Escaping, Form, escaped};
use crate::headline::Headline;
use crate::table::{about, sentence};
use crate::terminal::Weight;
use crate::{Exporter, Json, foot, threads};

pub use slices::Slices;

/// What the reports that a page is made of are grouped by.
pub const VIEWS: [&[Dimension]; 5] = [
    &[Dimension::Lock],
    &[Dimension::Lock, Dimension::Caller],
    &[Dimension::Lock, Dimension::Blocker],
    &[Dimension::Lock, Dimension::Root],
    &[Dimension::Lock, Dimension::Caller, Dimension::Blocker, Dimension::Root],
];

/// A page in the making.
#[derive(Debug)]
pub struct Page<'a> {
    /// The recording by each of the [`VIEWS`].
    pub reports: &'a [Report; VIEWS.len()],
    /// The same of each part of its time.
    pub slices: Slices,
    /// What makes it less certain than it looks, a sentence each.
    pub warnings: Vec<String>,
    /// What removing or splitting its locks would gain: `lockmeter predict --format json`.
    pub forecasts: serde_json::Value,
    /// By which `lockmeter report` chooses the same waits.
    pub flags: Flags,
}

/// Flags of `lockmeter report`, for the commands that a page shows. What is selected in the page takes the place of the named ones.
#[derive(Debug, Default)]
pub struct Flags {
    /// `--kind`.
    pub kind: Option<String>,
    /// `--mode`.
    pub mode: Option<String>,
    /// `--lock`.
    pub lock: Option<String>,
    /// `--window`.
    pub window: Option<String>,
    /// Words of others.
    pub others: Vec<String>,
}

const STYLE: &str = include_str!("page.css");

/// One script, in the order in which its parts need each other.
const SCRIPT: &str = concat!(
    "'use strict';\n(async () => {\n",
    include_str!("scripts/units.js"),
    include_str!("scripts/elements.js"),
    include_str!("scripts/data.js"),
    include_str!("scripts/selection.js"),
    include_str!("scripts/budget.js"),
    include_str!("scripts/locks.js"),
    include_str!("scripts/heat_map.js"),
    include_str!("scripts/flame_graph.js"),
    include_str!("scripts/wait_graph.js"),
    include_str!("scripts/histogram.js"),
    include_str!("scripts/longest.js"),
    include_str!("scripts/forecast.js"),
    include_str!("scripts/page.js"),
    "})();\n",
);

const TEMPLATE: &str = include_str!("page.html");

/// Frames of a stack in lines of text.
const FRAMES: usize = 6;

impl Page<'_> {
    /// Writes the page.
    pub fn write(self, out: &mut dyn Write) -> io::Result<()> {
        // Names are escaped where they enter the text; this is for what forgot to.
        let mut out = Escaping::new(out, Form::TEXT);
        let whole = &self.reports[0];
        let title = format!("lockmeter: {}", scope(whole));
        let mut report = Vec::new();
        Json.write(whole, &mut report)?;
        let (notices, verdict, waiting, fine_print) =
            (notices(whole, &self.warnings), verdict(whole), waiting(whole), fine_print(self.reports));
        let about = text(&about(whole));
        let mut data = Vec::new();
        data::write(self, &mut data)?;
        for part in TEMPLATE.split("{{").enumerate() {
            let rest = match part {
                (0, rest) => rest,
                (_, part) => {
                    let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
                    match name {
                        "policy" => out.write_all(policy().as_bytes())?,
                        "title" => out.write_all(text(&title).as_bytes())?,
                        "style" => out.write_all(STYLE.as_bytes())?,
                        "script" => out.write_all(SCRIPT.as_bytes())?,
                        "about" => out.write_all(about.as_bytes())?,
                        "notices" => out.write_all(notices.as_bytes())?,
                        "verdict" => out.write_all(verdict.as_bytes())?,
                        "waiting" => out.write_all(waiting.as_bytes())?,
                        "fine_print" => out.write_all(fine_print.as_bytes())?,
                        "report" => out.write_all(packed(&report)?.as_bytes())?,
                        "data" => out.write_all(packed(&data)?.as_bytes())?,
                        other => unreachable!("the template asks for {other}"),
                    }
                    rest
                }
            };
            out.write_all(rest.as_bytes())?;
        }
        out.flush()
    }
}

/// Allows this script, this style sheet and an empty icon, and nothing else.
fn policy() -> String {
    let hash = |source: &str| BASE64_STANDARD.encode(Sha256::digest(source));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
}

fn packed(bytes: &[u8]) -> io::Result<String> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    Ok(BASE64_STANDARD.encode(gzip.finish()?))
}

/// A text as HTML has it, in an element or an attribute.
fn text(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + 16);
    for c in escaped(text).chars() {
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

fn scope(report: &Report) -> &str {
    match report.about.scope.as_str() {
        "" => "an unknown scope",
        scope => scope,
    }
}

fn items(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| format!("<li>{}</li>\n", text(&line))).collect()
}

/// What must be known before anything else is read; the losses, when there are any, among it.
fn notices(report: &Report, warnings: &[String]) -> String {
    let warning = |line: &String| sentence(line.strip_prefix("warning: ").unwrap_or(line));
    let lines: Vec<String> = foot::lines(report)
        .into_iter()
        .filter(|(_, weight)| matches!(weight, Weight::Warning))
        .map(|(line, _)| line.trim().to_owned())
        .filter(|line| line != "lost:")
        .collect();
    if warnings.is_empty() && lines.is_empty() {
        return "<p class=\"quiet\">Nothing was lost, and there is no warning.</p>".to_owned();
    }
    let warned = match warnings {
        [] => String::new(),
        _ => format!("<ul class=\"warnings\">\n{}</ul>\n", items(warnings.iter().map(warning))),
    };
    let lost = match lines.as_slice() {
        [] => String::new(),
        _ => format!("<p>Lost, or not metered:</p>\n<ul>\n{}</ul>\n", items(lines.into_iter())),
    };
    format!("{warned}{lost}")
}

/// The sentences at the head of the text report.
fn verdict(report: &Report) -> String {
    let mut html = String::new();
    let activity = report.threads.as_ref();
    let before = [
        activity.and_then(threads::alarm),
        activity.and_then(|activity| threads::worst_own_lock(report, activity)),
        activity.and_then(threads::out_of_sight),
    ];
    for line in before.into_iter().flatten() {
        html.push_str(&format!("<p class=\"alarm\">{}</p>\n", text(&sentence(&line))));
    }
    let headline = Headline::of(report).to_string();
    html.push_str(&format!("<p class=\"headline\">{}</p>\n", text(&sentence(&headline))));
    if let Some(budget) = activity.and_then(|activity| threads::budget(report, activity)) {
        html.push_str(&format!("<p>{}</p>\n", text(&sentence(&budget))));
    }
    html
}

/// Who waits still.
fn waiting(report: &Report) -> String {
    let lines = report.threads.as_ref().map(|activity| threads::open_waits(activity, FRAMES)).unwrap_or_default();
    if lines.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = lines.iter().map(|line| text(line)).collect();
    format!("<h3>Waiting when the recording ended</h3>\n<pre>{}</pre>\n", lines.join("\n"))
}

fn fine_print(reports: &[Report; VIEWS.len()]) -> String {
    let [whole, by_caller, ..] = reports;
    let about = &whole.about;
    let mut lines: Vec<String> = foot::lines(whole).into_iter().map(|(line, _)| line).collect();
    // What the numbers by stack rest on is said of a report that has some.
    let by_stack = foot::lines(by_caller).into_iter().map(|(line, _)| line).find(|line| line.starts_with("callers"));
    lines.extend(by_stack);
    let command: Vec<&str> = about.command_line.iter().map(String::as_str).collect();
    let rules: Vec<String> = about.rules.iter().map(|set| format!("{} {}", set.name, set.version)).collect();
    let facts = [
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
