//! Tests debts: generations by tick, backoff, and the bucket for strangers (L4).

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, DebtKind, Work};
use gapless_core::ledger::event::Event;
use gapless_core::ledger::fetch::{HeadAnswer, Next};
use gapless_core::ledger::settings::{
    BACKOFF_FIRST, BACKOFF_LONGEST, STRANGER_REFILL, STRANGER_TOKENS,
};
use gapless_core::ledger::*;

use crate::scenario::*;

#[test]
fn a_reason_that_arises_while_work_is_under_way_outlives_it() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &sync(7));
    let note = scenario.note();
    scenario.told(&note, fetch::HeadAnswer::Head(named(7)));
    scenario.event(PDS, &sync(9));
    scenario.apply(&note, 7, 7);
    assert!(scenario.head_is(7));
    assert_eq!(scenario.reasons(), ["newer_commit_known", "fetch_owed"]);
    scenario.fetched(9, 9);
    assert!(scenario.complete());
}

#[test]
fn a_comparison_pays_what_was_owed_before_it_and_nothing_later() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Unsigned);
    let note = scenario.note();
    scenario.event(PDS, &Event::Unsigned);
    scenario.told(&note, fetch::HeadAnswer::Head(named(5)));
    assert!(scenario.reasons().contains(&"compare_owed"));
    scenario.compared(5);
    assert!(scenario.complete());
}

#[test]
fn a_fetch_owed_for_a_commit_is_paid_when_the_head_becomes_it() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(7));
    assert!(!scenario.owes_nothing());
    scenario.event(PDS, &commit(6));
    assert!(!scenario.owes_nothing(), "not yet that one");
    scenario.event(PDS, &commit(7));
    assert!(scenario.owes_nothing());
    assert!(scenario.complete());
}

#[test]
fn a_fetch_that_is_owed_for_another_reason_is_not_paid_by_a_commit() {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now();
    debt::owe_fetch(now, &mut scenario.repo, DebtReason::Operator);
    scenario.event(PDS, &sync(6));
    let mut six = head(6);
    six.data = root(5);
    scenario.event(
        PDS,
        &Event::Signed {
            head: six,
            before: PriorState::Untold,
            bytes: 1,
        },
    );
    assert_eq!(scenario.repo.debt.fetch.unwrap().why, DebtReason::Operator);
    assert_eq!(scenario.repo.debt.named, None);
}

#[test]
fn the_directory_is_asked_first_then_the_host() {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now();
    debt::owe_fetch(now, &mut scenario.repo, DebtReason::Operator);
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(Work::Fetch)
    );
    debt::owe(
        now,
        &mut scenario.repo,
        DebtKind::Resolve,
        DebtReason::Operator,
    );
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(Work::Resolve)
    );
    scenario.repo.debt = Debt::default();
    debt::owe(
        now,
        &mut scenario.repo,
        DebtKind::Compare,
        DebtReason::Operator,
    );
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(Work::Compare)
    );
    scenario.repo.host = None;
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(Work::Resolve)
    );
}

#[test]
fn failures_wait_longer_and_longer_and_never_give_up() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &sync(7));
    let mut last = Duration::ZERO;
    for attempt in 1..30 {
        let now = scenario.now();
        assert_eq!(debt::plan_work(now.time, &scenario.repo), Some(Work::Fetch));
        debt::begin_attempt(now, &mut scenario.repo);
        debt::attempt_failed(now, &mut scenario.repo, None);
        let wait = scenario.repo.debt.next_try.since(now.time);
        let whole = BACKOFF_FIRST * 2_u32.pow(attempt.min(12) - 1);
        assert!(wait >= whole.min(BACKOFF_LONGEST) / 2 && wait <= BACKOFF_LONGEST);
        assert!(attempt > 11 || wait > last / 2);
        last = wait;
        assert_eq!(debt::plan_work(now.time, &scenario.repo), None);
        scenario.pass(wait);
    }
    assert_eq!(scenario.repo.debt.attempts, 29);
    assert!(last > BACKOFF_LONGEST / 3);
    scenario.fetched(7, 7);
    assert!(scenario.complete());
}

#[test]
fn a_host_that_says_when_to_come_again_is_obeyed() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &sync(7));
    let now = scenario.now();
    debt::begin_attempt(now, &mut scenario.repo);
    debt::attempt_failed(now, &mut scenario.repo, Some(Duration::from_secs(7200)));
    assert!(scenario.repo.debt.next_try >= now.time.after(Duration::from_secs(7200)));
}

#[test]
fn a_new_reason_does_not_cut_a_backoff_short() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &sync(7));
    for _ in 0..8 {
        let now = scenario.now();
        debt::begin_attempt(now, &mut scenario.repo);
    }
    let next = scenario.repo.debt.next_try;
    scenario.event(PDS, &sync(9));
    assert_eq!(scenario.repo.debt.next_try, next);
}

#[test]
fn forged_input_however_much_costs_a_bounded_number_of_requests() {
    let mut scenario = Scenario::holding(5);
    let mut asked = 0;
    let hours = 3;
    for _ in 0..hours * 3600 {
        scenario.event(RELAY, &Event::Unsigned);
        let now = scenario.now();
        if debt::plan_work(now.time, &scenario.repo).is_some() {
            debt::begin_attempt(now, &mut scenario.repo);
            asked += 1;
            scenario.compared(5);
        }
        scenario.pass(Duration::from_secs(1));
    }
    let refilled = hours * 3600 / u32::try_from(STRANGER_REFILL.as_secs()).unwrap();
    assert!(asked <= STRANGER_TOKENS + refilled + 1, "{asked} requests");
    assert!(asked >= refilled, "and it goes on asking: {asked}");
}

#[test]
fn a_flood_from_strangers_does_not_keep_a_repository_incomplete() {
    for (from, flood) in [(RELAY, Event::Unsigned), (OTHER, commit(3))] {
        let mut scenario = Scenario::holding(5);
        let (mut complete, rounds) = (0, 2000);
        for _ in 0..rounds {
            scenario.event(from, &flood);
            let now = scenario.now();
            match debt::plan_work(now.time, &scenario.repo) {
                Some(Work::Resolve) => {
                    debt::begin_attempt(now, &mut scenario.repo);
                    scenario.resolved(HOST, 1);
                }
                Some(_) => {
                    debt::begin_attempt(now, &mut scenario.repo);
                    scenario.compared(5);
                }
                None => {}
            }
            complete += u32::from(scenario.complete());
            scenario.pass(Duration::from_secs(1));
        }
        assert!(
            complete > rounds * 9 / 10,
            "{from:?}: {complete} of {rounds}"
        );
    }
}

#[test]
fn what_the_owner_signed_does_not_wait_for_the_strangers_bucket() {
    let mut scenario = Scenario::holding(5);
    for _ in 0..=STRANGER_TOKENS {
        scenario.event(PDS, &Event::Unsigned);
        let now = scenario.now();
        debt::begin_attempt(now, &mut scenario.repo);
        scenario.compared(5);
    }
    scenario.event(PDS, &Event::Unsigned);
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        None,
        "the bucket is empty"
    );
    scenario.event(PDS, &sync(7));
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(Work::Fetch)
    );
}

/// Asks all that strangers can make us ask, and one more.
fn empty_the_bucket(scenario: &mut Scenario) {
    for _ in 0..=STRANGER_TOKENS {
        scenario.event(PDS, &Event::Unsigned);
        let now = scenario.now();
        debt::begin_attempt(now, &mut scenario.repo);
        scenario.compared(5);
    }
    scenario.event(OTHER, &Event::Identity);
    assert!(scenario.owes_nothing(), "the bucket is empty");
}

#[test]
fn a_moved_repository_does_not_wait_for_the_strangers_bucket() {
    let mut scenario = Scenario::holding(5);
    scenario.resolved(HOST, 1);
    empty_the_bucket(&mut scenario);
    scenario.resolved(OTHER_HOST, 2);
    scenario.compared(5);
    assert!(scenario.owes_nothing());
    // The host that it left closes the account, and it comes back there.
    scenario.event(PDS, &Event::Identity);
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(Work::Resolve)
    );
    let now = scenario.now();
    debt::begin_attempt(now, &mut scenario.repo);
    scenario.resolved(HOST, 3);
    assert_eq!(scenario.repo.host, Some(HOST));
}

#[test]
fn no_move_and_none_that_the_directory_does_not_vouch_for_refills_the_bucket() {
    for (did, host) in [
        ("did:plc:ewvi7nxzyoun6zhxrhs64oiz", HOST),
        ("did:web:example.com", OTHER_HOST),
    ] {
        let mut scenario = Scenario::holding(5);
        scenario.repo.did = Did::parse(did).unwrap();
        scenario.resolved(HOST, 1);
        empty_the_bucket(&mut scenario);
        scenario.resolved(host, 2);
        scenario.compared(5);
        scenario.event(RELAY, &Event::Identity);
        assert!(scenario.owes_nothing(), "{did}");
    }
}

#[test]
fn an_owners_reason_is_not_hidden_behind_a_strangers() {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now();
    debt::owe(
        now,
        &mut scenario.repo,
        DebtKind::Compare,
        DebtReason::Moved,
    );
    let later = scenario.now();
    debt::owe(
        later,
        &mut scenario.repo,
        DebtKind::Compare,
        DebtReason::Unauthenticated,
    );
    let owed = scenario.repo.debt.compare.unwrap();
    assert_eq!((owed.why, owed.at), (DebtReason::Moved, later.tick));
}

/// Owes a fetch, and the host is asked; it is larger than is taken.
fn too_large() -> Scenario {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &sync(8));
    let now = scenario.now();
    debt::begin_attempt(now, &mut scenario.repo);
    debt::put_off_oversized(now, &mut scenario.repo, 1000);
    debt::attempt_failed(now, &mut scenario.repo, None);
    scenario
}

#[test]
fn what_is_too_large_is_fetched_once_a_day_and_says_so() {
    let mut scenario = too_large();
    assert_eq!(scenario.reasons(), ["newer_commit_known", "too_large"]);
    for _ in 0..23 {
        scenario.pass(Duration::from_secs(3600));
        assert_eq!(debt::plan_work(scenario.time, &scenario.repo), None);
    }
    scenario.pass(Duration::from_secs(3601));
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(Work::Fetch)
    );
    scenario.fetched(8, 8);
    assert!(scenario.complete() && scenario.repo.debt.oversize.is_none());
}

#[test]
fn what_is_too_large_is_asked_about_and_not_fetched_for_that() {
    let mut scenario = too_large();
    // A sweep asks, and others do: a newer head is known, and nothing more.
    for n in 9..20 {
        let note = scenario.note();
        let next = scenario.told(&note, HeadAnswer::Head(named(n)));
        assert_eq!(next, Next::Done);
        assert_eq!(debt::plan_work(scenario.time, &scenario.repo), None);
    }
    let now = scenario.now();
    debt::owe(
        now,
        &mut scenario.repo,
        DebtKind::Compare,
        DebtReason::AccountEvent,
    );
    scenario.pass(Duration::from_secs(60));
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(Work::Compare)
    );
}

#[test]
fn what_is_too_large_is_tried_at_once_on_a_raised_limit_or_an_order() {
    let mut scenario = too_large();
    let now = scenario.now();
    for limit in [999, 1000] {
        assert!(!debt::retry_if_limit_raised(now, &mut scenario.repo, limit));
        assert_eq!(debt::plan_work(scenario.time, &scenario.repo), None);
    }
    assert!(debt::retry_if_limit_raised(now, &mut scenario.repo, 1001));
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(Work::Fetch)
    );
    let mut scenario = too_large();
    let now = scenario.now();
    debt::owe_fetch(now, &mut scenario.repo, DebtReason::Operator);
    debt::retry_soon(now, &mut scenario.repo);
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(Work::Fetch)
    );
}
