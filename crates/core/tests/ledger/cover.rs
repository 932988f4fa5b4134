//! R2, R15: who speaks for a repository, and what raises its marker.

use gapless_core::ledger::cover::{self, Covers};
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
fn the_relay_that_first_showed_it_is_kept() {
    let mut desk = Desk::new();
    let second = UpstreamId(9);
    desk.covers
        .add(Tick(0), second, upstream(Kind::Relay, None));
    desk.repo.host = Some(HostId(77));
    desk.repo.relay = None;
    desk.event(second, &commit(5));
    assert_eq!(desk.repo.cover, Some(second));
    desk.event(RELAY, &commit(6));
    assert_eq!(desk.repo.cover, Some(second));
    // Gone, another takes over, and nothing that was known of the old counts.
    let now = desk.now().tick;
    desk.covers.remove(now, second);
    cover::settle(&mut desk.repo, &desk.covers);
    assert_eq!(desk.repo.cover, Some(RELAY));
    assert_eq!(desk.repo.marker, None);
    assert_eq!(desk.repo.first_rev_since_reset, None);
}

#[test]
fn a_jetstream_covers_nothing() {
    let mut covers = Covers::new();
    covers.add(Tick(0), UpstreamId(1), upstream(Kind::Jetstream, None));
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

use gapless_core::ledger::event::Event;

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
        .add(now, own, upstream(Kind::Pds, Some(HostId(77))));
    desk.event(RELAY, &Event::Identity);
    assert_eq!(desk.repo.cover, Some(own));
    let now = desk.now().tick;
    desk.covers.remove(now, own);
    let later = desk.note();
    assert_eq!(desk.repo.cover, Some(RELAY));
    fetch::restore(&mut desk.repo, &note);
    assert_eq!(desk.repo.marker, None);
    fetch::restore(&mut desk.repo, &later);
    assert!(desk.repo.marker.is_some(), "what began since counts");
}
