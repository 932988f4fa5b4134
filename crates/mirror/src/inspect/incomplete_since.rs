//! Computes the time since which a repository has surely been incomplete. A time in a row is used
//! as it is. A tick in a row, or a state that only memory holds, is mapped to the first time at
//! which the state is known to have existed. The result is never before the time at which the
//! repository became known.

use gapless_core::ledger::complete::{Completeness, Reason};
use gapless_core::ledger::{Repo, Tick, Time, UpstreamId, UpstreamKind};

use crate::api::Circumstances;
use crate::inspect::Inspector;

impl Inspector {
    /// Since when a repository has been incomplete, and the state that its advice depends on.
    pub(crate) fn circumstances(&self, repo: &Repo, answer: &Completeness) -> Circumstances {
        let via = answer.evidence.via;
        let times = answer.reasons.iter();
        let times = times.filter_map(|reason| self.since_reason(*reason, repo, via));
        let since = since(times.min(), self.known_at(repo));
        let trouble = self.last_errors.of(&repo.did);
        let covers = self.services.upstreams.read();
        let source = via.and_then(|id| covers.get(id));
        Circumstances {
            since,
            full: self.services.disk.shortage().is_some(),
            connected: source.is_some_and(|source| source.stream.is_connected()),
            here: trouble.is_some_and(|trouble| trouble.here),
            jetstream: covers
                .iter()
                .any(|(_, source)| source.row.kind == UpstreamKind::Jetstream),
        }
    }

    /// The earliest time at which the repository was surely known. The row holds the tick
    /// at which its host became known; only another host changes that tick.
    fn known_at(&self, repo: &Repo) -> Option<Time> {
        let hosted = (repo.host_since > Tick(0)).then(|| self.known_since(repo.host_since));
        written_at(repo).into_iter().chain(hosted).min()
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
            | Reason::FetchOwed
            | Reason::TooLarge => owed,
            Reason::HostBehind => repo.behind.map(|behind| behind.since),
            Reason::NoCover => Some(self.uncovered_since(repo)),
            Reason::CoverDown => via.and_then(|id| self.cover_down_since(repo, id)),
            Reason::EpochChanged => via.and_then(|id| self.epoch_began(id)),
            Reason::UnreadableFrame => via.and_then(|id| self.unread_since(id)),
            Reason::NotCompared => Some(self.cover_since(repo, via)),
            Reason::Inactive => Some(self.known_since(repo.unset_at)),
            Reason::FilterChanged => Some(self.services.clock.tick_times().started_at()),
        }
    }

    fn known_since(&self, tick: Tick) -> Time {
        let known = self.services.clock.tick_times().time_of(tick);
        known.unwrap_or_else(|| self.services.clock.time())
    }

    /// Since when no stream has covered the repository. Its row may be updated late, or not
    /// yet.
    fn uncovered_since(&self, repo: &Repo) -> Time {
        let history = self.services.upstreams.history();
        match repo.cover {
            Some(id) => history
                .left_at(id)
                .unwrap_or(self.services.clock.tick_times().started_at()),
            None => {
                let unset = self.known_since(repo.unset_at);
                history
                    .last_left(repo)
                    .map_or(unset, |left| left.min(unset))
            }
        }
    }

    /// Since when the present stream has covered the repository without a comparison: since
    /// that stream was added, the one before was removed, or the comparison was lost.
    fn cover_since(&self, repo: &Repo, via: Option<UpstreamId>) -> Time {
        let Some(id) = via.filter(|_| via != repo.cover) else {
            return self.known_since(repo.unset_at);
        };
        let history = self.services.upstreams.history();
        let left = repo.cover.and_then(|before| history.left_at(before));
        let changed = history.followed_since(id).max(left);
        changed.unwrap_or(self.services.clock.tick_times().started_at())
    }

    /// Since when the cover has been down. The stream may have been down before it covered
    /// this repository.
    fn cover_down_since(&self, repo: &Repo, id: UpstreamId) -> Option<Time> {
        let down = self.down_since(id)?;
        let compared = repo.cover == Some(id) && repo.marker.is_some();
        Some(if compared {
            down
        } else {
            down.max(self.cover_since(repo, Some(id)))
        })
    }

    /// Since when the stream has had no connection, or its events are not durable.
    fn down_since(&self, id: UpstreamId) -> Option<Time> {
        let connection = self.following.connection(id)?;
        let covers = self.services.upstreams.read();
        let stream = &covers.get(id)?.stream;
        connection.down_since.or_else(|| stream.durable_until())
    }

    /// The start of the present epoch: epochs are numbered by the clock.
    fn epoch_began(&self, id: UpstreamId) -> Option<Time> {
        let covers = self.services.upstreams.read();
        let epoch = covers.get(id)?.row.epoch.0;
        Some(Time(epoch).min(self.services.clock.time()))
    }

    fn unread_since(&self, id: UpstreamId) -> Option<Time> {
        let covers = self.services.upstreams.read();
        let tick = covers.get(id)?.row.unread_at?;
        Some(self.known_since(tick))
    }
}

/// The earliest time of all reasons, but not before the repository was known; `None` if
/// either is unknown.
fn since(earliest: Option<Time>, known: Option<Time>) -> Option<Time> {
    Some(earliest?.max(known?))
}

/// The earliest time in the row. Until the first debt is settled, that is when the
/// repository became known.
fn written_at(repo: &Repo) -> Option<Time> {
    let times = [
        (!repo.debt.is_empty()).then_some(repo.debt.since),
        repo.signing.map(|signing| signing.at),
        repo.swept.map(|swept| swept.at),
        repo.confirmed_at,
        repo.fetched_at,
        repo.proven.map(|proven| proven.at),
        repo.behind.map(|behind| behind.since),
        repo.deleted_at,
    ];
    times.into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use gapless_atp::syntax::Did;
    use gapless_core::ledger::{DebtItem, DebtReason};

    use super::*;

    #[test]
    fn nothing_is_told_from_before_it_was_known() {
        let did = Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID");
        let mut repo = Repo::new(did);
        assert_eq!(
            since(Some(Time(1)), written_at(&repo)),
            None,
            "nobody knows"
        );
        repo.debt.resolve = Some(DebtItem {
            at: Tick(1),
            why: DebtReason::FirstSighting,
        });
        repo.debt.since = Time(50);
        assert_eq!(since(Some(Time(1)), written_at(&repo)), Some(Time(50)));
        assert_eq!(since(Some(Time(90)), written_at(&repo)), Some(Time(90)));
        assert_eq!(since(None, written_at(&repo)), None);
        // What is owed anew later does not make it younger.
        repo.fetched_at = Some(Time(20));
        repo.debt.since = Time(70);
        assert_eq!(since(Some(Time(30)), written_at(&repo)), Some(Time(30)));
    }
}
