//! R7: where a repository lives, and the frames that waited for the answer.

use std::collections::BTreeMap;

use gapless_core::ledger::event::{Decision, Event};
use gapless_core::ledger::fetch::Next;
use gapless_core::ledger::identity::{self, Document};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::parked::{self, ParkedStep};
use gapless_core::ledger::*;

use crate::desk::*;

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
    let mut desk = Desk::holding(5);
    desk.resolved(OTHER_HOST, 2);
    assert!(desk.head_is(5));
    assert_eq!(desk.repo.cover, Some(OTHER));
    assert_eq!(desk.repo.marker, None);
    assert_eq!(desk.repo.first_rev_since_reset, None);
    assert_eq!(desk.repo.account, Account::Unknown);
    assert_eq!(desk.reasons(), ["not_compared", "compare_owed"]);
    assert_eq!(desk.compared(5), Next::Done);
    assert!(desk.complete());
}

#[test]
fn an_older_document_moves_nothing() {
    let mut desk = Desk::holding(5);
    desk.resolved(OTHER_HOST, 3);
    desk.resolved(HOST, 2);
    assert_eq!(desk.repo.host, Some(OTHER_HOST));
    assert!(desk.notices.contains(&Notice::OldDocument));
}

#[test]
fn an_older_document_does_not_pay_the_question() {
    let mut desk = Desk::holding(5);
    desk.resolved(HOST, 3);
    desk.event(PDS, &Event::Identity);
    desk.resolved(HOST, 2);
    assert_eq!(desk.reasons(), ["resolve_owed"]);
    desk.resolved(HOST, 3);
    assert!(desk.complete());
}

#[test]
fn identity_events_only_make_us_ask() {
    let mut desk = Desk::holding(5);
    assert_eq!(desk.event(PDS, &Event::Identity), Decision::Pass);
    assert_eq!(desk.repo.host, Some(HOST));
    assert_eq!(desk.reasons(), ["resolve_owed"]);
}

#[test]
fn there_and_back_leaves_it_in_doubt() {
    let mut desk = Desk::holding(5);
    desk.resolved(OTHER_HOST, 2);
    desk.resolved(HOST, 3);
    assert!(!desk.complete(), "it may have written on the other host");
    assert_eq!(desk.compared(6), Next::Fetch(named(6)));
}

#[test]
fn a_larger_epoch_of_the_old_host_is_not_compared_with_the_new_ones() {
    let mut desk = Desk::holding(5);
    for _ in 0..5 {
        desk.reset(PDS);
    }
    desk.event(PDS, &commit(6));
    desk.resolved(OTHER_HOST, 2);
    assert!(desk.epoch(OTHER) < desk.epoch(PDS));
    assert!(desk.reasons().contains(&"not_compared"));
}

#[test]
fn late_events_of_the_old_host_are_not_applied() {
    let mut desk = Desk::holding(5);
    desk.resolved(OTHER_HOST, 2);
    desk.compared(5);
    assert!(desk.complete());
    assert!(matches!(desk.event(PDS, &commit(6)), Decision::Park(_)));
    assert!(desk.head_is(5));
    assert!(!desk.complete());
}

#[test]
fn a_frame_of_the_host_it_moved_to_is_applied_from_parking() {
    let mut desk = Desk::holding(5);
    let Decision::Park(waiting) = desk.event(OTHER, &commit(6)) else {
        panic!("it must be kept");
    };
    let all = frames(&[waiting]);
    assert_eq!(
        parked::next_step(&desk.repo, &all, &[]),
        None,
        "not its host"
    );
    desk.resolved(OTHER_HOST, 2);
    assert_eq!(
        parked::next_step(&desk.repo, &all, &[]),
        Some(ParkedStep::Apply(rev(6)))
    );
    parked::apply(&mut desk.repo, &waiting);
    assert!(desk.head_is(6));
}

#[test]
fn parked_frames_go_in_order_and_are_dropped_when_passed() {
    let mut desk = Desk::holding(5);
    let all = frames(&[frame(4, HOST), frame(6, HOST), frame(7, HOST)]);
    assert_eq!(
        parked::next_step(&desk.repo, &all, &[]),
        Some(ParkedStep::Drop(rev(4), DropReason::Superseded))
    );
    let all = frames(&[frame(6, HOST), frame(7, HOST)]);
    assert_eq!(
        parked::next_step(&desk.repo, &all, &[]),
        Some(ParkedStep::Apply(rev(6)))
    );
    let marker = desk.repo.marker;
    parked::apply(&mut desk.repo, &frame(6, HOST));
    assert_eq!(desk.repo.marker, marker);
    let all = frames(&[frame(7, HOST)]);
    assert_eq!(
        parked::next_step(&desk.repo, &all, &[]),
        Some(ParkedStep::Apply(rev(7)))
    );
}

#[test]
fn frames_of_an_abandoned_lineage_are_dropped() {
    let mut desk = Desk::holding(5);
    desk.repo.abandoned = Some(rev(7));
    let all = frames(&[frame(6, HOST)]);
    assert_eq!(
        parked::next_step(&desk.repo, &all, &[]),
        Some(ParkedStep::Drop(rev(6), DropReason::Abandoned))
    );
}

#[test]
fn unproven_frames_are_recomputed_and_unjudged_ones_left_alone() {
    let desk = Desk::holding(5);
    let mut legacy = frame(6, HOST);
    legacy.before = PriorState::Recompute;
    let mut unjudged = frame(7, HOST);
    unjudged.before = PriorState::Unjudged;
    let all = frames(&[legacy, unjudged]);
    assert_eq!(
        parked::next_step(&desk.repo, &all, &[]),
        Some(ParkedStep::Recompute(rev(6)))
    );
    assert_eq!(parked::next_step(&desk.repo, &all, &[rev(6)]), None);
    assert_eq!(parked::unjudged_revs(&all), [rev(7)]);
}

#[test]
fn nothing_waiting_is_applied_to_a_hidden_repository() {
    let mut desk = Desk::holding(5);
    desk.repo.account = Account::Takendown;
    let all = frames(&[frame(6, HOST)]);
    assert_eq!(parked::next_step(&desk.repo, &all, &[]), None);
}

#[test]
fn frames_of_other_hosts_lines_are_found_for_dropping() {
    let desk = Desk::holding(5);
    let all = frames(&[frame(8, OTHER_HOST), frame(9, HOST)]);
    assert_eq!(parked::foreign_revs(&desk.repo, &all), [rev(8)]);
}

#[test]
fn a_head_that_is_held_when_the_key_changes_was_signed_by_the_key_before() {
    let mut desk = Desk::holding(5);
    let mut resolve = |key: u8| {
        let document = Document {
            key: Some(KeyBytes {
                curve: 0,
                point: [key; 33],
            }),
            host: Some(HOST),
            version: 0,
            tombstoned: false,
        };
        let (asked, now) = (desk.now().tick, desk.now());
        identity::resolved(
            now,
            &mut desk.repo,
            &desk.covers,
            asked,
            &document,
            &mut desk.notices,
        );
        desk.repo.key
    };
    assert_eq!(resolve(1), SignerKey::Present, "the first that we hear of");
    assert_eq!(resolve(1), SignerKey::Present);
    assert_eq!(resolve(2), SignerKey::Previous);
    desk.event(PDS, &commit(6));
    assert_eq!(desk.repo.key, SignerKey::Present);
}
