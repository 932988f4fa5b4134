//! The relay, which merges the hosts' streams into one with its own numbers.
//!
//! It behaves like deployed relays: it passes on, unchecked, what a host says about the
//! accounts that the host speaks for; it knows only accounts from its stream; it never
//! reports a cursor as too old or as ahead; it holds no repositories and redirects
//! requests for them to the host.

mod serve;

pub(crate) use serve::answer;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use gapless_atp::car::read_blocks;
use gapless_atp::cid::Cid;
use gapless_atp::syntax::Did;

use crate::faults::{Fault, Faults, Place};
use crate::stream::{Body, Draft, Feed};

/// What the relay knows about an account.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub rev: String,
    pub head: Option<Cid>,
    pub host: usize,
    pub active: bool,
    pub status: Option<String>,
}

/// The state of the relay.
pub(crate) struct Relay {
    pub feed: Arc<Feed>,
    pub known: HashMap<Did, Known>,
    /// The accounts in the order of their first event.
    pub order: Vec<Did>,
    /// The last number read from each host.
    pub host_seqs: BTreeMap<usize, u64>,
}

impl Relay {
    pub(crate) fn new(window_events: usize, buffer_events: u64) -> Relay {
        Relay {
            feed: Arc::new(Feed::new(window_events, buffer_events)),
            known: HashMap::new(),
            order: Vec::new(),
            host_seqs: BTreeMap::new(),
        }
    }

    /// Handles an event of a host. Returns the relay's number for it if the event was
    /// passed on.
    pub(crate) fn hear(
        &mut self,
        faults: &Faults,
        host: usize,
        seq: u64,
        speaks_for: Option<usize>,
        draft: &Draft,
        not_before: Option<Instant>,
    ) -> Option<u64> {
        let omit = |fault: &Fault| matches!(fault, Fault::RelayOmit {}).then_some(());
        let omitted = |place| faults.take(place, Some(&draft.did), omit).is_some();
        if omitted(Place::Pds(host)) || omitted(Place::Relay) {
            return None;
        }
        self.host_seqs.insert(host, seq);
        // Any host may announce an identity change; other events only count from the host
        // that the document names. Unreadable events are not passed on.
        match draft.body {
            Body::BrokenHeader | Body::BrokenPayload | Body::BrokenRest => return None,
            Body::Identity { .. } => (),
            _ if speaks_for != Some(host) => return None,
            _ => self.learn(host, draft),
        }
        let seq = self.feed.skip_seq();
        let gap = |fault: &Fault| matches!(fault, Fault::RelayGap {}).then_some(());
        if faults.take(Place::Relay, Some(&draft.did), gap).is_some() {
            return None;
        }
        self.feed
            .push(seq, &draft.did, draft.encode(seq), not_before);
        Some(seq)
    }

    fn learn(&mut self, host: usize, draft: &Draft) {
        let known = self.known.entry(draft.did.clone()).or_insert_with(|| {
            self.order.push(draft.did.clone());
            Known {
                rev: String::new(),
                head: None,
                host,
                active: true,
                status: None,
            }
        });
        known.host = host;
        match &draft.body {
            Body::Commit(body) => {
                known.rev = body.rev.clone();
                known.head = Some(body.commit);
            }
            Body::Sync { rev, blocks } => {
                known.rev = rev.clone();
                let root = read_blocks(blocks).ok();
                known.head = root.and_then(|blocks| blocks.roots().first().copied());
            }
            Body::Account { active, status } => {
                known.active = *active;
                known.status = status.clone();
            }
            _ => (),
        }
    }

    /// Restores the relay from a backup: it gives its last numbers again. Returns how
    /// many events were forgotten.
    pub(crate) fn rollback(&mut self, events: usize) -> usize {
        self.feed.rollback(events)
    }
}
