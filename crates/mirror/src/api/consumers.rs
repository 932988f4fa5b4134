//! Answers about the consumers of the log: where each of them reads, what it holds back, and what
//! its removal lets go.

use gapless_core::ledger::Time;
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold};
use gapless_store::table::audit::{AuditAct, AuditRow};
use serde::{Deserialize, Serialize};

use crate::api::ApiError;
use crate::api::time::{seconds_between, timestamp};

/// The consumers of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConsumersAnswer {
    /// The number that the log gives next.
    pub head: u64,
    /// The first number that is not trimmed.
    pub first: u64,
    pub consumers: Vec<ConsumerAnswer>,
    /// The last orders about consumers and the last overruns, the newest first.
    pub audit: Vec<AuditAnswer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConsumerAnswer {
    pub name: String,
    /// index, recipient, crawler, backup or window.
    pub class: String,
    pub id: u32,
    /// In JSON a string: programs that read numbers as floats would round it.
    #[serde(with = "lane_text")]
    pub lane: u64,
    /// The first number that the consumer has not processed.
    pub next: u64,
    /// The lowest number that the consumer still needs.
    pub holds_from: u64,
    /// Numbers that the consumer has not processed.
    pub behind: u64,
    /// The age of the oldest row that the consumer has not processed; null if there is none.
    pub behind_seconds: Option<u64>,
    /// Numbers that the consumer holds back; 0 while it is overrun.
    pub holds_numbers: u64,
    /// What the consumer holds back: "log" or "log and versions".
    pub needs: String,
    /// For how long the consumer holds back what it needs while it does not move; null: always.
    pub hold_seconds: Option<u64>,
    pub registered_at: Option<String>,
    /// When the position last moved, or was last seen at the head.
    pub moved_at: Option<String>,
    pub overrun: bool,
    /// What no other consumer holds back.
    pub holds_alone: HeldAlone,
}

/// What one consumer holds back and no other does.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HeldAlone {
    /// Rows of the log.
    pub log: Option<HeldNumbers>,
    /// Records that operations with these numbers superseded.
    pub versions: Option<HeldNumbers>,
}

/// Numbers of the log that are held back, from the first to the last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HeldNumbers {
    pub from: u64,
    pub to: u64,
    /// When the first of them was logged.
    pub since: Option<String>,
}

/// An order about a consumer, or an overrun.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditAnswer {
    pub at: Option<String>,
    /// Who gave the order; `gapless` for an overrun.
    pub by: String,
    pub consumer: String,
    /// What happened, as text.
    pub what: String,
}

/// A consumer that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConsumerRemoved {
    /// The consumer as it was.
    pub removed: ConsumerAnswer,
    /// What no consumer holds back any more.
    pub let_go: HeldAlone,
}

/// Which consumer an order is about. Every field that is set must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConsumerSelector {
    pub name: Option<String>,
    pub class: Option<String>,
    pub id: Option<u32>,
    pub lane: Option<u64>,
}

mod lane_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(lane: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(lane)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// The name of a class of consumers in the API.
pub(crate) fn class_name(class: ConsumerClass) -> &'static str {
    match class {
        ConsumerClass::Index => "index",
        ConsumerClass::Recipient => "recipient",
        ConsumerClass::Crawler => "crawler",
        ConsumerClass::Backup => "backup",
        ConsumerClass::Window => "window",
    }
}

impl ConsumerAnswer {
    /// `head`: the number that the log gives next; `unread_since`: when the oldest row was logged
    /// that the consumer has not processed.
    pub(crate) fn new(
        key: ConsumerKey,
        row: &Consumer,
        head: u64,
        unread_since: Option<Time>,
        now: Time,
    ) -> ConsumerAnswer {
        let holds = if row.overrun {
            0
        } else {
            head.saturating_sub(row.holds_from)
        };
        ConsumerAnswer {
            name: row.name.clone(),
            class: class_name(key.class).to_owned(),
            id: key.id,
            lane: key.lane,
            next: row.next,
            holds_from: row.holds_from,
            behind: head.saturating_sub(row.next),
            behind_seconds: unread_since.map(|since| seconds_between(since, now)),
            holds_numbers: holds,
            needs: match row.needs {
                ConsumerNeeds::Log => "log".to_owned(),
                ConsumerNeeds::LogAndVersions => "log and versions".to_owned(),
            },
            hold_seconds: match row.hold {
                Hold::For(hold) => Some(hold.as_secs()),
                Hold::Always => None,
            },
            registered_at: timestamp(row.registered.time),
            moved_at: timestamp(row.moved.time),
            overrun: row.overrun,
            holds_alone: HeldAlone::default(),
        }
    }

    /// The consumer in words that name no other: `index (index, id 0, lane 0)`.
    pub fn full_name(&self) -> String {
        let ConsumerAnswer {
            name,
            class,
            id,
            lane,
            ..
        } = self;
        format!("{name} ({class}, id {id}, lane {lane})")
    }
}

impl AuditAnswer {
    pub(crate) fn new(row: AuditRow) -> AuditAnswer {
        let what = match row.act {
            AuditAct::Sought { from, to } => format!("position set from {from} to {to}"),
            AuditAct::Removed { next } => format!("removed at {next}"),
            AuditAct::Overrun { next, head } => {
                format!("overrun at {next}, with the log at {head}")
            }
        };
        AuditAnswer {
            at: timestamp(row.at),
            by: row.by,
            consumer: row.consumer,
            what,
        }
    }
}

impl ConsumerSelector {
    fn matches(&self, one: &ConsumerAnswer) -> bool {
        self.name.as_ref().is_none_or(|name| *name == one.name)
            && self.class.as_ref().is_none_or(|class| *class == one.class)
            && self.id.is_none_or(|id| id == one.id)
            && self.lane.is_none_or(|lane| lane == one.lane)
    }

    /// Finds the one consumer that matches. The error for none or several lists those that there
    /// are.
    pub fn select<'a>(
        &self,
        consumers: &'a [ConsumerAnswer],
    ) -> Result<&'a ConsumerAnswer, ApiError> {
        let found: Vec<&ConsumerAnswer> =
            consumers.iter().filter(|one| self.matches(one)).collect();
        match found[..] {
            [one] => Ok(one),
            [] if consumers.is_empty() => Err(ApiError::NotFound(format!(
                "there is no consumer {self}: the log has no consumers"
            ))),
            [] => {
                let all = full_names(consumers);
                Err(ApiError::NotFound(format!(
                    "there is no consumer {self}; the consumers are {all}"
                )))
            }
            _ => {
                let all = full_names(found);
                Err(ApiError::Invalid(format!(
                    "{self} names several consumers; add the class, the id or the lane of one: {all}"
                )))
            }
        }
    }
}

/// Consumers that an error lists.
const LISTED_CONSUMERS: usize = 20;

fn full_names<'a>(consumers: impl IntoIterator<Item = &'a ConsumerAnswer>) -> String {
    let names: Vec<String> = consumers
        .into_iter()
        .map(ConsumerAnswer::full_name)
        .collect();
    let more = names.len().saturating_sub(LISTED_CONSUMERS);
    let listed = names[..names.len() - more].join(", ");
    match more {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

impl std::fmt::Display for ConsumerSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            self.name.clone(),
            self.class.as_ref().map(|class| format!("class {class}")),
            self.id.map(|id| format!("id {id}")),
            self.lane.map(|lane| format!("lane {lane}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gapless_core::ledger::Lived;
    use gapless_core::retain::When;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn consumer() -> Consumer {
        let when = When {
            time: Time(5 * SECOND),
            lived: Lived::default(),
        };
        Consumer {
            name: "search".to_owned(),
            next: 40,
            holds_from: 60,
            registered: when,
            moved: when,
            hold: Hold::For(Duration::from_secs(90)),
            needs: ConsumerNeeds::LogAndVersions,
            overrun: false,
        }
    }

    fn answer(id: u32, lane: u64) -> ConsumerAnswer {
        let key = ConsumerKey {
            class: ConsumerClass::Recipient,
            id,
            lane,
        };
        ConsumerAnswer::new(key, &consumer(), 100, None, Time(0))
    }

    #[test]
    fn an_overrun_consumer_is_behind_and_holds_nothing() {
        let mut row = consumer();
        let key = ConsumerKey {
            class: ConsumerClass::Index,
            id: 0,
            lane: 0,
        };
        let unread = Some(Time(10 * SECOND));
        let now = Time(17 * SECOND);
        let told = ConsumerAnswer::new(key, &row, 100, unread, now);
        assert_eq!((told.behind, told.behind_seconds), (60, Some(7)));
        assert_eq!((told.holds_numbers, told.hold_seconds), (40, Some(90)));
        assert_eq!(told.needs, "log and versions");
        row.overrun = true;
        let told = ConsumerAnswer::new(key, &row, 100, unread, now);
        assert_eq!((told.behind, told.holds_numbers), (60, 0));
        assert!(told.overrun);
    }

    #[test]
    fn a_lane_of_any_size_survives_json_as_text() {
        let one = answer(3, u64::MAX);
        let json = serde_json::to_value(&one).expect("it encodes");
        assert_eq!(json["lane"], u64::MAX.to_string());
        let again: ConsumerAnswer = serde_json::from_value(json).expect("it decodes");
        assert_eq!(again, one);
    }

    #[test]
    fn a_name_that_several_consumers_have_needs_the_class_the_id_or_the_lane() {
        let all = [answer(3, 1), answer(3, 2), answer(4, 1)];
        let by_name = ConsumerSelector {
            name: Some("search".to_owned()),
            ..ConsumerSelector::default()
        };
        let error = by_name.select(&all).expect_err("three have it");
        assert!(matches!(error, ApiError::Invalid(_)));
        let text = error.to_string();
        assert!(text.contains("search (recipient, id 3, lane 2)"), "{text}");
        let lane = ConsumerSelector {
            id: Some(3),
            lane: Some(2),
            ..by_name.clone()
        };
        assert_eq!(lane.select(&all), Ok(&all[1]));
        let none = ConsumerSelector {
            class: Some("backup".to_owned()),
            ..by_name.clone()
        };
        let error = none.select(&all).expect_err("none has it");
        assert!(matches!(error, ApiError::NotFound(_)));
        let text = error.to_string();
        assert!(
            text.contains("no consumer search, class backup; "),
            "{text}"
        );
        assert!(text.contains("search (recipient, id 4, lane 1)"), "{text}");
        assert!(by_name.select(&[]).is_err(), "there is none");
        assert_eq!(by_name.select(&all[2..]), Ok(&all[2]));
    }
}
