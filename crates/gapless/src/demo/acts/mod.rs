//! The acts of the fault script. Each act injects a fault that is known to defeat mirrors,
//! describes what it broke, and names the faults that must have fired. The demonstration plays
//! the acts against a mirror in its process, the tests of the program against `gapless run` over
//! HTTP.
//!
//! A new act is an entry of one of the lists, with a [`Breakage`] and its function in `breakage`.
//! An act breaks only accounts of the cast that no other act breaks; see [`network::cast`].

mod breakage;
pub mod network;

use gapless_atp::syntax::Did;
use gapless_testnet::{Fault, Testnet};

use crate::demo::DemoError;
use network::MirroredNetwork;

/// Hosts of a network on which the acts are played.
pub const HOSTS: usize = 3;
/// Accounts of each host to which only the acts write.
pub(crate) const CAST: usize = 6;
/// Repositories that a wiped host loses. Fewer than ten could be an accident.
const LOST: usize = 12;
/// Accounts that each host needs: its scripted_account, and those that it can lose.
pub(crate) const MIN_ACCOUNTS_PER_HOST: usize = CAST + LOST;

/// What an act breaks. A cast account is given by its host and its number there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breakage {
    LostEvent,
    LostDelete,
    /// A cast account, and the fault that spoils its fetched repository twice.
    SpoiltFetch((usize, usize), Fault),
    /// The HTTP statuses with which dials are refused, and how often each is sent.
    RefusedDials(&'static [(u16, u64)]),
    PassedWindow,
    RestartedSequence,
    RotatedKey,
    DirectoryDown,
    Migration,
    WipedHost,
    SyncDuringFetch,
    OmittedEvents,
    SkippedNumber,
    RelayRollback,
}

#[derive(Debug)]
pub struct Act {
    pub name: &'static str,
    /// A line for people that describes what the act breaks.
    pub what: &'static str,
    /// The faults that must have fired by the end, and the least number of times for each.
    faults: &'static [(&'static str, u64)],
    pub breakage: Breakage,
}

/// The acts of the demonstration, in order. The fault script plays them too.
pub const ACTS: &[Act] = &[
    Act {
        name: "event lost, then silence",
        what: "a commit is lost on its way to us, and nothing follows it",
        faults: &[("drop", 1)],
        breakage: Breakage::LostEvent,
    },
    Act {
        name: "delete inside a gap",
        what: "a delete is lost, a commit follows, and getRepo answers 503 twice",
        faults: &[("drop", 1), ("http-error", 2)],
        breakage: Breakage::LostDelete,
    },
    Act {
        name: "repository cut short",
        what: "a commit is lost, and getRepo ends half way, at a block boundary",
        faults: &[("drop", 1), ("car-cut", 2)],
        breakage: Breakage::SpoiltFetch((2, 0), Fault::CarCut {}),
    },
    Act {
        name: "repository signed by a stranger",
        what: "a commit is lost, and getRepo is whole, but signed by another key",
        faults: &[("drop", 1), ("car-other-key", 2)],
        breakage: Breakage::SpoiltFetch((0, 1), Fault::CarOtherKey {}),
    },
    Act {
        name: "stream refused",
        what: "a host closes its stream and refuses the next connections with 503; commits go on",
        faults: &[("disconnect", 1), ("dial-error", 2)],
        breakage: Breakage::RefusedDials(&[(503, 2)]),
    },
    Act {
        name: "cursor window passed while down",
        what: "the mirror is down, and its host keeps no event of that time",
        faults: &[("window", 1)],
        breakage: Breakage::PassedWindow,
    },
    Act {
        name: "sequence restart",
        what: "a host forgets its numbers and counts from 1 again",
        faults: &[("seq-restart", 1)],
        breakage: Breakage::RestartedSequence,
    },
    Act {
        name: "key rotation",
        what: "an account has a new key, and no event says so; it writes",
        faults: &[("rotate-key", 1)],
        breakage: Breakage::RotatedKey,
    },
    Act {
        name: "directory down",
        what: "the directory answers 503 while an account has a new key and another one is new",
        faults: &[("plc-down", 2), ("rotate-key", 1)],
        breakage: Breakage::DirectoryDown,
    },
    Act {
        name: "migration with missed events",
        what: "an account moves to another host; every event about it is lost",
        faults: &[("drop", 1), ("migrate", 1)],
        breakage: Breakage::Migration,
    },
    Act {
        name: "wiped host",
        what: "a host has lost 12 repositories, and says nothing of it",
        faults: &[("lost-account", 1)],
        breakage: Breakage::WipedHost,
    },
];

/// Acts that only the fault script plays.
pub const FURTHER_ACTS: &[Act] = &[
    Act {
        name: "repository of an older state",
        what: "a commit is lost, and getRepo answers with an older state",
        faults: &[("drop", 1), ("car-old", 1)],
        breakage: Breakage::SpoiltFetch((1, 1), Fault::CarOld { commits: 1 }),
    },
    Act {
        name: "stream refused, then throttled",
        what: "a host closes its stream and refuses connections with 503, then with 429",
        faults: &[("disconnect", 1), ("dial-error", 3)],
        breakage: Breakage::RefusedDials(&[(503, 2), (429, 1)]),
    },
    Act {
        name: "#sync during a fetch",
        what: "a #sync, a commit and a #sync arrive while getRepo is stalled",
        faults: &[("drop", 1), ("stall", 1), ("sync", 2)],
        breakage: Breakage::SyncDuringFetch,
    },
];

/// Acts that the fault script plays if the mirror follows a relay.
pub const RELAY_ACTS: &[Act] = &[
    Act {
        name: "events left out by a relay",
        what: "a relay leaves out the events of an account, and nothing follows them",
        faults: &[("relay-omit", 1)],
        breakage: Breakage::OmittedEvents,
    },
    Act {
        name: "number skipped by a relay",
        what: "a relay gives an event a number and does not send it",
        faults: &[("relay-gap", 1)],
        breakage: Breakage::SkippedNumber,
    },
    Act {
        name: "relay rolled back",
        what: "a relay loses its last 30 events and gives their numbers to others",
        faults: &[("relay-rollback", 1), ("disconnect", 1)],
        breakage: Breakage::RelayRollback,
    },
];

impl Act {
    /// Whether the mirror is restarted during the act, and then counts from zero.
    pub(crate) fn restarts_mirror(&self) -> bool {
        self.breakage == Breakage::PassedWindow
    }

    /// How often each fault of the act has fired so far, for [`Act::check_fired`].
    pub fn fired(&self, net: &Testnet) -> Vec<u64> {
        let faults = self.faults.iter();
        faults.map(|(name, _)| net.faults().fired(name)).collect()
    }

    /// Fails unless every fault of the act has fired often enough since `before`.
    pub fn check_fired(&self, net: &Testnet, before: &[u64]) -> Result<(), DemoError> {
        for (((name, least), fired), before) in self.faults.iter().zip(self.fired(net)).zip(before)
        {
            let fired = fired - before;
            if fired < *least {
                let act = self.name;
                let words = format!("{act}: the fault {name} fired {fired} times, not {least}");
                return Err(DemoError::Wrong(words));
            }
        }
        Ok(())
    }

    /// Breaks something, and waits until the mirror has noticed it where that is part of the
    /// act. Returns the repositories that must be complete at their owners' heads again.
    pub async fn play(&self, on: &mut impl MirroredNetwork) -> Result<Vec<Did>, DemoError> {
        match &self.breakage {
            Breakage::LostEvent => breakage::lose_event(on.net()),
            Breakage::LostDelete => breakage::lose_delete(on.net()),
            Breakage::SpoiltFetch(scripted_account, fault) => {
                breakage::spoil_fetch(on.net(), *scripted_account, fault)
            }
            Breakage::RefusedDials(refusals) => breakage::refuse_dials(on, refusals).await,
            Breakage::PassedWindow => breakage::pass_window(on).await,
            Breakage::RestartedSequence => breakage::restart_sequence(on).await,
            Breakage::RotatedKey => breakage::rotate_key(on.net()),
            Breakage::DirectoryDown => breakage::take_directory_down(on).await,
            Breakage::Migration => breakage::migrate(on.net()),
            Breakage::WipedHost => breakage::wipe_host(on).await,
            Breakage::SyncDuringFetch => breakage::sync_during_fetch(on).await,
            Breakage::OmittedEvents => breakage::omit_events(on.net()),
            Breakage::SkippedNumber => breakage::skip_number(on.net()),
            Breakage::RelayRollback => breakage::roll_relay_back(on).await,
        }
    }

    /// Ends a fault that does not end by itself, and describes that; `None` for all other acts.
    pub async fn mend(
        &self,
        on: &mut impl MirroredNetwork,
        broken: &[Did],
    ) -> Result<Option<String>, DemoError> {
        match self.breakage {
            Breakage::DirectoryDown => {
                on.net().clear_faults(Some("plc-down"));
                let what = "nothing was believed that could not be checked; the directory is back";
                Ok(Some(what.to_owned()))
            }
            Breakage::WipedHost => breakage::restore_host(on, broken).await.map(Some),
            _ => Ok(None),
        }
    }
}
