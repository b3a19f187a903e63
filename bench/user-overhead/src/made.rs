//! What metering costs a mutex that is made, and a child that is forked, takes a lock for the first time, and ends: whole runs of
//! `workloads/user/lock-makers.c`, bare and metered in random order.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lockmeter_meter::reader::{Level, Session, UserSource};
use lockmeter_statistics::{Estimate, Random, median};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/user/lock-makers.c");
/// Of the random order.
const SEED: u64 = 2;

/// What is made, how many in a run, and the unit of its time, in nanoseconds.
const MADE: [(&str, &str, u32, &str, f64); 2] = [
    ("init", "pthread_mutex_init", 1_000_000, "ns", 1.0),
    ("fork", "fork, the child's first lock, its end", 200, "us", 1000.0),
];

/// A way to run the program.
struct Contender {
    name: &'static str,
    environment: Vec<(&'static str, OsString)>,
    each_ns: Vec<f64>,
    faults: Vec<f64>,
    source: Option<UserSource>,
    // Dropped after its reader.
    _session: Option<Session>,
}

pub fn measure(rounds: usize, library: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no folder for a program")?;
    let program = build(folder.path())?;
    let mut random = Random::new(SEED);
    for (what, words, count, unit, unit_ns) in MADE {
        let mut contenders = contenders(library)?;
        for _ in 0..rounds {
            let mut order: Vec<usize> = (0..contenders.len()).collect();
            random.shuffle(&mut order);
            for at in order {
                contenders[at].run(&program, what, count)?;
            }
        }
        println!("{words}: {rounds} runs of {count} each");
        println!(
            "{:<12} {:>12} {:>24} {:>26} {:>8}",
            "", unit, "ratio (95 % interval)", "more (95 % interval)", "faults"
        );
        for contender in &contenders {
            contender.print(&contenders[0].each_ns, unit_ns, &mut random);
        }
    }
    Ok(())
}

fn build(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("lock-makers");
    let flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-pthread", "-o"];
    let compiled = Command::new("cc").args(flags).arg(&program).arg(SOURCE).status().context("cannot run cc")?;
    ensure!(compiled.success(), "cc makes no program of {SOURCE}");
    Ok(program)
}

/// Bare first.
fn contenders(library: &Path) -> Result<Vec<Contender>> {
    let bare = |name| Contender {
        name,
        environment: Vec::new(),
        each_ns: Vec::new(),
        faults: Vec::new(),
        source: None,
        _session: None,
    };
    let mut contenders = vec![bare("bare")];
    for (name, level) in [("wait", Level::Wait), ("hold", Level::Hold)] {
        let session = Session::create(level)?;
        contenders.push(Contender {
            environment: session.environment(library, None).into(),
            source: Some(session.source()?),
            _session: Some(session),
            ..bare(name)
        });
    }
    Ok(contenders)
}

impl Contender {
    fn run(&mut self, program: &Path, what: &str, count: u32) -> Result<()> {
        let mut command = Command::new(program);
        command.arg(what).arg(count.to_string());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let output = command.output().context("cannot run the program")?;
        ensure!(output.status.success(), "the program ended with {}", output.status);
        let said = String::from_utf8_lossy(&output.stdout);
        let number = |name: &str| {
            let rest = said.split_once(&format!("\"{name}\": "))?.1;
            rest.split([',', '}']).next()?.parse::<f64>().ok()
        };
        let (Some(each_ns), Some(faults)) = (number("each_ns"), number("faults")) else {
            anyhow::bail!("the program said {said:?}");
        };
        self.each_ns.push(each_ns);
        self.faults.push(faults / f64::from(count));
        // Not beside a run. The pages of those that ended serve the next ones.
        if let Some(source) = &mut self.source {
            source.drain();
        }
        Ok(())
    }

    fn print(&self, bare: &[f64], unit_ns: f64, random: &mut Random) {
        let pairs = || self.each_ns.iter().zip(bare);
        let ratios: Vec<f64> = pairs().map(|(each, bare)| each / bare).collect();
        let more: Vec<f64> = pairs().map(|(each, bare)| (each - bare) / unit_ns).collect();
        let (Some(ratio), Some(more)) = (Estimate::of(&ratios, random), Estimate::of(&more, random)) else { return };
        println!(
            "{:<12} {:>12.1} {:>8.3} ({:.3} – {:.3}) {:>10.1} ({:>5.1} – {:>5.1}) {:>8.1}",
            self.name,
            median(self.each_ns.clone()) / unit_ns,
            ratio.median,
            ratio.low,
            ratio.high,
            more.median,
            more.low,
            more.high,
            median(self.faults.clone()),
        );
    }
}
