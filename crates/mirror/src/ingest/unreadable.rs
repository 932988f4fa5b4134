//! Keeps messages that cannot be read as dead letters for an operator, each whole or its first
//! [`DEAD_PAYLOAD_BYTES`].

use bytes::Bytes;
use gapless_store::change::{Change, DeadChange};
use gapless_store::cursor::EventPosition;
use gapless_store::error::StoreError;
use gapless_store::table::dead::{DeadClass, DeadLetter, Resolution};
use gapless_store::table::log::SourceEvent;

use crate::desk::DEAD_PAYLOAD_BYTES;
use crate::ingest::follow::{ConnectionEnd, Follower};
use crate::store_io::write;

impl Follower {
    /// Keeps a message as a dead letter and moves the cursor past it. Without room on the
    /// disk the stream waits.
    pub(crate) async fn keep_unreadable(
        &self,
        bytes: &Bytes,
        seq: Option<u64>,
        error: String,
        done: Option<EventPosition>,
    ) -> Result<(), ConnectionEnd> {
        let now = self.services.clock.now();
        let keep = self.desks.totals().take_dead_letter();
        if !keep && done.is_none() {
            self.services.metrics.dead_letters.inc();
            return Ok(());
        }
        let letter = DeadLetter {
            class: DeadClass::Unreadable,
            source: seq.map(|seq| SourceEvent {
                upstream: self.id,
                seq,
            }),
            repo: None,
            error,
            payload: bytes[..bytes.len().min(DEAD_PAYLOAD_BYTES)].to_vec(),
            attempts: 0,
            first_seen: now.time,
            resolution: Resolution::Open,
        };
        let change = Change {
            tick: now.tick,
            dead: keep.then_some(DeadChange::New(letter)),
            done,
            ..Change::default()
        };
        loop {
            match write(&self.services.store, change.clone()).await {
                Ok(_) => {
                    self.services.metrics.dead_letters.inc();
                    return Ok(());
                }
                // The stream waits: nothing that was read is skipped.
                Err(StoreError::Full(full)) => {
                    let waited = self.services.upstreams.wait_for_room(&full).await;
                    waited.map_err(ConnectionEnd::Fatal)?;
                }
                Err(error) => return Err(ConnectionEnd::Fatal(error)),
            }
        }
    }
}
