//! What metering takes of the machine's memory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// In bytes.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Of this process, without what it maps of files.
    process: u64,
    /// Its tables in the kernel.
    kernel_tables: u64,
}

impl Memory {
    pub fn look() -> Self {
        Self { process: anonymous(), kernel_tables: kernel_tables() }
    }

    pub const fn named(self) -> [(&'static str, u64); 2] {
        [("process", self.process), ("kernel_tables", self.kernel_tables)]
    }

    pub const fn whole(self) -> u64 {
        self.process + self.kernel_tables
    }
}

fn anonymous() -> u64 {
    number_of(&begin_of(Path::new("/proc/self/status")).unwrap_or_default(), "RssAnon:") * 1024
}

/// As the kernel says it of each of this process' maps.
fn kernel_tables() -> u64 {
    let entries = fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| begin_of(&entry.path()).ok());
    texts.filter(|text| text.contains("map_type:")).map(|text| number_of(&text, "memlock:")).sum()
}

/// The kernel's files say no length, and to read one until it ends takes five calls.
fn begin_of(path: &Path) -> io::Result<String> {
    let mut text = [0; 4096];
    let length = File::open(path)?.read(&mut text)?;
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}

fn number_of(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
