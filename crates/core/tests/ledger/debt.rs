//! What is owed: generations by tick, backoff, and the bucket for strangers (L4).

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, DebtKind, Work};
use gapless_core::ledger::event::Event;
use gapless_core::ledger::fetch::{HeadAnswer, Next};
use gapless_core::ledger::settings::{
    BACKOFF_FIRST, BACKOFF_LONGEST, STRANGER_REFILL, STRANGER_TOKENS,
};
use gapless_core::ledger::*;

use crate::desk::*;

#[test]
fn a_reason_that_arises_while_work_is_under_way_outlives_it() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &sync(7));
    let note = desk.note();
    desk.told(&note, fetch::HeadAnswer::Head(named(7)));
    desk.event(PDS, &sync(9));
    desk.apply(&note, 7, 7);
    assert!(desk.head_is(7));
    assert_eq!(desk.reasons(), ["newer_commit_known", "fetch_owed"]);
    desk.fetched(9, 9);
    assert!(desk.complete());
}

#[test]
fn a_comparison_pays_what_was_owed_before_it_and_nothing_later() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Unsigned);
    let note = desk.note();
    desk.event(PDS, &Event::Unsigned);
    desk.told(&note, fetch::HeadAnswer::Head(named(5)));
    assert!(desk.reasons().contains(&"compare_owed"));
    desk.compared(5);
    assert!(desk.complete());
}

#[test]
fn a_fetch_owed_for_a_commit_is_paid_when_the_head_becomes_it() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &commit(7));
    assert!(!desk.owes_nothing());
    desk.event(PDS, &commit(6));
    assert!(!desk.owes_nothing(), "not yet that one");
    desk.event(PDS, &commit(7));
    assert!(desk.owes_nothing());
    assert!(desk.complete());
}

#[test]
fn a_fetch_that_is_owed_for_another_reason_is_not_paid_by_a_commit() {
    let mut desk = Desk::holding(5);
    let now = desk.now();
    debt::owe_fetch(now, &mut desk.repo, DebtReason::Operator);
    desk.event(PDS, &sync(6));
    let mut six = head(6);
    six.data = root(5);
    desk.event(
        PDS,
        &Event::Signed {
            head: six,
            before: PriorState::Untold,
            bytes: 1,
        },
    );
    assert_eq!(desk.repo.debt.fetch.unwrap().why, DebtReason::Operator);
    assert_eq!(desk.repo.debt.named, None);
}

#[test]
fn the_directory_is_asked_first_then_the_host() {
    let mut desk = Desk::holding(5);
    let now = desk.now();
    debt::owe_fetch(now, &mut desk.repo, DebtReason::Operator);
    assert_eq!(debt::plan_work(desk.time, &desk.repo), Some(Work::Fetch));
    debt::owe(now, &mut desk.repo, DebtKind::Resolve, DebtReason::Operator);
    assert_eq!(debt::plan_work(desk.time, &desk.repo), Some(Work::Resolve));
    desk.repo.debt = Debt::default();
    debt::owe(now, &mut desk.repo, DebtKind::Compare, DebtReason::Operator);
    assert_eq!(debt::plan_work(desk.time, &desk.repo), Some(Work::Compare));
    desk.repo.host = None;
    assert_eq!(debt::plan_work(desk.time, &desk.repo), Some(Work::Resolve));
}

#[test]
fn failures_wait_longer_and_longer_and_never_give_up() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &sync(7));
    let mut last = Duration::ZERO;
    for attempt in 1..30 {
        let now = desk.now();
        assert_eq!(debt::plan_work(now.time, &desk.repo), Some(Work::Fetch));
        debt::begin_attempt(now, &mut desk.repo);
        debt::attempt_failed(now, &mut desk.repo, None);
        let wait = desk.repo.debt.next_try.since(now.time);
        let whole = BACKOFF_FIRST * 2_u32.pow(attempt.min(12) - 1);
        assert!(wait >= whole.min(BACKOFF_LONGEST) / 2 && wait <= BACKOFF_LONGEST);
        assert!(attempt > 11 || wait > last / 2);
        last = wait;
        assert_eq!(debt::plan_work(now.time, &desk.repo), None);
        desk.pass(wait);
    }
    assert_eq!(desk.repo.debt.attempts, 29);
    assert!(last > BACKOFF_LONGEST / 3);
    desk.fetched(7, 7);
    assert!(desk.complete());
}

#[test]
fn a_host_that_says_when_to_come_again_is_obeyed() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &sync(7));
    let now = desk.now();
    debt::begin_attempt(now, &mut desk.repo);
    debt::attempt_failed(now, &mut desk.repo, Some(Duration::from_secs(7200)));
    assert!(desk.repo.debt.next_try >= now.time.after(Duration::from_secs(7200)));
}

#[test]
fn a_new_reason_does_not_cut_a_backoff_short() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &sync(7));
    for _ in 0..8 {
        let now = desk.now();
        debt::begin_attempt(now, &mut desk.repo);
    }
    let next = desk.repo.debt.next_try;
    desk.event(PDS, &sync(9));
    assert_eq!(desk.repo.debt.next_try, next);
}

#[test]
fn forged_input_however_much_costs_a_bounded_number_of_requests() {
    let mut desk = Desk::holding(5);
    let mut asked = 0;
    let hours = 3;
    for _ in 0..hours * 3600 {
        desk.event(RELAY, &Event::Unsigned);
        let now = desk.now();
        if debt::plan_work(now.time, &desk.repo).is_some() {
            debt::begin_attempt(now, &mut desk.repo);
            asked += 1;
            desk.compared(5);
        }
        desk.pass(Duration::from_secs(1));
    }
    let refilled = hours * 3600 / u32::try_from(STRANGER_REFILL.as_secs()).unwrap();
    assert!(asked <= STRANGER_TOKENS + refilled + 1, "{asked} requests");
    assert!(asked >= refilled, "and it goes on asking: {asked}");
}

#[test]
fn a_flood_from_strangers_does_not_keep_a_repository_incomplete() {
    for (from, flood) in [(RELAY, Event::Unsigned), (OTHER, commit(3))] {
        let mut desk = Desk::holding(5);
        let (mut complete, rounds) = (0, 2000);
        for _ in 0..rounds {
            desk.event(from, &flood);
            let now = desk.now();
            match debt::plan_work(now.time, &desk.repo) {
                Some(Work::Resolve) => {
                    debt::begin_attempt(now, &mut desk.repo);
                    desk.resolved(HOST, 1);
                }
                Some(_) => {
                    debt::begin_attempt(now, &mut desk.repo);
                    desk.compared(5);
                }
                None => {}
            }
            complete += u32::from(desk.complete());
            desk.pass(Duration::from_secs(1));
        }
        assert!(
            complete > rounds * 9 / 10,
            "{from:?}: {complete} of {rounds}"
        );
    }
}

#[test]
fn what_the_owner_signed_does_not_wait_for_the_strangers_bucket() {
    let mut desk = Desk::holding(5);
    for _ in 0..=STRANGER_TOKENS {
        desk.event(PDS, &Event::Unsigned);
        let now = desk.now();
        debt::begin_attempt(now, &mut desk.repo);
        desk.compared(5);
    }
    desk.event(PDS, &Event::Unsigned);
    assert_eq!(
        debt::plan_work(desk.time, &desk.repo),
        None,
        "the bucket is empty"
    );
    desk.event(PDS, &sync(7));
    assert_eq!(debt::plan_work(desk.time, &desk.repo), Some(Work::Fetch));
}

/// Asks all that strangers can make us ask, and one more.
fn empty_the_bucket(desk: &mut Desk) {
    for _ in 0..=STRANGER_TOKENS {
        desk.event(PDS, &Event::Unsigned);
        let now = desk.now();
        debt::begin_attempt(now, &mut desk.repo);
        desk.compared(5);
    }
    desk.event(OTHER, &Event::Identity);
    assert!(desk.owes_nothing(), "the bucket is empty");
}

#[test]
fn whoever_moves_does_not_wait_for_the_strangers_bucket() {
    let mut desk = Desk::holding(5);
    desk.resolved(HOST, 1);
    empty_the_bucket(&mut desk);
    desk.resolved(OTHER_HOST, 2);
    desk.compared(5);
    assert!(desk.owes_nothing());
    // The host that it left closes the account, and it comes back there.
    desk.event(PDS, &Event::Identity);
    assert_eq!(debt::plan_work(desk.time, &desk.repo), Some(Work::Resolve));
    let now = desk.now();
    debt::begin_attempt(now, &mut desk.repo);
    desk.resolved(HOST, 3);
    assert_eq!(desk.repo.host, Some(HOST));
}

#[test]
fn no_move_and_none_that_the_directory_does_not_vouch_for_refills_the_bucket() {
    for (did, host) in [
        ("did:plc:ewvi7nxzyoun6zhxrhs64oiz", HOST),
        ("did:web:example.com", OTHER_HOST),
    ] {
        let mut desk = Desk::holding(5);
        desk.repo.did = Did::parse(did).unwrap();
        desk.resolved(HOST, 1);
        empty_the_bucket(&mut desk);
        desk.resolved(host, 2);
        desk.compared(5);
        desk.event(RELAY, &Event::Identity);
        assert!(desk.owes_nothing(), "{did}");
    }
}

#[test]
fn an_owners_reason_is_not_hidden_behind_a_strangers() {
    let mut desk = Desk::holding(5);
    let now = desk.now();
    debt::owe(now, &mut desk.repo, DebtKind::Compare, DebtReason::Moved);
    let later = desk.now();
    debt::owe(
        later,
        &mut desk.repo,
        DebtKind::Compare,
        DebtReason::Unauthenticated,
    );
    let owed = desk.repo.debt.compare.unwrap();
    assert_eq!((owed.why, owed.at), (DebtReason::Moved, later.tick));
}

/// Owes a fetch, and the host is asked; it is larger than is taken.
fn too_large() -> Desk {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &sync(8));
    let now = desk.now();
    debt::begin_attempt(now, &mut desk.repo);
    debt::put_off_oversized(now, &mut desk.repo, 1000);
    debt::attempt_failed(now, &mut desk.repo, None);
    desk
}

#[test]
fn what_is_too_large_is_fetched_once_a_day_and_says_so() {
    let mut desk = too_large();
    assert_eq!(desk.reasons(), ["newer_commit_known", "too_large"]);
    for _ in 0..23 {
        desk.pass(Duration::from_secs(3600));
        assert_eq!(debt::plan_work(desk.time, &desk.repo), None);
    }
    desk.pass(Duration::from_secs(3601));
    assert_eq!(debt::plan_work(desk.time, &desk.repo), Some(Work::Fetch));
    desk.fetched(8, 8);
    assert!(desk.complete() && desk.repo.debt.oversize.is_none());
}

#[test]
fn what_is_too_large_is_asked_about_and_not_fetched_for_that() {
    let mut desk = too_large();
    // A sweep asks, and others do: a newer head is known, and nothing more.
    for n in 9..20 {
        let note = desk.note();
        let next = desk.told(&note, HeadAnswer::Head(named(n)));
        assert_eq!(next, Next::Done);
        assert_eq!(debt::plan_work(desk.time, &desk.repo), None);
    }
    let now = desk.now();
    debt::owe(
        now,
        &mut desk.repo,
        DebtKind::Compare,
        DebtReason::AccountEvent,
    );
    desk.pass(Duration::from_secs(60));
    assert_eq!(debt::plan_work(desk.time, &desk.repo), Some(Work::Compare));
}

#[test]
fn what_is_too_large_is_tried_at_once_when_more_is_taken_or_somebody_wants_it() {
    let mut desk = too_large();
    let now = desk.now();
    for limit in [999, 1000] {
        assert!(!debt::retry_if_limit_raised(now, &mut desk.repo, limit));
        assert_eq!(debt::plan_work(desk.time, &desk.repo), None);
    }
    assert!(debt::retry_if_limit_raised(now, &mut desk.repo, 1001));
    assert_eq!(debt::plan_work(desk.time, &desk.repo), Some(Work::Fetch));
    let mut desk = too_large();
    let now = desk.now();
    debt::owe_fetch(now, &mut desk.repo, DebtReason::Operator);
    debt::retry_soon(now, &mut desk.repo);
    assert_eq!(debt::plan_work(desk.time, &desk.repo), Some(Work::Fetch));
}
