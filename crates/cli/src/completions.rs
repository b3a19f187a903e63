//! `completions`: what has a shell complete a program's command line, made from its definition.

use std::io::Write;

use anyhow::Result;
use clap::{Args, Command, CommandFactory};
use clap_complete::{Generator, Shell};

use crate::output;

/// Examples for the help of a program of this name, for `after_help`.
#[macro_export]
macro_rules! completions_examples {
    ($program:literal) => {
        concat!(
            "Examples:\n  ",
            $program,
            " completions bash > /etc/bash_completion.d/",
            $program,
            "\n  ",
            $program,
            " completions zsh > /usr/local/share/zsh/site-functions/_",
            $program,
            "\n  ",
            $program,
            " completions fish > ~/.config/fish/completions/",
            $program,
            ".fish"
        )
    };
}

/// For which shell.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script that has the shell complete the command line of this program.
pub fn run<P: CommandFactory>(arguments: &CompletionsArguments) -> Result<()> {
    let mut script = Vec::new();
    let shown = what_is_shown(&P::command());
    let name = shown.get_name().to_owned();
    let mut shown = shown.bin_name(name);
    shown.build();
    arguments.shell.try_generate(&shown, &mut script)?;
    let failed = |error| output::failed(None, error);
    let mut out = output::open(None)?;
    out.write_all(&script).and_then(|()| out.flush()).map_err(failed)
}

/// The command line without what its help hides, which clap_complete would offer.
fn what_is_shown(command: &Command) -> Command {
    let mut shown = Command::new(for_good(command.get_name()))
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).map(what_is_shown));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(for_good(version));
    }
    shown
}

/// clap takes names that stay. They are a few, and the program ends soon.
fn for_good(name: &str) -> &'static str {
    name.to_owned().leak()
}
