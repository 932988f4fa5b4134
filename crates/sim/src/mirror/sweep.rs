//! Sweeps: read a host's listing page by page, decide its suspects, and count the repositories that
//! it does not name.

use std::collections::BTreeSet;
use std::time::Duration;

use gapless_core::ledger::deletion::{self, Residents};
use gapless_core::ledger::sweep::{self, ListingVerdict, PageNote, Suspect, SuspectDecision};
use gapless_core::ledger::{HostId, Now, RepoId};
use gapless_core::repo_tx::answer::AskReason;

use super::SimMirror;
use crate::world::pds::Line;
use crate::world::{OwnerId, World};

/// A sweep under way.
#[derive(Debug, Clone)]
pub struct Sweep {
    pub host: HostId,
    pub began: Now,
    pub step: SweepStep,
    /// The last account of the last page that was read.
    after: Option<OwnerId>,
    listed: BTreeSet<RepoId>,
    suspects: Vec<(RepoId, Suspect, PageNote)>,
    /// The repositories that should have been listed, once all pages are read.
    missing: BTreeSet<RepoId>,
}

#[derive(Debug, Clone)]
pub enum SweepStep {
    /// Request a page.
    Ask(PageNote),
    /// Read the page that arrived.
    Page(PageNote, Vec<Line>),
    /// All pages are read: decide the suspects.
    Suspects,
}

impl SimMirror {
    pub(crate) fn sweep_due(&self, world: &World) -> Vec<HostId> {
        let now = self.last_tick_now(world);
        let context = self.context(now);
        let hosts = self.book.hosts();
        let due = hosts.filter(|(id, host)| {
            let rest = self.sweep_not_before.get(id);
            rest.is_none_or(|until| world.now >= *until)
                && !self.sweeps.iter().any(|sweep| sweep.host == *id)
                && sweep::is_due(context, *id, host)
        });
        due.map(|(id, _)| id).collect()
    }

    pub fn start_sweep(&mut self, world: &World, host: HostId) {
        let now = self.tick(world);
        let note = sweep::take_page_note(self.context(now), host);
        self.sweeps.push(Sweep {
            host,
            began: now,
            step: SweepStep::Ask(note),
            after: None,
            listed: BTreeSet::new(),
            suspects: Vec::new(),
            missing: BTreeSet::new(),
        });
    }

    /// Does the next step of a sweep. Returns whether anything happened.
    pub(crate) fn sweep_on(&mut self, world: &mut World, place: usize) -> bool {
        let mut sweep = self.sweeps.remove(place);
        let mut busy = true;
        let more = match sweep.step.clone() {
            SweepStep::Ask(note) => self.ask_page(world, &mut sweep, note),
            SweepStep::Page(note, lines) => {
                self.read_page(world, &mut sweep, &note, &lines);
                true
            }
            SweepStep::Suspects => {
                busy = self.look_at_suspects(world, &mut sweep);
                !self.sweep_ends(world, &sweep)
            }
        };
        if more {
            self.sweeps.insert(place.min(self.sweeps.len()), sweep);
        }
        busy
    }

    fn ask_page(&mut self, world: &mut World, sweep: &mut Sweep, note: PageNote) -> bool {
        match world.list(self.pds_of(sweep.host), sweep.after) {
            Ok(lines) => {
                sweep.step = SweepStep::Page(note, lines);
                true
            }
            Err(_) => {
                let rest = world.now.after(Duration::from_secs(5));
                self.sweep_not_before.insert(sweep.host, rest);
                false
            }
        }
    }

    fn read_page(&mut self, world: &World, sweep: &mut Sweep, note: &PageNote, lines: &[Line]) {
        for line in lines {
            let id = self.repo_of(world, line.owner);
            sweep.listed.insert(id);
            let now = self.tick(world);
            let mut repo = self.book.repo(id);
            let listed = sweep::judge_entry(self.context(now), &mut repo, note, &line.entry);
            self.put(world, id, repo);
            match listed {
                ListingVerdict::Equal { confirm: true } if !self.at_work(id) => {
                    self.ask(world, id, AskReason::Sweep);
                }
                ListingVerdict::Equal { .. } | ListingVerdict::Owed => {}
                ListingVerdict::Suspect(suspect) => {
                    sweep.suspects.push((id, suspect, note.clone()))
                }
            }
        }
        match lines.last() {
            Some(last) => {
                sweep.after = Some(last.owner);
                let now = self.tick(world);
                sweep.step = SweepStep::Ask(sweep::take_page_note(self.context(now), sweep.host));
            }
            None => {
                self.count_absent(world, sweep);
                sweep.step = SweepStep::Suspects;
            }
        }
    }

    fn at_work(&self, id: RepoId) -> bool {
        self.jobs.iter().any(|job| job.repo == id)
    }

    /// Counts the repositories that should have been listed and were not, and owes a comparison for
    /// each.
    fn count_absent(&mut self, world: &World, sweep: &mut Sweep) {
        let rows = self.book.repo_rows();
        let (mut all, mut absent) = (0, Vec::new());
        for (id, repo) in rows {
            if repo.host != Some(sweep.host) {
                continue;
            }
            if sweep.listed.contains(&id) {
                all += 1;
            } else if sweep::counts_as_vanished(repo, sweep.began.tick) {
                all += 1;
                absent.push(id);
            }
        }
        let Some(mut host) = self.book.host(sweep.host).cloned() else {
            return;
        };
        let mut notices = std::mem::take(&mut self.notices);
        sweep::count_absent(&mut host, absent.len() as u64, all, &mut notices);
        self.notices = notices;
        sweep.missing.extend(&absent);
        let mut batch = self.batch();
        batch.host(sweep.host, host);
        for id in absent {
            let now = self.tick(world);
            let mut tx = self.row_tx(id);
            sweep::owe_absent(now, &mut tx.repo);
            self.finish(world, tx, &mut batch);
        }
        self.commit(batch);
    }

    fn look_at_suspects(&mut self, world: &World, sweep: &mut Sweep) -> bool {
        let before = sweep.suspects.len();
        for (id, suspect, page) in std::mem::take(&mut sweep.suspects) {
            let mut repo = self.book.repo(id);
            let durable = suspect
                .upto
                .and_then(|upto| self.book.cursor(upto.upstream));
            let now = self.tick(world);
            match sweep::review_suspect(self.context(now), &repo, &suspect, durable) {
                SuspectDecision::Wait => sweep.suspects.push((id, suspect, page)),
                SuspectDecision::Cleared => {
                    let now = self.tick(world);
                    sweep::suspect_cleared(self.context(now), &mut repo, &page, &suspect);
                    self.put(world, id, repo);
                }
                SuspectDecision::Ask => self.ask(world, id, AskReason::Suspect(suspect)),
            }
        }
        before != sweep.suspects.len()
    }

    /// Finishes the sweep if everything that it found is decided. Returns whether it is finished.
    fn sweep_ends(&mut self, world: &World, sweep: &Sweep) -> bool {
        let asked = self.jobs.iter().any(
            |job| matches!(&job.trigger, AskReason::Suspect(suspect) if suspect.host == sweep.host),
        );
        if !sweep.suspects.is_empty() || asked {
            return false;
        }
        if let Some(mut host) = self.book.host(sweep.host).cloned() {
            sweep::finish(&mut host, sweep.began);
            if sweep.missing.is_empty() {
                sweep::resume_hiding(&mut host);
            }
            let mut batch = self.batch();
            batch.host(sweep.host, host);
            self.commit(batch);
        }
        self.see_deleted(world, sweep);
        self.counts.sweeps += 1;
        true
    }

    /// Decides about repositories that only a relay calls deleted and that the sweep did not find.
    fn see_deleted(&mut self, world: &World, sweep: &Sweep) {
        let host = self.book.host(sweep.host).cloned().unwrap_or_default();
        let (began, mut residents, mut awaiting) = (sweep.began.tick, Residents::default(), vec![]);
        for (id, repo) in self.book.repo_rows() {
            if repo.host != Some(sweep.host) {
                continue;
            }
            residents.add(repo, began, !sweep.missing.contains(&id));
            if deletion::awaited_evidence(repo).is_some() && !sweep.listed.contains(&id) {
                awaiting.push(id);
            }
        }
        let residents = residents.counted();
        for id in awaiting {
            let now = self.tick(world);
            let mut repo = self.book.repo(id);
            deletion::sweep_missed(now, &mut repo, (sweep.host, &host), began, &residents);
            self.put(world, id, repo);
        }
    }
}

impl Sweep {
    /// A description for the trace.
    pub fn label(&self) -> String {
        use crate::world::{name, short};
        match &self.step {
            SweepStep::Ask(note) => format!("ask for a page (noted t{})", note.at.0),
            SweepStep::Page(_, lines) => {
                let lines = lines.iter().map(|line| {
                    let entry = &line.entry;
                    format!(
                        "{} {} {:?}",
                        name(line.owner),
                        short(entry.named.rev),
                        entry.account
                    )
                });
                format!("page [{}]", lines.collect::<Vec<_>>().join(", "))
            }
            SweepStep::Suspects => format!("{} suspects", self.suspects.len()),
        }
    }
}
