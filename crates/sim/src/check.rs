//! The checker: compares the mirror with the world's truth after every step.
//!
//! The checker excuses as little as possible:
//! - A lie (a silent omission, a stale answer, a host that lost commits) excuses a wrong
//!   `complete` until the mirror claims a comparison that it requested after the last
//!   lie, or until mirror and truth have agreed once.
//! - An unknown migration is an excuse until an event that counts as a hint has shown it.
//! - Nothing excuses a state that is wrong at its stated rev.

use std::collections::BTreeMap;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::account;
use gapless_core::ledger::complete::Reason;
use gapless_core::ledger::debt;
use gapless_core::ledger::{Account, Epoch, Held, HostId, Marker, Repo, RepoId, Tick, UpstreamId};

use crate::mirror::SimMirror;
use crate::world::commit::root;
use crate::world::{Body, Frame, OwnerId, Place, World, name, short};

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub invariant: &'static str,
    pub what: String,
}

pub(crate) fn broken(invariant: &'static str, what: impl Into<String>) -> Result<(), Broken> {
    Err(Broken {
        invariant,
        what: what.into(),
    })
}

/// The state of a repository after the previous step.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Before {
    lineage: u32,
    host: Option<HostId>,
    cover: Option<UpstreamId>,
    head: Option<(Rev, Cid)>,
    floor: Option<Rev>,
    last_indexed: Option<Rev>,
    last_firehose: Option<Rev>,
    first: Option<Rev>,
    marker: Option<Marker>,
    unset_at: Tick,
}

impl Before {
    fn of(repo: &Repo) -> Before {
        Before {
            lineage: repo.lineage,
            host: repo.host,
            cover: repo.cover,
            head: repo.head().map(|head| (head.rev, head.commit)),
            floor: repo.floor(),
            last_indexed: repo.last_indexed_rev,
            last_firehose: repo.last_firehose_rev,
            first: repo.first_rev_since_reset,
            marker: repo.marker,
            unset_at: repo.unset_at,
        }
    }
}

/// A lie about a repository that no stream reveals.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    tick: Tick,
    what: &'static str,
}

#[derive(Debug, Default)]
pub struct Checker {
    before: BTreeMap<RepoId, Before>,
    epochs: BTreeMap<UpstreamId, Epoch>,
    doubts: BTreeMap<(OwnerId, Option<usize>), Doubt>,
    /// The accounts that were ever the subject of a lie.
    ever: BTreeMap<(OwnerId, Option<usize>), &'static str>,
    /// Accounts that moved: the last frame before the move, and whether the mirror has
    /// processed an event of the new host.
    moved: BTreeMap<OwnerId, (u64, bool)>,
    heads: BTreeMap<OwnerId, Option<Cid>>,
    /// The number of steps, of answers `complete`, and of those compared with the truth.
    steps: u64,
    pub complete: u64,
    pub compared: u64,
}

/// I15: only deleted accounts are purged, whatever a relay reports and whatever host is wiped.
/// Exempt is an account that both a relay calls deleted and its host denies while it has others.
fn purged(world: &World, mirror: &mut SimMirror) -> Result<(), Broken> {
    for id in std::mem::take(&mut mirror.purged) {
        let owner = mirror.owner_of(world, id);
        let lied = world.slandered.contains(&owner) && world.denied.contains(&owner);
        if !world.deleted.contains(&owner) && !lied {
            return broken("I15", format!("{} was purged", name(owner)));
        }
    }
    Ok(())
}

impl Checker {
    /// Checks the mirror after a step. If the step was a crash, the mirror may have lost what was
    /// not durable.
    pub fn check(
        &mut self,
        world: &mut World,
        mirror: &mut SimMirror,
        crashed: bool,
    ) -> Result<(), Broken> {
        self.steps += 1;
        self.hear_lies(world, mirror);
        if self.steps.is_multiple_of(16) {
            owed(world, mirror)?;
            accounted(mirror)?;
        }
        if crashed {
            // The numbers of lost rows may be assigned again, and events may be read
            // again.
            self.before.clear();
            let tick = mirror.ticks.last();
            for (whose, what) in &self.ever {
                self.doubts.insert(*whose, Doubt { tick, what });
            }
        }
        self.epochs(mirror, crashed)?;
        not_ahead(mirror)?;
        purged(world, mirror)?;
        for id in std::mem::take(&mut mirror.touched) {
            let repo = mirror.book.repo(id);
            if mirror.book.view().repo(id).ok().flatten().as_ref() != Some(&repo) {
                return broken("store", format!("{} is another row in the store", repo.did));
            }
            whole(world, mirror, id, &repo)?;
            filtered(mirror, id, &repo)?;
            authentic(world, &repo)?;
            restless(world, mirror, &repo)?;
            let now = Before::of(&repo);
            if let Some(before) = self.before.insert(id, now.clone()) {
                monotonic(&before, &now, &repo)?;
            }
        }
        self.current(world, mirror)
    }

    fn hear_lies(&mut self, world: &mut World, mirror: &SimMirror) {
        let tick = mirror.ticks.last();
        for lie in std::mem::take(&mut world.lies) {
            let doubt = Doubt {
                tick,
                what: lie.what,
            };
            self.doubts.insert((lie.owner, lie.relay), doubt);
            self.ever.insert((lie.owner, lie.relay), lie.what);
            if lie.what == "it moved" {
                self.moved.insert(lie.owner, (world.frames_sent(), false));
            }
        }
    }

    /// Records that the mirror has processed an event of an account.
    pub fn processed(&mut self, world: &World, mirror: &SimMirror, frame: &Frame, place: Place) {
        let owner = frame.owner;
        let id = mirror.book.find(&world.owners[owner].did);
        let repo = id.map(|id| mirror.book.repo(id));
        let floor = repo.as_ref().and_then(Repo::floor);
        let from_home = match (place, &frame.body) {
            // No hint by R8: the host that an account left closes the account, too.
            (Place::Pds(_), Body::Account(state)) if account::is_hidden(*state) => false,
            (Place::Pds(host), _) => world.true_host(owner) == Some(host),
            // A relay does not say where an event comes from.
            (Place::Relay(_), Body::Identity) => true,
            (Place::Relay(_), Body::Commit { commit, .. } | Body::Sync { commit }) => {
                Some(commit.head.rev) > floor
            }
            (Place::Relay(_), _) => false,
        };
        // The mirror ignores a hint if the account has no question left.
        let heard =
            repo.is_some_and(|repo| repo.debt.resolve.is_some() || debt::may_ask(&repo, world.now));
        if from_home
            && heard
            && !world.owners[owner].lags
            && let Some((last, told)) = self.moved.get_mut(&owner)
        {
            *told |= frame.number > *last;
        }
    }

    fn epochs(&mut self, mirror: &SimMirror, crashed: bool) -> Result<(), Broken> {
        for (id, source) in mirror.covers.iter() {
            let epoch = source.row.epoch;
            let before = self.epochs.insert(id, epoch);
            if before.is_some_and(|before| before > epoch) && !crashed {
                return broken("I2", format!("the epoch of {id:?} went back"));
            }
        }
        Ok(())
    }

    /// I6, I7, I9: a repository that the mirror calls complete is complete.
    fn current(&mut self, world: &World, mirror: &SimMirror) -> Result<(), Broken> {
        let all = mirror.feeds.keys().all(|id| drained(world, mirror, *id));
        for (id, repo) in mirror.book.repo_rows() {
            let Some(owner) = world.owner_of(&repo.did) else {
                continue;
            };
            self.note_adopted_lost_commit(world, mirror, repo, owner);
            let right = self.agrees(world, repo, owner);
            // Only if no running work can undo it.
            let quiet = all && !mirror.jobs.iter().any(|job| job.repo == id);
            if right && quiet {
                self.doubts.retain(|(other, _), _| *other != owner);
                if repo.host.map(|host| mirror.pds_of(host)) == world.true_host(owner) {
                    self.moved.remove(&owner);
                }
            }
            if !mirror.is_complete(world, repo) {
                continue;
            }
            self.complete += 1;
            initialised(repo)?;
            let Some(cover) = mirror.covers.of(repo) else {
                return broken("I9", "complete without a cover");
            };
            if !drained(world, mirror, cover) {
                continue;
            }
            self.compared += 1;
            if !right && let Some(why) = self.unexcused_invariant(world, mirror, repo, owner, cover)
            {
                return broken(why, wrong(world, repo, owner));
            }
        }
        Ok(())
    }

    /// Counts as a new lie if the mirror adopts a commit that the host has lost since sending
    /// it.
    fn note_adopted_lost_commit(
        &mut self,
        world: &World,
        mirror: &SimMirror,
        repo: &Repo,
        owner: OwnerId,
    ) {
        let head = repo.head().map(|head| head.commit);
        if self.heads.get(&owner).copied().flatten() == head {
            return;
        }
        self.heads.insert(owner, head);
        let host = world.true_host(owner);
        let line = host.and_then(|host| world.pds[host].repos.get(&owner));
        let Some((head, hosted)) = head.zip(line) else {
            return;
        };
        if !hosted.line.iter().any(|commit| commit.head.commit == head) {
            let tick = mirror.ticks.last();
            let what = "its host had lost the adopted commit";
            self.doubts.insert((owner, None), Doubt { tick, what });
        }
    }

    fn agrees(&self, world: &World, repo: &Repo, owner: OwnerId) -> bool {
        match (world.truth(owner), repo.head()) {
            (Some((truth, account)), Some(head)) => {
                let hosted = &world.pds[world.true_host(owner).unwrap_or_default()];
                let vanished = hosted
                    .repos
                    .get(&owner)
                    .is_some_and(|hosted| hosted.vanished);
                account == Account::Active && !vanished && truth.head == *head
            }
            _ => false,
        }
    }

    /// The invariant that a wrong `complete` breaks, unless a lie or a move excuses it.
    fn unexcused_invariant(
        &self,
        world: &World,
        mirror: &SimMirror,
        repo: &Repo,
        owner: OwnerId,
        cover: UpstreamId,
    ) -> Option<&'static str> {
        let home = repo.host.map(|host| mirror.pds_of(host));
        if home != world.true_host(owner) {
            let told = self.moved.get(&owner).is_none_or(|(_, told)| *told);
            let all = mirror.feeds.keys().all(|id| drained(world, mirror, *id));
            return (told && all).then_some("I7 (moved)");
        }
        let relay = match mirror.feeds[&cover].place {
            Place::Pds(_) => None,
            Place::Relay(relay) => Some(relay),
        };
        let doubts = [
            self.doubts.get(&(owner, None)),
            relay.and_then(|relay| self.doubts.get(&(owner, Some(relay)))),
        ];
        let last = doubts.into_iter().flatten().map(|doubt| doubt.tick).max();
        let Some(last) = last else {
            return Some("I7");
        };
        let swept = mirror.answer(world, repo).evidence.swept;
        swept.is_some_and(|swept| swept.tick > last).then_some("I6")
    }

    /// Describes the present doubts for the report of a failure.
    pub fn doubts(&self) -> String {
        let doubts = self.doubts.iter().map(|((owner, relay), doubt)| {
            format!(
                "{} {:?} {} at {}",
                name(*owner),
                relay,
                doubt.what,
                doubt.tick.0
            )
        });
        doubts.collect::<Vec<_>>().join("; ")
    }
}

/// Whether a feed has delivered all events of its source, and the mirror has processed them.
pub(crate) fn drained(world: &World, mirror: &SimMirror, id: UpstreamId) -> bool {
    let Some(feed) = mirror.feeds.get(&id) else {
        return false;
    };
    // Until continuity is shown, completeness rests on the grace time, not on the stream.
    let open = mirror.covers.open_epoch(id).is_some();
    let socket = feed.socket.as_ref();
    open && socket.is_some_and(|socket| world.drained(socket))
        && feed.queue.iter().all(|item| item.done)
}

/// I4: no unprocessed event is at or before the cursor.
fn not_ahead(mirror: &SimMirror) -> Result<(), Broken> {
    for (id, feed) in &mirror.feeds {
        let Some((numbering, cursor)) = mirror.book.cursor(*id) else {
            continue;
        };
        // The cursor does not cover events of another numbering or events that do not
        // count.
        let passed = feed.queue.iter().find(|item| {
            item.read.counts
                && !item.done
                && item.numbering == numbering
                && item.at.seq <= cursor.seq
        });
        if let Some(item) = passed {
            let (ours, open) = (cursor.seq, item.at.seq);
            let what = format!("the cursor of {id:?} is {ours}, and {open} is open");
            return broken("I4", what);
        }
    }
    Ok(())
}

/// I5: the held records hash to the signed root and are what the owner had at that rev.
fn whole(world: &World, mirror: &SimMirror, id: RepoId, repo: &Repo) -> Result<(), Broken> {
    let Held::Exactly(head) = &repo.held else {
        return Ok(());
    };
    let records = mirror.book.records(id);
    if root(&records) != head.data {
        return broken("I5", format!("{} does not hash to its root", repo.did));
    }
    let Some(signed) = world.signed.get(&head.commit) else {
        return broken(
            "I5",
            format!("{} holds what its owner never signed", repo.did),
        );
    };
    let same = signed.head == *head && *signed.records == records;
    if same && world.owners[signed.owner].did == repo.did {
        Ok(())
    } else {
        broken("I5", format!("{} holds another state", repo.did))
    }
}

/// I16: under the filter that a repository is held by, the bytes of every wanted record
/// are there.
fn filtered(mirror: &SimMirror, id: RepoId, repo: &Repo) -> Result<(), Broken> {
    if repo.head().is_none() || repo.filter != mirror.rules.settings.filter {
        return Ok(());
    }
    match mirror.lacks_bytes(id).next() {
        None => Ok(()),
        Some(op) => broken(
            "I16",
            format!("{} lacks the bytes of {}", repo.did, op.path),
        ),
    }
}

/// I13: the debts that the store calls due are those that the rules call due.
fn owed(world: &World, mirror: &SimMirror) -> Result<(), Broken> {
    let stored = mirror.book.view().debts_due(world.now);
    let stored = stored.map(|due| due.into_iter().map(|(id, _)| id).collect::<Vec<_>>());
    let rows = mirror.book.repo_rows();
    let by_rule = rows.filter(|(_, repo)| debt::plan_work(world.now, repo).is_some());
    let by_rule: Vec<RepoId> = by_rule.map(|(id, _)| id).collect();
    match stored {
        Ok(stored) if stored == by_rule => Ok(()),
        stored => broken(
            "I13",
            format!("the store says {stored:?}, the rules {by_rule:?}"),
        ),
    }
}

/// I14: every parked frame still waits, was applied, or was dropped and counted.
fn accounted(mirror: &SimMirror) -> Result<(), Broken> {
    let counts = &mirror.counts;
    let view = mirror.book.view();
    let ids = mirror.book.repo_ids().into_iter();
    let waiting: usize = ids
        .filter_map(|id| view.parked(id).ok())
        .map(|frames| frames.len())
        .sum();
    if counts.parked == counts.unparked + counts.dropped + waiting as u64 {
        Ok(())
    } else {
        broken("I14", format!("{counts:?} and {waiting} waiting"))
    }
}

/// I12: no row contains a rev that its owner did not sign.
fn authentic(world: &World, repo: &Repo) -> Result<(), Broken> {
    let Some(first) = repo.first_rev_since_reset else {
        return Ok(());
    };
    let signed = world.signed.values();
    let known = signed.into_iter().any(|commit| commit.head.rev == first);
    if known {
        Ok(())
    } else {
        broken("I12", format!("{} waits for {}", repo.did, short(first)))
    }
}

/// I9: a repository with an unset field is not complete.
fn initialised(repo: &Repo) -> Result<(), Broken> {
    let all = repo.head().is_some()
        && repo.marker.is_some()
        && repo.first_rev_since_reset.is_some()
        && repo.host.is_some()
        && repo.account == Account::Active
        && repo.debt.is_empty();
    if all {
        Ok(())
    } else {
        broken(
            "I9",
            format!("{} is complete with something unset", repo.did),
        )
    }
}

/// I1, I2, I3: revs, epochs and markers never go back.
fn monotonic(before: &Before, now: &Before, repo: &Repo) -> Result<(), Broken> {
    if before.lineage == now.lineage {
        let down = now.floor < before.floor
            || now.last_indexed < before.last_indexed
            || now.last_firehose < before.last_firehose;
        if down {
            return broken("I1", format!("{} went back", repo.did));
        }
        // A snapshot may return to an abandoned lineage; an event may not.
        let live = now.last_firehose > before.last_firehose;
        if live && repo.abandoned.is_some() && now.last_firehose <= repo.abandoned {
            return broken(
                "I1 (lineage)",
                format!("{} went on in a lineage that was given up", repo.did),
            );
        }
    }
    if before.cover != now.cover || before.host != now.host || before.lineage != now.lineage {
        return Ok(());
    }
    if now.first < before.first {
        return broken("I3", format!("{}: first rev went back", repo.did));
    }
    if now.unset_at == before.unset_at
        && now.marker.map(|marker| marker.epoch) < before.marker.map(|marker| marker.epoch)
    {
        return broken("I2", format!("{}: marker went back", repo.did));
    }
    Ok(())
}

/// L1: a repository that is not complete waits for a cover or a sweep, or has a debt.
fn restless(world: &World, mirror: &SimMirror, repo: &Repo) -> Result<(), Broken> {
    if !repo.debt.is_empty() {
        return Ok(());
    }
    let reasons = mirror.answer(world, repo).reasons;
    let stuck = reasons.iter().any(|reason| {
        matches!(
            reason,
            Reason::NewerCommitKnown | Reason::HostBehind | Reason::Applying | Reason::Damaged
        )
    });
    let hidden = reasons.contains(&Reason::Inactive);
    let homeless = repo.host.is_none() && repo.document == 0;
    if (stuck && !hidden) || homeless {
        broken(
            "L1 (at rest)",
            format!("{} rests with {reasons:?}", repo.did),
        )
    } else {
        Ok(())
    }
}

fn wrong(world: &World, repo: &Repo, owner: OwnerId) -> String {
    let ours = repo.head().map(|head| short(head.rev));
    let truth = world.truth(owner);
    let theirs = truth.map(|(commit, account)| (short(commit.head.rev), account));
    format!(
        "{} is called complete at {ours:?}, the truth is {theirs:?}",
        name(owner)
    )
}
