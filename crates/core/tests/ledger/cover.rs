//! Tests R2 and R15: which upstream covers a repository, and what raises its marker.

use gapless_core::ledger::cover::{self, Covers};
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::event::{Decision, Event};
use gapless_core::ledger::fetch::Next;
use gapless_core::ledger::rollback::BehindShare;
use gapless_core::ledger::*;

use crate::scenario::*;

#[test]
fn the_hosts_own_stream_covers_before_any_relay() {
    let mut scenario = Scenario::new();
    assert_eq!(scenario.covers.of(&scenario.repo), Some(PDS));
    scenario.repo.host = Some(HostId(77));
    assert_eq!(scenario.covers.of(&scenario.repo), Some(RELAY));
    let now = scenario.now().tick;
    scenario.covers.remove(now, RELAY);
    assert_eq!(scenario.covers.of(&scenario.repo), None);
}

#[test]
fn after_a_step_back_no_connection_vouches_and_none_has_lost_anything() {
    let mut scenario = Scenario::new();
    scenario.connect(PDS, None);
    scenario.frame(PDS, 100, 0);
    let (now, settings) = (scenario.now().time, Settings::default());
    assert!(scenario.covers.live(PDS, now, &settings));
    let before = scenario.covers.get(PDS).expect("it is there").row.clone();
    scenario.covers.reset_connections();
    for at in [Time(0), now, now.after(settings.live_grace)] {
        assert!(!scenario.covers.live(PDS, at, &settings), "{at:?}");
    }
    let source = scenario.covers.get(PDS).expect("it is there");
    assert_eq!((&source.row, source.stream.heard_at()), (&before, None));
}

#[test]
fn the_relay_that_first_showed_it_is_kept() {
    let mut scenario = Scenario::new();
    let second = UpstreamId(9);
    scenario
        .covers
        .add(Tick(0), second, upstream(UpstreamKind::Relay, None));
    scenario.repo.host = Some(HostId(77));
    scenario.repo.relay = None;
    scenario.event(second, &commit(5));
    assert_eq!(scenario.repo.cover, Some(second));
    scenario.event(RELAY, &commit(6));
    assert_eq!(scenario.repo.cover, Some(second));
    // Gone, and another takes over. What it showed was signed, and is not held yet.
    let now = scenario.now().tick;
    scenario.covers.remove(now, second);
    cover::update_cover(&mut scenario.repo, &scenario.covers);
    assert_eq!(scenario.repo.cover, Some(RELAY));
    assert_eq!(scenario.repo.marker, None);
    assert_eq!(scenario.repo.first_rev_since_reset, Some(named(6).rev));
    // Once it is, the new cover begins anew.
    scenario.fetched(6, 6);
    let now = scenario.now().tick;
    scenario.covers.remove(now, RELAY);
    cover::update_cover(&mut scenario.repo, &scenario.covers);
    assert_eq!(scenario.repo.first_rev_since_reset, None);
}

#[test]
fn what_is_signed_and_not_held_is_not_given_up_by_a_change_of_covers() {
    let mut scenario = Scenario::new();
    let now = scenario.now();
    let mut row = scenario
        .covers
        .remove(now.tick, PDS)
        .expect("it is there")
        .row;
    row.followed = FollowReason::ForTracked;
    scenario.covers.add(now.tick, PDS, row);
    scenario.connect(PDS, None);
    scenario.frame(PDS, 100, 0);
    scenario.settled(PDS, 100);
    scenario.fetched(5, 5);
    assert!(scenario.complete());
    assert_eq!(scenario.repo.cover, Some(RELAY));
    scenario.share = BehindShare {
        repos: 1000,
        behind: 900,
    };
    assert!(matches!(
        scenario.event(RELAY, &commit(7)),
        Decision::Park(_)
    ));
    assert_eq!(scenario.compared(5), Next::Done);
    assert!(scenario.reasons().contains(&"host_behind"));
    // By a stream of its own from now on.
    let now = scenario.now();
    cover::set_tracked(now.tick, &mut scenario.repo, &scenario.covers, true);
    assert_eq!(scenario.repo.cover, Some(PDS));
    debt::owe(
        now,
        &mut scenario.repo,
        debt::DebtKind::Compare,
        DebtReason::Operator,
    );
    assert_eq!(scenario.compared(5), Next::Done);
    assert!(!scenario.complete(), "the commit of rev 7 was given up");
}

#[test]
fn a_jetstream_covers_nothing() {
    let mut covers = Covers::new();
    covers.add(
        Tick(0),
        UpstreamId(1),
        upstream(UpstreamKind::Jetstream, None),
    );
    assert_eq!(covers.of(&Scenario::new().repo), None);
}

#[test]
fn a_new_cover_takes_the_marker_back() {
    let mut scenario = Scenario::holding(5);
    let mut covers = scenario.covers.clone();
    covers.remove(Tick(50), PDS);
    scenario.covers = covers;
    assert_eq!(
        scenario.reasons(),
        ["not_compared"],
        "the relay knows nothing yet"
    );
    scenario.event(RELAY, &Event::Identity);
    assert_eq!(scenario.repo.marker, None);
    assert_eq!(
        scenario.repo.unset_at,
        Tick(50),
        "since the upstreams changed"
    );
}

#[test]
fn only_the_cover_raises_the_marker() {
    let mut scenario = Scenario::holding(5);
    scenario.reset(PDS);
    assert_eq!(scenario.reasons(), ["epoch_changed"]);
    scenario.event(RELAY, &commit(6));
    assert!(scenario.head_is(6), "it chains, whoever brings it");
    assert_eq!(scenario.reasons(), ["epoch_changed"]);
    scenario.event(PDS, &commit(7));
    assert!(scenario.complete());
}

#[test]
fn a_reset_of_one_is_not_healed_by_another() {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now().tick;
    scenario.covers.remove(now, PDS);
    scenario.event(RELAY, &commit(6));
    assert!(scenario.complete());
    scenario.reset(RELAY);
    assert_eq!(scenario.reasons(), ["epoch_changed"]);
    scenario.event(OTHER, &commit(7));
    assert_eq!(scenario.repo.marker.unwrap().cover, RELAY);
    assert!(!scenario.complete());
}

#[test]
fn an_event_read_before_a_reset_does_not_heal_it() {
    let mut scenario = Scenario::holding(5);
    let old = scenario.covers.open_epoch(PDS);
    scenario.reset(PDS);
    scenario.event_read(PDS, old, &commit(6));
    assert!(scenario.head_is(6));
    assert_eq!(scenario.reasons(), ["epoch_changed"]);
}

#[test]
fn markers_never_go_down_within_one_cover() {
    let mut scenario = Scenario::holding(5);
    let old = scenario.covers.open_epoch(PDS);
    scenario.reset(PDS);
    scenario.event(PDS, &commit(6));
    assert!(scenario.complete());
    scenario.event_read(PDS, old, &commit(7));
    assert!(scenario.complete());
}

#[test]
fn what_began_before_the_upstreams_changed_does_not_restore_the_marker() {
    let mut scenario = Scenario::holding(5);
    scenario.repo.host = Some(HostId(77));
    scenario.event(RELAY, &commit(6));
    assert_eq!(scenario.repo.cover, Some(RELAY));
    let note = scenario.note();
    // Another stream covers for a while, and goes again.
    let own = UpstreamId(9);
    let now = scenario.now().tick;
    scenario
        .covers
        .add(now, own, upstream(UpstreamKind::Pds, Some(HostId(77))));
    scenario.event(RELAY, &Event::Identity);
    assert_eq!(scenario.repo.cover, Some(own));
    let now = scenario.now().tick;
    scenario.covers.remove(now, own);
    let later = scenario.note();
    assert_eq!(scenario.repo.cover, Some(RELAY));
    fetch::restore_marker(&mut scenario.repo, &note);
    assert_eq!(scenario.repo.marker, None);
    fetch::restore_marker(&mut scenario.repo, &later);
    assert!(scenario.repo.marker.is_some(), "what began since counts");
}

#[test]
fn tracking_takes_the_marker_back_only_where_it_changes_who_speaks() {
    let mut scenario = Scenario::holding(5);
    let before = scenario.repo.clone();
    for tracked in [true, false] {
        let now = scenario.now().tick;
        assert!(!cover::set_tracked(
            now,
            &mut scenario.repo,
            &scenario.covers,
            tracked
        ));
        assert_eq!(scenario.repo.tracked, tracked);
        assert!(scenario.complete());
    }
    assert_eq!(scenario.repo, before);
    // A stream of which only tracked repositories are read.
    scenario.covers.get_mut(PDS).unwrap().row.followed = FollowReason::ForTracked;
    scenario.repo.tracked = true;
    let now = scenario.now().tick;
    assert!(cover::set_tracked(
        now,
        &mut scenario.repo,
        &scenario.covers,
        false
    ));
    assert_eq!(
        (scenario.repo.cover, scenario.repo.marker),
        (Some(RELAY), None)
    );
    assert_eq!(
        scenario.repo.unset_at, now,
        "what began before does not restore it"
    );
    let now = scenario.now().tick;
    assert!(cover::set_tracked(
        now,
        &mut scenario.repo,
        &scenario.covers,
        true
    ));
    assert_eq!(
        (scenario.repo.cover, scenario.repo.marker),
        (Some(PDS), None)
    );
}

#[test]
fn nothing_is_owed_for_a_did_that_is_no_longer_wanted() {
    let mut scenario = Scenario::new();
    scenario.repo = Repo::new(scenario.repo.did.clone());
    scenario.repo.tracked = true;
    let now = scenario.now();
    debt::owe(
        now,
        &mut scenario.repo,
        DebtKind::Resolve,
        DebtReason::FirstSighting,
    );
    assert!(!cover::forget_unwanted(
        now.tick,
        &mut scenario.repo,
        &scenario.covers
    ));
    scenario.repo.tracked = false;
    let told_of = Repo {
        relay: Some(RELAY),
        ..scenario.repo.clone()
    };
    let lives = Repo {
        host: Some(HOST),
        ..scenario.repo.clone()
    };
    let held = Scenario::holding(5).repo;
    for mut kept in [told_of, lives, held] {
        let before = kept.clone();
        assert!(!cover::forget_unwanted(
            now.tick,
            &mut kept,
            &scenario.covers
        ));
        assert_eq!(kept, before);
    }
    assert!(!cover::is_bare_name(&scenario.repo));
    assert!(cover::forget_unwanted(
        now.tick,
        &mut scenario.repo,
        &scenario.covers
    ));
    assert!(cover::is_bare_name(&scenario.repo));
    // If it is heard of again, it begins anew.
    scenario.event(RELAY, &Event::Identity);
    assert!(!scenario.repo.debt.is_empty() && !cover::is_bare_name(&scenario.repo));
}
