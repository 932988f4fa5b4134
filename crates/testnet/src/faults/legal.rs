//! The limits of faults: where each can fire, and how large its numbers may be.
//!
//! A fault that could never fire, or that would only overload the network, is refused
//! when it is set.

use super::kinds::{Fault, Place};
use super::spec::Spec;
use crate::world::ActionError;

/// The highest number at which a wiped stream may begin: numbers stay below 2^53, with
/// room for later events.
const MOST_NEXT_SEQ: u64 = (1 << 53) - (1 << 32);
const MOST_EVENTS: u64 = 100_000_000;
const MOST_COMMITS: u64 = 100_000_000;
const MOST_LISTED: u64 = 100_000_000;
/// The most records that one account gets at once.
pub(crate) const MOST_RECORDS: u64 = 1_000_000;
/// The greatest height of mined keys. Higher keys take hours to mine.
const MOST_HEIGHT: u64 = 12;
const MOST_KEYS: u64 = 1000;
const MOST_MS: u64 = 24 * 60 * 60 * 1000;

/// The kinds of servers where a fault can fire.
struct Sites {
    pds: bool,
    plc: bool,
    relay: bool,
    jetstream: bool,
}

const NOWHERE: Sites = Sites {
    pds: false,
    plc: false,
    relay: false,
    jetstream: false,
};

fn sites(fault: &Fault) -> Sites {
    match fault {
        Fault::HttpError { .. } | Fault::Stall { .. } | Fault::Drip { .. } => Sites {
            pds: true,
            plc: true,
            relay: true,
            jetstream: true,
        },
        Fault::NoPongs {} | Fault::DialError { .. } | Fault::DialSilence { .. } => Sites {
            pds: true,
            relay: true,
            jetstream: true,
            ..NOWHERE
        },
        // On a PDS: what the relay receives from that host.
        Fault::RelayOmit {}
        | Fault::Window { .. }
        | Fault::SeqRestart { .. }
        | Fault::Disconnect {}
        | Fault::Info { .. } => Sites {
            pds: true,
            relay: true,
            ..NOWHERE
        },
        Fault::PlcDown {} | Fault::Plc429 { .. } | Fault::PlcStale { .. } => Sites {
            plc: true,
            ..NOWHERE
        },
        Fault::RelayGap {}
        | Fault::RelayJunk {}
        | Fault::RelayStale {}
        | Fault::RelayRollback { .. } => Sites {
            relay: true,
            ..NOWHERE
        },
        // Events as a PDS sequences them, its responses, its accounts.
        _ => Sites {
            pds: true,
            ..NOWHERE
        },
    }
}

/// The numeric arguments of a fault: name, value, least, most.
fn numbers(fault: &Fault) -> Vec<(&'static str, u64, u64, u64)> {
    match fault {
        Fault::Delay { ms } | Fault::Stall { ms: Some(ms), .. } => vec![("ms", *ms, 0, MOST_MS)],
        Fault::HttpError { status, .. } | Fault::DialError { status } => {
            vec![("status", u64::from(*status), 400, 599)]
        }
        Fault::CarOld { commits }
        | Fault::ListStale { commits }
        | Fault::RevRollback { commits } => {
            vec![("commits", *commits as u64, 0, MOST_COMMITS)]
        }
        Fault::ListShort { keep } => vec![("keep", *keep as u64, 0, MOST_LISTED)],
        Fault::Window { events } | Fault::RelayRollback { events } => {
            vec![("events", *events as u64, 0, MOST_EVENTS)]
        }
        Fault::SeqRestart { next } => vec![("next", *next, 1, MOST_NEXT_SEQ)],
        Fault::HugeRepo { records } => vec![("records", *records as u64, 0, MOST_RECORDS)],
        Fault::DeepKeys { height, keys } => vec![
            ("height", u64::from(*height), 0, MOST_HEIGHT),
            ("keys", *keys as u64, 0, MOST_KEYS),
        ],
        _ => Vec::new(),
    }
}

impl Spec {
    /// Checks that the fault can fire in a network with or without a relay and Jetstream.
    pub fn check(&self, relay: bool, jetstream: bool) -> Result<(), ActionError> {
        let sites = sites(&self.fault);
        let legal = match self.host {
            None => true,
            Some(Place::Pds(_)) => sites.pds,
            Some(Place::Plc) => sites.plc,
            Some(Place::Relay) => sites.relay,
            Some(Place::Jetstream) => sites.jetstream,
        };
        if let (false, Some(place)) = (legal, self.host) {
            return Err(ActionError::WrongPlace(self.fault.name(), place));
        }
        let of_relay = matches!(
            self.fault,
            Fault::RelayOmit {}
                | Fault::RelayGap {}
                | Fault::RelayJunk {}
                | Fault::RelayStale {}
                | Fault::RelayRollback { .. }
        );
        if !relay && (of_relay || self.host == Some(Place::Relay)) {
            return Err(ActionError::NoRelay);
        }
        if !jetstream && self.host == Some(Place::Jetstream) {
            return Err(ActionError::NoJetstream);
        }
        for (argument, value, least, most) in numbers(&self.fault) {
            if !(least..=most).contains(&value) {
                return Err(ActionError::OutOfRange {
                    fault: self.fault.name(),
                    argument,
                    value,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }
}
