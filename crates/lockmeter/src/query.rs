//! From the command line's flags to a query of the model.

use lockmeter_cli::exit::{Failure, Status};
use lockmeter_profile::view::Query;
use lockmeter_profile::{Dimension, Space};
use lockmeter_render::SortKey;

use crate::arguments::{QueryArguments, Window};

/// The query that the flags ask for.
pub fn from_flags(arguments: &QueryArguments, window: Option<Window>) -> Query {
    let nanoseconds = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    Query {
        by: arguments.by.0.clone(),
        window: window.map(|window| (nanoseconds(window.from), window.to.map_or(u64::MAX, nanoseconds))),
        kind: arguments.kind,
        mode: arguments.mode,
        space: match (arguments.user, arguments.kernel) {
            (true, _) => Some(Space::User),
            (_, true) => Some(Space::Kernel),
            _ => None,
        },
        lock: arguments.lock.clone(),
        task: arguments.task.clone(),
        include_own: arguments.own,
    }
}

/// The column to sort by; checked before any work is done.
pub fn sort_key(column: &str, by: &[Dimension]) -> anyhow::Result<SortKey> {
    SortKey::parse(column, by).map_err(|error| Failure::error(Status::Usage, error.to_string()))
}
