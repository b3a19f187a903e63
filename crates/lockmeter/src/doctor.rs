//! `lockmeter doctor`: what this kernel and these privileges allow, and how to fix each "no".

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use lockmeter_cli::ResultFormat;
use lockmeter_cli::exit::Status;
use lockmeter_kernel::probe::{self, Finding, Verdict};
use lockmeter_render::escape::{Escaping, escaped};
use lockmeter_render::write_json;
use serde_json::json;

use crate::arguments::DoctorArguments;

pub fn run(arguments: &DoctorArguments) -> Result<ExitCode> {
    let findings = probe::examine();
    let able = findings.iter().all(|finding| finding.verdict != Verdict::No);
    let mut out = io::stdout().lock();
    match arguments.format {
        ResultFormat::Table => print_table(&findings, able, &mut Escaping::text(&mut out))?,
        ResultFormat::Json => print_json(&findings, able, &mut out)?,
    }
    Ok(if able { ExitCode::SUCCESS } else { Status::NotAllowed.into() })
}

fn print_table(findings: &[Finding], able: bool, out: &mut impl Write) -> io::Result<()> {
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
    writeln!(
        out,
        "{}\n",
        if able { "Kernel locks can be metered here." } else { "Kernel locks cannot be metered here." }
    )?;
    for finding in findings {
        writeln!(out, "{:<6}  {:<width$}  {}", finding.verdict.name(), finding.what, escaped(&finding.found))?;
        if let Some(mend) = &finding.mend {
            writeln!(out, "{:<6}  {:<width$}  -> {}", "", "", escaped(mend))?;
        }
    }
    Ok(())
}

fn print_json(findings: &[Finding], able: bool, out: &mut impl Write) -> io::Result<()> {
    let rows: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "what": finding.what,
                "verdict": finding.verdict.name(),
                "found": finding.found,
                "fix": finding.mend,
            })
        })
        .collect();
    write_json(&json!({ "able": able, "findings": rows }), out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_forges_no_line() {
        let (found, mend) = ("6.1\x1b[31m\nb".to_owned(), Some("c\u{202e}\nd".to_owned()));
        let findings = [Finding { what: "kernel", verdict: Verdict::No, found, mend }];
        let mut out = Vec::new();
        print_table(&findings, false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("6.1\\u{1b}[31m\\nb\n") && text.contains("-> c\\u{202e}\\nd\n"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
