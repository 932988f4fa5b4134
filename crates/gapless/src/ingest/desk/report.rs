//! What a desk says of its work: first sightings, dead letters, and what people
//! should hear.

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, What};
use gapless_core::ledger::{Notice, Repo, RepoId, Time, Why};
use gapless_store::table::dead::{DeadClass, DeadLetter, Resolution};
use gapless_store::table::log::Source;

use super::{Arrived, DEAD_PAYLOAD_BYTES};
use crate::ingest::draft::Draft;
use crate::shared::Shared;

/// A repository that nobody has heard of: a name that nothing is owed for would be
/// forgotten.
pub fn first_heard(shared: &Shared, did: &Did) -> Draft {
    let mut repo = Repo::new(did.clone());
    let now = shared.clock.now();
    debt::owe(now, &mut repo, What::Resolve, Why::FirstSighting);
    Draft::unheard(repo)
}

pub fn letter(
    event: &Arrived,
    class: DeadClass,
    error: String,
    repo: Option<RepoId>,
    first_seen: Time,
) -> DeadLetter {
    let end = event.bytes.len().min(DEAD_PAYLOAD_BYTES);
    DeadLetter {
        class,
        source: Some(Source {
            upstream: event.origin.upstream,
            seq: event.seq,
        }),
        repo,
        error,
        payload: event.bytes[..end].to_vec(),
        attempts: event.refused,
        first_seen,
        resolution: Resolution::Open,
    }
}

/// Counts what the ledger noticed, and says what a person should hear.
pub fn report(shared: &Shared, repo: &Repo, notices: &[Notice]) {
    for notice in notices {
        shared.metrics.notice(notice);
        match notice {
            Notice::Fork { rev } => tracing::warn!(
                did = %repo.did, %rev,
                "the owner's key signed two commits with one rev; the host is asked which counts"
            ),
            Notice::HostBehind { named } => tracing::warn!(
                did = %repo.did, host_rev = %named.rev,
                "the host has an older state than ours; nothing is merged, and the repository is not complete"
            ),
            Notice::Adopted { rev } => tracing::warn!(
                did = %repo.did, %rev, "the host's older state was taken over"
            ),
            Notice::Moved { from: Some(_), .. } => {
                tracing::info!(did = %repo.did, "lives on another host now")
            }
            Notice::Vanished => tracing::warn!(
                did = %repo.did, "the host says that it has no such repository; hidden, not purged"
            ),
            Notice::Account(state) => tracing::debug!(did = %repo.did, ?state, "account"),
            _ => {}
        }
    }
}
