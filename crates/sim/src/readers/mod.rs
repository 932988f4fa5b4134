//! Readers of the log in the simulator: consumers with a model of the store, which begin at any
//! moment, read pages of any size, and are compared with the store whenever they are at the head.
//! Between their steps the log is trimmed, superseded records are deleted, readers are overrun, set
//! back and removed, purges go on, and the disk damages records and loses what it acknowledged.
//!
//! All of that is decided by a generator of its own and written beside the steps of the mirror.
//! What changes no repository moves no trace.
//!
//! The invariants:
//! - R1: No number is missing, and none is trimmed that a reader holds.
//! - R2: The bytes of an operation that a reader holds are there, until the repository is purged.
//! - R3: A reader at the head is equal to the store.

pub mod kinds;
pub mod reader;

use std::time::Duration;

use gapless_core::ledger::Account;
use gapless_core::retain::{ConsumerClass, ConsumerKey, ConsumerNeeds, Hold};
use gapless_store::change::ConsumerChange;

use crate::chaos::Run;
use crate::check::Broken;
use crate::mirror::SimMirror;
use crate::mirror::log_event::LogEvent;
use crate::mirror::purge::when;
use crate::rng::Rng;
use crate::world::{World, name};
use kinds::KindCounts;
use reader::{BeginBy, Effects, Reader};

/// The most readers at a time.
const READERS: usize = 4;

/// All readers of a run, and what happens between their steps.
pub struct Readers {
    rng: Rng,
    list: Vec<Reader>,
    next_id: u32,
    /// How often a row of each kind was read.
    pub kinds: KindCounts,
    /// How many of a thousand steps of the mirror readers or upkeep follow with one of their own.
    acts: u32,
    /// Whether the disk damages records, and accounts are deleted, purged and come back. This alone
    /// changes repositories, and so moves traces.
    disturbs: bool,
    /// Whether the disk acknowledges what it may lose.
    lies: bool,
}

impl Readers {
    /// The readers of a seed.
    pub(crate) fn new(seed: u64, mirror: &mut SimMirror) -> Readers {
        let mut rng = Rng::new(seed ^ 0x106e_ade7);
        let disturbs = rng.per_mille(250);
        mirror.purges_pause = rng.per_mille(600);
        if disturbs {
            mirror.purge_grace = Duration::from_secs(60);
        }
        Readers {
            acts: [90, 90, 90, 350][rng.below(4)],
            disturbs,
            lies: rng.per_mille(600),
            rng,
            ..Readers::idle()
        }
    }

    /// No readers. A directed test adds and steps them.
    pub(crate) fn idle() -> Readers {
        Readers {
            rng: Rng::new(0),
            list: Vec::new(),
            next_id: 0,
            kinds: KindCounts::default(),
            acts: 0,
            disturbs: false,
            lies: false,
        }
    }

    /// Adds a reader, which registers with its first step.
    pub fn add(
        &mut self,
        effects: Effects,
        begin_by: BeginBy,
        needs: ConsumerNeeds,
        hold: Hold,
    ) -> usize {
        let class = match effects {
            Effects::InStore => ConsumerClass::Crawler,
            Effects::Elsewhere => ConsumerClass::Index,
        };
        let key = ConsumerKey {
            class,
            id: self.next_id,
            lane: 0,
        };
        self.next_id += 1;
        let reader = Reader::new(key, effects, begin_by, needs, hold);
        self.list.push(reader);
        self.list.len() - 1
    }

    fn add_some(&mut self) {
        let rng = &mut self.rng;
        let effects = [Effects::InStore, Effects::Elsewhere][rng.below(2)];
        let begin_by = [BeginBy::FirstNumber, BeginBy::Walk][rng.below(2)];
        let needs = [ConsumerNeeds::Log, ConsumerNeeds::LogAndVersions];
        let needs = needs[usize::from(rng.per_mille(700))];
        let hold = match rng.below(4) {
            0 => Hold::Always,
            1 => Hold::For(Duration::from_secs(3_600)),
            2 => Hold::For(Duration::from_secs(300)),
            _ => Hold::For(Duration::from_secs(20)),
        };
        self.add(effects, begin_by, needs, hold);
    }

    pub fn reader(&self, which: usize) -> &Reader {
        &self.list[which]
    }

    /// Lets a reader take one step.
    pub fn step(
        &mut self,
        world: &World,
        mirror: &mut SimMirror,
        which: usize,
    ) -> Result<(), Broken> {
        self.restart(mirror);
        let reader = &mut self.list[which];
        reader.step(world, mirror, &mut self.rng, &mut self.kinds)
    }

    /// Lets a reader read everything that is published.
    pub fn catch_up(
        &mut self,
        world: &World,
        mirror: &mut SimMirror,
        which: usize,
    ) -> Result<(), Broken> {
        for _ in 0..10_000 {
            mirror.book.sync();
            self.step(world, mirror, which)?;
            mirror.book.sync();
            if self.list[which].is_at_head(mirror) {
                let reader = &mut self.list[which];
                reader.report(world, mirror);
                return reader.compare(mirror);
            }
        }
        let what = format!("{} never comes to the head", self.list[which].name());
        crate::check::broken("R1", what)
    }

    /// After a crash, readers in the store are set back with their positions, and lost positions are
    /// registered again.
    fn restart(&mut self, mirror: &mut SimMirror) {
        if let Some(survived) = mirror.book.take_survived() {
            for reader in &mut self.list {
                reader.restart(mirror, survived);
            }
        }
    }

    /// Ends what the disk does by itself.
    pub(crate) fn heal(&mut self) {
        (self.disturbs, self.lies) = (false, false);
    }

    /// Does something at random, at random moments. Returns a description, or an empty text.
    fn act(&mut self, world: &mut World, mirror: &mut SimMirror) -> Result<String, Broken> {
        self.restart(mirror);
        if self.disturbs && self.rng.per_mille(120) {
            return Ok(self.disturb(world, mirror));
        }
        let what = match self.rng.below(1000) {
            0..600 => self.step_some(world, mirror)?,
            600..640 if self.list.len() < READERS => {
                self.add_some();
                "another reader".to_owned()
            }
            640..700 => self.trim(world, mirror),
            700..780 => self.expire(world, mirror),
            780..800 => format!("{} readers are overrun", mirror.review_consumers(world)),
            800..810 => match mirror.relieve_disk(world) {
                Some(key) => format!("reader {} is overrun", key.id),
                None => String::new(),
            },
            810..825 => self.seek(world, mirror),
            825..835 => self.remove(world, mirror),
            835..890 => self.continue_purge(world, mirror),
            890..960 => {
                let overdue = self.rng.per_mille(200);
                let some = mirror.clean_up_purge(world, overdue);
                let what = if some { "a purge is cleaned up" } else { "" };
                what.to_owned()
            }
            960..1000 if self.lies && mirror.book.unsynced() > 0 => {
                mirror.book.publish();
                mirror.book.events.count(LogEvent::DiskLies);
                "the disk lies about a sync".to_owned()
            }
            _ => String::new(),
        };
        Ok(what)
    }

    fn step_some(&mut self, world: &World, mirror: &mut SimMirror) -> Result<String, Broken> {
        if self.list.is_empty() {
            return Ok(String::new());
        }
        let which = self.rng.below(self.list.len());
        let what = self.list[which].label();
        self.list[which].forget_before(mirror.book.synced());
        self.step(world, mirror, which)?;
        Ok(what)
    }

    fn trim(&mut self, world: &World, mirror: &mut SimMirror) -> String {
        let (from, head) = (mirror.first_log_number(), mirror.book.counters().next_seq);
        if from >= head {
            return String::new();
        }
        let below = self.rng.between(from, head);
        let to = mirror.trim_log(world, below);
        format!("the log is trimmed from {from} to {to}, {below} was asked for")
    }

    fn expire(&mut self, world: &World, mirror: &mut SimMirror) -> String {
        let head = mirror.book.counters().next_seq;
        let below = head.saturating_sub(self.rng.between(0, 15));
        match mirror.expire_versions(world, below) {
            (0, 0) => String::new(),
            (gone, left) => format!("{gone} superseded records are deleted, {left} are left"),
        }
    }

    fn seek(&mut self, world: &World, mirror: &mut SimMirror) -> String {
        if self.list.is_empty() {
            return String::new();
        }
        let which = self.rng.below(self.list.len());
        let reader = &mut self.list[which];
        if reader.row(mirror).is_none() || !reader.seek(world, mirror, &mut self.rng) {
            return String::new();
        }
        mirror.book.events.count(LogEvent::Sought);
        format!("{} is set back to {}", reader.name(), reader.next())
    }

    fn remove(&mut self, world: &World, mirror: &mut SimMirror) -> String {
        if self.list.len() < 2 {
            return String::new();
        }
        let which = self.rng.below(self.list.len());
        if self.list[which].row(mirror).is_none() {
            return String::new();
        }
        let reader = self.list.remove(which);
        let (key, by, at) = (reader.key, "an operator".to_owned(), when(world));
        mirror.write_consumer(ConsumerChange::Remove { key, by, at });
        mirror.book.events.count(LogEvent::Removed);
        format!("{} is removed", reader.name())
    }

    fn continue_purge(&mut self, world: &World, mirror: &mut SimMirror) -> String {
        let under_way = mirror.purges_under_way();
        let Some((number, id)) = self.rng.pick(&under_way) else {
            return String::new();
        };
        mirror.continue_purge(world, number);
        mirror.book.events.count(LogEvent::PurgeInParts);
        let owner = mirror.owner_of(world, id);
        format!("the purge of {} goes on", name(owner))
    }

    fn disturb(&mut self, world: &mut World, mirror: &mut SimMirror) -> String {
        if self.rng.per_mille(300) {
            return self.damage(world, mirror);
        }
        if self.rng.per_mille(400) {
            let purged = mirror.purge(world);
            return format!("the purge of {} begins", purged.len());
        }
        let owner = self.rng.below(world.owners.len());
        let next = match world.truth(owner) {
            Some((_, Account::Deleted)) => Account::Active,
            Some((_, Account::Active)) if self.rng.per_mille(400) => Account::Deleted,
            _ => return String::new(),
        };
        world.set_account(owner, next);
        format!("{} becomes {next:?}", name(owner))
    }

    fn damage(&mut self, world: &World, mirror: &mut SimMirror) -> String {
        let ids = mirror.book.repo_ids();
        let Some(id) = self.rng.pick(&ids) else {
            return String::new();
        };
        let nth = self.rng.below(4);
        if !mirror.damage_record(world, id, nth) {
            return String::new();
        }
        let owner = mirror.owner_of(world, id);
        format!("the disk damages a record of {}", name(owner))
    }
}

impl Run {
    /// Lets readers and upkeep act now and then, beside the steps of the mirror.
    pub(crate) fn beside(&mut self) -> Result<(), Broken> {
        if !self.readers.rng.per_mille(self.readers.acts) {
            return Ok(());
        }
        let what = self.readers.act(&mut self.world, &mut self.mirror)?;
        if !what.is_empty() {
            self.trace.beside(&what);
        }
        Ok(())
    }

    /// Lets every reader read everything, and compares each with the store.
    pub(crate) fn readers_catch_up(&mut self) -> Result<(), Broken> {
        for which in 0..self.readers.list.len() {
            self.trace.beside(&self.readers.list[which].label());
            self.readers
                .catch_up(&self.world, &mut self.mirror, which)?;
        }
        Ok(())
    }
}
