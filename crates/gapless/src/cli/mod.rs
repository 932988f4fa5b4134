//! The command line: which commands there are and what they are called with. One
//! file per command does the work and says what it found, for people or, with
//! `--json`, for programs.

mod progress;
mod store;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// A complete, provable, replicated mirror of AT Protocol repositories.
#[derive(Debug, Parser)]
#[command(name = "gapless", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look after a data folder, while no gapless runs on it.
    #[command(subcommand)]
    Store(StoreCommand),
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Check everything: roots, hashes, the log, what tables repeat of each other.
    ///
    /// Changes nothing but what any start does: an end of the journal that nobody
    /// was told of is cut.
    Check(Folder),
    /// Make a store that lost something sound again.
    ///
    /// What is gone is not brought back. Every root is recomputed; repositories
    /// that do not hash to it are fetched anew, all others are compared with
    /// their hosts, and lost log numbers are marked as lost. Safe to interrupt
    /// and to run again; does nothing to a store that is sound.
    Repair {
        #[command(flatten)]
        folder: Folder,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, Args)]
struct Folder {
    /// The data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// One line of JSON on standard output instead of words.
    #[arg(long)]
    json: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Fine,
    Finding,
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too, and are no mistake.
            let usage = error.use_stderr();
            if error.print().is_err() || usage {
                return ExitCode::from(2);
            }
            return ExitCode::SUCCESS;
        }
    };
    let (json, outcome) = match cli.command {
        Command::Store(StoreCommand::Check(folder)) => (folder.json, store::check(&folder)),
        Command::Store(StoreCommand::Repair { folder, dry_run }) => {
            (folder.json, store::repair(&folder, dry_run))
        }
    };
    match outcome {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Finding) => ExitCode::from(1),
        Err(error) => {
            if json {
                println!("{}", serde_json::json!({ "error": error }));
            }
            eprintln!("gapless: {error}");
            ExitCode::from(1)
        }
    }
}
