//! Tests the JSON form of records: what it consists of, and what it must not contain.
//!
//! The facts about JSON, bytes and CIDs come from the protocol's public test vectors (CC0).

mod common;

use common::values::strict_value;
use data_encoding::BASE64_NOPAD;
use gapless_atp::cbor::{Flaws, JsonError, Value, check_record, from_json, to_json};
use gapless_atp::cid::{Cid, CidError};
use proptest::prelude::*;
use serde_json::json;

/// JSON, its bytes in base64, its CID, as published.
fn published() -> [(serde_json::Value, &'static str, &'static str); 3] {
    let link = json!({ "$link": "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a" });
    let bytes = json!({ "$bytes": "nFERjvLLiw9qm45JrqH9QTzyC2Lu1Xb4ne6+sBrCzI0" });
    let more = json!({ "$bytes": "iE+sPoHobU9tSIqGI+309LLCcWQIRmEXwxcoDt19tas" });
    [
        (
            json!({
                "string": "abc",
                "unicode": "a~öñ©⽘☎𓋓😀👨‍👩‍👧‍👧",
                "integer": 123,
                "bool": true,
                "null": null,
                "array": ["abc", "def", "ghi"],
                "object": {
                    "string": "abc", "number": 123, "bool": true, "arr": ["abc", "def", "ghi"]
                },
            }),
            "p2Rib29s9WRudWxs9mVhcnJheYNjYWJjY2RlZmNnaGlmb2JqZWN0pGNhcnKDY2FiY2NkZWZjZ2hpZGJvb2z1\
             Zm51bWJlchh7ZnN0cmluZ2NhYmNmc3RyaW5nY2FiY2dpbnRlZ2VyGHtndW5pY29kZXgvYX7DtsOxwqnivZji\
             mI7wk4uT8J+YgPCfkajigI3wn5Gp4oCN8J+Rp+KAjfCfkac",
            "bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabwq",
        ),
        (
            json!({
                "a": link,
                "b": bytes,
                "c": {
                    "$type": "blob",
                    "ref": {
                        "$link": "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity"
                    },
                    "mimeType": "image/jpeg",
                    "size": 10000,
                },
            }),
            "o2Fh2CpYJQABcRIgZQYqWloA/BbXPGlEI3zLwVscSnI0SJM2iR0JF0GiOdBhYlggnFERjvLLiw9qm45JrqH9\
             QTzyC2Lu1Xb4ne6+sBrCzI1hY6RjcmVm2CpYJQABVRIgQljP/3j2E2l2l1Y/kmyR5dNXTS6iWuftktbr/COj\
             iJ5kc2l6ZRknEGUkdHlwZWRibG9iaG1pbWVUeXBlamltYWdlL2pwZWc",
            "bafyreihldkhcwijkde7gx4rpkkuw7pl6lbyu5gieunyc7ihactn5bkd2nm",
        ),
        (
            json!({ "a": { "b": [{ "d": [link, link], "e": [bytes, more] }] } }),
            "oWFhoWFigaJhZILYKlglAAFxEiBlBipaWgD8Ftc8aUQjfMvBWxxKcjRIkzaJHQkXQaI50NgqWCUAAXESIGUG\
             KlpaAPwW1zxpRCN8y8FbHEpyNEiTNokdCRdBojnQYWWCWCCcURGO8suLD2qbjkmuof1BPPILYu7Vdvid7r6w\
             GsLMjVggiE+sPoHobU9tSIqGI+309LLCcWQIRmEXwxcoDt19tas",
            "bafyreid3imdulnhgeytpf6uk7zahjvrsqlofkmm5b5ub2maw4kqus6jp4i",
        ),
    ]
}

#[test]
fn published_records_have_their_bytes_and_cids() {
    for (json, base64, cid) in published() {
        let bytes = BASE64_NOPAD.decode(base64.as_bytes()).expect("base64");
        assert_eq!(Cid::dag_cbor(&bytes).to_string(), cid);
        let value = from_json(&json).expect("valid JSON");
        assert_eq!(value.encode(), Some(bytes.clone()));
        let read = Value::decode_strict(&bytes).expect("strict bytes");
        assert_eq!(to_json(&read), json);
        assert_eq!(check_record(&bytes), Ok(Flaws::NONE));
    }
}

#[test]
fn valid_json_is_read() {
    let record = |a| json!({ "rcrd": { "$type": "com.example.blah", "a": a, "b": "blah" } });
    for (given, shown) in [
        (record(json!(123)), None),
        (record(json!(123.0)), Some(record(json!(123)))),
        (record(json!(-0.0)), Some(record(json!(0)))),
        (record(json!([])), None),
        (record(json!({})), None),
        (json!({ "arr": [1, 2, null] }), None),
        (
            json!({ "arr": [[1, 2, 3], [4, 5, 6]], "arr2": [null, null] }),
            None,
        ),
        (json!({ "n": [i64::MIN, i64::MAX] }), None),
        (json!({ "$bytes ": "" }), None),
        // Padding is optional.
        (
            json!({ "b": { "$bytes": "AQ==" } }),
            Some(json!({ "b": { "$bytes": "AQ" } })),
        ),
    ] {
        let value = from_json(&given).expect("valid");
        assert_eq!(to_json(&value), shown.unwrap_or(given));
        let bytes = value.encode().expect("strict");
        assert_eq!(check_record(&bytes), Ok(Flaws::NONE));
    }
}

#[test]
fn invalid_json_is_refused() {
    let link = "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity";
    let blob = |size: serde_json::Value| {
        json!({ "blb": {
            "$type": "blob", "ref": { "$link": link }, "mimeType": "image/jpeg", "size": size
        } })
    };
    assert!(from_json(&blob(json!(0))).is_ok());
    let typed = |name: serde_json::Value| json!({ "rcrd": { "$type": name, "a": 123 } });
    for (json, error) in [
        (json!("blah"), JsonError::NotAnObject),
        (json!([{}]), JsonError::NotAnObject),
        (json!({ "$link": link }), JsonError::NotAnObject),
        (json!({ "a": 123.456 }), JsonError::Float),
        (json!({ "a": 1e300 }), JsonError::Float),
        (json!({ "a": 9_007_199_254_740_992.0 }), JsonError::Float),
        (json!({ "a": i64::MAX as u64 + 1 }), JsonError::IntegerRange),
        (typed(json!(null)), JsonError::Type),
        (typed(json!(123)), JsonError::Type),
        (typed(json!("")), JsonError::Type),
        (blob(json!("10000")), JsonError::Blob),
        (blob(json!(-1)), JsonError::Blob),
        (
            json!({ "blb": { "$type": "blob", "mimeType": "image/jpeg", "size": 10000 } }),
            JsonError::Blob,
        ),
        (json!({ "b": { "$bytes": [1, 2, 3] } }), JsonError::Bytes),
        (
            json!({ "b": { "$bytes": "AQ", "other": "blah" } }),
            JsonError::Bytes,
        ),
        (json!({ "b": { "$bytes": "A" } }), JsonError::Bytes),
        (json!({ "b": { "$bytes": "_w" } }), JsonError::Bytes),
        (json!({ "l": { "$link": 1234 } }), JsonError::LinkShape),
        (
            json!({ "l": { "$link": "." } }),
            JsonError::Link(CidError::Text),
        ),
        (
            json!({ "l": { "$link": link, "other": "blah" } }),
            JsonError::LinkShape,
        ),
    ] {
        assert_eq!(from_json(&json), Err(error), "{json}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn records_survive_their_json_form(value in strict_value()) {
        let value = Value::Map(vec![("key".into(), value)]);
        let json = to_json(&value);
        let bytes = value.encode();
        prop_assert_eq!(from_json(&json).map(|value| value.encode()), Ok(bytes));
        let text = serde_json::to_string(&json).expect("JSON");
        prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&text).expect("JSON"), &json);
    }
}
