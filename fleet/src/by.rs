//! What an answer tells apart.

use clap::ValueEnum;

/// A column of `samples` that people ask by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The lock, and its kind
    Lock,
    /// Read or write, as far as the lock has both
    Mode,
    /// The function that waited
    Caller,
    /// The function that made it wait
    Blocker,
    /// How the blocker is known, or why not
    Reason,
    /// The machine
    Host,
    /// The unit, container, control group or thread, as it was exported
    Workload,
    /// The release of the kernel
    Kernel,
}

impl By {
    const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Lock => &["lock", "kind"],
            Self::Mode => &["mode"],
            Self::Caller => &["caller"],
            Self::Blocker => &["blocker"],
            Self::Reason => &["blocker_reason"],
            Self::Host => &["host"],
            Self::Workload => &["workload"],
            Self::Kernel => &["kernel"],
        }
    }
}

/// The columns, each once.
pub fn columns(by: &[By]) -> Vec<&'static str> {
    let mut columns = Vec::new();
    for column in by.iter().flat_map(|by| by.columns()).copied() {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

/// Waits by these columns and by host, in SQL: `of_hosts`, with the time that was metered of what they tell apart.
///
/// A share of the metered time is of the time of the machines that it is about: by host of that host, by kernel of those that ran it, and
/// otherwise of all.
pub fn of_hosts(columns: &[&str], filter: &str) -> String {
    let by = columns.join(", ");
    let apart = columns.iter().copied().filter(|column| matches!(*column, "host" | "kernel" | "date" | "hour"));
    let apart = apart.collect::<Vec<_>>();
    let (selected, grouped, join) = if apart.is_empty() {
        (String::new(), String::new(), "CROSS JOIN metered".to_owned())
    } else {
        let names = apart.join(", ");
        let same = apart.iter().map(|column| format!("waits.{column} = metered.{column}")).collect::<Vec<_>>();
        (format!("{names}, "), format!(" GROUP BY {names}"), format!("INNER JOIN metered ON {}", same.join(" AND ")))
    };
    let with_host = if columns.contains(&"host") { by.clone() } else { format!("{by}, host") };
    let waits = with_host.split(", ").map(|column| format!("waits.{column}")).collect::<Vec<_>>().join(", ");
    format!(
        "WITH waits AS (
            SELECT {with_host}, sum(count) AS waits, sum(total_ns) AS waited_ns, sum(spin_ns) AS spin_ns, max(max_ns) AS longest_ns
            FROM samples WHERE happened = 'wait'{filter} GROUP BY {with_host}
        ), metered AS (
            SELECT {selected}CAST(sum(metered_ns) AS DOUBLE) AS metered_ns FROM recordings{grouped}
        ), of_hosts AS (
            SELECT {waits}, waits, waited_ns, spin_ns, longest_ns, metered_ns FROM waits {join}
        )"
    )
}
