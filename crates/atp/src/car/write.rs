//! Writes CAR v1.

use crate::cbor::Writer;
use crate::cid::{CID_LEN, Cid};

/// Appends the header. `roots` may be empty, as in the response of `getBlocks`.
pub fn write_header(out: &mut Vec<u8>, roots: &[Cid]) {
    let mut writer = Writer::new();
    writer.map(2).text("roots").array(roots.len());
    for root in roots {
        writer.cid(root);
    }
    writer.text("version").uint(1);
    let header = writer.into_bytes();
    write_varint(out, header.len() as u64);
    out.extend_from_slice(&header);
}

/// Appends a block. The caller vouches that the block hashes to `cid`.
pub fn write_block(out: &mut Vec<u8>, cid: &Cid, data: &[u8]) {
    write_varint(out, (CID_LEN + data.len()) as u64);
    out.extend_from_slice(cid.as_bytes());
    out.extend_from_slice(data);
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
