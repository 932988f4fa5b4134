//! A long random history, decided by a seed: commits, snapshots in chunks that are interrupted,
//! rollbacks, claims, damage, purges in parts, and changes that must be refused.

use std::collections::BTreeMap;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::{
    Account, Debt, DebtItem, DebtReason, Head, Held, RepoId, Tick, Time, UpstreamId,
};
use gapless_store::change::{
    Change, ClaimEntry, EntryContent, HostChange, IdentityParts, RecordOp, RecordsKind,
};
use gapless_store::read_view::ReadView;
use gapless_store::table::claimed::Claim;
use gapless_store::table::log::LogKind;

use crate::owner::{Owner, delete_purged, op};

/// Chance, from a seed.
#[derive(Clone)]
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound
    }
}

const OWNERS: u32 = 6;
/// Operations of one row.
const ROW_OPS: usize = 1_000;
/// Claims of a repository before older ones give way.
const CLAIMS: usize = 3;

/// An owner, and what the store must hold of the repository.
#[derive(Clone)]
struct Actor {
    owner: Owner,
    held: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What is left of a snapshot that is being written, and the state that it leads to.
    rest: Vec<RecordOp>,
    target: Option<Head>,
    claims: BTreeMap<Vec<u8>, Rev>,
    gave_way: bool,
    restate: bool,
    /// The purge that is under way, and how many parts are left at most.
    purge: Option<(u64, usize)>,
    /// Records to delete by the purge.
    left: usize,
    /// The superseded records that there may be.
    versions: usize,
}

/// Makes changes, and knows what they come to.
#[derive(Clone)]
pub(crate) struct Story {
    dice: Dice,
    actors: Vec<Actor>,
    /// Numbers that the log must have by now.
    pub numbers: u64,
    pub refused: u64,
}

impl Story {
    pub(crate) fn new(seed: u64) -> Story {
        let actor = |number| Actor {
            owner: Owner::new(number),
            held: BTreeMap::new(),
            rest: Vec::new(),
            target: None,
            claims: BTreeMap::new(),
            gave_way: false,
            restate: false,
            purge: None,
            left: 0,
            versions: 0,
        };
        Story {
            dice: Dice(seed),
            actors: (0..OWNERS).map(actor).collect(),
            numbers: 0,
            refused: 0,
        }
    }

    /// One change, and whether it must be refused.
    pub(crate) fn next(&mut self) -> (Change, bool) {
        let who = self.dice.below(OWNERS.into()) as usize;
        let kind = self.dice.below(26);
        let row = &self.actors[who].owner.row;
        let (purging, held) = (row.purging, row.held);
        let change = match (held, kind) {
            (_, 24..) => {
                self.refused += 1;
                return (self.nonsense(who), true);
            }
            (_, 12) => self.account(who),
            (_, 13) => self.identity(who),
            _ if purging => self.go_on_purging(who),
            (_, 14) => self.purge(who),
            (_, 15..=16) => self.owing(who),
            (_, 17..=19) => self.claim(who),
            (Held::Exactly(_), 20) => self.shown(who),
            (Held::Exactly(_) | Held::Applying { .. }, 21) => self.damage(who),
            (Held::Exactly(_), 22) => self.rollback(who),
            (Held::Applying { .. }, 0..=8) => self.next_chunk(who),
            (Held::Exactly(_) | Held::Nothing, 0..=9) => self.live(who),
            _ => self.snapshot(who),
        };
        self.settle(who);
        (change, false)
    }

    /// Counts the rows that follow from the state alone.
    fn settle(&mut self, who: usize) {
        let actor = &mut self.actors[who];
        let row = &actor.owner.row;
        if actor.restate && matches!(row.held, Held::Exactly(_)) {
            actor.restate = false;
            self.numbers += 1;
        }
        let claimed = actor.gave_way || !actor.claims.is_empty();
        if claimed && row.debt.is_empty() && row.held != Held::Nothing {
            actor.claims.clear();
            actor.gave_way = false;
            self.numbers += 1;
        }
    }

    fn live(&mut self, who: usize) -> Change {
        let mut writes = BTreeMap::new();
        for _ in 0..self.dice.below(5) {
            let path = format!("app.c{}/{}", self.dice.below(3), self.dice.below(8));
            let held = self.actors[who].held.contains_key(path.as_bytes());
            let bytes = if held && self.dice.below(3) == 0 {
                None
            } else {
                Some(format!("record {}", self.dice.below(1 << 40)))
            };
            writes.insert(path, bytes);
        }
        let writes: Vec<(&str, Option<&str>)> = writes
            .iter()
            .map(|(path, bytes)| (path.as_str(), bytes.as_deref()))
            .collect();
        self.numbers += (writes.len() as u64).max(1);
        let actor = &mut self.actors[who];
        let change = actor.owner.live(&writes);
        actor.held = actor.owner.records.clone();
        actor.versions += writes.len();
        actor.reached();
        change
    }

    /// The owner rewrites everything, and the store gets it as a difference, in chunks.
    fn snapshot(&mut self, who: usize) -> Change {
        let count = match self.dice.below(40) {
            0 => 1_001 + self.dice.below(200),
            _ => self.dice.below(12),
        };
        let actor = &mut self.actors[who];
        let rev = actor.owner.rev;
        actor.owner.records.clear();
        for number in 0..count {
            let path = format!("app.c{}/{number}", self.dice.below(3)).into_bytes();
            actor
                .owner
                .records
                .insert(path, format!("whole {rev}").into_bytes());
        }
        self.begin_snapshot(who)
    }

    /// The host was set back to an older state, which is adopted.
    fn rollback(&mut self, who: usize) -> Change {
        let back = 1 + self.dice.below(3);
        let actor = &mut self.actors[who];
        actor.owner.rev = actor.owner.rev.saturating_sub(back + 1);
        actor.owner.row.lineage += 1;
        let gone: Vec<Vec<u8>> = actor.owner.records.keys().take(2).cloned().collect();
        for path in gone {
            actor.owner.records.remove(&path);
        }
        self.begin_snapshot(who)
    }

    fn begin_snapshot(&mut self, who: usize) -> Change {
        let actor = &mut self.actors[who];
        let mut ops: BTreeMap<Vec<u8>, RecordOp> = BTreeMap::new();
        for path in actor.held.keys() {
            ops.insert(path.clone(), op(path, None));
        }
        for (path, bytes) in &actor.owner.records {
            if actor.held.get(path) == Some(bytes) {
                ops.remove(path);
            } else {
                ops.insert(path.clone(), op(path, Some(bytes)));
            }
        }
        actor.rest = ops.into_values().collect();
        // Another target than that of a snapshot that was interrupted.
        actor.restate |= matches!(actor.owner.row.held, Held::Applying { .. });
        actor.target = Some(actor.owner.sign());
        self.next_chunk(who)
    }

    fn next_chunk(&mut self, who: usize) -> Change {
        let rest = self.actors[who].rest.len();
        let whole = rest <= ROW_OPS && self.dice.below(2) == 0;
        let size = if whole || rest == 0 {
            rest
        } else {
            1 + self.dice.below(rest.min(ROW_OPS) as u64) as usize
        };
        let actor = &mut self.actors[who];
        let rest = actor.rest.split_off(size);
        let ops = std::mem::replace(&mut actor.rest, rest);
        for op in &ops {
            match &op.put {
                Some(put) => {
                    let bytes = put.bytes.clone().unwrap();
                    actor.held.insert(op.path.clone(), bytes);
                }
                None => {
                    actor.held.remove(&op.path);
                }
            }
        }
        actor.versions += ops.len();
        self.numbers += (ops.len() as u64).max(1);
        let target = actor.target.unwrap();
        let kind = match actor.owner.row.held {
            Held::Nothing => RecordsKind::Backfill,
            _ => RecordsKind::Repair,
        };
        let from = None;
        let held = if actor.rest.is_empty() {
            Held::Exactly(target)
        } else {
            Held::Applying { target, from }
        };
        let change = actor.owner.change(kind, held, ops);
        if actor.rest.is_empty() {
            actor.reached();
        }
        change
    }

    fn account(&mut self, who: usize) -> Change {
        self.numbers += 1;
        let owner = &mut self.actors[who].owner;
        owner.row.account = match self.dice.below(2) {
            0 => Account::Active,
            _ => Account::Deactivated,
        };
        owner.entry_change(EntryContent::Account)
    }

    fn shown(&mut self, who: usize) -> Change {
        self.numbers += 2;
        let actor = &mut self.actors[who];
        actor.owner.row.account = Account::Active;
        actor.reached();
        actor.owner.entry_change(EntryContent::Shown)
    }

    fn identity(&mut self, who: usize) -> Change {
        self.numbers += 1;
        let owner = &mut self.actors[who].owner;
        owner.row.document += 1;
        owner.entry_change(EntryContent::Identity(IdentityParts::default()))
    }

    fn damage(&mut self, who: usize) -> Change {
        let actor = &mut self.actors[who];
        actor.owner.row.held = Held::Damaged { from: None };
        actor.restate = true;
        actor.owner.row_change()
    }

    fn purge(&mut self, who: usize) -> Change {
        self.numbers += 1;
        let actor = &mut self.actors[who];
        let rows = actor.held.len().max(1).div_ceil(ROW_OPS);
        let parts = rows + actor.versions.max(1).div_ceil(ROW_OPS);
        actor.purge = Some((self.numbers, parts));
        actor.left = actor.held.len().max(1);
        actor.held.clear();
        actor.claims.clear();
        actor.versions = 0;
        (actor.gave_way, actor.restate) = (false, false);
        actor.owner.purge()
    }

    fn go_on_purging(&mut self, who: usize) -> Change {
        let actor = &mut self.actors[who];
        let Some((purge, parts)) = actor.purge.filter(|(_, parts)| *parts > 0) else {
            actor.purge = None;
            return actor.owner.end_purge();
        };
        actor.purge = Some((purge, parts - 1));
        let deleted = actor.left.min(ROW_OPS);
        actor.left -= deleted;
        self.numbers += deleted as u64;
        delete_purged(purge)
    }

    fn owing(&mut self, who: usize) -> Change {
        let owes = self.dice.below(2) == 0;
        let owner = &mut self.actors[who].owner;
        owner.row.debt = Debt {
            fetch: owes.then_some(DebtItem {
                at: Tick(owner.rev),
                why: DebtReason::BrokenChain,
            }),
            ..Debt::default()
        };
        owner.row_change()
    }

    /// An unproven source claims something, near the rev of the repository.
    fn claim(&mut self, who: usize) -> Change {
        self.numbers += 1;
        let path = format!("app.c{}/{}", self.dice.below(3), self.dice.below(8)).into_bytes();
        let bytes = format!("claim {}", self.dice.below(1 << 40)).into_bytes();
        let put = self.dice.below(4) > 0;
        let actor = &mut self.actors[who];
        let rev = Rev::from_bits((actor.owner.rev + self.dice.below(6)).saturating_sub(2));
        actor.claims.remove(&path);
        let mut give_way = Vec::new();
        while actor.claims.len() >= CLAIMS {
            let (oldest, _) = actor.claims.pop_first().unwrap();
            give_way.push(oldest);
            actor.gave_way = true;
        }
        actor.claims.insert(path.clone(), rev);
        actor.owner.row.debt.compare = Some(DebtItem {
            at: Tick(actor.owner.rev),
            why: DebtReason::Claimed,
        });
        let claim = Claim {
            upstream: UpstreamId(1),
            rev,
            record: put.then(|| (Cid::dag_cbor(&bytes), bytes)),
        };
        actor.owner.entry_change(EntryContent::Claim(ClaimEntry {
            path,
            claim,
            give_way,
        }))
    }

    /// Something that no decision could come to. The owner forgets it.
    fn nonsense(&mut self, who: usize) -> Change {
        let owner = &mut self.actors[who].owner;
        let (records, row, rev) = (owner.records.clone(), owner.row.clone(), owner.rev);
        let commit = owner.commit.clone();
        let mut change = owner.live(&[("app.c9/new", Some("x")), ("app.c9/none", None)]);
        change.tick = Tick(1 << 50);
        change.host = Some(HostChange::Named("nowhere.example.org".to_owned()));
        (owner.records, owner.row, owner.rev) = (records, row, rev);
        owner.commit = commit;
        change
    }

    /// The disk loses a record of a damaged repository, if there is one: its repository and path.
    pub(crate) fn lose_record(&mut self, view: &ReadView) -> Option<(RepoId, Vec<u8>)> {
        let damaged = |actor: &&mut Actor| matches!(actor.owner.row.held, Held::Damaged { .. });
        let actor = self.actors.iter_mut().find(damaged)?;
        let (path, _) = actor.held.pop_first()?;
        Some((view.repo_id(&actor.owner.did).unwrap()?, path))
    }

    /// Everything the store holds is what the story says.
    pub(crate) fn check(&self, view: &ReadView) {
        let mut held = 0;
        for actor in &self.actors {
            let owner = &actor.owner;
            let Some((id, row)) = view.repo_by_did(&owner.did).unwrap() else {
                assert!(actor.held.is_empty());
                continue;
            };
            assert_eq!(row, owner.row);
            if let Some(head) = row.head() {
                assert_eq!(view.root(id).unwrap(), owner.root());
                assert_eq!(head.data, owner.root(), "what is held is what was signed");
            }
            for (path, bytes) in &actor.held {
                let record = view.record(id, path).unwrap().unwrap();
                assert_eq!(record.bytes(), Some(bytes.as_slice()));
            }
            let claims: Vec<Vec<u8>> = view.claims(id).map(|claim| claim.unwrap().0).collect();
            assert_eq!(claims, actor.claims.keys().cloned().collect::<Vec<_>>());
            held += if row.purging {
                view.records(id).count()
            } else {
                actor.held.len()
            };
        }
        let counts = view.counts().unwrap();
        assert_eq!(counts.records, held as u64);
        let debts = self.actors.iter().map(|actor| &actor.owner.row.debt);
        let owing = debts.filter(|debt| !debt.is_empty()).count();
        assert_eq!(counts.debts, owing as u64);
        assert_eq!(counts.hosts, 0, "of a refused change nothing is left");
        assert_eq!(view.counters().unwrap().last_tick, Tick(0));
        self.check_log(view);
    }

    /// Dense, in order, and it tells the same story.
    fn check_log(&self, view: &ReadView) {
        let mut next = 1;
        let mut replayed: BTreeMap<RepoId, BTreeMap<Vec<u8>, _>> = BTreeMap::new();
        for row in view.log_from(0).unwrap() {
            let (first, row) = row.unwrap();
            assert_eq!(first, next, "dense");
            next = first + row.numbers();
            if let LogKind::Restated | LogKind::Unclaimed | LogKind::Claimed(_) = row.kind {
                continue;
            }
            assert_eq!(row.at, Time(77));
            let records = replayed.entry(row.repo.unwrap()).or_default();
            for op in row.ops {
                let previous = op.previous.map(|previous| previous.cid);
                assert_eq!(records.get(&op.path).copied(), previous);
                match op.cid {
                    Some(cid) => records.insert(op.path, cid),
                    None => records.remove(&op.path),
                };
            }
        }
        assert_eq!(next, self.numbers + 1);
        assert_eq!(view.counters().unwrap().next_seq, next);
        for (id, records) in replayed {
            let held: BTreeMap<Vec<u8>, _> = view
                .records(id)
                .map(|record| record.unwrap())
                .map(|record| (record.path().to_vec(), record.cid))
                .collect();
            assert_eq!(records, held, "replaying the log gives what is held");
        }
    }
}

impl Actor {
    /// A signed state is reached, which settles claims up to its rev.
    fn reached(&mut self) {
        if let Some(head) = self.owner.row.head() {
            let upto = head.rev;
            self.claims.retain(|_, rev| *rev > upto);
        }
    }
}
