//! lockmeter's sinks: what turns a [`Report`] into something to look at.
//!
//! One [`Exporter`] per format, each in a file of its own: [`Table`] for people, [`Json`] and [`Csv`] for programs,
//! [`Folded`] for flame graphs. [`Pprof`] is made from two reports: who waits, and who makes them wait; a page of [`html`] from several, of
//! the whole and of each interval.
//! What a row says is defined once, in [`columns`]; every format and `--sort` follow from it. A [`Diff`] of two reports has
//! its own columns, in [`diff`], and goes through the same [`Table`], [`Json`] and [`Csv`].

mod csv;
pub mod escape;
mod folded;
mod foot;
pub mod grid;
mod headline;
mod histograms;
pub mod html;
mod json;
mod slow_holds;
mod stacks;
mod table;
mod terminal;
mod threads;
pub mod units;

pub mod columns;
pub mod diff;
pub mod latency;
mod pprof;
mod pprof_proto;

use std::io;

use lockmeter_profile::Report;
#[cfg(doc)]
use lockmeter_profile::diff::Diff;

pub use crate::columns::{SortKey, UnknownSortKey, edit_distance};
pub use crate::csv::Csv;
pub use crate::diff::DiffHeadline;
use crate::escape::{Escaping, Form};
pub use crate::folded::{Folded, FoldedStacks};
pub use crate::foot::{FootLine, lines as foot_lines, lost as lost_lines, used_ppm};
pub use crate::grid::{cut_end, wrap};
pub use crate::headline::Headline;
pub use crate::histograms::{Histograms, drawn_histogram};
pub use crate::json::{JSON_SCHEMA, Json, JsonLine, write_json};
pub use crate::pprof::Pprof;
pub use crate::table::{DEFAULT_FRAMES, LaidOut, Table, head_sentences};
pub use crate::terminal::{Colour, Weight};
pub use crate::threads::{WaitingNow, has_deadlock, waiting_now, words as state_words};

/// A format in which a report, or a [`Diff`], can be written.
pub trait Exporter<T = Report> {
    /// How names that hold harmful characters are spelled.
    fn form(&self) -> Form;

    /// Makes the whole of it for [`Self::write`], which escapes it.
    fn export(&self, whole: &T, out: &mut dyn io::Write) -> io::Result<()>;

    /// Writes the whole of it. Nothing is written beyond it, so several can follow one another.
    fn write(&self, whole: &T, out: &mut dyn io::Write) -> io::Result<()> {
        self.export(whole, &mut Escaping::new(out, self.form()))
    }
}

/// The README's example, which tests run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
