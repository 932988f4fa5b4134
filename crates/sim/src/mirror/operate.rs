//! The actions of an operator and of the machine: add and remove upstreams, change the filter,
//! import a file, purge deleted repositories, crash and start again.

use gapless_atp::syntax::Rev;
use gapless_core::filter::Pattern;
use gapless_core::ledger::account;
use gapless_core::ledger::claim::{self, ClaimDecision};
use gapless_core::ledger::cover::Covers;
use gapless_core::ledger::debt;
use gapless_core::ledger::event::Origin;
use gapless_core::ledger::fetch::{self, CheckedHead};
use gapless_core::ledger::rollback;
use gapless_core::ledger::{
    DebtReason, Epoch, HostId, RepoId, SignerKey, Tick, Ticks, Upstream, UpstreamId, UpstreamKind,
};
use gapless_core::repo_tx::answer::AskReason;
use gapless_core::repo_tx::snapshot::FetchJob;
use gapless_store::change::{RepoChange, Subject};
use gapless_store::table::parked::ParkedFrame;

use super::SimMirror;
use super::feed::Feed;
use super::job::{Job, JobStep};
use crate::world::pds::Served;
use crate::world::{OwnerId, Place, World};

/// The upstream of claims, which covers no repository.
const TELLER: UpstreamId = UpstreamId(u32::MAX);

impl SimMirror {
    /// Follows a stream from now on.
    pub fn follow(&mut self, place: Place) -> UpstreamId {
        let host = match place {
            Place::Pds(pds) => Some(self.host_id(pds)),
            Place::Relay(_) => None,
        };
        let (kind, url) = match place {
            Place::Pds(pds) => (UpstreamKind::Pds, format!("pds:{pds}")),
            Place::Relay(relay) => (UpstreamKind::Relay, format!("relay:{relay}")),
        };
        let row = Upstream {
            url,
            kind,
            host,
            epoch: Epoch(0),
            first_cursor_since_reset: None,
            numbering: 0,
            reset_at: Tick(0),
            unread_at: None,
            followed: Default::default(),
        };
        let id = self.book.follow(self.ticks.last(), row.clone());
        self.covers.add(self.ticks.last(), id, row);
        self.followed.insert(id);
        // An operation that is acknowledged to an operator is durable.
        self.book.sync();
        self.feeds.insert(id, Feed::new(place));
        id
    }

    /// Stops following a stream, and forgets the frames that were read of it and are not processed.
    pub fn unfollow(&mut self, id: UpstreamId) {
        self.covers.remove(self.ticks.last(), id);
        self.feeds.remove(&id);
        self.followed.remove(&id);
    }

    pub fn upstream_of(&self, place: Place) -> Option<UpstreamId> {
        let found = self.feeds.iter().find(|(_, feed)| feed.place == place);
        found.map(|(id, _)| *id)
    }

    /// Restarts with another filter. Work that runs under the old filter ends.
    pub fn change_filter(&mut self, wanted: &[&str]) {
        let wanted = wanted.iter().filter_map(|text| Pattern::parse(text));
        self.rules.filter.wanted = wanted.collect();
        let settings = &mut self.rules.settings;
        settings.filter = settings.filter.next(0, settings.wanted_keys_only);
        self.jobs.clear();
        self.sweeps.clear();
    }

    /// Imports a repository from a file, for an operator. Returns whether writing began, or `None`
    /// if nothing was done.
    pub fn import(&mut self, world: &mut World, served: &Served) -> Option<bool> {
        let (owner, head) = (served.commit.owner, served.commit.head);
        let id = self.book.find(&world.owners[owner].did)?;
        let now = self.last_tick_now(world);
        let may = fetch::may_import(now, self.book.repo_ref(id), &head).is_ok();
        if !may || self.jobs.iter().any(|job| job.repo == id) {
            return None;
        }
        let now = self.tick(world);
        let mut repo = self.book.repo(id);
        let note = fetch::take_note(self.context(now), &mut repo);
        self.put(world, id, repo);
        // Resolve again, because a key that the owner has given up must not count.
        let known = self.resolve_now(world, id);
        let (Some(note), Some(known)) = (note, known) else {
            return Some(false);
        };
        if served.commit.key != Some(known.key) {
            return Some(false);
        }
        let job = FetchJob {
            note,
            named: served.commit.named(),
            adopt: false,
            imported: true,
            difference: false,
            checked: CheckedHead {
                head,
                key: SignerKey::Present,
            },
        };
        let writing = self.lay_over(id, job, &served.records);
        self.jobs.push(Job {
            repo: id,
            step: JobStep::Write(writing),
            trigger: AskReason::Debt,
        });
        Some(true)
    }

    /// Loses the bytes of a parked frame, as a faulty disk would.
    pub fn damage_parked(&mut self, id: RepoId, rev: Rev) {
        let frame = self.book.view().parked_frame(id, rev);
        let Some(frame) = frame.expect("the double does not fail") else {
            return;
        };
        let mut batch = self.batch();
        batch.repo(RepoChange {
            subject: Subject::Id(id),
            row: None,
            entry: None,
            park: vec![ParkedFrame {
                frame: Vec::new(),
                ..frame
            }],
            unpark: Vec::new(),
        });
        self.commit(batch);
    }

    /// Purges the deleted repositories whose grace period is over, and returns them.
    pub fn purge(&mut self, world: &World) -> Vec<RepoId> {
        let rows = self.book.repo_rows();
        let due: Vec<RepoId> = rows
            .filter(|(_, repo)| {
                account::is_purge_due(world.now, repo, self.purge_grace)
                    && repo.held != Default::default()
            })
            .map(|(id, _)| id)
            .collect();
        for id in &due {
            let now = self.tick(world);
            let mut tx = self.tx(*id);
            tx.purge(now);
            self.submit(world, tx);
        }
        self.purged.extend(&due);
        due
    }

    /// Confirms, for an operator, the loss of repositories at a host.
    pub fn confirm_loss(&mut self, world: &World, id: HostId) {
        let rows = self.book.repo_rows();
        let hosted = rows.filter(|(_, repo)| repo.host == Some(id));
        for repo in hosted.map(|(repo, _)| repo).collect::<Vec<_>>() {
            let now = self.tick(world);
            let mut row = self.book.repo(repo);
            let mut notices = std::mem::take(&mut self.notices);
            account::confirm_lost(now, &mut row, &mut notices);
            self.notices = notices;
            self.put(world, repo, row);
        }
        if let Some(mut host) = self.book.host(id).cloned() {
            host.hiding_suspended = false;
            let mut batch = self.batch();
            batch.host(id, host);
            self.commit(batch);
        }
    }

    /// Accepts the older state of a host, for an operator.
    pub fn accept_rollback(&mut self, world: &World, id: RepoId) {
        let now = self.tick(world);
        let mut repo = self.book.repo(id);
        rollback::accept_rollback(now, &mut repo);
        self.put(world, id, repo);
    }

    /// Owes a fetch of a repository, for an operator.
    pub fn owe_fetch(&mut self, world: &World, id: RepoId) {
        let now = self.tick(world);
        let mut repo = self.book.repo(id);
        debt::owe_fetch(now, &mut repo, DebtReason::Operator);
        self.put(world, id, repo);
    }

    /// Applies a commit that a source without proofs claims.
    pub fn claimed(&mut self, world: &World, owner: OwnerId, rev: Rev) {
        let id = self.repo_of(world, owner);
        let now = self.tick(world);
        let mut repo = self.book.repo(id);
        let origin = Origin {
            upstream: TELLER,
            epoch: None,
        };
        let heard = claim::claim_event(self.context(now), &mut repo, origin, rev);
        self.counts.claimed += u64::from(heard == ClaimDecision::Keep);
        self.put(world, id, repo);
    }

    /// Kills the mirror and starts it again: all but the first `keep` unsynced batches are lost,
    /// and everything in memory.
    pub fn crash(&mut self, keep: usize) {
        self.counts.crashes += 1;
        self.book.crash(keep);
        self.covers = Covers::new();
        self.feeds.clear();
        self.jobs.clear();
        self.sweeps.clear();
        self.sweep_not_before.clear();
        self.keys.clear();
        self.tried.clear();
        self.ticks = Ticks::resume(self.book.last_tick());
        for (id, row) in self.book.upstreams() {
            if !self.followed.contains(&id) {
                continue;
            }
            let place = place_of(&row);
            self.covers.add(self.ticks.last(), id, row);
            self.feeds.insert(id, Feed::new(place));
        }
        self.touched.extend(self.book.repo_ids());
        // The crash may have unparked frames or parked them again, so count those that are parked
        // now.
        let ids = self.book.repo_ids().into_iter();
        let waiting: usize = ids.map(|id| self.book.parked(id).len()).sum();
        self.counts.parked = self.counts.unparked + self.counts.dropped + waiting as u64;
    }
}

fn place_of(row: &Upstream) -> Place {
    let (kind, number) = row
        .url
        .split_once(':')
        .expect("an address of the simulator");
    let number = number.parse().expect("places are numbered");
    match kind {
        "pds" => Place::Pds(number),
        _ => Place::Relay(number),
    }
}
