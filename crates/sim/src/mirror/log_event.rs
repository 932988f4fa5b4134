//! What happens to the log and to its readers, by name, with a count of how often it happened. A
//! test of something that never happened proves nothing.

use std::collections::BTreeMap;

use gapless_core::ledger::Held;

macro_rules! log_events {
    ($($name:ident $what:literal;)*) => {
        /// Something that happens to the log or to one of its readers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LogEvent { $(#[doc = $what] $name,)* }

        impl LogEvent {
            pub const ALL: &'static [LogEvent] = &[$(LogEvent::$name,)*];

            pub fn what(self) -> &'static str {
                match self { $(LogEvent::$name => $what,)* }
            }
        }
    };
}

log_events! {
    BegunAtOne "a reader begins at the first number";
    BegunByWalk "a reader begins by a walk";
    TrimmedPast "a reader meets the trimmed part of the log, and begins again by a walk";
    CrashedInWalk "a crash comes in the middle of a reader's walk";
    SetBack "a crash sets a reader in the store back, together with its position";
    AheadOfItsRow "a reader outside the store survives a crash ahead of its registered position";
    RegisteredAgain "a crash loses the registration of a reader";
    Sought "an operator sets a reader back";
    Removed "an operator removes a reader";
    HoldPassed "a reader is overrun because its hold has passed";
    DiskAlmostFull "a reader is overrun because the disk is almost full";
    Equal "a reader at the head is compared with the store";
    Trimmed "rows of the log are trimmed";
    TrimHeldBack "a trim leaves rows that a reader needs";
    Expired "superseded records are deleted";
    ExpiryHeldBack "superseded records stay because a reader needs them";
    PurgeBegun "a purge begins";
    PurgeInParts "something happens between two parts of a purge";
    PurgeCrashed "a purge continues after a crash";
    BackDuringPurge "an account comes back while its purge is under way";
    ClaimsPurged "a repository is purged of which only claims or parked frames are stored";
    Redacted "rows of the log are redacted after a purge";
    OwnRowsHeldBack "the rows of a purge stay because a reader has not read them";
    OwnRowsOverdue "the rows of a purge are redacted before every reader has read them";
    PurgeFinished "nothing of a purge is left";
    Damaged "the disk moves a held record to another path";
    DamageRepaired "a damaged repository is fetched again";
    SnapshotReplaced "an interrupted snapshot is replaced by another one";
    ClaimKept "a claim is kept";
    ClaimGaveWay "an older claim gives way to a new one";
    ClaimHeldBack "a claim is not kept because a reader has not read the older ones";
    DiskLies "the disk acknowledges what it has not written";
    NumbersLost "the disk loses numbers of the log that it had acknowledged";
}

/// How often each event happened.
#[derive(Debug, Clone, Default)]
pub struct LogEvents(BTreeMap<LogEvent, u64>);

impl LogEvents {
    pub(crate) fn count(&mut self, event: LogEvent) {
        *self.0.entry(event).or_default() += 1;
    }

    /// Counts what a new row means, if it replaces what the log leads to.
    pub(crate) fn count_change(&mut self, old: &Held, new: &Held) {
        match (old, new) {
            (Held::Applying { target, .. }, Held::Applying { target: other, .. })
            | (Held::Applying { target, .. }, Held::Exactly(other))
                if target != other =>
            {
                self.count(LogEvent::SnapshotReplaced);
            }
            (Held::Damaged { .. }, Held::Exactly(_)) => self.count(LogEvent::DamageRepaired),
            _ => {}
        }
    }

    pub fn times(&self, event: LogEvent) -> u64 {
        self.0.get(&event).copied().unwrap_or(0)
    }

    pub fn iter(&self) -> impl Iterator<Item = (LogEvent, u64)> {
        self.0.iter().map(|(event, times)| (*event, *times))
    }
}
