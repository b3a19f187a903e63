//! Two recordings as a page: the changes in a table, and flame graphs of them in red and blue.

use std::io;

use lockmeter_profile::diff::{Diff, Side};
use lockmeter_profile::{Dimension, Report};
use serde_json::json;

use super::Flags;
use super::document::{Document, Packed, fine_print, headline, notices, script, text, warned};
use crate::units::duration;
use crate::{DiffHeadline, Exporter, Json, foot};

/// What the diffs that a page is made of are grouped by.
pub const DIFF_VIEWS: [&[Dimension]; 4] = [
    &[Dimension::Lock],
    &[Dimension::Lock, Dimension::Caller],
    &[Dimension::Lock, Dimension::Blocker],
    &[Dimension::Lock, Dimension::Root],
];

/// A page in the making.
#[derive(Debug)]
pub struct DiffPage<'a> {
    /// The two compared by each of the [`DIFF_VIEWS`].
    pub diffs: &'a [Diff; DIFF_VIEWS.len()],
    /// What was recorded before and after, by lock.
    pub sides: [&'a Report; 2],
    /// What makes it less certain than it looks, a sentence each.
    pub warnings: Vec<String>,
    /// By which `lockmeter diff` chooses the same waits.
    pub flags: Flags,
}

const SCRIPT: &str = script!(
    "units.js",
    "elements.js",
    "unpack.js",
    "state.js",
    "table.js",
    "flames.js",
    "changes.js",
    "changed_stacks.js",
    "page.js",
);

const SECTIONS: &str = r#"<section id="changes"></section>
<section id="flames"></section>"#;

impl DiffPage<'_> {
    /// Writes the page.
    pub fn write(self, out: &mut dyn io::Write) -> io::Result<()> {
        let [by_lock, by_stacks @ ..] = self.diffs;
        let mut report = Vec::new();
        Json.write(by_lock, &mut report)?;
        let mut data = br#"{"views":["#.to_vec();
        for (at, diff) in by_stacks.iter().enumerate() {
            if at > 0 {
                data.push(b',');
            }
            Json.write(diff, &mut data)?;
        }
        data.extend_from_slice(format!(r#"],"flags":{}}}"#, json!(self.flags.words())).as_bytes());
        let over = [&by_lock.before, &by_lock.after].map(|side: &Side| duration(side.duration_ns));
        let document = Document {
            title: format!("lockmeter: {}", scopes(by_lock)),
            about: format!("{} before, {} after; all numbers are per second of metered time", over[0], over[1]),
            notices: self.notices(by_lock),
            verdict: headline(&DiffHeadline::of(by_lock).to_string()),
            waiting: renamed(by_lock),
            sections: SECTIONS,
            fine_print: self.each_side(|side| {
                let lines: Vec<String> = foot::lines(side).into_iter().map(|(line, _)| line).collect();
                Some(fine_print(&lines, &side.about))
            }),
            script: SCRIPT,
            report: Packed::new(&report)?,
            data: Packed::new(&data)?,
        };
        document.write(out)
    }

    /// Why the two may not be comparable, and what was lost of each.
    fn notices(&self, diff: &Diff) -> String {
        let differ = diff.warnings.iter().map(|warning| format!("the recordings differ: {warning}"));
        let warnings: Vec<String> = differ.chain(self.warnings.iter().cloned()).collect();
        let lost = self.each_side(|side| warned(foot::lines(side), &[]));
        match (warned(Vec::new(), &warnings), lost.as_str()) {
            (None, "") => notices(Vec::new(), &[]),
            (warnings, lost) => warnings.unwrap_or_default() + lost,
        }
    }

    /// What is said of each side, under its name.
    fn each_side(&self, html: impl Fn(&Report) -> Option<String>) -> String {
        let side = |(name, side): (&str, &&Report)| Some(format!("<h3>{name}</h3>\n{}", html(side)?));
        ["Before", "After"].into_iter().zip(&self.sides).filter_map(side).collect()
    }
}

fn scopes(diff: &Diff) -> String {
    let [before, after] = [&diff.before, &diff.after].map(|side| side.scope.as_str());
    if before == after { format!("{before}, before and after") } else { format!("{before} and {after}") }
}

/// Which files were taken for one another.
fn renamed(diff: &Diff) -> String {
    let line = |file: &lockmeter_profile::diff::Renamed| {
        format!(
            "<p class=\"quiet\">{}</p>\n",
            text(&format!("{} before is taken for {} after.", file.before, file.after))
        )
    };
    diff.renamed.iter().map(line).collect()
}
