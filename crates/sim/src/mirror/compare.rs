//! Compares the shared row transaction with the simulator's own copy.

use gapless_core::ledger::{Notice, Ticks};
use gapless_store::change::{EntryContent, RepoChange};

use super::shadow::Draft;
use super::{Counts, Mirror};
use crate::world::World;

/// What the copy came to.
pub struct Expected {
    steps: Vec<RepoChange>,
    notices: Vec<Notice>,
    ticks: Ticks,
    counts: Counts,
}

impl Mirror {
    /// Runs the copy, and takes back what it did to the mirror.
    pub fn shadow<T>(&mut self, world: &World, act: impl FnOnce(&mut Mirror) -> (Draft, T)) -> T {
        let (ticks, counts) = (self.ticks, self.counts);
        let notices = std::mem::take(&mut self.notices);
        let (draft, value) = act(self);
        let expected = Expected {
            steps: draft.into_steps(world.now),
            notices: std::mem::replace(&mut self.notices, notices),
            ticks: self.ticks,
            counts: self.counts,
        };
        (self.ticks, self.counts) = (ticks, counts);
        assert!(self.expected.replace(expected).is_none(), "compared once");
        value
    }

    /// Compares what the shared transaction came to with the copy.
    pub fn compare(&mut self, steps: &[RepoChange], notices: &[Notice]) {
        let expected = self.expected.take().expect("the copy ran before");
        let steps: Vec<RepoChange> = steps.iter().cloned().map(plain).collect();
        assert_eq!(steps, expected.steps, "other steps");
        assert_eq!(notices, expected.notices, "other notices");
        assert_eq!(self.ticks, expected.ticks, "another number of ticks");
        let counts = Counts {
            adopted: expected.counts.adopted,
            ..self.counts
        };
        assert_eq!(counts, expected.counts, "other counts");
    }
}

/// A step without what the copy never had: the frame of the entry, and the word that
/// nothing was held at a path.
fn plain(mut step: RepoChange) -> RepoChange {
    if let Some(entry) = &mut step.entry {
        entry.frame = None;
        if let EntryContent::Records(records) = &mut entry.what {
            for op in &mut records.ops {
                op.fresh = false;
            }
        }
    }
    step
}
