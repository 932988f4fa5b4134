//! Every fault by name, its arguments, and where it is bound to bite.

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

/// Which part of a frame cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    Header,
    Payload,
    /// All but the number and the DID.
    Rest,
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
    Drop {
        /// It gets no number either: the repository is ahead of its stream, as
        /// after a PDS was killed between the two.
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

    SinceEmpty {},

    // What listRepos answers.
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
        /// Operations after this one are not known yet; the last one at the
        /// time the fault is set, if not said.
        seq: Option<u64>,
    },

    // The relay.
    RelayOmit {},
    RelayGap {},
    RelayJunk {},
    RelayStale {},

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
    Ghost {},
    LateWrite {},
    DeadWrite {
        /// What the record says.
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

/// All faults, each with its effect in a line.
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
        "part:header|payload|rest: a frame that cannot be read, but for number and DID (rest)",
    ),
    (
        "envelope-rev",
        "a #commit or #sync that names a rev that nobody signed",
    ),
    (
        "no-pongs",
        "pings are not answered, on a silent stream either",
    ),
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
    (
        "since-empty",
        "getRepo with since answers with no block at all",
    ),
    ("list-empty", "listRepos answers with nothing"),
    (
        "list-short",
        "keep: listRepos answers with the first few only",
    ),
    (
        "list-stale",
        "commits: listRepos names an earlier head of an account",
    ),
    ("plc-down", "the directory answers 503 to everything"),
    ("plc-429", "retry-after: the directory limits"),
    (
        "plc-stale",
        "seq: the directory does not know its latest operations",
    ),
    (
        "relay-omit",
        "the relay passes nothing on (of host:pdsN alone), without a trace",
    ),
    ("relay-gap", "the relay gives a number and sends nothing"),
    (
        "relay-junk",
        "listings of the relay also name hosts and accounts that are none",
    ),
    (
        "relay-stale",
        "listReposByCollection names every account that was ever heard of",
    ),
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
