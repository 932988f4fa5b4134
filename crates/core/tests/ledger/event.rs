//! Tests R4, R5, R6, R8 and R9: the decision about an event, and what the event changes.

use std::time::Duration;

use gapless_core::ledger::event::{Decision, Event, ParkedTotals};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::settings::{PARKED_BYTES, PARKED_BYTES_IN_ALL, PARKED_FRAMES};
use gapless_core::ledger::settings::{UNJUDGED_BYTES, UNJUDGED_BYTES_IN_ALL};
use gapless_core::ledger::*;

use crate::scenario::*;

fn is_parked(decision: Decision) -> bool {
    matches!(decision, Decision::Park(_))
}

#[test]
fn a_commit_that_chains_is_applied_and_heals_a_reset_for_nothing() {
    let mut scenario = Scenario::holding(5);
    scenario.reset(PDS);
    assert!(!scenario.complete());
    assert_eq!(scenario.event(PDS, &commit(6)), Decision::Apply);
    assert!(scenario.head_is(6));
    assert_eq!(scenario.repo.last_firehose_rev, Some(rev(6)));
    assert_eq!(scenario.repo.last_indexed_rev, Some(rev(5)));
    assert!(scenario.complete());
}

#[test]
fn a_commit_that_does_not_chain_is_parked_and_owed() {
    let mut scenario = Scenario::holding(5);
    assert!(is_parked(scenario.event(PDS, &commit(8))));
    assert!(scenario.head_is(5));
    assert_eq!(scenario.repo.first_rev_since_reset, Some(rev(8)));
    assert_eq!(scenario.reasons(), ["newer_commit_known", "fetch_owed"]);
    assert_eq!(scenario.repo.debt.named, Some(named(8)));
}

#[test]
fn the_first_commit_of_all_is_the_whole_repository() {
    let mut scenario = Scenario::new();
    let first = Event::Signed {
        head: head(1),
        before: PriorState::Root(root(0)),
        bytes: 9,
    };
    assert_eq!(scenario.event(PDS, &first), Decision::Apply);
    assert!(scenario.head_is(1));
}

#[test]
fn nothing_held_and_a_later_commit_means_fetch() {
    let mut scenario = Scenario::new();
    assert!(is_parked(scenario.event(PDS, &commit(6))));
    assert_eq!(scenario.repo.first_rev_since_reset, Some(rev(6)));
    assert!(scenario.repo.debt.fetch.is_some());
    assert!(scenario.repo.head().is_none());
}

#[test]
fn a_replay_moves_nothing_and_raises_nothing() {
    let mut scenario = Scenario::holding(5);
    scenario.reset(PDS);
    let before = scenario.repo.clone();
    assert_eq!(scenario.event(PDS, &commit(5)), Decision::Pass);
    assert_eq!(scenario.event(PDS, &commit(3)), Decision::Pass);
    assert_eq!(scenario.repo, before);
    assert!(
        !scenario.complete(),
        "a replay says nothing about what was missed"
    );
}

#[test]
fn two_commits_with_one_rev_are_an_alarm() {
    let mut scenario = Scenario::holding(5);
    let mut other = head(5);
    other.commit = cid("another");
    let fork = Event::Signed {
        head: other,
        before: PriorState::Root(root(4)),
        bytes: 9,
    };
    assert_eq!(scenario.event(PDS, &fork), Decision::Pass);
    assert!(scenario.head_is(5));
    assert!(scenario.notices.contains(&Notice::Fork { rev: rev(5) }));
    assert_eq!(scenario.reasons(), ["compare_owed"]);
}

#[test]
fn a_rev_from_the_future_is_not_signed_for_us() {
    let mut scenario = Scenario::holding(5);
    let ahead = scenario.time.after(Duration::from_secs(6 * 60));
    let mut future = head(6);
    future.rev = gapless_atp::syntax::Rev::from_micros(ahead.0, 0);
    let event = Event::Signed {
        head: future,
        before: PriorState::Root(root(5)),
        bytes: 9,
    };
    assert_eq!(scenario.event(PDS, &event), Decision::Pass);
    assert!(scenario.head_is(5));
    assert_eq!(scenario.repo.first_rev_since_reset, Some(rev(5)));
}

#[test]
fn a_sync_with_our_root_moves_the_head_and_another_is_owed() {
    let mut scenario = Scenario::holding(5);
    let mut same = head(6);
    same.data = root(5);
    let event = Event::Signed {
        head: same,
        before: PriorState::Untold,
        bytes: 9,
    };
    assert_eq!(scenario.event(PDS, &event), Decision::Apply);
    assert_eq!(scenario.repo.head(), Some(&same));
    assert!(scenario.complete());
    assert!(is_parked(scenario.event(PDS, &sync(8))));
    assert_eq!(scenario.reasons(), ["newer_commit_known", "fetch_owed"]);
}

#[test]
fn operations_without_proof_wait_for_a_recomputation() {
    let mut scenario = Scenario::holding(5);
    let legacy = Event::Signed {
        head: head(6),
        before: PriorState::Recompute,
        bytes: 9,
    };
    assert!(is_parked(scenario.event(PDS, &legacy)));
    assert_eq!(scenario.repo.debt.fetch.unwrap().why, DebtReason::Legacy);
}

#[test]
fn without_keys_to_recompute_with_legacy_commits_are_fetched_now_and_then() {
    let mut scenario = Scenario::holding(5);
    scenario.settings.wanted_keys_only = true;
    let legacy = Event::Signed {
        head: head(6),
        before: PriorState::Recompute,
        bytes: 9,
    };
    scenario.event(PDS, &legacy);
    assert_eq!(debt::plan_work(scenario.time, &scenario.repo), None);
    scenario.pass(settings::LEGACY_FETCH_EVERY);
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(debt::Work::Fetch)
    );
}

#[test]
fn what_is_not_signed_raises_nothing_and_makes_us_ask() {
    let mut scenario = Scenario::holding(5);
    let first = scenario.repo.first_rev_since_reset;
    scenario.event(PDS, &Event::Unsigned);
    assert!(scenario.head_is(5));
    assert_eq!(scenario.repo.first_rev_since_reset, first);
    assert_eq!(scenario.repo.marker, None, "it took the place of something");
    assert_eq!(scenario.reasons(), ["not_compared", "compare_owed"]);
    assert_eq!(scenario.compared(5), fetch::Next::Done);
    assert!(scenario.complete());
}

#[test]
fn what_is_not_signed_and_not_from_the_cover_does_not_touch_the_marker() {
    let mut scenario = Scenario::holding(5);
    let marker = scenario.repo.marker;
    scenario.event(RELAY, &Event::Unsigned);
    assert_eq!(scenario.repo.marker, marker);
    assert_eq!(scenario.reasons(), ["compare_owed"]);
}

#[test]
fn an_unresolved_event_is_kept_and_both_questions_are_owed() {
    let mut scenario = Scenario::holding(5);
    let event = Event::Unresolved {
        claimed: head(6),
        bytes: 9,
    };
    let Decision::Park(parked) = scenario.event(PDS, &event) else {
        panic!("it must be kept");
    };
    assert_eq!(parked.before, PriorState::Unjudged);
    assert_eq!(scenario.repo.first_rev_since_reset, Some(rev(5)));
    assert_eq!(scenario.repo.marker, None);
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(debt::Work::Resolve)
    );
    assert_eq!(
        scenario.reasons(),
        ["not_compared", "resolve_owed", "compare_owed"]
    );
}

#[test]
fn an_event_from_another_hosts_stream_is_not_applied_but_heard() {
    let mut scenario = Scenario::holding(5);
    let marker = scenario.repo.marker;
    assert!(is_parked(scenario.event(OTHER, &commit(6))));
    assert!(scenario.head_is(5));
    assert_eq!(scenario.repo.marker, marker);
    assert_eq!(scenario.repo.first_rev_since_reset, Some(rev(6)));
    assert_eq!(
        scenario.reasons(),
        ["newer_commit_known", "resolve_owed", "fetch_owed"]
    );
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(debt::Work::Resolve)
    );
    // Our own host brings it: only the question to the directory is left.
    scenario.event(PDS, &commit(6));
    assert_eq!(scenario.reasons(), ["resolve_owed"]);
}

#[test]
fn a_misrouted_replay_or_forgery_only_asks_where_it_lives() {
    for event in [commit(5), Event::Unsigned, Event::Account(Account::Active)] {
        let mut scenario = Scenario::holding(5);
        assert_eq!(scenario.event(OTHER, &event), Decision::Pass);
        assert_eq!(scenario.reasons(), ["resolve_owed"]);
        assert_eq!(scenario.repo.account, Account::Active);
    }
}

#[test]
fn while_a_snapshot_is_written_commits_wait() {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now();
    fetch::begin_snapshot(now, &mut scenario.repo, &snapshot(7));
    assert!(is_parked(scenario.event(PDS, &commit(8))));
    assert!(scenario.reasons().contains(&"applying"));
    assert_eq!(
        scenario.event(PDS, &commit(5)),
        Decision::Pass,
        "below the floor"
    );
}

#[test]
fn an_empty_commit_moves_the_rev() {
    let mut scenario = Scenario::holding(5);
    let mut empty = head(6);
    empty.data = root(5);
    let event = Event::Signed {
        head: empty,
        before: PriorState::Root(root(5)),
        bytes: 9,
    };
    assert_eq!(scenario.event(PDS, &event), Decision::Apply);
    assert_eq!(scenario.repo.head(), Some(&empty));
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
        let mut scenario = Scenario::holding(5);
        let epoch = scenario.covers.open_epoch(PDS);
        let decision = scenario.event_with(PDS, epoch, &commit(8), &totals);
        assert_eq!(decision, Decision::Pass);
        let dropped = Notice::ParkedDropped {
            rev: rev(8),
            why: DropReason::NoRoom,
        };
        assert!(scenario.notices.contains(&dropped));
        assert_eq!(scenario.reasons(), ["newer_commit_known", "fetch_owed"]);
    }
}

#[test]
fn a_signed_frame_replaces_an_unjudged_one_and_not_the_reverse() {
    let epoch = |scenario: &Scenario| scenario.covers.open_epoch(PDS);
    let totals = |before| ParkedTotals {
        frames: 1,
        same_rev: Some(before),
        ..ParkedTotals::default()
    };
    let mut scenario = Scenario::holding(5);
    let open = epoch(&scenario);
    let kept = scenario.event_with(PDS, open, &commit(8), &totals(PriorState::Unjudged));
    assert!(is_parked(kept));
    let unjudged = Event::Unresolved {
        claimed: head(9),
        bytes: 9,
    };
    let signed = totals(PriorState::Root(root(8)));
    assert_eq!(
        scenario.event_with(PDS, open, &unjudged, &signed),
        Decision::Pass
    );
}

#[test]
fn unjudged_frames_never_take_the_room_of_signed_ones() {
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
        let mut scenario = Scenario::holding(5);
        let open = Some(scenario.epoch(PDS));
        let passed = scenario.event_with(PDS, open, &unjudged, &totals);
        assert_eq!(passed, Decision::Pass, "{totals:?}");
        assert!(scenario.repo.debt.resolve.is_some(), "and it is asked");
        assert!(is_parked(scenario.event_with(
            PDS,
            open,
            &commit(8),
            &totals
        )));
    }
}

#[test]
fn what_came_before_the_document_is_not_called_unsigned() {
    let mut scenario = Scenario::holding(5);
    scenario.event(
        PDS,
        &Event::Unresolved {
            claimed: head(6),
            bytes: 9,
        },
    );
    assert!(scenario.notices.contains(&Notice::Unresolved));
    assert!(!scenario.notices.contains(&Notice::Unauthenticated));
    assert_eq!(
        scenario.repo.debt.compare.unwrap().why,
        DebtReason::Unresolved
    );
}

#[test]
fn first_sighting_means_fetch() {
    let mut scenario = Scenario::new();
    scenario.repo.account = Account::Unknown;
    scenario.event(RELAY, &Event::Identity);
    assert_eq!(
        scenario.repo.debt.fetch.unwrap().why,
        DebtReason::FirstSighting
    );
}

#[test]
fn commits_of_a_hidden_account_are_kept_and_owed_not_shown() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deactivated));
    assert!(is_parked(scenario.event(PDS, &commit(6))));
    assert!(scenario.head_is(5));
    assert_eq!(
        scenario.repo.debt.fetch.unwrap().why,
        DebtReason::WhileInactive
    );
}
