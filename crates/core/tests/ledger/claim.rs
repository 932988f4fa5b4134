//! Tests R6 for sources that prove nothing: what a claim of a Jetstream causes, and when the
//! Jetstream may have left something out.

use std::time::Duration;

use gapless_core::ledger::claim::{self, ClaimDecision};
use gapless_core::ledger::event::{Context, Origin};
use gapless_core::ledger::notice::ResetReason;
use gapless_core::ledger::settings::{
    BACKWARD_FRAMES, CONTINUITY_WITHIN, OPEN_AFTER, STRANGER_TOKENS, TIMED_OVERLAP,
};
use gapless_core::ledger::stream::Placement;
use gapless_core::ledger::{sweep, *};

use crate::scenario::*;

const JETSTREAM: UpstreamId = UpstreamId(9);
/// The overlap, in microseconds.
const MORE: u64 = TIMED_OVERLAP.as_micros() as u64;

fn with_jetstream(mut scenario: Scenario) -> Scenario {
    let row = upstream(UpstreamKind::Jetstream, None);
    scenario.covers.add(Tick(0), JETSTREAM, row);
    scenario
}

fn claimed(scenario: &mut Scenario, n: u64) -> ClaimDecision {
    let context = Context {
        now: scenario.now(),
        covers: &scenario.covers,
        settings: &scenario.settings,
    };
    let origin = Origin {
        upstream: JETSTREAM,
        epoch: None,
    };
    claim::claim_event(context, &mut scenario.repo, origin, rev(n))
}

/// Removes every upstream but the Jetstream.
fn alone(mut scenario: Scenario) -> Scenario {
    for id in [PDS, OTHER, RELAY] {
        let now = scenario.now().tick;
        scenario.covers.remove(now, id);
    }
    with_jetstream(scenario)
}

#[test]
fn a_claim_raises_nothing_and_makes_us_ask() {
    let mut scenario = alone(Scenario::holding(5));
    // Whatever the missing cover changes is done before.
    cover::update_cover(&mut scenario.repo, &scenario.covers);
    let before = scenario.repo.clone();
    assert_eq!(claimed(&mut scenario, 6), ClaimDecision::Keep);
    let owed = scenario.repo.debt.compare.expect("it is owed to look");
    assert_eq!(owed.why, DebtReason::Claimed);
    assert!(owed.why.is_strangers());
    let after = Repo {
        debt: before.debt,
        ..scenario.repo.clone()
    };
    assert_eq!(after, before, "nothing else");
    assert!(scenario.reasons().contains(&"no_cover"));
}

#[test]
fn what_is_held_or_hidden_or_not_yet_possible_is_no_claim() {
    let mut scenario = alone(Scenario::holding(5));
    for old in [1, 4, 5] {
        assert_eq!(claimed(&mut scenario, old), ClaimDecision::Old);
    }
    assert!(scenario.repo.debt.is_empty());
    assert_eq!(claimed(&mut scenario, 24 * 3_600), ClaimDecision::Future);
    scenario.repo.account = Account::Deleted;
    assert_eq!(claimed(&mut scenario, 6), ClaimDecision::Hidden);
    assert!(scenario.repo.debt.is_empty());
    scenario.repo.account = Account::Active;
    scenario.repo.abandoned = Some(rev(7));
    assert_eq!(claimed(&mut scenario, 7), ClaimDecision::Old);
    assert_eq!(claimed(&mut scenario, 8), ClaimDecision::Keep);
}

#[test]
fn a_claim_about_a_covered_repository_is_not_asked_until_the_cover_fails() {
    let mut scenario = with_jetstream(Scenario::holding(5));
    assert_eq!(claimed(&mut scenario, 6), ClaimDecision::Covered);
    assert!(
        scenario.complete(),
        "a word of a stranger takes nothing away"
    );
    scenario.lost(PDS);
    assert_eq!(
        claimed(&mut scenario, 6),
        ClaimDecision::Covered,
        "only just"
    );
    scenario.pass(scenario.settings.live_grace * 2);
    assert_eq!(claimed(&mut scenario, 6), ClaimDecision::Keep);
    // Asked for too often: the cover, once back, is not kept from being complete.
    for _ in 0..STRANGER_TOKENS {
        let now = scenario.now();
        scenario.repo.debt = Debt::default();
        debt::owe(
            now,
            &mut scenario.repo,
            debt::DebtKind::Compare,
            DebtReason::Claimed,
        );
        debt::begin_attempt(now, &mut scenario.repo);
    }
    scenario.repo.debt = Debt::default();
    assert_eq!(claimed(&mut scenario, 6), ClaimDecision::TooMany);
    assert!(scenario.repo.debt.is_empty());
}

#[test]
fn without_a_cover_a_flood_of_claims_costs_no_more_than_other_strangers() {
    let mut scenario = alone(Scenario::holding(5));
    let mut asked = 0;
    for n in 6..200 {
        assert_eq!(claimed(&mut scenario, n), ClaimDecision::Keep);
        let now = scenario.now();
        if debt::plan_work(now.time, &scenario.repo).is_some() {
            asked += 1;
            debt::begin_attempt(now, &mut scenario.repo);
            let began = scenario.now();
            debt::pay(
                began,
                &mut scenario.repo,
                debt::DebtKind::Compare,
                began.tick,
            );
        }
    }
    assert_eq!(asked, STRANGER_TOKENS);
    assert!(
        !scenario.repo.debt.is_empty(),
        "it waits, and is not forgotten"
    );
}

#[test]
fn the_first_sighting_by_a_jetstream_is_fetched() {
    let mut scenario = alone(Scenario::new());
    scenario.repo.account = Account::Unknown;
    assert_eq!(claimed(&mut scenario, 3), ClaimDecision::Keep);
    let fetch = scenario.repo.debt.fetch.expect("it is owed");
    assert_eq!(fetch.why, DebtReason::FirstSighting);
    assert_eq!(scenario.repo.relay, None, "it covers nobody");
}

fn dial(scenario: &mut Scenario, durable: Option<Cursor>) -> Option<u64> {
    let now = scenario.now();
    let source = scenario.covers.get_mut(JETSTREAM).unwrap();
    let asked = source.stream.dial_timed(durable);
    let (row, notices) = (&mut source.row, &mut scenario.notices);
    source.stream.connected(now, row, notices);
    asked
}

fn told(scenario: &mut Scenario, at: u64, event: u8) -> Placement {
    let now = scenario.now();
    let source = scenario.covers.get_mut(JETSTREAM).unwrap();
    let (row, notices) = (&mut source.row, &mut scenario.notices);
    source
        .stream
        .timed_event(now, row, at, [event; 16], notices)
}

fn wait(scenario: &mut Scenario, span: Duration) {
    scenario.pass(span);
    let now = scenario.now();
    let source = scenario.covers.get_mut(JETSTREAM).unwrap();
    let (row, notices) = (&mut source.row, &mut scenario.notices);
    source.stream.check_deadlines(now, row, notices);
}

fn resets(scenario: &mut Scenario) -> Vec<ResetReason> {
    let each = std::mem::take(&mut scenario.notices).into_iter();
    each.filter_map(|notice| match notice {
        Notice::Reset(why) => Some(why),
        _ => None,
    })
    .collect()
}

/// Connected, with an event read at this time.
fn flowing(at: u64) -> Scenario {
    let mut scenario = with_jetstream(Scenario::new());
    scenario.notices.clear();
    assert_eq!(dial(&mut scenario, None), None);
    assert!(told(&mut scenario, at, 1).counts);
    assert_eq!(resets(&mut scenario), [ResetReason::NoCursor]);
    scenario
}

#[test]
fn a_reconnect_asks_for_more_and_the_event_at_our_cursor_shows_that_it_was_there() {
    let mut scenario = flowing(START);
    scenario.lost(JETSTREAM);
    assert_eq!(dial(&mut scenario, None), Some(START - MORE));
    for (at, event) in [(START - MORE, 7), (START - 1, 8), (START, 9)] {
        let read = told(&mut scenario, at, event);
        assert!(!read.counts && !read.repeat, "{at}: once more, or late");
    }
    assert!(told(&mut scenario, START, 1).repeat);
    assert!(told(&mut scenario, START + 1, 2).counts);
    assert_eq!(resets(&mut scenario), []);
}

#[test]
fn a_cursor_that_was_moved_up_without_a_word_is_a_gap() {
    let mut scenario = flowing(START);
    scenario.lost(JETSTREAM);
    dial(&mut scenario, None);
    assert!(told(&mut scenario, START + 1, 2).counts);
    assert_eq!(resets(&mut scenario), [ResetReason::OtherEvent]);
    // So is silence where at least our event should come.
    scenario.lost(JETSTREAM);
    dial(&mut scenario, None);
    wait(&mut scenario, CONTINUITY_WITHIN);
    assert_eq!(resets(&mut scenario), [ResetReason::Silence]);
    assert!(told(&mut scenario, START + 9, 3).counts);
    assert_eq!(resets(&mut scenario), [], "once");
}

#[test]
fn a_clock_that_is_another_one_begins_a_new_numbering() {
    let mut scenario = flowing(START);
    let numbering = scenario.row(JETSTREAM).numbering;
    scenario.lost(JETSTREAM);
    dial(&mut scenario, None);
    assert!(told(&mut scenario, START - MORE - 1, 2).counts);
    assert_eq!(resets(&mut scenario), [ResetReason::OtherEvent]);
    assert_eq!(scenario.row(JETSTREAM).numbering, numbering + 1);
    // In mid-stream a little late is nothing, and far behind only if it stays so.
    let mut scenario = flowing(START);
    assert!(!told(&mut scenario, START - MORE, 2).counts);
    for event in 1..BACKWARD_FRAMES {
        assert!(!told(&mut scenario, START / 2 + u64::from(event), 3).counts);
    }
    assert_eq!(resets(&mut scenario), []);
    assert!(told(&mut scenario, START / 2, 4).counts);
    assert_eq!(resets(&mut scenario), [ResetReason::Backwards]);
    assert!(told(&mut scenario, START / 2 + 1, 5).counts);
}

#[test]
fn it_never_opens_never_vouches_and_keeps_no_sweep_waiting() {
    let mut scenario = with_jetstream(Scenario::new());
    dial(&mut scenario, None);
    wait(&mut scenario, OPEN_AFTER);
    let read = told(&mut scenario, START, 1);
    assert_eq!(read.epoch, None);
    assert_eq!(scenario.covers.open_epoch(JETSTREAM), None);
    let now = scenario.now();
    assert!(
        !scenario
            .covers
            .live(JETSTREAM, now.time, &scenario.settings)
    );
    let context = Context {
        now,
        covers: &scenario.covers,
        settings: &scenario.settings,
    };
    assert!(
        sweep::is_due(context, HOST, &scenario.host),
        "nobody waits for it"
    );
}
