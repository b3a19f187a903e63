//! `manual-pages`: a page for each command, made from the definition of the command line. What follows the options in a command's help
//! (`after_help`) are blocks under headings of their own (`Examples:`), and become sections of these names.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::output;

/// The section of the manual: commands of users.
const SECTION: &str = "1";

/// Where to.
#[derive(Debug, Args)]
pub struct ManualPagesArguments {
    /// The folder to write the pages to, one for each command
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Writes the pages of this program.
pub fn run<P: CommandFactory>(arguments: &ManualPagesArguments) -> Result<()> {
    let mut command = P::command().disable_help_subcommand(true);
    command.build();
    let manual = format!("{} {}", command.get_name(), command.get_version().unwrap_or_default());
    write_pages(&command, None, &manual, &arguments.folder)
}

/// The page of this command, and those of the commands below it.
fn write_pages(command: &Command, above: Option<&Command>, manual: &str, folder: &Path) -> Result<()> {
    let path = folder.join(format!("{}.{SECTION}", page_name(command)));
    let mut page = Vec::new();
    render(command, above, manual, &mut page)?;
    let mut out = output::open(Some(&path))?;
    out.write_all(&page).and_then(|()| out.flush()).map_err(|error| output::failed(Some(&path), error))?;
    shown_subcommands(command).try_for_each(|below| write_pages(below, Some(command), manual, folder))
}

fn shown_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set())
}

/// `lockmeter-rules-list`.
fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The examples come before the options: a page begins with what its reader wants to do.
fn render(command: &Command, above: Option<&Command>, manual: &str, out: &mut Vec<u8>) -> io::Result<()> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let man = Man::new(command.clone().override_usage(usage)).section(SECTION).source(manual);
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, others): (Vec<_>, Vec<_>) = blocks(&help).partition(|block| block.heading == "Examples");

    man.render_title(out)?;
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

/// Lines under a heading.
struct Block<'a> {
    heading: &'a str,
    lines: Vec<&'a str>,
}

/// The blocks of a help text. A line that begins at the margin and ends with a colon is the heading of what follows.
fn blocks(help: &str) -> impl Iterator<Item = Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for line in help.lines().filter(|line| !line.trim().is_empty()) {
        match (line.strip_suffix(':'), blocks.last_mut()) {
            (Some(heading), _) if !line.starts_with(' ') => blocks.push(Block { heading, lines: Vec::new() }),
            (_, Some(block)) => block.lines.push(line),
            (_, None) => blocks.push(Block { heading: "Notes", lines: vec![line] }),
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
    #[command(name = "finder", version, after_help = "Examples:\n  finder -a    all\n  finder --very-long\n            .it too\n\nExit status:\n  0 found")]
    struct Finder {
        /// Find all
        #[arg(short)]
        _all: bool,
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
        run::<Finder>(&ManualPagesArguments { folder: folder.path().to_owned() }).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["finder-name.1", "finder.1"]);

        let page = std::fs::read_to_string(folder.path().join("finder.1")).unwrap();
        let places: Vec<_> = [
            ".SH NAME\nfinder \\- Finds things\n",
            ".SH SYNOPSIS\nfinder [OPTIONS] <COMMAND>\n",
            ".SH EXAMPLES\n.TP\n\\fBfinder \\-a\\fR\nall\n.TP\n\\fBfinder \\-\\-very\\-long\\fR\n\\&.it too\n",
            ".SH SUBCOMMANDS\n.TP\nfinder\\-name(1)\n",
            ".SH OPTIONS\n",
            ".SH \"EXIT STATUS\"\n0 found\n",
            ".SH \"SEE ALSO\"\nfinder\\-name(1), ",
        ]
        .map(|part| page.find(part).unwrap_or_else(|| panic!("no {part:?} in:\n{page}")))
        .into();
        assert!(places.is_sorted(), "{page}");
        assert!(!page.contains("Nobody"), "{page}");
    }
}
