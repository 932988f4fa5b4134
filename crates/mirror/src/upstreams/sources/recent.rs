//! Commits that came lately, in the order in which they were first seen, and who
//! brought each.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use gapless_core::ledger::{HostId, UpstreamId};

use crate::upstreams::sources::tally::Tally;
use crate::upstreams::sources::{Proof, Sight};

/// Sources that are told apart for one commit. Where more bring it nobody is judged.
const BRINGERS: usize = 6;

/// One commit.
pub struct Entry {
    mark: u64,
    pub host: Option<HostId>,
    pub cover: Option<UpstreamId>,
    pub tracked: bool,
    signed: bool,
    bringers: u8,
    brought: [u32; BRINGERS],
    /// When the first brought it, and when it was written down here.
    first: Instant,
    pub noted: Instant,
}

impl Entry {
    /// Whether the owner signed it, and it is known who brought it.
    pub fn is_signed(&self) -> bool {
        self.signed && usize::from(self.bringers) < BRINGERS
    }

    fn bringers(&self) -> &[u32] {
        &self.brought[..usize::from(self.bringers)]
    }

    pub fn was_brought_by(&self, id: UpstreamId) -> bool {
        self.bringers().contains(&id.0)
    }

    /// Whether there was a place for one more.
    fn add(&mut self, id: UpstreamId) -> bool {
        let Some(place) = self.brought.get_mut(usize::from(self.bringers)) else {
            return false;
        };
        *place = id.0;
        self.bringers += 1;
        true
    }
}

/// What became of an arrival.
#[derive(Default)]
pub struct Noted {
    pub known: bool,
    /// A claim that nobody proves was brought by nobody.
    pub first: Option<UpstreamId>,
}

/// What is remembered no longer.
#[derive(Default)]
pub struct Gone {
    /// Of age: they can be judged.
    pub old: Vec<Entry>,
    pub pushed_out: u64,
}

pub struct Recent {
    entries: VecDeque<Entry>,
    /// Where an entry stands, counted from the first there ever was.
    places: HashMap<u64, u64, FixedState>,
    /// How many have gone.
    gone: u64,
    pushed_out: u64,
    most: usize,
}

impl Recent {
    pub fn new(most: usize) -> Recent {
        Recent {
            entries: VecDeque::new(),
            places: HashMap::with_hasher(FixedState::default()),
            gone: 0,
            pushed_out: 0,
            most,
        }
    }

    /// Says whether it is remembered now, and who brought it first if that is proven
    /// just now.
    pub fn brought(&mut self, mark: u64, tally: &Tally, sight: &Sight<'_>, now: Instant) -> Noted {
        let place = self.places.get(&mark).copied();
        let entry = place.and_then(|place| {
            let at = usize::try_from(place.checked_sub(self.gone)?).ok()?;
            self.entries.get_mut(at)
        });
        let Some(entry) = entry else {
            if sight.proof == Proof::Replay {
                return Noted::default();
            }
            self.insert(mark, tally, sight, now);
            return Noted {
                known: true,
                first: (sight.proof == Proof::Signed).then_some(tally.id),
            };
        };
        let mut noted = Noted {
            known: true,
            first: None,
        };
        if sight.proof == Proof::Signed && !entry.signed {
            entry.signed = true;
            noted.first = entry.bringers().first().copied().map(UpstreamId);
            entry.host = sight.host;
            entry.cover = sight.cover;
            entry.tracked = sight.tracked;
        }
        if !entry.was_brought_by(tally.id) && entry.add(tally.id) {
            tally.late(sight.at.saturating_duration_since(entry.first));
        }
        noted
    }

    fn insert(&mut self, mark: u64, tally: &Tally, sight: &Sight<'_>, now: Instant) {
        if self.entries.len() >= self.most {
            self.pop();
            self.pushed_out += 1;
        }
        let mut entry = Entry {
            mark,
            host: sight.host,
            cover: sight.cover,
            tracked: sight.tracked,
            signed: sight.proof == Proof::Signed,
            bringers: 0,
            brought: [0; BRINGERS],
            first: sight.at,
            noted: now,
        };
        entry.add(tally.id);
        let place = self.gone + self.entries.len() as u64;
        self.places.insert(mark, place);
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.gone += 1;
        self.places.remove(&entry.mark);
        Some(entry)
    }

    /// Takes those out that are older than this.
    pub fn take_old(&mut self, now: Instant, age: Duration) -> Gone {
        let mut gone = Gone {
            old: Vec::new(),
            pushed_out: std::mem::take(&mut self.pushed_out),
        };
        let is_old = |entry: &Entry| now.saturating_duration_since(entry.noted) >= age;
        while self.entries.front().is_some_and(is_old) {
            gone.old.extend(self.pop());
        }
        gone
    }
}
