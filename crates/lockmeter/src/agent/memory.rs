//! What metering takes of the machine's memory.

use std::fs;

/// Memory of this process that is no file's, and of its tables in the kernel, in bytes.
pub fn used() -> [(&'static str, u64); 2] {
    [("process", anonymous()), ("kernel_tables", kernel_tables())]
}

fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    number_of(&status, "RssAnon:") * 1024
}

/// As the kernel says it of each of this process' maps.
fn kernel_tables() -> u64 {
    let entries = fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.filter(|text| text.contains("map_type:")).map(|text| number_of(&text, "memlock:")).sum()
}

fn number_of(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
