//! `repo`: repository → what the ledger knows of it, and the signed commit of its head.
//!
//! The debt has a table of its own, so that all debts can be read without reading every
//! repository; this row says whether the repository has one. Claims have a table and a
//! flag too.

use std::sync::Arc;

use gapless_atp::syntax::{Did, Handle};
use gapless_core::ledger::{
    Account, Behind, Debt, DocumentKeys, FilterGen, Head, Hearsay, Held, KeyBytes, Lived, Marker,
    PastHead, Repo, RepoSweep, RootProof, SignerKey, SweepSource, TokenBucket,
};

use super::debt::{read_named, write_named};
use crate::codec::{RowFault, RowReader, RowWriter, read_row};

/// Version 2 added the signing key and whether the repository is tracked by name; version 3
/// added the deletion that only a relay reports; version 4 added the handle, the weight, the
/// time lived through at a deletion, the purge that is under way, and what consumers of the log
/// have to be told.
const VERSION: u8 = 4;

/// A row as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoRow {
    /// The repository. Its debt has its own row: here it is neither written nor read.
    pub repo: Repo,
    /// Whether there is a row in `debt`.
    pub owes: bool,
    /// Whether there may be rows in `claimed`.
    pub claims: bool,
    /// Whether claims gave way to newer ones: consumers of the log still have them, and are told
    /// when the claims of the repository are withdrawn.
    pub gave_way: bool,
    /// What is held; `None` in a row of an earlier format until the repository is counted.
    pub weight: Option<RepoWeight>,
    /// Whether the rows of the log alone do not lead to what is held: the next signed state is
    /// followed by a `restated` row.
    pub restate: bool,
    /// The purge that is under way, by its first log number.
    pub purge: Option<u64>,
    /// The block of the head's commit as its owner signed it; empty if the store never
    /// got it.
    pub commit: Arc<[u8]>,
}

/// How much is held of a repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepoWeight {
    /// Records, and keys of records.
    pub records: u64,
    /// The bytes of the records.
    pub bytes: u64,
}

impl RepoWeight {
    /// Adds a record of this size.
    pub(crate) fn add(&mut self, bytes: u32) {
        self.records += 1;
        self.bytes += u64::from(bytes);
    }
}

pub fn encode(row: &RepoRow) -> Vec<u8> {
    let mut writer = RowWriter::default();
    write(&mut writer, row);
    writer.finish()
}

pub fn write(row: &mut RowWriter, value: &RepoRow) {
    let RepoRow {
        repo,
        owes,
        claims,
        gave_way: _,
        weight: _,
        restate: _,
        purge: _,
        commit,
    } = value;
    let Repo {
        did,
        host,
        host_since,
        document,
        signing,
        handle: _,
        tracked,
        account,
        deleted_at,
        deleted_lived: _,
        purging: _,
        hearsay,
        held,
        trail,
        lineage,
        abandoned,
        last_indexed_rev,
        last_firehose_rev,
        first_rev_since_reset,
        relay,
        cover,
        marker,
        unset_at,
        swept,
        confirmed_at,
        stale_listing,
        behind,
        filter,
        fetched_at,
        proven,
        key,
        debt: _,
        strangers,
    } = repo;
    row.restart(VERSION);
    row.text(did.as_str());
    row.flag(*owes).flag(*claims);
    row.maybe(*host, |row, host| {
        row.host(host);
    });
    row.tick(*host_since).number(*document);
    row.byte(account_code(*account));
    row.maybe(*deleted_at, |row, at| {
        row.time(at);
    });
    write_held(row, held);
    for past in trail {
        row.maybe(*past, |row, past| {
            row.rev(past.rev).wide(past.tag);
        });
    }
    row.number((*lineage).into());
    for rev in [
        abandoned,
        last_indexed_rev,
        last_firehose_rev,
        first_rev_since_reset,
    ] {
        row.maybe(*rev, |row, rev| {
            row.rev(rev);
        });
    }
    for upstream in [relay, cover] {
        row.maybe(*upstream, |row, upstream| {
            row.upstream(upstream);
        });
    }
    row.maybe(*marker, |row, marker| {
        row.upstream(marker.cover).number(marker.epoch.0);
    });
    row.tick(*unset_at);
    write_evidence(row, swept, proven, behind);
    row.maybe(*confirmed_at, |row, at| {
        row.time(at);
    });
    row.maybe(*stale_listing, |row, tag| {
        row.wide(tag);
    });
    row.number(filter.0.into());
    row.maybe(*fetched_at, |row, at| {
        row.time(at);
    });
    row.flag(*key == SignerKey::Previous);
    row.number(strangers.used.into()).time(strangers.at);
    row.maybe(*signing, |row, signing| {
        for key in [signing.key, signing.former] {
            row.maybe(key, write_key);
        }
        row.tick(signing.asked).time(signing.at);
    });
    row.flag(*tracked);
    row.maybe(*hearsay, |row, hearsay| {
        row.tick(hearsay.told).flag(hearsay.denied);
    });
    write_format_4(row, value);
    row.bytes(commit);
}

/// Writes what version 4 added.
fn write_format_4(row: &mut RowWriter, value: &RepoRow) {
    let repo = &value.repo;
    row.maybe(repo.handle.as_ref(), |row, handle| {
        row.text(handle.as_str());
    });
    row.maybe(repo.deleted_lived, |row, lived| {
        row.number(lived.0);
    });
    row.flag(repo.purging);
    row.maybe(value.weight, |row, weight| {
        row.number(weight.records).number(weight.bytes);
    });
    row.flag(value.restate).flag(value.gave_way);
    row.maybe(value.purge, |row, purge| {
        row.number(purge);
    });
}

pub fn decode(bytes: &[u8]) -> Result<RepoRow, RowFault> {
    read_row(bytes, VERSION, read)
}

fn read(row: &mut RowReader<'_>, version: u8) -> Result<RepoRow, RowFault> {
    let did = Did::parse(row.text()?).map_err(|_| RowFault::Value("DID"))?;
    let (owes, claims) = (row.flag()?, row.flag()?);
    let mut repo = Repo::new(did);
    repo.host = row.maybe(RowReader::host)?;
    repo.host_since = row.tick()?;
    repo.document = row.number()?;
    repo.account = account_of(row.byte()?)?;
    repo.deleted_at = row.maybe(RowReader::time)?;
    repo.held = read_held(row)?;
    for past in &mut repo.trail {
        *past = row.maybe(|row| {
            Ok(PastHead {
                rev: row.rev()?,
                tag: row.wide()?,
            })
        })?;
    }
    repo.lineage = row.small()?;
    repo.abandoned = row.maybe(RowReader::rev)?;
    repo.last_indexed_rev = row.maybe(RowReader::rev)?;
    repo.last_firehose_rev = row.maybe(RowReader::rev)?;
    repo.first_rev_since_reset = row.maybe(RowReader::rev)?;
    repo.relay = row.maybe(RowReader::upstream)?;
    repo.cover = row.maybe(RowReader::upstream)?;
    repo.marker = row.maybe(|row| {
        Ok(Marker {
            cover: row.upstream()?,
            epoch: gapless_core::ledger::Epoch(row.number()?),
        })
    })?;
    repo.unset_at = row.tick()?;
    read_evidence(row, &mut repo)?;
    repo.confirmed_at = row.maybe(RowReader::time)?;
    repo.stale_listing = row.maybe(RowReader::wide)?;
    repo.filter = FilterGen(row.small()?);
    repo.fetched_at = row.maybe(RowReader::time)?;
    repo.key = if row.flag()? {
        SignerKey::Previous
    } else {
        SignerKey::Present
    };
    repo.debt = Debt::default();
    repo.strangers = TokenBucket {
        used: row.small()?,
        at: row.time()?,
    };
    if version >= 2 {
        repo.signing = row.maybe(read_signing)?;
        repo.tracked = row.flag()?;
    }
    if version >= 3 {
        repo.hearsay = row.maybe(|row| {
            Ok(Hearsay {
                told: row.tick()?,
                denied: row.flag()?,
            })
        })?;
    }
    let (mut weight, mut restate, mut gave_way, mut purge) = (None, false, false, None);
    if version >= 4 {
        repo.handle =
            row.maybe(|row| Handle::parse(row.text()?).map_err(|_| RowFault::Value("handle")))?;
        repo.deleted_lived = row.maybe(|row| Ok(Lived(row.number()?)))?;
        repo.purging = row.flag()?;
        weight = row.maybe(|row| {
            Ok(RepoWeight {
                records: row.number()?,
                bytes: row.number()?,
            })
        })?;
        restate = row.flag()?;
        gave_way = row.flag()?;
        purge = row.maybe(RowReader::number)?;
    }
    Ok(RepoRow {
        repo,
        owes,
        claims,
        gave_way,
        weight,
        restate,
        purge,
        commit: row.bytes()?.into(),
    })
}

fn read_signing(row: &mut RowReader<'_>) -> Result<DocumentKeys, RowFault> {
    Ok(DocumentKeys {
        key: row.maybe(read_key)?,
        former: row.maybe(read_key)?,
        asked: row.tick()?,
        at: row.time()?,
    })
}

pub(super) fn write_key(row: &mut RowWriter, key: KeyBytes) {
    row.byte(key.curve).raw(&key.point);
}

pub(super) fn read_key(row: &mut RowReader<'_>) -> Result<KeyBytes, RowFault> {
    Ok(KeyBytes {
        curve: row.byte()?,
        point: row.array()?,
    })
}

fn write_evidence(
    row: &mut RowWriter,
    swept: &Option<RepoSweep>,
    proven: &Option<RootProof>,
    behind: &Option<Behind>,
) {
    row.maybe(*swept, |row, swept| {
        row.tick(swept.tick).time(swept.at);
        row.flag(swept.by == SweepSource::Head);
    });
    row.maybe(*proven, |row, proven| {
        row.rev(proven.rev).time(proven.at);
    });
    row.maybe(*behind, |row, behind| {
        write_named(row, &behind.named);
        row.time(behind.since).number(behind.times.into());
        row.time(behind.counted_at);
    });
}

fn read_evidence(row: &mut RowReader<'_>, repo: &mut Repo) -> Result<(), RowFault> {
    repo.swept = row.maybe(|row| {
        Ok(RepoSweep {
            tick: row.tick()?,
            at: row.time()?,
            by: if row.flag()? {
                SweepSource::Head
            } else {
                SweepSource::Listing
            },
        })
    })?;
    repo.proven = row.maybe(|row| {
        Ok(RootProof {
            rev: row.rev()?,
            at: row.time()?,
        })
    })?;
    repo.behind = row.maybe(|row| {
        Ok(Behind {
            named: read_named(row)?,
            since: row.time()?,
            times: row.small()?,
            counted_at: row.time()?,
        })
    })?;
    Ok(())
}

pub(super) fn write_head(row: &mut RowWriter, head: &Head) {
    row.rev(head.rev).cid(&head.data).cid(&head.commit);
}

pub(super) fn read_head(row: &mut RowReader<'_>) -> Result<Head, RowFault> {
    Ok(Head {
        rev: row.rev()?,
        data: row.cid()?,
        commit: row.cid()?,
    })
}

fn write_held(row: &mut RowWriter, held: &Held) {
    let rev = |row: &mut RowWriter, rev| {
        row.rev(rev);
    };
    match held {
        Held::Nothing => {
            row.byte(0);
        }
        Held::Exactly(head) => {
            row.byte(1);
            write_head(row, head);
        }
        Held::Applying { target, from } => {
            row.byte(2);
            write_head(row, target);
            row.maybe(*from, rev);
        }
        Held::Damaged { from } => {
            row.byte(3).maybe(*from, rev);
        }
    }
}

fn read_held(row: &mut RowReader<'_>) -> Result<Held, RowFault> {
    Ok(match row.byte()? {
        0 => Held::Nothing,
        1 => Held::Exactly(read_head(row)?),
        2 => Held::Applying {
            target: read_head(row)?,
            from: row.maybe(RowReader::rev)?,
        },
        3 => Held::Damaged {
            from: row.maybe(RowReader::rev)?,
        },
        _ => return Err(RowFault::Value("state")),
    })
}

pub(super) fn account_code(account: Account) -> u8 {
    match account {
        Account::Unknown => 0,
        Account::Active => 1,
        Account::Deactivated => 2,
        Account::Suspended => 3,
        Account::Takendown => 4,
        Account::Deleted => 5,
        Account::NotFound => 6,
    }
}

pub(super) fn account_of(code: u8) -> Result<Account, RowFault> {
    Ok(match code {
        0 => Account::Unknown,
        1 => Account::Active,
        2 => Account::Deactivated,
        3 => Account::Suspended,
        4 => Account::Takendown,
        5 => Account::Deleted,
        6 => Account::NotFound,
        _ => return Err(RowFault::Value("account state")),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary::any_repo;
    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            repo in any_repo(),
            owes in any::<bool>(),
            claims in any::<bool>(),
            weight in prop::option::of(any::<(u64, u64)>()),
            [restate, gave_way] in any::<[bool; 2]>(),
            purge in prop::option::of(any::<u64>()),
            commit in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let weight = weight.map(|(records, bytes)| RepoWeight { records, bytes });
            let commit = commit.into();
            let row = RepoRow { repo, owes, claims, gave_way, weight, restate, purge, commit };
            prop_assert_eq!(decode(&encode(&row)), Ok(row));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_broken_row_is_never_taken_for_whole(
            repo in any_repo(),
            cut in any::<prop::sample::Index>(),
        ) {
            let commit = b"signed".as_slice().into();
            let bytes = encode(&RepoRow {
                repo,
                owes: false,
                claims: false,
                gave_way: false,
                weight: None,
                restate: false,
                purge: None,
                commit,
            });
            prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
        }
    }
}
