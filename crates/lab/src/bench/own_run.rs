//! A run of one of this program's own benches, in a process of its own, that is metered as `lockmeter record --user --hold` would.

use std::ffi::OsString;

use anyhow::{Context, Result, anyhow};
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{RecordingKind, Report};
use lockmeter_recorder::{LockSources, Which, describe};

use super::Stop;
use crate::metered_run::{self, EachInterval};
use crate::running_command::Scratch;

/// What `lockmeter-lab bench BENCH WORDS…` waited for and held.
pub fn metered(scratch: &Scratch, stop: &mut Stop, bench: &str, words: &[&str], query: &Query) -> Result<Report> {
    let own = std::env::current_exe().context("cannot find lockmeter-lab's own file")?;
    let mut command: Vec<OsString> = vec![own.into(), "bench".into(), bench.into()];
    command.extend(words.iter().map(OsString::from));
    let options = metered_run::options(&command, Which::User, true);
    let about = describe(RecordingKind::Locks, "a bench of lockmeter-lab", options.stacks);
    let mut builder = ReportBuilder::new(&about, query);
    let sources = LockSources::start(&options)?;
    let mut sink = EachInterval::to(|interval| {
        builder.add(&interval);
        Ok(())
    });
    let ended = metered_run::run(&command, sources, scratch, &mut stop.signals, &mut sink)?;
    stop.asked |= ended.interrupted;
    if !ended.status.success() {
        let said = scratch.output_text();
        let last = said.lines().last().unwrap_or("it printed nothing");
        return Err(anyhow!("a metered run of `bench {bench} {}` failed: {last}", words.join(" ")));
    }
    Ok(builder.finish())
}
