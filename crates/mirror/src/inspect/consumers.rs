//! The consumers of the log: where each of them reads, what it holds back, and what of that no
//! other consumer holds.

use gapless_core::ledger::Time;
use gapless_core::retain::{self, Consumer, ConsumerKey, ConsumerNeeds, Floor, Policies};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;

use crate::api::{ApiError, AuditAnswer, ConsumerAnswer, ConsumersAnswer, HeldNumbers, timestamp};
use crate::services::Services;

/// Orders and overruns that an answer lists.
const LISTED_AUDIT_ROWS: usize = 20;

/// The consumers, and the last rows of the audit.
pub(crate) fn consumers_answer(services: &Services) -> Result<ConsumersAnswer, ApiError> {
    let view = services.store.view();
    let audit = view.audit(0).rev().take(LISTED_AUDIT_ROWS);
    let audit = audit.map(|row| Ok(AuditAnswer::new(row?.1)));
    let audit = audit.collect::<Result<_, StoreError>>()?;
    let consumers = consumer_answers(&view, services.clock.time())?;
    Ok(ConsumersAnswer {
        head: view.counters()?.next_seq,
        first: view.first_log_number()?,
        consumers: consumers.into_iter().map(|(_, answer)| answer).collect(),
        audit,
    })
}

/// The answer about each consumer, in the order of their keys.
pub(crate) fn consumer_answers(
    view: &ReadView,
    now: Time,
) -> Result<Vec<(ConsumerKey, ConsumerAnswer)>, StoreError> {
    let rows = view.consumers()?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let head = view.counters()?.next_seq;
    let first = view.first_log_number()?;
    let log = held_alone(rows.iter(), head, |floor| floor.log);
    let log = log.map(|(key, from, below)| (key, from.max(first), below));
    let with_versions = rows
        .iter()
        .filter(|(_, row)| row.needs == ConsumerNeeds::LogAndVersions);
    let versions = held_alone(with_versions, head, |floor| floor.versions);
    let numbers = |held: Option<(ConsumerKey, u64, u64)>, key: ConsumerKey| match held {
        Some((holder, from, below)) if holder == key && from < below => Ok(Some(HeldNumbers {
            from,
            to: below - 1,
            since: logged_at(view, from)?.and_then(timestamp),
        })),
        _ => Ok::<_, StoreError>(None),
    };
    let mut answers = Vec::new();
    for (key, row) in &rows {
        let unread_since = if row.next < head {
            logged_at(view, row.next)?
        } else {
            None
        };
        let mut answer = ConsumerAnswer::new(*key, row, head, unread_since, now);
        answer.holds_alone.log = numbers(log, *key)?;
        answer.holds_alone.versions = numbers(versions, *key)?;
        answers.push((*key, answer));
    }
    Ok(answers)
}

/// The consumer that holds the lowest number, and the numbers that it holds and no other consumer
/// does: from the first to below the second. Removing any other consumer releases nothing.
fn held_alone<'a>(
    rows: impl Iterator<Item = (&'a ConsumerKey, &'a Consumer)> + Clone,
    head: u64,
    floor_of: fn(Floor) -> u64,
) -> Option<(ConsumerKey, u64, u64)> {
    let all = Policies {
        versions: head,
        log: head,
    };
    let lowest = retain::next_to_overrun(rows.clone().map(|(key, row)| (*key, row)), all)?;
    let others = rows.clone().filter(|(key, _)| **key != lowest);
    let with = retain::floor(rows.map(|(_, row)| row), Policies::NOTHING, head);
    let without = retain::floor(others.map(|(_, row)| row), Policies::NOTHING, head);
    Some((lowest, floor_of(with), floor_of(without)))
}

/// When a number was logged; of a number that is trimmed, when the last trimmed row was.
fn logged_at(view: &ReadView, number: u64) -> Result<Option<Time>, StoreError> {
    let row = view.log_summaries(number)?.next().transpose()?;
    Ok(row.map(|(_, row)| row.time_in_order()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use gapless_core::retain::{ConsumerClass, Hold, When};

    use super::*;

    fn consumers(all: &[(u64, ConsumerNeeds, bool)]) -> BTreeMap<ConsumerKey, Consumer> {
        let row = |(id, (holds_from, needs, overrun)): (u32, &(u64, ConsumerNeeds, bool))| {
            let key = ConsumerKey {
                class: ConsumerClass::Recipient,
                id,
                lane: 0,
            };
            let row = Consumer {
                name: id.to_string(),
                next: *holds_from,
                holds_from: *holds_from,
                registered: When::default(),
                moved: When::default(),
                hold: Hold::For(Duration::from_secs(1)),
                needs: *needs,
                overrun: *overrun,
            };
            (key, row)
        };
        (0..).zip(all).map(row).collect()
    }

    /// The id of the consumer that alone holds back rows of the log, and which.
    fn alone(all: &[(u64, ConsumerNeeds, bool)]) -> Option<(u32, u64, u64)> {
        let rows = consumers(all);
        let held = held_alone(rows.iter(), 100, |floor| floor.log);
        held.map(|(key, from, below)| (key.id, from, below))
    }

    #[test]
    fn a_consumer_holds_alone_what_lies_below_all_others() {
        use ConsumerNeeds::{Log, LogAndVersions};
        assert_eq!(alone(&[]), None);
        assert_eq!(alone(&[(100, Log, false)]), None, "at the head");
        assert_eq!(alone(&[(30, Log, false)]), Some((0, 30, 100)));
        let two = [(30, Log, false), (20, LogAndVersions, false)];
        assert_eq!(alone(&two), Some((1, 20, 30)));
        let overrun = [(30, Log, false), (20, Log, true)];
        assert_eq!(alone(&overrun), Some((0, 30, 100)), "it holds nothing");
        let same = [(20, Log, false), (20, Log, false)];
        assert_eq!(alone(&same), Some((0, 20, 20)), "none holds it alone");
    }
}
