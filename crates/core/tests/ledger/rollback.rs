//! R10b: a host that is behind us.

use std::time::Duration;

use gapless_core::ledger::event::{Decision, Event};
use gapless_core::ledger::fetch::{self, HeadAnswer, Next, SnapshotDecision};
use gapless_core::ledger::rollback::{self, BehindShare};
use gapless_core::ledger::settings::OnRollback;
use gapless_core::ledger::*;

use crate::desk::*;

/// We hold commit 6, which the host sent and then lost: it names 5.
fn ahead() -> Desk {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &commit(6));
    assert_eq!(desk.compared(5), Next::Done);
    desk
}

fn later(desk: &mut Desk) {
    let interval = desk.settings.sweep_every;
    desk.pass(interval);
}

/// Fetches and takes over what the host said it has.
fn adopt(desk: &mut Desk, n: u64) {
    let note = desk.note();
    assert_eq!(
        desk.told(&note, HeadAnswer::Head(named(n))),
        Next::Adopt(named(n))
    );
    assert!(rollback::is_adoptable(
        &desk.repo,
        &note,
        &named(n),
        &snapshot(n)
    ));
    let mut notices = Vec::new();
    desk.with_context(|context, repo| {
        rollback::adopt_snapshot(context, repo, &note, &snapshot(n), &mut notices)
    });
}

#[test]
fn it_is_not_complete_and_not_fetched_until_the_host_says_otherwise() {
    let mut desk = ahead();
    assert!(desk.head_is(6));
    assert_eq!(desk.reasons(), ["host_behind", "compare_owed"]);
    assert_eq!(debt::plan_work(desk.time, &desk.repo), None, "not at once");
    later(&mut desk);
    assert_eq!(
        debt::plan_work(desk.time, &desk.repo),
        Some(debt::Work::Compare)
    );
    // An older snapshot is never merged.
    let note = desk.note();
    assert_eq!(desk.consider(&note, 5), SnapshotDecision::Discard);
    // The host has it after all: all is well.
    desk.compared(6);
    assert!(desk.complete());
}

#[test]
fn the_host_goes_on_on_its_own_line_and_we_follow() {
    let mut desk = ahead();
    let other_line = Event::Signed {
        head: head(8),
        before: PriorState::Root(root(5)),
        bytes: 9,
    };
    assert!(matches!(desk.event(PDS, &other_line), Decision::Park(_)));
    assert_eq!(desk.compared(8), Next::Fetch(named(8)));
    let note = desk.note();
    desk.told(&note, HeadAnswer::Head(named(8)));
    desk.apply(&note, 8, 8);
    assert!(desk.complete());
}

#[test]
fn two_sweeps_that_agree_adopt_a_small_accident() {
    let mut desk = ahead();
    assert_eq!(desk.compared(5), Next::Done, "twice at once is once");
    later(&mut desk);
    adopt(&mut desk, 5);
    assert!(desk.head_is(5));
    assert!(desk.complete(), "{:?}", desk.reasons());
    assert_eq!(desk.repo.lineage, 1);
    // The lost commit comes again by a relay: it chains, and is not applied.
    assert_eq!(desk.event(RELAY, &commit(6)), Decision::Pass);
    assert!(desk.head_is(5));
    assert_eq!(desk.reasons(), ["compare_owed"]);
    desk.compared(5);
    assert!(desk.complete());
    // The host goes on.
    let next = Event::Signed {
        head: head(9),
        before: PriorState::Root(root(5)),
        bytes: 9,
    };
    assert_eq!(desk.event(PDS, &next), Decision::Apply);
    assert!(desk.complete());
}

#[test]
fn answers_that_differ_do_not_add_up() {
    let mut desk = ahead();
    later(&mut desk);
    desk.compared(4);
    later(&mut desk);
    assert_eq!(desk.compared(5), Next::Done);
    assert!(desk.head_is(6));
}

#[test]
fn a_host_that_lost_many_is_not_followed() {
    let mut desk = ahead();
    desk.share = BehindShare {
        repos: 1000,
        behind: 10,
    };
    later(&mut desk);
    assert_eq!(desk.compared(5), Next::Done);
    desk.share.behind = 9;
    later(&mut desk);
    assert_eq!(desk.compared(5), Next::Adopt(named(5)));
}

/// Like the mirror, counts the host's share only where it may matter.
fn heard(desk: &mut Desk, head: NamedHead) -> Next {
    let note = desk.note();
    let lost_many = BehindShare {
        repos: 1000,
        behind: 500,
    };
    let share = fetch::may_be_behind(&note, &head).then_some(lost_many);
    desk.told_with(&note, HeadAnswer::Head(head), share)
}

#[test]
fn a_host_that_lost_many_is_not_followed_whatever_rev_it_gives_our_head() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &commit(9));
    for rev in [9, 10] {
        let lie = NamedHead {
            rev: named(rev).rev,
            ..named(5)
        };
        assert!(fetch::may_be_behind(&desk.note(), &lie));
        for _ in 0..3 {
            heard(&mut desk, lie);
            later(&mut desk);
            assert!(!desk.complete(), "the commit of rev 9 was given up");
        }
    }
}

#[test]
fn without_a_census_nothing_that_is_signed_is_given_up() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &commit(9));
    for _ in 0..3 {
        let note = desk.note();
        desk.told_with(&note, HeadAnswer::Head(named(5)), None);
        later(&mut desk);
        assert!(!desk.complete());
    }
}

#[test]
fn a_state_that_was_never_ours_of_late_is_not_adopted() {
    let mut desk = Desk::holding(2);
    for n in 3..=6 {
        desk.event(PDS, &commit(n));
    }
    desk.compared(2);
    later(&mut desk);
    assert_eq!(desk.compared(2), Next::Done, "four commits back");
    desk.repo.behind = None;
    desk.compared(3);
    later(&mut desk);
    assert_eq!(desk.compared(3), Next::Adopt(named(3)), "three back");
}

#[test]
fn hold_holds_and_adopt_adopts_and_an_operator_may_say_so() {
    let mut desk = ahead();
    desk.settings.on_rollback = OnRollback::Hold;
    for _ in 0..5 {
        later(&mut desk);
        assert_eq!(desk.compared(5), Next::Done);
    }
    let mut desk = Desk::holding(9);
    desk.settings.on_rollback = OnRollback::Adopt;
    desk.compared(2);
    later(&mut desk);
    adopt(&mut desk, 2);
    assert!(desk.complete());
    let mut desk = ahead();
    let now = desk.now();
    rollback::accept_rollback(now, &mut desk.repo);
    assert_eq!(desk.compared(5), Next::Adopt(named(5)), "at once");
}

#[test]
fn equal_rev_and_another_commit_is_behind_too() {
    let mut desk = Desk::holding(5);
    let note = desk.note();
    let other = NamedHead {
        rev: rev(5),
        commit: cid("another"),
    };
    assert_eq!(desk.told(&note, HeadAnswer::Head(other)), Next::Done);
    assert_eq!(desk.reasons(), ["host_behind", "compare_owed"]);
}

#[test]
fn a_commit_that_was_only_heard_of_is_given_up_the_same_way() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &commit(9));
    assert_eq!(desk.compared(5), Next::Done);
    assert!(desk.reasons().contains(&"host_behind"));
    later(&mut desk);
    assert_eq!(desk.compared(5), Next::Done);
    assert!(desk.complete(), "{:?}", desk.reasons());
    assert_eq!(desk.repo.abandoned, Some(rev(9)));
    assert_eq!(desk.event(RELAY, &commit(9)), Decision::Pass);
    assert!(desk.head_is(5));
}

#[test]
fn only_the_very_state_that_was_named_is_taken_over() {
    let mut desk = ahead();
    later(&mut desk);
    let note = desk.note();
    desk.told(&note, HeadAnswer::Head(named(5)));
    assert!(!rollback::is_adoptable(
        &desk.repo,
        &note,
        &named(5),
        &snapshot(4)
    ));
    desk.resolved(OTHER_HOST, 2);
    assert!(!rollback::is_adoptable(
        &desk.repo,
        &note,
        &named(5),
        &snapshot(5)
    ));
}

#[test]
fn an_answer_of_before_our_head_moved_is_not_behind() {
    let mut desk = Desk::holding(5);
    let note = desk.note();
    desk.event(PDS, &commit(6));
    desk.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(desk.repo.behind, None);
    desk.pass(Duration::from_secs(1));
    assert!(desk.complete());
}

#[test]
fn only_an_older_head_or_another_one_of_its_rev_may_be_behind() {
    let mut desk = Desk::holding(5);
    let note = desk.note();
    let other = NamedHead {
        commit: named(6).commit,
        ..named(5)
    };
    let may_be = |named| fetch::may_be_behind(&note, &named);
    assert!(may_be(named(4)) && may_be(other));
    assert!(!may_be(named(5)), "the usual answer needs no share");
    assert!(!may_be(named(6)));
    // Nothing is held: whatever is known counts.
    let mut empty = Desk::holding(5);
    empty.repo.held = Held::Damaged {
        from: Some(named(5).rev),
    };
    assert!(fetch::may_be_behind(&empty.note(), &named(5)));
}

#[test]
fn a_listing_that_was_read_before_says_nothing_about_an_adopted_state() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &commit(6));
    assert_eq!(desk.compared(5), Next::Done);
    later(&mut desk);
    let note = desk.note();
    let told = desk.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(told, Next::Adopt(named(5)));
    let began = desk.now();
    let page = desk.with_context(|context, _| sweep::take_page_note(context, HOST));
    let entry = sweep::ListingEntry {
        named: named(6),
        account: Account::Active,
    };
    desk.with_context(|context, repo| sweep::judge_entry(context, repo, &page, &entry));
    let taken = rollback::is_adoptable(&desk.repo, &note, &named(5), &snapshot(5));
    assert!(taken);
    let mut notices = Vec::new();
    desk.with_context(|context, repo| {
        rollback::adopt_snapshot(context, repo, &note, &snapshot(5), &mut notices)
    });
    sweep::finish(&mut desk.host, began);
    let swept = desk.answer().evidence.swept;
    assert!(swept.is_none_or(|swept| swept.tick != began.tick));
}
