//! Every fault by name, its arguments, and where it is bound to bite.
//!
//! A fault is written `NAME` or `NAME=KEY:VALUE,KEY:VALUE` on the command line
//! and as a JSON object with the same keys elsewhere. `host`, `did` and `count`
//! belong to every fault: which host (`pds0`, `plc`, `relay`, …), which account,
//! how many times (until cleared, if not said).

use std::fmt;
use std::str::FromStr;

use gapless_atp::syntax::Did;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::world::Status;

/// A server of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Pds(usize),
    Plc,
    Relay,
    Jetstream,
}

/// Which part of a frame cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    Header,
    Payload,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "fault",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum Fault {
    // Events, as a PDS sequences them.
    Drop {},
    Duplicate {},
    Delay {
        #[serde(default = "thousand")]
        ms: u64,
    },
    Reorder {},
    LostAccount {},
    TooBig {},
    Legacy {},
    WrongSignature {},
    OmitOp {},
    Undecodable {
        #[serde(default = "payload")]
        part: Part,
    },

    // Streams and sockets.
    NoPongs {},
    DialError {
        #[serde(default = "unavailable")]
        status: u16,
    },
    DialSilence {
        /// Silent after the handshake instead of before it.
        #[serde(default)]
        after: bool,
    },

    // HTTP, on one route or on all.
    HttpError {
        #[serde(default = "unavailable")]
        status: u16,
        retry_after: Option<u64>,
        route: Option<String>,
    },
    Stall {
        /// Until cleared, if not said.
        ms: Option<u64>,
        route: Option<String>,
    },
    Drip {
        #[serde(default = "hundred")]
        bytes_per_second: u64,
        route: Option<String>,
    },

    // What getRepo answers.
    CarCut {},
    CarMinusNode {},
    CarMinusLeaf {},
    CarNonCanonical {},
    CarOtherKey {},
    CarOld {
        #[serde(default = "one")]
        commits: usize,
    },

    // What listRepos answers.
    ListEmpty {},
    ListShort {
        #[serde(default)]
        keep: usize,
    },

    // The directory.
    PlcDown {},
    #[serde(rename = "plc-429")]
    Plc429 {
        retry_after: Option<u64>,
    },
    PlcStale {
        /// Operations after this one are not known yet; the last one at the
        /// time the fault is set, if not said.
        seq: Option<u64>,
    },

    // The relay.
    RelayOmit {},
    RelayGap {},

    // Done at once.
    Window {
        events: usize,
    },
    SeqRestart {
        #[serde(default = "first")]
        next: u64,
    },
    Disconnect {},
    Sync {},
    Info {
        #[serde(default = "outdated")]
        name: String,
        message: Option<String>,
    },
    ForgedRev {
        /// By the owner's own key: only the rev is wrong.
        #[serde(default)]
        signed: bool,
    },
    RevRollback {
        #[serde(default = "one")]
        commits: usize,
    },
    RotateKey {
        /// The directory knows, the stream says nothing.
        #[serde(default)]
        quiet: bool,
    },
    Migrate {
        /// The next host, if not said.
        to: Option<usize>,
        /// As importRepo does it: the old key's commit under another rev.
        #[serde(default)]
        import: bool,
    },
    Account {
        state: Status,
    },
    HugeRepo {
        #[serde(default = "many")]
        records: usize,
    },
    DeepKeys {
        #[serde(default = "six")]
        height: u32,
        #[serde(default = "six_keys")]
        keys: usize,
    },
    RelayRollback {
        #[serde(default = "ten")]
        events: usize,
    },
}

fn one() -> usize {
    1
}
fn first() -> u64 {
    1
}
fn six() -> u32 {
    6
}
fn six_keys() -> usize {
    6
}
fn ten() -> usize {
    10
}
fn hundred() -> u64 {
    100
}
fn thousand() -> u64 {
    1000
}
fn many() -> usize {
    20_000
}
fn unavailable() -> u16 {
    503
}
fn payload() -> Part {
    Part::Payload
}
fn outdated() -> String {
    "OutdatedCursor".to_owned()
}

/// All faults, each with its effect in a line.
pub const CATALOGUE: &[(&str, &str)] = &[
    ("drop", "an event gets a number and is never sent"),
    ("duplicate", "an event is sent twice under one number"),
    ("delay", "ms: the stream is held back before an event"),
    ("reorder", "an event is sent after the account's next one"),
    ("lost-account", "an #account event is never sent"),
    ("too-big", "a #commit says tooBig and carries no operations"),
    ("legacy", "a #commit without prevData and prev"),
    ("wrong-signature", "a #commit signed by another key"),
    (
        "omit-op",
        "a #commit that leaves one operation out of its list",
    ),
    (
        "undecodable",
        "part:header|payload: a frame that cannot be read",
    ),
    ("no-pongs", "pings are not answered"),
    ("dial-error", "status: the WebSocket handshake is refused"),
    (
        "dial-silence",
        "after:true|false: the handshake, or the stream after it, is silent",
    ),
    ("http-error", "status, retry-after, route: an HTTP error"),
    (
        "stall",
        "ms, route: no answer for so long, or until cleared",
    ),
    ("drip", "bytes-per-second, route: the answer trickles"),
    ("car-cut", "getRepo ends at a block boundary, half way"),
    ("car-minus-node", "getRepo lacks one tree node"),
    ("car-minus-leaf", "getRepo lacks one record"),
    (
        "car-non-canonical",
        "getRepo signs a tree with a needless top",
    ),
    (
        "car-other-key",
        "getRepo is whole but signed by another key",
    ),
    ("car-old", "commits: getRepo answers with an earlier state"),
    ("list-empty", "listRepos answers with nothing"),
    (
        "list-short",
        "keep: listRepos answers with the first few only",
    ),
    ("plc-down", "the directory answers 503 to everything"),
    ("plc-429", "retry-after: the directory limits"),
    (
        "plc-stale",
        "seq: the directory does not know its latest operations",
    ),
    ("relay-omit", "the relay passes nothing on, without a trace"),
    ("relay-gap", "the relay gives a number and sends nothing"),
    ("window", "events: a stream forgets all but its last events"),
    (
        "seq-restart",
        "next: a wiped stream counts from the beginning",
    ),
    ("disconnect", "all subscribers are disconnected"),
    ("sync", "a #sync out of nowhere"),
    ("info", "name, message: an #info out of nowhere"),
    (
        "forged-rev",
        "signed:true|false: a #commit with a rev from the future",
    ),
    (
        "rev-rollback",
        "commits: a repository is restored from a backup",
    ),
    (
        "rotate-key",
        "quiet:true|false: an account gets a new signing key",
    ),
    (
        "migrate",
        "to, import:true|false: an account moves to another host",
    ),
    (
        "account",
        "state: active|deactivated|takendown|suspended|deleted",
    ),
    ("huge-repo", "records: a repository grows"),
    (
        "deep-keys",
        "height, keys: keys mined to make the tree deep",
    ),
    (
        "relay-rollback",
        "events: the relay is restored from a backup",
    ),
];

impl Fault {
    pub fn name(&self) -> String {
        match serde_json::to_value(self) {
            Ok(Json::Object(fields)) => match fields.get("fault") {
                Some(Json::String(name)) => name.clone(),
                _ => String::new(),
            },
            _ => String::new(),
        }
    }

    /// Whether it happens when it is set, instead of waiting for its moment.
    pub fn is_immediate(&self) -> bool {
        matches!(
            self,
            Fault::Window { .. }
                | Fault::SeqRestart { .. }
                | Fault::Disconnect {}
                | Fault::Sync {}
                | Fault::Info { .. }
                | Fault::ForgedRev { .. }
                | Fault::RevRollback { .. }
                | Fault::RotateKey { .. }
                | Fault::Migrate { .. }
                | Fault::Account { .. }
                | Fault::HugeRepo { .. }
                | Fault::DeepKeys { .. }
                | Fault::RelayRollback { .. }
        )
    }
}

/// A fault with its scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub fault: Fault,
    pub host: Option<Place>,
    pub did: Option<Did>,
    pub count: Option<u64>,
}

/// Why text or JSON names no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("a fault is an object with the key 'fault'")]
    NotAnObject,
    #[error("'{0}' is not KEY:VALUE")]
    Argument(String),
    #[error("'{0}' is no host: use pds0, pds1, … plc, relay or jetstream")]
    Host(String),
    #[error("'{0}' is no DID")]
    Did(String),
    #[error("count must be a number above zero")]
    Count,
    #[error("{0}")]
    Fault(String),
}

impl Spec {
    /// Everywhere, until cleared.
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

impl FromStr for Place {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Place, SpecError> {
        let refused = || SpecError::Host(text.to_owned());
        match text {
            "plc" => Ok(Place::Plc),
            "relay" => Ok(Place::Relay),
            "jetstream" => Ok(Place::Jetstream),
            // A bare number is a PDS too.
            other => other
                .strip_prefix("pds")
                .unwrap_or(other)
                .parse()
                .map(Place::Pds)
                .map_err(|_| refused()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Pds(index) => write!(f, "pds{index}"),
            Place::Plc => f.write_str("plc"),
            Place::Relay => f.write_str("relay"),
            Place::Jetstream => f.write_str("jetstream"),
        }
    }
}

#[cfg(test)]
mod tests {
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
            ("drop=host:pdsx", "'pdsx' is no host"),
            ("drop=did:alice", "'alice' is no DID"),
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
