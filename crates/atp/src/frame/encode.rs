//! Encodes events to frames in canonical form.

use super::decode::{AccountEvent, CommitEvent, IdentityEvent, RawOp, SyncEvent};
use crate::cbor::Writer;
use crate::cid::Cid;

fn begin(kind: &str) -> Writer {
    let mut writer = Writer::new();
    writer.map(2).text("t").text(kind).text("op").uint(1);
    writer
}

/// Encodes a `#commit`. `rebase` and `blobs` are written because the protocol still
/// requires them. `prevData` is omitted if the event has none.
pub fn encode_commit(event: &CommitEvent<'_>) -> Vec<u8> {
    let mut writer = begin("#commit");
    writer.map(11 + usize::from(event.prev_data.is_some()));
    writer.text("ops").array(event.ops.len());
    for op in &event.ops {
        encode_op(&mut writer, op);
    }
    writer.text("rev").text(event.rev);
    writer.text("seq").uint(event.seq);
    writer.text("repo").text(event.repo);
    writer.text("time").text(event.time);
    writer.text("blobs").array(0);
    writer.text("since");
    match event.since {
        Some(since) => writer.text(since),
        None => writer.null(),
    };
    writer.text("blocks").bytes(event.blocks);
    writer.text("commit").cid_or_null(event.commit.as_ref());
    writer.text("rebase").bool(false);
    writer.text("tooBig").bool(event.too_big);
    if let Some(prev_data) = &event.prev_data {
        writer.text("prevData").cid(prev_data);
    }
    writer.into_bytes()
}

fn encode_op(writer: &mut Writer, op: &RawOp<'_>) {
    writer.map(3 + usize::from(op.prev.is_some()));
    writer.text("cid").cid_or_null(op.cid.as_ref());
    writer.text("path").text(op.path);
    if let Some(prev) = &op.prev {
        writer.text("prev").cid(prev);
    }
    writer.text("action").text(op.action.as_str());
}

/// Encodes a `#sync`.
pub fn encode_sync(event: &SyncEvent<'_>) -> Vec<u8> {
    let mut writer = begin("#sync");
    writer.map(5);
    writer.text("did").text(event.did);
    writer.text("rev").text(event.rev);
    writer.text("seq").uint(event.seq);
    writer.text("time").text(event.time);
    writer.text("blocks").bytes(event.blocks);
    writer.into_bytes()
}

/// Encodes an `#identity`.
pub fn encode_identity(event: &IdentityEvent<'_>) -> Vec<u8> {
    let mut writer = begin("#identity");
    writer.map(3 + usize::from(event.handle.is_some()));
    writer.text("did").text(event.did);
    writer.text("seq").uint(event.seq);
    writer.text("time").text(event.time);
    if let Some(handle) = event.handle {
        writer.text("handle").text(handle);
    }
    writer.into_bytes()
}

/// Encodes an `#account`.
pub fn encode_account(event: &AccountEvent<'_>) -> Vec<u8> {
    let mut writer = begin("#account");
    writer.map(4 + usize::from(event.status.is_some()));
    writer.text("did").text(event.did);
    writer.text("seq").uint(event.seq);
    writer.text("time").text(event.time);
    writer.text("active").bool(event.active);
    if let Some(status) = event.status {
        writer.text("status").text(status);
    }
    writer.into_bytes()
}

/// Encodes an `#info`.
pub fn encode_info(name: &str, message: Option<&str>) -> Vec<u8> {
    let mut writer = begin("#info");
    writer.map(1 + usize::from(message.is_some()));
    writer.text("name").text(name);
    if let Some(message) = message {
        writer.text("message").text(message);
    }
    writer.into_bytes()
}

/// Encodes an error frame.
pub fn encode_error(error: &str, message: Option<&str>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.map(1).text("op").int(-1);
    writer.map(1 + usize::from(message.is_some()));
    writer.text("error").text(error);
    if let Some(message) = message {
        writer.text("message").text(message);
    }
    writer.into_bytes()
}

/// The CAR of a `#sync`, which contains only the commit block.
pub fn sync_blocks(commit: &Cid, block: &[u8]) -> Vec<u8> {
    let mut car = Vec::new();
    crate::car::write_header(&mut car, &[*commit]);
    crate::car::write_block(&mut car, commit, block);
    car
}
