//! Tests R7: which host a repository is on, and the frames that are parked until that is
//! resolved.

use std::collections::BTreeMap;

use gapless_atp::syntax::Handle;
use gapless_core::ledger::account;
use gapless_core::ledger::event::{Decision, Event};
use gapless_core::ledger::fetch::Next;
use gapless_core::ledger::identity::{self, Document};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::parked::{self, ParkedStep};
use gapless_core::ledger::sweep::{self, ListingEntry, ListingVerdict};
use gapless_core::ledger::*;

use crate::scenario::*;

fn frame(n: u64, origin: HostId) -> Parked {
    Parked {
        head: head(n),
        before: PriorState::Root(root(n - 1)),
        origin: Some(origin),
        bytes: 9,
    }
}

fn frames(all: &[Parked]) -> BTreeMap<gapless_atp::syntax::Rev, Parked> {
    all.iter().map(|frame| (frame.head.rev, *frame)).collect()
}

#[test]
fn a_move_keeps_the_state_and_nothing_else() {
    let mut scenario = Scenario::holding(5);
    scenario.resolved(OTHER_HOST, 2);
    assert!(scenario.head_is(5));
    assert_eq!(scenario.repo.cover, Some(OTHER));
    assert_eq!(scenario.repo.marker, None);
    assert_eq!(scenario.repo.first_rev_since_reset, None);
    assert_eq!(scenario.repo.account, Account::Unknown);
    assert_eq!(scenario.reasons(), ["not_compared", "compare_owed"]);
    assert_eq!(scenario.compared(5), Next::Done);
    assert!(scenario.complete());
}

#[test]
fn an_older_document_moves_nothing() {
    let mut scenario = Scenario::holding(5);
    scenario.resolved(OTHER_HOST, 3);
    scenario.resolved(HOST, 2);
    assert_eq!(scenario.repo.host, Some(OTHER_HOST));
    assert!(scenario.notices.contains(&Notice::OldDocument));
}

#[test]
fn an_older_document_does_not_pay_the_question() {
    let mut scenario = Scenario::holding(5);
    scenario.resolved(HOST, 3);
    scenario.event(PDS, &Event::Identity);
    scenario.resolved(HOST, 2);
    assert_eq!(scenario.reasons(), ["resolve_owed"]);
    scenario.resolved(HOST, 3);
    assert!(scenario.complete());
}

#[test]
fn identity_events_only_make_us_ask() {
    let mut scenario = Scenario::holding(5);
    assert_eq!(scenario.event(PDS, &Event::Identity), Decision::Pass);
    assert_eq!(scenario.repo.host, Some(HOST));
    assert_eq!(scenario.reasons(), ["resolve_owed"]);
}

#[test]
fn there_and_back_leaves_it_in_doubt() {
    let mut scenario = Scenario::holding(5);
    scenario.resolved(OTHER_HOST, 2);
    scenario.resolved(HOST, 3);
    assert!(
        !scenario.complete(),
        "it may have written on the other host"
    );
    assert_eq!(scenario.compared(6), Next::Fetch(named(6)));
}

#[test]
fn a_larger_epoch_of_the_old_host_is_not_compared_with_the_new_ones() {
    let mut scenario = Scenario::holding(5);
    for _ in 0..5 {
        scenario.reset(PDS);
    }
    scenario.event(PDS, &commit(6));
    scenario.resolved(OTHER_HOST, 2);
    assert!(scenario.epoch(OTHER) < scenario.epoch(PDS));
    assert!(scenario.reasons().contains(&"not_compared"));
}

#[test]
fn late_events_of_the_old_host_are_not_applied() {
    let mut scenario = Scenario::holding(5);
    scenario.resolved(OTHER_HOST, 2);
    scenario.compared(5);
    assert!(scenario.complete());
    assert!(matches!(scenario.event(PDS, &commit(6)), Decision::Park(_)));
    assert!(scenario.head_is(5));
    assert!(!scenario.complete());
}

#[test]
fn a_frame_of_the_host_it_moved_to_is_applied_from_parking() {
    let mut scenario = Scenario::holding(5);
    let Decision::Park(waiting) = scenario.event(OTHER, &commit(6)) else {
        panic!("it must be kept");
    };
    let all = frames(&[waiting]);
    assert_eq!(
        parked::next_step(&scenario.repo, &all, &[]),
        None,
        "not its host"
    );
    scenario.resolved(OTHER_HOST, 2);
    assert_eq!(
        parked::next_step(&scenario.repo, &all, &[]),
        Some(ParkedStep::Apply(rev(6)))
    );
    parked::apply(&mut scenario.repo, &waiting);
    assert!(scenario.head_is(6));
}

#[test]
fn parked_frames_go_in_order_and_are_dropped_when_passed() {
    let mut scenario = Scenario::holding(5);
    let all = frames(&[frame(4, HOST), frame(6, HOST), frame(7, HOST)]);
    assert_eq!(
        parked::next_step(&scenario.repo, &all, &[]),
        Some(ParkedStep::Drop(rev(4), DropReason::Superseded))
    );
    let all = frames(&[frame(6, HOST), frame(7, HOST)]);
    assert_eq!(
        parked::next_step(&scenario.repo, &all, &[]),
        Some(ParkedStep::Apply(rev(6)))
    );
    let marker = scenario.repo.marker;
    parked::apply(&mut scenario.repo, &frame(6, HOST));
    assert_eq!(scenario.repo.marker, marker);
    let all = frames(&[frame(7, HOST)]);
    assert_eq!(
        parked::next_step(&scenario.repo, &all, &[]),
        Some(ParkedStep::Apply(rev(7)))
    );
}

#[test]
fn frames_of_an_abandoned_lineage_are_dropped() {
    let mut scenario = Scenario::holding(5);
    scenario.repo.abandoned = Some(rev(7));
    let all = frames(&[frame(6, HOST)]);
    assert_eq!(
        parked::next_step(&scenario.repo, &all, &[]),
        Some(ParkedStep::Drop(rev(6), DropReason::Abandoned))
    );
}

#[test]
fn unproven_frames_are_recomputed_and_unjudged_ones_left_alone() {
    let scenario = Scenario::holding(5);
    let mut legacy = frame(6, HOST);
    legacy.before = PriorState::Recompute;
    let mut unjudged = frame(7, HOST);
    unjudged.before = PriorState::Unjudged;
    let all = frames(&[legacy, unjudged]);
    assert_eq!(
        parked::next_step(&scenario.repo, &all, &[]),
        Some(ParkedStep::Recompute(rev(6)))
    );
    assert_eq!(parked::next_step(&scenario.repo, &all, &[rev(6)]), None);
    assert_eq!(parked::unjudged_revs(&all), [rev(7)]);
}

#[test]
fn nothing_waiting_is_applied_to_a_hidden_repository() {
    let mut scenario = Scenario::holding(5);
    scenario.repo.account = Account::Takendown;
    let all = frames(&[frame(6, HOST)]);
    assert_eq!(parked::next_step(&scenario.repo, &all, &[]), None);
}

#[test]
fn frames_of_other_hosts_lines_are_found_for_dropping() {
    let scenario = Scenario::holding(5);
    let all = frames(&[frame(8, OTHER_HOST), frame(9, HOST)]);
    assert_eq!(parked::foreign_revs(&scenario.repo, &all), [rev(8)]);
}

#[test]
fn a_head_that_is_held_when_the_key_changes_was_signed_by_the_key_before() {
    let mut scenario = Scenario::holding(5);
    let mut resolve = |key: u8| {
        let document = Document {
            key: Some(KeyBytes {
                curve: 0,
                point: [key; 33],
            }),
            handle: None,
            host: Some(HOST),
            version: 0,
            tombstoned: false,
        };
        let (asked, now) = (scenario.now().tick, scenario.now());
        identity::resolved(
            now,
            &mut scenario.repo,
            &scenario.covers,
            asked,
            &document,
            &mut scenario.notices,
        );
        scenario.repo.key
    };
    assert_eq!(resolve(1), SignerKey::Present, "the first that we hear of");
    assert_eq!(resolve(1), SignerKey::Present);
    assert_eq!(resolve(2), SignerKey::Previous);
    scenario.event(PDS, &commit(6));
    assert_eq!(scenario.repo.key, SignerKey::Present);
}

/// The other host lists commit `n`.
fn listed_elsewhere(scenario: &mut Scenario, n: u64) {
    let entry = ListingEntry {
        named: named(n),
        account: Account::Active,
    };
    let listed = scenario.with_context(|context, repo| {
        let page = sweep::take_page_note(context, OTHER_HOST);
        sweep::judge_entry(context, repo, &page, &entry)
    });
    assert_eq!(listed, ListingVerdict::Owed);
}

#[test]
fn a_move_to_less_is_asked_about_although_the_host_it_left_confirms_the_head() {
    let mut scenario = Scenario::holding(5);
    scenario.resolved(HOST, 1);
    for _ in 0..2 {
        scenario.pass(scenario.settings.confirm_every);
        // The host that it left goes on answering, and is asked first.
        scenario.compared(5);
        listed_elsewhere(&mut scenario, 4);
        assert!(scenario.repo.debt.resolve.is_some(), "another period");
        scenario.resolved(HOST, 1);
        listed_elsewhere(&mut scenario, 4);
        assert!(scenario.owes_nothing(), "once in a period");
    }
}

#[test]
fn the_handle_of_a_deleted_account_is_not_remembered_again_after_its_purge() {
    let handle = Handle::parse("alice.example.com").unwrap();
    let mut scenario = Scenario::holding(5);
    scenario.resolved_as(HOST, 2, Some(handle.clone()));
    assert_eq!(scenario.repo.handle, Some(handle.clone()));
    scenario.event(PDS, &Event::Account(Account::Deleted));
    scenario.resolved_as(HOST, 3, Some(handle.clone()));
    assert_eq!(
        scenario.repo.handle,
        Some(handle.clone()),
        "a purge clears it"
    );
    let now = scenario.now();
    account::purge_row(now, &mut scenario.repo);
    assert_eq!(scenario.repo.handle, None);
    scenario.resolved_as(HOST, 4, Some(handle));
    assert_eq!(scenario.repo.handle, None);
}
