//! Writes tree nodes without any check, and mines keys for a height.

use gapless_atp::cbor::Writer;
use gapless_atp::cid::Cid;
use gapless_atp::mst::{common_prefix, key_height};

/// An entry as it will stand in the node, right or wrong.
#[derive(Clone)]
pub(crate) struct RawEntry {
    pub suffix: Vec<u8>,
    pub prefix: u64,
    pub right: Option<Cid>,
    pub value: Cid,
}

pub(crate) fn raw_node(left: Option<Cid>, entries: &[RawEntry]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.map(2).text("e").array(entries.len());
    for entry in entries {
        writer.map(4).text("k").bytes(&entry.suffix);
        writer.text("p").uint(entry.prefix);
        writer.text("t").cid_or_null(entry.right.as_ref());
        writer.text("v").cid(&entry.value);
    }
    writer.text("l").cid_or_null(left.as_ref());
    writer.into_bytes()
}

/// A node with well-formed entries; whether its keys belong there is not asked.
pub(crate) fn node(left: Option<Cid>, entries: &[(&str, Option<Cid>)]) -> Vec<u8> {
    let mut before = "";
    let mut raw = Vec::new();
    for (key, right) in entries {
        let prefix = common_prefix(before.as_bytes(), key.as_bytes());
        raw.push(RawEntry {
            suffix: key.as_bytes()[prefix..].to_vec(),
            prefix: prefix as u64,
            right: *right,
            value: value_of(key),
        });
        before = key;
    }
    raw_node(left, &raw)
}

/// The record that tests store under a key when they do not care which.
pub(crate) fn record_of(key: &str) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.map(1).text("key").text(key);
    writer.into_bytes()
}

pub(crate) fn value_of(key: &str) -> Cid {
    Cid::dag_cbor(&record_of(key))
}

/// The first path `com.example.<name>/<number>` of exactly this height.
pub(crate) fn mine(name: &str, height: u32) -> String {
    mine_many(name, height, 1).remove(0)
}

/// The first paths of exactly this height, in rising order.
pub(crate) fn mine_many(name: &str, height: u32, count: usize) -> Vec<String> {
    let mut found = Vec::with_capacity(count);
    for number in 0u64.. {
        if found.len() == count {
            break;
        }
        let path = format!("com.example.{name}/{number:09}");
        if key_height(path.as_bytes()) == height {
            found.push(path);
        }
    }
    found
}
