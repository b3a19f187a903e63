//! `manual-pages`: a page for each command, made from the definition of the command line. What follows the options in a command's help
//! (`after_help`) are blocks under headings of their own (`Examples:`), and become sections of these names.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Arg, Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::output;

/// The section of the manual: commands of users.
const SECTION: &str = "1";

/// Over what has no heading.
const NOTES: &str = "Notes";

/// Where to.
#[derive(Debug, Args)]
pub struct ManualPagesArguments {
    /// The folder to write the pages to, one for each command
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Writes the pages of this program, which was built from this commit.
pub fn run<P: CommandFactory>(commit: Option<&str>, arguments: &ManualPagesArguments) -> Result<()> {
    let mut command = P::command().disable_help_subcommand(true);
    command.build();
    let version = format!("{} {}", command.get_name(), command.get_version().unwrap_or_default());
    let date = commit.and_then(|commit| commit.rsplit_once(" of ")).map_or("", |(_, date)| date);
    write_pages(&command, None, &Book { version, date }, &arguments.folder)
}

/// What all pages of a program have in common.
struct Book<'a> {
    version: String,
    /// Of the commit; empty if that is not known.
    date: &'a str,
}

/// The page of this command, and those of the commands below it.
fn write_pages(command: &Command, above: Option<&Command>, book: &Book<'_>, folder: &Path) -> Result<()> {
    let path = folder.join(format!("{}.{SECTION}", page_name(command)));
    let mut page = Vec::new();
    render(command, above, book, &mut page)?;
    let mut out = output::open(Some(&path))?;
    out.write_all(&page).and_then(|()| out.flush()).map_err(|error| output::failed(Some(&path), error))?;
    shown_subcommands(command).try_for_each(|below| write_pages(below, Some(command), book, folder))
}

fn shown_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set())
}

/// `lockmeter-rules-list`.
fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The examples come before the options: a page begins with what its reader wants to do.
fn render(command: &Command, above: Option<&Command>, book: &Book<'_>, out: &mut Vec<u8>) -> io::Result<()> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let man = Man::new(command.clone().override_usage(usage).mut_args(values_in_a_sentence)).section(SECTION);
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, others): (Vec<_>, Vec<_>) = blocks(&help).partition(|block| block.heading == "Examples");

    // By hand: clap_mangen leaves an empty date out, and the version takes its place. Then no hyphens and an even left margin only, for
    // names of commands and options must not be broken.
    let name = page_name(command).replace('-', "\\-");
    let Book { version, date } = book;
    writeln!(out, ".TH \"{name}\" \"{SECTION}\" \"{date}\" \"{version}\" \"Manual of lockmeter\"\n.nh\n.ad l")?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    if command.get_long_about().is_some() {
        man.render_description_section(out)?;
    }
    sections(&examples, out)?;
    if shown_subcommands(command).next().is_some() {
        man.render_subcommands_section(out)?;
    }
    man.render_options_section(out)?;
    sections(&others, out)?;
    see_also(command, above, out)
}

/// The values that an option may have, at the end of its help; clap_mangen would make a list of them with an empty line after each.
fn values_in_a_sentence(argument: Arg) -> Arg {
    let values = argument.get_possible_values();
    if values.is_empty() || argument.is_hide_possible_values_set() || !argument.get_action().takes_values() {
        return argument;
    }
    let shown: Vec<String> = values
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("{} ({help})", value.get_name()),
            None => value.get_name().to_owned(),
        })
        .collect();
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    argument.hide_possible_values(true).long_help(format!("{help}. One of: {}", shown.join(", ")))
}

/// Lines under a heading.
struct Block<'a> {
    heading: &'a str,
    lines: Vec<&'a str>,
}

/// The blocks of a help text. A line that begins at the margin and ends with a colon is the heading of what follows; another line at the
/// margin begins notes.
fn blocks(help: &str) -> impl Iterator<Item = Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for line in help.lines().filter(|line| !line.trim().is_empty()) {
        match (line.strip_suffix(':'), blocks.last_mut()) {
            (Some(heading), _) if !line.starts_with(' ') => blocks.push(Block { heading, lines: Vec::new() }),
            (_, Some(block)) if line.starts_with(' ') || block.heading == NOTES => block.lines.push(line),
            _ => blocks.push(Block { heading: NOTES, lines: vec![line] }),
        }
    }
    blocks.into_iter()
}

fn sections(blocks: &[Block<'_>], out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    for block in blocks {
        roff.control("SH", [block.heading.to_uppercase().as_str()]);
        if block.heading == "Examples" {
            examples(&block.lines, &mut roff);
        } else {
            block.lines.iter().for_each(|line| {
                roff.text([roman(line.trim())]);
            });
        }
    }
    roff.to_writer(out)
}

/// Each is a command, indented by two, and after more blanks, or on the next line, what it does.
fn examples(lines: &[&str], roff: &mut Roff) {
    for line in lines {
        let text = line.trim_start();
        let is_command = line.len() - text.len() == 2;
        let (command, what) = if is_command { text.split_once("  ").unwrap_or((text, "")) } else { ("", text) };
        if is_command {
            roff.control("TP", []);
            roff.text([bold(command)]);
        }
        if !what.trim().is_empty() {
            roff.text([roman(what.trim())]);
        }
    }
}

/// The command above, and those below.
fn see_also(command: &Command, above: Option<&Command>, out: &mut Vec<u8>) -> io::Result<()> {
    let pages: Vec<String> = above
        .into_iter()
        .chain(shown_subcommands(command))
        .map(|other| format!("{}({SECTION})", page_name(other)))
        .chain([env!("CARGO_PKG_REPOSITORY").to_owned()])
        .collect();
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(pages.join(", "))]);
    roff.to_writer(out)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Finds things.
    #[derive(Parser)]
    #[command(
        name = "finder",
        version,
        after_help = "Examples:\n  finder -a    all\n  finder --very-long\n            .it too\n\nExit status:\n  0 found\n\nIt runs."
    )]
    struct Finder {
        /// Find all
        #[arg(short)]
        _all: bool,
        /// What to find
        #[arg(long, value_parser = ["dog", "cat"])]
        _kind: Option<String>,
        #[command(subcommand)]
        _below: Below,
    }

    #[derive(clap::Subcommand)]
    enum Below {
        /// Find by name
        Name,
        /// Nobody sees it
        #[command(hide = true)]
        Hidden,
    }

    #[test]
    fn each_shown_command_has_a_page_that_begins_with_its_examples() {
        let folder = tempfile::tempdir().unwrap();
        run::<Finder>(Some("0123456789ab of 2026-11-28"), &ManualPagesArguments { folder: folder.path().to_owned() })
            .unwrap();
        let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["finder-name.1", "finder.1"]);

        let page = std::fs::read_to_string(folder.path().join("finder.1")).unwrap();
        let places: Vec<_> = [
            ".TH \"finder\" \"1\" \"2026-11-28\" \"finder 0.1.0\" ",
            ".SH NAME\nfinder \\- Finds things\n",
            ".SH SYNOPSIS\n\\fBfinder\\fR [OPTIONS] <COMMAND>\n",
            ".SH EXAMPLES\n.TP\n\\fBfinder \\-a\\fR\nall\n.TP\n\\fBfinder \\-\\-very\\-long\\fR\n\\&.it too\n",
            ".SH SUBCOMMANDS\n.TP\nfinder\\-name(1)\n",
            ".SH OPTIONS\n",
            "What to find. One of: dog, cat\n",
            ".SH \"EXIT STATUS\"\n0 found\n",
            ".SH NOTES\nIt runs.\n",
            ".SH \"SEE ALSO\"\nfinder\\-name(1), ",
        ]
        .map(|part| page.find(part).unwrap_or_else(|| panic!("no {part:?} in:\n{page}")))
        .into();
        assert!(places.is_sorted(), "{page}");
        assert!(!page.contains("Nobody"), "{page}");
    }
}
