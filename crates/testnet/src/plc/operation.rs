//! Operations of the directory: signed and chained by CID. The first operation of a DID
//! determines the DID.

use data_encoding::BASE64URL_NOPAD;
use gapless_atp::cbor::from_json;
use gapless_atp::cid::{Cid, base32_encode};
use gapless_atp::crypto::SigningKey;
use serde_json::{Value as Json, json};

/// What an operation says about an account. An operation always states everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    pub rotation_key: String,
    pub signing_key: String,
    pub handle: String,
    pub endpoint: String,
}

/// A signed operation.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub json: Json,
    pub cid: Cid,
    /// `None` for a tombstone.
    pub statement: Option<Statement>,
}

impl Operation {
    pub(crate) fn update(
        statement: Statement,
        prev: Option<&Cid>,
        rotation: &SigningKey,
    ) -> Operation {
        let json = json!({
            "type": "plc_operation",
            "rotationKeys": [statement.rotation_key],
            "verificationMethods": { "atproto": statement.signing_key },
            "alsoKnownAs": [format!("at://{}", statement.handle)],
            "services": {
                "atproto_pds": {
                    "type": "AtprotoPersonalDataServer",
                    "endpoint": statement.endpoint,
                },
            },
            "prev": prev.map(Cid::to_string),
        });
        Operation::sign(json, Some(statement), rotation)
    }

    pub(crate) fn tombstone(prev: &Cid, rotation: &SigningKey) -> Operation {
        let json = json!({ "type": "plc_tombstone", "prev": prev.to_string() });
        Operation::sign(json, None, rotation)
    }

    fn sign(mut json: Json, statement: Option<Statement>, rotation: &SigningKey) -> Operation {
        let signature = rotation.sign(&encode(&json));
        json["sig"] = BASE64URL_NOPAD.encode(&signature).into();
        let cid = Cid::dag_cbor(&encode(&json));
        Operation {
            json,
            cid,
            statement,
        }
    }

    /// The DID that this operation creates if it is the first one.
    pub(crate) fn founded_did(&self) -> String {
        let name = base32_encode(self.cid.digest());
        format!("did:plc:{}", &name[..24])
    }
}

fn encode(json: &Json) -> Vec<u8> {
    let bytes = from_json(json).ok().and_then(|value| value.encode());
    match bytes {
        Some(bytes) => bytes,
        None => panic!("the network's own operation breaks the data model: {json}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use gapless_atp::crypto::Curve;
    use gapless_atp::syntax::Did;

    #[test]
    fn an_operation_is_signed_over_all_but_its_signature() {
        let rotation = Rng::new(1).key(Curve::K256);
        let statement = Statement {
            rotation_key: rotation.public().to_did_key(),
            signing_key: rotation.public().to_did_key(),
            handle: "a.test".to_owned(),
            endpoint: "http://localhost:1".to_owned(),
        };
        let operation = Operation::update(statement, None, &rotation);
        let mut unsigned = operation.json.clone();
        let signature = unsigned.as_object_mut().unwrap().remove("sig").unwrap();
        let signature = BASE64URL_NOPAD
            .decode(signature.as_str().unwrap().as_bytes())
            .unwrap();
        rotation
            .public()
            .verify(&encode(&unsigned), &signature)
            .unwrap();
        Did::parse(&operation.founded_did()).unwrap();
        assert_eq!(operation.cid, Cid::dag_cbor(&encode(&operation.json)));
    }
}
