//! Tests R10b: hosts whose state of a repository is behind the held one.

use std::time::Duration;

use gapless_core::ledger::event::{Decision, Event};
use gapless_core::ledger::fetch::{self, HeadAnswer, Next, SnapshotDecision};
use gapless_core::ledger::rollback::{self, BehindShare};
use gapless_core::ledger::settings::OnRollback;
use gapless_core::ledger::*;

use crate::scenario::*;

/// We hold commit 6, which the host sent and then lost: it names 5.
fn ahead() -> Scenario {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(6));
    assert_eq!(scenario.compared(5), Next::Done);
    scenario
}

fn later(scenario: &mut Scenario) {
    let interval = scenario.settings.sweep_every;
    scenario.pass(interval);
}

/// Fetches and takes over what the host said it has.
fn adopt(scenario: &mut Scenario, n: u64) {
    let note = scenario.note();
    assert_eq!(
        scenario.told(&note, HeadAnswer::Head(named(n))),
        Next::Adopt(named(n))
    );
    assert!(rollback::is_adoptable(
        &scenario.repo,
        &note,
        &named(n),
        &snapshot(n)
    ));
    let mut notices = Vec::new();
    scenario.with_context(|context, repo| {
        rollback::adopt_snapshot(context, repo, &note, &snapshot(n), &mut notices)
    });
}

#[test]
fn it_is_not_complete_and_not_fetched_until_the_host_says_otherwise() {
    let mut scenario = ahead();
    assert!(scenario.head_is(6));
    assert_eq!(scenario.reasons(), ["host_behind", "compare_owed"]);
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        None,
        "not at once"
    );
    later(&mut scenario);
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(debt::Work::Compare)
    );
    // An older snapshot is never merged.
    let note = scenario.note();
    assert_eq!(scenario.consider(&note, 5), SnapshotDecision::Discard);
    // The host has it after all: all is well.
    scenario.compared(6);
    assert!(scenario.complete());
}

#[test]
fn the_host_goes_on_on_its_own_line_and_we_follow() {
    let mut scenario = ahead();
    let other_line = Event::Signed {
        head: head(8),
        before: PriorState::Root(root(5)),
        bytes: 9,
    };
    assert!(matches!(
        scenario.event(PDS, &other_line),
        Decision::Park(_)
    ));
    assert_eq!(scenario.compared(8), Next::Fetch(named(8)));
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::Head(named(8)));
    scenario.apply(&note, 8, 8);
    assert!(scenario.complete());
}

#[test]
fn two_sweeps_that_agree_adopt_a_small_accident() {
    let mut scenario = ahead();
    assert_eq!(scenario.compared(5), Next::Done, "twice at once is once");
    later(&mut scenario);
    adopt(&mut scenario, 5);
    assert!(scenario.head_is(5));
    assert!(scenario.complete(), "{:?}", scenario.reasons());
    assert_eq!(scenario.repo.lineage, 1);
    // The lost commit comes again by a relay: it chains, and is not applied.
    assert_eq!(scenario.event(RELAY, &commit(6)), Decision::Pass);
    assert!(scenario.head_is(5));
    assert_eq!(scenario.reasons(), ["compare_owed"]);
    scenario.compared(5);
    assert!(scenario.complete());
    // The host goes on.
    let next = Event::Signed {
        head: head(9),
        before: PriorState::Root(root(5)),
        bytes: 9,
    };
    assert_eq!(scenario.event(PDS, &next), Decision::Apply);
    assert!(scenario.complete());
}

#[test]
fn answers_that_differ_do_not_add_up() {
    let mut scenario = ahead();
    later(&mut scenario);
    scenario.compared(4);
    later(&mut scenario);
    assert_eq!(scenario.compared(5), Next::Done);
    assert!(scenario.head_is(6));
}

#[test]
fn a_host_that_lost_many_is_not_followed() {
    let mut scenario = ahead();
    scenario.share = BehindShare {
        repos: 1000,
        behind: 10,
    };
    later(&mut scenario);
    assert_eq!(scenario.compared(5), Next::Done);
    scenario.share.behind = 9;
    later(&mut scenario);
    assert_eq!(scenario.compared(5), Next::Adopt(named(5)));
}

/// Like the mirror, counts the host's share only where it may matter.
fn heard(scenario: &mut Scenario, head: NamedHead) -> Next {
    let note = scenario.note();
    let lost_many = BehindShare {
        repos: 1000,
        behind: 500,
    };
    let share = fetch::may_be_behind(&note, &head).then_some(lost_many);
    scenario.told_with(&note, HeadAnswer::Head(head), share)
}

#[test]
fn a_host_that_lost_many_is_not_followed_whatever_rev_it_gives_our_head() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(9));
    for rev in [9, 10] {
        let lie = NamedHead {
            rev: named(rev).rev,
            ..named(5)
        };
        assert!(fetch::may_be_behind(&scenario.note(), &lie));
        for _ in 0..3 {
            heard(&mut scenario, lie);
            later(&mut scenario);
            assert!(!scenario.complete(), "the commit of rev 9 was given up");
        }
    }
}

#[test]
fn without_a_census_nothing_that_is_signed_is_given_up() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(9));
    for _ in 0..3 {
        let note = scenario.note();
        scenario.told_with(&note, HeadAnswer::Head(named(5)), None);
        later(&mut scenario);
        assert!(!scenario.complete());
    }
}

#[test]
fn a_state_that_was_never_ours_of_late_is_not_adopted() {
    let mut scenario = Scenario::holding(2);
    for n in 3..=6 {
        scenario.event(PDS, &commit(n));
    }
    scenario.compared(2);
    later(&mut scenario);
    assert_eq!(scenario.compared(2), Next::Done, "four commits back");
    scenario.repo.behind = None;
    scenario.compared(3);
    later(&mut scenario);
    assert_eq!(scenario.compared(3), Next::Adopt(named(3)), "three back");
}

#[test]
fn hold_holds_and_adopt_adopts_and_an_operator_may_say_so() {
    let mut scenario = ahead();
    scenario.settings.on_rollback = OnRollback::Hold;
    for _ in 0..5 {
        later(&mut scenario);
        assert_eq!(scenario.compared(5), Next::Done);
    }
    let mut scenario = Scenario::holding(9);
    scenario.settings.on_rollback = OnRollback::Adopt;
    scenario.compared(2);
    later(&mut scenario);
    adopt(&mut scenario, 2);
    assert!(scenario.complete());
    let mut scenario = ahead();
    let now = scenario.now();
    rollback::accept_rollback(now, &mut scenario.repo);
    assert_eq!(scenario.compared(5), Next::Adopt(named(5)), "at once");
}

#[test]
fn equal_rev_and_another_commit_is_behind_too() {
    let mut scenario = Scenario::holding(5);
    let note = scenario.note();
    let other = NamedHead {
        rev: rev(5),
        commit: cid("another"),
    };
    assert_eq!(scenario.told(&note, HeadAnswer::Head(other)), Next::Done);
    assert_eq!(scenario.reasons(), ["host_behind", "compare_owed"]);
}

#[test]
fn a_commit_that_was_only_heard_of_is_given_up_the_same_way() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(9));
    assert_eq!(scenario.compared(5), Next::Done);
    assert!(scenario.reasons().contains(&"host_behind"));
    later(&mut scenario);
    assert_eq!(scenario.compared(5), Next::Done);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
    assert_eq!(scenario.repo.abandoned, Some(rev(9)));
    assert_eq!(scenario.event(RELAY, &commit(9)), Decision::Pass);
    assert!(scenario.head_is(5));
}

#[test]
fn only_the_very_state_that_was_named_is_taken_over() {
    let mut scenario = ahead();
    later(&mut scenario);
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::Head(named(5)));
    assert!(!rollback::is_adoptable(
        &scenario.repo,
        &note,
        &named(5),
        &snapshot(4)
    ));
    scenario.resolved(OTHER_HOST, 2);
    assert!(!rollback::is_adoptable(
        &scenario.repo,
        &note,
        &named(5),
        &snapshot(5)
    ));
}

#[test]
fn an_answer_of_before_our_head_moved_is_not_behind() {
    let mut scenario = Scenario::holding(5);
    let note = scenario.note();
    scenario.event(PDS, &commit(6));
    scenario.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(scenario.repo.behind, None);
    scenario.pass(Duration::from_secs(1));
    assert!(scenario.complete());
}

#[test]
fn only_an_older_head_or_another_one_of_its_rev_may_be_behind() {
    let mut scenario = Scenario::holding(5);
    let note = scenario.note();
    let other = NamedHead {
        commit: named(6).commit,
        ..named(5)
    };
    let may_be = |named| fetch::may_be_behind(&note, &named);
    assert!(may_be(named(4)) && may_be(other));
    assert!(!may_be(named(5)), "the usual answer needs no share");
    assert!(!may_be(named(6)));
    // Nothing is held: whatever is known counts.
    let mut empty = Scenario::holding(5);
    empty.repo.held = Held::Damaged {
        from: Some(named(5).rev),
    };
    assert!(fetch::may_be_behind(&empty.note(), &named(5)));
}

#[test]
fn a_listing_that_was_read_before_says_nothing_about_an_adopted_state() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(6));
    assert_eq!(scenario.compared(5), Next::Done);
    later(&mut scenario);
    let note = scenario.note();
    let told = scenario.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(told, Next::Adopt(named(5)));
    let began = scenario.now();
    let page = scenario.with_context(|context, _| sweep::take_page_note(context, HOST));
    let entry = sweep::ListingEntry {
        named: named(6),
        account: Account::Active,
    };
    scenario.with_context(|context, repo| sweep::judge_entry(context, repo, &page, &entry));
    let taken = rollback::is_adoptable(&scenario.repo, &note, &named(5), &snapshot(5));
    assert!(taken);
    let mut notices = Vec::new();
    scenario.with_context(|context, repo| {
        rollback::adopt_snapshot(context, repo, &note, &snapshot(5), &mut notices)
    });
    sweep::finish(&mut scenario.host, began);
    let swept = scenario.answer().evidence.swept;
    assert!(swept.is_none_or(|swept| swept.tick != began.tick));
}
