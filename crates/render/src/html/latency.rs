//! What ran as a page: interrupts, softirqs, timers and work items.

use std::io;

use lockmeter_profile::latency::LatencyReport;
use serde_json::json;

use super::Flags;
use super::document::{Document, Packed, fine_print, headline, notices, script};
use crate::latency::{LatencyHeadline, about, foot};
use crate::{Exporter, Json};

/// A page in the making.
#[derive(Debug)]
pub struct LatencyPage<'a> {
    /// What ran.
    pub report: &'a LatencyReport,
    /// What makes it less certain than it looks, a sentence each.
    pub warnings: Vec<String>,
    /// By which `lockmeter report` chooses the same runs.
    pub flags: Flags,
}

const SCRIPT: &str =
    script!("units.js", "elements.js", "unpack.js", "state.js", "table.js", "histogram.js", "runs.js", "page.js",);

const SECTIONS: &str = r#"<section id="runs"></section>
<section id="lengths"></section>
<section id="longest"></section>"#;

impl LatencyPage<'_> {
    /// Writes the page.
    pub fn write(self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut report = Vec::new();
        Json.write(self.report, &mut report)?;
        let lines: Vec<String> = foot(self.report).into_iter().map(|(line, _)| line).collect();
        let document = Document {
            title: "lockmeter: what kept CPUs from their tasks".to_owned(),
            about: about(self.report),
            notices: notices(foot(self.report), &self.warnings),
            verdict: headline(&LatencyHeadline::of(self.report).to_string()),
            waiting: String::new(),
            sections: SECTIONS,
            fine_print: fine_print(&lines, &self.report.about),
            script: SCRIPT,
            report: Packed::new(&report)?,
            data: Packed::new(json!({ "flags": self.flags.words() }).to_string().as_bytes())?,
        };
        document.write(out)
    }
}
