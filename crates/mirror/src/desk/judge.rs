//! Verifies an event with the owner's key, and translates the verdict of the codec into an
//! event of the ledger.
//!
//! Nothing is decided here. An event that cannot be verified for want of a key is not
//! invalid: it is unresolved, and is parked until the document is read.

use gapless_atp::cid::Cid;
use gapless_atp::crypto::PublicKey;
use gapless_atp::frame::{self, AccountEvent, CommitEvent, SyncEvent};
use gapless_atp::syntax::Rev;
use gapless_atp::verify::{self, Authentic, CheckedCommit, Fault, SyncVerdict, Verdict};
use gapless_core::ledger::event::Event;
use gapless_core::ledger::{Account, DocumentKeys, Head, KeyBytes, PriorState, Repo, Tick, Time};
use gapless_core::repo_tx::ReadFrame;
use gapless_net::public_key;
use gapless_store::table::dead::DeadClass;
use quick_cache::unsync::Cache;

/// Keys in the cache of one desk, about a hundred bytes each.
const CACHED_KEYS: usize = 1 << 16;

/// Public keys that one desk decoded from their bytes. Decoding a compressed point takes
/// a square root, a tenth of the time of a signature check.
pub struct KeyCache(Cache<KeyBytes, PublicKey>);

impl Default for KeyCache {
    fn default() -> KeyCache {
        KeyCache(Cache::new(CACHED_KEYS))
    }
}

impl KeyCache {
    /// Decodes a key. Returns `None` if the bytes are not those of a key.
    pub fn decode(&mut self, bytes: &KeyBytes) -> Option<PublicKey> {
        if let Some(key) = self.0.get(bytes) {
            return Some(key.clone());
        }
        let key = public_key(bytes)?;
        self.0.insert(*bytes, key.clone());
        Some(key)
    }
}

/// What is known of the owner's key.
pub struct OwnerKey<'a> {
    /// `None` if no usable key is known.
    pub key: Option<&'a PublicKey>,
    /// The keys in the DID document when it was last read.
    pub signing: Option<&'a DocumentKeys>,
}

/// What verification says of an event.
pub struct Judgement<'a> {
    /// What verification found in the frame. Its event is `None` if the frame brings nothing new:
    /// then only the cursor moves.
    pub frame: ReadFrame<'a>,
    /// Why the event cannot be used.
    pub fault: Option<(DeadClass, String)>,
}

impl<'a> Judgement<'a> {
    fn plain(event: Option<Event>) -> Judgement<'a> {
        Judgement {
            frame: ReadFrame {
                event,
                ..ReadFrame::default()
            },
            fault: None,
        }
    }

    fn unsigned(class: DeadClass, fault: impl ToString) -> Judgement<'a> {
        Judgement {
            fault: Some((class, fault.to_string())),
            ..Judgement::plain(Some(Event::Unsigned))
        }
    }
}

/// Verifies an event that was read at `read`.
pub(crate) fn judge_event<'a>(
    event: &frame::Event<'a>,
    repo: Option<&Repo>,
    owner: &OwnerKey<'_>,
    read: Tick,
    now: Time,
    bytes: u32,
) -> Judgement<'a> {
    match event {
        frame::Event::Identity(_) => Judgement::plain(Some(Event::Identity)),
        frame::Event::Account(event) => Judgement::plain(read_account(event)),
        frame::Event::Commit(event) => judge_commit(event, repo, owner, read, now, bytes),
        frame::Event::Sync(event) => judge_sync(event, repo, owner, read, now, bytes),
        frame::Event::Info(_) | frame::Event::Error { .. } | frame::Event::Unknown { .. } => {
            Judgement::plain(None)
        }
    }
}

/// The state that an `#account` event states. `throttled` and `desynchronized` are states of
/// the emitter, not of the account.
pub(crate) fn read_account(event: &AccountEvent<'_>) -> Option<Event> {
    let state = match (event.active, event.status) {
        (true, _) => Account::Active,
        (false, Some("deactivated")) => Account::Deactivated,
        (false, Some("suspended")) => Account::Suspended,
        (false, Some("takendown")) => Account::Takendown,
        (false, Some("deleted")) => Account::Deleted,
        // The host is asked.
        (false, Some("throttled" | "desynchronized")) => return Some(Event::Unsigned),
        (false, _) => Account::Deactivated,
    };
    Some(Event::Account(state))
}

fn held_of(repo: Option<&Repo>) -> Option<verify::Held> {
    repo.and_then(Repo::head).map(|head| verify::Held {
        rev: head.rev,
        data: head.data,
        commit: head.commit,
    })
}

fn head_of(authentic: &Authentic<'_>) -> Head {
    Head {
        rev: authentic.rev,
        data: authentic.data,
        commit: authentic.commit,
    }
}

fn judge_commit<'a>(
    event: &CommitEvent<'a>,
    repo: Option<&Repo>,
    owner: &OwnerKey<'_>,
    read: Tick,
    now: Time,
    bytes: u32,
) -> Judgement<'a> {
    let held = held_of(repo);
    let claimed = || verify::claimed_commit(event, now.0);
    let Some(key) = owner.key else {
        if is_old(event.rev, held.as_ref(), event.commit) {
            return Judgement::plain(None);
        }
        return without_key(owner, read, claimed(), bytes);
    };
    let checked = |commit: CheckedCommit<'a>, before: PriorState| {
        let judged = authentic(&commit.authentic, before, bytes);
        Judgement {
            frame: ReadFrame {
                ops: commit.ops,
                ..judged.frame
            },
            ..judged
        }
    };
    match verify::check_commit(event, key, held.as_ref(), now.0, None) {
        Verdict::Replay => Judgement::plain(None),
        Verdict::Fork(authentic) => {
            Judgement::plain(Some(signed(&authentic, PriorState::Untold, bytes)))
        }
        Verdict::Applies(commit) | Verdict::Discontinuous(commit) => {
            let before = PriorState::Root(commit.before);
            checked(commit, before)
        }
        // The held keys with the operations applied show whether an operation is missing.
        Verdict::Legacy(commit)
        | Verdict::ProofIncomplete { commit, .. }
        | Verdict::Undecided { commit, .. } => checked(commit, PriorState::Recompute),
        Verdict::Invalid {
            fault,
            authentic: Some(signed),
        } => Judgement {
            fault: match fault {
                Fault::TooBig => None,
                fault => Some((DeadClass::Invalid, fault.to_string())),
            },
            // The operations are not those that the owner signed, so they are dropped.
            ..authentic(&signed, PriorState::Untold, bytes)
        },
        Verdict::Invalid {
            fault: Fault::Signature(fault),
            ..
        } => other_key(owner, read, claimed(), bytes, fault.to_string()),
        Verdict::Invalid { fault, .. } => Judgement::unsigned(DeadClass::Invalid, fault),
    }
}

fn judge_sync<'a>(
    event: &SyncEvent<'a>,
    repo: Option<&Repo>,
    owner: &OwnerKey<'_>,
    read: Tick,
    now: Time,
    bytes: u32,
) -> Judgement<'a> {
    let held = held_of(repo);
    let claimed = || verify::claimed_sync(event, now.0);
    let Some(key) = owner.key else {
        return without_key(owner, read, claimed(), bytes);
    };
    match verify::check_sync(event, key, held.as_ref(), now.0) {
        SyncVerdict::Replay => Judgement::plain(None),
        SyncVerdict::SameRoot(authentic)
        | SyncVerdict::OtherRoot(authentic)
        | SyncVerdict::Fork(authentic) => self::authentic(&authentic, PriorState::Untold, bytes),
        SyncVerdict::Invalid(Fault::Signature(fault)) => {
            other_key(owner, read, claimed(), bytes, fault.to_string())
        }
        SyncVerdict::Invalid(fault) => Judgement::unsigned(DeadClass::Invalid, fault),
    }
}

/// An event that the owner signed, without its operations.
fn authentic<'a>(authentic: &Authentic<'a>, before: PriorState, bytes: u32) -> Judgement<'a> {
    let judged = Judgement::plain(Some(signed(authentic, before, bytes)));
    Judgement {
        frame: ReadFrame {
            commit: authentic.block,
            ..judged.frame
        },
        ..judged
    }
}

fn signed(authentic: &Authentic<'_>, before: PriorState, bytes: u32) -> Event {
    Event::Signed {
        head: head_of(authentic),
        before,
        bytes,
    }
}

/// Whether a commit that is not verified names a rev that is not newer than the held one. Such
/// a commit changes nothing, whether it is authentic or not.
fn is_old(rev: &str, held: Option<&verify::Held>, commit: Option<Cid>) -> bool {
    let (Some(held), Ok(rev)) = (held, rev.parse::<Rev>()) else {
        return false;
    };
    rev < held.rev || (rev == held.rev && commit == Some(held.commit))
}

/// The head that an event claims, before its signature is verified.
type ClaimedHead = Result<(Cid, Rev, Cid), Fault>;

/// Judges an event without a key. If the document was read after the event and names no key,
/// the event is invalid.
fn without_key<'a>(
    owner: &OwnerKey<'_>,
    read: Tick,
    claimed: ClaimedHead,
    bytes: u32,
) -> Judgement<'a> {
    match owner.signing {
        Some(signing) if signing.key.is_none() && signing.asked > read => {
            Judgement::unsigned(DeadClass::Invalid, "the DID document names no usable key")
        }
        _ => unresolved(claimed, bytes),
    }
}

/// Judges an event that the known key did not sign. If the document was read after the event,
/// the event is invalid; otherwise the owner may have a newer key.
fn other_key<'a>(
    owner: &OwnerKey<'_>,
    read: Tick,
    claimed: ClaimedHead,
    bytes: u32,
    fault: String,
) -> Judgement<'a> {
    match owner.signing {
        Some(signing) if signing.asked > read => Judgement::unsigned(DeadClass::Invalid, fault),
        _ => unresolved(claimed, bytes),
    }
}

fn unresolved<'a>(claimed: ClaimedHead, bytes: u32) -> Judgement<'a> {
    match claimed {
        Err(fault) => Judgement::unsigned(DeadClass::Invalid, fault),
        Ok((commit, rev, data)) => Judgement::plain(Some(Event::Unresolved {
            claimed: Head { rev, data, commit },
            bytes,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compressed point of the private key 1.
    const POINT: &str = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";

    fn bytes(first: u8) -> KeyBytes {
        let point: Vec<u8> = (0..POINT.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&POINT[at..at + 2], 16).expect("hex"))
            .collect();
        let mut point: [u8; 33] = point.try_into().expect("33 bytes");
        point[0] = first;
        KeyBytes { curve: 0, point }
    }

    #[test]
    fn a_key_is_the_one_of_its_bytes() {
        let mut keys = KeyCache::default();
        // The two points differ in the sign alone.
        let (even, odd) = (bytes(2), bytes(3));
        for bytes in [even, odd, even, odd] {
            let key = keys.decode(&bytes).expect("a key");
            assert_eq!(key.to_compressed(), bytes.point);
        }
        assert!(keys.decode(&KeyBytes { curve: 9, ..even }).is_none());
        assert_eq!(keys.0.len(), 2, "what is no key is not kept");
    }

    #[test]
    fn a_full_cache_stays_bounded_and_keeps_what_is_in_use() {
        let mut keys = KeyCache::default();
        let used = bytes(2);
        let key = keys.decode(&used).expect("a key");
        // Decoding so many different points would take minutes.
        for number in 0..2 * CACHED_KEYS as u32 {
            let mut other = used;
            other.point[1..5].copy_from_slice(&number.to_be_bytes());
            keys.0.insert(other, key.clone());
            assert!(keys.0.get(&used).is_some());
        }
        let kept = keys.0.len();
        assert!(kept <= CACHED_KEYS && kept > CACHED_KEYS / 2, "{kept}");
    }
}
