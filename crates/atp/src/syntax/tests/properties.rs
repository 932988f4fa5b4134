//! Tests properties of the syntax types that hold for any input.

use proptest::prelude::*;

use crate::syntax::{
    AtIdentifier, AtUri, Did, Handle, Nsid, RecordKey, Tid, did, split_path, split_path_bytes,
};

/// Characters that names are made of, so that the parsers are entered deeply,
/// and some that they are not.
const NEARLY: &str = "(did:(plc|web|key):|at://)?[a-z0-9A-Z.:%/_~#é-]{0,40}";

fn parse_with_everything(text: &str) {
    // A type that accepts a text must give it back unchanged.
    if let Ok(did) = Did::parse(text) {
        assert_eq!(did.as_str(), text);
        assert!(did::validate_syntax(text).is_ok());
        let _ = (did.method(), did.web_host());
    }
    if let Ok(handle) = Handle::parse(text) {
        assert_eq!(handle.as_str(), text.to_ascii_lowercase());
        assert_eq!(Handle::parse(handle.as_str()), Ok(handle));
    }
    if let Ok(nsid) = Nsid::parse(text) {
        assert_eq!(format!("{}.{}", nsid.authority(), nsid.name()), text);
    }
    if let Ok(key) = RecordKey::parse(text) {
        assert_eq!(key.as_str(), text);
    }
    if let Ok(uri) = AtUri::parse(text) {
        assert_eq!(uri.as_str(), text);
        assert!(uri.record_key().is_none() || uri.collection().is_some());
    }
    if let Ok(tid) = Tid::parse(text) {
        assert_eq!(tid.to_string(), text);
    }
    if let Ok((collection, key)) = split_path(text) {
        assert_eq!(format!("{collection}/{key}"), text);
        assert!(Nsid::parse(collection).is_ok() && RecordKey::parse(key).is_ok());
    }
    let _ = AtIdentifier::parse(text).map_err(|error| error.to_string());
}

proptest! {
    #[test]
    fn any_text_is_refused_or_kept(text in any::<String>()) {
        parse_with_everything(&text);
    }

    #[test]
    fn nearly_legal_text_is_refused_or_kept(text in NEARLY) {
        parse_with_everything(&text);
    }

    #[test]
    fn any_bytes_are_a_path_or_an_error(bytes in any::<Vec<u8>>()) {
        if let Err(error) = split_path_bytes(&bytes) {
            prop_assert!(error.to_string().contains("is not a record path"));
        }
    }

    #[test]
    fn joined_parts_split_again(
        collection in "[a-z][a-z0-9]{0,9}(\\.[a-z0-9]{1,9}){1,3}\\.[a-z][a-zA-Z0-9]{0,9}",
        key in "[a-zA-Z0-9_~:-]{1,30}",
    ) {
        let path = format!("{collection}/{key}");
        let parts = (collection.as_str(), key.as_str());
        prop_assert_eq!(split_path(&path), Ok(parts));
        prop_assert_eq!(split_path_bytes(path.as_bytes()), Ok(parts));
        let uri = AtUri::parse(&format!("at://did:web:example.com/{path}")).unwrap();
        prop_assert_eq!((uri.collection().unwrap(), uri.record_key().unwrap()), parts);
    }

    #[test]
    fn tids_survive_text_and_sort_like_it(a in any::<u64>(), b in any::<u64>()) {
        let (first, second) = (Tid::from_bits(a), Tid::from_bits(b));
        prop_assert_eq!(Tid::parse(&first.to_string()), Ok(first));
        prop_assert_eq!(first.cmp(&second), a.cmp(&b));
        prop_assert_eq!(first.to_string().cmp(&second.to_string()), a.cmp(&b));
    }

    #[test]
    fn tids_keep_time_and_clock(micros in 0..1u64 << 53, clock in 0..1024u16) {
        let tid = Tid::from_micros(micros, clock);
        prop_assert_eq!((tid.micros(), tid.clock_id()), (micros, clock));
    }
}
