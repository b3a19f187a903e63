//! `lockmeter agent`.

use std::path::PathBuf;

use clap::Args;

use super::RuleFileArguments;

const EXAMPLES: &str = "\
Examples:
  lockmeter agent                          meter until SIGTERM, metrics at http://127.0.0.1:9778/metrics
  lockmeter agent --print-config           the configuration in use, as a file to start from
  lockmeter agent --check                  read the configuration, say what is wrong with it, and end
  kill -HUP PID                            make it read its configuration again";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AgentArguments {
    /// The configuration; without it /etc/lockmeter/agent.toml, if there is one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Read the configuration, say what is wrong with it, and end
    #[arg(long, conflicts_with = "print_config")]
    pub check: bool,
    /// Print the whole configuration in use, with what each setting means, and end
    #[arg(long)]
    pub print_config: bool,
    #[command(flatten)]
    pub rules: RuleFileArguments,
}
