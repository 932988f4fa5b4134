//! The command line: all commands and their arguments. Each command has a file, which
//! does the work and prints the result for people or, with `--json`, for programs.

mod ask;
mod client;
mod consumers;
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
use gapless_mirror::api::ConsumerSelector;

use crate::config::Flags;
use crate::terminal;

/// A complete, provable mirror of AT Protocol repositories.
///
/// Exit codes: 0 success, 1 a finding or a failure, 2 wrong usage, 3 no Gapless server
/// answers.
#[derive(Debug, Parser)]
#[command(name = "gapless", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a network on this machine, mirror it, break it, and watch the repairs.
    ///
    /// Needs no service and no internet, and takes about a minute. Ends with 1 when a
    /// record differs from the truth, when a fault is not repaired, or when one did
    /// not fire.
    #[cfg(feature = "demo")]
    Demo(demo::DemoArguments),
    /// Run the mirror: follow upstreams, fetch missing data, and answer requests.
    Run(Box<Flags>),
    /// Show the state of the running mirror.
    ///
    /// Ends with 1 when something needs a person: a full disk, dead letters, no
    /// upstream, an upstream that is down, a failed sweep of a host whose repositories
    /// are all wanted, a host from which so much vanished that hiding is suspended, an
    /// upstream of kind pds that brings repositories of other hosts, or a consumer of the
    /// log that is overrun. Incomplete repositories are no finding here; `gapless gaps`
    /// lists them.
    Status(Server),
    /// Show one repository: what is held, and whether it is complete. Ends with 1 when the
    /// repository is not complete.
    Repo {
        /// The repository's DID.
        did: String,
        #[command(flatten)]
        server: Server,
    },
    /// List repositories that are not complete, why, and what Gapless does about each.
    /// Ends with 1 when any repository is not complete. Repositories that are hidden by
    /// their owners or hosts are only counted.
    Gaps {
        /// The most repositories to show.
        #[arg(long, default_value_t = DEFAULT_LIMIT)]
        limit: NonZeroUsize,
        #[command(flatten)]
        server: Server,
    },
    /// List the known hosts: how each became known, when it was last swept and, if it
    /// does not answer, since when, why, and when it is tried again.
    Hosts {
        /// The most hosts to show.
        #[arg(long, default_value_t = DEFAULT_LIMIT)]
        limit: NonZeroUsize,
        /// Show only hosts whose sweeps fail. Ends with 1 when a sweep fails.
        #[arg(long)]
        failing: bool,
        #[command(flatten)]
        server: Server,
    },
    /// Hash the stored records and recompute roots now. Ends with 1 when a root differs
    /// from the signed root, or cannot be recomputed although data is held. With --all,
    /// repositories of which nothing is held yet are counted and are no finding.
    #[command(group = ArgGroup::new("which").args(["did", "all"]).required(true))]
    Verify {
        /// The repository's DID.
        did: Option<String>,
        /// Verify all repositories.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        server: Server,
    },
    /// Fetch a repository again.
    Resync {
        /// The repository's DID.
        did: String,
        /// Adopt the host's state even if it is older than the held one.
        #[arg(long)]
        accept_rollback: bool,
        #[command(flatten)]
        server: Server,
    },
    /// Write a repository, as the running mirror holds it, into a CAR file. The same
    /// commit gives the same bytes. The file gets its name after it was checked in full.
    Export {
        /// The repository's DID.
        did: String,
        /// The file [default: the DID with _ for :, and .car].
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        server: Server,
    },
    /// Send a repository in a CAR file to the running mirror, which accepts it if it is
    /// whole, signed by its owner and newer than the held state, and then asks its host.
    Import {
        /// The CAR file.
        file: PathBuf,
        #[command(flatten)]
        server: Server,
    },
    /// Change and list the upstreams, the sources of events.
    #[command(subcommand)]
    Upstream(UpstreamCommand),
    /// Change and list the repositories that are followed by name.
    #[command(subcommand)]
    Track(TrackCommand),
    /// List and resolve dead letters, the input that could not be used.
    #[command(subcommand)]
    Dead(DeadCommand),
    /// List purged repositories: when each was purged and why, and what is left of it.
    Purges {
        /// The most purges to show.
        #[arg(long, default_value_t = DEFAULT_LIMIT)]
        limit: NonZeroUsize,
        #[command(flatten)]
        server: Server,
    },
    /// List the consumers of the log: where each of them reads, how far it is behind, and what
    /// it holds back. Ends with 1 when a consumer is overrun.
    #[command(args_conflicts_with_subcommands = true)]
    Consumers {
        #[command(subcommand)]
        order: Option<ConsumersOrder>,
        #[command(flatten)]
        server: Server,
    },
    /// Show the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check or repair a data folder that no running mirror uses.
    #[command(subcommand)]
    Store(StoreCommand),
}

#[derive(Debug, Subcommand)]
enum UpstreamCommand {
    /// Follow an upstream.
    Add {
        /// The kind of the upstream: pds, relay or jetstream.
        kind: String,
        /// The URL of the upstream.
        #[arg(value_name = "URL")]
        source: String,
        /// The public host behind the upstream, when the URL is that of a proxy.
        #[arg(long)]
        host: Option<String>,
        #[command(flatten)]
        server: Server,
    },
    /// Stop following an upstream. The mirrored data stays. An upstream in the configuration
    /// comes back at the next start unless the configuration is changed.
    Remove {
        /// The URL of the upstream.
        #[arg(value_name = "URL")]
        source: String,
        #[command(flatten)]
        server: Server,
    },
    /// List the upstreams and their states.
    List(Server),
    /// Confirm that the repositories that vanished from this host are gone, so that
    /// Gapless hides them.
    ConfirmLoss {
        /// The URL of the upstream.
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
        /// The DIDs of the repositories.
        #[arg(required = true)]
        dids: Vec<String>,
        #[command(flatten)]
        server: Server,
    },
    /// Stop following repositories by name. The mirrored data stays.
    Remove {
        /// The DIDs of the repositories.
        #[arg(required = true)]
        dids: Vec<String>,
        #[command(flatten)]
        server: Server,
    },
    /// List the repositories that are followed by name.
    List(Server),
}

#[derive(Debug, Subcommand)]
enum DeadCommand {
    /// List the dead letters that are not resolved.
    List {
        /// The most dead letters to show.
        #[arg(long, default_value_t = DEFAULT_LIMIT)]
        limit: NonZeroUsize,
        #[command(flatten)]
        server: Server,
    },
    /// Resolve dead letters: resolved letters are no longer counted, and their bytes are deleted.
    #[command(group = ArgGroup::new("which").args(["number", "all"]).required(true))]
    Resolve {
        /// The number of the dead letter, as `gapless dead list` shows it.
        number: Option<u64>,
        /// Resolve all current dead letters.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        server: Server,
    },
}

#[derive(Debug, Subcommand)]
enum ConsumersOrder {
    /// Remove a consumer that does not come back: Gapless keeps nothing for it any more. Says what
    /// will be let go, and asks. The consumer can only begin again from the beginning.
    Remove {
        /// The name of the consumer, as `gapless consumers` shows it.
        name: String,
        /// The class of the consumer, where several have the name.
        #[arg(long)]
        class: Option<String>,
        /// The id of the consumer, where several have the name.
        #[arg(long)]
        id: Option<u32>,
        /// The lane of the consumer, where several have the name.
        #[arg(long)]
        lane: Option<u64>,
        /// Remove the consumer without a question.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        server: Server,
    },
}

/// The default of `--limit`.
const DEFAULT_LIMIT: NonZeroUsize = NonZeroUsize::new(1000).unwrap();

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Show the configuration for these flags, and the source of each value.
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
    /// Check everything: roots, hashes, the log, and data that several tables repeat.
    ///
    /// Changes nothing except what any start does: an unacknowledged end of the journal
    /// is cut.
    Check(DataFolder),
    /// Make a damaged store consistent again.
    ///
    /// Lost data is not restored. Every root is recomputed: repositories that do not
    /// hash to their root are fetched anew, all others are compared with their hosts,
    /// and lost log numbers are marked as lost. Safe to interrupt and to run again;
    /// changes nothing in a store that is sound.
    Repair {
        #[command(flatten)]
        folder: DataFolder,
        /// Show what a repair would do, and change nothing.
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
    /// The URL of the running mirror [default: GAPLESS_URL, or http://127.0.0.1:7070].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The API token of the running mirror [default: GAPLESS_TOKEN].
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// JSON on standard output instead of words.
    #[arg(long)]
    json: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    Fine,
    Finding,
}

/// Why a command failed.
#[derive(Debug)]
enum CommandError {
    Usage(String),
    Unreachable(String),
    Failed(String),
}

impl CommandError {
    fn code(&self) -> u8 {
        match self {
            CommandError::Failed(_) => 1,
            CommandError::Usage(_) => 2,
            CommandError::Unreachable(_) => 3,
        }
    }

    fn text(&self) -> &str {
        match self {
            CommandError::Failed(text)
            | CommandError::Usage(text)
            | CommandError::Unreachable(text) => text,
        }
    }
}

/// Checks a DID before it is sent to the server.
fn check_did(text: &str) -> Result<(), CommandError> {
    let checked = Did::parse(text).map(drop);
    checked.map_err(|error| CommandError::Usage(error.to_string()))
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version arrive here too, and are not errors.
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
        Err(error) => {
            if json {
                terminal::print_line(&serde_json::json!({ "error": error.text() }).to_string());
            }
            eprintln!("gapless: {}", terminal::sanitize(error.text()));
            ExitCode::from(error.code())
        }
    }
}

/// Runs a command. Returns whether `--json` is set, and how the command ended.
fn run_command(command: Command) -> (bool, Result<CommandOutcome, CommandError>) {
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
        Command::Consumers {
            order: None,
            server,
        } => (server.json, consumers::list_consumers(&server)),
        Command::Consumers {
            order: Some(order), ..
        } => run_consumers_order(order),
        Command::Store(StoreCommand::Check(folder)) => (
            folder.json,
            store::check(&folder).map_err(CommandError::Failed),
        ),
        Command::Store(StoreCommand::Repair { folder, dry_run }) => (
            folder.json,
            store::repair(&folder, dry_run).map_err(CommandError::Failed),
        ),
    }
}

fn run_upstream(command: UpstreamCommand) -> (bool, Result<CommandOutcome, CommandError>) {
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

fn run_track(command: TrackCommand) -> (bool, Result<CommandOutcome, CommandError>) {
    match command {
        TrackCommand::Add { dids, server } => (server.json, operate::track(&server, &dids)),
        TrackCommand::Remove { dids, server } => (server.json, operate::untrack(&server, &dids)),
        TrackCommand::List(server) => (server.json, ask::list_tracked(&server)),
    }
}

fn run_dead(command: DeadCommand) -> (bool, Result<CommandOutcome, CommandError>) {
    match command {
        DeadCommand::List { limit, server } => {
            (server.json, dead::list_dead_letters(&server, limit.get()))
        }
        DeadCommand::Resolve { number, server, .. } => {
            (server.json, dead::resolve_dead_letters(&server, number))
        }
    }
}

fn run_consumers_order(order: ConsumersOrder) -> (bool, Result<CommandOutcome, CommandError>) {
    let ConsumersOrder::Remove {
        name,
        class,
        id,
        lane,
        yes,
        server,
    } = order;
    let which = ConsumerSelector {
        name: Some(name),
        class,
        id,
        lane,
    };
    (
        server.json,
        consumers::remove_consumer(&server, &which, yes),
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_command_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
