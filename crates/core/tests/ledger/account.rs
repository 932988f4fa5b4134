//! Account states.

use std::time::Duration;

use gapless_core::ledger::account;
use gapless_core::ledger::debt;
use gapless_core::ledger::event::Event;
use gapless_core::ledger::fetch::{HeadAnswer, Next};
use gapless_core::ledger::sweep;
use gapless_core::ledger::*;

use crate::desk::*;

const GRACE: Duration = Duration::from_secs(3600);

fn purge_due(desk: &mut Desk) -> bool {
    desk.pass(GRACE);
    account::is_purge_due(desk.time, &desk.repo, GRACE)
}

#[test]
fn every_inactive_state_hides_at_once() {
    for state in [
        Account::Deactivated,
        Account::Suspended,
        Account::Takendown,
        Account::Deleted,
    ] {
        let mut desk = Desk::holding(5);
        desk.event(PDS, &Event::Account(state));
        assert_eq!(desk.repo.account, state);
        // A host closes the account of whoever leaves it.
        assert_eq!(desk.reasons(), ["inactive", "resolve_owed"]);
        assert!(desk.head_is(5), "hidden, not gone");
        desk.resolved(HOST, 2);
        let note = desk.note();
        desk.told(&note, HeadAnswer::State(state));
        assert_eq!(desk.reasons(), ["inactive"]);
    }
}

#[test]
fn who_was_closed_by_the_host_that_it_left_is_asked_for_at_the_new_one() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Account(Account::Deactivated));
    desk.resolved(OTHER_HOST, 2);
    assert_eq!(desk.repo.host, Some(OTHER_HOST));
    assert!(desk.repo.debt.compare.is_some());
    desk.compared(5);
    assert_eq!(desk.repo.account, Account::Active);
    assert!(desk.complete(), "{:?}", desk.reasons());
}

#[test]
fn a_host_that_opens_and_closes_an_account_at_will_makes_us_ask_so_often_and_no_more() {
    let mut desk = Desk::holding(5);
    let mut asked = 0;
    for version in 2..1_000 {
        desk.event(PDS, &Event::Account(Account::Deactivated));
        let now = desk.now();
        if desk.repo.debt.is_due(now.time) {
            debt::begin_attempt(now, &mut desk.repo);
            asked += 1;
        }
        desk.resolved(HOST, version);
        let state = HeadAnswer::State(Account::Deactivated);
        let note = desk.note();
        desk.told(&note, state);
        desk.repo.account = Account::Active;
    }
    assert!((1..100).contains(&asked), "{asked} questions");
}

#[test]
fn active_again_is_not_complete_until_the_head_was_compared() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Account(Account::Deactivated));
    desk.resolved(HOST, 2);
    let note = desk.note();
    desk.event(PDS, &Event::Account(Account::Active));
    assert_eq!(desk.reasons(), ["not_compared", "compare_owed"]);
    // An answer to a question of before does not count.
    desk.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(desk.reasons(), ["not_compared", "compare_owed"]);
    desk.compared(5);
    assert!(desk.complete());
}

#[test]
fn from_anyone_but_the_cover_it_only_makes_us_ask() {
    let mut desk = Desk::holding(5);
    desk.event(RELAY, &Event::Account(Account::Deleted));
    assert_eq!(desk.repo.account, Account::Active);
    assert_eq!(desk.reasons(), ["compare_owed"]);
}

#[test]
fn that_the_host_which_it_left_has_closed_it_is_no_news() {
    for (told, asks) in [
        (Account::Deactivated, false),
        (Account::Deleted, false),
        (Account::Active, true),
    ] {
        let mut desk = Desk::holding(5);
        desk.event(OTHER, &Event::Account(told));
        assert_eq!(desk.repo.account, Account::Active);
        assert_eq!(desk.repo.debt.resolve.is_some(), asks, "{told:?}");
    }
}

#[test]
fn deleted_by_its_own_host_is_purged_after_the_grace() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Account(Account::Deleted));
    desk.resolved(HOST, 0);
    assert!(!account::is_purge_due(desk.time, &desk.repo, GRACE));
    assert!(purge_due(&mut desk));
    desk.event(PDS, &Event::Account(Account::Active));
    assert!(!purge_due(&mut desk), "it came back");
}

#[test]
fn what_its_host_deleted_stays_deleted_though_the_host_knows_it_no_more() {
    for asked_before in [true, false] {
        let mut desk = Desk::holding(5);
        let before = desk.note();
        desk.event(PDS, &Event::Account(Account::Deleted));
        let after = desk.note();
        let note = if asked_before { before } else { after };
        desk.told(&note, HeadAnswer::State(Account::NotFound));
        assert_eq!(desk.repo.account, Account::Deleted);
        desk.resolved(HOST, 0);
        assert!(desk.owes_nothing());
        assert!(purge_due(&mut desk));
    }
}

#[test]
fn what_may_live_elsewhere_is_not_purged_before_that_is_known() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Account(Account::Deleted));
    assert!(desk.repo.debt.resolve.is_some(), "does it live elsewhere?");
    assert!(!purge_due(&mut desk), "nobody could tell");
    desk.resolved(HOST, 0);
    assert!(purge_due(&mut desk), "it does not");
    // A domain that never comes back keeps nothing for ever.
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Account(Account::Deleted));
    desk.pass(account::UNRESOLVED_GRACE);
    assert!(purge_due(&mut desk));
}

#[test]
fn deleted_by_a_relays_word_is_hidden_and_never_purged_by_it() {
    let mut desk = Desk::holding(5);
    let now = desk.now().tick;
    desk.covers.remove(now, PDS);
    desk.event(RELAY, &Event::Account(Account::Deleted));
    assert_eq!(desk.repo.account, Account::Deleted);
    desk.resolved(HOST, 0);
    assert!(!purge_due(&mut desk));
    assert!(desk.repo.debt.compare.is_some(), "its host is asked");
    let note = desk.note();
    desk.told(&note, HeadAnswer::State(Account::Deleted));
    desk.resolved(HOST, 0);
    assert!(purge_due(&mut desk));
}

#[test]
fn only_deleted_is_ever_purged() {
    for state in [
        Account::NotFound,
        Account::Takendown,
        Account::Deactivated,
        Account::Suspended,
    ] {
        let mut desk = Desk::holding(5);
        let note = desk.note();
        desk.told(&note, HeadAnswer::State(state));
        assert_eq!(desk.repo.account, state);
        assert!(!purge_due(&mut desk));
    }
}

#[test]
fn a_tombstoned_did_is_deleted() {
    let mut desk = Desk::holding(5);
    let asked = desk.now().tick;
    let now = desk.now();
    let gone = identity::Document {
        key: None,
        host: None,
        version: 2,
        tombstoned: true,
    };
    let covers = desk.covers.clone();
    identity::resolved(now, &mut desk.repo, &covers, asked, &gone, &mut Vec::new());
    assert_eq!(desk.reasons(), ["inactive"]);
    assert!(purge_due(&mut desk));
}

#[test]
fn a_state_answers_the_comparison_and_the_fetch() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &sync(8));
    let note = desk.note();
    assert_eq!(
        desk.told(&note, HeadAnswer::State(Account::Deactivated)),
        Next::Done
    );
    assert!(desk.repo.debt.resolve.is_some(), "does it live there?");
    desk.resolved(HOST, 2);
    assert!(desk.owes_nothing());
    assert_eq!(
        desk.reasons(),
        ["inactive", "newer_commit_known"],
        "and what was signed is not forgotten"
    );
}

#[test]
fn a_wiped_host_hides_nothing() {
    let mut desk = Desk::holding(5);
    let mut notices = Vec::new();
    sweep::count_absent(&mut desk.host, 9, 20, &mut notices);
    assert!(!desk.host.hiding_suspended, "nine may be chance");
    sweep::count_absent(&mut desk.host, 10, 1000, &mut notices);
    assert!(
        !desk.host.hiding_suspended,
        "a hundredth is not more than one"
    );
    sweep::count_absent(&mut desk.host, 11, 1000, &mut notices);
    assert!(desk.host.hiding_suspended);
    assert_eq!(notices.len(), 1);
    let note = desk.note();
    desk.told(&note, HeadAnswer::State(Account::NotFound));
    assert_eq!(desk.repo.account, Account::Active);
    assert_eq!(desk.reasons(), ["compare_owed"], "and not complete either");
    // What a host says of one account counts all the same.
    desk.told(&note, HeadAnswer::State(Account::Takendown));
    assert_eq!(desk.repo.account, Account::Takendown);
}

#[test]
fn a_host_that_is_not_believed_is_told_of_once() {
    let mut desk = Desk::holding(5);
    desk.host.hiding_suspended = true;
    let now = desk.now();
    sweep::owe_absent(now, &mut desk.repo);
    for _ in 0..3 {
        // A sweep asks as well as whoever pays what is owed.
        let note = desk.note();
        desk.told(&note, HeadAnswer::State(Account::NotFound));
        let now = desk.now();
        debt::begin_attempt(now, &mut desk.repo);
        let note = desk.note();
        desk.told(&note, HeadAnswer::State(Account::NotFound));
    }
    assert_eq!(desk.notices, [Notice::Vanished { hidden: false }]);
    desk.notices.clear();
    desk.host.hiding_suspended = false;
    for _ in 0..3 {
        let note = desk.note();
        desk.told(&note, HeadAnswer::State(Account::NotFound));
    }
    assert_eq!(
        desk.notices,
        [
            Notice::Vanished { hidden: true },
            Notice::Account(Account::NotFound)
        ]
    );
}

#[test]
fn a_loss_that_is_confirmed_hides_what_was_absent_and_nobody_else() {
    let mut desk = Desk::holding(5);
    let confirm = |desk: &mut Desk| {
        let now = desk.now();
        account::confirm_lost(now, &mut desk.repo, &mut Vec::new());
        desk.repo.account
    };
    assert_eq!(confirm(&mut desk), Account::Active, "it was listed");
    desk.event(PDS, &Event::Unsigned);
    assert_eq!(
        confirm(&mut desk),
        Account::Active,
        "asked for another reason"
    );
    let note = desk.note();
    let now = desk.now();
    sweep::owe_absent(now, &mut desk.repo);
    assert_eq!(confirm(&mut desk), Account::NotFound);
    assert!(!purge_due(&mut desk), "and purges nothing");
    desk.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(desk.repo.account, Account::NotFound, "an answer of before");
    assert!(desk.repo.debt.compare.is_some(), "the host is asked still");
    desk.compared(5);
    assert!(desk.complete(), "and shows it again");
}

#[test]
fn purged_and_active_again_is_fetched_anew() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Account(Account::Deleted));
    desk.resolved(HOST, 2);
    let now = desk.now();
    account::purge_row(now, &mut desk.repo);
    assert_eq!(desk.repo.held, Held::Nothing);
    desk.event(PDS, &Event::Account(Account::Active));
    assert_eq!(desk.compared(5), Next::Fetch(named(5)), "the same head");
    let note = desk.note();
    desk.told(&note, HeadAnswer::Head(named(5)));
    desk.apply(&note, 5, 5);
    assert!(desk.complete());
}

#[test]
fn an_answer_asked_for_before_it_was_hidden_does_not_show_it_again() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Unsigned);
    let note = desk.note();
    desk.event(PDS, &Event::Account(Account::Takendown));
    desk.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(desk.repo.account, Account::Takendown);
    assert!(desk.reasons().contains(&"inactive"));
}
