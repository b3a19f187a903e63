//! `lockmeter agent`: meters the whole machine until it is told to end, and serves metrics of it.

mod budget;
mod config;
mod flight;
mod memory;
mod notify;
mod sources;

use std::cell::Cell;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result};
use lockmeter_agent::identity::Workload;
use lockmeter_agent::metrics::{AgentState, Limits, Store};
use lockmeter_agent::runtime_names::{KnownNames, RuntimeState};
use lockmeter_agent::server::{Shared, locked, serve};
use lockmeter_cli::exit::{Failure, Status, report as report_error};
use lockmeter_cli::messages::{notice_once, say};
use lockmeter_cli::output;
use lockmeter_kernel::may_load_programs;
use lockmeter_profile::latency::{LatencyBuilder, LatencyQuery};
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{About, Dimension, Interval, RecordingKind, unix_now_ns};
use lockmeter_recorder::target::Target;
use lockmeter_recorder::{Ended, Recorder, Sink, StopSignals};
use signal_hook::consts::{SIGHUP, SIGUSR1};

use self::budget::{Budgets, Verdict};
use self::config::Config;
use self::flight::FlightRecorder;
use self::memory::Memory;
use self::notify::Notifier;
use self::sources::{AgentSources, Details, STACKS};
use crate::arguments::agent::AgentArguments;

pub fn run(arguments: &AgentArguments) -> Result<()> {
    let config = Config::read(arguments.config.as_deref())?;
    if arguments.print_config {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(config.text().as_bytes()).and_then(|()| out.flush());
        return written.map_err(|error| output::failed(None, error));
    }
    if arguments.check {
        say("lockmeter: the configuration can be used");
        return Ok(());
    }
    let mut signals = StopSignals::catch_for_service().context("cannot catch signals")?;
    let [hang_up, asked] = [SIGHUP, SIGUSR1].map(|signal| {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, Arc::clone(&flag)).map(|_| flag).context("cannot catch signals")
    });
    let (hang_up, asked) = (hang_up?, asked?);
    let about = lockmeter_recorder::describe(RecordingKind::Locks, "whole machine", STACKS);
    let limits = Limits { locks: config.most_locks, workloads: config.most_workloads };
    let store: Shared = Arc::new(Mutex::new(Store::new(limits, config.workloads)));
    let details = Rc::new(Cell::new(config.details()));
    let source = AgentSources::start(Rc::clone(&details)).map_err(with_what_to_add)?;
    let address = serve(config.listen, Arc::clone(&store)).map_err(|error| {
        let sentence = format!("cannot listen on {}: {error}; give another address as `listen`", config.listen);
        Failure::error(Status::Failed, sentence)
    })?;
    let settings = config.recorder.settings();
    let recorder = settings.map(|settings| FlightRecorder::start(settings, Arc::clone(&store))).transpose();
    let flight = recorder.context("cannot start a thread")?;
    let file = arguments.config.clone();
    let notifier = Notifier::from_environment();
    let next_due = Instant::now() + config.interval;
    let budgets = Budgets::new(Instant::now(), config.interval);
    let mut sink = AgentSink {
        about,
        store,
        details,
        file,
        config,
        hang_up,
        asked,
        notifier,
        next_due,
        budgets,
        shed: 0,
        memory: Memory::look(),
        flight,
        names: KnownNames::new(RuntimeState::below("/")),
    };
    sink.say_state();
    say(format_args!("lockmeter: metering the whole machine; metrics at http://{address}/metrics"));
    sink.notifier.ready();
    let recorder = Recorder { signals: &mut signals, target: &Target::None, duration: None };
    let ended: Result<Ended> = recorder.run(source, &mut sink);
    sink.notifier.stopping();
    sink.flight.into_iter().for_each(FlightRecorder::finish);
    ended.map(|_| ())
}

/// What the agent may need, for who has not given it that.
const WHAT_TO_ADD: &str = "a systemd unit has to allow it CAP_BPF, CAP_PERFMON, CAP_SYSLOG, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH \
    (CapabilityBoundingSet=), a container needs `hostPID: true` and \
    `securityContext: {capabilities: {add: [BPF, PERFMON, SYSLOG, SYS_PTRACE, DAC_READ_SEARCH]}}`";

fn with_what_to_add(error: anyhow::Error) -> anyhow::Error {
    match may_load_programs() {
        true => error,
        false => Failure::error(Status::NotAllowed, format!("{error}; {WHAT_TO_ADD}")),
    }
}

impl Config {
    fn details(&self) -> Details {
        Details { threads: self.threads, programs: self.programs, latency: self.latency, holds: self.holds }
    }
}

/// Adds what is metered to the metrics and hands it to the flight recorder, and keeps budgets and configuration.
struct AgentSink {
    about: About,
    store: Shared,
    /// What the source is to meter.
    details: Rc<Cell<Details>>,
    file: Option<PathBuf>,
    config: Config,
    hang_up: Arc<AtomicBool>,
    /// Somebody asks for a recording.
    asked: Arc<AtomicBool>,
    notifier: Notifier,
    next_due: Instant,
    budgets: Budgets,
    /// How many of the configured details are not metered.
    shed: usize,
    /// What metering took when last looked at.
    memory: Memory,
    flight: Option<FlightRecorder>,
    /// What runtimes call their containers.
    names: KnownNames,
}

impl AgentSink {
    fn keep_budgets(&mut self) {
        self.memory = Memory::look();
        let memory = self.memory.whole() as f64 / (self.config.memory_budget_mb * 1_000_000) as f64;
        let allowed_ns_per_s = self.config.cpu_budget_percent / 100.0 * f64::from(self.about.cpus) * 1e9;
        let used_ns = locked(&self.store).cpu_ns();
        let details = self.config.details().named().iter().filter(|(_, metered)| *metered).count();
        match self.budgets.look(Instant::now(), used_ns, allowed_ns_per_s, memory) {
            Verdict::Shed(budget) if self.shed < details => {
                self.shed += 1;
                locked(&self.store).count_shed(budget);
                say(format_args!("lockmeter: metering less, to keep the {budget} budget: {}", self.in_words()));
            }
            Verdict::Restore if self.shed > 0 => {
                self.shed -= 1;
                say(format_args!("lockmeter: metering more again: {}", self.in_words()));
            }
            _ => {}
        }
        self.details.set(self.config.details().without(self.shed));
    }

    fn in_words(&self) -> String {
        let left = self.config.details().without(self.shed).named();
        let left: Vec<&str> = left.iter().filter(|(_, metered)| *metered).map(|(name, _)| *name).collect();
        if left.is_empty() { "kernel locks only".to_owned() } else { format!("kernel locks, {}", left.join(", ")) }
    }

    /// What the metrics say of the agent itself.
    fn say_state(&self) {
        let wanted = self.config.details().named();
        let metered = self.config.details().without(self.shed).named();
        let details = wanted.iter().zip(metered).filter(|((_, wanted), _)| *wanted).map(|(_, metered)| metered);
        let state = AgentState {
            version: self.about.lockmeter_version.clone(),
            kernel: self.about.kernel_release.clone(),
            cpus: self.about.cpus,
            memory: self.memory.named().to_vec(),
            budgets: vec![("cpu", self.budgets.cpu), ("memory", self.budgets.memory)],
            details: details.collect(),
            recorder: self.flight.as_ref().map(FlightRecorder::kept),
        };
        locked(&self.store).set_state(state);
    }

    /// Reads the configuration again. One that makes no sense changes nothing.
    fn reload(&mut self) {
        self.notifier.reloading();
        match Config::read(self.file.as_deref()) {
            Ok(config) => {
                let fixed =
                    |config: &Config| (config.listen, config.most_locks, config.workloads, config.most_workloads);
                if fixed(&config) != fixed(&self.config) {
                    say("lockmeter: listen, most_locks, workloads and most_workloads change only with a restart");
                }
                if let (Some(flight), Some(settings)) = (&mut self.flight, config.recorder.settings()) {
                    flight.configure(settings);
                }
                self.config = config;
                self.shed = 0;
                self.budgets.judge_after(self.config.interval);
                self.details.set(self.config.details());
                self.next_due = self.next_due.min(Instant::now() + self.config.interval);
                self.say_state();
                locked(&self.store).count_reload("done");
                say("lockmeter: read the configuration again");
            }
            Err(error) => {
                let _ = report_error(&error);
                say("lockmeter: the old configuration stays in use");
                locked(&self.store).count_reload("refused");
            }
        }
        self.notifier.ready();
    }
}

/// How far the wall clock is ahead of the intervals, one of which ends now. It was set since metering began, or the machine slept: intervals
/// go on as if it had not.
fn stepped_ns(interval: &Interval) -> i64 {
    /// Between an interval's end and this less passes, and smaller steps do no harm.
    const LEAST_NS: u64 = 2_000_000_000;
    let end_unix_ns = interval.start_unix_ns.saturating_add(interval.duration_ns);
    let now_ns = unix_now_ns();
    let is_step = now_ns.abs_diff(end_unix_ns) >= LEAST_NS;
    if is_step { now_ns.wrapping_sub(end_unix_ns).cast_signed() } else { 0 }
}

impl Sink for AgentSink {
    type Error = anyhow::Error;

    fn next_due(&self) -> Instant {
        self.next_due
    }

    fn take(&mut self, interval: Interval) -> Result<()> {
        let by = if self.config.workloads { vec![Dimension::Lock, Dimension::Cgroup] } else { vec![Dimension::Lock] };
        let mut builder = ReportBuilder::new(&self.about, &Query::by(by));
        builder.add(&interval);
        let mut latency = LatencyBuilder::new(&self.about, &LatencyQuery::default());
        latency.add(&interval);
        let (mut report, latency) = (builder.finish(), latency.report());
        let stepped_ns = stepped_ns(&interval);
        report.start_unix_ns = report.start_unix_ns.saturating_add_signed(stepped_ns);
        let mut store = locked(&self.store);
        store.add(&report, |path| Workload::of_cgroup(path, &mut self.names));
        store.add_latency(&latency);
        drop(store);
        self.names.end_round();
        if let Some(flight) = &mut self.flight {
            flight.take(&self.about, &interval, &report, stepped_ns);
        }
        Ok(())
    }

    fn due(&mut self) -> Result<()> {
        self.keep_budgets();
        self.say_state();
        self.next_due = Instant::now() + self.config.interval;
        Ok(())
    }

    fn notice(&mut self, sentence: String) {
        notice_once(sentence);
    }

    fn tick(&mut self) {
        self.notifier.alive();
        if self.hang_up.swap(false, Ordering::Relaxed) {
            self.reload();
        }
        if self.asked.swap(false, Ordering::Relaxed) {
            match &mut self.flight {
                Some(flight) => flight.asked(&self.about),
                None => say("lockmeter: no recording is written: the configuration names no folder for them"),
            }
        }
    }
}
