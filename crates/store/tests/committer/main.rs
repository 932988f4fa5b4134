//! Tests the committer: what is acknowledged is durable, what is visible is durable, in one
//! order; and how the committer fails, fills up and shuts down.

#![cfg(feature = "engine")]

mod disk;
mod order;
mod recorder;
mod shutdown;
mod threads;

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Repo, Time};
use gapless_store::change::{Change, EntryContent, IdentityParts, LogEntry, RepoChange, Subject};

/// A change of one log number, about one of a few repositories.
fn event(who: u32) -> Change {
    let name: String = format!("{who:024}")
        .chars()
        .map(|digit| char::from(b'a' + digit.to_digit(10).unwrap() as u8))
        .collect();
    let did = Did::parse(&format!("did:plc:{name}")).unwrap();
    Change {
        repo: Some(RepoChange {
            entry: Some(LogEntry {
                at: Time(1),
                source: None,
                what: EntryContent::Identity(IdentityParts::default()),
                frame: Some(format!("frame of {who}").into_bytes()),
            }),
            ..RepoChange::row(Subject::Did(did.clone()), Repo::new(did))
        }),
        ..Change::default()
    }
}
