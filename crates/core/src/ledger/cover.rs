//! Decides which upstream covers a repository, that is, speaks for it (R2).
//!
//! The cover is the stream of the host that the DID document names, if Gapless follows
//! that stream, and otherwise one relay, chosen at first sighting and kept. Events of any
//! source are applied if they prove themselves; only events of the cover can show that
//! nothing is missing.

use std::collections::BTreeMap;

use super::account;
use super::settings::Settings;
use super::state::{
    Account, Epoch, Held, HostId, Marker, Repo, Upstream, UpstreamId, UpstreamKind,
};
use super::stream::StreamState;
use super::time::{Tick, Time};

/// An upstream: its durable row and the state of its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamState {
    pub row: Upstream,
    pub stream: StreamState,
}

/// All upstreams, indexed by the hosts that they speak for.
#[derive(Debug, Clone, Default)]
pub struct Covers {
    sources: BTreeMap<UpstreamId, UpstreamState>,
    hosts: BTreeMap<HostId, UpstreamId>,
    relay: Option<UpstreamId>,
    /// The upstreams that are not the stream of one host. The others may be thousands.
    wide: Vec<UpstreamId>,
    /// When an upstream was last added or removed.
    changed_at: Tick,
}

impl Covers {
    pub fn new() -> Covers {
        Covers::default()
    }

    pub fn add(&mut self, now: Tick, id: UpstreamId, row: Upstream) {
        self.changed_at = now;
        let stream = StreamState::new();
        self.sources.insert(id, UpstreamState { row, stream });
        self.index();
    }

    pub fn remove(&mut self, now: Tick, id: UpstreamId) -> Option<UpstreamState> {
        self.changed_at = now;
        let gone = self.sources.remove(&id);
        self.index();
        gone
    }

    /// Resets the state of every connection, as if none had been made yet, and keeps the
    /// rows. For a clock that was set back: it cannot tell how long ago an upstream was
    /// last heard.
    pub fn reset_connections(&mut self) {
        for source in self.sources.values_mut() {
            source.stream = StreamState::new();
        }
    }

    fn index(&mut self) {
        self.hosts.clear();
        self.relay = None;
        self.wide.clear();
        for (id, source) in &self.sources {
            if source.row.host.is_none() {
                self.wide.push(*id);
            }
            match (source.row.kind, source.row.host) {
                // The first of two streams of one host stays its cover.
                (UpstreamKind::Pds, Some(host)) => {
                    self.hosts.entry(host).or_insert(*id);
                }
                (UpstreamKind::Relay, _) => {
                    self.relay.get_or_insert(*id);
                }
                (UpstreamKind::Pds, None) | (UpstreamKind::Jetstream, _) => {}
            }
        }
    }

    pub fn get(&self, id: UpstreamId) -> Option<&UpstreamState> {
        self.sources.get(&id)
    }

    pub fn get_mut(&mut self, id: UpstreamId) -> Option<&mut UpstreamState> {
        self.sources.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (UpstreamId, &UpstreamState)> {
        self.sources.iter().map(|(id, source)| (*id, source))
    }

    /// The upstreams that may cover repositories of a host: the host's own stream, and
    /// all that are not the stream of one host.
    pub fn possible_covers(
        &self,
        host: HostId,
    ) -> impl Iterator<Item = (UpstreamId, &UpstreamState)> {
        let own = self.hosts.get(&host);
        let ids = own.into_iter().chain(&self.wide);
        ids.filter_map(|id| Some((*id, self.sources.get(id)?)))
    }

    /// The upstream that covers a repository.
    pub fn of(&self, repo: &Repo) -> Option<UpstreamId> {
        if let Some(host) = repo.host
            && let Some(id) = self.hosts.get(&host)
            && self.is_read_for(*id, repo)
        {
            return Some(*id);
        }
        let relay = self.kept_relay(repo).or(self.relay);
        relay.filter(|id| self.is_read_for(*id, repo))
    }

    /// Whether the events of a repository are read from an upstream at all.
    fn is_read_for(&self, id: UpstreamId, repo: &Repo) -> bool {
        let source = self.get(id);
        source.is_some_and(|source| source.row.followed.reads_all() || repo.tracked)
    }

    fn kept_relay(&self, repo: &Repo) -> Option<UpstreamId> {
        repo.relay.filter(|id| {
            self.get(*id)
                .is_some_and(|source| source.row.kind == UpstreamKind::Relay)
        })
    }

    /// The open epoch of an upstream: work that begins now may raise a marker to it.
    /// `None` while the epoch is not open.
    pub fn open_epoch(&self, id: UpstreamId) -> Option<Epoch> {
        let source = self.get(id)?;
        source.stream.open_epoch(&source.row)
    }

    /// Whether an upstream can be relied on now; see [`StreamState::live`].
    pub fn live(&self, id: UpstreamId, now: Time, settings: &Settings) -> bool {
        self.get(id)
            .is_some_and(|source| source.stream.live(now, settings))
    }

    /// The host that an upstream speaks for; `None` if it is not the stream of one host.
    pub fn host_of(&self, id: UpstreamId) -> Option<HostId> {
        let source = self.get(id)?;
        match source.row.kind {
            UpstreamKind::Pds => source.row.host,
            UpstreamKind::Relay | UpstreamKind::Jetstream => None,
        }
    }
}

/// Brings a repository's cover up to date. A new cover knows nothing of what the old
/// one sent, so the marker is unset and the first rev begins anew, unless it names a
/// commit that the owner has signed and that is not held.
pub fn update_cover(repo: &mut Repo, covers: &Covers) {
    let kept = covers.kept_relay(repo).or(covers.relay);
    if repo.relay != kept {
        repo.relay = kept;
    }
    let cover = covers.of(repo);
    if cover != repo.cover {
        repo.cover = cover;
        if repo.first_rev_since_reset <= repo.floor() {
            repo.first_rev_since_reset = None;
        }
        // Work that began before the upstreams changed was noted for another cover, or
        // before this cover was left for a while. Work that began since then is good,
        // even if this row learns of the change only now.
        repo.unset_at = repo.unset_at.max(covers.changed_at);
        repo.marker = None;
    }
}

/// Records whether an operator tracks a repository by name. Returns whether its cover
/// changed; if so, the marker is unset.
pub fn set_tracked(now: Tick, repo: &mut Repo, covers: &Covers, tracked: bool) -> bool {
    let before = covers.of(repo);
    repo.tracked = tracked;
    let changed = covers.of(repo) != before;
    if changed {
        unset_marker(now, repo);
    }
    update_cover(repo, covers);
    changed
}

/// Reduces a repository to its bare name, without debts, if it is not tracked, has no
/// cover, is not hidden and nothing of it was ever held. Returns whether it did so.
pub fn forget_unwanted(now: Tick, repo: &mut Repo, covers: &Covers) -> bool {
    // A relay that never sent an event of the repository does not speak for it.
    let told = repo.host.is_some() || repo.relay.is_some();
    let wanted = repo.tracked || (told && covers.of(repo).is_some());
    let held = repo.held != Held::Nothing
        || repo.last_indexed_rev.is_some()
        || repo.last_firehose_rev.is_some();
    if wanted || held || account::is_hidden(repo.account) {
        return false;
    }
    *repo = Repo {
        lineage: repo.lineage,
        abandoned: repo.abandoned,
        document: repo.document,
        strangers: repo.strangers,
        unset_at: now,
        ..Repo::new(repo.did.clone())
    };
    true
}

/// Whether nothing is known of a repository but its name.
pub fn is_bare_name(repo: &Repo) -> bool {
    repo.held == Held::Nothing
        && repo.account == Account::Unknown
        && repo.host.is_none()
        && repo.relay.is_none()
        && !repo.tracked
        && repo.debt.is_empty()
}

/// Unsets the marker. Work that began before `now` does not restore it.
pub fn unset_marker(now: Tick, repo: &mut Repo) {
    repo.marker = None;
    repo.unset_at = now;
}

/// Raises the marker to an epoch, if the upstream is the repository's cover. A marker
/// never goes down within one cover.
pub(crate) fn raise_marker(repo: &mut Repo, cover: UpstreamId, epoch: Epoch) {
    if repo.cover != Some(cover) {
        return;
    }
    let epoch = match repo.marker {
        Some(marker) if marker.cover == cover => marker.epoch.max(epoch),
        _ => epoch,
    };
    repo.marker = Some(Marker { cover, epoch });
}

/// Whether a repository's marker names the present epoch of its cover.
pub(crate) fn is_marker_valid(repo: &Repo, covers: &Covers) -> bool {
    let Some(cover) = covers.of(repo) else {
        return false;
    };
    let Some(source) = covers.get(cover) else {
        return false;
    };
    repo.marker
        == Some(Marker {
            cover,
            epoch: source.row.epoch,
        })
}
