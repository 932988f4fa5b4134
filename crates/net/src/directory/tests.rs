//! Tests how the version of a DID's document is taken from the directory's log.

use gapless_atp::identity::Endpoint;

use super::*;

const KEYS: [&str; 2] = [
    "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",
    "did:key:zDnaerDaTF5BXEavCrfRZEk316dpbLsfPDZ3WJ5hRTPFU2169",
];

fn key(index: usize) -> PublicKey {
    PublicKey::from_did_key(KEYS[index]).unwrap()
}

fn entry(created_micros: u64, host: &str, index: usize, nullified: bool) -> AuditEntry {
    AuditEntry {
        created_micros,
        nullified,
        said: Said::Identity {
            key: Some(key(index)),
            pds: Some(Endpoint::parse(host).unwrap()),
        },
    }
}

fn resolved(host: &str, index: usize) -> ResolvedIdentity {
    ResolvedIdentity {
        host: Some(host.to_owned()),
        key: Some(key_bytes(&key(index))),
        version: 0,
        tombstoned: false,
        handle: None,
    }
}

fn known(version: u64, host: &str, index: usize) -> KnownIdentity {
    KnownIdentity {
        version,
        host: Some(host.to_owned()),
        key: Some(key_bytes(&key(index))),
    }
}

const A: &str = "https://a.com";
const B: &str = "https://b.com";

#[test]
fn keys_go_there_and_back() {
    for index in [0, 1] {
        let bytes = key_bytes(&key(index));
        assert_eq!(usize::from(bytes.curve), index);
        assert_eq!(public_key(&bytes), Some(key(index)));
    }
    let mut bytes = key_bytes(&key(0));
    bytes.curve = 7;
    assert_eq!(public_key(&bytes), None);
    bytes = KeyBytes {
        curve: 0,
        point: [9; 33],
    };
    assert_eq!(public_key(&bytes), None);
}

#[test]
fn the_version_is_the_moment_of_the_last_word_in_force() {
    let log = AuditLog {
        entries: vec![
            entry(100, A, 0, false),
            entry(200, B, 0, false),
            entry(300, A, 1, true),
        ],
    };
    let settled = version_by_log(&log, &resolved(B, 0), &known(1, A, 0));
    assert_eq!(settled, Ok(200));
    // What was nullified was the directory's word nevertheless.
    let settled = version_by_log(&log, &resolved(B, 0), &known(1, A, 1));
    assert_eq!(settled, Ok(200));
    // With a moment of its own, what is known needs no entry: moments compare.
    let settled = version_by_log(&log, &resolved(B, 0), &known(999, B, 1));
    assert_eq!(settled, Ok(200));
}

#[test]
fn a_log_that_disagrees_settles_nothing() {
    let log = AuditLog {
        entries: vec![entry(100, A, 0, false), entry(200, B, 0, false)],
    };
    for document in [resolved(A, 0), resolved(B, 1)] {
        let settled = version_by_log(&log, &document, &known(1, A, 0));
        assert_eq!(settled, Err(ResolveError::Unsettled));
    }
    let empty = version_by_log(&AuditLog::default(), &resolved(A, 0), &known(1, B, 0));
    assert_eq!(empty, Err(ResolveError::Unsettled));
}

#[test]
fn a_directory_that_never_heard_of_what_is_known_is_behind() {
    let log = AuditLog {
        entries: vec![entry(100, A, 0, false)],
    };
    let settled = version_by_log(&log, &resolved(A, 0), &known(1, B, 1));
    assert_eq!(settled, Err(ResolveError::Stale));
    assert!(settled.unwrap_err().retry_after().is_some());
}

#[test]
fn a_tombstone_that_was_taken_back_is_newer() {
    let tombstone = AuditEntry {
        created_micros: 200,
        nullified: true,
        said: Said::Tombstone,
    };
    let log = AuditLog {
        entries: vec![entry(100, A, 0, false), tombstone, entry(300, A, 0, false)],
    };
    let gone = KnownIdentity {
        version: 1,
        ..KnownIdentity::default()
    };
    assert_eq!(version_by_log(&log, &resolved(A, 0), &gone), Ok(300));
}
