//! First sightings, dead letters, and the log lines about what the ledger noticed.

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::{DebtReason, Notice, Repo, RepoId, Time};
use gapless_core::repo_tx::RepoTx;
use gapless_store::table::dead::{DeadClass, DeadLetter, Resolution};
use gapless_store::table::log::SourceEvent;

use crate::desk::{DEAD_PAYLOAD_BYTES, InboundEvent};
use crate::services::Services;

/// Begins a transaction on a repository that the store does not know. The new row owes a lookup of
/// the DID document, because a row without a debt would never be processed again.
pub(crate) fn begin_first_sighting(services: &Services, did: &Did) -> RepoTx {
    let mut repo = Repo::new(did.clone());
    let now = services.clock.now();
    debt::owe(now, &mut repo, DebtKind::Resolve, DebtReason::FirstSighting);
    RepoTx::first_seen(repo)
}

/// Makes a dead letter of an event. The payload is cut at [`DEAD_PAYLOAD_BYTES`].
pub(super) fn dead_letter(
    event: &InboundEvent,
    class: DeadClass,
    error: String,
    repo: Option<RepoId>,
    first_seen: Time,
) -> DeadLetter {
    let end = event.bytes.len().min(DEAD_PAYLOAD_BYTES);
    DeadLetter {
        class,
        source: Some(SourceEvent {
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

/// Counts the notices of the ledger, and logs those that an operator should see.
pub(super) fn report_notices(services: &Services, repo: &Repo, notices: &[Notice]) {
    for notice in notices {
        services.metrics.notice(notice);
        match notice {
            Notice::Fork { rev } => tracing::warn!(
                did = %repo.did, %rev,
                "the owner's key signed two commits with one rev; Gapless asks the host which one counts"
            ),
            Notice::HostBehind { named } => {
                if let Some(host) = repo.host {
                    services.hosts.behind_counts.add_behind(host);
                }
                tracing::warn!(
                    did = %repo.did, host_rev = %named.rev,
                    "the host has an older state than ours; nothing is merged, and the repository is not complete"
                );
            }
            Notice::Adopted { rev } => {
                if let Some(host) = repo.host {
                    services
                        .hosts
                        .behind_counts
                        .record_adopted(services.clock.time(), host);
                }
                tracing::warn!(did = %repo.did, %rev, "Gapless adopted the host's older state");
            }
            Notice::Moved { from: Some(_), .. } => {
                tracing::info!(did = %repo.did, "the repository moved to another host")
            }
            Notice::Vanished { hidden: true } => tracing::warn!(
                did = %repo.did, "the host says that it has no such repository; hidden, not purged"
            ),
            Notice::Vanished { hidden: false } => tracing::warn!(
                did = %repo.did, "the host says that it has no such repository; not hidden, since hiding is suspended for this host"
            ),
            Notice::Account(state) => {
                tracing::debug!(did = %repo.did, ?state, "the state of the account changed")
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use gapless_core::ledger::event::Origin;
    use gapless_core::ledger::{Tick, UpstreamId};

    use super::*;
    use crate::upstreams::Wire;

    #[test]
    fn a_dead_letter_keeps_the_beginning_of_a_large_frame() {
        for bytes in [0, 1, DEAD_PAYLOAD_BYTES, DEAD_PAYLOAD_BYTES + 1] {
            let frame: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let event = InboundEvent {
                did: Did::parse("did:web:a.test").expect("a DID"),
                bytes: Bytes::from(frame.clone()),
                wire: Wire::Frames,
                origin: Origin {
                    upstream: UpstreamId(1),
                    epoch: None,
                },
                seq: 7,
                position: None,
                read: Tick(1),
                at: Instant::now(),
                refused: 0,
                applied: None,
                lag: None,
                tally: None,
                permit: None,
            };
            let letter = dead_letter(&event, DeadClass::Invalid, String::new(), None, Time(1));
            let kept = bytes.min(DEAD_PAYLOAD_BYTES);
            assert_eq!(letter.payload, frame[..kept]);
        }
    }
}
