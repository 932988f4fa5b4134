//! Tests R1 and R13: what ends an epoch of a stream, and what does not.

use std::time::Duration;

use gapless_core::ledger::notice::ResetReason;
use gapless_core::ledger::settings::{
    BACKWARD_FRAMES, CONTINUITY_WITHIN, DURABLE_WITHIN, OPEN_AFTER,
};
use gapless_core::ledger::*;

use crate::scenario::*;

fn at(seq: u64, event: u8) -> Option<Cursor> {
    Some(Cursor {
        seq,
        event: [event; 16],
    })
}

fn resets(scenario: &Scenario) -> Vec<ResetReason> {
    let each = scenario.notices.iter().filter_map(|notice| match notice {
        Notice::Reset(why) => Some(*why),
        _ => None,
    });
    each.collect()
}

/// A stream that is down, with a known epoch.
fn down(scenario: &mut Scenario) -> Epoch {
    scenario.lost(PDS);
    scenario.notices.clear();
    scenario.epoch(PDS)
}

fn wait(scenario: &mut Scenario, span: Duration) -> bool {
    scenario.pass(span);
    let now = scenario.now();
    let source = scenario.covers.get_mut(PDS).unwrap();
    source
        .stream
        .check_deadlines(now, &mut source.row, &mut scenario.notices)
}

/// Everything up to this event is durable.
fn durable(scenario: &mut Scenario, seq: u64, event: u8) {
    let source = scenario.covers.get_mut(PDS).unwrap();
    source.stream.set_durable(at(seq, event));
}

#[test]
fn the_event_at_our_cursor_shows_continuity_and_is_not_read_twice() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 105, 7);
    let epoch = down(&mut scenario);
    assert_eq!(
        scenario.connect(PDS, None),
        Some(104),
        "one before the cursor"
    );
    assert_eq!(
        scenario.covers.open_epoch(PDS),
        None,
        "not before it is shown"
    );
    let read = scenario.frame(PDS, 105, 7);
    assert!(read.repeat && !read.counts);
    assert_eq!(scenario.epoch(PDS), epoch);
    assert_eq!(scenario.covers.open_epoch(PDS), Some(epoch));
    let read = scenario.frame(PDS, 106, 8);
    assert!(!read.repeat && read.counts);
    assert!(resets(&scenario).is_empty());
}

#[test]
fn after_a_crash_the_durable_cursor_is_asked_for() {
    let mut scenario = Scenario::new();
    scenario
        .covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    assert_eq!(scenario.connect(PDS, at(50, 5)), Some(49));
    assert!(scenario.frame(PDS, 50, 5).repeat);
    assert_eq!(scenario.epoch(PDS), Epoch(1));
}

#[test]
fn another_event_at_our_cursor_is_a_reset_and_a_new_numbering() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 105, 7);
    let epoch = down(&mut scenario);
    scenario.connect(PDS, None);
    let read = scenario.frame(PDS, 105, 99);
    assert!(
        scenario.epoch(PDS) > epoch,
        "a wiped host that counted past us"
    );
    assert_eq!(read.epoch, Some(scenario.epoch(PDS)));
    assert!(!read.repeat && read.counts);
    assert_eq!(resets(&scenario), [ResetReason::OtherEvent]);
    assert_eq!(scenario.row(PDS).numbering, 1);
    assert_eq!(scenario.row(PDS).first_cursor_since_reset, Some(105));
}

#[test]
fn a_jump_after_a_reconnect_is_a_reset_but_one_in_mid_stream_is_none() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 105, 7);
    let epoch = down(&mut scenario);
    scenario.connect(PDS, None);
    scenario.frame(PDS, 120, 8);
    let reset = scenario.epoch(PDS);
    assert!(reset > epoch, "a relay that skips silently");
    assert_eq!(scenario.row(PDS).numbering, 0, "the numbers still go up");
    scenario.frame(PDS, 500, 9);
    assert_eq!(scenario.epoch(PDS), reset, "hosts skip numbers");
}

#[test]
fn silence_where_our_event_should_be_is_a_reset() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 105, 7);
    let epoch = down(&mut scenario);
    scenario.connect(PDS, None);
    assert!(!wait(
        &mut scenario,
        CONTINUITY_WITHIN - Duration::from_secs(1)
    ));
    assert_eq!(scenario.epoch(PDS), epoch);
    assert!(wait(&mut scenario, Duration::from_secs(1)));
    assert!(scenario.epoch(PDS) > epoch);
    assert!(scenario.covers.open_epoch(PDS).is_some());
    assert_eq!(resets(&scenario), [ResetReason::Silence]);
    // The event comes late: the reset is not taken back, and there is no second.
    let late = scenario.epoch(PDS);
    let read = scenario.frame(PDS, 105, 7);
    assert!(!read.repeat);
    assert_eq!(scenario.epoch(PDS), late);
}

#[test]
fn without_a_cursor_an_epoch_begins_and_opens_with_the_first_frame() {
    let mut scenario = Scenario::new();
    scenario
        .covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    assert_eq!(scenario.connect(PDS, None), None);
    assert!(scenario.epoch(PDS) > Epoch(1));
    assert_eq!(resets(&scenario).last(), Some(&ResetReason::NoCursor));
    assert_eq!(scenario.covers.open_epoch(PDS), None, "not in force yet");
    assert_eq!(scenario.frame(PDS, 9, 1).epoch, Some(scenario.epoch(PDS)));
    assert_eq!(scenario.row(PDS).first_cursor_since_reset, Some(9));
}

#[test]
fn on_a_silent_host_an_epoch_opens_after_a_while() {
    let mut scenario = Scenario::new();
    scenario
        .covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    scenario.connect(PDS, None);
    let epoch = scenario.epoch(PDS);
    assert!(!wait(&mut scenario, OPEN_AFTER - Duration::from_secs(1)));
    assert_eq!(scenario.covers.open_epoch(PDS), None);
    assert!(wait(&mut scenario, Duration::from_secs(1)));
    assert_eq!(scenario.covers.open_epoch(PDS), Some(epoch));
    assert_eq!(scenario.epoch(PDS), epoch, "opening is no reset");
}

#[test]
fn an_outdated_cursor_ends_the_epoch_at_once_in_mid_stream_too() {
    let mut scenario = Scenario::new();
    let epoch = scenario.epoch(PDS);
    scenario.reset(PDS);
    let first = scenario.epoch(PDS);
    assert!(first > epoch);
    assert_eq!(scenario.covers.open_epoch(PDS), Some(first));
    assert_eq!(scenario.row(PDS).first_cursor_since_reset, None);
    scenario.frame(PDS, 300, 1);
    assert_eq!(scenario.row(PDS).first_cursor_since_reset, Some(300));
    assert_eq!(
        scenario.epoch(PDS),
        first,
        "the first event is no second reset"
    );
    scenario.reset(PDS);
    assert!(scenario.epoch(PDS) > first);
}

#[test]
fn after_an_outdated_cursor_a_number_at_or_below_ours_is_another_numbering() {
    // Restarted, or only reconnected: the cursor is all that counts.
    for restarted in [true, false] {
        for (seq, event) in [(105, 8), (40, 7)] {
            let mut scenario = Scenario::new();
            scenario.frame(PDS, 105, 7);
            down(&mut scenario);
            if restarted {
                scenario
                    .covers
                    .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
            }
            scenario.connect(PDS, at(105, 7));
            scenario.reset(PDS);
            let epoch = scenario.epoch(PDS);
            let read = scenario.frame(PDS, seq, event);
            assert!(read.counts, "it holds the cursor back until it is done");
            assert_eq!(scenario.row(PDS).numbering, 1, "{seq} of {restarted}");
            assert_eq!(scenario.epoch(PDS), epoch, "no second reset");
            assert_eq!(resets(&scenario), [ResetReason::OutdatedCursor]);
        }
    }
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 105, 7);
    down(&mut scenario);
    scenario.connect(PDS, at(105, 7));
    scenario.reset(PDS);
    assert!(scenario.frame(PDS, 300, 1).counts);
    assert_eq!(
        scenario.row(PDS).numbering,
        0,
        "beyond it, the same one goes on"
    );
}

#[test]
fn a_future_cursor_clears_ours_and_the_next_dial_asks_for_none() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 9000, 7);
    let epoch = scenario.epoch(PDS);
    let now = scenario.now();
    let source = scenario.covers.get_mut(PDS).unwrap();
    source.stream.dial(None);
    source
        .stream
        .cursor_in_future(now, &mut source.row, &mut scenario.notices);
    assert!(scenario.epoch(PDS) > epoch);
    assert_eq!(scenario.row(PDS).numbering, 1);
    assert_eq!(scenario.connect(PDS, None), None, "no endless loop");
}

#[test]
fn one_number_again_is_a_duplicate_and_a_thousand_are_a_new_numbering() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 5000, 7);
    let epoch = scenario.epoch(PDS);
    assert!(scenario.frame(PDS, 5000, 7).repeat);
    for seq in 1..u64::from(BACKWARD_FRAMES) {
        let read = scenario.frame(PDS, seq, 1);
        assert_eq!(read.epoch, None, "nothing is raised while it is unclear");
        assert!(!read.counts);
        assert_eq!(
            scenario.covers.open_epoch(PDS),
            None,
            "nor by what begins now"
        );
        assert!(!scenario.covers.live(PDS, scenario.time, &scenario.settings));
    }
    assert_eq!(scenario.epoch(PDS), epoch);
    let read = scenario.frame(PDS, 1000, 1);
    assert!(scenario.epoch(PDS) > epoch);
    assert_eq!(read.epoch, Some(scenario.epoch(PDS)));
    assert_eq!(resets(&scenario).last(), Some(&ResetReason::Backwards));
    assert_eq!(scenario.row(PDS).numbering, 1);
}

#[test]
fn a_replay_that_comes_back_to_where_it_was_is_no_reset() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 5000, 7);
    let epoch = scenario.epoch(PDS);
    for seq in 4900..5000 {
        scenario.frame(PDS, seq, 1);
    }
    let read = scenario.frame(PDS, 5001, 8);
    assert_eq!(read.epoch, Some(epoch));
    assert!(scenario.covers.live(PDS, scenario.time, &scenario.settings));
}

#[test]
fn an_event_that_came_late_counts_as_unread_and_a_duplicate_does_not() {
    let mut scenario = Scenario::new();
    for seq in 1..=9 {
        scenario.frame(PDS, 1000 + seq * 10, seq as u8);
    }
    assert!(!scenario.frame(PDS, 1040, 4).counts);
    assert_eq!(scenario.row(PDS).unread_at, None, "we have had that one");
    scenario.frame(PDS, 1100, 10);
    let read = scenario.frame(PDS, 1045, 4);
    assert!(!read.counts && !read.repeat);
    let late = scenario.row(PDS).unread_at;
    assert!(late.is_some(), "the cursor may have passed it");
    scenario.frame(PDS, 1110, 11);
    scenario.frame(PDS, 1040, 5);
    assert!(scenario.row(PDS).unread_at > late, "nor had we that one");
}

#[test]
fn what_was_read_is_remembered_as_far_back_as_a_replay_goes() {
    let mut scenario = Scenario::new();
    let frames = u64::from(BACKWARD_FRAMES);
    let (first, last) = (1_000, 1_000 + 2 * frames);
    for seq in first..=last {
        scenario.frame(PDS, seq, seq as u8);
    }
    let again = last - (frames - 1);
    scenario.frame(PDS, again, again as u8);
    assert_eq!(scenario.row(PDS).unread_at, None);
    scenario.frame(PDS, again - 1, (again - 1) as u8);
    assert!(
        scenario.row(PDS).unread_at.is_some(),
        "that was too long ago"
    );
}

#[test]
fn dropping_frames_ourselves_ends_the_epoch() {
    let mut scenario = Scenario::new();
    let epoch = scenario.epoch(PDS);
    let now = scenario.now();
    let source = scenario.covers.get_mut(PDS).unwrap();
    source
        .stream
        .queue_overflowed(now, &mut source.row, &mut scenario.notices);
    assert!(scenario.epoch(PDS) > epoch);
}

#[test]
fn a_frame_that_a_full_queue_dropped_is_not_waited_for() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 5000, 7);
    let now = scenario.now();
    let source = scenario.covers.get_mut(PDS).unwrap();
    source
        .stream
        .queue_overflowed(now, &mut source.row, &mut scenario.notices);
    scenario.pass(Duration::from_secs(3600));
    assert!(scenario.covers.live(PDS, scenario.time, &scenario.settings));
}

#[test]
fn an_epoch_is_never_used_twice_even_if_the_row_was_restored() {
    let mut scenario = Scenario::new();
    scenario.reset(PDS);
    let used = scenario.epoch(PDS);
    // The disk is restored from a backup of before: the row says 1 again.
    scenario
        .covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    scenario.connect(PDS, None);
    assert!(scenario.epoch(PDS) > used);
    // And when the clock goes back, numbers still go up.
    let epoch = scenario.epoch(PDS);
    scenario.time = Time(5);
    scenario.reset(PDS);
    assert!(scenario.epoch(PDS) > epoch);
}

#[test]
fn a_frame_of_a_connection_that_was_given_up_raises_nothing() {
    let mut scenario = Scenario::new();
    down(&mut scenario);
    let read = scenario.frame(PDS, 700, 3);
    assert_eq!((read.epoch, read.counts), (None, false));
}

#[test]
fn a_lost_cover_is_live_for_the_grace_and_no_longer() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 700, 3);
    scenario.lost(PDS);
    assert!(scenario.covers.live(PDS, scenario.time, &scenario.settings));
    scenario.pass(scenario.settings.live_grace + Duration::from_secs(1));
    assert!(!scenario.covers.live(PDS, scenario.time, &scenario.settings));
    // Dialling again is not being live again; the event at our cursor is.
    durable(&mut scenario, 700, 3);
    scenario.connect(PDS, None);
    assert!(!scenario.covers.live(PDS, scenario.time, &scenario.settings));
    scenario.frame(PDS, 700, 3);
    assert!(scenario.covers.live(PDS, scenario.time, &scenario.settings));
}

#[test]
fn a_cover_whose_events_do_not_get_durable_is_not_live() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 700, 3);
    durable(&mut scenario, 700, 3);
    scenario.pass(scenario.settings.live_grace * 10);
    assert!(
        scenario.covers.live(PDS, scenario.time, &scenario.settings),
        "quiet, and all of it is durable"
    );
    scenario.frame(PDS, 701, 4);
    scenario.pass(scenario.settings.live_grace - Duration::from_secs(1));
    scenario.frame(PDS, 702, 5);
    assert!(scenario.covers.live(PDS, scenario.time, &scenario.settings));
    // Frames still come, and the first of them is nowhere on the disk.
    scenario.pass(Duration::from_secs(2));
    assert!(!scenario.covers.live(PDS, scenario.time, &scenario.settings));
    durable(&mut scenario, 701, 4);
    assert!(scenario.covers.live(PDS, scenario.time, &scenario.settings));
}

#[test]
fn what_is_not_durable_for_long_is_remembered_in_a_bounded_way() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 700, 3);
    durable(&mut scenario, 700, 3);
    for seq in 701..10_000 {
        scenario.pass(Duration::from_millis(1));
        scenario.frame(PDS, seq, 4);
    }
    assert!(scenario.covers.live(PDS, scenario.time, &scenario.settings));
    scenario.pass(scenario.settings.live_grace - Duration::from_secs(5));
    assert!(!scenario.covers.live(PDS, scenario.time, &scenario.settings));
    // The last ones count as old as those at the bound.
    durable(&mut scenario, 9_998, 4);
    assert!(!scenario.covers.live(PDS, scenario.time, &scenario.settings));
    durable(&mut scenario, 9_999, 4);
    assert!(scenario.covers.live(PDS, scenario.time, &scenario.settings));
}

#[test]
fn a_disk_has_its_moment_even_without_a_grace() {
    let mut scenario = Scenario::new();
    scenario.settings.live_grace = Duration::ZERO;
    scenario.frame(PDS, 700, 3);
    scenario.pass(DURABLE_WITHIN - Duration::from_secs(1));
    assert!(scenario.covers.live(PDS, scenario.time, &scenario.settings));
    scenario.pass(Duration::from_secs(2));
    assert!(!scenario.covers.live(PDS, scenario.time, &scenario.settings));
}

#[test]
fn a_stream_that_never_flowed_is_not_live() {
    let mut covers = cover::Covers::new();
    covers.add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    assert!(!covers.live(PDS, Time(10), &Settings::default()));
}

#[test]
fn a_quiet_stream_after_one_backward_frame_is_dialled_again() {
    let mut scenario = Scenario::new();
    scenario.frame(PDS, 5000, 7);
    scenario.frame(PDS, 4999, 1);
    assert!(!scenario.covers.live(PDS, scenario.time, &scenario.settings));
    assert!(wait(&mut scenario, CONTINUITY_WITHIN));
    assert!(!scenario.covers.get(PDS).unwrap().stream.is_connected());
    // The event at our cursor tells: nothing was missed.
    let epoch = scenario.epoch(PDS);
    scenario.connect(PDS, None);
    scenario.frame(PDS, 5000, 7);
    assert!(scenario.covers.live(PDS, scenario.time, &scenario.settings));
    assert_eq!(scenario.epoch(PDS), epoch);
}
