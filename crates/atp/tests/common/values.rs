//! Proptest strategies for values, and for bytes that are almost values.

use std::collections::BTreeMap;

use gapless_atp::cbor::Value;
use gapless_atp::cid::Cid;
use proptest::prelude::*;

fn integer() -> impl Strategy<Value = i64> {
    const EDGES: [i64; 10] = [
        0,
        23,
        24,
        0xff,
        0x100,
        0xffff,
        0x1_0000,
        0xffff_ffff,
        0x1_0000_0000,
        i64::MAX,
    ];
    let edge = proptest::sample::select(&EDGES[..]);
    (prop_oneof![edge, any::<i64>(), 0..1_000i64], any::<bool>())
        .prop_map(|(value, negative)| if negative { !value } else { value })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,3}", "\\PC{0,30}"]
}

/// Any value of the strict form; maps in canonical order.
pub(crate) fn strict_value() -> impl Strategy<Value = Value<'static>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..40);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        integer().prop_map(|value| Value::Int(value.into())),
        bytes.prop_map(|bytes| Value::Bytes(bytes.into())),
        text().prop_map(|text| Value::Text(text.into())),
        any::<u64>().prop_map(|seed| Value::Link(Cid::dag_cbor(&seed.to_be_bytes()))),
        any::<u64>().prop_map(|seed| Value::Link(Cid::raw(&seed.to_be_bytes()))),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let items = proptest::collection::vec(inner.clone(), 0..6);
        let pairs = proptest::collection::btree_map(text(), inner, 0..6);
        prop_oneof![items.prop_map(Value::Array), pairs.prop_map(in_order)]
    })
}

fn in_order(pairs: BTreeMap<String, Value<'static>>) -> Value<'static> {
    let mut pairs: Vec<_> = pairs
        .into_iter()
        .map(|(key, value)| (key.into(), value))
        .collect();
    pairs
        .sort_by(|(a, _): &(std::borrow::Cow<'_, str>, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
    Value::Map(pairs)
}

/// A value's bytes with a few of them changed, cut out or put in, and bytes
/// that begin like the heads of values.
pub(crate) fn bytes_like_cbor() -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<u16>(), any::<u8>(), 0..4u8), 0..4);
    let mutated = (strict_value(), changes).prop_map(|(value, changes)| {
        let mut bytes = value.encode().unwrap_or_default();
        for (at, byte, how) in changes {
            let at = usize::from(at) % (bytes.len() + 1);
            match how {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 if at < bytes.len() => bytes[at] ^= 1 << (byte % 8),
                3 if at < bytes.len() => bytes[at] = byte,
                _ => {}
            }
        }
        bytes
    });
    let heads = proptest::sample::select(
        &[
            0x00, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x20, 0x38, 0x3b, 0x40, 0x41, 0x58, 0x60, 0x61,
            0x62, 0x78, 0x80, 0x81, 0x82, 0x9f, 0xa0, 0xa1, 0xa2, 0xbf, 0xc2, 0xd8, 0x2a, 0xf4,
            0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xff,
        ][..],
    );
    let byte = prop_oneof![3 => heads, 1 => any::<u8>()];
    prop_oneof![mutated, proptest::collection::vec(byte, 0..40)]
}
