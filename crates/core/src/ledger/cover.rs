//! Which upstream speaks for a repository? (R2)
//!
//! The stream of the host that its DID document names, if we follow it; else one
//! relay, chosen at first sighting and kept. Events of any source are applied if
//! they prove themselves; only the cover's can say that nothing is missing.

use std::collections::BTreeMap;

use super::account;
use super::settings::Settings;
use super::state::{Account, Epoch, Held, HostId, Kind, Marker, Repo, Upstream, UpstreamId};
use super::stream::Stream;
use super::time::{Tick, Time};

/// An upstream: the row, and the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub row: Upstream,
    pub stream: Stream,
}

/// All upstreams.
#[derive(Debug, Clone, Default)]
pub struct Covers {
    sources: BTreeMap<UpstreamId, Source>,
    hosts: BTreeMap<HostId, UpstreamId>,
    relay: Option<UpstreamId>,
    /// Those that speak for no host alone. There may be thousands of the others.
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
        let stream = Stream::new();
        self.sources.insert(id, Source { row, stream });
        self.index();
    }

    pub fn remove(&mut self, now: Tick, id: UpstreamId) -> Option<Source> {
        self.changed_at = now;
        let gone = self.sources.remove(&id);
        self.index();
        gone
    }

    /// The clock was set back: how long ago anything was heard, nobody knows. Every
    /// connection is as if it had not been made yet, and its row stays.
    pub fn renew(&mut self) {
        for source in self.sources.values_mut() {
            source.stream = Stream::new();
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
                (Kind::Pds, Some(host)) => {
                    self.hosts.entry(host).or_insert(*id);
                }
                (Kind::Relay, _) => {
                    self.relay.get_or_insert(*id);
                }
                (Kind::Pds, None) | (Kind::Jetstream, _) => {}
            }
        }
    }

    pub fn get(&self, id: UpstreamId) -> Option<&Source> {
        self.sources.get(&id)
    }

    pub fn get_mut(&mut self, id: UpstreamId) -> Option<&mut Source> {
        self.sources.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (UpstreamId, &Source)> {
        self.sources.iter().map(|(id, source)| (*id, source))
    }

    /// The upstreams that may cover repositories of a host.
    pub fn concerned(&self, host: HostId) -> impl Iterator<Item = (UpstreamId, &Source)> {
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
                .is_some_and(|source| source.row.kind == Kind::Relay)
        })
    }

    /// The epoch of an upstream, if what begins now may raise a marker to it.
    pub fn open_epoch(&self, id: UpstreamId) -> Option<Epoch> {
        let source = self.get(id)?;
        source.stream.open_epoch(&source.row)
    }

    /// Whether an upstream can be relied on now.
    pub fn live(&self, id: UpstreamId, now: Time, settings: &Settings) -> bool {
        self.get(id)
            .is_some_and(|source| source.stream.live(now, settings))
    }

    /// The host that an upstream speaks for, if it speaks for one only.
    pub fn host_of(&self, id: UpstreamId) -> Option<HostId> {
        let source = self.get(id)?;
        match source.row.kind {
            Kind::Pds => source.row.host,
            Kind::Relay | Kind::Jetstream => None,
        }
    }
}

/// Brings a repository's cover up to date. Another cover knows nothing of what
/// the old one showed: marker and first rev begin anew. But what the owner has
/// signed, and we do not hold, is not forgotten.
pub fn settle(repo: &mut Repo, covers: &Covers) {
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
        // What began before the upstreams changed was noted for another cover,
        // or before this one was left for a while. What began since is good,
        // even before this row knew of the change.
        repo.unset_at = repo.unset_at.max(covers.changed_at);
        repo.marker = None;
    }
}

/// An operator wants a repository by name, or no longer. Returns whether another
/// upstream speaks for it from now on: then the marker is taken back.
pub fn track(now: Tick, repo: &mut Repo, covers: &Covers, tracked: bool) -> bool {
    let before = covers.of(repo);
    repo.tracked = tracked;
    let changed = covers.of(repo) != before;
    if changed {
        unset(now, repo);
    }
    settle(repo, covers);
    changed
}

/// Nobody wants it any more, no stream speaks for it, and nothing of it was ever held:
/// it is a name again, and nothing is owed for a name. Returns whether it is so.
pub fn let_go(now: Tick, repo: &mut Repo, covers: &Covers) -> bool {
    // A relay that never told of it does not speak for it.
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

/// Whether it is nothing but a name.
pub fn is_a_name(repo: &Repo) -> bool {
    repo.held == Held::Nothing
        && repo.account == Account::Unknown
        && repo.host.is_none()
        && repo.relay.is_none()
        && !repo.tracked
        && repo.debt.is_empty()
}

/// Takes the marker back: what was begun before now does not restore it.
pub fn unset(now: Tick, repo: &mut Repo) {
    repo.marker = None;
    repo.unset_at = now;
}

/// Raises the marker, if the upstream is the repository's cover. Markers never
/// go down within one cover.
pub fn raise(repo: &mut Repo, cover: UpstreamId, epoch: Epoch) {
    if repo.cover != Some(cover) {
        return;
    }
    let epoch = match repo.marker {
        Some(marker) if marker.cover == cover => marker.epoch.max(epoch),
        _ => epoch,
    };
    repo.marker = Some(Marker { cover, epoch });
}

/// Whether the marker names the cover's present epoch.
pub fn valid(repo: &Repo, covers: &Covers) -> bool {
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
