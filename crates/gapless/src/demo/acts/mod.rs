//! The acts of the fault script: each injects a fault that mirrors are known to fall to, says
//! what it broke, and names the faults that must have fired. The demonstration plays them
//! against a mirror in its process, the tests of the program against `gapless run` over HTTP.
//!
//! A new act is a variant of [`Act`], with its name, its faults and its function, and a place
//! in [`ACTS`]. An act changes only accounts that no other act changes; see [`network::cast`].

mod accounts;
mod fetches;
pub mod network;
mod streams;

use gapless_atp::syntax::Did;
use gapless_testnet::{Fault, Testnet};

use crate::demo::DemoError;
use network::MirroredNetwork;

/// Hosts of a network on which the acts are played.
pub const HOSTS: usize = 3;
/// Accounts of each host to which only the acts write.
pub const CAST: usize = 6;
/// Repositories that a wiped host loses. Fewer than ten could be an accident.
const LOST: usize = 12;
/// Accounts that each host needs: its cast, and those that it can lose.
pub const MIN_ACCOUNTS_PER_HOST: usize = CAST + LOST;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    LostEvent,
    LostDelete,
    CutCar,
    StrangersCar,
    RefusedDials,
    WindowPassed,
    SequenceRestart,
    KeyRotation,
    DirectoryDown,
    Migration,
    WipedHost,
    OldCar,
    ThrottledDials,
    SyncDuringFetch,
    RelayOmission,
    RelayGap,
    RelayRollback,
}

/// All acts, in the order in which they are played.
pub const ACTS: &[Act] = &[
    Act::LostEvent,
    Act::LostDelete,
    Act::CutCar,
    Act::StrangersCar,
    Act::RefusedDials,
    Act::WindowPassed,
    Act::SequenceRestart,
    Act::KeyRotation,
    Act::DirectoryDown,
    Act::Migration,
    Act::WipedHost,
    Act::OldCar,
    Act::ThrottledDials,
    Act::SyncDuringFetch,
    Act::RelayOmission,
    Act::RelayGap,
    Act::RelayRollback,
];

/// What an act broke.
pub struct Breakage {
    /// For people, in a line.
    pub what: String,
    /// The repositories that must be complete at their owners' heads again.
    pub dids: Vec<Did>,
    /// The mirror was restarted meanwhile, and counts from zero.
    pub restarted: bool,
}

impl Breakage {
    fn new(what: impl Into<String>, dids: Vec<Did>) -> Breakage {
        Breakage {
            what: what.into(),
            dids,
            restarted: false,
        }
    }
}

/// What was done to end a fault that does not end by itself.
pub struct Mended {
    pub what: String,
}

impl Act {
    pub fn name(self) -> &'static str {
        match self {
            Act::LostEvent => "event lost, then silence",
            Act::LostDelete => "delete inside a gap",
            Act::CutCar => "repository cut short",
            Act::StrangersCar => "repository signed by a stranger",
            Act::RefusedDials => "stream refused",
            Act::WindowPassed => "cursor window passed while down",
            Act::SequenceRestart => "sequence restart",
            Act::KeyRotation => "key rotation",
            Act::DirectoryDown => "directory down",
            Act::Migration => "migration with missed events",
            Act::WipedHost => "wiped host",
            Act::OldCar => "repository of an older state",
            Act::ThrottledDials => "stream refused, then throttled",
            Act::SyncDuringFetch => "#sync during a fetch",
            Act::RelayOmission => "events left out by a relay",
            Act::RelayGap => "number skipped by a relay",
            Act::RelayRollback => "relay rolled back",
        }
    }

    /// Whether the demonstration plays the act. The tests of the program play all acts.
    pub fn in_demo(self) -> bool {
        let further = [Act::OldCar, Act::ThrottledDials, Act::SyncDuringFetch];
        !further.contains(&self) && !self.needs_relay()
    }

    /// Whether the act is played only if the mirror follows a relay.
    pub fn needs_relay(self) -> bool {
        matches!(
            self,
            Act::RelayOmission | Act::RelayGap | Act::RelayRollback
        )
    }

    /// The faults that must have fired by the end of the act, each with how often at least.
    fn faults(self) -> &'static [(&'static str, u64)] {
        match self {
            Act::LostEvent => &[("drop", 1)],
            Act::LostDelete => &[("drop", 1), ("http-error", 2)],
            Act::CutCar => &[("drop", 1), ("car-cut", 2)],
            Act::StrangersCar => &[("drop", 1), ("car-other-key", 2)],
            Act::RefusedDials => &[("disconnect", 1), ("dial-error", 2)],
            Act::WindowPassed => &[("window", 1)],
            Act::SequenceRestart => &[("seq-restart", 1)],
            Act::KeyRotation => &[("rotate-key", 1)],
            Act::DirectoryDown => &[("plc-down", 2), ("rotate-key", 1)],
            Act::Migration => &[("drop", 1), ("migrate", 1)],
            Act::WipedHost => &[("lost-account", 1)],
            Act::OldCar => &[("drop", 1), ("car-old", 1)],
            Act::ThrottledDials => &[("disconnect", 1), ("dial-error", 3)],
            Act::SyncDuringFetch => &[("drop", 1), ("stall", 1), ("sync", 2)],
            Act::RelayOmission => &[("relay-omit", 1)],
            Act::RelayGap => &[("relay-gap", 1)],
            Act::RelayRollback => &[("relay-rollback", 1), ("disconnect", 1)],
        }
    }

    /// How often each fault of the act has fired so far, for [`Act::check_fired`].
    pub fn fired(self, net: &Testnet) -> Vec<u64> {
        let faults = self.faults().iter();
        faults.map(|(name, _)| net.faults().fired(name)).collect()
    }

    /// Fails unless every fault of the act has fired as often as it must, since `before`.
    pub fn check_fired(self, net: &Testnet, before: &[u64]) -> Result<(), DemoError> {
        let all = self.faults().iter().zip(self.fired(net)).zip(before);
        for (((name, least), fired), before) in all {
            let fired = fired - before;
            if fired < *least {
                let act = self.name();
                let words = format!("{act}: the fault {name} fired {fired} times, not {least}");
                return Err(DemoError::Wrong(words));
            }
        }
        Ok(())
    }

    /// Breaks something, and waits until the mirror has noticed where that is part of the act.
    pub async fn play(self, on: &mut impl MirroredNetwork) -> Result<Breakage, DemoError> {
        match self {
            Act::LostEvent => fetches::lose_event(on.net()),
            Act::LostDelete => fetches::lose_delete(on.net()),
            Act::CutCar => {
                // The difference is fetched first, then the whole: both are cut.
                let words = "a commit is lost, and getRepo ends half way, at a block boundary";
                fetches::spoil(on.net(), (2, 0), Fault::CarCut {}, words)
            }
            Act::StrangersCar => {
                let words = "a commit is lost, and getRepo is whole, but signed by another key";
                fetches::spoil(on.net(), (0, 1), Fault::CarOtherKey {}, words)
            }
            Act::RefusedDials => {
                let words = "a host closes its stream and refuses the next connections with 503; commits go on";
                streams::refuse_dials(on, &[(503, 2)], words).await
            }
            Act::WindowPassed => streams::pass_window(on).await,
            Act::SequenceRestart => streams::restart_sequence(on).await,
            Act::KeyRotation => accounts::rotate_key(on.net()),
            Act::DirectoryDown => accounts::take_directory_down(on).await,
            Act::Migration => accounts::migrate(on.net()),
            Act::WipedHost => accounts::wipe_host(on).await,
            Act::OldCar => {
                let words = "a commit is lost, and getRepo answers with an older state";
                fetches::spoil(on.net(), (1, 1), Fault::CarOld { commits: 1 }, words)
            }
            Act::ThrottledDials => {
                let words =
                    "a host closes its stream and refuses connections with 503, then with 429";
                streams::refuse_dials(on, &[(503, 2), (429, 1)], words).await
            }
            Act::SyncDuringFetch => fetches::sync_during_fetch(on).await,
            Act::RelayOmission => streams::omit_events(on.net()),
            Act::RelayGap => streams::skip_number(on.net()),
            Act::RelayRollback => streams::roll_relay_back(on).await,
        }
    }

    /// Ends what does not end by itself, once the mirror has noticed it.
    pub async fn mend(
        self,
        on: &mut impl MirroredNetwork,
        broken: &Breakage,
    ) -> Result<Option<Mended>, DemoError> {
        let what = match self {
            Act::DirectoryDown => {
                on.net().clear_faults(Some("plc-down"));
                "nothing was believed that could not be checked; the directory is back".to_owned()
            }
            Act::WipedHost => accounts::restore_host(on, &broken.dids).await?,
            Act::RefusedDials | Act::ThrottledDials => {
                streams::until_connected(on).await?;
                return Ok(None);
            }
            Act::WindowPassed => {
                streams::restore_window(on)?;
                return Ok(None);
            }
            _ => return Ok(None),
        };
        Ok(Some(Mended { what }))
    }
}
