//! `lockmeter rules`: which rules there are, and what those of a file match in a recording.

use std::io::{self, Write};

use anyhow::Result;
use lockmeter_cli::ResultFormat;
use lockmeter_cli::output;
use lockmeter_cli::progress::{Progress, Unit};
use lockmeter_profile::rules::{Rule, RuleId, Rules, Trial, Tried, installed};
use lockmeter_render::escape::{Escaping, escaped};
use lockmeter_render::{units, write_json};
use serde_json::{Value, json};

use crate::arguments::{RulesArguments, RulesCommand, RulesListArguments, RulesTestArguments};
use crate::input;

/// Patterns that are shown of a rule.
const SHOWN_PATTERNS: usize = 3;

const MILLION: u128 = 1_000_000;

pub fn run(arguments: &RulesArguments) -> Result<()> {
    let mut out = output::open(None)?;
    let written = match &arguments.command {
        RulesCommand::List(arguments) => list(arguments, &mut out),
        RulesCommand::Test(arguments) => {
            let trial = try_rules(arguments)?;
            match arguments.format {
                ResultFormat::Table => print_trial(&trial, &mut Escaping::text(&mut out)),
                ResultFormat::Json => write_json(&trial_json(&trial), &mut out),
            }
        }
    };
    written.and_then(|()| out.flush()).map_err(|error| output::failed(None, error))
}

// ---- list ------------------------------------------------------------------------------------------------------------

fn list(arguments: &RulesListArguments, out: &mut dyn Write) -> io::Result<()> {
    let rules = installed();
    match arguments.format {
        ResultFormat::Table => print_list(rules, &mut Escaping::text(out)),
        ResultFormat::Json => {
            let sets: Vec<Value> = rules.sets().iter().map(|set| {
                json!({ "name": set.name, "version": set.version, "checksum": format!("{:08x}", set.checksum) })
            }).collect();
            let all: Vec<Value> = rules.all().map(|(_, rule)| rule_json(rules, rule)).collect();
            write_json(&json!({ "sets": sets, "rules": all }), out)
        }
    }
}

fn rule_json(rules: &Rules, rule: &Rule) -> Value {
    json!({
        "set": rules.sets().get(rule.set).map(|set| &set.name),
        "file": rule.file,
        "line": rule.line,
        "name": rule.name,
        "is": rule.is.name(),
        "kind": rule.kind.name(),
        "mode": rule.mode.name(),
        "function": rule.functions.all(),
        "variable": rule.variable,
        "class": rule.class,
        "in_file": rule.files.all(),
    })
}

fn print_list(rules: &Rules, out: &mut impl Write) -> io::Result<()> {
    for (at, set) in rules.sets().iter().enumerate() {
        let of_set: Vec<&Rule> = rules.all().map(|(_, rule)| rule).filter(|rule| rule.set == at).collect();
        writeln!(out, "{}, {} rules", escaped(&set.to_string()), of_set.len())?;
        for rule in of_set {
            let (name, place) = (label(rule), format!("{}:{}", rule.file, rule.line));
            writeln!(out, "  {:<9}  {:<9}  {}", rule.is.name(), rule.kind.name(), escaped(&name))?;
            writeln!(out, "                         {}  ({})", escaped(&matched(rule)), escaped(&place))?;
        }
    }
    Ok(())
}

/// What a person calls a rule.
fn label(rule: &Rule) -> String {
    rule.name.clone().or_else(|| rule.functions.all().first().cloned()).unwrap_or_else(|| format!("line {}", rule.line))
}

/// What a rule goes by, in words.
fn matched(rule: &Rule) -> String {
    let by_other = rule.variable.iter().map(|variable| format!("variable {variable}"));
    let by_class = rule.class.iter().map(|class| format!("class {class}"));
    let functions = rule.functions.all();
    let shown = functions.iter().take(SHOWN_PATTERNS).cloned();
    let more = functions.len().saturating_sub(SHOWN_PATTERNS);
    let more = (more > 0).then(|| format!("{more} more"));
    let by: Vec<String> = by_other.chain(by_class).chain(shown).chain(more).collect();
    match rule.files.all().first() {
        Some(file) if by.is_empty() => format!("any function of {file}"),
        Some(file) => format!("{} in {file}", by.join(", ")),
        None => by.join(", "),
    }
}

// ---- test ------------------------------------------------------------------------------------------------------------

fn try_rules(arguments: &RulesTestArguments) -> Result<Trial<'static>> {
    // As it was recorded: the rules are tried, not applied.
    let mut recording = input::open_as_recorded(&arguments.recording)?;
    let mut trial = Trial::new(installed());
    let mut progress =
        Progress::of(format_args!("reading {}", recording.name()), Unit::Bytes, recording.length_bytes());
    while let Some(interval) = recording.next_interval()? {
        trial.add(&interval);
        progress.reach(recording.read_bytes());
    }
    Ok(trial)
}

fn share_ppm(part_ns: u64, whole_ns: u64) -> Option<u32> {
    let ppm = (u128::from(part_ns) * MILLION).checked_div(u128::from(whole_ns))?;
    u32::try_from(ppm).ok()
}

/// Why a rule matched nothing.
fn why_not(rule: &Rule, tried: &Tried) -> &'static str {
    if rule.variable.is_some() || rule.class.is_some() {
        "not tried: a recording does not say in which variable a lock lies, nor a thread's class"
    } else if rule.layer != lockmeter_profile::rules::Layer::Built {
        "not tried: only rules for what programs build themselves can be"
    } else if !tried.lost_to.is_empty() {
        "decides nothing: another rule comes first wherever it matches"
    } else if tried.function_only > 0 {
        "never matched: its function is on stacks, but `file`, `of`, `inside` or `direct` does not match there"
    } else {
        "never matched: its function is on no stack"
    }
}

fn by_name(id: RuleId) -> String {
    let rule = installed().get(id);
    rule.map_or_else(String::new, |rule| format!("{} ({}:{})", label(rule), rule.file, rule.line))
}

fn print_trial(trial: &Trial<'_>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "    WAITED   SHARE      ASLEEP   SHARE   STACKS  RULE")?;
    for (id, tried) in trial.tried() {
        let Some(rule) = installed().get(id) else { continue };
        let share = |part, whole| share_ppm(part, whole).map_or("-".to_owned(), |ppm| units::share(ppm.into()));
        writeln!(
            out,
            "{:>10}  {:>6}  {:>10}  {:>6}  {:>7}  {} ({}:{})",
            units::duration(tried.waited_ns),
            share(tried.waited_ns, trial.waited_ns),
            units::duration(tried.asleep_ns),
            share(tried.asleep_ns, trial.asleep_ns),
            tried.stacks,
            escaped(&label(rule)),
            escaped(&rule.file),
            rule.line
        )?;
        for (winner, ns) in &tried.lost_to {
            let sentence = format!("overlaps with {}, which decides {} of it", by_name(*winner), units::duration(*ns));
            writeln!(out, "            {}", escaped(&sentence))?;
        }
        if tried.stacks == 0 {
            writeln!(out, "            {}", why_not(rule, tried))?;
        }
    }
    writeln!(
        out,
        "shares are of {} waited for locks and conditions of programs, and of {} that threads were found asleep",
        units::duration(trial.waited_ns),
        units::duration(trial.asleep_ns)
    )
}

fn trial_json(trial: &Trial<'_>) -> Value {
    let rules: Vec<Value> = trial
        .tried()
        .filter_map(|(id, tried)| {
            let rule = installed().get(id)?;
            let overlaps: Vec<Value> = tried
                .lost_to
                .iter()
                .filter_map(|(winner, ns)| {
                    let winner = installed().get(*winner)?;
                    Some(json!({ "rule": label(winner), "file": winner.file, "line": winner.line, "total_ns": ns }))
                })
                .collect();
            Some(json!({
                "rule": label(rule),
                "line": rule.line,
                "waited_ns": tried.waited_ns,
                "waited_ppm": share_ppm(tried.waited_ns, trial.waited_ns),
                "asleep_ns": tried.asleep_ns,
                "asleep_ppm": share_ppm(tried.asleep_ns, trial.asleep_ns),
                "stacks": tried.stacks,
                "overlaps": overlaps,
                "unmatched": (tried.stacks == 0).then(|| why_not(rule, tried)),
            }))
        })
        .collect();
    json!({ "waited_ns": trial.waited_ns, "asleep_ns": trial.asleep_ns, "rules": rules })
}
