//! Who waited, as a fleet tells workloads apart.

use clap::ValueEnum;
use lockmeter_agent::identity::Workload;
use lockmeter_agent::runtime_names::{KnownNames, RuntimeState};
use lockmeter_profile::{Dimension, Row};

/// What a workload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkloadBy {
    /// A systemd unit; of a container, its pod's or its own name
    Unit,
    /// A container, with its namespace and pod where they are known; a unit where there is none
    Container,
    /// The path of a control group
    Cgroup,
    /// The name of a thread
    Command,
}

impl WorkloadBy {
    /// What a report must be grouped by to tell workloads apart.
    pub const fn dimension(self) -> Dimension {
        match self {
            Self::Unit | Self::Container | Self::Cgroup => Dimension::Cgroup,
            Self::Command => Dimension::Task,
        }
    }

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Container => "container",
            Self::Cgroup => "cgroup",
            Self::Command => "command",
        }
    }
}

/// Names workloads.
pub struct Workloads {
    by: WorkloadBy,
    names: KnownNames,
}

impl Workloads {
    /// Containers have the names that the runtimes of this machine know them by, and their ids otherwise.
    pub fn new(by: WorkloadBy) -> Self {
        Self { by, names: KnownNames::new(RuntimeState::below("/")) }
    }

    /// Whose row it is; `None` if that is not known.
    pub fn of(&mut self, row: &Row) -> Option<String> {
        match self.by {
            WorkloadBy::Cgroup => row.cgroup.clone(),
            WorkloadBy::Command => row.task.as_ref().map(|task| task.comm.clone()),
            WorkloadBy::Unit | WorkloadBy::Container => {
                let workload = Workload::of_cgroup(row.cgroup.as_deref()?, &mut self.names);
                Some(self.label(workload))
            }
        }
    }

    fn label(&self, of: Workload) -> String {
        let container = [of.namespace, of.pod, of.container];
        let mut known = container.iter().filter(|part| !part.is_empty()).map(String::as_str);
        match self.by {
            WorkloadBy::Unit if of.unit.is_empty() => {
                known.nth(usize::from(!container[0].is_empty())).unwrap_or("").to_owned()
            }
            _ if of.unit.is_empty() => known.collect::<Vec<_>>().join("/"),
            _ => of.unit,
        }
    }
}
