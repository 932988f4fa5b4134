//! Tests sweeps on the simulator: what a listing proves, and what it does not.

use gapless_core::ledger::SweepSource;
use gapless_sim::script::Stage;
use gapless_sim::world::{Fault, Place};

const PDS: Place = Place::Pds(0);

#[test]
fn t42_a_silent_omission_is_found_by_the_sweep() {
    let mut stage = Stage::one_host();
    stage.force(Fault::Omitted);
    stage.commit("a");
    stage.commit("b");
    stage.deliver();
    assert!(!stage.up_to_date("a"));
    stage.pass(900);
    stage.sweep();
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t17_a_listing_ahead_of_our_queue_is_no_gap() {
    let mut stage = Stage::one_host();
    let fetched = stage.fetches("a");
    stage.commit("a");
    let host = stage.run.mirror.host_id(0);
    stage.read();
    stage.run.mirror.start_sweep(&stage.run.world, host);
    stage.sweep_step();
    stage.sweep_step();
    assert!(stage.complete("a"), "suspect, and the queue knows better");
    stage.process();
    stage.finish_sweeps();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.fetches("a"), fetched);
}

#[test]
fn t46_a_stale_listing_with_another_head_is_asked_once() {
    let mut stage = Stage::one_host();
    stage.force(Fault::StaleListing);
    stage.commit("a");
    stage.deliver();
    stage.sweep();
    assert!(stage.complete("a"));
    let asked = stage.questions();
    for _ in 0..5 {
        stage.pass(900);
        stage.sweep();
    }
    assert!(stage.complete("a"));
    assert_eq!(stage.questions(), asked, "the stale value is remembered");
    // But it vouches for nothing: after a reset the host itself is asked.
    stage.lose(PDS);
    stage.force(Fault::StaleListing);
    stage.commit("a");
    stage.run.world.forget(PDS, 0);
    stage.read();
    stage.sweep();
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t46_a_listing_that_turned_out_right_is_not_remembered_as_stale() {
    let mut stage = Stage::one_host();
    stage.commit("a");
    let host = stage.run.mirror.host_id(0);
    stage.run.mirror.start_sweep(&stage.run.world, host);
    for _ in 0..4 {
        stage.sweep_step();
    }
    // Suspect; asked after thirty seconds; by the answer the stream has come.
    stage.pass(31);
    stage.sweep_step();
    assert_eq!(stage.run.mirror.jobs.len(), 1, "the host is asked");
    stage.deliver();
    stage.finish_sweeps();
    assert_eq!(stage.repo("a").stale_listing, None);
    // The host loses the next commit: the listing says so, and is believed.
    stage.run.world.phantom(0);
    stage.deliver();
    stage.pass(900);
    stage.sweep();
    assert!(!stage.complete("a"));
}

#[test]
fn t46_a_stale_listing_with_our_head_is_found_within_a_day() {
    let mut stage = Stage::one_host();
    stage.force(Fault::StaleListing);
    stage.force(Fault::Omitted);
    stage.commit("a");
    stage.sweep();
    let swept = stage.answer("a").evidence.swept.expect("swept");
    assert_eq!(swept.by, SweepSource::Listing);
    for _ in 0..25 {
        stage.pass(3_600);
        stage.deliver();
        stage.sweep();
        stage.work();
    }
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.repo("a").swept.expect("asked").by, SweepSource::Head);
}

#[test]
fn t59_a_newer_head_is_named_while_the_fetch_fails() {
    let mut stage = Stage::one_host();
    stage.commit("a");
    stage.read();
    stage.force(Fault::Omitted);
    stage.commit("a");
    let host = stage.run.mirror.host_id(0);
    stage.run.mirror.start_sweep(&stage.run.world, host);
    for _ in 0..6 {
        if stage.run.mirror.jobs.is_empty() {
            stage.sweep_step();
            stage.pass(31);
        }
    }
    stage.work_until("a", "fetch ");
    stage.run.world.pds[0].down = true;
    stage.finish_work();
    // The older queued commit chains, and does not make it complete.
    stage.process();
    assert!(!stage.up_to_date("a"));
    assert!(!stage.complete("a"), "the named head is still owed");
    stage.run.world.pds[0].down = false;
    stage.pass(60);
    stage.finish_sweeps();
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t48_t58_a_sweep_noted_before_the_marker_was_unset_does_not_raise_it() {
    let mut stage = Stage::one_host();
    let host = stage.run.mirror.host_id(0);
    stage.run.mirror.start_sweep(&stage.run.world, host);
    stage.sweep_step();
    stage.force(Fault::Garbage);
    stage.commit("a");
    stage.deliver();
    assert!(stage.repo("a").marker.is_none());
    stage.sweep_step();
    assert!(stage.repo("a").marker.is_none());
    assert!(!stage.complete("a"));
    stage.finish_sweeps();
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn an_import_that_lists_the_empty_repository_is_complete_all_the_same() {
    let mut stage = Stage::two_hosts();
    stage.force(Fault::EmptyListing);
    stage.run.world.migrate(0, 1);
    stage.settle();
    for _ in 0..3 {
        stage.pass(900);
        stage.sweep();
        stage.work();
        assert!(
            stage.complete("a") && stage.up_to_date("a"),
            "{:?}",
            stage.reasons("a")
        );
    }
}

#[test]
fn a_listing_read_while_a_snapshot_is_written_is_not_lost() {
    let mut stage = Stage::new(1, &[0]);
    for _ in 0..30 {
        stage.commit("a");
    }
    stage.follow(PDS);
    stage.connect();
    stage.pass(6);
    stage.sweep();
    stage.work_until("a", "write on");
    stage.force(Fault::Omitted);
    stage.commit("a");
    let host = stage.run.mirror.host_id(0);
    stage.run.mirror.start_sweep(&stage.run.world, host);
    for _ in 0..4 {
        stage.sweep_step();
    }
    stage.finish_work();
    stage.finish_sweeps();
    assert!(!stage.up_to_date("a"));
    assert!(!stage.complete("a"), "the listing named another head");
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn r10b_an_adoption_that_a_sweep_asked_for_is_due_at_once() {
    let mut stage = Stage::one_host();
    stage.run.world.phantom(0);
    stage.deliver();
    stage.pass(1_000);
    stage.sweep();
    assert!(stage.reasons("a").contains(&"host_behind"));
    stage.pass(1_000);
    // The second sweep asks about `a`, and the host's answer ends in an adoption.
    let host = stage.repo("a").host.expect("it is resolved");
    stage.run.mirror.start_sweep(&stage.run.world, host);
    while stage.run.mirror.jobs.is_empty() {
        stage.sweep_step();
    }
    stage.work_until("a", "fetch ");
    // A crash ends the job before the fetch. The debt leads to the adoption without
    // a wait for the next sweep.
    stage.sync();
    stage.crash(0);
    stage.connect();
    assert!(stage.repo("a").debt.is_due(stage.run.world.now));
    stage.work();
    assert!(stage.up_to_date("a"));
    assert_eq!(stage.repo("a").lineage, 1);
}

#[test]
fn a_question_of_a_sweep_that_the_host_does_not_answer_is_owed() {
    let mut stage = Stage::one_host();
    // A day later it is time to ask the host itself, equal listing or not.
    stage.pass(2 * 24 * 3600);
    let host = stage.repo("a").host.expect("it is resolved");
    stage.run.mirror.start_sweep(&stage.run.world, host);
    while stage.run.mirror.jobs.is_empty() {
        stage.sweep_step();
    }
    assert!(stage.repo("a").debt.is_empty());
    stage.run.world.pds[0].down = true;
    stage.finish_work();
    assert!(stage.reasons("a").contains(&"compare_owed"));
    stage.run.world.pds[0].down = false;
    stage.pass(60);
    stage.settle();
    assert!(stage.complete("a"));
}

#[test]
fn a_fetch_that_fails_after_a_sweeps_question_is_no_failed_question() {
    let mut stage = Stage::one_host();
    stage.force(Fault::Omitted);
    stage.commit("a");
    stage.deliver();
    stage.pass(900);
    let host = stage.repo("a").host.expect("it is resolved");
    stage.run.mirror.start_sweep(&stage.run.world, host);
    for _ in 0..20 {
        if !stage.run.mirror.jobs.is_empty() {
            break;
        }
        stage.sweep_step();
        stage.pass(1);
    }
    stage.work_until("a", "fetch ");
    assert!(stage.reasons("a").contains(&"fetch_owed"));
    stage.run.world.pds[0].down = true;
    stage.finish_work();
    assert_eq!(stage.repo("a").debt.compare, None);
    assert!(stage.reasons("a").contains(&"fetch_owed"));
    stage.run.world.pds[0].down = false;
    stage.pass(60);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}
