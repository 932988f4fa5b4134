//! Tests the parser of PLC audit logs: which keys a log shows as valid at some time, in which
//! order, and which answers are not logs.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PLC, did, key};
use crate::crypto::{Curve, PublicKey};
use crate::identity::{AuditLog, AuditLogError, Endpoint, KeyHistory, Said};
use crate::limits::{AUDIT_LOG_BYTES, AUDIT_LOG_ENTRIES};
use crate::syntax::Excerpt;

fn entry(operation: Value, nullified: bool) -> Value {
    json!({
        "did": PLC,
        "operation": operation,
        "cid": "bafyreigp6shzy6dlcxuowwoxz7u5nemdrkad2my5zwzpwilcnhih7bw6zm",
        "nullified": nullified,
        "createdAt": "2024-05-01T12:00:00.000Z",
    })
}

fn rotation(key: &PublicKey) -> Value {
    json!({
        "type": "plc_operation",
        "rotationKeys": [],
        "verificationMethods": {"atproto": key.to_did_key(), "other": "did:key:zNot"},
        "alsoKnownAs": [],
        "services": {},
        "prev": null,
        "sig": "x",
    })
}

fn history(log: &[Value]) -> Result<KeyHistory, AuditLogError> {
    KeyHistory::parse(json!(log).to_string().as_bytes(), &did())
}

#[test]
fn keys_come_newest_first_and_nullified_ones_not_at_all() {
    let keys = [1, 2, 3, 4].map(|seed| key(Curve::K256, seed));
    let newest = key(Curve::P256, 5);
    let create = json!({
        "type": "create",
        "signingKey": keys[0].to_did_key(),
        "recoveryKey": keys[3].to_did_key(),
        "handle": "alice.example",
        "service": "https://pds.example",
        "prev": null,
        "sig": "x",
    });
    let log = [
        entry(create, false),
        entry(rotation(&keys[1]), false),
        entry(rotation(&keys[2]), true),
        entry(rotation(&keys[1]), false),
        entry(rotation(&newest), false),
    ];
    let found = history(&log).unwrap();
    assert_eq!(found.keys, [newest, keys[1].clone(), keys[0].clone()]);
    assert_eq!(found.unreadable, 0);
    assert_eq!(history(&[]), Ok(KeyHistory::default()));
}

#[test]
fn a_key_that_came_back_is_the_newest_again() {
    let (one, two) = (key(Curve::K256, 1), key(Curve::K256, 2));
    let log = [&one, &two, &one].map(|key| entry(rotation(key), false));
    assert_eq!(history(&log).unwrap().keys, [one, two]);
}

#[test]
fn operations_without_a_key_and_unreadable_ones() {
    let good = key(Curve::K256, 1);
    let ed25519 = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
    let methods = |methods: Value| json!({"type": "plc_operation", "verificationMethods": methods});
    let log = [
        entry(rotation(&good), false),
        entry(methods(json!({})), false),
        entry(json!({"type": "plc_tombstone", "prev": "x"}), false),
        entry(methods(json!({"atproto": ed25519})), false),
        entry(methods(json!({"atproto": 5})), false),
        entry(json!({"type": "of the future"}), false),
        entry(json!({}), false),
        entry(json!({"type": "of the future"}), true),
    ];
    let found = history(&log).unwrap();
    assert_eq!((found.keys, found.unreadable), (vec![good], 4));
}

#[test]
fn an_answer_that_is_no_log_of_this_did() {
    let good = entry(rotation(&key(Curve::K256, 1)), false);
    for field in ["did", "operation", "nullified"] {
        for value in [Value::Null, json!(1), json!([])] {
            let mut broken = good.clone();
            broken[field] = value;
            let refused = history(&[good.clone(), broken]);
            assert_eq!(refused, Err(AuditLogError::Entry(did(), 1)), "{field}");
        }
    }
    let mut foreign = good.clone();
    foreign["did"] = json!("did:web:a.example");
    let other = AuditLogError::OtherDid(did(), 0, Excerpt::of("did:web:a.example"));
    assert_eq!(history(&[foreign, good]), Err(other));
    let object = KeyHistory::parse(b"{}", &did());
    assert_eq!(object, Err(AuditLogError::NotAnArray(did())));
    let error = KeyHistory::parse(b"not found", &did()).unwrap_err();
    assert!(matches!(error, AuditLogError::Json(..)), "{error}");
    assert!(error.to_string().contains(PLC));
}

fn log(entries: &[Value]) -> Result<AuditLog, AuditLogError> {
    AuditLog::parse(json!(entries).to_string().as_bytes(), &did())
}

#[test]
fn a_log_tells_what_was_said_and_when() {
    let keys = [1, 2].map(|seed| key(Curve::K256, seed));
    let legacy = |service: &str| json!({"type": "create", "signingKey": keys[0].to_did_key(), "service": service});
    let service = |kind: &str, endpoint: &str| {
        let mut operation = rotation(&keys[1]);
        operation["services"] = json!({"atproto_pds": {"type": kind, "endpoint": endpoint}});
        operation
    };
    let pds = |text: &str| Endpoint::parse(text).ok();
    let identity = |at: usize, pds| Said::Identity {
        key: Some(keys[at].clone()),
        pds,
    };
    let cases = [
        (legacy("https://a.com"), identity(0, pds("https://a.com"))),
        (legacy("a.com"), identity(0, pds("https://a.com"))),
        (
            service("AtprotoPersonalDataServer", "https://B.com/"),
            identity(1, pds("https://b.com")),
        ),
        (service("Other", "https://b.com"), identity(1, None)),
        (service("AtprotoPersonalDataServer", "b"), identity(1, None)),
        (rotation(&keys[1]), identity(1, None)),
        (
            json!({"type": "plc_operation"}),
            Said::Identity {
                key: None,
                pds: None,
            },
        ),
        (json!({"type": "plc_tombstone"}), Said::Tombstone),
        (json!({"type": "of the future"}), Said::Unknown),
    ];
    for (operation, said) in cases {
        let read = log(&[entry(operation.clone(), false)]).unwrap();
        assert_eq!(read.entries[0].said, said, "{operation}");
        assert_eq!(read.entries[0].created_micros, 1_714_564_800_000_000);
    }
}

#[test]
fn the_last_entry_that_was_not_nullified_counts() {
    let keys = [1, 2, 3].map(|seed| key(Curve::K256, seed));
    let mut entries = [false, false, true].map(|nullified| entry(json!({}), nullified));
    for (entry, key) in entries.iter_mut().zip(&keys) {
        entry["operation"] = rotation(key);
    }
    let read = log(&entries).unwrap();
    assert_eq!(read.entries.len(), 3);
    let Some(Said::Identity { key, .. }) = read.in_force().map(|entry| &entry.said) else {
        panic!("{read:?}");
    };
    assert_eq!(key.as_ref(), Some(&keys[1]));
    assert_eq!(log(&[]).unwrap().in_force(), None);
}

#[test]
fn a_log_is_bounded_in_bytes_and_in_entries() {
    let short = json!({"did": PLC, "nullified": false, "operation": {}, "createdAt": "2024-05-01T12:00:00Z"});
    let whole = log(&vec![short.clone(); AUDIT_LOG_ENTRIES]).unwrap();
    assert_eq!(whole.entries.len(), AUDIT_LOG_ENTRIES);
    let many = vec![short; AUDIT_LOG_ENTRIES + 1];
    let bound = format!("more than {AUDIT_LOG_ENTRIES} items");
    let error = log(&many).unwrap_err();
    assert!(error.to_string().contains(&bound), "{error}");
    let error = history(&many).unwrap_err();
    assert!(error.to_string().contains(&bound), "{error}");
    let padded = |len: usize| format!("[]{}", " ".repeat(len - 2));
    assert!(AuditLog::parse(padded(AUDIT_LOG_BYTES).as_bytes(), &did()).is_ok());
    let error = AuditLog::parse(padded(AUDIT_LOG_BYTES + 1).as_bytes(), &did());
    let error = error.unwrap_err().to_string();
    assert!(error.contains(&AUDIT_LOG_BYTES.to_string()), "{error}");
}

#[test]
fn an_entry_without_a_moment_is_no_entry() {
    for moment in [json!("yesterday"), json!(5), Value::Null] {
        let mut entry = entry(rotation(&key(Curve::K256, 1)), false);
        entry["createdAt"] = moment;
        assert_eq!(log(&[entry]), Err(AuditLogError::Moment(did(), 0)));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_log_or_an_error(bytes in any::<Vec<u8>>(), byte in any::<u8>(), at in any::<prop::sample::Index>()) {
        let _ = KeyHistory::parse(&bytes, &did());
        let log = json!([entry(rotation(&key(Curve::K256, 1)), false)]);
        let mut spoiled = log.to_string().into_bytes();
        let at = at.index(spoiled.len());
        spoiled[at] = byte;
        let _ = KeyHistory::parse(&spoiled, &did());
        let _ = AuditLog::parse(&spoiled, &did());
        prop_assert!(KeyHistory::parse(&spoiled[..at], &did()).is_err());
    }
}
