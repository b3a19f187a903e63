//! Who is metered: from the flags to a scope.

use std::ffi::OsString;

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_kernel::CgroupTree;
use lockmeter_kernel::contention::{ProcessScope, Scope};

use crate::arguments::ScopeArguments;

/// The scope that the flags ask for, with its description; `None` if they ask for nothing.
pub fn from_flags(arguments: &ScopeArguments, command: &[OsString]) -> Result<Option<(Scope, String)>> {
    let is_command = !command.is_empty();
    let asked = [arguments.all, !arguments.pid.is_empty(), arguments.cgroup.is_some(), is_command && !arguments.all];
    if asked.iter().filter(|asked| **asked).count() > 1 {
        let sentence = "choose one of -a, -p PID, --cgroup PATH and `-- COMMAND`; `-a -- COMMAND` meters the machine while a command runs";
        return Err(Failure::error(Status::Usage, sentence));
    }
    if !arguments.pid.is_empty() {
        let scope = ProcessScope { pids: once_each(&arguments.pid), with_children: !arguments.no_children };
        let words = words_for(&scope);
        return Ok(Some((Scope::Processes(scope), words)));
    }
    if let Some(path) = &arguments.cgroup {
        let cgroup = CgroupTree::find().resolve(path)?;
        let words = format!("control group {}", cgroup.path);
        return Ok(Some((Scope::Cgroup(cgroup), words)));
    }
    if let Some(program) = command.first().filter(|_| !arguments.all) {
        return Ok(Some((Scope::Children, format!("{} and its children", program.to_string_lossy()))));
    }
    Ok(arguments.all.then(|| (Scope::Machine, "whole machine".to_owned())))
}

fn once_each(pids: &[u32]) -> Vec<u32> {
    let mut once = Vec::new();
    for pid in pids {
        if !once.contains(pid) {
            once.push(*pid);
        }
    }
    once
}

fn words_for(scope: &ProcessScope) -> String {
    let pids: Vec<String> = scope.pids.iter().map(ToString::to_string).collect();
    let (processes, their) = if pids.len() == 1 { ("process", "its") } else { ("processes", "their") };
    let children = match scope.with_children {
        true => format!(" and {their} children"),
        false => format!(", without {their} children"),
    };
    format!("{processes} {}, {their} threads{children}", pids.join(", "))
}
