//! Frames that Gapless writes itself: `#sync`, `#account` and `#identity` events that no host
//! has sent in this form, and the frames that tell a consumer that its cursor cannot be
//! served.

use gapless_atp::frame::{
    AccountEvent, IdentityEvent, SyncEvent, encode_account, encode_error, encode_identity,
    encode_info, encode_sync, sync_blocks,
};
use gapless_atp::syntax::Did;
use gapless_core::ledger::{Account, Head, Time};

use crate::api::timestamp;

/// Stands for a time that cannot be formatted.
const SOME_TIME: &str = "1970-01-01T00:00:00.000Z";

/// A placeholder until the frame gets its number.
const UNNUMBERED: u64 = 1;

fn time(at: Time) -> String {
    timestamp(at).unwrap_or_else(|| SOME_TIME.to_owned())
}

/// A `#sync` frame: the present head of a repository, without the operations that led to it.
/// The frame gets its number when it is sent.
pub fn sync(did: &Did, head: &Head, block: &[u8], at: Time) -> Vec<u8> {
    encode_sync(&SyncEvent {
        seq: UNNUMBERED,
        did: did.as_str(),
        time: &time(at),
        rev: &head.rev.to_string(),
        blocks: &sync_blocks(&head.commit, block),
    })
}

/// An `#account` frame for an entry of the log.
pub fn account(seq: u64, did: &str, account: Account, at: Time) -> Vec<u8> {
    let (active, status) = match account {
        Account::Unknown | Account::Active => (true, None),
        Account::Deactivated => (false, Some("deactivated")),
        Account::Suspended => (false, Some("suspended")),
        Account::Takendown => (false, Some("takendown")),
        Account::Deleted => (false, Some("deleted")),
        // The host does not have the repository and gives no reason.
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

/// An `#identity` frame for an entry of the log.
pub fn identity(seq: u64, did: &str, at: Time) -> Vec<u8> {
    encode_identity(&IdentityEvent {
        seq,
        did,
        time: &time(at),
        handle: None,
    })
}

/// The frame that a consumer gets first if its cursor is older than the window.
pub fn outdated_cursor() -> Vec<u8> {
    let words = "The cursor is older than the window; events before it may be missing.";
    encode_info("OutdatedCursor", Some(words))
}

/// The error for a consumer whose cursor is higher than any number given out.
pub fn future_cursor() -> Vec<u8> {
    encode_error("FutureCursor", Some("Cursor in the future."))
}

/// The error for a consumer that is disconnected because it is too slow.
pub fn consumer_too_slow() -> Vec<u8> {
    let words = "Too slow: go on from your cursor.";
    encode_error("ConsumerTooSlow", Some(words))
}
