//! R1, R13: what ends an epoch, and what does not.

use std::time::Duration;

use gapless_core::ledger::notice::ResetReason;
use gapless_core::ledger::settings::{
    BACKWARD_FRAMES, CONTINUITY_WITHIN, DURABLE_WITHIN, OPEN_AFTER,
};
use gapless_core::ledger::*;

use crate::desk::*;

fn at(seq: u64, event: u8) -> Option<Cursor> {
    Some(Cursor {
        seq,
        event: [event; 16],
    })
}

fn resets(desk: &Desk) -> Vec<ResetReason> {
    let each = desk.notices.iter().filter_map(|notice| match notice {
        Notice::Reset(why) => Some(*why),
        _ => None,
    });
    each.collect()
}

/// A stream that is down, with a known epoch.
fn down(desk: &mut Desk) -> Epoch {
    desk.lost(PDS);
    desk.notices.clear();
    desk.epoch(PDS)
}

fn wait(desk: &mut Desk, span: Duration) -> bool {
    desk.pass(span);
    let now = desk.now();
    let source = desk.covers.get_mut(PDS).unwrap();
    source
        .stream
        .check_deadlines(now, &mut source.row, &mut desk.notices)
}

/// Everything up to this event is durable.
fn durable(desk: &mut Desk, seq: u64, event: u8) {
    let source = desk.covers.get_mut(PDS).unwrap();
    source.stream.set_durable(at(seq, event));
}

#[test]
fn the_event_at_our_cursor_shows_continuity_and_is_not_read_twice() {
    let mut desk = Desk::new();
    desk.frame(PDS, 105, 7);
    let epoch = down(&mut desk);
    assert_eq!(desk.connect(PDS, None), Some(104), "one before the cursor");
    assert_eq!(desk.covers.open_epoch(PDS), None, "not before it is shown");
    let read = desk.frame(PDS, 105, 7);
    assert!(read.repeat && !read.counts);
    assert_eq!(desk.epoch(PDS), epoch);
    assert_eq!(desk.covers.open_epoch(PDS), Some(epoch));
    let read = desk.frame(PDS, 106, 8);
    assert!(!read.repeat && read.counts);
    assert!(resets(&desk).is_empty());
}

#[test]
fn after_a_crash_the_durable_cursor_is_asked_for() {
    let mut desk = Desk::new();
    desk.covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    assert_eq!(desk.connect(PDS, at(50, 5)), Some(49));
    assert!(desk.frame(PDS, 50, 5).repeat);
    assert_eq!(desk.epoch(PDS), Epoch(1));
}

#[test]
fn another_event_at_our_cursor_is_a_reset_and_a_new_numbering() {
    let mut desk = Desk::new();
    desk.frame(PDS, 105, 7);
    let epoch = down(&mut desk);
    desk.connect(PDS, None);
    let read = desk.frame(PDS, 105, 99);
    assert!(desk.epoch(PDS) > epoch, "a wiped host that counted past us");
    assert_eq!(read.epoch, Some(desk.epoch(PDS)));
    assert!(!read.repeat && read.counts);
    assert_eq!(resets(&desk), [ResetReason::OtherEvent]);
    assert_eq!(desk.row(PDS).numbering, 1);
    assert_eq!(desk.row(PDS).first_cursor_since_reset, Some(105));
}

#[test]
fn a_jump_after_a_reconnect_is_a_reset_but_one_in_mid_stream_is_none() {
    let mut desk = Desk::new();
    desk.frame(PDS, 105, 7);
    let epoch = down(&mut desk);
    desk.connect(PDS, None);
    desk.frame(PDS, 120, 8);
    let reset = desk.epoch(PDS);
    assert!(reset > epoch, "a relay that skips silently");
    assert_eq!(desk.row(PDS).numbering, 0, "the numbers still go up");
    desk.frame(PDS, 500, 9);
    assert_eq!(desk.epoch(PDS), reset, "hosts skip numbers");
}

#[test]
fn silence_where_our_event_should_be_is_a_reset() {
    let mut desk = Desk::new();
    desk.frame(PDS, 105, 7);
    let epoch = down(&mut desk);
    desk.connect(PDS, None);
    assert!(!wait(&mut desk, CONTINUITY_WITHIN - Duration::from_secs(1)));
    assert_eq!(desk.epoch(PDS), epoch);
    assert!(wait(&mut desk, Duration::from_secs(1)));
    assert!(desk.epoch(PDS) > epoch);
    assert!(desk.covers.open_epoch(PDS).is_some());
    assert_eq!(resets(&desk), [ResetReason::Silence]);
    // The event comes late: the reset is not taken back, and there is no second.
    let late = desk.epoch(PDS);
    let read = desk.frame(PDS, 105, 7);
    assert!(!read.repeat);
    assert_eq!(desk.epoch(PDS), late);
}

#[test]
fn without_a_cursor_an_epoch_begins_and_opens_with_the_first_frame() {
    let mut desk = Desk::new();
    desk.covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    assert_eq!(desk.connect(PDS, None), None);
    assert!(desk.epoch(PDS) > Epoch(1));
    assert_eq!(resets(&desk).last(), Some(&ResetReason::NoCursor));
    assert_eq!(desk.covers.open_epoch(PDS), None, "not in force yet");
    assert_eq!(desk.frame(PDS, 9, 1).epoch, Some(desk.epoch(PDS)));
    assert_eq!(desk.row(PDS).first_cursor_since_reset, Some(9));
}

#[test]
fn on_a_silent_host_an_epoch_opens_after_a_while() {
    let mut desk = Desk::new();
    desk.covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    desk.connect(PDS, None);
    let epoch = desk.epoch(PDS);
    assert!(!wait(&mut desk, OPEN_AFTER - Duration::from_secs(1)));
    assert_eq!(desk.covers.open_epoch(PDS), None);
    assert!(wait(&mut desk, Duration::from_secs(1)));
    assert_eq!(desk.covers.open_epoch(PDS), Some(epoch));
    assert_eq!(desk.epoch(PDS), epoch, "opening is no reset");
}

#[test]
fn an_outdated_cursor_ends_the_epoch_at_once_in_mid_stream_too() {
    let mut desk = Desk::new();
    let epoch = desk.epoch(PDS);
    desk.reset(PDS);
    let first = desk.epoch(PDS);
    assert!(first > epoch);
    assert_eq!(desk.covers.open_epoch(PDS), Some(first));
    assert_eq!(desk.row(PDS).first_cursor_since_reset, None);
    desk.frame(PDS, 300, 1);
    assert_eq!(desk.row(PDS).first_cursor_since_reset, Some(300));
    assert_eq!(desk.epoch(PDS), first, "the first event is no second reset");
    desk.reset(PDS);
    assert!(desk.epoch(PDS) > first);
}

#[test]
fn after_an_outdated_cursor_a_number_at_or_below_ours_is_another_numbering() {
    // Restarted, or only reconnected: the cursor is all that counts.
    for restarted in [true, false] {
        for (seq, event) in [(105, 8), (40, 7)] {
            let mut desk = Desk::new();
            desk.frame(PDS, 105, 7);
            down(&mut desk);
            if restarted {
                desk.covers
                    .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
            }
            desk.connect(PDS, at(105, 7));
            desk.reset(PDS);
            let epoch = desk.epoch(PDS);
            let read = desk.frame(PDS, seq, event);
            assert!(read.counts, "it holds the cursor back until it is done");
            assert_eq!(desk.row(PDS).numbering, 1, "{seq} of {restarted}");
            assert_eq!(desk.epoch(PDS), epoch, "no second reset");
            assert_eq!(resets(&desk), [ResetReason::OutdatedCursor]);
        }
    }
    let mut desk = Desk::new();
    desk.frame(PDS, 105, 7);
    down(&mut desk);
    desk.connect(PDS, at(105, 7));
    desk.reset(PDS);
    assert!(desk.frame(PDS, 300, 1).counts);
    assert_eq!(
        desk.row(PDS).numbering,
        0,
        "beyond it, the same one goes on"
    );
}

#[test]
fn a_future_cursor_clears_ours_and_the_next_dial_asks_for_none() {
    let mut desk = Desk::new();
    desk.frame(PDS, 9000, 7);
    let epoch = desk.epoch(PDS);
    let now = desk.now();
    let source = desk.covers.get_mut(PDS).unwrap();
    source.stream.dial(None);
    source
        .stream
        .cursor_in_future(now, &mut source.row, &mut desk.notices);
    assert!(desk.epoch(PDS) > epoch);
    assert_eq!(desk.row(PDS).numbering, 1);
    assert_eq!(desk.connect(PDS, None), None, "no endless loop");
}

#[test]
fn one_number_again_is_a_duplicate_and_a_thousand_are_a_new_numbering() {
    let mut desk = Desk::new();
    desk.frame(PDS, 5000, 7);
    let epoch = desk.epoch(PDS);
    assert!(desk.frame(PDS, 5000, 7).repeat);
    for seq in 1..u64::from(BACKWARD_FRAMES) {
        let read = desk.frame(PDS, seq, 1);
        assert_eq!(read.epoch, None, "nothing is raised while it is unclear");
        assert!(!read.counts);
        assert_eq!(desk.covers.open_epoch(PDS), None, "nor by what begins now");
        assert!(!desk.covers.live(PDS, desk.time, &desk.settings));
    }
    assert_eq!(desk.epoch(PDS), epoch);
    let read = desk.frame(PDS, 1000, 1);
    assert!(desk.epoch(PDS) > epoch);
    assert_eq!(read.epoch, Some(desk.epoch(PDS)));
    assert_eq!(resets(&desk).last(), Some(&ResetReason::Backwards));
    assert_eq!(desk.row(PDS).numbering, 1);
}

#[test]
fn a_replay_that_comes_back_to_where_it_was_is_no_reset() {
    let mut desk = Desk::new();
    desk.frame(PDS, 5000, 7);
    let epoch = desk.epoch(PDS);
    for seq in 4900..5000 {
        desk.frame(PDS, seq, 1);
    }
    let read = desk.frame(PDS, 5001, 8);
    assert_eq!(read.epoch, Some(epoch));
    assert!(desk.covers.live(PDS, desk.time, &desk.settings));
}

#[test]
fn an_event_that_came_late_counts_as_unread_and_a_duplicate_does_not() {
    let mut desk = Desk::new();
    for seq in 1..=9 {
        desk.frame(PDS, 1000 + seq * 10, seq as u8);
    }
    assert!(!desk.frame(PDS, 1040, 4).counts);
    assert_eq!(desk.row(PDS).unread_at, None, "we have had that one");
    desk.frame(PDS, 1100, 10);
    let read = desk.frame(PDS, 1045, 4);
    assert!(!read.counts && !read.repeat);
    let late = desk.row(PDS).unread_at;
    assert!(late.is_some(), "the cursor may have passed it");
    desk.frame(PDS, 1110, 11);
    desk.frame(PDS, 1040, 5);
    assert!(desk.row(PDS).unread_at > late, "nor had we that one");
}

#[test]
fn what_was_read_is_remembered_as_far_back_as_a_replay_goes() {
    let mut desk = Desk::new();
    let frames = u64::from(BACKWARD_FRAMES);
    let (first, last) = (1_000, 1_000 + 2 * frames);
    for seq in first..=last {
        desk.frame(PDS, seq, seq as u8);
    }
    let again = last - (frames - 1);
    desk.frame(PDS, again, again as u8);
    assert_eq!(desk.row(PDS).unread_at, None);
    desk.frame(PDS, again - 1, (again - 1) as u8);
    assert!(desk.row(PDS).unread_at.is_some(), "that was too long ago");
}

#[test]
fn dropping_frames_ourselves_ends_the_epoch() {
    let mut desk = Desk::new();
    let epoch = desk.epoch(PDS);
    let now = desk.now();
    let source = desk.covers.get_mut(PDS).unwrap();
    source
        .stream
        .queue_overflowed(now, &mut source.row, &mut desk.notices);
    assert!(desk.epoch(PDS) > epoch);
}

#[test]
fn nobody_waits_for_a_frame_that_we_dropped() {
    let mut desk = Desk::new();
    desk.frame(PDS, 5000, 7);
    let now = desk.now();
    let source = desk.covers.get_mut(PDS).unwrap();
    source
        .stream
        .queue_overflowed(now, &mut source.row, &mut desk.notices);
    desk.pass(Duration::from_secs(3600));
    assert!(desk.covers.live(PDS, desk.time, &desk.settings));
}

#[test]
fn an_epoch_is_never_used_twice_even_if_the_row_was_restored() {
    let mut desk = Desk::new();
    desk.reset(PDS);
    let used = desk.epoch(PDS);
    // The disk is restored from a backup of before: the row says 1 again.
    desk.covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    desk.connect(PDS, None);
    assert!(desk.epoch(PDS) > used);
    // And when the clock goes back, numbers still go up.
    let epoch = desk.epoch(PDS);
    desk.time = Time(5);
    desk.reset(PDS);
    assert!(desk.epoch(PDS) > epoch);
}

#[test]
fn a_frame_of_a_connection_that_was_given_up_raises_nothing() {
    let mut desk = Desk::new();
    down(&mut desk);
    let read = desk.frame(PDS, 700, 3);
    assert_eq!((read.epoch, read.counts), (None, false));
}

#[test]
fn a_lost_cover_is_live_for_the_grace_and_no_longer() {
    let mut desk = Desk::new();
    desk.frame(PDS, 700, 3);
    desk.lost(PDS);
    assert!(desk.covers.live(PDS, desk.time, &desk.settings));
    desk.pass(desk.settings.live_grace + Duration::from_secs(1));
    assert!(!desk.covers.live(PDS, desk.time, &desk.settings));
    // Dialling again is not being live again; the event at our cursor is.
    durable(&mut desk, 700, 3);
    desk.connect(PDS, None);
    assert!(!desk.covers.live(PDS, desk.time, &desk.settings));
    desk.frame(PDS, 700, 3);
    assert!(desk.covers.live(PDS, desk.time, &desk.settings));
}

#[test]
fn a_cover_whose_events_do_not_get_durable_is_not_live() {
    let mut desk = Desk::new();
    desk.frame(PDS, 700, 3);
    durable(&mut desk, 700, 3);
    desk.pass(desk.settings.live_grace * 10);
    assert!(
        desk.covers.live(PDS, desk.time, &desk.settings),
        "quiet, and all of it is durable"
    );
    desk.frame(PDS, 701, 4);
    desk.pass(desk.settings.live_grace - Duration::from_secs(1));
    desk.frame(PDS, 702, 5);
    assert!(desk.covers.live(PDS, desk.time, &desk.settings));
    // Frames still come, and the first of them is nowhere on the disk.
    desk.pass(Duration::from_secs(2));
    assert!(!desk.covers.live(PDS, desk.time, &desk.settings));
    durable(&mut desk, 701, 4);
    assert!(desk.covers.live(PDS, desk.time, &desk.settings));
}

#[test]
fn what_is_not_durable_for_long_is_remembered_in_a_bounded_way() {
    let mut desk = Desk::new();
    desk.frame(PDS, 700, 3);
    durable(&mut desk, 700, 3);
    for seq in 701..10_000 {
        desk.pass(Duration::from_millis(1));
        desk.frame(PDS, seq, 4);
    }
    assert!(desk.covers.live(PDS, desk.time, &desk.settings));
    desk.pass(desk.settings.live_grace - Duration::from_secs(5));
    assert!(!desk.covers.live(PDS, desk.time, &desk.settings));
    // The last ones count as old as those at the bound.
    durable(&mut desk, 9_998, 4);
    assert!(!desk.covers.live(PDS, desk.time, &desk.settings));
    durable(&mut desk, 9_999, 4);
    assert!(desk.covers.live(PDS, desk.time, &desk.settings));
}

#[test]
fn a_disk_has_its_moment_even_without_a_grace() {
    let mut desk = Desk::new();
    desk.settings.live_grace = Duration::ZERO;
    desk.frame(PDS, 700, 3);
    desk.pass(DURABLE_WITHIN - Duration::from_secs(1));
    assert!(desk.covers.live(PDS, desk.time, &desk.settings));
    desk.pass(Duration::from_secs(2));
    assert!(!desk.covers.live(PDS, desk.time, &desk.settings));
}

#[test]
fn a_stream_that_never_flowed_is_not_live() {
    let mut covers = cover::Covers::new();
    covers.add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    assert!(!covers.live(PDS, Time(10), &Settings::default()));
}

#[test]
fn a_quiet_stream_after_one_backward_frame_is_dialled_again() {
    let mut desk = Desk::new();
    desk.frame(PDS, 5000, 7);
    desk.frame(PDS, 4999, 1);
    assert!(!desk.covers.live(PDS, desk.time, &desk.settings));
    assert!(wait(&mut desk, CONTINUITY_WITHIN));
    assert!(!desk.covers.get(PDS).unwrap().stream.is_connected());
    // The event at our cursor tells: nothing was missed.
    let epoch = desk.epoch(PDS);
    desk.connect(PDS, None);
    desk.frame(PDS, 5000, 7);
    assert!(desk.covers.live(PDS, desk.time, &desk.settings));
    assert_eq!(desk.epoch(PDS), epoch);
}
