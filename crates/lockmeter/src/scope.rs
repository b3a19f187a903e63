//! Who is metered: from the flags to a scope.

use std::ffi::OsString;

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_kernel::CgroupTree;
use lockmeter_kernel::contention::Scope;

use crate::arguments::ScopeArguments;

/// The scope that the flags ask for, with its description; `None` if they ask for nothing.
pub fn from_flags(arguments: &ScopeArguments, command: &[OsString]) -> Result<Option<(Scope, String)>> {
    let asked = [arguments.all, arguments.pid.is_some(), arguments.cgroup.is_some(), !command.is_empty()];
    if asked.iter().filter(|asked| **asked).count() > 1 {
        return Err(Failure::error(Status::Usage, "choose one of -a, -p PID, --cgroup PATH and `-- COMMAND`"));
    }
    if let Some(pid) = arguments.pid {
        return Ok(Some((Scope::Process(pid), format!("process {pid}, its threads and its children"))));
    }
    if let Some(path) = &arguments.cgroup {
        let cgroup = CgroupTree::find().resolve(path)?;
        let words = format!("control group {}", cgroup.path);
        return Ok(Some((Scope::Cgroup(cgroup), words)));
    }
    if let Some(program) = command.first() {
        return Ok(Some((Scope::Children, format!("{} and its children", program.to_string_lossy()))));
    }
    Ok(arguments.all.then(|| (Scope::Machine, "whole machine".to_owned())))
}
