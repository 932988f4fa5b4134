#![no_main]
//! The JSON form of records: an accepted record survives encoding to bytes and decoding.

use gapless_atp::cbor::{Flaws, Value, check_record, from_json, to_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(json) = serde_json::from_slice(bytes)
        && let Ok(value) = from_json(&json)
    {
        round_trip(&value);
    }
    if let Ok(value) = Value::decode_strict(bytes) {
        // JSON cannot tell a link from a map that looks like one, but the result must be
        // stable.
        if let Ok(value) = from_json(&to_json(&value)) {
            round_trip(&value);
        }
    }
});

fn round_trip(value: &Value<'_>) {
    let bytes = value.encode().expect("JSON without flaws");
    assert_eq!(check_record(&bytes), Ok(Flaws::NONE));
    let read = Value::decode_strict(&bytes).expect("strict bytes");
    let again = from_json(&to_json(&read)).expect("our own JSON");
    assert_eq!(again.encode(), Some(bytes));
}
