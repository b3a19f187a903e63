//! What the kernel itself counts of interrupts and softirqs, to compare with.

use std::fs;

/// All CPUs' count of a line of `/proc/interrupts` or `/proc/softirqs`, such as `LOC` or `NET_RX`.
pub fn of(file: &str, label: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let cpus = text.lines().next().unwrap().split_whitespace().count();
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(label)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("{file} has no line {label}"));
    line.split_whitespace().take(cpus).map_while(|number| number.parse::<u64>().ok()).sum()
}
