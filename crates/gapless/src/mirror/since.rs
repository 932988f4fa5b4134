//! Since when a repository has not been complete, at least. What a row keeps as a
//! time is told as it is; what it keeps as a tick, and what only memory knows, is
//! told as the first time at which it is known to have been so.

use gapless_core::ledger::complete::{Answer, Reason};
use gapless_core::ledger::{Repo, Tick, Time, UpstreamId};

use super::Mirror;

impl Mirror {
    /// The earliest of the times of all reasons.
    pub(super) fn since(&self, repo: &Repo, answer: &Answer) -> Time {
        let via = answer.evidence.via;
        let times = answer.reasons.iter();
        let times = times.filter_map(|reason| self.since_reason(*reason, repo, via));
        times.min().unwrap_or(self.shared.moments.began())
    }

    fn since_reason(&self, reason: Reason, repo: &Repo, via: Option<UpstreamId>) -> Option<Time> {
        let owed = (!repo.debt.is_empty()).then_some(repo.debt.since);
        match reason {
            Reason::NoSnapshot
            | Reason::Applying
            | Reason::Damaged
            | Reason::NewerCommitKnown
            | Reason::ResolveOwed
            | Reason::CompareOwed
            | Reason::FetchOwed => owed,
            Reason::HostBehind => repo.behind.map(|behind| behind.since),
            Reason::NoCover => Some(self.shared.upstreams.changed_at()),
            Reason::CoverDown => via.and_then(|id| self.down_since(id)),
            Reason::EpochChanged => via.and_then(|id| self.epoch_began(id)),
            Reason::UnreadableFrame => via.and_then(|id| self.unread_since(id)),
            Reason::NotCompared if repo.marker.is_some() && repo.cover != via => {
                Some(self.shared.upstreams.changed_at())
            }
            Reason::NotCompared | Reason::Inactive => Some(self.known_since(repo.unset_at)),
            Reason::FilterChanged => Some(self.shared.moments.began()),
        }
    }

    fn known_since(&self, tick: Tick) -> Time {
        let known = self.shared.moments.when(tick);
        known.unwrap_or_else(|| self.shared.clock.time())
    }

    /// Since when there is no connection; or since when what it brings is not
    /// written.
    fn down_since(&self, id: UpstreamId) -> Option<Time> {
        let link = self.following.link(id)?;
        let covers = self.shared.upstreams.read();
        let stream = &covers.get(id)?.stream;
        link.down_since.or_else(|| stream.settled_at())
    }

    /// Epochs are numbered by the clock.
    fn epoch_began(&self, id: UpstreamId) -> Option<Time> {
        let covers = self.shared.upstreams.read();
        let epoch = covers.get(id)?.row.epoch.0;
        Some(Time(epoch).min(self.shared.clock.time()))
    }

    fn unread_since(&self, id: UpstreamId) -> Option<Time> {
        let covers = self.shared.upstreams.read();
        let tick = covers.get(id)?.row.unread_at?;
        Some(self.known_since(tick))
    }
}
