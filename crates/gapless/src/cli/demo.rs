//! `gapless demo`: the arguments of the demonstration.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{CommandError, CommandOutcome};
use crate::demo::{self, DemoError, Options};

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Keep the network and the mirror running after the script, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Repositories in the network.
    #[arg(long, default_value_t = demo::DEFAULT_REPOS, value_name = "N")]
    repos: usize,
    /// A new folder for the mirror's data and log, which is kept [default: a temporary
    /// folder, which is removed].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the mirror listens [default: a free port of loopback].
    #[arg(
        long,
        default_value = "127.0.0.1:0",
        hide_default_value = true,
        value_name = "ADDRESS:PORT"
    )]
    bind: SocketAddr,
    /// The first port of the network: directory, control, servers [default: free ones].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Print one JSON object per line: every event, and last a summary.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &DemoArguments) -> Result<CommandOutcome, CommandError> {
    if !arguments.bind.ip().is_loopback() {
        let words = "a demonstration listens only on loopback: --bind 127.0.0.1:PORT";
        return Err(CommandError::Usage(words.to_owned()));
    }
    let options = Options {
        keep: arguments.keep,
        json: arguments.json,
        repos: arguments.repos,
        data: arguments.data.clone(),
        port: arguments.port,
        bind: arguments.bind,
    };
    match demo::run(&options) {
        Ok(true) => Ok(CommandOutcome::Fine),
        Ok(false) => Ok(CommandOutcome::Finding),
        Err(DemoError::Usage(text)) => Err(CommandError::Usage(text)),
        Err(error) => Err(CommandError::Failed(error.to_string())),
    }
}
