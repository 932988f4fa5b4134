//! Documents that are old, though nothing is owed. Each is asked for once, however
//! many events tell of it meanwhile; and while nobody answers, later and later.

use std::collections::{BTreeSet, HashMap};

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Tick, Time, debt};

/// Documents that wait to be read again; a further one waits for its next event.
const MOST: usize = 10_000;

#[derive(Default)]
pub(crate) struct OldDocuments {
    /// How often each was asked for, and when it is next.
    tries: HashMap<Did, (u32, Time)>,
    line: BTreeSet<(Time, Did)>,
}

impl OldDocuments {
    /// A document is old. False if that is known, or there is no room for it.
    pub fn put(&mut self, did: &Did) -> bool {
        let new = self.tries.len() < MOST && !self.tries.contains_key(did);
        if new {
            self.wait(did, 0, Time(0));
        }
        new
    }

    /// The next one to ask for that is none of these.
    pub fn next(&self, now: Time, asked: impl Fn(&Did) -> bool) -> Option<&Did> {
        let mut due = self.line.iter().take_while(|(at, _)| *at <= now);
        due.find(|(_, did)| !asked(did)).map(|(_, did)| did)
    }

    /// It is asked for: once more only after a wait, unless there is an answer.
    pub fn begin(&mut self, now: Time, did: &Did) {
        if let Some(tries) = self.take(did) {
            let tries = tries.saturating_add(1);
            // Spread by the clock: there is no tick here.
            self.wait(did, tries, now.after(debt::backoff(tries, Tick(now.0))));
        }
    }

    /// It is old no more, or somebody else sees to it.
    pub fn take(&mut self, did: &Did) -> Option<u32> {
        let (tries, at) = self.tries.remove(did)?;
        self.line.remove(&(at, did.clone()));
        Some(tries)
    }

    fn wait(&mut self, did: &Did, tries: u32, at: Time) {
        self.tries.insert(did.clone(), (tries, at));
        self.line.insert((at, did.clone()));
    }
}
