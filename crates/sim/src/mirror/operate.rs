//! The actions of an operator and of the machine: add and remove upstreams, change the filter,
//! import a file, lose data to the disk, crash and start again.

use gapless_atp::syntax::Rev;
use gapless_core::filter::Pattern;
use gapless_core::ledger::account;
use gapless_core::ledger::cover::Covers;
use gapless_core::ledger::damage;
use gapless_core::ledger::debt;
use gapless_core::ledger::fetch::{self, CheckedHead};
use gapless_core::ledger::rollback;
use gapless_core::ledger::{
    DebtReason, Epoch, HostId, RepoId, SignerKey, Tick, Ticks, Upstream, UpstreamId, UpstreamKind,
};
use gapless_core::repo_tx::answer::AskReason;
use gapless_core::repo_tx::snapshot::FetchJob;
use gapless_store::change::{RepoChange, Subject, Upkeep};
use gapless_store::engine::{KeyRange, RawBatch};
use gapless_store::table::parked::ParkedFrame;
use gapless_store::table::{Table, key};

use super::feed::Feed;
use super::job::{Job, JobStep};
use super::log_event::LogEvent;
use super::{SimMirror, lived};
use crate::world::pds::Served;
use crate::world::{Place, World};

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

    /// Lets the disk move the `nth` record of a repository to another path, and finds that out at
    /// once, as a read does. Returns whether there is such a record.
    pub fn damage_record(&mut self, world: &World, id: RepoId, nth: usize) -> bool {
        let Some(head) = self.book.repo_ref(id).head().copied() else {
            return false;
        };
        let view = self.book.view();
        let mut rows = view
            .raw()
            .range(Table::Record, KeyRange::prefix(&key::repo(id)));
        let Some(row) = rows.nth(nth) else {
            return false;
        };
        let (place, row) = row.expect("the double does not fail");
        let mut other = place.to_vec();
        other.push(b'x');
        let mut batch = RawBatch::default();
        batch.delete(Table::Record, place);
        batch.put(Table::Record, other, row);
        self.book.write_raw(&batch);
        let now = self.tick(world);
        let mut repo = self.book.repo(id);
        damage::distrust(now, &mut repo, &head);
        self.put(world, id, repo);
        // The store applies each group on a view of the last but one: it reads the damage from now on.
        self.write_upkeep(Upkeep::Live(lived(world)));
        // Otherwise a crash could leave damage that no read has found.
        self.book.sync();
        self.damaged.insert(id, self.book.counters().next_seq);
        self.book.events.count(LogEvent::Damaged);
        true
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

    /// Kills the mirror and starts it again: all but the first `keep` unsynced steps are lost, and
    /// everything in memory. The start continues purges.
    pub fn crash(&mut self, world: &World, keep: usize) {
        self.counts.crashes += 1;
        self.book.crash(keep, world.now);
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
        let left = self.book.repo_ids();
        // A number that was acknowledged and lost is not given again.
        self.fetches.retain(|id, _| left.contains(id));
        self.purged.retain(|id| left.contains(id));
        self.touched = left.into_iter().collect();
        // The crash may have unparked frames or parked them again, so count those that are parked
        // now.
        let ids = self.book.repo_ids().into_iter();
        let waiting: usize = ids.map(|id| self.book.parked(id).len()).sum();
        self.counts.parked = self.counts.unparked + self.counts.dropped + waiting as u64;
        self.resume_purges(world);
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
