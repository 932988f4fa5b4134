//! Decides what of the log is kept, and for which consumer.
//!
//! A consumer is a reader of the log with a registered position: the index, a recipient of
//! deliveries, the crawler, a backup, or a window of the firehose. It holds back the numbers that it
//! still needs: no row of the log, no superseded record and no withdrawn claim at or above them goes
//! away. A consumer that stops for longer than its hold is overrun: it holds nothing until it
//! moves again, so a dead consumer neither fills the disk nor keeps deleted data.
//!
//! Holds count the time that the store has lived through ([`Lived`]), so a wall clock that is set
//! overruns no consumer.

use std::time::Duration;

use crate::ledger::{Lived, Time};

/// What a consumer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConsumerClass {
    Index,
    Recipient,
    Crawler,
    Backup,
    Window,
}

/// Which consumer: its class, its number there, and the part of its work that has a position of
/// its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey {
    pub class: ConsumerClass,
    pub id: u32,
    pub lane: u64,
}

/// What a consumer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsumerNeeds {
    /// The rows of the log. Records that were superseded meanwhile may be gone.
    Log,
    /// The rows of the log, and each record as an operation put it.
    LogAndVersions,
}

/// For how long a consumer that does not move holds back what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    For(Duration),
    Always,
}

/// When something happened: by the wall clock, for display, and by the time lived through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    pub time: Time,
    pub lived: Lived,
}

/// A consumer of the log, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// The name that operators see.
    pub name: String,
    /// The first number that is not processed yet.
    pub next: u64,
    /// The lowest number that is still needed: `next`, or more if the consumer knows that nothing
    /// before a later number concerns it.
    pub holds_from: u64,
    pub registered: When,
    /// When the position last moved, or was last seen at the head of the log.
    pub moved: When,
    pub hold: Hold,
    pub needs: ConsumerNeeds,
    /// Whether the consumer holds nothing, because it stopped for longer than its hold or the disk
    /// was almost full. The next move ends it.
    pub overrun: bool,
}

/// Why a consumer's position was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    #[error(
        "the position {next} is beyond the head of the log: the next number is {head}. Perhaps the consumer has followed another log"
    )]
    Ahead { next: u64, head: u64 },
    #[error("the position {next} is below the consumer's position {from}; only a seek goes back")]
    Back { next: u64, from: u64 },
    #[error("the consumer needs {holds_from}, which is below its position {next}")]
    NeedsPassed { holds_from: u64, next: u64 },
}

impl Consumer {
    /// Whether the consumer is to be overrun: it has something to read, and has neither moved nor
    /// had nothing to read for longer than its hold. `head`: the number that the log gives next.
    pub fn hold_has_passed(&self, head: u64, lived: Lived) -> bool {
        match self.hold {
            Hold::Always => false,
            Hold::For(hold) => {
                !self.overrun && self.next < head && lived.since(self.moved.lived) > hold
            }
        }
    }

    /// Whether the consumer holds something that the policies would let go.
    pub fn holds_back(&self, policies: Policies) -> bool {
        let versions =
            self.needs == ConsumerNeeds::LogAndVersions && self.holds_from < policies.versions;
        !self.overrun && (versions || self.holds_from < policies.log)
    }

    /// Notes that the consumer has nothing to read, so that its hold begins anew.
    pub fn is_at_head(&mut self, at: When) {
        self.moved = at;
        self.overrun = false;
    }

    /// Moves the position forward, which ends an overrun. A report of the same position is no move: a
    /// consumer that only says where it stands has stopped.
    pub fn advance(
        &mut self,
        next: u64,
        holds_from: u64,
        head: u64,
        at: When,
    ) -> Result<(), PositionError> {
        if next < self.next {
            let from = self.next;
            return Err(PositionError::Back { next, from });
        }
        self.set_position(next, holds_from, head, at)
    }

    /// Sets the position to any number, as an operator orders: that ends an overrun in any case.
    pub fn seek(&mut self, next: u64, head: u64, at: When) -> Result<(), PositionError> {
        self.set_position(next, next, head, at)?;
        self.moved = at;
        self.overrun = false;
        Ok(())
    }

    fn set_position(
        &mut self,
        next: u64,
        holds_from: u64,
        head: u64,
        at: When,
    ) -> Result<(), PositionError> {
        if next.max(holds_from) > head {
            let next = next.max(holds_from);
            return Err(PositionError::Ahead { next, head });
        }
        if holds_from < next {
            return Err(PositionError::NeedsPassed { holds_from, next });
        }
        if (self.next, self.holds_from) != (next, holds_from) {
            (self.next, self.holds_from) = (next, holds_from);
            self.moved = at;
            self.overrun = false;
        }
        Ok(())
    }
}

/// What the operator allows to go, as the first numbers that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Superseded records of lower numbers are older than `keep_versions`.
    pub versions: u64,
    /// Rows of lower numbers are older than `keep_log`; 0 keeps all.
    pub log: u64,
}

impl Policies {
    /// Policies that keep nothing: only consumers hold something back.
    pub const NOTHING: Policies = Policies {
        versions: u64::MAX,
        log: u64::MAX,
    };
}

/// What must stay: everything from these numbers on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Rows of the log below this number may be trimmed.
    pub log: u64,
    /// Records that an operation below this number superseded may go.
    pub versions: u64,
}

/// The numbers from which on the log and superseded records must stay: for every consumer that is
/// not overrun, and by the policies. `head`: the number that the log gives next.
pub fn floor<'a>(
    consumers: impl IntoIterator<Item = &'a Consumer>,
    policies: Policies,
    head: u64,
) -> Floor {
    let mut floor = Floor {
        log: policies.log.min(head),
        versions: policies.versions.min(head),
    };
    for consumer in consumers {
        if consumer.overrun {
            continue;
        }
        floor.log = floor.log.min(consumer.holds_from);
        if consumer.needs == ConsumerNeeds::LogAndVersions {
            floor.versions = floor.versions.min(consumer.holds_from);
        }
    }
    floor
}

/// The consumer that is overrun next while the disk is almost full: of those that hold what the
/// policies would let go, the one that holds the lowest number. `None` if none holds such a thing.
pub fn next_to_overrun<'a>(
    consumers: impl IntoIterator<Item = (ConsumerKey, &'a Consumer)>,
    policies: Policies,
) -> Option<ConsumerKey> {
    let holders = consumers
        .into_iter()
        .filter(|(_, consumer)| consumer.holds_back(policies));
    let lowest = holders.min_by_key(|(key, consumer)| (consumer.holds_from, *key));
    lowest.map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn lived(hours: u64) -> Lived {
        Lived(hours * 3_600_000_000)
    }

    fn when(hours: u64) -> When {
        When {
            time: Time(0),
            lived: lived(hours),
        }
    }

    fn at(next: u64, needs: ConsumerNeeds) -> Consumer {
        Consumer {
            name: "index".to_owned(),
            next,
            holds_from: next,
            registered: when(0),
            moved: when(0),
            hold: Hold::For(HOUR),
            needs,
            overrun: false,
        }
    }

    const ALL: Policies = Policies::NOTHING;

    /// The floors of a log with the head 100.
    fn floors(consumers: &[Consumer], policies: Policies) -> (u64, u64) {
        let floor = floor(consumers, policies, 100);
        (floor.log, floor.versions)
    }

    #[test]
    fn without_consumers_the_policies_decide_up_to_the_head() {
        assert_eq!(floors(&[], ALL), (100, 100));
        let kept = Policies {
            versions: 40,
            log: 30,
        };
        assert_eq!(floors(&[], kept), (30, 40));
        assert_eq!(
            floors(&[at(35, ConsumerNeeds::LogAndVersions)], kept),
            (30, 35)
        );
    }

    #[test]
    fn the_lowest_number_that_a_consumer_needs_stays() {
        let log = at(20, ConsumerNeeds::Log);
        let both = at(50, ConsumerNeeds::LogAndVersions);
        assert_eq!(floors(&[log.clone(), both.clone()], ALL), (20, 50));
        let sparse = Consumer {
            holds_from: 70,
            ..both
        };
        assert_eq!(floors(&[sparse], ALL), (70, 70));
        assert_eq!(floors(&[log], ALL), (20, 100));
    }

    #[test]
    fn a_consumer_that_stops_for_longer_than_its_hold_is_to_be_overrun() {
        let slow = at(20, ConsumerNeeds::LogAndVersions);
        assert!(!slow.hold_has_passed(100, lived(1)), "not longer");
        assert!(slow.hold_has_passed(100, lived(2)));
        let always = Consumer {
            hold: Hold::Always,
            ..slow.clone()
        };
        assert!(!always.hold_has_passed(100, lived(1000)));
        let overrun = Consumer {
            overrun: true,
            ..slow.clone()
        };
        assert!(!overrun.hold_has_passed(100, lived(2)), "it is already");
        assert_eq!(floors(&[slow], ALL), (20, 20), "until it is recorded");
        assert_eq!(floors(&[overrun], ALL), (100, 100));
    }

    #[test]
    fn a_consumer_with_nothing_to_read_waits_for_no_hold() {
        let mut idle = at(100, ConsumerNeeds::Log);
        assert!(!idle.hold_has_passed(100, lived(1000)), "nothing to read");
        assert!(idle.hold_has_passed(101, lived(1000)));
        idle.is_at_head(when(1000));
        assert!(
            !idle.hold_has_passed(101, lived(1001)),
            "its hold begins anew"
        );
        assert!(idle.hold_has_passed(101, lived(1002)));
    }

    #[test]
    fn a_move_ends_an_overrun_and_begins_the_hold_anew() {
        let mut slow = at(20, ConsumerNeeds::LogAndVersions);
        slow.overrun = true;
        assert_eq!(slow.advance(21, 21, 100, when(5)), Ok(()));
        assert_eq!(floors(std::slice::from_ref(&slow), ALL), (21, 21));
        assert!(!slow.hold_has_passed(100, lived(6)));
        assert!(slow.hold_has_passed(100, lived(7)));
    }

    #[test]
    fn a_report_of_the_same_position_is_no_move() {
        let mut stuck = at(20, ConsumerNeeds::Log);
        assert_eq!(stuck.advance(20, 20, 100, when(5)), Ok(()));
        assert_eq!(stuck.moved, when(0));
        assert!(stuck.hold_has_passed(100, lived(5)));
        stuck.overrun = true;
        assert_eq!(stuck.advance(20, 20, 100, when(6)), Ok(()));
        assert!(stuck.overrun);
        assert_eq!(stuck.advance(20, 30, 100, when(7)), Ok(()));
        assert!(!stuck.overrun, "it needs less than before");
        stuck.overrun = true;
        assert_eq!(stuck.seek(20, 100, when(8)), Ok(()));
        assert!(!stuck.overrun, "an operator has ordered it");
    }

    #[test]
    fn a_position_neither_goes_back_nor_beyond_the_head() {
        let mut one = at(20, ConsumerNeeds::Log);
        let before = one.clone();
        let back = PositionError::Back { next: 19, from: 20 };
        assert_eq!(one.advance(19, 19, 100, when(1)), Err(back));
        let ahead = PositionError::Ahead {
            next: 101,
            head: 100,
        };
        assert_eq!(one.advance(101, 101, 100, when(1)), Err(ahead));
        assert_eq!(one.advance(30, 101, 100, when(1)), Err(ahead));
        assert_eq!(one.seek(101, 100, when(1)), Err(ahead));
        let passed = PositionError::NeedsPassed {
            holds_from: 29,
            next: 30,
        };
        assert_eq!(one.advance(30, 29, 100, when(1)), Err(passed));
        assert_eq!(one, before);
        assert_eq!(one.advance(20, 30, 100, when(1)), Ok(()));
        assert_eq!(one.advance(100, 100, 100, when(1)), Ok(()));
        assert_eq!(one.seek(5, 100, when(1)), Ok(()));
        assert_eq!((one.next, one.holds_from), (5, 5));
    }

    #[test]
    fn on_a_full_disk_the_holder_of_the_lowest_number_goes_first() {
        const POLICIES: Policies = Policies {
            versions: 0,
            log: 60,
        };
        let key = |id| ConsumerKey {
            class: ConsumerClass::Recipient,
            id,
            lane: 0,
        };
        let mut all = [
            (key(1), at(30, ConsumerNeeds::Log)),
            (key(2), at(20, ConsumerNeeds::Log)),
            (key(3), at(100, ConsumerNeeds::Log)),
        ];
        let next = |all: &[(ConsumerKey, Consumer)]| {
            next_to_overrun(all.iter().map(|(key, one)| (*key, one)), POLICIES)
        };
        for expected in [Some(key(2)), Some(key(1)), None] {
            assert_eq!(next(&all), expected);
            if let Some((_, one)) = all.iter_mut().find(|(key, _)| Some(*key) == expected) {
                one.overrun = true;
            }
        }
    }

    #[test]
    fn on_a_full_disk_a_consumer_that_holds_nothing_old_is_not_overrun() {
        let policies = Policies {
            versions: 50,
            log: 30,
        };
        let holds_back = |next, needs| at(next, needs).holds_back(policies);
        assert!(holds_back(29, ConsumerNeeds::Log));
        assert!(!holds_back(30, ConsumerNeeds::Log), "the log stays anyway");
        assert!(holds_back(49, ConsumerNeeds::LogAndVersions));
        assert!(!holds_back(50, ConsumerNeeds::LogAndVersions));
    }
}
