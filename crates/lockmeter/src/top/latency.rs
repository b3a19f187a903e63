//! The view of what keeps CPUs from their tasks: the tables of `lockmeter latency`.

use lockmeter_profile::TooLarge;
use lockmeter_profile::latency::{LatencyBuilder, LatencyQuery, LatencyReport};
use lockmeter_render::latency::{LatencySortKey, LatencyTable};
use lockmeter_render::{Exporter, Table};

use super::locks::Window;

pub struct LatencyView {
    query: LatencyQuery,
    sort: LatencySortKey,
    report: Option<LatencyReport>,
}

impl LatencyView {
    pub const fn new(query: LatencyQuery, sort: LatencySortKey) -> Self {
        Self { query, sort, report: None }
    }

    /// Other steps are to be shown.
    pub fn forget_reports(&mut self) {
        self.report = None;
    }

    pub fn prepare(&mut self, window: &Window<'_>) -> Result<(), TooLarge> {
        if self.report.is_none() {
            let limits = window.limits.shared_by(2);
            let mut builder = LatencyBuilder::new(window.about, &self.query);
            for interval in window.steps.iter().flat_map(|step| step.read()) {
                builder.add_within(&interval, &limits)?;
            }
            builder.add_losses(window.losses);
            let mut report = builder.report();
            self.sort.apply(&mut report);
            self.report = Some(report);
        }
        Ok(())
    }

    pub fn report(&self) -> Option<&LatencyReport> {
        self.report.as_ref()
    }

    /// The tables, as wide as the screen.
    pub fn lines(&self, width: u16) -> Vec<String> {
        let Some(report) = &self.report else { return Vec::new() };
        let table = Table { width: Some(width), ..Table::default() };
        let mut text = Vec::new();
        // A vector takes everything.
        let _ = LatencyTable { table, histograms: false }.write(report, &mut text);
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }
}
