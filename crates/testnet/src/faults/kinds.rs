//! Every fault by name, with its arguments and its effect.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::spec::SpecError;
use crate::world::Status;

/// A server of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Pds(usize),
    Plc,
    Relay,
    Jetstream,
}

/// The part of a frame that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    Header,
    Payload,
    /// Everything except the number and the DID.
    Rest,
}

/// A fault and its arguments. [`CATALOGUE`] describes each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "fault",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum Fault {
    // Events as a PDS sequences them.
    Drop {
        /// The event gets no number either: the repository is ahead of its stream, as
        /// after a PDS was killed between its two writes.
        #[serde(default)]
        unnumbered: bool,
    },
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
    EnvelopeRev {},

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

    // HTTP responses, on one route or on all.
    HttpError {
        #[serde(default = "unavailable")]
        status: u16,
        retry_after: Option<u64>,
        route: Option<String>,
    },
    Stall {
        /// How long to wait; until the fault is cleared if absent.
        ms: Option<u64>,
        route: Option<String>,
    },
    Drip {
        #[serde(default = "hundred")]
        bytes_per_second: u64,
        route: Option<String>,
    },

    // Responses of getRepo.
    CarCut {},
    CarMinusNode {},
    CarMinusLeaf {},
    CarNonCanonical {},
    CarOtherKey {},
    CarOld {
        #[serde(default = "one")]
        commits: usize,
    },

    SinceEmpty {},

    // Responses of listRepos.
    ListEmpty {},
    ListShort {
        #[serde(default)]
        keep: usize,
    },
    ListStale {
        #[serde(default = "one")]
        commits: usize,
    },

    // The directory.
    PlcDown {},
    #[serde(rename = "plc-429")]
    Plc429 {
        retry_after: Option<u64>,
    },
    PlcStale {
        /// The last operation that the directory knows; if absent, the last one at the
        /// time when the fault is set.
        seq: Option<u64>,
    },

    // The relay.
    RelayOmit {},
    RelayGap {},
    RelayJunk {},
    RelayStale {},

    // Immediate faults.
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
        /// Whether the owner's own key signs the commit, so that only the rev is wrong.
        #[serde(default)]
        signed: bool,
    },
    RevRollback {
        #[serde(default = "one")]
        commits: usize,
    },
    RotateKey {
        /// Whether the stream says nothing, so that only the directory shows the new key.
        #[serde(default)]
        quiet: bool,
    },
    Migrate {
        /// The index of the new host; if absent, the next one.
        to: Option<usize>,
        /// Whether to move as importRepo does: with the old key's commit under another
        /// rev.
        #[serde(default)]
        import: bool,
    },
    Ghost {},
    LateWrite {},
    DeadWrite {
        /// The text of the record.
        #[serde(default)]
        text: String,
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

/// All faults, each with its arguments and a short description of its effect.
pub const CATALOGUE: &[(&str, &str)] = &[
    (
        "drop",
        "unnumbered:true|false: an event gets a number (or none) and is never sent",
    ),
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
        "part:header|payload|rest: an unreadable frame (rest: only number and DID are readable)",
    ),
    (
        "envelope-rev",
        "a #commit or #sync that names another rev than the signed one",
    ),
    (
        "no-pongs",
        "pings are not answered, not even on a silent stream",
    ),
    ("dial-error", "status: the WebSocket handshake is refused"),
    (
        "dial-silence",
        "after:true|false: the handshake, or the stream after it, is silent",
    ),
    ("http-error", "status, retry-after, route: an HTTP error"),
    (
        "stall",
        "ms, route: no response for this time, or until cleared",
    ),
    ("drip", "bytes-per-second, route: a slow response"),
    ("car-cut", "getRepo ends half way, at a block boundary"),
    ("car-minus-node", "getRepo lacks one tree node"),
    ("car-minus-leaf", "getRepo lacks one record"),
    (
        "car-non-canonical",
        "getRepo signs a tree with a superfluous top node",
    ),
    (
        "car-other-key",
        "getRepo is whole but signed by another key",
    ),
    ("car-old", "commits: getRepo answers with an earlier state"),
    (
        "since-empty",
        "getRepo with since answers without any block",
    ),
    ("list-empty", "listRepos lists nothing"),
    (
        "list-short",
        "keep: listRepos lists only the first few accounts",
    ),
    (
        "list-stale",
        "commits: listRepos names an earlier head of an account",
    ),
    ("plc-down", "the directory answers 503 to everything"),
    ("plc-429", "retry-after: the directory answers 429"),
    (
        "plc-stale",
        "seq: the directory does not know its latest operations",
    ),
    (
        "relay-omit",
        "the relay drops events (with host:pdsN, of that host) without a gap in its numbers",
    ),
    ("relay-gap", "the relay uses a number and sends nothing"),
    (
        "relay-junk",
        "listings of the relay also name hosts and accounts that do not exist",
    ),
    (
        "relay-stale",
        "listReposByCollection names every account that the relay ever saw",
    ),
    ("window", "events: a stream forgets all but its last events"),
    (
        "seq-restart",
        "next: a stream is wiped and its numbers begin again",
    ),
    ("disconnect", "all subscribers are disconnected"),
    ("sync", "an unprompted #sync"),
    ("info", "name, message: an unprompted #info"),
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
        "ghost",
        "hosts that an account has left list and serve it as their own",
    ),
    (
        "late-write",
        "the host that an account left commits once more, with the old key",
    ),
    (
        "dead-write",
        "text: the host of a deleted account commits a record once more, with the owner's key",
    ),
    (
        "account",
        "state:active|deactivated|takendown|suspended|deleted: an account changes its state",
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

    /// Whether the fault is performed when it is set, instead of waiting for an occasion.
    pub(crate) fn is_immediate(&self) -> bool {
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
                | Fault::Ghost {}
                | Fault::LateWrite {}
                | Fault::DeadWrite { .. }
                | Fault::Account { .. }
                | Fault::HugeRepo { .. }
                | Fault::DeepKeys { .. }
                | Fault::RelayRollback { .. }
        )
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
            // A number alone is a PDS too.
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
