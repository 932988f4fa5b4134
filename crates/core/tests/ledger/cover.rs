//! R2, R15: who speaks for a repository, and what raises its marker.

use gapless_core::ledger::cover::{self, Covers};
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::event::{Decision, Event};
use gapless_core::ledger::fetch::Next;
use gapless_core::ledger::rollback::BehindShare;
use gapless_core::ledger::*;

use crate::desk::*;

#[test]
fn the_hosts_own_stream_covers_before_any_relay() {
    let mut desk = Desk::new();
    assert_eq!(desk.covers.of(&desk.repo), Some(PDS));
    desk.repo.host = Some(HostId(77));
    assert_eq!(desk.covers.of(&desk.repo), Some(RELAY));
    let now = desk.now().tick;
    desk.covers.remove(now, RELAY);
    assert_eq!(desk.covers.of(&desk.repo), None);
}

#[test]
fn after_a_step_back_no_connection_vouches_and_none_has_lost_anything() {
    let mut desk = Desk::new();
    desk.connect(PDS, None);
    desk.frame(PDS, 100, 0);
    let (now, settings) = (desk.now().time, Settings::default());
    assert!(desk.covers.live(PDS, now, &settings));
    let before = desk.covers.get(PDS).expect("it is there").row.clone();
    desk.covers.reset_connections();
    for at in [Time(0), now, now.after(settings.live_grace)] {
        assert!(!desk.covers.live(PDS, at, &settings), "{at:?}");
    }
    let source = desk.covers.get(PDS).expect("it is there");
    assert_eq!((&source.row, source.stream.heard_at()), (&before, None));
}

#[test]
fn the_relay_that_first_showed_it_is_kept() {
    let mut desk = Desk::new();
    let second = UpstreamId(9);
    desk.covers
        .add(Tick(0), second, upstream(UpstreamKind::Relay, None));
    desk.repo.host = Some(HostId(77));
    desk.repo.relay = None;
    desk.event(second, &commit(5));
    assert_eq!(desk.repo.cover, Some(second));
    desk.event(RELAY, &commit(6));
    assert_eq!(desk.repo.cover, Some(second));
    // Gone, and another takes over. What it showed was signed, and is not held yet.
    let now = desk.now().tick;
    desk.covers.remove(now, second);
    cover::update_cover(&mut desk.repo, &desk.covers);
    assert_eq!(desk.repo.cover, Some(RELAY));
    assert_eq!(desk.repo.marker, None);
    assert_eq!(desk.repo.first_rev_since_reset, Some(named(6).rev));
    // Once it is, the new cover begins anew.
    desk.fetched(6, 6);
    let now = desk.now().tick;
    desk.covers.remove(now, RELAY);
    cover::update_cover(&mut desk.repo, &desk.covers);
    assert_eq!(desk.repo.first_rev_since_reset, None);
}

#[test]
fn what_is_signed_and_not_held_is_not_given_up_by_a_change_of_covers() {
    let mut desk = Desk::new();
    let now = desk.now();
    let mut row = desk.covers.remove(now.tick, PDS).expect("it is there").row;
    row.followed = FollowReason::ForTracked;
    desk.covers.add(now.tick, PDS, row);
    desk.connect(PDS, None);
    desk.frame(PDS, 100, 0);
    desk.settled(PDS, 100);
    desk.fetched(5, 5);
    assert!(desk.complete());
    assert_eq!(desk.repo.cover, Some(RELAY));
    desk.share = BehindShare {
        repos: 1000,
        behind: 900,
    };
    assert!(matches!(desk.event(RELAY, &commit(7)), Decision::Park(_)));
    assert_eq!(desk.compared(5), Next::Done);
    assert!(desk.reasons().contains(&"host_behind"));
    // By a stream of its own from now on.
    let now = desk.now();
    cover::set_tracked(now.tick, &mut desk.repo, &desk.covers, true);
    assert_eq!(desk.repo.cover, Some(PDS));
    debt::owe(
        now,
        &mut desk.repo,
        debt::DebtKind::Compare,
        DebtReason::Operator,
    );
    assert_eq!(desk.compared(5), Next::Done);
    assert!(!desk.complete(), "the commit of rev 7 was given up");
}

#[test]
fn a_jetstream_covers_nothing() {
    let mut covers = Covers::new();
    covers.add(
        Tick(0),
        UpstreamId(1),
        upstream(UpstreamKind::Jetstream, None),
    );
    assert_eq!(covers.of(&Desk::new().repo), None);
}

#[test]
fn a_new_cover_takes_the_marker_back() {
    let mut desk = Desk::holding(5);
    let mut covers = desk.covers.clone();
    covers.remove(Tick(50), PDS);
    desk.covers = covers;
    assert_eq!(
        desk.reasons(),
        ["not_compared"],
        "the relay knows nothing yet"
    );
    desk.event(RELAY, &Event::Identity);
    assert_eq!(desk.repo.marker, None);
    assert_eq!(desk.repo.unset_at, Tick(50), "since the upstreams changed");
}

#[test]
fn only_the_cover_raises_the_marker() {
    let mut desk = Desk::holding(5);
    desk.reset(PDS);
    assert_eq!(desk.reasons(), ["epoch_changed"]);
    desk.event(RELAY, &commit(6));
    assert!(desk.head_is(6), "it chains, whoever brings it");
    assert_eq!(desk.reasons(), ["epoch_changed"]);
    desk.event(PDS, &commit(7));
    assert!(desk.complete());
}

#[test]
fn a_reset_of_one_is_not_healed_by_another() {
    let mut desk = Desk::holding(5);
    let now = desk.now().tick;
    desk.covers.remove(now, PDS);
    desk.event(RELAY, &commit(6));
    assert!(desk.complete());
    desk.reset(RELAY);
    assert_eq!(desk.reasons(), ["epoch_changed"]);
    desk.event(OTHER, &commit(7));
    assert_eq!(desk.repo.marker.unwrap().cover, RELAY);
    assert!(!desk.complete());
}

#[test]
fn an_event_read_before_a_reset_does_not_heal_it() {
    let mut desk = Desk::holding(5);
    let old = desk.covers.open_epoch(PDS);
    desk.reset(PDS);
    desk.event_read(PDS, old, &commit(6));
    assert!(desk.head_is(6));
    assert_eq!(desk.reasons(), ["epoch_changed"]);
}

#[test]
fn markers_never_go_down_within_one_cover() {
    let mut desk = Desk::holding(5);
    let old = desk.covers.open_epoch(PDS);
    desk.reset(PDS);
    desk.event(PDS, &commit(6));
    assert!(desk.complete());
    desk.event_read(PDS, old, &commit(7));
    assert!(desk.complete());
}

#[test]
fn what_began_before_the_upstreams_changed_does_not_restore_the_marker() {
    let mut desk = Desk::holding(5);
    desk.repo.host = Some(HostId(77));
    desk.event(RELAY, &commit(6));
    assert_eq!(desk.repo.cover, Some(RELAY));
    let note = desk.note();
    // Another stream covers for a while, and goes again.
    let own = UpstreamId(9);
    let now = desk.now().tick;
    desk.covers
        .add(now, own, upstream(UpstreamKind::Pds, Some(HostId(77))));
    desk.event(RELAY, &Event::Identity);
    assert_eq!(desk.repo.cover, Some(own));
    let now = desk.now().tick;
    desk.covers.remove(now, own);
    let later = desk.note();
    assert_eq!(desk.repo.cover, Some(RELAY));
    fetch::restore_marker(&mut desk.repo, &note);
    assert_eq!(desk.repo.marker, None);
    fetch::restore_marker(&mut desk.repo, &later);
    assert!(desk.repo.marker.is_some(), "what began since counts");
}

#[test]
fn tracking_takes_the_marker_back_only_where_it_changes_who_speaks() {
    let mut desk = Desk::holding(5);
    let before = desk.repo.clone();
    for tracked in [true, false] {
        let now = desk.now().tick;
        assert!(!cover::set_tracked(
            now,
            &mut desk.repo,
            &desk.covers,
            tracked
        ));
        assert_eq!(desk.repo.tracked, tracked);
        assert!(desk.complete());
    }
    assert_eq!(desk.repo, before);
    // A stream of which only tracked repositories are read.
    desk.covers.get_mut(PDS).unwrap().row.followed = FollowReason::ForTracked;
    desk.repo.tracked = true;
    let now = desk.now().tick;
    assert!(cover::set_tracked(now, &mut desk.repo, &desk.covers, false));
    assert_eq!((desk.repo.cover, desk.repo.marker), (Some(RELAY), None));
    assert_eq!(
        desk.repo.unset_at, now,
        "what began before does not restore it"
    );
    let now = desk.now().tick;
    assert!(cover::set_tracked(now, &mut desk.repo, &desk.covers, true));
    assert_eq!((desk.repo.cover, desk.repo.marker), (Some(PDS), None));
}

#[test]
fn nothing_is_owed_for_a_name_that_nobody_wants() {
    let mut desk = Desk::new();
    desk.repo = Repo::new(desk.repo.did.clone());
    desk.repo.tracked = true;
    let now = desk.now();
    debt::owe(
        now,
        &mut desk.repo,
        DebtKind::Resolve,
        DebtReason::FirstSighting,
    );
    assert!(!cover::forget_unwanted(
        now.tick,
        &mut desk.repo,
        &desk.covers
    ));
    desk.repo.tracked = false;
    let told_of = Repo {
        relay: Some(RELAY),
        ..desk.repo.clone()
    };
    let lives = Repo {
        host: Some(HOST),
        ..desk.repo.clone()
    };
    let held = Desk::holding(5).repo;
    for mut kept in [told_of, lives, held] {
        let before = kept.clone();
        assert!(!cover::forget_unwanted(now.tick, &mut kept, &desk.covers));
        assert_eq!(kept, before);
    }
    assert!(!cover::is_bare_name(&desk.repo));
    assert!(cover::forget_unwanted(
        now.tick,
        &mut desk.repo,
        &desk.covers
    ));
    assert!(cover::is_bare_name(&desk.repo));
    // Whoever hears of it again begins with it again.
    desk.event(RELAY, &Event::Identity);
    assert!(!desk.repo.debt.is_empty() && !cover::is_bare_name(&desk.repo));
}
