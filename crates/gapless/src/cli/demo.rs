//! `gapless demo`: its arguments.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{CommandOutcome, Failure};
use crate::demo::{self, DemoError, Options};

#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Go on after the script, to be played with, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Repositories in the network.
    #[arg(long, default_value_t = demo::REPOS, value_name = "N")]
    repos: usize,
    /// A new folder for the mirror's data and log, which stays [default: a temporary
    /// one, which goes].
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
    /// One JSON object a line: everything that happens, and last a summary.
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &DemoArguments) -> Result<CommandOutcome, Failure> {
    if !arguments.bind.ip().is_loopback() {
        let words = "a demonstration listens on loopback alone: --bind 127.0.0.1:PORT";
        return Err(Failure::Usage(words.to_owned()));
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
        Err(DemoError::Usage(text)) => Err(Failure::Usage(text)),
        Err(error) => Err(Failure::Failed(error.to_string())),
    }
}
