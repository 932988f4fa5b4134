//! The tables of the store: their names on disk, their tuning, their keys ([`key`]) and
//! their rows (one module for each).
//!
//! Keys are big-endian numbers and raw paths, so that the order of their bytes is their
//! logical order. Rows begin with a version; a decoder reads every version that was ever
//! written and never panics, whatever the bytes.

#[cfg(test)]
mod arbitrary;
pub mod audit;
pub mod claimed;
pub mod consumer;
pub mod dead;
pub mod debt;
pub mod did;
pub mod host;
pub mod hosted;
pub mod key;
pub mod log;
pub mod meta;
pub mod parked;
pub mod purge;
pub mod record;
pub mod repo;
pub mod upstream;
pub mod version;
pub mod wish;

/// A table of the store. The order is that of [`Table::ALL`] and is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// DID → repository.
    Did,
    /// Repository → what the ledger knows, and the signed commit.
    Repo,
    /// Repository, path → rev, CID, bytes. Exactly the records under the head's root.
    Record,
    /// Repository, path, rev → superseded bytes.
    Version,
    /// Repository, path → the claim of an unproven source about a record.
    Claimed,
    /// Repository, rev → a frame that waits for earlier commits or for the owner's key.
    Parked,
    /// First number → one commit, or one chunk of a snapshot.
    Log,
    /// Upstream → its row, and under a second key its cursor.
    Upstream,
    /// Host → its name, the state of its sweep, and the source that named it.
    Host,
    /// Host's name → host.
    HostName,
    /// Host, repository → nothing: which repositories a host has.
    Hosted,
    /// Repository → what must be asked or fetched.
    Debt,
    /// Number → an event or an answer that could not be used.
    Dead,
    /// Counters and identities, tracked DIDs, the filter, and purges.
    Meta,
    /// A consumer of the log → its position, and what it holds back.
    Consumer,
    /// Number → an order about a consumer, or an overrun.
    Audit,
}

/// How the engine stores a table; fixed when the table is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// The size at which the rows in memory are flushed to a file.
    pub memtable_bytes: u64,
    pub block_bytes: u32,
    pub compressed: bool,
    /// Most reads find their key, so the last level needs no filter.
    pub reads_hit: bool,
}

impl Table {
    pub const ALL: [Table; 16] = [
        Table::Did,
        Table::Repo,
        Table::Record,
        Table::Version,
        Table::Claimed,
        Table::Parked,
        Table::Log,
        Table::Upstream,
        Table::Host,
        Table::HostName,
        Table::Hosted,
        Table::Debt,
        Table::Dead,
        Table::Meta,
        Table::Consumer,
        Table::Audit,
    ];

    /// The store format that added the table.
    #[cfg(feature = "engine")]
    pub(crate) fn since_format(self) -> u32 {
        match self {
            Table::Consumer | Table::Audit => 4,
            _ => 1,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Table::Did => "did",
            Table::Repo => "repo",
            Table::Record => "record",
            Table::Version => "version",
            Table::Claimed => "claimed",
            Table::Parked => "parked",
            Table::Log => "log",
            Table::Upstream => "upstream",
            Table::Host => "host",
            Table::HostName => "host_name",
            Table::Hosted => "hosted",
            Table::Debt => "debt",
            Table::Dead => "dead",
            Table::Meta => "meta",
            Table::Consumer => "consumer",
            Table::Audit => "audit",
        }
    }

    #[cfg(feature = "engine")]
    pub(crate) fn tuning(self) -> Tuning {
        let bulk = Tuning {
            memtable_bytes: 32 << 20,
            block_bytes: 16 << 10,
            compressed: true,
            reads_hit: false,
        };
        let small = Tuning {
            memtable_bytes: 16 << 20,
            block_bytes: 4 << 10,
            compressed: false,
            reads_hit: false,
        };
        match self {
            Table::Record | Table::Log => bulk,
            Table::Version | Table::Claimed | Table::Parked => Tuning {
                memtable_bytes: 16 << 20,
                ..bulk
            },
            Table::Repo => Tuning {
                memtable_bytes: 16 << 20,
                block_bytes: 4 << 10,
                compressed: false,
                reads_hit: true,
            },
            Table::Dead => Tuning {
                memtable_bytes: 16 << 20,
                ..bulk
            },
            Table::Did
            | Table::Upstream
            | Table::Host
            | Table::HostName
            | Table::Hosted
            | Table::Debt
            | Table::Meta
            | Table::Consumer
            | Table::Audit => small,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_stand_where_their_number_says_and_have_names_of_their_own() {
        let mut names = std::collections::BTreeSet::new();
        for (place, table) in Table::ALL.into_iter().enumerate() {
            assert_eq!(table as usize, place);
            assert!(names.insert(table.name()), "{} twice", table.name());
        }
    }
}
