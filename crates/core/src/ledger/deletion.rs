//! Decides whether to believe a relay that reports a deletion (account states).
//!
//! A relay forwards that an account is deleted, and the account's host, when asked, does not know
//! the repository any more. The reference PDS gives no other evidence of a deletion. But a wiped
//! host answers the same, and relays can be wrong. The relay's report and the host's answer
//! together count as a deletion that the host itself reports only if the host shows that it was not
//! wiped: a whole sweep, begun after the report, does not find this repository, but finds the
//! repositories that are known to have lived on the host at the same time, all but a few (see
//! [`MISSING_ONE_IN`]). Until then the repository is hidden, and nothing of it is purged.

use super::account;
use super::settings::MISSING_ONE_IN;
use super::state::{Account, Hearsay, Host, HostId, Repo};
use super::sweep;
use super::time::{Now, Tick};

/// The evidence that is missing before a relay's report of a deletion is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedEvidence {
    /// The host's answer: the host has not been asked since the report.
    Answer,
    /// A whole sweep: the host does not have the repository, but it is not known whether
    /// the host has lost others too.
    Sweep,
}

/// Records that a relay reports the repository as deleted. If the host itself has reported the
/// deletion, the relay's report adds nothing.
pub(crate) fn relay_says_deleted(now: Now, repo: &mut Repo) {
    if repo.deleted_at.is_none() {
        repo.hearsay.get_or_insert(Hearsay {
            told: now.tick,
            denied: false,
        });
    }
}

/// Records that the host, asked at `asked`, does not have the repository. Returns whether
/// that agrees with a known or reported deletion, so that the account's state stays.
pub(crate) fn host_denies(repo: &mut Repo, asked: Tick) -> bool {
    if repo.account != Account::Deleted {
        return false;
    }
    match &mut repo.hearsay {
        // The host reported the deletion itself, so its answer agrees.
        None => repo.deleted_at.is_some(),
        Some(hearsay) => {
            hearsay.denied |= hearsay.told < asked;
            true
        }
    }
}

/// The evidence that is missing before a reported deletion is believed; `None` if no
/// relay reports one, or if the deletion is known.
pub fn awaited_evidence(repo: &Repo) -> Option<AwaitedEvidence> {
    let hearsay = repo.hearsay?;
    Some(if hearsay.denied {
        AwaitedEvidence::Sweep
    } else {
        AwaitedEvidence::Answer
    })
}

/// The repositories that live on a host, as a whole sweep found them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Residents {
    /// For each repository that the host has: the tick since which it has lived there.
    found: Vec<Tick>,
    /// The number of repositories that the host does not have, although no source reports
    /// them as deleted.
    missing: u64,
}

impl Residents {
    /// Counts a repository that is known to live on the host. `found`: whether the sweep
    /// that began at `began` found it.
    pub fn add(&mut self, repo: &Repo, began: Tick, found: bool) {
        match (repo.account, found) {
            (Account::NotFound, _) => self.missing += 1,
            (Account::Active, true) if repo.host_since < began => self.found.push(repo.host_since),
            (_, false) if sweep::counts_as_vanished(repo, began) => self.missing += 1,
            // A hidden or newly arrived repository says nothing about the host.
            _ => {}
        }
    }

    /// Finishes the count; call it after the last [`Residents::add`].
    pub fn counted(mut self) -> Residents {
        self.found.sort_unstable();
        self
    }

    /// Whether the host was not wiped since `then`: of the repositories that lived on the host by
    /// then, only a few are missing.
    fn are_there_since(&self, then: Tick) -> bool {
        let there = self.found.partition_point(|since| *since <= then) as u64;
        let few = self.missing.saturating_mul(MISSING_ONE_IN) <= there;
        there > 0 && few && !account::too_many_vanished(self.missing, there + self.missing)
    }
}

/// Decides about a reported deletion after a whole sweep, begun at `began`, did not find
/// the repository. Returns whether the deletion is known from now on, as if the host
/// itself had reported it.
pub fn sweep_missed(
    now: Now,
    repo: &mut Repo,
    host: (HostId, &Host),
    began: Tick,
    residents: &Residents,
) -> bool {
    let (id, row) = host;
    let Some(hearsay) = repo.hearsay.filter(|hearsay| hearsay.denied) else {
        return false;
    };
    let since = repo.host == Some(id) && repo.host_since < began && hearsay.told < began;
    if !since || row.hiding_suspended || !residents.are_there_since(last_seen_at(repo)) {
        return false;
    }
    repo.hearsay = None;
    account::begin_grace(now, repo);
    true
}

/// The tick at which the host was last known to have the repository.
fn last_seen_at(repo: &Repo) -> Tick {
    let swept = repo.swept.map(|swept| swept.tick);
    repo.host_since.max(swept.unwrap_or_default())
}
