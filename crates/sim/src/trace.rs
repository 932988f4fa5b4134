//! The trace of a run: a hash of all steps, and the text of the last ones. What readers of the log
//! do stands beside the steps, with a hash of its own.

use std::collections::VecDeque;

use gapless_atp::syntax::Rev;
use gapless_core::ledger::complete::Completeness;
use gapless_core::ledger::{Held, Repo};

use crate::rng::mix;
use crate::world::short;

/// Describes a row and its completeness on a few lines.
pub(crate) fn summary(repo: &Repo, answer: &Completeness) -> String {
    let rev = |rev: Option<Rev>| rev.map_or("-".to_owned(), short);
    let held = match &repo.held {
        Held::Nothing => "nothing".to_owned(),
        Held::Exactly(head) => short(head.rev),
        Held::Applying { target, .. } => format!("applying {}", short(target.rev)),
        Held::Damaged { .. } => "damaged".to_owned(),
    };
    let name = repo.did.as_str().chars().nth(9).unwrap_or('?');
    let marker = repo
        .marker
        .map(|marker| (marker.cover.0, marker.epoch.0 % 1_000_000_000_000));
    let debt = &repo.debt;
    format!(
        "{name} on {:?} since t{} {:?} holds {held} first {} cover {:?} marker {marker:?} unset t{} lineage {} abandoned {}\n   swept {:?} behind {:?}\n   owes resolve {:?} compare {:?} fetch {:?} for {} at {} after {} tries, strangers {}\n   {:?} swept {:?}",
        repo.host.map(|host| host.0),
        repo.host_since.0,
        repo.account,
        rev(repo.first_rev_since_reset),
        repo.cover.map(|cover| cover.0),
        repo.unset_at.0,
        repo.lineage,
        rev(repo.abandoned),
        repo.swept.map(|swept| (swept.tick.0, swept.by)),
        repo.behind
            .map(|behind| (short(behind.named.rev), behind.times)),
        debt.resolve.map(|owed| (owed.at.0, owed.why)),
        debt.compare.map(|owed| (owed.at.0, owed.why)),
        debt.fetch.map(|owed| (owed.at.0, owed.why)),
        rev(debt.named.map(|named| named.rev)),
        debt.next_try.0 / 1000 % 1_000_000_000,
        debt.attempts,
        repo.strangers.used,
        answer.reasons,
        answer.evidence.swept.map(|swept| (swept.tick.0, swept.by)),
    )
}

/// The number of steps whose text is kept.
const KEPT: usize = 80;

#[derive(Debug, Clone, Default)]
pub struct Trace {
    hash: u64,
    /// The hash of everything that stands beside the steps.
    beside: u64,
    steps: u64,
    last: VecDeque<String>,
    /// Whether the text of all steps is kept.
    pub verbose: bool,
}

impl Trace {
    pub fn step(&mut self, what: String) {
        self.hash = add(self.hash, &what);
        self.steps += 1;
        self.keep(format!("{:>6} {what}", self.steps));
    }

    /// Adds what happens beside the steps.
    pub(crate) fn beside(&mut self, what: &str) {
        self.beside = add(self.beside, what);
        self.keep(format!("       | {what}"));
    }

    fn keep(&mut self, line: String) {
        if self.last.len() == KEPT && !self.verbose {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// The hash of the steps.
    pub fn hash(&self) -> u64 {
        mix(self.hash ^ self.steps)
    }

    /// The hash of the steps and of everything beside them.
    pub fn full_hash(&self) -> u64 {
        mix(self.hash() ^ self.beside)
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The last steps, one per line.
    pub fn tail(&self) -> String {
        let lines: Vec<&str> = self.last.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

fn add(mut hash: u64, what: &str) -> u64 {
    for chunk in what.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_step_is_another_hash() {
        let mut one = Trace::default();
        let mut two = Trace::default();
        one.step("a".to_owned());
        two.step("b".to_owned());
        assert_ne!(one.hash(), two.hash());
        assert!(one.tail().ends_with("1 a"));
    }
}
