//! Pictures of measured results, as SVG, readable in black and white; as PNG, too, where `rsvg-convert` is installed.

pub mod charts;
mod file;
mod svg;

pub use file::write;
pub use svg::{Anchor, Stroke, Style, Svg};
