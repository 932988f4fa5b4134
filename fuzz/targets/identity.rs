#![no_main]
//! DID documents, audit logs and addresses of any bytes.

use gapless_atp::identity::{DidDocument, Endpoint, KeyHistory};
use gapless_atp::syntax::Did;
use libfuzzer_sys::fuzz_target;

const DID: &str = "did:plc:abcdefghijklmnopqrstuvwx";

fuzz_target!(|bytes: &[u8]| {
    let did = Did::parse(DID).expect("a DID");
    check_document(bytes, &did);
    // The same bytes as the parts of a complete document.
    if let Ok(text) = std::str::from_utf8(bytes) {
        let mut parts = text.splitn(4, '\n');
        let mut next = || serde_json::Value::from(parts.next().unwrap_or(""));
        let document = serde_json::json!({
            "id": DID,
            "alsoKnownAs": [next()],
            "verificationMethod": [{
                "id": "#atproto", "type": "Multikey", "controller": DID,
                "publicKeyMultibase": next(),
            }],
            "service": [{
                "id": "#atproto_pds", "type": "AtprotoPersonalDataServer",
                "serviceEndpoint": next(),
            }],
        });
        let document = document.to_string();
        let read = DidDocument::parse(document.as_bytes(), &did).expect("a document");
        assert!(read.pds.is_some() && read.signing_key.is_some());
        check_document(document.as_bytes(), &did);
        check_endpoint(text);
    }
    if let Ok(history) = KeyHistory::parse(bytes, &did) {
        for (at, key) in history.keys.iter().enumerate() {
            assert!(!history.keys[..at].contains(key));
        }
    }
});

fn check_document(bytes: &[u8], did: &Did) {
    let Ok(document) = DidDocument::parse(bytes, did) else {
        return;
    };
    assert_eq!(document.did, *did);
    assert_eq!(
        document.usable_key().is_some(),
        matches!(document.signing_key, Some(Ok(_)))
    );
    if let Some(pds) = document.usable_pds() {
        check_endpoint(pds.as_str());
    }
}

/// Each server has one text form, and parsing it again changes nothing.
fn check_endpoint(text: &str) {
    let Ok(endpoint) = Endpoint::parse(text) else {
        return;
    };
    let again = Endpoint::parse(endpoint.as_str());
    assert_eq!(again.as_ref(), Ok(&endpoint));
    let scheme = if endpoint.is_https() { "https" } else { "http" };
    assert_eq!(
        format!("{scheme}://{}", endpoint.authority()),
        endpoint.as_str()
    );
    assert!(
        !endpoint
            .authority()
            .contains(['/', '?', '#', '@', '\\', ' '])
    );
}
