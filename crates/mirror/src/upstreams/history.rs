//! Remembers when each upstream was added and removed since the start. Gapless decides
//! nothing by these times; answers use them to say since when a repository has had no
//! stream, or another stream.

use std::collections::BTreeMap;

use gapless_core::ledger::{Repo, Time, Upstream, UpstreamId, UpstreamKind};

/// One entry for each upstream that was followed since the start, so at most one for each
/// row.
#[derive(Debug, Default)]
pub struct UpstreamHistory {
    added: BTreeMap<UpstreamId, Time>,
    removed: BTreeMap<UpstreamId, (Time, Upstream)>,
}

impl UpstreamHistory {
    pub(crate) fn record_added(&mut self, now: Time, id: UpstreamId) {
        self.added.insert(id, now);
        self.removed.remove(&id);
    }

    pub(crate) fn record_removed(&mut self, now: Time, id: UpstreamId, row: &Upstream) {
        self.added.remove(&id);
        self.removed.insert(id, (now, row.clone()));
    }

    /// The time since which an upstream has been followed without a break.
    pub(crate) fn followed_since(&self, id: UpstreamId) -> Option<Time> {
        self.added.get(&id).copied()
    }

    /// When an upstream was removed; `None` while it is followed.
    pub(crate) fn left_at(&self, id: UpstreamId) -> Option<Time> {
        self.removed.get(&id).map(|(at, _)| *at)
    }

    /// When the last upstream was removed that could cover a repository.
    pub(crate) fn last_left(&self, repo: &Repo) -> Option<Time> {
        let could = |row: &Upstream| match row.kind {
            UpstreamKind::Relay => row.followed.reads_all() || repo.tracked,
            UpstreamKind::Pds => {
                let read = row.followed.reads_all() || repo.tracked;
                read && row.host.is_some() && row.host == repo.host
            }
            UpstreamKind::Jetstream => false,
        };
        let left = self.removed.values().filter(|(_, row)| could(row));
        left.map(|(at, _)| *at).max()
    }
}

#[cfg(test)]
mod tests {
    use gapless_atp::syntax::Did;
    use gapless_core::ledger::{Epoch, FollowReason, HostId, Tick};

    use super::*;

    fn row(kind: UpstreamKind, host: Option<u32>, followed: FollowReason) -> Upstream {
        Upstream {
            url: String::new(),
            kind,
            host: host.map(HostId),
            epoch: Epoch(0),
            first_cursor_since_reset: None,
            numbering: 0,
            reset_at: Tick(0),
            unread_at: None,
            followed,
        }
    }

    #[test]
    fn only_those_count_that_could_speak_for_it() {
        let did = Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID");
        let mut repo = Repo::new(did);
        repo.host = Some(HostId(1));
        let mut history = UpstreamHistory::default();
        let own = row(UpstreamKind::Pds, Some(1), FollowReason::Added);
        history.record_added(Time(1), UpstreamId(1));
        assert_eq!(history.followed_since(UpstreamId(1)), Some(Time(1)));
        history.record_removed(Time(2), UpstreamId(1), &own);
        assert_eq!(history.followed_since(UpstreamId(1)), None);
        assert_eq!(history.left_at(UpstreamId(1)), Some(Time(2)));
        let other = row(UpstreamKind::Pds, Some(2), FollowReason::Added);
        history.record_removed(Time(3), UpstreamId(2), &other);
        let for_others = row(UpstreamKind::Pds, Some(1), FollowReason::ForTracked);
        history.record_removed(Time(4), UpstreamId(3), &for_others);
        assert_eq!(history.last_left(&repo), Some(Time(2)));
        let relay = row(UpstreamKind::Relay, None, FollowReason::Added);
        history.record_removed(Time(5), UpstreamId(4), &relay);
        assert_eq!(history.last_left(&repo), Some(Time(5)));
        history.record_added(Time(6), UpstreamId(4));
        assert_eq!(history.last_left(&repo), Some(Time(2)), "it is back");
        repo.tracked = true;
        assert_eq!(history.last_left(&repo), Some(Time(4)));
    }
}
