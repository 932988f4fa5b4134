#![no_main]
//! Names: an accepted name is displayed as it was given (a handle in lower case) and
//! keeps its invariants.

use gapless_atp::cid::Cid;
use gapless_atp::limits;
use gapless_atp::syntax::{
    AtIdentifier, AtUri, Did, Handle, Nsid, RecordKey, Tid, did, split_path, split_path_bytes,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = split_path_bytes(bytes);
    if let Ok(cid) = Cid::from_bytes(bytes) {
        assert_eq!(cid.as_bytes(), bytes);
        assert_eq!(cid.to_string().parse(), Ok(cid));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(did) = Did::parse(text) {
        assert_eq!(did.as_str(), text);
        assert!(text.len() <= limits::DID_BYTES && did::validate_syntax(text).is_ok());
        assert!(AtIdentifier::parse(text).is_ok());
    }
    if let Ok(handle) = Handle::parse(text) {
        assert!(handle.as_str().eq_ignore_ascii_case(text));
        assert_eq!(Handle::parse(handle.as_str()), Ok(handle));
        assert!(AtIdentifier::parse(text).is_ok() && Did::parse(text).is_err());
    }
    let nsid = Nsid::parse(text);
    if let Ok(nsid) = &nsid {
        assert!(nsid.as_str().len() == text.len() && text.len() <= limits::NSID_BYTES);
    }
    if let Ok(key) = RecordKey::parse(text) {
        assert_eq!(key.as_str(), text);
        assert!(!text.is_empty() && text.len() <= limits::RECORD_KEY_BYTES);
    }
    if let Ok((collection, key)) = split_path(text) {
        assert_eq!(format!("{collection}/{key}"), text);
        assert!(Nsid::parse(collection).is_ok() && RecordKey::parse(key).is_ok());
        assert!(text.len() <= limits::KEY_BYTES);
    }
    if let Ok(tid) = Tid::parse(text) {
        assert_eq!(tid.to_string(), text);
        assert_eq!(Tid::from_bits(tid.to_bits()), tid);
    }
    if let Ok(cid) = text.parse::<Cid>() {
        assert_eq!(cid.to_string(), text);
    }
    if let Ok(uri) = AtUri::parse(text) {
        let mut parts = format!("at://{}", uri.authority());
        for part in [uri.collection(), uri.record_key()].into_iter().flatten() {
            parts.push('/');
            parts.push_str(part);
        }
        assert_eq!(parts, text);
        assert!(did::validate_syntax(uri.authority()).is_ok() || uri.handle().is_some());
    }
});
