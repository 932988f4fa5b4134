//! R6 for sources that prove nothing: what a Jetstream says, and when it may have
//! left something out.

use std::time::Duration;

use gapless_core::ledger::claim::{self, ClaimDecision};
use gapless_core::ledger::event::{Context, Origin};
use gapless_core::ledger::notice::ResetReason;
use gapless_core::ledger::settings::{
    BACKWARD_FRAMES, CONTINUITY_WITHIN, OPEN_AFTER, STRANGER_TOKENS, TIMED_OVERLAP,
};
use gapless_core::ledger::stream::Placement;
use gapless_core::ledger::{sweep, *};

use crate::desk::*;

const JETSTREAM: UpstreamId = UpstreamId(9);
/// The overlap, in microseconds.
const MORE: u64 = TIMED_OVERLAP.as_micros() as u64;

fn with_jetstream(mut desk: Desk) -> Desk {
    let row = upstream(UpstreamKind::Jetstream, None);
    desk.covers.add(Tick(0), JETSTREAM, row);
    desk
}

fn claimed(desk: &mut Desk, n: u64) -> ClaimDecision {
    let context = Context {
        now: desk.now(),
        covers: &desk.covers,
        settings: &desk.settings,
    };
    let origin = Origin {
        upstream: JETSTREAM,
        epoch: None,
    };
    claim::claim_event(context, &mut desk.repo, origin, rev(n))
}

/// Nobody but the Jetstream is followed.
fn alone(mut desk: Desk) -> Desk {
    for id in [PDS, OTHER, RELAY] {
        let now = desk.now().tick;
        desk.covers.remove(now, id);
    }
    with_jetstream(desk)
}

#[test]
fn a_claim_raises_nothing_and_makes_us_ask() {
    let mut desk = alone(Desk::holding(5));
    // Whatever the missing cover changes is done before.
    cover::update_cover(&mut desk.repo, &desk.covers);
    let before = desk.repo.clone();
    assert_eq!(claimed(&mut desk, 6), ClaimDecision::Keep);
    let owed = desk.repo.debt.compare.expect("it is owed to look");
    assert_eq!(owed.why, DebtReason::Claimed);
    assert!(owed.why.is_strangers());
    let after = Repo {
        debt: before.debt,
        ..desk.repo.clone()
    };
    assert_eq!(after, before, "nothing else");
    assert!(desk.reasons().contains(&"no_cover"));
}

#[test]
fn what_is_held_or_hidden_or_not_yet_possible_is_no_claim() {
    let mut desk = alone(Desk::holding(5));
    for old in [1, 4, 5] {
        assert_eq!(claimed(&mut desk, old), ClaimDecision::Old);
    }
    assert!(desk.repo.debt.is_empty());
    assert_eq!(claimed(&mut desk, 24 * 3_600), ClaimDecision::Future);
    desk.repo.account = Account::Deleted;
    assert_eq!(claimed(&mut desk, 6), ClaimDecision::Hidden);
    assert!(desk.repo.debt.is_empty());
    desk.repo.account = Account::Active;
    desk.repo.abandoned = Some(rev(7));
    assert_eq!(claimed(&mut desk, 7), ClaimDecision::Old);
    assert_eq!(claimed(&mut desk, 8), ClaimDecision::Keep);
}

#[test]
fn where_a_stream_speaks_for_it_nobody_asks_until_that_one_fails() {
    let mut desk = with_jetstream(Desk::holding(5));
    assert_eq!(claimed(&mut desk, 6), ClaimDecision::Covered);
    assert!(desk.complete(), "a word of a stranger takes nothing away");
    desk.lost(PDS);
    assert_eq!(claimed(&mut desk, 6), ClaimDecision::Covered, "only just");
    desk.pass(desk.settings.live_grace * 2);
    assert_eq!(claimed(&mut desk, 6), ClaimDecision::Keep);
    // Asked for too often: the cover, once back, is not kept from being complete.
    for _ in 0..STRANGER_TOKENS {
        let now = desk.now();
        desk.repo.debt = Debt::default();
        debt::owe(
            now,
            &mut desk.repo,
            debt::DebtKind::Compare,
            DebtReason::Claimed,
        );
        debt::begin_attempt(now, &mut desk.repo);
    }
    desk.repo.debt = Debt::default();
    assert_eq!(claimed(&mut desk, 6), ClaimDecision::TooMany);
    assert!(desk.repo.debt.is_empty());
}

#[test]
fn without_a_cover_a_flood_of_claims_costs_no_more_than_other_strangers() {
    let mut desk = alone(Desk::holding(5));
    let mut asked = 0;
    for n in 6..200 {
        assert_eq!(claimed(&mut desk, n), ClaimDecision::Keep);
        let now = desk.now();
        if debt::plan_work(now.time, &desk.repo).is_some() {
            asked += 1;
            debt::begin_attempt(now, &mut desk.repo);
            let began = desk.now();
            debt::pay(began, &mut desk.repo, debt::DebtKind::Compare, began.tick);
        }
    }
    assert_eq!(asked, STRANGER_TOKENS);
    assert!(!desk.repo.debt.is_empty(), "it waits, and is not forgotten");
}

#[test]
fn the_first_sighting_by_a_jetstream_is_fetched() {
    let mut desk = alone(Desk::new());
    desk.repo.account = Account::Unknown;
    assert_eq!(claimed(&mut desk, 3), ClaimDecision::Keep);
    let fetch = desk.repo.debt.fetch.expect("it is owed");
    assert_eq!(fetch.why, DebtReason::FirstSighting);
    assert_eq!(desk.repo.relay, None, "it covers nobody");
}

fn dial(desk: &mut Desk, durable: Option<Cursor>) -> Option<u64> {
    let now = desk.now();
    let source = desk.covers.get_mut(JETSTREAM).unwrap();
    let asked = source.stream.dial_timed(durable);
    let (row, notices) = (&mut source.row, &mut desk.notices);
    source.stream.connected(now, row, notices);
    asked
}

fn told(desk: &mut Desk, at: u64, event: u8) -> Placement {
    let now = desk.now();
    let source = desk.covers.get_mut(JETSTREAM).unwrap();
    let (row, notices) = (&mut source.row, &mut desk.notices);
    source
        .stream
        .timed_event(now, row, at, [event; 16], notices)
}

fn wait(desk: &mut Desk, span: Duration) {
    desk.pass(span);
    let now = desk.now();
    let source = desk.covers.get_mut(JETSTREAM).unwrap();
    let (row, notices) = (&mut source.row, &mut desk.notices);
    source.stream.check_deadlines(now, row, notices);
}

fn resets(desk: &mut Desk) -> Vec<ResetReason> {
    let each = std::mem::take(&mut desk.notices).into_iter();
    each.filter_map(|notice| match notice {
        Notice::Reset(why) => Some(why),
        _ => None,
    })
    .collect()
}

/// Connected, with an event read at this time.
fn flowing(at: u64) -> Desk {
    let mut desk = with_jetstream(Desk::new());
    desk.notices.clear();
    assert_eq!(dial(&mut desk, None), None);
    assert!(told(&mut desk, at, 1).counts);
    assert_eq!(resets(&mut desk), [ResetReason::NoCursor]);
    desk
}

#[test]
fn a_reconnect_asks_for_more_and_the_event_at_our_cursor_shows_that_it_was_there() {
    let mut desk = flowing(START);
    desk.lost(JETSTREAM);
    assert_eq!(dial(&mut desk, None), Some(START - MORE));
    for (at, event) in [(START - MORE, 7), (START - 1, 8), (START, 9)] {
        let read = told(&mut desk, at, event);
        assert!(!read.counts && !read.repeat, "{at}: once more, or late");
    }
    assert!(told(&mut desk, START, 1).repeat);
    assert!(told(&mut desk, START + 1, 2).counts);
    assert_eq!(resets(&mut desk), []);
}

#[test]
fn a_cursor_that_was_moved_up_without_a_word_is_a_gap() {
    let mut desk = flowing(START);
    desk.lost(JETSTREAM);
    dial(&mut desk, None);
    assert!(told(&mut desk, START + 1, 2).counts);
    assert_eq!(resets(&mut desk), [ResetReason::OtherEvent]);
    // So is silence where at least our event should come.
    desk.lost(JETSTREAM);
    dial(&mut desk, None);
    wait(&mut desk, CONTINUITY_WITHIN);
    assert_eq!(resets(&mut desk), [ResetReason::Silence]);
    assert!(told(&mut desk, START + 9, 3).counts);
    assert_eq!(resets(&mut desk), [], "once");
}

#[test]
fn a_clock_that_is_another_one_begins_a_new_numbering() {
    let mut desk = flowing(START);
    let numbering = desk.row(JETSTREAM).numbering;
    desk.lost(JETSTREAM);
    dial(&mut desk, None);
    assert!(told(&mut desk, START - MORE - 1, 2).counts);
    assert_eq!(resets(&mut desk), [ResetReason::OtherEvent]);
    assert_eq!(desk.row(JETSTREAM).numbering, numbering + 1);
    // In mid-stream a little late is nothing, and far behind only if it stays so.
    let mut desk = flowing(START);
    assert!(!told(&mut desk, START - MORE, 2).counts);
    for event in 1..BACKWARD_FRAMES {
        assert!(!told(&mut desk, START / 2 + u64::from(event), 3).counts);
    }
    assert_eq!(resets(&mut desk), []);
    assert!(told(&mut desk, START / 2, 4).counts);
    assert_eq!(resets(&mut desk), [ResetReason::Backwards]);
    assert!(told(&mut desk, START / 2 + 1, 5).counts);
}

#[test]
fn it_never_opens_never_vouches_and_keeps_no_sweep_waiting() {
    let mut desk = with_jetstream(Desk::new());
    dial(&mut desk, None);
    wait(&mut desk, OPEN_AFTER);
    let read = told(&mut desk, START, 1);
    assert_eq!(read.epoch, None);
    assert_eq!(desk.covers.open_epoch(JETSTREAM), None);
    let now = desk.now();
    assert!(!desk.covers.live(JETSTREAM, now.time, &desk.settings));
    let context = Context {
        now,
        covers: &desk.covers,
        settings: &desk.settings,
    };
    assert!(
        sweep::is_due(context, HOST, &desk.host),
        "nobody waits for it"
    );
}
