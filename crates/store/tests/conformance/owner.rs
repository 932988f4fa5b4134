//! Plays the owner of a repository: real records, real roots, and the changes that follow from
//! a commit.

use std::collections::BTreeMap;

use gapless_atp::cid::Cid;
use gapless_atp::mst;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{Head, Held, Repo, Tick, Time, Upstream, UpstreamId, UpstreamKind};
use gapless_core::retain::When;
use gapless_store::change::{
    Change, EntryContent, LogEntry, RecordOp, RecordValue, Records, RecordsKind, RepoChange,
    Subject, Upkeep, UpstreamChange,
};
use gapless_store::cursor::EventPosition;
use gapless_store::sync_writer::SyncWriter;

#[derive(Clone)]
pub(crate) struct Owner {
    pub did: Did,
    pub records: BTreeMap<Vec<u8>, Vec<u8>>,
    pub rev: u64,
    /// What the store is believed to know.
    pub row: Repo,
    pub commit: Vec<u8>,
}

/// A path and its new bytes; none deletes.
pub(crate) type Write<'a> = (&'a str, Option<&'a str>);

impl Owner {
    pub(crate) fn new(number: u32) -> Owner {
        let digits = "abcdefghijklmnopqrstuvwxyz234567".as_bytes();
        let mut name = vec![b'a'; 24];
        let mut rest = number;
        for place in name.iter_mut().rev() {
            *place = digits[(rest % 32) as usize];
            rest /= 32;
        }
        let name = String::from_utf8(name).unwrap();
        let did = Did::parse(&format!("did:plc:{name}")).unwrap();
        Owner {
            row: Repo::new(did.clone()),
            did,
            records: BTreeMap::new(),
            rev: 0,
            commit: Vec::new(),
        }
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject::Did(self.did.clone())
    }

    pub(crate) fn root(&self) -> Cid {
        let keys: Vec<(&[u8], Cid)> = self
            .records
            .iter()
            .map(|(path, bytes)| (path.as_slice(), Cid::dag_cbor(bytes)))
            .collect();
        mst::root(keys.iter().copied()).unwrap()
    }

    /// Signs, as it were, what the records are now.
    pub(crate) fn sign(&mut self) -> Head {
        self.rev += 1;
        let data = self.root();
        self.commit = format!("{} {} {data}", self.did, self.rev).into_bytes();
        Head {
            rev: Rev::from_bits(self.rev),
            data,
            commit: Cid::dag_cbor(&self.commit),
        }
    }

    /// Writes records and makes the live change of it.
    pub(crate) fn live(&mut self, writes: &[Write<'_>]) -> Change {
        let mut ops = Vec::new();
        for (path, bytes) in writes {
            let old = match bytes {
                Some(bytes) => self
                    .records
                    .insert(path.as_bytes().to_vec(), bytes.as_bytes().to_vec()),
                None => self.records.remove(path.as_bytes()),
            };
            ops.push(RecordOp {
                fresh: old.is_none() && bytes.is_some(),
                ..op(path.as_bytes(), bytes.map(str::as_bytes))
            });
        }
        let head = self.sign();
        self.change(RecordsKind::Live, Held::Exactly(head), ops)
    }

    /// A change that leads from the row's state to another.
    pub(crate) fn change(&mut self, kind: RecordsKind, held: Held, ops: Vec<RecordOp>) -> Change {
        let before = std::mem::replace(&mut self.row.held, held);
        Change {
            repo: Some(RepoChange {
                entry: Some(entry(EntryContent::Records(Records {
                    kind,
                    before,
                    ops,
                    commit: self.commit.clone(),
                }))),
                ..RepoChange::row(self.subject(), self.row.clone())
            }),
            ..Change::default()
        }
    }

    /// The change with which a purge begins.
    pub(crate) fn purge(&mut self) -> Change {
        self.records.clear();
        self.row.held = Held::Nothing;
        self.row.purging = true;
        self.row.lineage += 1;
        self.entry_change(EntryContent::Purge)
    }

    /// The row, with an entry.
    pub(crate) fn entry_change(&self, what: EntryContent) -> Change {
        Change {
            repo: Some(RepoChange {
                entry: Some(entry(what)),
                ..RepoChange::row(self.subject(), self.row.clone())
            }),
            ..Change::default()
        }
    }

    /// The change with which a purge ends, once everything is deleted.
    pub(crate) fn end_purge(&mut self) -> Change {
        self.row.purging = false;
        self.row_change()
    }

    /// Nothing but the row.
    pub(crate) fn row_change(&self) -> Change {
        Change {
            repo: Some(RepoChange::row(self.subject(), self.row.clone())),
            ..Change::default()
        }
    }
}

pub(crate) fn op(path: &[u8], bytes: Option<&[u8]>) -> RecordOp {
    RecordOp {
        path: path.to_vec(),
        put: bytes.map(|bytes| RecordValue {
            cid: Cid::dag_cbor(bytes),
            bytes: Some(bytes.to_vec()),
        }),
        fresh: false,
    }
}

pub(crate) fn entry(what: EntryContent) -> LogEntry {
    LogEntry {
        at: Time(77),
        source: None,
        what,
        frame: None,
    }
}

/// Part of a purge.
pub(crate) fn delete_purged(purge: u64) -> Change {
    upkeep(Upkeep::DeletePurged {
        purge,
        at: When {
            time: Time(77),
            ..When::default()
        },
    })
}

pub(crate) fn upkeep(upkeep: Upkeep) -> Change {
    Change {
        upkeep: Some(upkeep),
        ..Change::default()
    }
}

/// Whether anything of a purge is still to be deleted.
pub(crate) fn is_deleting(book: &SyncWriter, purge: u64) -> bool {
    let row = book.view().purges(purge).next().unwrap().unwrap();
    assert_eq!(row.0, purge);
    row.1.deleting.is_some()
}

/// Begins a purge and deletes everything. Returns the number of the purge.
pub(crate) fn purge_whole(book: &mut SyncWriter, owner: &mut Owner) -> u64 {
    let number = book.write(owner.purge()).unwrap().numbers.unwrap().start;
    while is_deleting(book, number) {
        book.write(delete_purged(number)).unwrap();
    }
    book.write(owner.end_purge()).unwrap();
    number
}

pub(crate) fn relay(numbering: u32) -> Upstream {
    Upstream {
        url: "wss://relay.example.org".to_owned(),
        kind: UpstreamKind::Relay,
        host: None,
        epoch: gapless_core::ledger::Epoch(5),
        first_cursor_since_reset: None,
        numbering,
        reset_at: Tick(0),
        unread_at: None,
        followed: Default::default(),
    }
}

pub(crate) fn new_upstream(book: &mut SyncWriter) -> UpstreamId {
    let change = Change {
        upstream: Some(UpstreamChange::New(relay(0))),
        ..Change::default()
    };
    book.write(change).unwrap().upstream.unwrap()
}

pub(crate) fn done(upstream: UpstreamId, numbering: u32, seq: u64) -> Option<EventPosition> {
    Some(EventPosition {
        upstream,
        numbering,
        seq,
        event: [seq as u8; 16],
    })
}
