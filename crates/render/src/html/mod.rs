//! HTML: self-contained pages: of a recording, of two compared, and of what ran. They open offline, ask nobody for anything, and can be
//! attached to a ticket.
//!
//! What must be read first (losses, warnings, the verdict) and the fine print are text in the page, so that they are there where scripts
//! are not run. All else is drawn by the page's own script from the numbers of the same views as every other format. The content security
//! policy allows the page's one script and one style sheet, by their hashes, and nothing else; names of the measured system are in the
//! page's data only, which is packed (gzip, base64), and in the text, escaped.

mod data;
mod diff;
mod document;
mod latency;
mod slices;

use std::io;

use lockmeter_profile::{Dimension, Report};

use crate::headline::Headline;
use crate::table::{about, capitalized, sentence};
use crate::{Exporter, Json, foot, threads};
use document::{Document, Packed, fine_print, headline, notices, script, text};

pub use diff::{DIFF_VIEWS, DiffPage};
pub use latency::LatencyPage;
pub use slices::Slices;

/// What the reports that a page is made of are grouped by.
pub const VIEWS: [&[Dimension]; 6] = [
    &[Dimension::Lock],
    &[Dimension::Lock, Dimension::Caller],
    &[Dimension::Lock, Dimension::Blocker],
    &[Dimension::Lock, Dimension::Root],
    &[Dimension::Lock, Dimension::Caller, Dimension::Blocker, Dimension::Root],
    &[Dimension::Lock, Dimension::Task, Dimension::BlockerTask, Dimension::RootTask],
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

impl Flags {
    /// As words of a command line.
    fn words(&self) -> Vec<String> {
        let named =
            [("--kind", &self.kind), ("--mode", &self.mode), ("--lock", &self.lock), ("--window", &self.window)];
        let given = named.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value.clone()?])).flatten();
        self.others.iter().cloned().chain(given).collect()
    }
}

const SCRIPT: &str = script!(
    "units.js",
    "elements.js",
    "unpack.js",
    "state.js",
    "table.js",
    "flames.js",
    "histogram.js",
    "data.js",
    "selection.js",
    "budget.js",
    "locks.js",
    "heat_map.js",
    "stacks.js",
    "circles.js",
    "wait_graph.js",
    "lengths.js",
    "longest.js",
    "forecast.js",
    "page.js",
);

const SECTIONS: &str = r#"<section id="locks"></section>
<section id="when"></section>
<section id="flames"></section>
<section id="graph"></section>
<section id="lengths"></section>
<section id="longest"></section>
<section id="forecast"></section>"#;

/// Room for the style sheet, the texts and the frame of a page.
const OTHERS_BYTES: usize = 50_000;

/// Rows with stacks of each view that a page has at least.
const LEAST_ROWS: usize = 50;

/// Frames of a stack in lines of text.
const FRAMES: usize = 6;

impl Page<'_> {
    /// Writes the page.
    pub fn write(mut self, out: &mut dyn io::Write) -> io::Result<()> {
        let [whole, by_caller, ..] = self.reports;
        let mut lines: Vec<String> = foot::lines(whole).into_iter().map(|(line, _)| line).collect();
        // What the numbers by stack rest on is said of a report that has some.
        let by_stack =
            foot::lines(by_caller).into_iter().map(|(line, _)| line).find(|line| line.starts_with("callers"));
        lines.extend(by_stack);
        let mut report = Vec::new();
        Json.write(whole, &mut report)?;
        let most_bytes = most_bytes(whole.duration_ns);
        let report = Packed::new(&report)?;
        let others_bytes = report.len() + SCRIPT.len() + OTHERS_BYTES;
        let data = self.data_within(most_bytes, most_bytes.saturating_sub(others_bytes))?;
        let document = Document {
            title: format!("lockmeter: {}", scope(whole)),
            about: about(whole),
            notices: notices(foot::lines(whole), &self.warnings),
            verdict: verdict(whole),
            waiting: waiting(whole),
            sections: SECTIONS,
            fine_print: fine_print(&lines, &whole.about),
            script: SCRIPT,
            report,
            data,
        };
        document.write(out)
    }

    /// What the page's script draws from. Where it takes too much room, fewer stacks are told apart, and then fewer parts of the time.
    fn data_within(&mut self, most_bytes: usize, room: usize) -> io::Result<Packed> {
        let (mut most_rows, slices) = (data::MOST_ROWS, self.slices.len());
        loop {
            let mut data = Vec::new();
            data::write(self, most_rows, &mut data)?;
            let is_least = most_rows <= LEAST_ROWS && self.slices.len() <= slices::LEAST_SLICES;
            let data = Packed::new(&data)?;
            if is_least || data.len() <= room {
                if most_rows < data::MOST_ROWS {
                    self.warnings.push(self.what_is_added_up(most_bytes, most_rows, slices));
                }
                return Ok(data);
            }
            if most_rows > LEAST_ROWS {
                most_rows /= 2;
            } else {
                self.slices.halve();
            }
        }
    }

    fn what_is_added_up(&self, most_bytes: usize, most_rows: usize, slices: usize) -> String {
        let rows = self.reports.iter().skip(1).map(|report| report.rows.len()).max().unwrap_or(0);
        let parts = match self.slices.len() {
            fewer if fewer < slices => format!(", and its time has {fewer} parts instead of {slices}"),
            _ => String::new(),
        };
        format!(
            "to keep this page at {:.1} MB, small stacks and threads are added up: the {} largest of {} of a kind are whole{parts}; \
             `lockmeter report` in another format has all of them",
            most_bytes as f64 / 1e6,
            crate::units::count(most_rows as u64),
            crate::units::count(rows.max(most_rows) as u64),
        )
    }
}

/// How large a page may be: 1.5 MB for a minute, and up to 8 MB for two hours.
fn most_bytes(duration_ns: u64) -> usize {
    let minutes = (duration_ns as f64 / 60e9).clamp(1.0, 120.0);
    (1.5e6 + 6.5e6 * (minutes - 1.0) / 119.0) as usize
}

fn scope(report: &Report) -> &str {
    match report.about.scope.as_str() {
        "" => "an unknown scope",
        scope => scope,
    }
}

/// The sentences at the head of the text report.
fn verdict(report: &Report) -> String {
    let mut html = String::new();
    let activity = report.threads.as_ref();
    for line in threads::alarms(report) {
        html.push_str(&format!("<p class=\"alarm\">{}</p>\n", text(&sentence(&line))));
    }
    html.push_str(&headline(&Headline::of(report).to_string()));
    if let Some(budget) = activity.and_then(|activity| threads::budget(report, activity)) {
        html.push_str(&format!("<p>{}</p>\n", text(&sentence(&budget))));
    }
    html
}

/// Who waits still, or waited until it ended.
fn waiting(report: &Report) -> String {
    let waits = report.threads.iter().flat_map(|activity| threads::waits_without_end(activity, FRAMES));
    let part = |(heading, lines): (&str, Vec<String>)| {
        let lines: Vec<String> = lines.iter().map(|line| text(line)).collect();
        format!("<h3>{}</h3>\n<pre>{}</pre>\n", text(&capitalized(heading)), lines.join("\n"))
    };
    waits.map(part).collect()
}
