//! The grid as a picture: for each of our locks a table of boxes, one a point. Dark is slower than the best peer, so a good
//! lock is a white page, also on paper.

use std::path::Path;

use anyhow::{Context, Result};
use lockmeter_pictures::{Anchor, Stroke, Style, Svg};
use lockmeter_statistics::Machine;

use crate::contender::Contender;
use crate::grid::{Cell, Measured, Point};
use crate::table::{LOST, WON, duration};

const BOX_WIDTH: f64 = 66.0;
const BOX_HEIGHT: f64 = 34.0;
/// Between groups of read shares.
const GROUP_GAP: f64 = 8.0;
const LEFT: f64 = 150.0;
const TOP: f64 = 96.0;
const PANEL_GAP: f64 = 46.0;
/// A share of the best peer this low is drawn black; above `WON` all is white.
const BLACK: f64 = 0.4;

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
    fn row(&self, read: usize, section: usize) -> f64 {
        as_f64(read * self.sections.len() + section) * BOX_HEIGHT + as_f64(read) * GROUP_GAP
    }

    fn panel_width(&self) -> f64 {
        as_f64(self.threads.len()) * BOX_WIDTH
    }

    /// The upper left corner of a point's box in the panel that begins at `left`.
    fn corner(&self, left: f64, point: Point) -> (f64, f64) {
        fn position<T: PartialEq>(values: &[T], value: &T) -> usize {
            values.iter().position(|known| known == value).unwrap_or(0)
        }
        let column = position(&self.threads, &point.threads);
        let row = self.row(position(&self.reads, &point.read_percent), position(&self.sections, &point.section_ns));
        (left + as_f64(column) * BOX_WIDTH, TOP + row)
    }
}

/// Overwrites `path`, and the PNG beside it where `rsvg-convert` is installed; says whether it was.
pub fn write(path: &Path, grid: &[Measured], contenders: &[Contender], machine: &Machine) -> Result<bool> {
    lockmeter_pictures::write(path, &draw(grid, contenders, machine))
        .with_context(|| format!("cannot write the picture {}", path.display()))
}

fn draw(grid: &[Measured], contenders: &[Contender], machine: &Machine) -> String {
    let axes = Axes::of(grid);
    let ours: Vec<usize> = (0..contenders.len()).filter(|&at| contenders[at].ours).collect();
    let panel = axes.panel_width() + PANEL_GAP;
    let height = TOP + axes.row(axes.reads.len(), 0) + 60.0;
    let mut svg = Svg::new(LEFT + as_f64(ours.len()) * panel, height);
    let left_aligned = |size| Style::new(size, Anchor::Start);
    let title = "Throughput of our locks as a share of the best peer's at the same point";
    svg.text(12.0, 26.0, left_aligned(17), title);
    let key = "white: as fast as the best of glibc, std, parking_lot, absl, or faster · the darker, the slower · frame: below 0.9";
    svg.text(12.0, 46.0, left_aligned(12), key);
    name_rows(&mut svg, &axes);
    for (number, &at) in ours.iter().enumerate() {
        let left = LEFT + as_f64(number) * panel;
        svg.text(left, TOP - 26.0, left_aligned(15), contenders[at].name);
        for (column, threads) in axes.threads.iter().enumerate() {
            let more = if *threads > machine.cpus { "*" } else { "" };
            let middle = left + (as_f64(column) + 0.5) * BOX_WIDTH;
            svg.text(middle, TOP - 8.0, Style::new(11, Anchor::Middle), &format!("{threads} thr{more}"));
        }
        for measured in grid {
            if let Some(cell) = measured.cells.iter().find(|cell| cell.contender == at) {
                draw_point(&mut svg, axes.corner(left, measured.point), cell, contenders);
            }
        }
    }
    let foot = format!(
        "* more threads than CPUs. {}, {} CPUs, Linux {}, {}",
        machine.cpu, machine.cpus, machine.kernel, machine.date
    );
    svg.text(12.0, height - 16.0, left_aligned(11), &foot);
    svg.finish()
}

fn name_rows(svg: &mut Svg, axes: &Axes) {
    for (read, percent) in axes.reads.iter().enumerate() {
        let top = TOP + axes.row(read, 0);
        svg.text(12.0, top + 22.0, Style::new(13, Anchor::Start), &format!("{percent} % reads"));
        for (section, section_ns) in axes.sections.iter().enumerate() {
            let middle = TOP + axes.row(read, section) + BOX_HEIGHT / 2.0 + 4.0;
            svg.text(LEFT - 8.0, middle, Style::new(11, Anchor::End), &duration(f64::from(*section_ns)));
        }
    }
}

/// The box of one point, from its upper left corner.
fn draw_point(svg: &mut Svg, (x, y): (f64, f64), cell: &Cell, contenders: &[Contender]) {
    let Some(against) = cell.against_best else { return };
    let ratio = against.ratio.median;
    let light = ((ratio - BLACK) / (WON - BLACK)).clamp(0.0, 1.0);
    let grey = (light * 255.0) as u8;
    let fill = if light < 0.55 { "white" } else { "black" };
    let (edge, inset) =
        if ratio < LOST { (Stroke::black(3.0), 2.0) } else { (Stroke { colour: "#999", ..Stroke::black(1.0) }, 0.0) };
    let size = (BOX_WIDTH - 2.0 * inset, BOX_HEIGHT - 2.0 * inset);
    svg.rectangle((x + inset, y + inset), size, &format!("rgb({grey},{grey},{grey})"), edge);
    let figure = if ratio >= 10.0 { format!("{ratio:.0}") } else { format!("{ratio:.2}") };
    let inside = |size| Style { fill, ..Style::new(size, Anchor::Middle) };
    svg.text(x + BOX_WIDTH / 2.0, y + 16.0, inside(13), &figure);
    let peer = contenders[against.peer].name.split(' ').next().unwrap_or_default();
    svg.text(x + BOX_WIDTH / 2.0, y + 28.0, inside(9), peer);
}

fn as_f64(count: usize) -> f64 {
    count as f64
}
