//! Tests the parser of DID documents: which entries count, and what is reported of entries that
//! do not.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PLC, did, key};
use crate::crypto::{Curve, KeyError, PublicKey};
use crate::identity::{DidDocument, DocumentError, EndpointFault, JsonError, MethodError};
use crate::limits::{DID_DOCUMENT_BYTES, DID_DOCUMENT_ENTRIES};
use crate::syntax::{Did, Excerpt};

fn parse(document: &Value) -> DidDocument {
    DidDocument::parse(document.to_string().as_bytes(), &did()).unwrap()
}

fn multikey(id: &str, key: &PublicKey) -> Value {
    let multibase = key.to_multikey();
    json!({"id": id, "type": "Multikey", "controller": PLC, "publicKeyMultibase": multibase})
}

fn service(id: &str, endpoint: &str) -> Value {
    json!({"id": id, "type": "AtprotoPersonalDataServer", "serviceEndpoint": endpoint})
}

fn with_methods(methods: &[Value]) -> Option<Result<PublicKey, MethodError>> {
    parse(&json!({"id": PLC, "verificationMethod": methods})).signing_key
}

#[test]
fn a_document_of_today() {
    let signing = key(Curve::K256, 1);
    let document = parse(&json!({
        "@context": ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"],
        "id": PLC,
        "alsoKnownAs": ["at://Alice.Example.com"],
        "verificationMethod": [multikey(&format!("{PLC}#atproto"), &signing)],
        "service": [service("#atproto_pds", "https://PDS.example.com/")],
    }));
    assert_eq!(document.did, did());
    assert_eq!(
        document.handle.as_ref().unwrap().as_str(),
        "alice.example.com"
    );
    assert_eq!(document.usable_key(), Some(&signing));
    assert_eq!(
        document.usable_pds().unwrap().as_str(),
        "https://pds.example.com"
    );
}

#[test]
fn a_document_that_says_nothing_is_no_error() {
    for document in [
        json!({"id": PLC}),
        json!({"id": PLC, "verificationMethod": [], "service": [], "alsoKnownAs": []}),
        json!({"id": PLC, "verificationMethod": {}, "service": "x", "alsoKnownAs": null}),
        json!({"id": PLC, "verificationMethod": [1, {}], "service": [[]], "alsoKnownAs": [2]}),
    ] {
        let document = parse(&document);
        assert_eq!(document.signing_key, None);
        assert_eq!(document.pds, None);
        assert_eq!(document.handle, None);
        assert_eq!((document.usable_key(), document.usable_pds()), (None, None));
    }
}

#[test]
fn a_key_is_found_by_its_fragment() {
    for curve in [Curve::K256, Curve::P256] {
        let signing = key(curve, 2);
        for id in ["#atproto".to_owned(), format!("{PLC}#atproto")] {
            let found = with_methods(&[multikey(&id, &signing)]);
            assert_eq!(found, Some(Ok(signing.clone())), "{id}");
        }
        for id in [
            "atproto",
            "#atproto_label",
            "#Atproto",
            "#",
            "",
            PLC,
            "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa#atproto",
            "did:plc:7iza6de2dwap2sbkpav7c6c6x#atproto",
            "did:plc:7iza6de2dwap2sbkpav7c6c6##atproto",
        ] {
            assert_eq!(with_methods(&[multikey(id, &signing)]), None, "{id}");
        }
    }
}

#[test]
fn the_first_usable_key_counts() {
    let (one, two) = (key(Curve::K256, 1), key(Curve::P256, 2));
    let label = multikey("#atproto_label", &key(Curve::K256, 3));
    let methods = [
        label,
        multikey("#atproto", &one),
        multikey("#atproto", &two),
    ];
    assert_eq!(with_methods(&methods), Some(Ok(one.clone())));
    let mut foreign = multikey("#atproto", &one);
    foreign["controller"] = json!("did:web:example.com");
    let found = with_methods(&[foreign.clone(), multikey("#atproto", &two)]);
    assert_eq!(found, Some(Ok(two)));
    assert_eq!(with_methods(&[foreign]), Some(Err(MethodError::Controller)));
}

#[test]
fn an_unreadable_key_says_why() {
    let good = multikey("#atproto", &key(Curve::K256, 1));
    let with = |field: &str, value: Value| {
        let mut method = good.clone();
        method[field] = value;
        with_methods(&[method]).unwrap().unwrap_err()
    };
    assert_eq!(with("controller", Value::Null), MethodError::Controller);
    let unknown = MethodError::Type(Excerpt::of("JsonWebKey2020"));
    assert_eq!(with("type", json!("JsonWebKey2020")), unknown);
    assert_eq!(with("type", json!(3)), MethodError::Type(Excerpt::of("")));
    assert_eq!(with("publicKeyMultibase", Value::Null), MethodError::NoKey);
    let ed25519 = "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
    let codec = MethodError::Key(KeyError::Codec(0xed, 0x01));
    assert_eq!(with("publicKeyMultibase", json!(ed25519)), codec);
    let error = with("publicKeyMultibase", json!("nonsense"));
    let text = error.to_string();
    assert!(text.contains("\"nonsense\" is not base58"), "{text}");
    // The first failure is the one that is told.
    let mut second = good.clone();
    second["type"] = json!("Other");
    let mut first = good.clone();
    first["publicKeyMultibase"] = Value::Null;
    assert_eq!(
        with_methods(&[first, second]),
        Some(Err(MethodError::NoKey))
    );
}

#[test]
fn legacy_key_types_name_their_curve() {
    let cases = [
        (
            "EcdsaSecp256r1VerificationKey2019",
            "zxdM8dSstjrpZaRUwBmDvjGXweKuEMVN95A9oJBFjkWMh",
            "did:key:zDnaembgSGUhZULN2Caob4HLJPaxBh92N7rtH21TErzqf8HQo",
        ),
        (
            "EcdsaSecp256k1VerificationKey2019",
            "z25z9DTpsiYYJKGsWmSPJK2NFN8PcJtZig12K59UgW7q5t",
            "did:key:zQ3shqwJEJyMBsBXCWyCBpUBMqxcon9oHB7mCvx4sSpMdLJwc",
        ),
    ];
    for (kind, multibase, did_key) in cases {
        let method = json!({
            "id": "#atproto", "type": kind, "controller": PLC, "publicKeyMultibase": multibase,
        });
        let found = with_methods(&[method]).unwrap().unwrap();
        assert_eq!(found.to_did_key(), did_key);
        // A bare point is not a Multikey, and a Multikey is not a bare point.
        let bare = json!({
            "id": "#atproto", "type": "Multikey", "controller": PLC,
            "publicKeyMultibase": multibase,
        });
        assert!(with_methods(&[bare]).unwrap().is_err());
        let mut dressed = multikey("#atproto", &found);
        dressed["type"] = json!(kind);
        let error = MethodError::Key(KeyError::Length(35));
        assert_eq!(with_methods(&[dressed]), Some(Err(error)));
    }
}

#[test]
fn the_first_usable_pds_counts() {
    let pds = |services: &[Value]| parse(&json!({"id": PLC, "service": services})).pds;
    let absolute = service(&format!("{PLC}#atproto_pds"), "https://one.example");
    let relative = service("#atproto_pds", "https://two.example");
    let found = pds(&[absolute.clone(), relative.clone()]).unwrap().unwrap();
    assert_eq!(found.as_str(), "https://one.example");
    let mut other_type = absolute.clone();
    other_type["type"] = json!("AtprotoLabeler");
    let labeler = service("#atproto_labeler", "https://label.example");
    let found = pds(&[labeler.clone(), other_type.clone(), relative])
        .unwrap()
        .unwrap();
    assert_eq!(found.as_str(), "https://two.example");
    assert_eq!(pds(&[labeler, other_type]), None);
    let path = service("#atproto_pds", "https://one.example/path");
    let error = pds(std::slice::from_ref(&path)).unwrap().unwrap_err();
    assert_eq!(error.fault, EndpointFault::NotBare);
    assert!(pds(&[path, absolute.clone()]).unwrap().is_ok());
    let mut not_text = absolute;
    not_text["serviceEndpoint"] = json!({"uri": "https://one.example"});
    let error = pds(&[not_text]).unwrap().unwrap_err();
    assert_eq!(error.fault, EndpointFault::Scheme);
}

#[test]
fn the_first_valid_handle_counts() {
    let handle = |names: Value| {
        let document = parse(&json!({"id": PLC, "alsoKnownAs": names}));
        document.handle.map(|handle| handle.to_string())
    };
    let names = json!([
        "https://a.example",
        "at://not_valid",
        "at://b.example",
        "at://c.example"
    ]);
    assert_eq!(handle(names), Some("b.example".into()));
    assert_eq!(
        handle(json!([
            "at://b.example/path",
            "b.example",
            "AT://b.example"
        ])),
        None
    );
}

#[test]
fn an_answer_that_is_no_document_of_this_did() {
    let error = |json: &[u8]| DidDocument::parse(json, &did()).unwrap_err();
    assert_eq!(error(b"[]"), DocumentError::NotAnObject(did()));
    assert_eq!(error(b"{}"), DocumentError::NoId(did()));
    assert_eq!(error(b"{\"id\":7}"), DocumentError::NoId(did()));
    let other = DocumentError::OtherDid(did(), Excerpt::of("did:web:a.example"));
    assert_eq!(error(b"{\"id\":\"did:web:a.example\"}"), other);
    let syntax = |error| matches!(error, DocumentError::Json(_, JsonError::Syntax(_)));
    assert!(syntax(error(b"")));
    assert!(syntax(error(b"<html>")));
    assert!(syntax(error(b"{\"id\":\"\xff\"}")));
    assert!(syntax(error("[".repeat(DID_DOCUMENT_BYTES).as_bytes())));
    let whole = format!("{{\"id\":\"{PLC}\"}}");
    let padded = |len: usize| format!("{whole}{}", " ".repeat(len - whole.len()));
    let longest = padded(DID_DOCUMENT_BYTES);
    assert!(DidDocument::parse(longest.as_bytes(), &did()).is_ok());
    let too_large = JsonError::TooLarge {
        bytes: DID_DOCUMENT_BYTES + 1,
        most: DID_DOCUMENT_BYTES,
    };
    let long = error(padded(DID_DOCUMENT_BYTES + 1).as_bytes());
    assert_eq!(long, DocumentError::Json(did(), too_large));
}

#[test]
fn the_entries_of_a_document_are_bounded() {
    for field in ["alsoKnownAs", "verificationMethod", "service"] {
        let with = |entry: &str, entries: usize| {
            let entries = vec![entry; entries].join(",");
            let document = format!("{{\"id\":\"{PLC}\",\"{field}\":[{entries}]}}");
            DidDocument::parse(document.as_bytes(), &did())
        };
        for entry in ["0", "{}", r#"{"":0}"#, r#"{"id":""}"#] {
            assert!(with(entry, DID_DOCUMENT_ENTRIES).is_ok(), "{field} {entry}");
            let error = with(entry, DID_DOCUMENT_ENTRIES + 1).unwrap_err();
            let bound = format!("more than {DID_DOCUMENT_ENTRIES} items");
            assert!(error.to_string().contains(&bound), "{error}");
        }
    }
    // Fields that are not used may be there, and are not kept.
    let many = vec!["{\"id\":\"#atproto\"}"; DID_DOCUMENT_ENTRIES + 1].join(",");
    let document = format!("{{\"id\":\"{PLC}\",\"authentication\":[{many}]}}");
    let document = DidDocument::parse(document.as_bytes(), &did()).unwrap();
    assert_eq!(document.signing_key, None);
}

#[test]
fn of_a_field_that_stands_twice_the_last_counts() {
    let other = "did:web:other.com";
    let twice = format!("{{\"id\":\"{other}\",\"id\":\"{PLC}\"}}");
    assert!(DidDocument::parse(twice.as_bytes(), &did()).is_ok());
    let twice = format!("{{\"id\":\"{PLC}\",\"id\":\"{other}\"}}");
    let error = DocumentError::OtherDid(did(), Excerpt::of(other));
    assert_eq!(DidDocument::parse(twice.as_bytes(), &did()), Err(error));
}

#[test]
fn a_did_web_has_documents_too() {
    let did = Did::parse("did:web:localhost%3A1234").unwrap();
    let signing = key(Curve::P256, 4);
    let mut method = multikey("did:web:localhost%3A1234#atproto", &signing);
    method["controller"] = json!(did.as_str());
    let document = json!({"id": did.as_str(), "verificationMethod": [method]});
    let document = DidDocument::parse(document.to_string().as_bytes(), &did).unwrap();
    assert_eq!(document.usable_key(), Some(&signing));
}

proptest! {
    #[test]
    fn any_bytes_are_a_document_or_an_error(bytes in any::<Vec<u8>>()) {
        prop_assert!(DidDocument::parse(&bytes, &did()).is_err());
    }

    #[test]
    fn a_document_cut_or_spoiled_anywhere_does_not_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let document = json!({
            "id": PLC,
            "alsoKnownAs": ["at://alice.example"],
            "verificationMethod": [multikey("#atproto", &key(Curve::K256, 1))],
            "service": [service("#atproto_pds", "https://[::1]:8080/")],
        });
        let mut bytes = document.to_string().into_bytes();
        let at = at.index(bytes.len());
        prop_assert!(DidDocument::parse(&bytes[..at], &did()).is_err());
        bytes[at] = byte;
        let _ = DidDocument::parse(&bytes, &did());
    }
}
