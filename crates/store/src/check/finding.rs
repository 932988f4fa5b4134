//! The violations that a check of the store can find.

use std::fmt;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Did;
use gapless_core::ledger::RepoId;

use crate::codec::RowFault;
use crate::table::Table;

/// One violation of what must hold in every store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The engine cannot read the rest of a table.
    Unreadable { table: Table, cause: String },
    /// A row that cannot be decoded.
    Row {
        table: Table,
        key: Vec<u8>,
        fault: RowFault,
    },
    /// Log numbers that no row covers.
    LogGap { from: u64, until: u64 },
    /// A row of the log that begins before the previous row ends.
    LogOverlap { first: u64, ends_at: u64 },
    /// The log does not end just before the next number to assign.
    LogEnd { ends_at: u64, next_seq: u64 },
    /// The held keys do not hash to the root that the owner signed.
    Root {
        repo: RepoId,
        did: Did,
        held: Cid,
        signed: Cid,
    },
    /// The held keys do not form a tree.
    NoTree {
        repo: RepoId,
        did: Did,
        cause: String,
    },
    /// The bytes of a record do not hash to its CID.
    RecordBytes { repo: RepoId, path: Vec<u8> },
    /// The stored commit is not the one that the repository's head names.
    Commit { repo: RepoId, did: Did },
    /// Records exist for a repository whose row says that nothing is held.
    Unfounded {
        repo: RepoId,
        did: Did,
        records: u64,
    },
    /// Rows of a repository that does not exist.
    Orphans {
        table: Table,
        repo: RepoId,
        rows: u64,
    },
    /// A row contradicts its key, its own content or another row; `how` says in what.
    Disagree {
        table: Table,
        key: Vec<u8>,
        how: &'static str,
    },
    /// A number is in use although it was never assigned; it would be assigned again.
    NotGivenOut {
        what: &'static str,
        number: u64,
        next: u64,
    },
    /// A frame without a row of the log.
    Frame { seq: u64 },
    /// A damaged range of bytes in a file of frames.
    FrameDamaged { file: String, at: u64, until: u64 },
}

impl Finding {
    /// The kind of the finding, as a stable identifier for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Finding::Unreadable { .. } => "unreadable",
            Finding::Row { .. } => "row",
            Finding::LogGap { .. } => "log_gap",
            Finding::LogOverlap { .. } => "log_overlap",
            Finding::LogEnd { .. } => "log_end",
            Finding::Root { .. } => "root",
            Finding::NoTree { .. } => "no_tree",
            Finding::RecordBytes { .. } => "record_bytes",
            Finding::Commit { .. } => "commit",
            Finding::Unfounded { .. } => "unfounded",
            Finding::Orphans { .. } => "orphans",
            Finding::Disagree { .. } => "disagree",
            Finding::NotGivenOut { .. } => "not_given_out",
            Finding::Frame { .. } => "frame",
            Finding::FrameDamaged { .. } => "frame_damaged",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Unreadable { table, cause } => {
                write!(
                    f,
                    "the table '{}' cannot be read to its end: {cause}",
                    table.name()
                )
            }
            Finding::Row { table, key, fault } => {
                let table = table.name();
                write!(
                    f,
                    "a row of '{table}' (key {}) is damaged: {fault}",
                    DisplayKey(key)
                )
            }
            Finding::LogGap { from, until } => {
                write!(
                    f,
                    "no row of the log covers the numbers {from} to {}",
                    until - 1
                )
            }
            Finding::LogOverlap { first, ends_at } => write!(
                f,
                "a row of the log begins at {first}, but the previous row ends at {}",
                ends_at - 1
            ),
            Finding::LogEnd { ends_at, next_seq } => write!(
                f,
                "the log ends at {}, but the next number is {next_seq}",
                ends_at.saturating_sub(1)
            ),
            Finding::Root {
                repo,
                did,
                held,
                signed,
            } => write!(
                f,
                "{did} (repository {}): the held keys hash to {held}, but its owner signed {signed}",
                repo.0
            ),
            Finding::NoTree { repo, did, cause } => {
                write!(
                    f,
                    "{did} (repository {}): the held keys do not form a tree: {cause}",
                    repo.0
                )
            }
            Finding::RecordBytes { repo, path } => write!(
                f,
                "repository {}: the bytes of {} do not hash to its CID",
                repo.0,
                String::from_utf8_lossy(path)
            ),
            Finding::Commit { repo, did } => {
                write!(
                    f,
                    "{did} (repository {}): the stored commit is not the one that the head names",
                    repo.0
                )
            }
            Finding::Unfounded { repo, did, records } => write!(
                f,
                "{did} (repository {}): {records} records exist, but the row says that nothing is held",
                repo.0
            ),
            Finding::Orphans { table, repo, rows } => write!(
                f,
                "'{}' has {rows} rows of repository {}, which does not exist",
                table.name(),
                repo.0
            ),
            Finding::Disagree { table, key, how } => {
                write!(f, "'{}', key {}: {how}", table.name(), DisplayKey(key))
            }
            Finding::NotGivenOut { what, number, next } => write!(
                f,
                "{what} {number} exists, but the next number to assign is {next}"
            ),
            Finding::Frame { seq } => {
                write!(
                    f,
                    "a frame has number {seq}, at which no row of the log begins"
                )
            }
            Finding::FrameDamaged { file, at, until } => {
                write!(f, "{file} is damaged from byte {at} to {until}")
            }
        }
    }
}

/// Displays a key: as it is if it is printable ASCII, otherwise in hex.
struct DisplayKey<'k>(&'k [u8]);

impl fmt::Display for DisplayKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) if text.chars().all(|letter| letter.is_ascii_graphic()) => f.write_str(text),
            _ => self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}
