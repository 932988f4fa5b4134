//! `upstream`: upstream → its row, and under a second key with that number its cursor.
//!
//! Row and cursor are separate because they have two writers: the follower of the
//! upstream decides about epochs, and only the committer knows what is durable. A cursor
//! is valid only while its numbering equals the row's, so that raising the numbering
//! clears the cursor in one write.

use gapless_core::ledger::{Cursor, Epoch, FollowReason, Upstream, UpstreamKind};

use crate::codec::{RowFault, RowReader, RowWriter, read_row};

/// Version 2 added why the upstream is followed.
const VERSION: u8 = 2;
const CURSOR_VERSION: u8 = 1;

/// A cursor, and the numbering under which its sequence number is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorRow {
    pub numbering: u32,
    pub cursor: Cursor,
}

pub fn encode(upstream: &Upstream) -> Vec<u8> {
    let Upstream {
        url,
        kind,
        host,
        epoch,
        first_cursor_since_reset,
        numbering,
        reset_at,
        unread_at,
        followed,
    } = upstream;
    let mut row = RowWriter::new(VERSION, 48 + url.len());
    row.text(url);
    row.byte(match kind {
        UpstreamKind::Pds => 0,
        UpstreamKind::Relay => 1,
        UpstreamKind::Jetstream => 2,
    });
    row.maybe(*host, |row, host| {
        row.host(host);
    });
    row.number(epoch.0);
    row.maybe(*first_cursor_since_reset, |row, seq| {
        row.number(seq);
    });
    row.number((*numbering).into()).tick(*reset_at);
    row.maybe(*unread_at, |row, tick| {
        row.tick(tick);
    });
    row.byte(match followed {
        FollowReason::No => 0,
        FollowReason::Configured => 1,
        FollowReason::Added => 2,
        FollowReason::ForTracked => 3,
        FollowReason::Discovered => 4,
        FollowReason::Narrowed => 5,
    });
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<Upstream, RowFault> {
    read_row(bytes, VERSION, |row, version| {
        Ok(Upstream {
            url: row.text()?.to_owned(),
            kind: match row.byte()? {
                0 => UpstreamKind::Pds,
                1 => UpstreamKind::Relay,
                2 => UpstreamKind::Jetstream,
                _ => return Err(RowFault::Value("kind")),
            },
            host: row.maybe(RowReader::host)?,
            epoch: Epoch(row.number()?),
            first_cursor_since_reset: row.maybe(RowReader::number)?,
            numbering: row.small()?,
            reset_at: row.tick()?,
            unread_at: row.maybe(RowReader::tick)?,
            followed: match version {
                1 => FollowReason::No,
                _ => followed(row.byte()?)?,
            },
        })
    })
}

fn followed(code: u8) -> Result<FollowReason, RowFault> {
    Ok(match code {
        0 => FollowReason::No,
        1 => FollowReason::Configured,
        2 => FollowReason::Added,
        3 => FollowReason::ForTracked,
        4 => FollowReason::Discovered,
        5 => FollowReason::Narrowed,
        _ => return Err(RowFault::Value("follow reason")),
    })
}

pub(crate) fn encode_cursor(row: &CursorRow) -> Vec<u8> {
    let mut writer = RowWriter::new(CURSOR_VERSION, 32);
    writer.number(row.numbering.into()).number(row.cursor.seq);
    writer.raw(&row.cursor.event);
    writer.finish()
}

pub(crate) fn decode_cursor(bytes: &[u8]) -> Result<CursorRow, RowFault> {
    read_row(bytes, CURSOR_VERSION, |row, _| {
        Ok(CursorRow {
            numbering: row.small()?,
            cursor: Cursor {
                seq: row.number()?,
                event: row.array()?,
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::option::of;
    use proptest::prelude::*;

    use super::super::arbitrary::{host, tick};
    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            url in "wss?://[a-z.:0-9]{1,40}",
            kind in prop::sample::select(vec![UpstreamKind::Pds, UpstreamKind::Relay, UpstreamKind::Jetstream]),
            host in of(host()),
            epoch in any::<u64>().prop_map(Epoch),
            first_cursor_since_reset in of(any::<u64>()),
            numbering in any::<u32>(),
            reset_at in tick(),
            unread_at in of(tick()),
            followed in prop::sample::select(vec![
                FollowReason::No,
                FollowReason::Configured,
                FollowReason::Added,
                FollowReason::ForTracked,
                FollowReason::Discovered,
                FollowReason::Narrowed,
            ]),
        ) {
            let upstream = Upstream {
                url,
                kind,
                host,
                epoch,
                first_cursor_since_reset,
                numbering,
                reset_at,
                unread_at,
                followed,
            };
            prop_assert_eq!(decode(&encode(&upstream)), Ok(upstream));
        }

        #[test]
        fn cursors_too(numbering in any::<u32>(), seq in any::<u64>(), event in any::<[u8; 16]>()) {
            let row = CursorRow { numbering, cursor: Cursor { seq, event } };
            prop_assert_eq!(decode_cursor(&encode_cursor(&row)), Ok(row));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (decode(&bytes), decode_cursor(&bytes));
        }
    }
}
