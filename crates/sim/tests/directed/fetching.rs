//! Tests fetches on the simulator: events that arrive during a fetch, and snapshots that fail
//! or are refused.

use gapless_core::ledger::Held;
use gapless_sim::script::Stage;
use gapless_sim::world::{Body, Fault, Place};

const PDS: Place = Place::Pds(0);

/// `a` owes a fetch for a commit that was too big.
fn owing() -> Stage {
    let mut stage = Stage::one_host();
    stage.force(Fault::TooBig);
    stage.commit("a");
    stage.deliver();
    assert!(stage.reasons("a").contains(&"fetch_owed"));
    stage
}

#[test]
fn t1_l3_a_commit_during_the_fetch_chains_onto_the_snapshot() {
    let mut stage = owing();
    let before = stage.fetches("a");
    stage.work_until("a", "fetched");
    stage.commit("a");
    stage.deliver();
    assert!(!stage.complete("a"));
    stage.finish_work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.fetches("a"), before + 1);
}

#[test]
fn l3_one_event_during_every_fetch_needs_at_most_one_further_fetch() {
    let mut stage = owing();
    let before = stage.fetches("a");
    for _ in 0..3 {
        if stage.complete("a") {
            break;
        }
        stage.work_until("a", "fetched");
        stage.force(Fault::TooBig);
        stage.commit("a");
        stage.deliver();
        stage.finish_work();
        // The next one is ordinary.
        stage.commit("a");
        stage.deliver();
        stage.pass(3);
        stage.work();
    }
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert!(stage.fetches("a") <= before + 2);
}

#[test]
fn t2_t22_an_older_snapshot_never_undoes_a_newer_commit() {
    let mut stage = owing();
    stage.work_until("a", "fetched");
    // Another way brings it up to date, and further.
    let (name, id) = ("a", stage.id("a"));
    stage.run.mirror.start_again(&stage.run.world, id);
    let place = stage.run.mirror.jobs.len() - 1;
    for _ in 0..4 {
        if stage.run.mirror.jobs.len() > place {
            stage.run.work_at(place);
        }
    }
    stage.commit(name);
    stage.deliver();
    assert!(stage.up_to_date("a"));
    stage.finish_work();
    assert!(stage.up_to_date("a"), "the older snapshot came last");
    stage.settle();
    assert!(stage.complete("a"));
}

#[test]
fn t3_t4_a_replay_changes_nothing() {
    let mut stage = Stage::one_host();
    for _ in 0..6 {
        stage.commit("a");
    }
    stage.deliver();
    let held = stage.run.mirror.book.records(stage.id("a"));
    let entries = stage.run.world.pds[0].log.entries.clone();
    for entry in entries {
        stage.run.world.pds[0].log.push(entry.frame);
    }
    stage.deliver();
    assert_eq!(stage.run.mirror.book.records(stage.id("a")), held);
    assert!(stage.complete("a") && stage.complete("b"));
}

#[test]
fn an_answer_that_changes_nothing_writes_nothing() {
    let mut stage = Stage::two_hosts();
    stage.run.world.migrate(0, 1);
    stage.settle();
    stage.sync();
    // The directory answers an older document.
    stage.run.world.owners[0].lags = true;
    let id = stage.id("a");
    stage.run.mirror.resolve_now(&mut stage.run.world, id);
    assert_eq!(stage.run.mirror.book.unsynced(), 0);
}

#[test]
fn t5_t58_a_reset_during_the_fetch_leaves_it_incomplete() {
    let mut stage = owing();
    let indexed = stage.repo("a").last_indexed_rev;
    stage.work_until("a", "fetch ");
    stage.lose(PDS);
    stage.run.world.forget(PDS, 0);
    stage.read();
    stage.finish_work();
    assert!(stage.repo("a").last_indexed_rev > indexed, "progress");
    assert_eq!(stage.reasons("a"), ["epoch_changed", "compare_owed"]);
    stage.work();
    assert!(
        stage.complete("a"),
        "with no sweep: {:?}",
        stage.reasons("a")
    );
}

#[test]
fn t20_too_big_on_a_complete_repository() {
    let mut stage = owing();
    assert!(stage.reasons("a").contains(&"newer_commit_known"));
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t32_an_empty_commit_moves_the_head_alone() {
    let mut stage = Stage::one_host();
    let before = stage.run.mirror.book.records(stage.id("a"));
    stage.force(Fault::EmptyCommit);
    stage.commit("a");
    stage.deliver();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.run.mirror.book.records(stage.id("a")), before);
}

#[test]
fn legacy_commits_are_recomputed_from_what_is_held() {
    let mut stage = Stage::one_host();
    let fetched = stage.fetches("a");
    stage.force(Fault::Legacy);
    stage.commit("a");
    stage.deliver();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.fetches("a"), fetched);
    // Not onto another state.
    stage.lose(PDS);
    stage.commit("a");
    stage.run.world.forget(PDS, 0);
    stage.read();
    stage.force(Fault::Legacy);
    stage.commit("a");
    stage.deliver();
    assert!(!stage.complete("a"));
}

#[test]
fn t34_a_gap_between_the_snapshot_and_the_first_live_commit_is_seen() {
    let mut stage = Stage::one_host();
    stage.force(Fault::Omitted);
    stage.commit("a");
    stage.commit("a");
    stage.deliver();
    assert!(!stage.complete("a"));
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t35_a_fetch_that_fails_ten_times_is_still_owed() {
    let mut stage = owing();
    stage.run.world.pds[0].down = true;
    for _ in 0..10 {
        stage.pass(4_000);
        stage.begin_work("a");
        stage.finish_work();
        assert!(stage.reasons("a").contains(&"fetch_owed"));
    }
    stage.run.world.pds[0].down = false;
    stage.pass(4_000);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t37_a_whole_file_that_its_owner_did_not_sign_is_refused() {
    let mut stage = owing();
    stage.force(Fault::StrangersRepo);
    stage.begin_work("a");
    stage.finish_work();
    assert!(stage.reasons("a").contains(&"fetch_owed"));
    stage.force(Fault::CutRepo);
    stage.pass(60);
    stage.begin_work("a");
    stage.finish_work();
    assert!(stage.reasons("a").contains(&"fetch_owed"), "cut");
    stage.pass(60);
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t38_an_older_snapshot_than_the_named_head_is_progress_and_still_owed() {
    let mut stage = Stage::one_host();
    stage.lose(PDS);
    for _ in 0..3 {
        stage.commit("a");
    }
    stage.run.world.forget(PDS, 0);
    stage.read();
    stage.force(Fault::StaleRepo);
    let indexed = stage.repo("a").last_indexed_rev;
    stage.sweep();
    assert!(!stage.up_to_date("a"));
    assert!(stage.repo("a").last_indexed_rev > indexed, "progress");
    assert!(stage.reasons("a").contains(&"epoch_changed"));
    assert!(stage.reasons("a").contains(&"fetch_owed"));
    stage.pass(60);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn r11_what_is_new_is_enough_when_the_root_comes_out_right() {
    let mut stage = owing();
    let before = stage.fetches("a");
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.fetches("a"), before + 1);
    assert_eq!(stage.run.mirror.counts.differences_right, 1);
}

#[test]
fn t24_since_returns_nothing_and_the_whole_is_fetched_at_once() {
    not_led_there(Fault::DifferenceEmpty);
}

#[test]
fn r11_a_difference_with_an_operation_left_out_is_fetched_in_full_at_once() {
    not_led_there(Fault::DifferenceLacks);
}

/// A difference that does not lead to the signed root is not written, and costs
/// one more fetch, without a wait.
fn not_led_there(fault: Fault) {
    let mut stage = owing();
    let before = stage.fetches("a");
    let held = stage.repo("a").held;
    stage.force(fault);
    stage.work_until("a", "fetched a difference");
    stage.step_work("a");
    assert_eq!(stage.repo("a").held, held, "not written");
    let tries = stage.repo("a").debt.attempts;
    stage.finish_work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.fetches("a"), before + 2);
    assert_eq!(tries, 1, "nobody's failure");
    assert_eq!(stage.run.mirror.counts.differences_right, 0);
}

#[test]
fn r11_a_difference_from_another_line_is_fetched_in_full() {
    // We hold a commit that its host sent and then lost.
    let mut stage = Stage::one_host();
    let before = stage.fetches("a");
    stage.run.world.phantom(0);
    stage.commit("a");
    stage.deliver();
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.fetches("a"), before + 2);
    assert_eq!(stage.run.mirror.counts.differences_right, 0);
}

/// `a` has two commits that we have not applied, and a difference that brings
/// both is on its way. The first of them is read.
fn difference_under_way() -> Stage {
    let mut stage = Stage::one_host();
    stage.commit("a");
    stage.read();
    stage.commit("a");
    let id = stage.id("a");
    stage.run.mirror.start_again(&stage.run.world, id);
    stage.work_until("a", "fetched a difference");
    stage
}

#[test]
fn r11_a_difference_still_fits_when_the_head_moved_on_the_way_there() {
    let mut stage = difference_under_way();
    stage.process();
    assert!(!stage.up_to_date("a"));
    let before = stage.fetches("a");
    stage.finish_work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.fetches("a"), before);
    assert_eq!(stage.run.mirror.counts.differences_right, 1);
}

#[test]
fn r11_a_difference_that_live_commits_have_passed_is_dropped() {
    let mut stage = difference_under_way();
    stage.commit("a");
    stage.deliver();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    let before = stage.fetches("a");
    stage.finish_work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.fetches("a"), before, "and nothing more is fetched");
}

#[test]
fn t47_t29_an_unsigned_event_raises_neither_rev_nor_marker() {
    let mut stage = Stage::one_host();
    let before = stage.repo("a");
    stage.run.world.forge(0, PDS);
    stage.deliver();
    let after = stage.repo("a");
    assert_eq!(after.held, before.held);
    assert_eq!(after.first_rev_since_reset, before.first_rev_since_reset);
    assert!(
        after.marker.is_none(),
        "from the cover: it took the place of something"
    );
    stage.settle();
    assert!(stage.complete("a"), "and a comparison is enough");
}

#[test]
fn t50_a_signed_commit_with_an_operation_left_out_is_not_applied() {
    let mut stage = Stage::one_host();
    stage.force(Fault::OpLeftOut);
    stage.commit("a");
    stage.deliver();
    assert!(!stage.up_to_date("a"));
    assert!(stage.reasons("a").contains(&"newer_commit_known"));
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t51_a_reason_that_arises_while_a_fetch_ends_outlives_it() {
    let mut stage = owing();
    stage.work_until("a", "fetched");
    // A comparison is owed, by something that is not in the snapshot's past.
    let frame = stage.run.world.frame(0, Body::Garbage);
    stage.run.world.pds[0].log.push(frame);
    stage.deliver();
    stage.finish_work();
    assert!(stage.reasons("a").contains(&"compare_owed"));
    assert!(stage.repo("a").marker.is_none(), "T58");
    stage.pass(3);
    stage.work();
    assert!(stage.complete("a"));
}

#[test]
fn t62_live_commits_while_a_large_snapshot_is_written_and_a_crash_in_between() {
    let mut stage = Stage::new(1, &[0]);
    for _ in 0..30 {
        stage.commit("a");
    }
    stage.follow(PDS);
    stage.connect();
    stage.pass(6);
    stage.sweep();
    stage.work_until("a", "write on");
    assert!(matches!(stage.repo("a").held, Held::Applying { .. }));
    stage.commit("a");
    stage.deliver();
    assert!(!stage.complete("a"));
    stage.sync();
    stage.crash(0);
    assert!(matches!(stage.repo("a").held, Held::Applying { .. }));
    assert!(stage.reasons("a").contains(&"applying"));
    stage.pass(60);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t29_a_key_that_changed_between_commit_and_check() {
    let mut stage = Stage::one_host();
    let fetched = stage.fetches("a");
    let key = stage.repo("a").signing.and_then(|signing| signing.key);
    stage.run.world.change_key(0);
    stage.commit("a");
    stage.deliver();
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    let signing = stage.repo("a").signing.expect("it is resolved");
    assert!(key.is_some() && signing.former == key && signing.key != key);
    // The head stays signed with the old key, and has to be fetched.
    stage.force(Fault::OldKeyHead);
    stage.force(Fault::TooBig);
    stage.commit("a");
    stage.run.world.change_key(0);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert!(stage.fetches("a") > fetched);
}

#[test]
fn t55_a_did_that_cannot_be_resolved_for_an_hour_holds_no_cursor() {
    let mut stage = Stage::one_host();
    stage.run.mirror.keys.clear();
    stage.run.world.faults.force(Fault::DirectoryFailure, 3);
    stage.commit("a");
    stage.commit("b");
    stage.deliver();
    let log = stage.run.world.pds[0].log.seq;
    let cursor = stage
        .run
        .mirror
        .book
        .cursor(stage.upstream(PDS))
        .expect("there is one");
    assert_eq!(cursor.1.seq, log);
    assert!(!stage.complete("a"));
    stage.run.world.faults.heal();
    stage.pass(4_000);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert!(stage.complete("b") && stage.up_to_date("b"));
}

#[test]
fn r15_a_wider_filter_owes_a_fetch() {
    let mut stage = Stage::one_host();
    stage.run.mirror.change_filter(&[]);
    assert_eq!(stage.reasons("a"), ["filter_changed"]);
    stage.sweep();
    stage.work();
    assert!(stage.complete("a"));
}

#[test]
fn l4_a_flood_of_forgeries_costs_a_bounded_number_of_questions() {
    let mut stage = Stage::one_host();
    let before = stage.questions() + stage.run.mirror.counts.resolved;
    for _ in 0..20 {
        for _ in 0..20 {
            stage.run.world.forge(0, PDS);
        }
        stage.deliver();
        stage.work();
        stage.pass(1);
    }
    let asked = stage.questions() + stage.run.mirror.counts.resolved - before;
    assert!(asked <= 16, "{asked} questions for 400 forgeries");
    assert!(stage.complete("b"));
    stage.pass(1_300);
    stage.settle();
    assert!(stage.complete("a"), "{:?}", stage.reasons("a"));
}
