//! DID documents, in the present form and in the legacy form.

use gapless_atp::crypto::{Curve, PublicKey};
use serde_json::{Value as Json, json};

use super::operation::Statement;

/// The document that follows from a statement.
pub(crate) fn document(did: &str, statement: &Statement, legacy: bool) -> Json {
    let key = statement.signing_key.strip_prefix("did:key:");
    let multikey = key.unwrap_or_default();
    let (context, method) = if legacy {
        (
            json!([
                "https://www.w3.org/ns/did/v1",
                "https://w3id.org/security/suites/secp256k1-2019/v1",
            ]),
            legacy_method(did, multikey),
        )
    } else {
        (
            json!([
                "https://www.w3.org/ns/did/v1",
                "https://w3id.org/security/multikey/v1",
                "https://w3id.org/security/suites/secp256k1-2019/v1",
            ]),
            json!({
                "id": format!("{did}#atproto"),
                "type": "Multikey",
                "controller": did,
                "publicKeyMultibase": multikey,
            }),
        )
    };
    json!({
        "@context": context,
        "id": did,
        "alsoKnownAs": [format!("at://{}", statement.handle)],
        "verificationMethod": [method],
        "service": [{
            "id": "#atproto_pds",
            "type": "AtprotoPersonalDataServer",
            "serviceEndpoint": statement.endpoint,
        }],
    })
}

/// The signing key in the legacy form: the type names the curve, the key is a bare
/// uncompressed point, and the id is relative.
fn legacy_method(did: &str, multikey: &str) -> Json {
    let Ok(key) = PublicKey::from_multikey(multikey) else {
        return Json::Null;
    };
    let kind = match key.curve() {
        Curve::K256 => "EcdsaSecp256k1VerificationKey2019",
        Curve::P256 => "EcdsaSecp256r1VerificationKey2019",
    };
    let point = bs58::encode(uncompressed(&key)).into_string();
    json!({
        "id": "#atproto",
        "type": kind,
        "controller": did,
        "publicKeyMultibase": format!("z{point}"),
    })
}

fn uncompressed(key: &PublicKey) -> Vec<u8> {
    match key {
        PublicKey::K256(key) => key.serialize_uncompressed().to_vec(),
        PublicKey::P256(_) => {
            let compressed = key.to_compressed();
            match p256::PublicKey::from_sec1_bytes(&compressed) {
                Ok(key) => p256::elliptic_curve::sec1::ToSec1Point::to_sec1_point(&key, false)
                    .as_bytes()
                    .to_vec(),
                Err(_) => compressed.to_vec(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use gapless_atp::identity::DidDocument;
    use gapless_atp::syntax::Did;

    #[test]
    fn both_forms_say_the_same() {
        for curve in [Curve::K256, Curve::P256] {
            let key = Rng::new(3).key(curve);
            let statement = Statement {
                rotation_key: key.public().to_did_key(),
                signing_key: key.public().to_did_key(),
                handle: "alice.pds0.test".to_owned(),
                endpoint: "http://localhost:4000".to_owned(),
            };
            let did = Did::parse("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").unwrap();
            for legacy in [false, true] {
                let json = document(did.as_str(), &statement, legacy).to_string();
                let read = DidDocument::parse(json.as_bytes(), &did).unwrap();
                assert_eq!(read.usable_key(), Some(key.public()), "{json}");
                let pds = read.usable_pds().map(|pds| pds.as_str().to_owned());
                assert_eq!(pds.as_deref(), Some("http://localhost:4000"));
            }
        }
    }
}
