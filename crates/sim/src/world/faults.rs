//! The faults of the world, by name, with a count of how often each has fired. A test of a
//! fault that never fired proves nothing.

use std::collections::BTreeMap;

use crate::rng::Rng;

macro_rules! faults {
    ($($name:ident $per_mille:literal $what:literal;)*) => {
        /// One way to misbehave.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault { $(#[doc = $what] $name,)* }

        impl Fault {
            pub const ALL: &'static [Fault] = &[$(Fault::$name,)*];

            /// The probability per thousand occasions, if the fault is switched on.
            fn per_mille(self) -> u32 {
                match self { $(Fault::$name => $per_mille,)* }
            }

            pub fn what(self) -> &'static str {
                match self { $(Fault::$name => $what,)* }
            }
        }
    };
}

faults! {
    StaleRepo 250 "getRepo serves an older commit";
    CutRepo 60 "getRepo serves a file that lacks a record";
    StrangersRepo 40 "getRepo serves a whole file that its owner did not sign";
    DifferenceLacks 150 "getRepo?since= leaves an operation out";
    DifferenceEmpty 100 "getRepo?since= brings nothing";
    DifferenceFromElsewhere 150 "getRepo?since= serves the difference since another rev";
    StaleHead 120 "getLatestCommit names an older commit";
    StaleListing 300 "the listing is not brought up to date after a commit";
    EmptyListing 700 "after a migration the listing names the empty repository";
    ShortListing 60 "a repository is missing from the listing";
    HttpFailure 100 "a request fails";
    DirectoryFailure 120 "the directory does not answer";
    DirectoryStale 500 "after a change the directory answers the old document for a while";
    DialFailure 150 "the WebSocket dial is answered with an HTTP error";
    ConnectionLost 1000 "a connection breaks";
    SilentSocket 80 "a connection stays open and delivers nothing more";
    WindowPassed 1000 "the host forgets events that we have not read";
    Restart 1000 "a host restarts its sequence numbers";
    RestartPastUs 350 "a host restarts its sequence numbers beyond the mirror's cursor";
    InfoAnyTime 15 "a host sends #info OutdatedCursor in the middle of a stream";
    Duplicate 30 "a frame comes twice";
    Backward 25 "an old frame comes again with its old number";
    Swapped 60 "two events of a repository come in the wrong order";
    Omitted 90 "a host leaves an event out and says nothing";
    Phantom 1000 "a host sends a commit and then loses it";
    Rollback 1000 "a host is restored from an older backup";
    Migration 1000 "an account moves to another host";
    LateWrite 300 "the old host takes a write after the export";
    KeyChange 1000 "the owner's key changes";
    OldKeyHead 400 "after a key change the head stays signed with the old key";
    SyncEvent 1000 "a host sends #sync";
    TooBig 60 "a commit is too big to list its operations";
    Legacy 80 "a commit comes without prevData";
    EmptyCommit 60 "a commit changes nothing";
    OpLeftOut 40 "a signed commit lacks one of its operations";
    Garbage 40 "only the DID of a frame can be read";
    Unreadable 20 "not even the DID of a frame can be read";
    Forged 1000 "a stream has a commit that the owner did not sign";
    Misrouted 1000 "a host sends an event of an account that does not live there";
    AccountChange 1000 "an account's state changes";
    AccountLost 200 "the event of an account's new state is left out";
    Deleted 150 "an account is deleted";
    Forgotten 500 "a host no longer knows an account that was deleted";
    Vanished 1000 "a repository vanishes from its host";
    Wiped 1000 "a host loses everything";
    RelayOmits 60 "a relay leaves an event out";
    RelaySkips 400 "a relay forgets its window and says nothing";
    RelayRollback 1000 "a relay is restored from an older backup";
    RelaySlanders 1000 "a relay calls an account deleted that is not";
    RelayMissed 1000 "a relay was disconnected while a host's window passed";
    Overflow 1000 "a queue of the mirror overflows";
    Crash 1000 "the mirror is killed and loses unsynced writes";
    UpstreamAdded 1000 "an upstream is added";
    UpstreamRemoved 1000 "an upstream is removed";
    FilterChanged 1000 "the mirror starts again with another filter";
    Imported 1000 "an operator imports a repository from a file";
    ParkedDamaged 1000 "the disk loses the bytes of a parked frame";
}

/// The faults that are switched on, and how often each has fired.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    on: BTreeMap<Fault, ()>,
    forced: BTreeMap<Fault, u32>,
    fired: BTreeMap<Fault, u64>,
}

impl Faults {
    /// No faults except forced ones.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// A random subset of the faults, because some combinations never occur when all are on.
    pub fn some(rng: &mut Rng) -> Faults {
        let mut faults = Faults::none();
        let share = rng.between(150, 750) as u32;
        for fault in Fault::ALL {
            if rng.per_mille(share) {
                faults.on.insert(*fault, ());
            }
        }
        faults
    }

    pub(crate) fn switch_on(&mut self, fault: Fault) {
        self.on.insert(fault, ());
    }

    pub(crate) fn is_on(&self, fault: Fault) -> bool {
        self.on.contains_key(&fault)
    }

    /// Switches all faults off.
    pub fn heal(&mut self) {
        self.on.clear();
        self.forced.clear();
    }

    /// Makes a fault fire at its next `times` occasions.
    pub fn force(&mut self, fault: Fault, times: u32) {
        *self.forced.entry(fault).or_default() += times;
    }

    /// Whether the fault fires now.
    pub(crate) fn strikes(&mut self, fault: Fault, rng: &mut Rng) -> bool {
        if let Some(times) = self.forced.get_mut(&fault)
            && *times > 0
        {
            *times -= 1;
            self.count(fault);
            return true;
        }
        let strikes = self.is_on(fault) && rng.per_mille(fault.per_mille());
        if strikes {
            self.count(fault);
        }
        strikes
    }

    pub fn count(&mut self, fault: Fault) {
        *self.fired.entry(fault).or_default() += 1;
    }

    pub fn fired(&self) -> &BTreeMap<Fault, u64> {
        &self.fired
    }
}
