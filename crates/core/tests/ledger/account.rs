//! Tests the account states of the ledger: which events and answers hide, show or purge a
//! repository.

use std::time::Duration;

use gapless_core::ledger::account;
use gapless_core::ledger::debt;
use gapless_core::ledger::event::{Decision, Event};
use gapless_core::ledger::fetch::{HeadAnswer, Next};
use gapless_core::ledger::sweep;
use gapless_core::ledger::*;

use crate::scenario::*;

const GRACE: Duration = Duration::from_secs(3600);

fn purge_due(scenario: &mut Scenario) -> bool {
    scenario.pass(GRACE);
    let now = scenario.now();
    account::is_purge_due(now, &scenario.repo, GRACE)
}

#[test]
fn every_inactive_state_hides_at_once() {
    for state in [
        Account::Deactivated,
        Account::Suspended,
        Account::Takendown,
        Account::Deleted,
    ] {
        let mut scenario = Scenario::holding(5);
        scenario.event(PDS, &Event::Account(state));
        assert_eq!(scenario.repo.account, state);
        // A host closes an account that moves away.
        assert_eq!(scenario.reasons(), ["inactive", "resolve_owed"]);
        assert!(scenario.head_is(5), "hidden, not gone");
        scenario.resolved(HOST, 2);
        let note = scenario.note();
        scenario.told(&note, HeadAnswer::State(state));
        assert_eq!(scenario.reasons(), ["inactive"]);
    }
}

#[test]
fn who_was_closed_by_the_host_that_it_left_is_asked_for_at_the_new_one() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deactivated));
    scenario.resolved(OTHER_HOST, 2);
    assert_eq!(scenario.repo.host, Some(OTHER_HOST));
    assert!(scenario.repo.debt.compare.is_some());
    scenario.compared(5);
    assert_eq!(scenario.repo.account, Account::Active);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
}

#[test]
fn a_host_that_opens_and_closes_an_account_at_will_makes_us_ask_so_often_and_no_more() {
    let mut scenario = Scenario::holding(5);
    let mut asked = 0;
    for version in 2..1_000 {
        scenario.event(PDS, &Event::Account(Account::Deactivated));
        let now = scenario.now();
        if scenario.repo.debt.is_due(now.time) {
            debt::begin_attempt(now, &mut scenario.repo);
            asked += 1;
        }
        scenario.resolved(HOST, version);
        let state = HeadAnswer::State(Account::Deactivated);
        let note = scenario.note();
        scenario.told(&note, state);
        scenario.repo.account = Account::Active;
    }
    assert!((1..100).contains(&asked), "{asked} questions");
}

#[test]
fn active_again_is_not_complete_until_the_head_was_compared() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deactivated));
    scenario.resolved(HOST, 2);
    let note = scenario.note();
    scenario.event(PDS, &Event::Account(Account::Active));
    assert_eq!(scenario.reasons(), ["not_compared", "compare_owed"]);
    // An answer to a question of before does not count.
    scenario.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(scenario.reasons(), ["not_compared", "compare_owed"]);
    scenario.compared(5);
    assert!(scenario.complete());
}

#[test]
fn from_anyone_but_the_cover_it_only_makes_us_ask() {
    let mut scenario = Scenario::holding(5);
    scenario.event(RELAY, &Event::Account(Account::Deleted));
    assert_eq!(scenario.repo.account, Account::Active);
    assert_eq!(scenario.reasons(), ["compare_owed"]);
}

#[test]
fn that_the_host_which_it_left_has_closed_it_is_no_news() {
    for (told, asks) in [
        (Account::Deactivated, false),
        (Account::Deleted, false),
        (Account::Active, true),
    ] {
        let mut scenario = Scenario::holding(5);
        scenario.event(OTHER, &Event::Account(told));
        assert_eq!(scenario.repo.account, Account::Active);
        assert_eq!(scenario.repo.debt.resolve.is_some(), asks, "{told:?}");
    }
}

#[test]
fn deleted_by_its_own_host_is_purged_after_the_grace() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deleted));
    scenario.resolved(HOST, 0);
    let now = scenario.now();
    assert!(!account::is_purge_due(now, &scenario.repo, GRACE));
    assert!(purge_due(&mut scenario));
    scenario.event(PDS, &Event::Account(Account::Active));
    assert!(!purge_due(&mut scenario), "it came back");
}

#[test]
fn what_its_host_deleted_stays_deleted_though_the_host_knows_it_no_more() {
    for asked_before in [true, false] {
        let mut scenario = Scenario::holding(5);
        let before = scenario.note();
        scenario.event(PDS, &Event::Account(Account::Deleted));
        let after = scenario.note();
        let note = if asked_before { before } else { after };
        scenario.told(&note, HeadAnswer::State(Account::NotFound));
        assert_eq!(scenario.repo.account, Account::Deleted);
        scenario.resolved(HOST, 0);
        assert!(scenario.owes_nothing());
        assert!(purge_due(&mut scenario));
    }
}

#[test]
fn what_may_live_elsewhere_is_not_purged_before_that_is_known() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deleted));
    assert!(
        scenario.repo.debt.resolve.is_some(),
        "does it live elsewhere?"
    );
    assert!(!purge_due(&mut scenario), "nobody could tell");
    scenario.resolved(HOST, 0);
    assert!(purge_due(&mut scenario), "it does not");
    // A domain that never comes back keeps nothing for ever.
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deleted));
    scenario.pass(account::UNRESOLVED_GRACE);
    assert!(purge_due(&mut scenario));
}

#[test]
fn deleted_by_a_relays_word_is_hidden_and_never_purged_by_it() {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now().tick;
    scenario.covers.remove(now, PDS);
    scenario.event(RELAY, &Event::Account(Account::Deleted));
    assert_eq!(scenario.repo.account, Account::Deleted);
    scenario.resolved(HOST, 0);
    assert!(!purge_due(&mut scenario));
    assert!(scenario.repo.debt.compare.is_some(), "its host is asked");
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::State(Account::Deleted));
    scenario.resolved(HOST, 0);
    assert!(purge_due(&mut scenario));
}

#[test]
fn only_deleted_is_ever_purged() {
    for state in [
        Account::NotFound,
        Account::Takendown,
        Account::Deactivated,
        Account::Suspended,
    ] {
        let mut scenario = Scenario::holding(5);
        let note = scenario.note();
        scenario.told(&note, HeadAnswer::State(state));
        assert_eq!(scenario.repo.account, state);
        assert!(!purge_due(&mut scenario));
    }
}

#[test]
fn a_tombstoned_did_is_deleted() {
    let mut scenario = Scenario::holding(5);
    let asked = scenario.now().tick;
    let now = scenario.now();
    let gone = identity::Document {
        key: None,
        handle: None,
        host: None,
        version: 2,
        tombstoned: true,
    };
    let covers = scenario.covers.clone();
    identity::resolved(
        now,
        &mut scenario.repo,
        &covers,
        asked,
        &gone,
        &mut Vec::new(),
    );
    assert_eq!(scenario.reasons(), ["inactive"]);
    assert!(purge_due(&mut scenario));
}

#[test]
fn a_state_answers_the_comparison_and_the_fetch() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &sync(8));
    let note = scenario.note();
    assert_eq!(
        scenario.told(&note, HeadAnswer::State(Account::Deactivated)),
        Next::Done
    );
    assert!(scenario.repo.debt.resolve.is_some(), "does it live there?");
    scenario.resolved(HOST, 2);
    assert!(scenario.owes_nothing());
    assert_eq!(
        scenario.reasons(),
        ["inactive", "newer_commit_known"],
        "and what was signed is not forgotten"
    );
}

#[test]
fn a_wiped_host_hides_nothing() {
    let mut scenario = Scenario::holding(5);
    let mut notices = Vec::new();
    sweep::count_absent(&mut scenario.host, 9, 20, &mut notices);
    assert!(!scenario.host.hiding_suspended, "nine may be chance");
    sweep::count_absent(&mut scenario.host, 10, 1000, &mut notices);
    assert!(
        !scenario.host.hiding_suspended,
        "a hundredth is not more than one"
    );
    sweep::count_absent(&mut scenario.host, 11, 1000, &mut notices);
    assert!(scenario.host.hiding_suspended);
    assert_eq!(notices.len(), 1);
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::State(Account::NotFound));
    assert_eq!(scenario.repo.account, Account::Active);
    assert_eq!(
        scenario.reasons(),
        ["compare_owed"],
        "and not complete either"
    );
    // What a host says of one account counts all the same.
    scenario.told(&note, HeadAnswer::State(Account::Takendown));
    assert_eq!(scenario.repo.account, Account::Takendown);
}

#[test]
fn a_host_that_is_not_believed_is_told_of_once() {
    let mut scenario = Scenario::holding(5);
    scenario.host.hiding_suspended = true;
    let now = scenario.now();
    sweep::owe_absent(now, &mut scenario.repo);
    for _ in 0..3 {
        // A sweep asks, and so does the repair that pays the debt.
        let note = scenario.note();
        scenario.told(&note, HeadAnswer::State(Account::NotFound));
        let now = scenario.now();
        debt::begin_attempt(now, &mut scenario.repo);
        let note = scenario.note();
        scenario.told(&note, HeadAnswer::State(Account::NotFound));
    }
    assert_eq!(scenario.notices, [Notice::Vanished { hidden: false }]);
    scenario.notices.clear();
    scenario.host.hiding_suspended = false;
    for _ in 0..3 {
        let note = scenario.note();
        scenario.told(&note, HeadAnswer::State(Account::NotFound));
    }
    assert_eq!(
        scenario.notices,
        [
            Notice::Vanished { hidden: true },
            Notice::Account(Account::NotFound)
        ]
    );
}

#[test]
fn a_confirmed_loss_hides_only_repositories_that_were_absent() {
    let mut scenario = Scenario::holding(5);
    let confirm = |scenario: &mut Scenario| {
        let now = scenario.now();
        account::confirm_lost(now, &mut scenario.repo, &mut Vec::new());
        scenario.repo.account
    };
    assert_eq!(confirm(&mut scenario), Account::Active, "it was listed");
    scenario.event(PDS, &Event::Unsigned);
    assert_eq!(
        confirm(&mut scenario),
        Account::Active,
        "asked for another reason"
    );
    let note = scenario.note();
    let now = scenario.now();
    sweep::owe_absent(now, &mut scenario.repo);
    assert_eq!(confirm(&mut scenario), Account::NotFound);
    assert!(!purge_due(&mut scenario), "and purges nothing");
    scenario.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(
        scenario.repo.account,
        Account::NotFound,
        "an answer of before"
    );
    assert!(
        scenario.repo.debt.compare.is_some(),
        "the host is asked still"
    );
    scenario.compared(5);
    assert!(scenario.complete(), "and shows it again");
}

#[test]
fn a_clock_that_is_set_neither_ends_nor_extends_the_grace_period() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deleted));
    scenario.resolved(HOST, 0);
    let now = scenario.now();
    let year = Duration::from_secs(365 * 24 * 3600);
    let ahead = Now {
        time: now.time.after(year),
        ..now
    };
    assert!(!account::is_purge_due(ahead, &scenario.repo, GRACE));
    // Noted while the clock was a year ahead.
    scenario.repo.deleted_at = Some(ahead.time);
    scenario.pass(GRACE);
    let later = scenario.now();
    assert!(account::is_purge_due(later, &scenario.repo, GRACE));
    scenario.repo.purging = true;
    assert!(!account::is_purge_due(later, &scenario.repo, GRACE));
}

#[test]
fn a_deletion_that_an_earlier_version_noted_waits_for_a_whole_grace_period() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deleted));
    scenario.resolved(HOST, 0);
    scenario.repo.deleted_lived = None;
    assert!(!purge_due(&mut scenario));
    let now = scenario.now();
    assert!(account::lacks_grace(now, &scenario.repo));
    account::begin_lacking_grace(now, &mut scenario.repo);
    assert!(!account::lacks_grace(now, &scenario.repo));
    assert!(!account::is_purge_due(now, &scenario.repo, GRACE));
    assert!(purge_due(&mut scenario));
}

#[test]
fn a_store_that_lost_the_time_lived_through_begins_the_grace_period_again() {
    let mut scenario = Scenario::holding(5);
    scenario.pass(GRACE);
    scenario.event(PDS, &Event::Account(Account::Deleted));
    scenario.resolved(HOST, 0);
    let lost = Now {
        lived: Lived(7),
        ..scenario.now()
    };
    assert!(account::lacks_grace(lost, &scenario.repo));
    account::begin_lacking_grace(lost, &mut scenario.repo);
    assert_eq!(scenario.repo.deleted_lived, Some(Lived(7)));
    assert!(!account::lacks_grace(lost, &scenario.repo));
}

#[test]
fn while_a_purge_is_under_way_nothing_is_applied() {
    let mut scenario = Scenario::new();
    scenario.repo.purging = true;
    assert_ne!(scenario.event(PDS, &commit(1)), Decision::Apply);
    assert_eq!(scenario.repo.held, Held::Nothing);
    scenario.repo.purging = false;
    assert_eq!(scenario.event(PDS, &commit(1)), Decision::Apply);
}

#[test]
fn purged_and_active_again_is_fetched_anew() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deleted));
    scenario.resolved(HOST, 2);
    let now = scenario.now();
    account::purge_row(now, &mut scenario.repo);
    assert_eq!(scenario.repo.held, Held::Nothing);
    scenario.event(PDS, &Event::Account(Account::Active));
    assert_eq!(scenario.compared(5), Next::Fetch(named(5)), "the same head");
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::Head(named(5)));
    scenario.apply(&note, 5, 5);
    assert!(scenario.complete());
}

#[test]
fn an_answer_asked_for_before_it_was_hidden_does_not_show_it_again() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Unsigned);
    let note = scenario.note();
    scenario.event(PDS, &Event::Account(Account::Takendown));
    scenario.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(scenario.repo.account, Account::Takendown);
    assert!(scenario.reasons().contains(&"inactive"));
}
