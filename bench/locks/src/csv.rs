//! The grid as CSV, one row a contender and point.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use lockmeter_profile::recording::write_file;
use lockmeter_statistics::Machine;

use crate::contender::Contender;
use crate::grid::Measured;

const COLUMNS: &str = "threads,overcommitted,read_percent,section_ns,lock,ours,acquisitions_per_s,best_peer,ratio,ratio_low,ratio_high,slowest_share,mean_wait_ns,p999_wait_ns,max_wait_ns,switches_per_1000,rounds";

/// Overwrites `path`. The machine stands in a comment above the columns.
pub fn write(path: &Path, grid: &[Measured], contenders: &[Contender], machine: &Machine) -> Result<()> {
    let mut text = format!("# {machine}\n{COLUMNS}\n");
    for measured in grid {
        let point = measured.point;
        for cell in &measured.cells {
            let contender = &contenders[cell.contender];
            let against = cell.against_best.map_or_else(
                || ",,,".to_owned(),
                |against| {
                    let ratio = against.ratio;
                    let peer = contenders[against.peer].name;
                    format!("{peer},{:.4},{:.4},{:.4}", ratio.median, ratio.low, ratio.high)
                },
            );
            writeln!(
                text,
                "{},{},{},{},{},{},{:.0},{against},{:.4},{:.0},{},{},{:.3},{}",
                point.threads,
                point.threads > machine.cpus,
                point.read_percent,
                point.section_ns,
                contender.name,
                contender.ours,
                cell.median_rate,
                cell.slowest_share,
                cell.mean_wait_ns,
                cell.p999_wait_ns,
                cell.longest_wait_ns,
                cell.switches_per_1000,
                cell.rates.len(),
            )?;
        }
    }
    write_file(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}
