//! The command line: all commands and their arguments. Each command has a file, which
//! does the work and prints the result for people or, with `--json`, for programs.

mod ask;
mod client;
mod dead;
#[cfg(feature = "demo")]
mod demo;
mod export;
mod hosts;
mod import;
mod operate;
mod pages;
mod progress;
mod purges;
mod start;
mod store;
mod usage;
mod verify;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args, Parser, Subcommand};
use gapless_atp::syntax::Did;

use crate::config::Flags;
use crate::terminal;

/// A complete, provable, replicated mirror of AT Protocol repositories.
///
/// Exit codes: 0 fine, 1 a finding or a failure, 2 wrong usage, 3 no server
/// answers, or one that is no gapless.
#[derive(Debug, Parser)]
#[command(name = "gapless", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a network on this machine, mirror it, break it, and see it repaired.
    ///
    /// Needs no service and no internet, and takes about a minute. Ends with 1 when a
    /// record differs from the truth, when a fault is not repaired, or when one did
    /// not fire.
    #[cfg(feature = "demo")]
    Demo(demo::DemoArguments),
    /// Mirror: follow upstreams, fetch what is missing, answer questions.
    Run(Box<Flags>),
    /// How the running mirror is.
    ///
    /// Ends with 1 when something needs a person: a full disk, dead letters, a host
    /// from which so much vanished that hiding is suspended, or an upstream that is
    /// down.
    /// Repositories that are not complete yet are no such thing; `gapless gaps`
    /// is about them.
    Status(Server),
    /// One repository: what is held, and whether it is complete. Ends with 1 when
    /// it is not.
    Repo {
        /// The repository's DID.
        did: String,
        #[command(flatten)]
        server: Server,
    },
    /// Repositories that are not complete, why, and what is done about it. Ends
    /// with 1 when there are any. Those that are hidden as their owners or hosts
    /// want it are only counted.
    Gaps {
        /// How many are shown.
        #[arg(long, default_value_t = DEFAULT_LIMIT)]
        limit: NonZeroUsize,
        #[command(flatten)]
        server: Server,
    },
    /// The hosts that are known: how we know them, when each was last swept, and of
    /// those that do not answer since when, why, and when they are tried again.
    Hosts {
        /// How many are shown.
        #[arg(long, default_value_t = DEFAULT_LIMIT)]
        limit: NonZeroUsize,
        /// Only those whose sweeps fail. Ends with 1 when there are any.
        #[arg(long)]
        failing: bool,
        #[command(flatten)]
        server: Server,
    },
    /// Hash the stored records and recompute roots, now. Ends with 1 when one is not the
    /// root that the owner signed, or could not be recomputed although something
    /// is held. With --all, repositories of which nothing is held yet are counted
    /// and no finding.
    #[command(group = ArgGroup::new("which").args(["did", "all"]).required(true))]
    Verify {
        /// The repository's DID.
        did: Option<String>,
        /// All repositories.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        server: Server,
    },
    /// Fetch a repository again.
    Resync {
        /// The repository's DID.
        did: String,
        /// Take over the host's state even if it is older than ours.
        #[arg(long)]
        accept_rollback: bool,
        #[command(flatten)]
        server: Server,
    },
    /// Write a repository into a file, as the running mirror holds it: a CAR, the same
    /// bytes for the same commit. It is checked whole before the file gets its name.
    Export {
        /// The repository's DID.
        did: String,
        /// The file [default: the DID with _ for :, and .car].
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        server: Server,
    },
    /// Hand a repository in a CAR to the running mirror. It is taken if it is whole,
    /// signed by its owner and newer than what is held; its host is asked afterwards.
    Import {
        /// The CAR.
        file: PathBuf,
        #[command(flatten)]
        server: Server,
    },
    /// The sources of events that are followed.
    #[command(subcommand)]
    Upstream(UpstreamCommand),
    /// The repositories that are followed by name.
    #[command(subcommand)]
    Track(TrackCommand),
    /// What came and could not be used.
    #[command(subcommand)]
    Dead(DeadCommand),
    /// What was purged: when, by whose word, and what is left of it.
    Purges {
        /// How many are shown.
        #[arg(long, default_value_t = DEFAULT_LIMIT)]
        limit: NonZeroUsize,
        #[command(flatten)]
        server: Server,
    },
    /// The configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look after a data folder, while no gapless runs on it.
    #[command(subcommand)]
    Store(StoreCommand),
}

#[derive(Debug, Subcommand)]
enum UpstreamCommand {
    /// Follow a source.
    Add {
        /// pds, relay or jetstream.
        kind: String,
        /// Its URL.
        #[arg(value_name = "URL")]
        source: String,
        /// The public host it stands for, when the URL is that of a proxy.
        #[arg(long)]
        host: Option<String>,
        #[command(flatten)]
        server: Server,
    },
    /// Follow it no more. What is held stays. One that is in the configuration comes
    /// back at the next start unless it is taken out there.
    Remove {
        /// Its URL.
        #[arg(value_name = "URL")]
        source: String,
        #[command(flatten)]
        server: Server,
    },
    /// What is followed, and how it goes.
    List(Server),
    /// Say that what vanished from this host has really gone, so that it is
    /// hidden.
    ConfirmLoss {
        /// The upstream's URL.
        #[arg(value_name = "URL")]
        source: String,
        #[command(flatten)]
        server: Server,
    },
}

#[derive(Debug, Subcommand)]
enum TrackCommand {
    /// Follow repositories by name.
    Add {
        #[arg(required = true)]
        dids: Vec<String>,
        #[command(flatten)]
        server: Server,
    },
    /// Follow them no more. What is held stays.
    Remove {
        #[arg(required = true)]
        dids: Vec<String>,
        #[command(flatten)]
        server: Server,
    },
    /// All of them.
    List(Server),
}

#[derive(Debug, Subcommand)]
enum DeadCommand {
    /// Those that nobody has settled.
    List {
        /// How many are shown.
        #[arg(long, default_value_t = DEFAULT_LIMIT)]
        limit: NonZeroUsize,
        #[command(flatten)]
        server: Server,
    },
    /// Say that you have looked: they are not counted any more, and their bytes go.
    #[command(group = ArgGroup::new("which").args(["number", "all"]).required(true))]
    Resolve {
        /// Its number, as the list gives it.
        number: Option<u64>,
        /// All that there are now.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        server: Server,
    },
}

/// The default of `--limit`.
const DEFAULT_LIMIT: NonZeroUsize = NonZeroUsize::new(1000).unwrap();

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// The configuration in force for these flags, and where each value is from.
    Show {
        #[command(flatten)]
        flags: Box<Flags>,
        /// JSON on standard output instead of TOML.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Check everything: roots, hashes, the log, what tables repeat of each other.
    ///
    /// Changes nothing but what any start does: an end of the journal that nobody
    /// was told of is cut.
    Check(DataFolder),
    /// Make a store that lost something sound again.
    ///
    /// What is gone is not brought back. Every root is recomputed; repositories
    /// that do not hash to it are fetched anew, all others are compared with
    /// their hosts, and lost log numbers are marked as lost. Safe to interrupt
    /// and to run again; does nothing to a store that is sound.
    Repair {
        #[command(flatten)]
        folder: DataFolder,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, Args)]
struct DataFolder {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// One line of JSON on standard output instead of words.
    #[arg(long)]
    json: bool,
}

/// Which server is asked, and how the answer is shown.
#[derive(Debug, Args)]
struct Server {
    /// The running mirror [default: GAPLESS_URL, or http://127.0.0.1:7070].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Its token [default: GAPLESS_TOKEN].
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// JSON on standard output instead of words.
    #[arg(long)]
    json: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutcome {
    Fine,
    Finding,
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    Usage(String),
    Unreachable(String),
    Failed(String),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Unreachable(_) => 3,
        }
    }

    fn text(&self) -> &str {
        match self {
            Failure::Failed(text) | Failure::Usage(text) | Failure::Unreachable(text) => text,
        }
    }
}

/// Checks a DID before it is sent to the server.
fn check_did(text: &str) -> Result<(), Failure> {
    let checked = Did::parse(text).map(drop);
    checked.map_err(|error| Failure::Usage(error.to_string()))
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no mistake.
            let usage = error.use_stderr();
            if usage && usage::wants_json(&arguments) {
                terminal::print_line(&usage::to_json(&error));
            }
            if error.print().is_err() || usage {
                return ExitCode::from(2);
            }
            return ExitCode::SUCCESS;
        }
    };
    let (json, outcome) = run_command(cli.command);
    match outcome {
        Ok(CommandOutcome::Fine) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Finding) => ExitCode::from(1),
        Err(failure) => {
            if json {
                terminal::print_line(&serde_json::json!({ "error": failure.text() }).to_string());
            }
            eprintln!("gapless: {}", terminal::sanitize(failure.text()));
            ExitCode::from(failure.code())
        }
    }
}

/// Runs a command. Returns whether `--json` is set, and how the command ended.
fn run_command(command: Command) -> (bool, Result<CommandOutcome, Failure>) {
    match command {
        #[cfg(feature = "demo")]
        Command::Demo(arguments) => (arguments.json, demo::run(&arguments)),
        Command::Run(flags) => (false, start::run(&flags)),
        Command::Config(ConfigCommand::Show { flags, json }) => {
            (json, start::show_config(&flags, json))
        }
        Command::Status(server) => (server.json, ask::show_status(&server)),
        Command::Repo { did, server } => (server.json, ask::show_repo(&server, &did)),
        Command::Gaps { limit, server } => (server.json, ask::list_gaps(&server, limit.get())),
        Command::Hosts {
            limit,
            failing,
            server,
        } => (
            server.json,
            hosts::list_hosts(&server, limit.get(), failing),
        ),
        Command::Verify { did, server, .. } => (
            server.json,
            match did {
                Some(did) => verify::verify_one(&server, &did),
                None => verify::verify_all(&server),
            },
        ),
        Command::Resync {
            did,
            accept_rollback,
            server,
        } => (server.json, operate::resync(&server, &did, accept_rollback)),
        Command::Export { did, out, server } => {
            (server.json, export::export(&server, &did, out.as_deref()))
        }
        Command::Import { file, server } => (server.json, import::import(&server, &file)),
        Command::Upstream(command) => run_upstream(command),
        Command::Track(command) => run_track(command),
        Command::Dead(command) => run_dead(command),
        Command::Purges { limit, server } => {
            (server.json, purges::list_purges(&server, limit.get()))
        }
        Command::Store(StoreCommand::Check(folder)) => {
            (folder.json, store::check(&folder).map_err(Failure::Failed))
        }
        Command::Store(StoreCommand::Repair { folder, dry_run }) => (
            folder.json,
            store::repair(&folder, dry_run).map_err(Failure::Failed),
        ),
    }
}

fn run_upstream(command: UpstreamCommand) -> (bool, Result<CommandOutcome, Failure>) {
    match command {
        UpstreamCommand::Add {
            kind,
            source,
            host,
            server,
        } => (
            server.json,
            operate::add_upstream(&server, &kind, &source, host.as_deref()),
        ),
        UpstreamCommand::Remove { source, server } => {
            (server.json, operate::remove_upstream(&server, &source))
        }
        UpstreamCommand::List(server) => (server.json, ask::list_upstreams(&server)),
        UpstreamCommand::ConfirmLoss { source, server } => {
            (server.json, operate::confirm_loss(&server, &source))
        }
    }
}

fn run_track(command: TrackCommand) -> (bool, Result<CommandOutcome, Failure>) {
    match command {
        TrackCommand::Add { dids, server } => (server.json, operate::track(&server, &dids)),
        TrackCommand::Remove { dids, server } => (server.json, operate::untrack(&server, &dids)),
        TrackCommand::List(server) => (server.json, ask::list_tracked(&server)),
    }
}

fn run_dead(command: DeadCommand) -> (bool, Result<CommandOutcome, Failure>) {
    match command {
        DeadCommand::List { limit, server } => {
            (server.json, dead::list_dead_letters(&server, limit.get()))
        }
        DeadCommand::Resolve { number, server, .. } => {
            (server.json, dead::resolve_dead_letters(&server, number))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_command_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
