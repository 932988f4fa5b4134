//! What is written on bad days: commits, snapshots in chunks, account states,
//! debts, parked frames and dead letters of a few repositories, one event of one
//! upstream after the other. Roots are real; signatures are not checked by the
//! store and are not made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gapless_atp::cid::Cid;
use gapless_atp::mst;
use gapless_atp::repo::Commit;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{
    Account, Debt, DebtItem, DebtReason, Epoch, Head, Held, HostId, Lived, Parked, PriorState,
    Repo, Tick, Time, Upstream, UpstreamId, UpstreamKind,
};
use gapless_core::retain::When;
use gapless_store::Store;
use gapless_store::change::{
    Change, ClaimEntry, DeadChange, EntryContent, HostChange, IdentityParts, LogEntry, RecordOp,
    RecordValue, Records, RecordsKind, RepoChange, Subject, Upkeep, UpstreamChange,
};
use gapless_store::cursor::EventPosition;
use gapless_store::read_view::ReadView;
use gapless_store::table::claimed::Claim;
use gapless_store::table::dead::{DeadClass, DeadLetter, Resolution};
use gapless_store::table::log::{LogRow, SourceEvent};
use gapless_store::table::parked::ParkedFrame;

use crate::power::Dice;

pub(crate) const REPOS: u64 = 24;
const LATER: When = When {
    time: Time(77),
    lived: Lived(0),
};

const HOSTS: u32 = 3;
const RECORDS: usize = 120;
/// The parts of a purge: one of records, and some of superseded records.
const PURGE_PARTS: usize = 12;
pub(crate) const UPSTREAM: UpstreamId = UpstreamId(1);

/// One event: the changes it comes to, in order, and what its last row in the log
/// will say.
pub(crate) struct Event {
    pub number: u64,
    pub changes: Vec<Change>,
    /// Of the row that names this event as its source.
    pub ops: u32,
    pub has_frame: bool,
}

/// The owners of all repositories, and the next event.
pub(crate) struct Load {
    owners: Vec<Owner>,
    hosts: Vec<HostId>,
    next: u64,
    dice: Dice,
    tick: u64,
    /// Each event brings a dead letter of this size.
    pub letter_bytes: usize,
    /// The purges that have begun, by the DID.
    pub purges: BegunPurges,
}

/// Which purges have begun, and the number of each: they are told when a change is acknowledged.
#[derive(Clone, Default)]
pub(crate) struct BegunPurges(Arc<Mutex<BTreeMap<Did, u64>>>);

impl BegunPurges {
    /// The repository that this change begins to purge.
    pub(crate) fn begun_by(change: &Change) -> Option<Did> {
        let repo = change.repo.as_ref()?;
        let entry = repo.entry.as_ref()?;
        let row = repo.row.as_ref()?;
        matches!(entry.what, EntryContent::Purge).then(|| row.did.clone())
    }

    pub(crate) fn note(&self, did: Did, number: u64) {
        self.0.lock().unwrap().insert(did, number);
    }

    fn take(&self, did: &Did) -> Option<u64> {
        self.0.lock().unwrap().remove(did)
    }
}

impl Event {
    /// Writes the event, one change after the other.
    pub(crate) fn write(self, store: &Store, purges: &BegunPurges) {
        store.begin(UPSTREAM, 0, self.number);
        for change in self.changes {
            let begun = BegunPurges::begun_by(&change);
            let ack = store.write(change).expect("writing goes on");
            if let Some(did) = begun {
                purges.note(did, ack.numbers.expect("it is logged").start);
            }
        }
    }
}

struct Owner {
    row: Repo,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    rev: u64,
}

/// What the operations of a row say, in a number.
pub(crate) fn ops_hash<'a>(ops: impl Iterator<Item = (&'a [u8], Option<&'a Cid>)>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for (path, cid) in ops {
        hasher.update(path);
        hasher.update(cid.map_or(&[0][..], |cid| cid.as_bytes()));
    }
    hasher.finalize()
}

pub(crate) fn row_hash(row: &LogRow) -> u32 {
    ops_hash(row.ops.iter().map(|op| (&op.path[..], op.cid.as_ref())))
}

/// The frame of an event, as long as frames are.
pub(crate) fn frame(event: u64, ops: u32) -> Vec<u8> {
    let mut frame = format!("event {event} {ops:08x} ").into_bytes();
    let length = 200 + (event * 37 % 1800) as usize;
    while frame.len() < length {
        frame.extend_from_slice(&event.to_le_bytes());
    }
    frame
}

fn did(number: u64) -> Did {
    let digits = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut name = vec![b'a'; 24];
    let mut rest = number;
    for place in name.iter_mut().rev() {
        *place = digits[(rest % 32) as usize];
        rest /= 32;
    }
    Did::parse(&format!("did:plc:{}", String::from_utf8(name).unwrap())).unwrap()
}

impl Load {
    /// Goes on where the store is. A store that is new gets its upstream and
    /// hosts first.
    pub(crate) fn resume(store: &Store, seed: u64) -> Load {
        if store.view().upstream(UPSTREAM).unwrap().is_none() {
            set_up(store);
        }
        let hosts = (0..HOSTS).map(|host| name_host(store, host)).collect();
        let view = store.view();
        let next = view
            .cursor(UPSTREAM)
            .unwrap()
            .map_or(1, |cursor| cursor.seq + 1);
        let purges = BegunPurges::default();
        for row in view.purges(0) {
            let (number, row) = row.unwrap();
            if view
                .repo(row.repo)
                .unwrap()
                .is_some_and(|repo| repo.purging)
            {
                purges.note(row.did, number);
            }
        }
        let owners = (0..REPOS)
            .map(|number| Owner::resume(&view, number))
            .collect();
        Load {
            owners,
            hosts,
            next,
            dice: Dice(seed ^ next << 20),
            tick: view.counters().unwrap().last_tick.0,
            letter_bytes: 0,
            purges,
        }
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Event {
        let number = self.next;
        self.next += 1;
        let owner = self.dice.below(REPOS) as usize;
        let kind = self.dice.below(100);
        let mut dice = Dice(self.dice.roll());
        let owner = &mut self.owners[owner];
        self.tick += 1;
        let mut changes = match (&owner.row.held, kind) {
            _ if owner.row.purging => match self.purges.take(&owner.row.did) {
                Some(purge) => owner.go_on_purging(purge),
                // Its number is not known yet.
                None => owner.account(),
            },
            (Held::Exactly(_), 0..80) => owner.commit(&mut dice),
            (Held::Exactly(_), 80..84) => owner.account(),
            (Held::Exactly(_), 84..88) => owner.owe(self.tick),
            (Held::Exactly(_), 88..92) => owner.park(),
            (Held::Exactly(_), 92..94) => owner.purge(),
            _ => owner.snapshot(&mut dice, &self.hosts),
        };
        let (ops, has_frame) = self.finish(number, &mut changes);
        Event {
            number,
            changes,
            ops,
            has_frame,
        }
    }

    /// Changes that leave something under way: a purge, of which one part is done, and a claim.
    /// They name no event.
    pub(crate) fn under_way(&mut self, store: &Store) -> Vec<Change> {
        let exact = |owner: &&mut Owner| matches!(owner.row.held, Held::Exactly(_));
        let mut owners = self.owners.iter_mut().filter(exact);
        let (Some(purged), Some(claimed)) = (owners.next(), owners.next()) else {
            panic!("two repositories are held");
        };
        claimed.row.debt.compare = Some(DebtItem {
            at: Tick(self.tick),
            why: DebtReason::Claimed,
        });
        let claim = Claim {
            upstream: UPSTREAM,
            rev: Rev::from_bits(claimed.rev + 5),
            record: Some((Cid::dag_cbor(b"said"), b"said".to_vec())),
        };
        let claim = EntryContent::Claim(ClaimEntry {
            path: b"app.example.post/9999".to_vec(),
            claim,
            give_way: Vec::new(),
        });
        let claim = claimed.change(entry(claim));
        let part = Change {
            upkeep: Some(Upkeep::DeletePurged {
                purge: store.durable_head().next_seq,
                at: LATER,
            }),
            ..Change::default()
        };
        let mut changes = purged.purge();
        changes.extend([part, claim]);
        changes
    }

    /// The last change names the event and carries its frame.
    fn finish(&mut self, number: u64, changes: &mut [Change]) -> (u32, bool) {
        let last = changes.last_mut().expect("every event changes something");
        last.tick = Tick(self.tick);
        last.done = Some(EventPosition {
            upstream: UPSTREAM,
            numbering: 0,
            seq: number,
            event: [number as u8; 16],
        });
        if self.letter_bytes > 0 || number.is_multiple_of(50) {
            last.dead = Some(DeadChange::New(letter(number, self.letter_bytes)));
        }
        let entry = last.repo.as_mut().and_then(|repo| repo.entry.as_mut());
        let entry = entry.expect("every event is in the log");
        let ops = match &entry.what {
            EntryContent::Records(records) => ops_hash(records.ops.iter().map(|op| {
                let cid = op.put.as_ref().map(|put| &put.cid);
                (&op.path[..], cid)
            })),
            _ => ops_hash(std::iter::empty()),
        };
        entry.source = Some(SourceEvent {
            upstream: UPSTREAM,
            seq: number,
        });
        // What is purged is not sent on.
        let has_frame = !matches!(entry.what, EntryContent::Purge);
        entry.frame = has_frame.then(|| frame(number, ops));
        (ops, has_frame)
    }
}

/// The number of a host; it gets one if it has none.
fn name_host(store: &Store, host: u32) -> HostId {
    let change = Change {
        host: Some(HostChange::Named(format!("host{host}.example.org"))),
        ..Change::default()
    };
    store.write(change).unwrap().host.expect("a number")
}

fn set_up(store: &Store) {
    let relay = Upstream {
        url: "wss://relay.example.org".to_owned(),
        kind: UpstreamKind::Relay,
        host: None,
        epoch: Epoch(5),
        first_cursor_since_reset: None,
        numbering: 0,
        reset_at: Tick(0),
        unread_at: None,
        followed: Default::default(),
    };
    let change = Change {
        upstream: Some(UpstreamChange::New(relay)),
        ..Change::default()
    };
    assert_eq!(store.write(change).unwrap().upstream, Some(UPSTREAM));
}

impl Owner {
    fn resume(view: &ReadView, number: u64) -> Owner {
        let did = did(number);
        let Some((id, row)) = view.repo_by_did(&did).unwrap() else {
            return Owner {
                row: Repo::new(did),
                records: BTreeMap::new(),
                rev: 1,
            };
        };
        let mut records = BTreeMap::new();
        // What a purge has not deleted yet is nothing that the owner has.
        let held = view.records(id).filter(|_| !row.purging);
        for record in held {
            let record = record.unwrap();
            let bytes = record.bytes().unwrap_or_default().to_vec();
            records.insert(record.path().to_vec(), bytes);
        }
        // Far above whatever was on its way when the last process ended.
        let rev = row.floor().map_or(1, Rev::to_bits) + 1_000;
        Owner { row, records, rev }
    }

    fn sign(&mut self) -> (Head, Vec<u8>) {
        self.rev += 1;
        let keys = self.records.iter();
        let keys: Vec<(&[u8], Cid)> = keys
            .map(|(path, bytes)| (&path[..], Cid::dag_cbor(bytes)))
            .collect();
        let data = mst::root(keys.iter().copied()).unwrap();
        let rev = Rev::from_bits(self.rev);
        let block = Commit::encode(self.row.did.as_str(), rev, &[7; 64], &data, None);
        let commit = Cid::dag_cbor(&block);
        (Head { rev, data, commit }, block)
    }

    fn change(&self, entry: LogEntry) -> Change {
        Change {
            repo: Some(RepoChange {
                entry: Some(entry),
                ..RepoChange::row(Subject::Did(self.row.did.clone()), self.row.clone())
            }),
            ..Change::default()
        }
    }

    fn records(
        &self,
        kind: RecordsKind,
        before: Held,
        ops: Vec<RecordOp>,
        commit: Vec<u8>,
    ) -> Change {
        self.change(entry(EntryContent::Records(Records {
            kind,
            before,
            ops,
            commit,
        })))
    }

    fn commit(&mut self, dice: &mut Dice) -> Vec<Change> {
        let mut was_held = BTreeMap::new();
        for _ in 0..=dice.below(3) {
            let path = format!("app.example.post/{:04}", dice.below(RECORDS as u64));
            let path = path.into_bytes();
            let held = self.records.contains_key(&path);
            was_held.entry(path.clone()).or_insert(held);
            if held && dice.below(3) == 0 {
                self.records.remove(&path)
            } else {
                self.records.insert(path, record(dice))
            };
        }
        let ops = was_held
            .iter()
            .filter(|(path, held)| **held || self.records.contains_key(*path))
            .map(|(path, _)| op(path, self.records.get(path)))
            .collect();
        let (head, block) = self.sign();
        let before = std::mem::replace(&mut self.row.held, Held::Exactly(head));
        self.row.last_firehose_rev = Some(head.rev);
        let mut change = self.records(RecordsKind::Live, before, ops, block);
        if let Some(repo) = &mut change.repo {
            // Whatever was parked is older now.
            repo.unpark = vec![Rev::from_bits(self.rev - 1)];
        }
        vec![change]
    }

    /// Everything anew, in chunks, from whatever is held.
    fn snapshot(&mut self, dice: &mut Dice, hosts: &[HostId]) -> Vec<Change> {
        let old = std::mem::take(&mut self.records);
        for number in 0..dice.below(RECORDS as u64) {
            let path = format!("app.example.post/{number:04}").into_bytes();
            self.records.insert(path, record(dice));
        }
        let mut ops = Vec::new();
        let paths: std::collections::BTreeSet<_> =
            old.keys().chain(self.records.keys()).cloned().collect();
        for path in paths {
            if old.get(&path) != self.records.get(&path) {
                ops.push(op(&path, self.records.get(&path)));
            }
        }
        let (head, block) = self.sign();
        let from = self.row.floor();
        let mut changes = Vec::new();
        let chunk = 1 + dice.below(60) as usize;
        while ops.len() > chunk {
            let rest = ops.split_off(chunk);
            let applying = Held::Applying { target: head, from };
            let before = std::mem::replace(&mut self.row.held, applying);
            changes.push(self.records(RecordsKind::Repair, before, ops, Vec::new()));
            ops = rest;
        }
        let before = std::mem::replace(&mut self.row.held, Held::Exactly(head));
        self.row.last_indexed_rev = Some(head.rev);
        self.row.host = Some(hosts[dice.below(HOSTS.into()) as usize]);
        self.row.account = Account::Active;
        self.row.debt = Debt::default();
        changes.push(self.records(RecordsKind::Repair, before, ops, block));
        changes
    }

    fn account(&mut self) -> Vec<Change> {
        self.row.account = match self.row.account {
            Account::Active => Account::Deactivated,
            _ => Account::Active,
        };
        vec![self.change(entry(EntryContent::Account))]
    }

    fn owe(&mut self, tick: u64) -> Vec<Change> {
        self.row.debt.compare = match self.row.debt.compare {
            Some(_) => None,
            None => Some(DebtItem {
                at: Tick(tick),
                why: DebtReason::Operator,
            }),
        };
        vec![self.change(entry(EntryContent::Identity(IdentityParts::default())))]
    }

    fn park(&mut self) -> Vec<Change> {
        let head = *self.row.head().expect("only what is exact is parked upon");
        let mut change = self.change(entry(EntryContent::Identity(IdentityParts::default())));
        if let Some(repo) = &mut change.repo {
            repo.park.push(ParkedFrame {
                parked: Parked {
                    head,
                    before: PriorState::Untold,
                    origin: None,
                    bytes: 300,
                },
                upstream: UPSTREAM,
                epoch: None,
                frame: vec![9; 300],
            });
        }
        vec![change]
    }

    fn purge(&mut self) -> Vec<Change> {
        self.records.clear();
        self.row.held = Held::Nothing;
        self.row.purging = true;
        vec![self.change(entry(EntryContent::Purge))]
    }

    /// More parts than there can be, and the end of the purge.
    fn go_on_purging(&mut self, purge: u64) -> Vec<Change> {
        let at = LATER;
        let part = || Change {
            upkeep: Some(Upkeep::DeletePurged { purge, at }),
            ..Change::default()
        };
        self.row.purging = false;
        let changed = EntryContent::Identity(IdentityParts::default());
        let mut changes: Vec<Change> = (0..PURGE_PARTS).map(|_| part()).collect();
        changes.push(self.change(entry(changed)));
        changes
    }
}

fn record(dice: &mut Dice) -> Vec<u8> {
    let length = 20 + dice.below(300) as usize;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&dice.roll().to_le_bytes());
    }
    bytes
}

fn op(path: &[u8], bytes: Option<&Vec<u8>>) -> RecordOp {
    RecordOp {
        path: path.to_vec(),
        put: bytes.map(|bytes| RecordValue {
            cid: Cid::dag_cbor(bytes),
            bytes: Some(bytes.clone()),
        }),
        fresh: false,
    }
}

fn entry(what: EntryContent) -> LogEntry {
    LogEntry {
        at: Time(77),
        source: None,
        what,
        frame: None,
    }
}

pub(crate) fn letter(number: u64, bytes: usize) -> DeadLetter {
    let mut dice = Dice(number);
    // Nothing that can be compressed.
    let payload = (0..bytes.div_ceil(8)).flat_map(|_| dice.roll().to_le_bytes());
    DeadLetter {
        class: DeadClass::Invalid,
        source: None,
        repo: None,
        error: format!("letter {number}"),
        payload: payload.collect(),
        attempts: 0,
        first_seen: Time(0),
        resolution: Resolution::Open,
    }
}
