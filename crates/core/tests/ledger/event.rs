//! R4, R5, R6, R8, R9: what an event does.

use std::time::Duration;

use gapless_core::ledger::event::{Decision, Event, ParkedTotals};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::settings::{PARKED_BYTES, PARKED_BYTES_IN_ALL, PARKED_FRAMES};
use gapless_core::ledger::settings::{UNJUDGED_BYTES, UNJUDGED_BYTES_IN_ALL};
use gapless_core::ledger::*;

use crate::desk::*;

fn is_parked(decision: Decision) -> bool {
    matches!(decision, Decision::Park(_))
}

#[test]
fn a_commit_that_chains_is_applied_and_heals_a_reset_for_nothing() {
    let mut desk = Desk::holding(5);
    desk.reset(PDS);
    assert!(!desk.complete());
    assert_eq!(desk.event(PDS, &commit(6)), Decision::Apply);
    assert!(desk.head_is(6));
    assert_eq!(desk.repo.last_firehose_rev, Some(rev(6)));
    assert_eq!(desk.repo.last_indexed_rev, Some(rev(5)));
    assert!(desk.complete());
}

#[test]
fn a_commit_that_does_not_chain_is_parked_and_owed() {
    let mut desk = Desk::holding(5);
    assert!(is_parked(desk.event(PDS, &commit(8))));
    assert!(desk.head_is(5));
    assert_eq!(desk.repo.first_rev_since_reset, Some(rev(8)));
    assert_eq!(desk.reasons(), ["newer_commit_known", "fetch_owed"]);
    assert_eq!(desk.repo.debt.named, Some(named(8)));
}

#[test]
fn the_first_commit_of_all_is_the_whole_repository() {
    let mut desk = Desk::new();
    let first = Event::Signed {
        head: head(1),
        before: PriorState::Root(root(0)),
        bytes: 9,
    };
    assert_eq!(desk.event(PDS, &first), Decision::Apply);
    assert!(desk.head_is(1));
}

#[test]
fn nothing_held_and_a_later_commit_means_fetch() {
    let mut desk = Desk::new();
    assert!(is_parked(desk.event(PDS, &commit(6))));
    assert_eq!(desk.repo.first_rev_since_reset, Some(rev(6)));
    assert!(desk.repo.debt.fetch.is_some());
    assert!(desk.repo.head().is_none());
}

#[test]
fn a_replay_moves_nothing_and_raises_nothing() {
    let mut desk = Desk::holding(5);
    desk.reset(PDS);
    let before = desk.repo.clone();
    assert_eq!(desk.event(PDS, &commit(5)), Decision::Pass);
    assert_eq!(desk.event(PDS, &commit(3)), Decision::Pass);
    assert_eq!(desk.repo, before);
    assert!(
        !desk.complete(),
        "a replay says nothing about what was missed"
    );
}

#[test]
fn two_commits_with_one_rev_are_an_alarm() {
    let mut desk = Desk::holding(5);
    let mut other = head(5);
    other.commit = cid("another");
    let fork = Event::Signed {
        head: other,
        before: PriorState::Root(root(4)),
        bytes: 9,
    };
    assert_eq!(desk.event(PDS, &fork), Decision::Pass);
    assert!(desk.head_is(5));
    assert!(desk.notices.contains(&Notice::Fork { rev: rev(5) }));
    assert_eq!(desk.reasons(), ["compare_owed"]);
}

#[test]
fn a_rev_from_the_future_is_not_signed_for_us() {
    let mut desk = Desk::holding(5);
    let ahead = desk.time.after(Duration::from_secs(6 * 60));
    let mut future = head(6);
    future.rev = gapless_atp::syntax::Rev::from_micros(ahead.0, 0);
    let event = Event::Signed {
        head: future,
        before: PriorState::Root(root(5)),
        bytes: 9,
    };
    assert_eq!(desk.event(PDS, &event), Decision::Pass);
    assert!(desk.head_is(5));
    assert_eq!(desk.repo.first_rev_since_reset, Some(rev(5)));
}

#[test]
fn a_sync_with_our_root_moves_the_head_and_another_is_owed() {
    let mut desk = Desk::holding(5);
    let mut same = head(6);
    same.data = root(5);
    let event = Event::Signed {
        head: same,
        before: PriorState::Untold,
        bytes: 9,
    };
    assert_eq!(desk.event(PDS, &event), Decision::Apply);
    assert_eq!(desk.repo.head(), Some(&same));
    assert!(desk.complete());
    assert!(is_parked(desk.event(PDS, &sync(8))));
    assert_eq!(desk.reasons(), ["newer_commit_known", "fetch_owed"]);
}

#[test]
fn operations_without_proof_wait_for_a_recomputation() {
    let mut desk = Desk::holding(5);
    let legacy = Event::Signed {
        head: head(6),
        before: PriorState::Recompute,
        bytes: 9,
    };
    assert!(is_parked(desk.event(PDS, &legacy)));
    assert_eq!(desk.repo.debt.fetch.unwrap().why, DebtReason::Legacy);
}

#[test]
fn without_keys_to_recompute_with_legacy_commits_are_fetched_now_and_then() {
    let mut desk = Desk::holding(5);
    desk.settings.wanted_keys_only = true;
    let legacy = Event::Signed {
        head: head(6),
        before: PriorState::Recompute,
        bytes: 9,
    };
    desk.event(PDS, &legacy);
    assert_eq!(debt::plan_work(desk.time, &desk.repo), None);
    desk.pass(settings::LEGACY_FETCH_EVERY);
    assert_eq!(
        debt::plan_work(desk.time, &desk.repo),
        Some(debt::Work::Fetch)
    );
}

#[test]
fn what_is_not_signed_raises_nothing_and_makes_us_ask() {
    let mut desk = Desk::holding(5);
    let first = desk.repo.first_rev_since_reset;
    desk.event(PDS, &Event::Unsigned);
    assert!(desk.head_is(5));
    assert_eq!(desk.repo.first_rev_since_reset, first);
    assert_eq!(desk.repo.marker, None, "it took the place of something");
    assert_eq!(desk.reasons(), ["not_compared", "compare_owed"]);
    assert_eq!(desk.compared(5), fetch::Next::Done);
    assert!(desk.complete());
}

#[test]
fn what_is_not_signed_and_not_from_the_cover_does_not_touch_the_marker() {
    let mut desk = Desk::holding(5);
    let marker = desk.repo.marker;
    desk.event(RELAY, &Event::Unsigned);
    assert_eq!(desk.repo.marker, marker);
    assert_eq!(desk.reasons(), ["compare_owed"]);
}

#[test]
fn an_unresolved_event_is_kept_and_both_questions_are_owed() {
    let mut desk = Desk::holding(5);
    let event = Event::Unresolved {
        claimed: head(6),
        bytes: 9,
    };
    let Decision::Park(parked) = desk.event(PDS, &event) else {
        panic!("it must be kept");
    };
    assert_eq!(parked.before, PriorState::Unjudged);
    assert_eq!(desk.repo.first_rev_since_reset, Some(rev(5)));
    assert_eq!(desk.repo.marker, None);
    assert_eq!(
        debt::plan_work(desk.time, &desk.repo),
        Some(debt::Work::Resolve)
    );
    assert_eq!(
        desk.reasons(),
        ["not_compared", "resolve_owed", "compare_owed"]
    );
}

#[test]
fn an_event_from_another_hosts_stream_is_not_applied_but_heard() {
    let mut desk = Desk::holding(5);
    let marker = desk.repo.marker;
    assert!(is_parked(desk.event(OTHER, &commit(6))));
    assert!(desk.head_is(5));
    assert_eq!(desk.repo.marker, marker);
    assert_eq!(desk.repo.first_rev_since_reset, Some(rev(6)));
    assert_eq!(
        desk.reasons(),
        ["newer_commit_known", "resolve_owed", "fetch_owed"]
    );
    assert_eq!(
        debt::plan_work(desk.time, &desk.repo),
        Some(debt::Work::Resolve)
    );
    // Our own host brings it: only the question to the directory is left.
    desk.event(PDS, &commit(6));
    assert_eq!(desk.reasons(), ["resolve_owed"]);
}

#[test]
fn a_misrouted_replay_or_forgery_only_asks_where_it_lives() {
    for event in [commit(5), Event::Unsigned, Event::Account(Account::Active)] {
        let mut desk = Desk::holding(5);
        assert_eq!(desk.event(OTHER, &event), Decision::Pass);
        assert_eq!(desk.reasons(), ["resolve_owed"]);
        assert_eq!(desk.repo.account, Account::Active);
    }
}

#[test]
fn while_a_snapshot_is_written_commits_wait() {
    let mut desk = Desk::holding(5);
    let now = desk.now();
    fetch::begin_snapshot(now, &mut desk.repo, &snapshot(7));
    assert!(is_parked(desk.event(PDS, &commit(8))));
    assert!(desk.reasons().contains(&"applying"));
    assert_eq!(
        desk.event(PDS, &commit(5)),
        Decision::Pass,
        "below the floor"
    );
}

#[test]
fn an_empty_commit_moves_the_rev() {
    let mut desk = Desk::holding(5);
    let mut empty = head(6);
    empty.data = root(5);
    let event = Event::Signed {
        head: empty,
        before: PriorState::Root(root(5)),
        bytes: 9,
    };
    assert_eq!(desk.event(PDS, &event), Decision::Apply);
    assert_eq!(desk.repo.head(), Some(&empty));
}

#[test]
fn parking_has_limits_and_says_what_it_drops() {
    let full = [
        ParkedTotals {
            frames: PARKED_FRAMES,
            ..ParkedTotals::default()
        },
        ParkedTotals {
            bytes: PARKED_BYTES,
            ..ParkedTotals::default()
        },
        ParkedTotals {
            bytes_in_all: PARKED_BYTES_IN_ALL,
            ..ParkedTotals::default()
        },
    ];
    for totals in full {
        let mut desk = Desk::holding(5);
        let epoch = desk.covers.open_epoch(PDS);
        let decision = desk.event_with(PDS, epoch, &commit(8), &totals);
        assert_eq!(decision, Decision::Pass);
        let dropped = Notice::ParkedDropped {
            rev: rev(8),
            why: DropReason::NoRoom,
        };
        assert!(desk.notices.contains(&dropped));
        assert_eq!(desk.reasons(), ["newer_commit_known", "fetch_owed"]);
    }
}

#[test]
fn what_nobody_judged_makes_room_for_what_is_signed_and_not_the_other_way_round() {
    let epoch = |desk: &Desk| desk.covers.open_epoch(PDS);
    let totals = |before| ParkedTotals {
        frames: 1,
        same_rev: Some(before),
        ..ParkedTotals::default()
    };
    let mut desk = Desk::holding(5);
    let open = epoch(&desk);
    let kept = desk.event_with(PDS, open, &commit(8), &totals(PriorState::Unjudged));
    assert!(is_parked(kept));
    let unjudged = Event::Unresolved {
        claimed: head(9),
        bytes: 9,
    };
    let signed = totals(PriorState::Root(root(8)));
    assert_eq!(
        desk.event_with(PDS, open, &unjudged, &signed),
        Decision::Pass
    );
}

#[test]
fn what_nobody_has_judged_never_takes_the_room_of_what_is_signed() {
    let unjudged = Event::Unresolved {
        claimed: head(9),
        bytes: 9,
    };
    let of_one = ParkedTotals {
        bytes: UNJUDGED_BYTES,
        ..ParkedTotals::default()
    };
    let of_all = ParkedTotals {
        bytes_in_all: UNJUDGED_BYTES_IN_ALL,
        ..ParkedTotals::default()
    };
    for totals in [of_one, of_all] {
        let mut desk = Desk::holding(5);
        let open = Some(desk.epoch(PDS));
        let passed = desk.event_with(PDS, open, &unjudged, &totals);
        assert_eq!(passed, Decision::Pass, "{totals:?}");
        assert!(desk.repo.debt.resolve.is_some(), "and it is asked");
        assert!(is_parked(desk.event_with(PDS, open, &commit(8), &totals)));
    }
}

#[test]
fn what_came_before_the_document_is_not_called_unsigned() {
    let mut desk = Desk::holding(5);
    desk.event(
        PDS,
        &Event::Unresolved {
            claimed: head(6),
            bytes: 9,
        },
    );
    assert!(desk.notices.contains(&Notice::Unresolved));
    assert!(!desk.notices.contains(&Notice::Unauthenticated));
    assert_eq!(desk.repo.debt.compare.unwrap().why, DebtReason::Unresolved);
}

#[test]
fn first_sighting_means_fetch() {
    let mut desk = Desk::new();
    desk.repo.account = Account::Unknown;
    desk.event(RELAY, &Event::Identity);
    assert_eq!(desk.repo.debt.fetch.unwrap().why, DebtReason::FirstSighting);
}

#[test]
fn commits_of_a_hidden_account_are_kept_and_owed_not_shown() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Account(Account::Deactivated));
    assert!(is_parked(desk.event(PDS, &commit(6))));
    assert!(desk.head_is(5));
    assert_eq!(desk.repo.debt.fetch.unwrap().why, DebtReason::WhileInactive);
}
