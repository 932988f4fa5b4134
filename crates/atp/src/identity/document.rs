//! DID documents: the signing key, the PDS and the handle of an account.
//!
//! If several entries match, the first usable one counts, as the protocol requires. If
//! none is usable, the error of the first matching entry is kept.

use serde_json::Value;

use super::{Endpoint, EndpointError, JsonError, read_json};
use crate::crypto::{Curve, KeyError, PublicKey};
use crate::limits::{DID_DOCUMENT_BYTES, DID_DOCUMENT_ENTRIES};
use crate::pick::Wanted;
use crate::syntax::{Did, Excerpt, Handle};

const KEY_FRAGMENT: &str = "#atproto";
const PDS_FRAGMENT: &str = "#atproto_pds";
pub(super) const PDS_TYPE: &str = "AtprotoPersonalDataServer";

/// The parts of a document that are read.
const DOCUMENT: Wanted = Wanted::Fields(&[
    ("id", Wanted::Word),
    (
        "alsoKnownAs",
        Wanted::Items(&Wanted::Word, DID_DOCUMENT_ENTRIES),
    ),
    (
        "verificationMethod",
        Wanted::Items(&METHOD, DID_DOCUMENT_ENTRIES),
    ),
    ("service", Wanted::Items(&SERVICE, DID_DOCUMENT_ENTRIES)),
]);
const METHOD: Wanted = Wanted::Fields(&[
    ("id", Wanted::Word),
    ("controller", Wanted::Word),
    ("type", Wanted::Word),
    ("publicKeyMultibase", Wanted::Word),
]);
const SERVICE: Wanted = Wanted::Fields(&[
    ("id", Wanted::Word),
    ("type", Wanted::Word),
    ("serviceEndpoint", Wanted::Word),
]);

/// The parts of a DID document that Gapless needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DidDocument {
    pub did: Did,
    /// The handle that the account claims. Only the handle's domain can confirm it.
    pub handle: Option<Handle>,
    /// `None` if there is no signing key; an error if there is one that cannot be read.
    pub signing_key: Option<Result<PublicKey, MethodError>>,
    /// `None` if there is no PDS; an error if its address cannot be used.
    pub pds: Option<Result<Endpoint, EndpointError>>,
}

/// Why a response is not the document of the requested DID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    #[error("the DID document of {0} cannot be read: {1}")]
    Json(Did, JsonError),
    #[error("the DID document of {0} is not a JSON object")]
    NotAnObject(Did),
    #[error("the DID document of {0} has no id")]
    NoId(Did),
    #[error("the DID document of {0} is about {1}")]
    OtherDid(Did, Excerpt),
}

/// Why the verification method for the signing key is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    #[error("the signing key is not controlled by the account itself")]
    Controller,
    #[error("the signing key has the unknown type {0}")]
    Type(Excerpt),
    #[error("the signing key has no publicKeyMultibase")]
    NoKey,
    #[error("the signing key cannot be read: {0}")]
    Key(KeyError),
}

impl DidDocument {
    /// Parses the response to a request for the document of `did`.
    pub fn parse(json: &[u8], did: &Did) -> Result<DidDocument, DocumentError> {
        let value = read_json(json, DID_DOCUMENT_BYTES, &DOCUMENT);
        let value = value.map_err(|error| DocumentError::Json(did.clone(), error))?;
        let Value::Object(fields) = &value else {
            return Err(DocumentError::NotAnObject(did.clone()));
        };
        match fields.get("id").and_then(Value::as_str) {
            Some(id) if id == did.as_str() => {}
            Some(id) => return Err(DocumentError::OtherDid(did.clone(), Excerpt::of(id))),
            None => return Err(DocumentError::NoId(did.clone())),
        }
        Ok(DidDocument {
            did: did.clone(),
            handle: find_handle(&value),
            signing_key: find_signing_key(&value, did),
            pds: find_pds(&value, did),
        })
    }

    /// The signing key, if there is a readable one.
    pub fn usable_key(&self) -> Option<&PublicKey> {
        self.signing_key.as_ref()?.as_ref().ok()
    }

    /// The address of the PDS, if there is a usable one.
    pub fn usable_pds(&self) -> Option<&Endpoint> {
        self.pds.as_ref()?.as_ref().ok()
    }
}

fn list<'a>(document: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    document
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn text<'a>(entry: &'a Value, field: &str) -> Option<&'a str> {
    entry.get(field).and_then(Value::as_str)
}

/// Whether the entry's id is `fragment`, either relative or preceded by the DID.
fn has_fragment(entry: &Value, did: &Did, fragment: &str) -> bool {
    let Some(id) = text(entry, "id") else {
        return false;
    };
    id.strip_prefix(did.as_str()).unwrap_or(id) == fragment
}

/// The first success; otherwise the first failure; otherwise `None`.
fn first_usable<T, E>(found: impl Iterator<Item = Result<T, E>>) -> Option<Result<T, E>> {
    let mut failure = None;
    for result in found {
        match result {
            Ok(value) => return Some(Ok(value)),
            Err(error) => failure = failure.or(Some(Err(error))),
        }
    }
    failure
}

fn find_handle(document: &Value) -> Option<Handle> {
    list(document, "alsoKnownAs")
        .filter_map(Value::as_str)
        .filter_map(|name| name.strip_prefix("at://"))
        .find_map(|name| Handle::parse(name).ok())
}

fn find_signing_key(document: &Value, did: &Did) -> Option<Result<PublicKey, MethodError>> {
    let methods = list(document, "verificationMethod");
    let meant = methods.filter(|method| has_fragment(method, did, KEY_FRAGMENT));
    first_usable(meant.map(|method| read_method(method, did)))
}

fn read_method(method: &Value, did: &Did) -> Result<PublicKey, MethodError> {
    if text(method, "controller") != Some(did.as_str()) {
        return Err(MethodError::Controller);
    }
    let kind = text(method, "type").unwrap_or("");
    let multibase = || text(method, "publicKeyMultibase").ok_or(MethodError::NoKey);
    let key = match kind {
        "Multikey" => PublicKey::from_multikey(multibase()?),
        "EcdsaSecp256k1VerificationKey2019" => PublicKey::from_legacy(Curve::K256, multibase()?),
        "EcdsaSecp256r1VerificationKey2019" => PublicKey::from_legacy(Curve::P256, multibase()?),
        _ => return Err(MethodError::Type(Excerpt::of(kind))),
    };
    key.map_err(MethodError::Key)
}

fn find_pds(document: &Value, did: &Did) -> Option<Result<Endpoint, EndpointError>> {
    let services = list(document, "service");
    let meant = services.filter(|service| {
        has_fragment(service, did, PDS_FRAGMENT) && text(service, "type") == Some(PDS_TYPE)
    });
    first_usable(meant.map(|service| {
        // An endpoint that is not text is treated as an empty one.
        Endpoint::parse(text(service, "serviceEndpoint").unwrap_or(""))
    }))
}
