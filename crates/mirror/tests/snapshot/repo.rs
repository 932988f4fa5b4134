//! Made-up repositories, their CARs, and a mirror in memory that applies them.

use std::collections::{BTreeMap, HashSet};

use gapless_atp::car::{write_block, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::mst::{Builder, ClosedNode};
use gapless_atp::repo::Commit;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{Held, Repo as Row, RepoId, Time};
use gapless_mirror::repair::compare::{Chunk, CompareInput, Keep, Totals};
use gapless_mirror::repair::held_tree::{HELD_TREE_BYTES, HeldTree};
use gapless_mirror::repair::snapshot::{Snapshot, SnapshotError};
use gapless_mirror::repair::spill::{Spill, SpillError, SpillLimits, SpilledCar};
use gapless_store::change::{
    Change, EntryContent, LogEntry, RecordOp, RecordValue, Records, RecordsKind, RepoChange,
    Subject,
};
use gapless_store::store::Store;

/// All in memory, and all on disk.
pub(crate) const BOTH: [usize; 2] = [usize::MAX, 0];

pub(crate) fn did() -> Did {
    Did::parse("did:plc:ewvi7nxzyoun6zhxrhs64oiz").unwrap()
}

/// Numbers by a seed alone.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

pub(crate) type Blocks = Vec<(Cid, Vec<u8>)>;

/// What an owner has, and the rev of its last commit.
#[derive(Clone)]
pub(crate) struct Repo {
    pub records: BTreeMap<Vec<u8>, Vec<u8>>,
    pub rev: u64,
}

impl Repo {
    pub(crate) fn empty() -> Repo {
        let records = BTreeMap::new();
        Repo { records, rev: 1 }
    }

    /// So many records, no two alike.
    pub(crate) fn of(count: usize) -> Repo {
        let mut repo = Repo::empty();
        for number in 0..count {
            repo.records.insert(path(number), record(number, 40));
        }
        repo
    }

    pub(crate) fn signed_rev(&self) -> Rev {
        Rev::from_micros(1_700_000_000_000_000 + self.rev, 0)
    }

    /// The commit, the nodes, the records; each once.
    pub(crate) fn blocks(&self) -> Blocks {
        let keys = self.records.iter();
        let keys = keys.map(|(path, bytes)| (path.clone(), Cid::dag_cbor(bytes)));
        let mut blocks = tree(self.signed_rev(), keys);
        let records = self.records.values();
        blocks.extend(records.map(|bytes| (Cid::dag_cbor(bytes), bytes.clone())));
        let mut seen = HashSet::new();
        blocks.retain(|(cid, _)| seen.insert(*cid.as_bytes()));
        blocks
    }

    /// The blocks that are not in an older state: what `since` brings.
    pub(crate) fn blocks_since(&self, older: &Repo) -> Blocks {
        let old: HashSet<_> = older
            .blocks()
            .iter()
            .map(|(cid, _)| *cid.as_bytes())
            .collect();
        let mut blocks = self.blocks();
        blocks.retain(|(cid, _)| !old.contains(cid.as_bytes()));
        blocks
    }

    /// What a mirror of it holds that keeps everything.
    pub(crate) fn held(&self) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let records = self.records.iter();
        records
            .map(|(path, bytes)| (path.clone(), Some(bytes.clone())))
            .collect()
    }

    /// A few random creates, updates, deletes, copies and moves.
    pub(crate) fn stir(&mut self, random: &mut Random) {
        for _ in 0..1 + random.below(12) {
            let number = random.below(400);
            let bytes = record(random.below(1_000_000), 40);
            let some = random.below(self.records.len().max(1));
            let some = self.records.keys().nth(some).cloned();
            match (random.below(5), some) {
                (0, Some(some)) => drop(self.records.remove(&some)),
                (1, Some(some)) => drop(self.records.insert(some, bytes)),
                (2, Some(some)) => {
                    let moved = self.records.remove(&some).unwrap();
                    self.records.insert(path(number), moved);
                }
                (3, Some(some)) => {
                    let copied = self.records[&some].clone();
                    self.records.insert(path(number), copied);
                }
                _ => drop(self.records.insert(path(number), bytes)),
            }
        }
        self.rev += 1;
    }
}

/// A commit and the nodes of its tree, whose keys must rise.
pub(crate) fn tree(rev: Rev, keys: impl Iterator<Item = (Vec<u8>, Cid)>) -> Blocks {
    let mut nodes = Blocks::new();
    let mut builder = Builder::new(|node: ClosedNode<'_>| {
        nodes.push((node.cid, node.block.to_vec()));
    });
    for (path, cid) in keys {
        builder.push(&path, cid).unwrap();
    }
    let mut blocks = vec![commit(&did(), rev, &builder.finish())];
    blocks.append(&mut nodes);
    blocks
}

/// One large record under so many paths: a small file, and a full disk. The
/// record is the last block.
pub(crate) fn repeated(paths: usize) -> Blocks {
    let large = record(1, 1 << 20);
    let cid = Cid::dag_cbor(&large);
    let mut keys: Vec<(Vec<u8>, Cid)> = (0..paths).map(|number| (path(number), cid)).collect();
    keys.sort();
    let mut blocks = tree(Repo::empty().signed_rev(), keys.into_iter());
    blocks.push((cid, large));
    blocks
}

pub(crate) fn path(number: usize) -> Vec<u8> {
    let collection = [
        "app.bsky.feed.like",
        "app.bsky.feed.post",
        "com.example.thing",
    ][number % 3];
    format!("{collection}/3k{number:010}").into_bytes()
}

/// Bytes of a plausible size for a record. Their content does not matter here.
pub(crate) fn record(number: usize, bytes: usize) -> Vec<u8> {
    let mut record = format!("record {number} ").into_bytes();
    record.resize(bytes.max(record.len()), b'.');
    record
}

pub(crate) fn commit(did: &Did, rev: Rev, root: &Cid) -> (Cid, Vec<u8>) {
    let block = Commit::encode(did.as_str(), rev, &[7; 64], root, None);
    (Cid::dag_cbor(&block), block)
}

/// A CAR whose root is the first block.
pub(crate) fn car(blocks: &Blocks) -> Vec<u8> {
    let mut car = Vec::new();
    write_header(&mut car, &[blocks[0].0]);
    for (cid, block) in blocks {
        write_block(&mut car, cid, block);
    }
    car
}

pub(crate) fn fetch(car: &[u8], memory: usize) -> Result<SpilledCar, SpillError> {
    let folder = tempfile::tempdir().unwrap();
    let limits = SpillLimits {
        memory,
        ..SpillLimits::default()
    };
    let mut spill = Spill::new(folder.path(), limits);
    // Odd pieces, so that blocks are cut everywhere.
    for piece in car.chunks(997) {
        spill.feed(piece)?;
    }
    let fetched = spill.finish()?;
    assert_eq!(fetched.is_spilled(), memory == 0);
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "the file has a name");
    Ok(fetched)
}

pub(crate) fn snapshot(blocks: &Blocks, memory: usize) -> Result<Snapshot, SnapshotError> {
    Snapshot::check(fetch(&car(blocks), memory).unwrap(), &did())
}

pub(crate) fn keep_all(_: &[u8]) -> Keep {
    Keep::Record
}

/// A store, and the one repository in it.
pub(crate) struct Mirror {
    pub store: Store,
    pub did: Did,
}

impl Mirror {
    pub(crate) fn new() -> Mirror {
        Mirror::of(&did())
    }

    pub(crate) fn of(did: &Did) -> Mirror {
        let store = Store::memory().unwrap();
        let did = did.clone();
        Mirror { store, did }
    }

    pub(crate) fn id(&self) -> Option<RepoId> {
        self.store.view().repo_id(&self.did).unwrap()
    }

    pub(crate) fn row(&self) -> Row {
        let row = self.store.view().repo_by_did(&self.did).unwrap();
        row.map_or_else(|| Row::new(self.did.clone()), |(_, row)| row)
    }

    pub(crate) fn tree(&self) -> HeldTree {
        let tree = HeldTree::build(&self.store.view(), self.id().unwrap(), HELD_TREE_BYTES);
        let tree = tree.unwrap().unwrap();
        assert_eq!(Some(tree.root()), self.row().head().map(|head| head.data));
        tree
    }

    /// All chunks of a comparison.
    pub(crate) fn compare(
        &self,
        snapshot: &Snapshot,
        wanted: &dyn Fn(&[u8]) -> Keep,
        repair: bool,
    ) -> Result<(Vec<Chunk>, Totals), SnapshotError> {
        let view = self.store.view();
        let comparison = CompareInput {
            open_view: &|| view.clone(),
            repo: self.id(),
            keep: wanted,
            compare_bytes: repair,
        };
        let mut differences = snapshot.differences(comparison)?;
        let mut chunks = Vec::new();
        for chunk in &mut differences {
            match chunk {
                Ok(chunk) => chunks.push(chunk),
                Err(error) => {
                    assert!(chunks.is_empty(), "chunks came before the error: {error}");
                    return Err(error);
                }
            }
        }
        let totals = differences.totals();
        assert_eq!(totals.chunks, chunks.len() as u64);
        let last = chunks.iter().filter(|chunk| chunk.last).count();
        assert!(
            last == 1 && chunks.last().unwrap().last,
            "one chunk is the last"
        );
        Ok((chunks, totals))
    }

    /// Compares, and writes what came of it.
    pub(crate) fn take(
        &self,
        snapshot: &Snapshot,
        wanted: &dyn Fn(&[u8]) -> Keep,
        repair: bool,
    ) -> Result<Totals, SnapshotError> {
        let (chunks, totals) = self.compare(snapshot, wanted, repair)?;
        for chunk in chunks {
            let from = self.row().head().map(|head| head.rev);
            let held = if chunk.last {
                Held::Exactly(snapshot.head())
            } else {
                Held::Applying {
                    target: snapshot.head(),
                    from,
                }
            };
            self.write(held, chunk.ops, snapshot.commit_block());
        }
        Ok(totals)
    }

    fn write(&self, held: Held, ops: Vec<RecordOp>, commit: &[u8]) {
        let mut row = self.row();
        let before = row.held;
        row.held = held;
        let records = Records {
            kind: RecordsKind::Repair,
            before,
            ops,
            commit: commit.to_vec(),
        };
        let entry = LogEntry {
            at: Time(1),
            source: None,
            what: EntryContent::Records(records),
            frame: None,
        };
        let mut change = RepoChange::row(Subject::Did(self.did.clone()), row);
        change.entry = Some(entry);
        let repo = Some(change);
        let change = Change {
            repo,
            ..Change::default()
        };
        self.store.write(change).unwrap();
    }

    /// Puts other bytes, or none, under the CID of a held record.
    pub(crate) fn spoil(&self, path: &[u8], bytes: Option<Vec<u8>>) {
        let held = self.store.view().record(self.id().unwrap(), path).unwrap();
        let cid = held.unwrap().cid;
        let op = RecordOp {
            path: path.to_vec(),
            put: Some(RecordValue { cid, bytes }),
            fresh: false,
        };
        self.write(self.row().held, vec![op], &[]);
    }

    pub(crate) fn held(&self) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let view = self.store.view();
        let records = self.id().map(|id| view.records(id));
        let records = records.into_iter().flatten().map(Result::unwrap);
        records
            .map(|record| (record.path().to_vec(), record.bytes().map(<[u8]>::to_vec)))
            .collect()
    }
}
