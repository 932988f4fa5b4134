//! Tests streams on the simulator: resets, cursors, crashes.

use gapless_core::ledger::Account;
use gapless_sim::script::Stage;
use gapless_sim::world::{Body, Fault, Place};

const PDS: Place = Place::Pds(0);

#[test]
fn t6_a_reset_makes_all_incomplete_at_once_and_a_sweep_alone_heals() {
    let mut stage = Stage::one_host();
    let fetched = stage.fetches("a") + stage.fetches("b");
    stage.reset(PDS);
    assert_eq!(stage.reasons("a"), ["epoch_changed"]);
    assert_eq!(stage.reasons("b"), ["epoch_changed"]);
    stage.sweep();
    assert!(stage.complete("a") && stage.complete("b"));
    assert_eq!(stage.fetches("a") + stage.fetches("b"), fetched, "L2");
    // The first event does not undo it.
    stage.commit("a");
    stage.deliver();
    assert!(stage.complete("a") && stage.complete("b"));
}

#[test]
fn t6_a_chained_event_after_a_reset_heals_its_repository_for_free() {
    let mut stage = Stage::one_host();
    stage.reset(PDS);
    stage.commit("a");
    stage.deliver();
    assert!(stage.complete("a"));
    assert_eq!(stage.reasons("b"), ["epoch_changed"]);
}

#[test]
fn s1_a_commit_missed_in_a_reset_is_not_forgotten_by_the_next_two() {
    let mut stage = Stage::one_host();
    stage.lose(PDS);
    stage.commit("a");
    stage.run.world.forget(PDS, 0);
    stage.read();
    stage.commit("a");
    stage.commit("a");
    stage.deliver();
    assert!(stage.reasons("a").contains(&"newer_commit_known"));
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t7_info_crash_info_never_zero_epochs() {
    let mut stage = Stage::one_host();
    stage.sync();
    stage.lose_for_long(PDS);
    stage.connect();
    let id = stage.upstream(PDS);
    let epoch = |stage: &Stage| {
        let upstream = stage.run.mirror.upstream_of(PDS).expect("followed");
        stage
            .run
            .mirror
            .covers
            .get(upstream)
            .expect("known")
            .row
            .epoch
    };
    let before = epoch(&stage);
    stage.run.mirror.read(&mut stage.run.world, id);
    assert!(epoch(&stage) > before);
    stage.crash(0);
    assert_eq!(epoch(&stage), before, "it was not durable");
    stage.read();
    assert!(epoch(&stage) > before);
    assert!(!stage.complete("a"));
}

#[test]
fn t8_info_in_mid_stream_is_a_reset_like_any_other() {
    let mut stage = Stage::one_host();
    stage.commit("b");
    stage.force(Fault::InfoAnyTime);
    stage.read();
    assert_eq!(stage.reasons("a"), ["epoch_changed"]);
}

#[test]
fn t9_another_event_at_our_cursor_is_a_reset() {
    let mut stage = Stage::one_host();
    let cursor = stage
        .run
        .mirror
        .book
        .cursor(stage.upstream(PDS))
        .expect("there is one")
        .1;
    stage.commit("a");
    // It forgets all it had, and counts past us before we are back.
    stage.run.world.pds[0].log.restart(cursor.seq - 1);
    stage.commit("b");
    stage.commit("b");
    stage.deliver();
    assert!(!stage.complete("a"), "{:?}", stage.reasons("a"));
    stage.sweep();
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t9_nothing_at_our_cursor_for_ten_seconds_is_a_reset() {
    let mut stage = Stage::one_host();
    let cursor = stage
        .run
        .mirror
        .book
        .cursor(stage.upstream(PDS))
        .expect("there is one")
        .1;
    stage.commit("a");
    stage.lose(PDS);
    stage.run.world.pds[0].log.restart(cursor.seq - 1);
    stage.read();
    assert!(stage.complete("a"), "the grace time");
    stage.pass(9);
    assert!(stage.complete("a"));
    stage.pass(2);
    assert_eq!(stage.reasons("a"), ["epoch_changed"]);
}

#[test]
fn t9_a_jump_in_mid_stream_is_none() {
    let mut stage = Stage::one_host();
    stage.run.world.pds[0].log.seq += 100;
    stage.commit("a");
    stage.deliver();
    assert!(stage.complete("a") && stage.complete("b"));
}

#[test]
fn t10_the_event_at_our_cursor_comes_again_and_shows_that_nothing_is_missing() {
    let mut stage = Stage::one_host();
    stage.lose(PDS);
    stage.commit("a");
    stage.deliver();
    assert!(stage.complete("a") && stage.complete("b"));
    assert!(stage.up_to_date("a"));
}

#[test]
fn t11_t49_t60_a_future_cursor_ends_the_numbering_once_and_for_all() {
    let mut stage = Stage::one_host();
    for _ in 0..5 {
        stage.commit("a");
    }
    stage.read();
    // Queued frames of the old numbering, then the host begins anew.
    stage.run.world.pds[0].log.restart(0);
    stage.read();
    stage.process();
    let id = stage.upstream(PDS);
    assert_eq!(stage.run.mirror.book.cursor(id), None, "T60");
    stage.read();
    assert!(
        !stage.complete("b"),
        "T11: a new subscription, nothing shown"
    );
    stage.commit("b");
    stage.settle();
    assert!(stage.complete("a") && stage.complete("b"));
    assert!(stage.up_to_date("a") && stage.up_to_date("b"));
}

#[test]
fn t49_an_equal_listing_between_two_subscriptions_raises_nothing() {
    let mut stage = Stage::one_host();
    stage.lose_for_long(PDS);
    stage.run.world.pds[0].log.restart(0);
    let id = stage.upstream(PDS);
    stage.run.mirror.dial(&stage.run.world, id);
    stage.run.mirror.connect(&mut stage.run.world, id);
    // FutureCursor was answered; the listing is equal; then a commit; only then
    // the new subscription.
    stage.sweep();
    stage.commit("a");
    stage.deliver();
    stage.pass(6);
    assert!(!stage.complete("a"));
}

#[test]
fn t16_a_listing_that_races_a_reset_raises_nothing() {
    let mut stage = Stage::one_host();
    let host = stage.run.mirror.host_id(0);
    stage.run.mirror.start_sweep(&stage.run.world, host);
    stage.sweep_step();
    stage.lose(PDS);
    stage.commit("a");
    stage.run.world.forget(PDS, 0);
    stage.read();
    stage.sweep_step();
    assert_eq!(stage.reasons("a"), ["epoch_changed"]);
}

#[test]
fn t19_a_listing_before_the_first_connection_vouches_for_nothing() {
    let mut stage = Stage::new(1, &[0]);
    stage.follow(PDS);
    stage.sweep();
    stage.work();
    assert!(stage.up_to_date("a"));
    stage.commit("a");
    stage.deliver();
    stage.pass(6);
    assert!(!stage.complete("a"));
}

#[test]
fn a_sweep_that_ran_before_the_subscription_was_in_force_is_repeated_at_once() {
    let mut stage = Stage::new(1, &[0, 0]);
    stage.follow(PDS);
    stage.settle();
    assert!(stage.complete("a") && stage.complete("b"));
}

#[test]
fn t25_frames_that_cannot_be_read_stop_nothing() {
    let mut stage = Stage::one_host();
    for _ in 0..600 {
        let frame = stage.run.world.frame(0, Body::Garbage);
        stage.run.world.pds[0].log.push(frame);
    }
    stage.deliver();
    assert!(stage.reasons("a").contains(&"compare_owed"));
    assert!(stage.complete("b"));
    stage.commit("b");
    stage.deliver();
    assert!(stage.up_to_date("b"), "the stream goes on");
    stage.settle();
    assert!(stage.complete("a"));
}

#[test]
fn t25_a_frame_without_a_did_makes_all_repos_incomplete_until_a_sweep() {
    let mut stage = Stage::one_host();
    stage.force(Fault::Unreadable);
    stage.commit("a");
    stage.deliver();
    assert_eq!(stage.reasons("a"), ["unreadable_frame"]);
    assert_eq!(stage.reasons("b"), ["unreadable_frame"]);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert!(stage.complete("b"));
}

#[test]
fn t26_t36_a_crash_at_any_batch_repeats_and_never_skips() {
    for keep in 0..12 {
        let mut stage = Stage::one_host();
        stage.sync();
        stage.commit("a");
        stage.force(Fault::TooBig);
        stage.commit("b");
        stage.commit("a");
        stage.deliver();
        stage.work();
        let at_risk = stage.run.mirror.book.unsynced();
        stage.crash(keep.min(at_risk));
        stage.settle();
        assert!(stage.complete("a") && stage.up_to_date("a"), "{keep}");
        assert!(stage.complete("b") && stage.up_to_date("b"), "{keep}");
    }
}

/// The cursor of the host's stream, and the number of its last event.
fn cursor_and_last(stage: &Stage) -> (u64, u64) {
    let cursor = stage.run.mirror.book.cursor(stage.upstream(PDS));
    let cursor = cursor.expect("there is one").1.seq;
    (cursor, stage.run.world.pds[0].log.seq)
}

#[test]
fn r13_the_cursor_waits_for_what_is_open_before_it() {
    let mut stage = Stage::one_host();
    let (before, _) = cursor_and_last(&stage);
    stage.commit("a");
    stage.commit("b");
    stage.read();
    let id = stage.upstream(PDS);
    stage.run.process_at(id, 1);
    stage.pass(0);
    assert_eq!(cursor_and_last(&stage).0, before, "the first one is open");
    stage.run.process_at(id, 0);
    stage.pass(0);
    let (cursor, last) = cursor_and_last(&stage);
    assert_eq!(cursor, last);
}

#[test]
fn r13_after_a_restart_and_info_another_event_under_our_number_is_not_skipped() {
    let mut stage = Stage::one_host();
    let identity = stage.run.world.frame(1, Body::Identity);
    stage.run.world.pds[0].log.push(identity);
    stage.deliver();
    stage.work();
    stage.sync();
    stage.crash(0);
    // The host lost that last event, gives its number again, and says #info.
    let log = &mut stage.run.world.pds[0].log;
    log.entries.pop();
    log.seq -= 1;
    stage.connect();
    let id = stage.upstream(PDS);
    let socket = stage.run.mirror.feed(id).socket.as_mut();
    socket.expect("it is connected").info = true;
    stage.read();
    stage.sweep();
    assert!(stage.complete("a") && stage.complete("b"));
    stage.commit("a");
    stage.commit("b");
    stage.read();
    // The later event is worked off first, and then we are killed.
    stage.run.process_at(id, 1);
    stage.pass(0);
    stage.sync();
    stage.crash(0);
    stage.deliver();
    assert!(!stage.complete("a") || stage.up_to_date("a"));
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn r14_every_kind_of_event_moves_the_cursor() {
    let mut stage = Stage::one_host();
    let commit = std::sync::Arc::new(stage.truth("a"));
    let bodies = [
        Body::Sync { commit },
        Body::Identity,
        Body::Account(Account::Active),
        Body::Garbage,
        Body::Unreadable,
        Body::Unreadable,
    ];
    for body in bodies {
        let frame = stage.run.world.frame(0, body);
        let numbered = frame.body != Body::Unreadable || !frame.number.is_multiple_of(2);
        stage.run.world.pds[0].log.push(frame.clone());
        stage.deliver();
        let (cursor, last) = cursor_and_last(&stage);
        assert_eq!(cursor == last, numbered, "{}", frame.label());
    }
    // What cannot be read down to its number is passed with the next event.
    stage.commit("b");
    stage.deliver();
    let (cursor, last) = cursor_and_last(&stage);
    assert_eq!(cursor, last);
}

#[test]
fn t30_a_silent_socket_is_given_up() {
    let mut stage = Stage::one_host();
    stage.force(Fault::SilentSocket);
    stage.commit("a");
    stage.read();
    stage.pass(61);
    let id = stage.upstream(PDS);
    stage.run.mirror.ping(&stage.run.world, id);
    stage.deliver();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn r3_a_cover_that_is_down_longer_than_the_grace_time_ends_completeness() {
    let mut stage = Stage::one_host();
    stage.lose(PDS);
    stage.pass(59);
    assert!(stage.complete("a"));
    stage.pass(3);
    assert_eq!(stage.reasons("a"), ["cover_down"]);
}

#[test]
fn t41_two_commits_in_the_wrong_order_then_silence() {
    let mut stage = Stage::one_host();
    let fetched = stage.fetches("a");
    stage.force(Fault::Swapped);
    stage.commit("a");
    stage.commit("a");
    stage.deliver();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.fetches("a"), fetched, "the parked one chains");
}

#[test]
fn t48_an_event_read_before_a_reset_raises_nothing_after_it() {
    let mut stage = Stage::one_host();
    stage.commit("a");
    stage.read();
    stage.lose(PDS);
    stage.commit("a");
    stage.run.world.forget(PDS, 0);
    stage.read();
    stage.process();
    assert_eq!(stage.reasons("a"), ["epoch_changed"]);
}

#[test]
fn a_backward_frame_and_then_silence_is_settled_by_the_event_at_our_cursor() {
    // The last one that came is a duplicate, and nothing follows.
    let mut stage = Stage::one_host();
    let id = stage.upstream(PDS);
    stage.run.world.pds[0].log.floor = 0;
    stage.commit("a");
    stage.read();
    let first = stage.run.world.pds[0].log.entries[0].clone();
    let now = stage.run.mirror.tick(&stage.run.world);
    let source = stage.run.mirror.covers.get_mut(id).expect("known");
    let hash = first.frame.hash(first.seq);
    source
        .stream
        .frame(now, &mut source.row, first.seq, hash, &mut Vec::new());
    stage.process();
    assert_eq!(stage.reasons("a"), ["cover_down"], "until that is clear");
    stage.pass(11);
    stage.deliver();
    assert!(stage.complete("a") && stage.complete("b"));
}

#[test]
fn i8_a_reset_of_many_repositories_writes_one_row() {
    let mut stage = Stage::new(1, &[0; 300]);
    stage.follow(PDS);
    stage.settle();
    let before = stage.run.mirror.book.dump();
    stage.reset(PDS);
    let after = stage.run.mirror.book.dump();
    let changed = after
        .iter()
        .filter(|(key, row)| before.get(*key) != Some(row));
    let tables: Vec<_> = changed.map(|((table, _), _)| table.name()).collect();
    assert_eq!(tables, ["upstream", "meta"], "and the store's own counters");
    assert_eq!(before.len(), after.len());
}
