//! Programs that work in threads until they are done.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use lockmeter_statistics::Random;

use crate::metered::{Metering, Way};
use crate::{Rounds, Slice};

const MEBIBYTE: usize = 1 << 20;
/// The ways a compressor is run; the first is what the others are compared with.
const WAYS: [Metering; 3] = [Metering::Bare, Metering::Wait, Metering::Hold];

pub struct Compressor {
    program: &'static str,
    flags: &'static [&'static str],
    /// So much that a run takes half a second or so: starting up then counts for little.
    input_mebibytes: usize,
}

impl Compressor {
    pub const PIGZ: Self = Self { program: "pigz", flags: &["-p2", "-c"], input_mebibytes: 24 };
    pub const XZ: Self = Self { program: "xz", flags: &["-T2", "-0", "--block-size=1MiB", "-c"], input_mebibytes: 24 };
    pub const ZSTD: Self = Self { program: "zstd", flags: &["-T2", "-9", "-q", "-c"], input_mebibytes: 32 };

    /// Rates are mebibytes a second.
    pub fn measure(&self, rounds: usize, random: &mut Random) -> Result<Rounds> {
        let folder = tempfile::tempdir().context("cannot make a folder for the input")?;
        let input = folder.path().join("input");
        std::fs::File::create(&input)
            .and_then(|mut file| file.write_all(&text(self.input_mebibytes * MEBIBYTE, random)))
            .context("cannot write the input")?;
        let ways = WAYS.map(Way::prepare).into_iter().collect::<Result<Vec<_>>>()?;
        // Reads the files in.
        self.run(&ways[0], &input)?;
        let mut measured = Rounds { ways: WAYS.to_vec(), slices: Vec::new(), unit: "MiB/s" };
        for _ in 0..rounds {
            let mut slices = vec![Slice::default(); WAYS.len()];
            let mut order = [0, 1, 2];
            random.shuffle(&mut order);
            for way in order {
                slices[way] = Slice { rate: self.run(&ways[way], &input)?, cpu_ns: None };
            }
            measured.slices.push(slices);
        }
        for (way, metering) in ways.into_iter().zip(WAYS) {
            // At level wait nothing needs to have waited.
            way.finish(metering == Metering::Hold)?;
        }
        Ok(measured)
    }

    fn run(&self, way: &Way, input: &Path) -> Result<f64> {
        let begin = Instant::now();
        let status = way
            .command(self.program)
            .args(self.flags)
            .arg(input)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .with_context(|| format!("cannot run {}", self.program))?;
        if !status.success() {
            bail!("{} ended with {status}", self.program);
        }
        Ok(f64::from(u32::try_from(self.input_mebibytes)?) / begin.elapsed().as_secs_f64())
    }
}

/// Words of a small vocabulary: it compresses about as text does.
fn text(bytes: usize, random: &mut Random) -> Vec<u8> {
    let vocabulary: Vec<Vec<u8>> = (0..4096)
        .map(|_| {
            let letters = (0..2 + random.below(8)).map(|_| b'a' + u8::try_from(random.below(26)).unwrap_or(0));
            letters.chain(*b" ").collect()
        })
        .collect();
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        // The smaller of two numbers: some words are common.
        let word = random.below(vocabulary.len()).min(random.below(vocabulary.len()));
        text.extend_from_slice(&vocabulary[word]);
    }
    text.truncate(bytes);
    text
}
