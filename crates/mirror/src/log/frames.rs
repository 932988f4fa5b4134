//! Frames that Gapless itself writes: `#sync`, `#account` and `#identity` events that no
//! host has sent in this form, and the answers to a cursor that cannot be served.

use gapless_atp::frame::{
    AccountEvent, IdentityEvent, SyncEvent, encode_account, encode_error, encode_identity,
    encode_info, encode_sync, sync_blocks,
};
use gapless_atp::syntax::Did;
use gapless_core::ledger::{Account, Head, Time};

use crate::api::timestamp;

/// What a time without a text is called: it has passed, and that is all.
const SOME_TIME: &str = "1970-01-01T00:00:00.000Z";

/// What stands where a number will be.
const UNNUMBERED: u64 = 1;

fn time(at: Time) -> String {
    timestamp(at).unwrap_or_else(|| SOME_TIME.to_owned())
}

/// `#sync`: a repository is here now, and how it got there is not told. Its number
/// is given when it is sent.
pub fn sync(did: &Did, head: &Head, block: &[u8], at: Time) -> Vec<u8> {
    encode_sync(&SyncEvent {
        seq: UNNUMBERED,
        did: did.as_str(),
        time: &time(at),
        rev: &head.rev.to_string(),
        blocks: &sync_blocks(&head.commit, block),
    })
}

/// `#account`, as the log has it.
pub fn account(seq: u64, did: &str, account: Account, at: Time) -> Vec<u8> {
    let (active, status) = match account {
        Account::Unknown | Account::Active => (true, None),
        Account::Deactivated => (false, Some("deactivated")),
        Account::Suspended => (false, Some("suspended")),
        Account::Takendown => (false, Some("takendown")),
        Account::Deleted => (false, Some("deleted")),
        // Its host does not have it, and nobody has said why.
        Account::NotFound => (false, None),
    };
    encode_account(&AccountEvent {
        seq,
        did,
        time: &time(at),
        active,
        status,
    })
}

pub fn identity(seq: u64, did: &str, at: Time) -> Vec<u8> {
    encode_identity(&IdentityEvent {
        seq,
        did,
        time: &time(at),
        handle: None,
    })
}

/// Said before the window, to whoever has missed something before it.
pub fn outdated_cursor() -> Vec<u8> {
    let words = "The cursor is older than the window; events before it may be missing.";
    encode_info("OutdatedCursor", Some(words))
}

/// Said to whoever has a number that was never given out.
pub fn future_cursor() -> Vec<u8> {
    encode_error("FutureCursor", Some("Cursor in the future."))
}

/// Said to whoever is cut.
pub fn consumer_too_slow() -> Vec<u8> {
    let words = "Too slow: go on from your cursor.";
    encode_error("ConsumerTooSlow", Some(words))
}
