//! `lockmeter-lab bench all`: every experiment, one after another, each in a process of its own, and one report.
//!
//! What an experiment measured is a file. One that is there is not measured again, so a run that was interrupted goes on where it
//! was.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::say;
use lockmeter_meter::reader::check_trusted;
use lockmeter_profile::recording::write_file;
use lockmeter_statistics::Machine;
use serde_json::{Value, json};

use super::{Stop, report};
use crate::arguments::bench::AllArguments;

/// One experiment.
pub struct Piece {
    /// The name of its file and its pictures.
    pub name: &'static str,
    /// Over its part of the report.
    pub title: &'static str,
    /// Arguments of lockmeter-lab.
    arguments: Vec<OsString>,
    /// Whether it prints its results as JSON, or as text and draws its picture itself.
    prints: Prints,
    /// About how long it takes on two cores.
    lasts: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Prints {
    Json,
    Text,
}

pub fn run(arguments: &AllArguments) -> Result<ExitCode> {
    let folder = &arguments.report;
    let data = folder.join("data");
    fs::create_dir_all(&data).map_err(|error| {
        Failure::error(
            Status::NoOutput,
            format!("cannot make {}: {error}; choose another place with --report", data.display()),
        )
    })?;
    // What lies there is read as results of before.
    folder.canonicalize().and_then(|folder| check_trusted(&folder.join("data"))).map_err(|error| {
        Failure::error(Status::NoOutput, format!("{error}; choose a folder of your own with --report"))
    })?;
    let pieces = pieces(arguments)?;
    let mut stop = Stop::catch()?;
    let mut left: Duration = missing(&pieces, &data).map(|piece| piece.lasts).sum();
    let mut pace = Pace::default();
    for piece in &pieces {
        let file = file(&data, piece.name);
        if file.exists() {
            say(format_args!("{}: measured before", piece.name));
            continue;
        }
        say(format_args!("{}: about {} to go in all", piece.name, shown(pace.corrected(left))));
        let begin = Instant::now();
        let measured = measure(piece)?;
        // What Ctrl-C cut short is not kept: it would pass for the whole.
        if !stop.go_on() {
            say(format_args!("lockmeter-lab: interrupted; the same command continues from here"));
            break;
        }
        match measured {
            Ok(results) => keep(&results, &file)?,
            Err(why) => say(format_args!("{}: {why}", piece.name)),
        }
        pace.note(piece.lasts, begin.elapsed());
        left = left.saturating_sub(piece.lasts);
    }
    let path = report::write(folder, &pieces, |name| load(&file(&data, name)))?;
    say(format_args!("lockmeter-lab: wrote {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

fn file(data: &Path, name: &str) -> PathBuf {
    data.join(name).with_extension("json")
}

fn missing<'a>(pieces: &'a [Piece], data: &Path) -> impl Iterator<Item = &'a Piece> {
    pieces.iter().filter(move |piece| !file(data, piece.name).exists())
}

fn load(file: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

/// Runs one experiment and gives its JSON. The inner error says why it gave nothing.
fn measure(piece: &Piece) -> Result<Result<Vec<u8>, String>> {
    let own = std::env::current_exe().context("cannot find lockmeter-lab's own file")?;
    // As it was before the experiment loaded it.
    let machine = Machine::here(DEFAULT_SEED);
    let output = Command::new(own)
        .args(&piece.arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot run lockmeter-lab itself")?;
    if output.status.success() {
        return Ok(Ok(match piece.prints {
            Prints::Json => output.stdout,
            Prints::Text => as_json(piece, machine, &output.stdout),
        }));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(Err(said.lines().last().unwrap_or("it printed no reason").to_owned()))
}

/// What a piece that knows no JSON printed, under the same names as the others' results.
fn as_json(piece: &Piece, machine: Machine, printed: &[u8]) -> Vec<u8> {
    let words: Vec<_> = piece.arguments.iter().map(|word| word.to_string_lossy()).collect();
    let machine = Machine { command: format!("lockmeter-lab {}", words.join(" ")), ..machine };
    json!({ "machine": machine, "text": String::from_utf8_lossy(printed) }).to_string().into_bytes()
}

/// The file appears only when it is complete.
fn keep(results: &[u8], file: &Path) -> Result<()> {
    let unfinished = file.with_extension("unfinished");
    write_file(&unfinished, results).and_then(|()| fs::rename(&unfinished, file)).map_err(|error| {
        let sentence = format!("cannot write {}: {error}; make room or choose another --report", file.display());
        Failure::error(Status::NoOutput, sentence)
    })
}

/// How fast this machine is, compared with the one on which the times were estimated.
#[derive(Default)]
struct Pace {
    estimated: Duration,
    took: Duration,
}

impl Pace {
    fn note(&mut self, estimated: Duration, took: Duration) {
        self.estimated += estimated;
        self.took += took;
    }

    fn corrected(&self, left: Duration) -> Duration {
        if self.estimated.is_zero() {
            left
        } else {
            left.mul_f64(self.took.as_secs_f64() / self.estimated.as_secs_f64())
        }
    }
}

fn shown(time: Duration) -> String {
    humantime::format_duration(Duration::from_secs(time.as_secs().max(1))).to_string()
}

/// The piece whose picture it draws itself.
pub const LOCKS: &str = "locks";
/// As `bench locks` has it.
const DEFAULT_SEED: u64 = 1;

/// What runs, short or whole.
fn pieces(arguments: &AllArguments) -> Result<Vec<Piece>> {
    let own = std::env::current_exe().context("cannot find lockmeter-lab's own file")?.into_os_string();
    let piece = |name, title, seconds, words: &str| Piece {
        name,
        title,
        arguments: words.split_whitespace().map(OsString::from).collect(),
        prints: Prints::Json,
        lasts: Duration::from_secs(seconds),
    };
    let either = |short: &'static str, whole: &'static str| if arguments.short { short } else { whole };
    let seconds = |short, whole| if arguments.short { short } else { whole };
    let mut overhead = piece(
        "overhead-mixed",
        "What metering costs a mix of work",
        seconds(60, 145),
        either("overhead --format json --runs 8", "overhead --format json --runs 20"),
    );
    overhead.arguments.extend(["--".into(), own]);
    overhead.arguments.extend(["bench", "mixed", "--users", "2", "--jobs", "15"].map(OsString::from));
    let mut breakpoint = piece(
        "breakpoint",
        "Breakpoint accounting",
        seconds(45, 160),
        either(
            "bench breakpoint --format json -b 4 -p 64 -t 64 -r 30 --rounds 8",
            "bench breakpoint --format json -b 4 -p 64 -t 64 -r 30 --rounds 30",
        ),
    );
    let mut locks = piece(
        LOCKS,
        "Our locks and their peers",
        seconds(35, 450),
        either("bench locks --quick --rounds 3 --no-pairs --no-duels", "bench locks --rounds 4"),
    );
    locks.prints = Prints::Text;
    locks.arguments.extend(["--svg".into(), arguments.report.join(LOCKS).with_extension("svg").into()]);
    breakpoint.arguments.extend(["--perf".into(), arguments.perf.clone().into()]);
    let mut pieces = vec![
        overhead,
        breakpoint,
        locks,
        piece(
            "fork-mail",
            "Mail delivery that forks a process for each message",
            seconds(30, 150),
            either(
                "bench fork-mail --format json -d 2s --rounds 2 --races 8",
                "bench fork-mail --format json -d 5s --rounds 5 --races 40",
            ),
        ),
        piece(
            "mixed",
            "A mix of work after AIM7",
            seconds(25, 100),
            either("bench mixed --format json --jobs 10", "bench mixed --format json --jobs 50"),
        ),
        piece(
            "model",
            "Predictions and what was measured",
            seconds(65, 150),
            either("bench model --format json --rounds 2", "bench model --format json --rounds 5"),
        ),
    ];
    if !arguments.short {
        pieces.push(piece(
            "fork-mail-fsync",
            "The same mail, written through to the disk",
            40,
            "bench fork-mail --format json -d 4s --rounds 2 --races 0 --fsync",
        ));
        pieces.push(piece(
            "overhead-kernel-build",
            "What metering kernel locks costs a kernel build",
            750,
            "overhead --format json --preset kernel-build --kernel --levels off,wait,naive --limit 0.5% --runs 300",
        ));
        pieces.push(piece(
            "overhead-kernel-build-hold",
            "What metering everything costs a kernel build",
            600,
            "overhead --format json --preset kernel-build --levels wait,hold --limit 2% --runs 120",
        ));
    }
    Ok(pieces)
}
