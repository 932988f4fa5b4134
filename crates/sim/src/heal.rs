//! Healing: the faults end, and every repository that can be complete becomes complete,
//! within a bounded time and a bounded number of fetches. Then replays and further
//! snapshots must change nothing.

use std::collections::BTreeMap;

use gapless_core::ledger::account;
use gapless_core::ledger::stream::Placement;
use gapless_core::ledger::{Account, Cursor, Repo, RepoId};

use crate::chaos::Run;
use crate::check::{Broken, broken};
use crate::mirror::feed::Item;
use crate::world::{Records, World, name};

/// The most fetches of one repository after the faults have ended.
const FETCHES: u64 = 4;

impl Run {
    /// Ends the faults, and checks that every repository that can be complete becomes
    /// complete, within a bounded time and a bounded number of fetches.
    pub fn heal(&mut self) -> Result<(), Broken> {
        self.world.heal();
        self.readers.heal();
        self.mirror.purges_pause = false;
        self.mirror.finish_purges(&self.world);
        self.note("heal".to_owned());
        let fetched = self.mirror.fetches.clone();
        let quiet = self.quiet();
        for round in 0..400u64 {
            self.settle_all()?;
            if self.converged().is_none() {
                break;
            }
            self.confirm_losses()?;
            let pause = match round {
                0..20 => 3_000_000,
                20..200 => 60_000_000,
                // Long pauses, for what only the daily head check finds.
                _ => 600_000_000,
            };
            self.world.pass(pause);
            self.mirror.wait(&self.world);
        }
        if let Some(what) = self.converged() {
            return Err(Broken {
                invariant: "L1",
                what,
            });
        }
        self.readers_catch_up()?;
        self.bounds(&fetched, &quiet)
    }

    /// The repositories that are up to date, which need no fetch.
    fn quiet(&self) -> Vec<(RepoId, u32)> {
        let rows = self.mirror.book.repo_rows();
        let quiet = rows.filter(|(id, repo)| {
            let owner = self.mirror.owner_of(&self.world, *id);
            let truth = self.world.truth(owner).map(|(commit, _)| commit.head);
            let home = repo.host.map(|host| self.mirror.pds_of(host));
            repo.head().copied() == truth
                && truth.is_some()
                && home == self.world.true_host(owner)
                && repo.debt.fetch.is_none()
                && repo.behind.is_none()
                && repo.filter == self.mirror.rules.settings.filter
                && !self.mirror.jobs.iter().any(|job| job.repo == *id)
        });
        quiet.map(|(id, repo)| (id, repo.lineage)).collect()
    }

    /// Does all work that needs no time to pass.
    pub(crate) fn settle_all(&mut self) -> Result<(), Broken> {
        for _ in 0..3_000 {
            if !self.settle_one()? {
                return Ok(());
            }
        }
        Err(Broken {
            invariant: "L1 (no end)",
            what: "there is always something to do".to_owned(),
        })
    }

    fn settle_one(&mut self) -> Result<bool, Broken> {
        let mut busy = false;
        for id in self.mirror.feeds.keys().copied().collect::<Vec<_>>() {
            for what in [
                self.mirror
                    .ping(&self.world, id)
                    .then_some("")
                    .map(str::to_owned),
                self.mirror
                    .dial(&self.world, id)
                    .then(|| format!("dial {id:?}")),
                self.mirror
                    .connect(&mut self.world, id)
                    .then(|| format!("connect {id:?}")),
                self.mirror
                    .read(&mut self.world, id)
                    .then(|| format!("read {id:?}")),
            ] {
                busy |= self.note_and_check(what)?;
            }
            while let Some(place) = self.mirror.feeds[&id].ready().first().copied() {
                let what = self.process_at(id, place);
                busy |= self.note_and_check(Some(what))?;
            }
        }
        for relay in 0..self.world.relays.len() {
            let moved = self.world.relay_step(relay);
            busy |= self.note_and_check(moved.then(|| format!("relay {relay}")))?;
        }
        for id in self.mirror.due(&self.world) {
            let begun = self.mirror.start(&self.world, id);
            let what = format!("begin work on {}", self.label(id));
            busy |= self.note_and_check(begun.then_some(what))?;
        }
        while !self.mirror.jobs.is_empty() {
            let what = self.work_at(0);
            busy |= self.note_and_check(Some(what))?;
        }
        for host in self.mirror.sweep_due(&self.world) {
            self.mirror.start_sweep(&self.world, host);
            busy |= self.note_and_check(Some(format!("begin to sweep {host:?}")))?;
        }
        for place in (0..self.mirror.sweeps.len()).rev() {
            let sweep = &self.mirror.sweeps[place];
            let what = format!("sweep {:?}: {}", sweep.host, sweep.label());
            let moved = self.mirror.sweep_on(&mut self.world, place);
            busy |= self.note_and_check(moved.then_some(what))?;
        }
        Ok(busy)
    }

    /// Notes a step in the trace and checks the invariants. Returns whether there was a step.
    pub fn note_and_check(&mut self, what: Option<String>) -> Result<bool, Broken> {
        let Some(what) = what else {
            return Ok(false);
        };
        if what.is_empty() {
            return Ok(false);
        }
        self.note(what);
        self.checker
            .check(&mut self.world, &mut self.mirror, false)?;
        self.beside()?;
        Ok(true)
    }

    /// Lets an operator confirm the loss at each host whose hiding is suspended and that has truly
    /// lost a repository, as the operator's guide says. A host that has all its repositories must
    /// end the suspension by its own listing.
    fn confirm_losses(&mut self) -> Result<(), Broken> {
        let hosts = self.mirror.book.hosts();
        let doubted = hosts.filter(|(_, host)| host.hiding_suspended);
        for id in doubted.map(|(id, _)| id).collect::<Vec<_>>() {
            let repos = &self.world.pds[self.mirror.pds_of(id)].repos;
            let lost = self.mirror.book.repo_rows().any(|(repo, row)| {
                let hosted = repos.get(&self.mirror.owner_of(&self.world, repo));
                row.host == Some(id)
                    && !account::is_hidden(row.account)
                    && hosted.is_none_or(|hosted| hosted.forgotten)
            });
            if lost {
                self.mirror.confirm_loss(&self.world, id);
                self.note_and_check(Some(format!("an operator confirms the loss of {id:?}")))?;
            }
        }
        Ok(())
    }

    /// The first host or repository that has not converged, if any.
    fn converged(&self) -> Option<String> {
        let mut hosts = self.mirror.book.hosts();
        if let Some((id, _)) = hosts.find(|(_, host)| host.hiding_suspended) {
            return Some(format!("{id:?} is doubted"));
        }
        for (_, repo) in self.mirror.book.repo_rows() {
            let Some(owner) = self.world.owner_of(&repo.did) else {
                continue;
            };
            let Some(home) = self.world.true_host(owner) else {
                continue;
            };
            if self
                .mirror
                .book
                .host_named(&crate::mirror::host_name(home))
                .is_none()
            {
                // The mirror does not know this host.
                continue;
            }
            let truth = self.world.truth(owner);
            let active = truth.is_some_and(|(_, account)| account == Account::Active);
            let complete = self.mirror.is_complete(&self.world, repo);
            let held_back = repo.behind.is_some() && !complete;
            let covered = self.mirror.covers.of(repo).is_some();
            if active && covered && !complete && !held_back {
                let reasons = self.mirror.answer(&self.world, repo).reasons;
                return Some(format!("{} stays {reasons:?}", name(owner)));
            }
            let right = match (truth, repo.head()) {
                (Some((commit, _)), Some(head)) => commit.head == *head,
                _ => false,
            };
            if active && complete && !right {
                return Some(format!("{} is complete and not the truth", name(owner)));
            }
            // The account moved unseen and was then hidden: no document shows the move to the
            // mirror.
            let unseen = repo.host.map(|host| self.mirror.pds_of(host)) != Some(home);
            let shown = !unseen && !account::is_hidden(repo.account);
            if !active && shown {
                return Some(format!("{} is shown", name(owner)));
            }
        }
        None
    }

    fn bounds(
        &self,
        before: &BTreeMap<RepoId, u64>,
        quiet: &[(RepoId, u32)],
    ) -> Result<(), Broken> {
        for (id, fetches) in &self.mirror.fetches {
            let since = fetches - before.get(id).copied().unwrap_or(0);
            if since > FETCHES {
                let what = format!("{} was fetched {since} times", self.label(*id));
                return broken("L1 (fetches)", what);
            }
            // A new lineage takes back a commit that the host had lost, which needs a fetch.
            let lineage = self.mirror.book.repo_ref(*id).lineage;
            if since > 0 && quiet.contains(&(*id, lineage)) {
                return broken("L2", format!("{} was fetched for nothing", self.label(*id)));
            }
        }
        Ok(())
    }

    /// Checks, once everything has converged, that replays and further snapshots change
    /// nothing, and that the store is sound.
    pub(crate) fn aftermath(&mut self) -> Result<(), Broken> {
        let before = self.held();
        self.replay()?;
        if !self.holds(&before) {
            return broken("I10", "a replay changed what is held");
        }
        self.fetch_again()?;
        if !self.holds(&before) {
            return broken("I11", "a snapshot applied twice changed what is held");
        }
        self.readers_catch_up()?;
        let report = gapless_store::check::check(&self.mirror.book.view(), &mut |_| {});
        match report {
            Ok(report) if report.is_clean() => Ok(()),
            Ok(report) => broken("store", format!("{:?}", report.findings)),
            Err(error) => broken("store", error.to_string()),
        }
    }

    /// The held state of each repository that is up to date.
    fn held(&self) -> Vec<(RepoId, Repo, Records)> {
        let rows = self.mirror.book.repo_rows();
        let rows = rows.filter(|(id, row)| {
            let owner = self.mirror.owner_of(&self.world, *id);
            let truth = self.world.truth(owner).map(|(commit, _)| commit.head);
            row.head().copied() == truth && truth.is_some()
        });
        let held = rows.map(|(id, row)| {
            let mut kept = Repo::new(row.did.clone());
            kept.held = row.held;
            kept.lineage = row.lineage;
            kept.last_firehose_rev = row.last_firehose_rev;
            (id, kept, self.mirror.book.records(id))
        });
        held.collect()
    }

    /// Whether the mirror still holds these states.
    fn holds(&self, before: &[(RepoId, Repo, Records)]) -> bool {
        let now = self.held();
        before.iter().all(|held| now.contains(held))
    }

    /// Lets every source send some of its events again.
    fn replay(&mut self) -> Result<(), Broken> {
        for id in self.mirror.feeds.keys().copied().collect::<Vec<_>>() {
            let place = self.mirror.feeds[&id].place;
            let entries = self.world.log(place).entries.clone();
            let from = self.world.rng.below(entries.len() + 1);
            let epoch = self.mirror.covers.open_epoch(id);
            for entry in &entries[from.max(entries.len().saturating_sub(30))..] {
                let commits = matches!(
                    entry.frame.body,
                    crate::world::Body::Commit { .. } | crate::world::Body::Sync { .. }
                );
                if !commits || self.is_news(&self.world, &entry.frame) {
                    continue;
                }
                let item = Item {
                    at: Cursor {
                        seq: entry.seq,
                        event: entry.frame.hash(entry.seq),
                    },
                    numbering: 0,
                    read: Placement {
                        epoch,
                        repeat: false,
                        counts: false,
                    },
                    tick: self.mirror.ticks.last(),
                    frame: entry.frame.clone(),
                    done: false,
                };
                self.mirror.feed(id).queue.push_back(item);
                let what = format!("once more: {}", self.process_at(id, 0));
                self.note_and_check(Some(what))?;
            }
        }
        Ok(())
    }

    /// Whether a frame has a commit that the mirror never adopted, because the host had
    /// lost it; that is not a replay.
    fn is_news(&self, world: &World, frame: &crate::world::Frame) -> bool {
        let (crate::world::Body::Commit { commit, .. } | crate::world::Body::Sync { commit }) =
            &frame.body
        else {
            return false;
        };
        let did = &world.owners[frame.owner].did;
        let Some(id) = self.mirror.book.find(did) else {
            return true;
        };
        self.mirror.book.repo_ref(id).floor() < Some(commit.head.rev)
    }

    /// Fetches every complete repository again.
    fn fetch_again(&mut self) -> Result<(), Broken> {
        for id in self.mirror.book.repo_ids() {
            let repo = self.mirror.book.repo_ref(id);
            if repo.head().is_some() && self.mirror.is_complete(&self.world, repo) {
                self.mirror.owe_fetch(&self.world, id);
            }
        }
        self.settle_all()
    }
}
