//! The grid as a picture: for each of our locks a table of boxes, one a point. Dark is slower than the best peer, so a good
//! lock is a white page, also on paper.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use lockmeter_profile::recording::write_file;
use lockmeter_statistics::Machine;

use crate::contender::Contender;
use crate::grid::{Cell, Measured, Point};
use crate::table::{LOST, WON, duration};

const BOX_WIDTH: usize = 66;
const BOX_HEIGHT: usize = 34;
/// Between groups of read shares.
const GROUP_GAP: usize = 8;
const LEFT: usize = 150;
const TOP: usize = 96;
const PANEL_GAP: usize = 46;
/// A share of the best peer this low is drawn black; above `WON` all is white.
const BLACK: f64 = 0.4;
const FONT: &str = "DejaVu Sans, Helvetica, Arial, sans-serif";
/// Pixels of the PNG for one of the SVG.
const PNG_ZOOM: &str = "2";

/// Rows and columns of all panels.
struct Axes {
    threads: Vec<usize>,
    reads: Vec<u32>,
    sections: Vec<u32>,
}

impl Axes {
    fn of(grid: &[Measured]) -> Self {
        fn values<T: Ord>(of: impl Iterator<Item = T>) -> Vec<T> {
            let mut values: Vec<T> = of.collect();
            values.sort_unstable();
            values.dedup();
            values
        }
        Self {
            threads: values(grid.iter().map(|measured| measured.point.threads)),
            reads: values(grid.iter().map(|measured| measured.point.read_percent)),
            sections: values(grid.iter().map(|measured| measured.point.section_ns)),
        }
    }

    /// Pixels from the top of a panel's boxes to those of this row; a row is a read share and a section.
    fn row(&self, read: usize, section: usize) -> usize {
        (read * self.sections.len() + section) * BOX_HEIGHT + read * GROUP_GAP
    }

    fn panel_width(&self) -> usize {
        self.threads.len() * BOX_WIDTH
    }
}

/// Overwrites `path`, and the PNG beside it where `rsvg-convert` is installed; says whether it was.
pub fn write(path: &Path, grid: &[Measured], contenders: &[Contender], machine: &Machine) -> Result<bool> {
    write_file(path, draw(grid, contenders, machine)?.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    let png = path.with_extension("png");
    // It would follow a link that another user has put where the picture goes.
    let Ok(converted) = Command::new("rsvg-convert").args(["--zoom", PNG_ZOOM]).arg(path).output() else {
        return Ok(false);
    };
    if converted.status.success() {
        write_file(&png, &converted.stdout).with_context(|| format!("cannot write {}", png.display()))?;
    }
    Ok(converted.status.success())
}

fn draw(grid: &[Measured], contenders: &[Contender], machine: &Machine) -> Result<String> {
    let axes = Axes::of(grid);
    let ours: Vec<usize> = (0..contenders.len()).filter(|&at| contenders[at].ours).collect();
    let width = LEFT + ours.len() * (axes.panel_width() + PANEL_GAP);
    let height = TOP + axes.row(axes.reads.len(), 0) + 60;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" font-family=\"{FONT}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(
        &mut svg,
        12,
        26,
        17,
        "start",
        "black",
        "Throughput of our locks as a share of the best peer's at the same point",
    )?;
    let key = "white: as fast as the best of glibc, std, parking_lot, absl, or faster · the darker, the slower · frame: below 0.9";
    text(&mut svg, 12, 46, 12, "start", "black", key)?;
    rows(&mut svg, &axes)?;
    for (panel, &at) in ours.iter().enumerate() {
        let left = LEFT + panel * (axes.panel_width() + PANEL_GAP);
        text(&mut svg, left, TOP - 26, 15, "start", "black", contenders[at].name)?;
        for (column, threads) in axes.threads.iter().enumerate() {
            let more = if *threads > machine.cpus { "*" } else { "" };
            let middle = left + column * BOX_WIDTH + BOX_WIDTH / 2;
            text(&mut svg, middle, TOP - 8, 11, "middle", "black", &format!("{threads} thr{more}"))?;
        }
        for measured in grid {
            if let Some(cell) = measured.cells.iter().find(|cell| cell.contender == at) {
                point(&mut svg, &axes, left, measured.point, cell, contenders)?;
            }
        }
    }
    let foot = format!(
        "* more threads than CPUs. {}, {} CPUs, Linux {}, {}",
        machine.cpu, machine.cpus, machine.kernel, machine.date
    );
    text(&mut svg, 12, height - 16, 11, "start", "black", &foot)?;
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// The names of the rows.
fn rows(svg: &mut String, axes: &Axes) -> Result<()> {
    for (read, percent) in axes.reads.iter().enumerate() {
        let top = TOP + axes.row(read, 0);
        text(svg, 12, top + 22, 13, "start", "black", &format!("{percent} % reads"))?;
        for (section, section_ns) in axes.sections.iter().enumerate() {
            let middle = TOP + axes.row(read, section) + BOX_HEIGHT / 2 + 4;
            text(svg, LEFT - 8, middle, 11, "end", "black", &duration(f64::from(*section_ns)))?;
        }
    }
    Ok(())
}

fn point(
    svg: &mut String,
    axes: &Axes,
    left: usize,
    point: Point,
    cell: &Cell,
    contenders: &[Contender],
) -> Result<()> {
    let Some(against) = cell.against_best else { return Ok(()) };
    let position = |found: Option<usize>| found.unwrap_or(0);
    let x = left + position(axes.threads.iter().position(|t| *t == point.threads)) * BOX_WIDTH;
    let read = position(axes.reads.iter().position(|r| *r == point.read_percent));
    let section = position(axes.sections.iter().position(|s| *s == point.section_ns));
    let y = TOP + axes.row(read, section);
    let ratio = against.ratio.median;
    let light = ((ratio - BLACK) / (WON - BLACK)).clamp(0.0, 1.0);
    let grey = (light * 255.0) as u8;
    let ink = if light < 0.55 { "white" } else { "black" };
    let (frame, inset) = if ratio < LOST { (3, 2) } else { (1, 0) };
    writeln!(
        svg,
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"rgb({grey},{grey},{grey})\" stroke=\"{}\" stroke-width=\"{frame}\"/>",
        x + inset,
        y + inset,
        BOX_WIDTH - 2 * inset,
        BOX_HEIGHT - 2 * inset,
        if ratio < LOST { "black" } else { "#999" },
    )?;
    let figure = if ratio >= 10.0 { format!("{ratio:.0}") } else { format!("{ratio:.2}") };
    text(svg, x + BOX_WIDTH / 2, y + 16, 13, "middle", ink, &figure)?;
    let peer = contenders[against.peer].name.split(' ').next().unwrap_or_default();
    text(svg, x + BOX_WIDTH / 2, y + 28, 9, "middle", ink, peer)
}

fn text(svg: &mut String, x: usize, y: usize, size: u32, anchor: &str, fill: &str, words: &str) -> Result<()> {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{words}</text>"
    )?;
    Ok(())
}
