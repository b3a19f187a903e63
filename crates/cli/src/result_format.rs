//! The formats of a result that is one table.

use clap::ValueEnum;

/// How to write a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// For people
    Table,
    /// For programs
    Json,
}
