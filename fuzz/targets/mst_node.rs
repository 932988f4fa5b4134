#![no_main]
//! One tree node from any bytes: it is accepted only if its keys encode to the same
//! bytes.

use gapless_atp::cbor::Writer;
use gapless_atp::mst::{Tree, root};
use gapless_fuzz::{Store, value, walked};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // The same bytes as entries: a prefix length, a suffix length, the suffix.
    let mut entries = Vec::new();
    let mut rest = bytes;
    while let [prefix, len, after @ ..] = rest {
        let (suffix, after) = after.split_at(after.len().min(usize::from(*len)));
        entries.push((*prefix, suffix));
        rest = after;
    }
    let mut writer = Writer::new();
    writer.map(2).text("e").array(entries.len());
    for (prefix, suffix) in entries {
        writer.map(4).text("k").bytes(suffix);
        writer.text("p").uint(prefix.into());
        writer.text("t").null().text("v").cid(&value(prefix));
    }
    writer.text("l").null();
    check(&writer.into_bytes());
});

fn check(block: &[u8]) {
    let mut store = Store::default();
    let cid = store.put(block.to_vec());
    let mut tree = Tree::open(cid, &store);
    let got = tree.get(b"com.example.a/1");
    if let Ok(keys) = walked(cid, &store) {
        let pairs = keys.iter().map(|(key, value)| (key.as_slice(), *value));
        assert_eq!(root(pairs), Ok(cid));
        assert_eq!(got, Ok(keys.get(&b"com.example.a/1"[..]).copied()));
    }
}
