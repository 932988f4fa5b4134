//! A fault with its scope, as a command line flag and as JSON.
//!
//! On the command line a fault is `NAME` or `NAME=KEY:VALUE,KEY:VALUE`; elsewhere it is a
//! JSON object with the same keys. Every fault takes `host` (which server: `pds0`, `plc`,
//! `relay`, …), `did` (which account) and `count` (how many times; until cleared if
//! absent).

use std::str::FromStr;

use gapless_atp::syntax::Did;
use serde_json::{Map, Value as Json};

use super::kinds::{Fault, Place};

/// A fault with its scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub fault: Fault,
    pub host: Option<Place>,
    pub did: Option<Did>,
    pub count: Option<u64>,
}

/// Why text or JSON is not a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("a fault is an object with the key 'fault'")]
    NotAnObject,
    #[error("'{0}' is not KEY:VALUE")]
    Argument(String),
    #[error("'{0}' is not a host: use pds0, pds1, … plc, relay or jetstream")]
    Host(String),
    #[error("'{0}' is not a DID")]
    Did(String),
    #[error("count must be a number above zero")]
    Count,
    #[error("{0}")]
    Fault(String),
}

impl Spec {
    /// A fault that applies everywhere, until it is cleared.
    pub fn new(fault: Fault) -> Spec {
        Spec {
            fault,
            host: None,
            did: None,
            count: None,
        }
    }

    pub fn on(mut self, host: Place) -> Spec {
        self.host = Some(host);
        self
    }

    pub fn of(mut self, did: &Did) -> Spec {
        self.did = Some(did.clone());
        self
    }

    pub fn times(mut self, count: u64) -> Spec {
        self.count = Some(count);
        self
    }

    pub fn from_json(json: &Json) -> Result<Spec, SpecError> {
        let Json::Object(fields) = json else {
            return Err(SpecError::NotAnObject);
        };
        let mut fields = fields.clone();
        let host = fields.remove("host").map(|host| text(&host).parse());
        let did = fields.remove("did").map(|did| {
            let did = text(&did);
            Did::parse(&did).map_err(|_| SpecError::Did(did))
        });
        let count = fields.remove("count").map(|count| match count.as_u64() {
            Some(count) if count > 0 => Ok(count),
            _ => Err(SpecError::Count),
        });
        if !fields.contains_key("fault") {
            return Err(SpecError::NotAnObject);
        }
        let fault = serde_json::from_value(Json::Object(fields))
            .map_err(|error| SpecError::Fault(error.to_string()))?;
        Ok(Spec {
            fault,
            host: host.transpose()?,
            did: did.transpose()?,
            count: count.transpose()?,
        })
    }

    pub fn to_json(&self) -> Json {
        let mut json = serde_json::to_value(&self.fault).unwrap_or_default();
        if let Json::Object(fields) = &mut json {
            fields.retain(|_, value| !value.is_null());
            if let Some(host) = self.host {
                fields.insert("host".to_owned(), host.to_string().into());
            }
            if let Some(did) = &self.did {
                fields.insert("did".to_owned(), did.as_str().into());
            }
            if let Some(count) = self.count {
                fields.insert("count".to_owned(), count.into());
            }
        }
        json
    }

    pub fn matches(&self, place: Place, did: Option<&Did>) -> bool {
        self.host.is_none_or(|host| host == place)
            && self.did.as_ref().is_none_or(|wanted| did == Some(wanted))
    }
}

fn text(json: &Json) -> String {
    match json {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Spec, SpecError> {
        let (name, arguments) = text.split_once('=').unwrap_or((text, ""));
        let mut fields = Map::new();
        fields.insert("fault".to_owned(), name.into());
        for argument in arguments.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = argument
                .split_once(':')
                .ok_or_else(|| SpecError::Argument(argument.to_owned()))?;
            let value = match value {
                "true" => Json::Bool(true),
                "false" => Json::Bool(false),
                value => value.parse::<u64>().map_or(value.into(), Json::from),
            };
            fields.insert(key.to_owned(), value);
        }
        Spec::from_json(&Json::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::super::kinds::CATALOGUE;
    use super::*;

    #[test]
    fn the_catalogue_names_every_fault() {
        let error = "nonsense".parse::<Spec>().unwrap_err().to_string();
        let known: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        let listed: Vec<&str> = CATALOGUE.iter().map(|(name, _)| *name).collect();
        assert_eq!(known, listed);
    }

    #[test]
    fn flags_and_json_say_the_same() {
        let flag: Spec = "http-error=status:429,retry-after:2,route:getRepo,host:pds1,count:3"
            .parse()
            .unwrap();
        let json = serde_json::json!({
            "fault": "http-error", "status": 429, "retry-after": 2, "route": "getRepo",
            "host": "pds1", "count": 3,
        });
        assert_eq!(Spec::from_json(&json), Ok(flag.clone()));
        assert_eq!(flag.to_json(), json);
        assert_eq!(flag.host, Some(Place::Pds(1)));
        let did = "drop=did:did:plc:aaaaaaaaaaaaaaaaaaaaaaaa".parse::<Spec>();
        assert!(did.unwrap().did.is_some());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("drop=x", "'x' is not KEY:VALUE"),
            ("drop=host:pdsx", "'pdsx' is not a host"),
            ("drop=did:alice", "'alice' is not a DID"),
            ("drop=count:0", "count must be"),
            ("drop=speed:3", "unknown field `speed`"),
            ("window", "missing field `events`"),
            ("drap", "unknown variant `drap`"),
        ] {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
