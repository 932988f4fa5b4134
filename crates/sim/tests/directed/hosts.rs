//! Tests hosts on the simulator: migrations, misrouted events, hosts that are behind, covers.

use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::settings::OnRollback;
use gapless_core::ledger::{DebtReason, Held, Notice};
use gapless_sim::script::Stage;
use gapless_sim::world::{Fault, Place};

const FIRST: Place = Place::Pds(0);
const SECOND: Place = Place::Pds(1);

#[test]
fn t12_t15_a_migration_during_a_fetch_begins_anew_under_the_new_host() {
    let mut stage = Stage::two_hosts();
    stage.force(Fault::TooBig);
    stage.commit("a");
    stage.deliver();
    stage.work_until("a", "fetched");
    stage.run.world.migrate(0, 1);
    stage.deliver();
    assert!(!stage.complete("a"));
    stage.finish_work();
    assert!(!stage.complete("a"), "{:?}", stage.reasons("a"));
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    let home = stage
        .repo("a")
        .host
        .map(|host| stage.run.mirror.pds_of(host));
    assert_eq!(home, Some(1));
}

#[test]
fn t13_there_and_back_with_commits_in_between() {
    let mut stage = Stage::two_hosts();
    stage.run.world.migrate(0, 1);
    stage.commit("a");
    stage.run.world.pds[0].repos.remove(&0);
    stage.run.world.migrate(0, 0);
    stage.commit("a");
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t14_late_events_of_the_old_host_are_not_applied() {
    let mut stage = Stage::two_hosts();
    stage.run.world.migrate(0, 1);
    stage.settle();
    assert!(stage.complete("a"));
    let held = stage.repo("a").held;
    // The old host goes on writing, with the key it had.
    stage.run.world.pds[0]
        .repos
        .get_mut(&0)
        .expect("still there")
        .account = gapless_core::ledger::Account::Active;
    assert!(stage.run.world.write_at(0, 0));
    stage.deliver();
    assert_eq!(stage.repo("a").held, held);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t61_a_directory_that_still_answers_the_old_document() {
    let mut stage = Stage::two_hosts();
    stage.force(Fault::DirectoryStale);
    stage.run.world.migrate(0, 1);
    stage.deliver();
    stage.work();
    stage.run.world.owners[0].lags = false;
    stage.commit("a");
    stage.deliver();
    assert!(!stage.complete("a") || stage.up_to_date("a"));
    stage.pass(700);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn r7_an_older_document_moves_nothing_back() {
    let mut stage = Stage::two_hosts();
    stage.run.world.migrate(0, 1);
    stage.settle();
    let host = stage.repo("a").host;
    stage.run.world.owners[0].lags = true;
    let id = stage.id("a");
    stage.run.mirror.resolve_now(&mut stage.run.world, id);
    assert_eq!(stage.repo("a").host, host);
    assert!(stage.complete("a"));
}

#[test]
fn t56_a_host_that_lists_repositories_of_others_keeps_none_incomplete() {
    let mut stage = Stage::two_hosts();
    // The old host keeps the account as if nothing had happened.
    stage.run.world.migrate(0, 1);
    stage.run.world.pds[0]
        .repos
        .get_mut(&0)
        .expect("still there")
        .account = gapless_core::ledger::Account::Active;
    stage.commit("a");
    stage.settle();
    assert!(stage.complete("a"));
    for _ in 0..40 {
        stage.pass(60);
        stage.sweep();
        stage.work();
        assert!(stage.complete("a"), "{:?}", stage.reasons("a"));
    }
}

#[test]
fn t18_listed_elsewhere_with_something_newer_is_a_question_to_the_directory() {
    let mut stage = Stage::two_hosts();
    // It moved, and no event of that has ever reached us.
    stage.lose_for_long(SECOND);
    stage.run.world.migrate(0, 1);
    stage.run.world.forget(FIRST, 0);
    stage.run.world.pds[0].log.restart(0);
    stage.commit("a");
    stage.run.world.forget(SECOND, 0);
    stage.settle();
    stage.sweep();
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t45_a_commit_that_the_host_lost_is_given_up_after_two_sweeps() {
    let mut stage = Stage::one_host();
    stage.run.world.phantom(0);
    stage.deliver();
    assert!(!stage.up_to_date("a"));
    stage.pass(1_000);
    stage.sweep();
    assert!(
        stage.reasons("a").contains(&"host_behind"),
        "{:?}",
        stage.reasons("a")
    );
    assert!(!stage.up_to_date("a"), "never at the first word");
    stage.pass(1_000);
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.repo("a").lineage, 1);
    // What was given up does not come back.
    let entries = stage.run.world.pds[0].log.entries.clone();
    stage.run.world.pds[0]
        .log
        .push(entries.last().expect("sent").frame.clone());
    stage.deliver();
    assert!(stage.up_to_date("a"));
}

#[test]
fn t45_written_again_the_host_goes_on_in_its_own_line() {
    let mut stage = Stage::one_host();
    stage.run.world.phantom(0);
    stage.deliver();
    stage.commit("a");
    stage.deliver();
    assert!(!stage.complete("a"), "it does not chain onto what was lost");
    stage.work();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t23_a_host_restored_from_a_backup_rolls_nothing_back_when_told_to_hold() {
    let mut stage = Stage::one_host();
    stage.run.mirror.rules.settings.on_rollback = OnRollback::Hold;
    for _ in 0..3 {
        stage.commit("a");
        stage.commit("b");
    }
    stage.deliver();
    let held = stage.repo("a").held;
    stage.run.world.roll_back(0, 2);
    stage.run.world.roll_back(1, 2);
    for _ in 0..4 {
        stage.pass(1_000);
        stage.sweep();
        stage.work();
    }
    assert_eq!(stage.repo("a").held, held);
    assert!(stage.reasons("a").contains(&"host_behind"));
    // Until it goes on by itself, or an operator accepts.
    stage.commit("b");
    stage.settle();
    assert!(stage.complete("b") && stage.up_to_date("b"));
    let id = stage.id("a");
    stage.run.mirror.accept_rollback(&stage.run.world, id);
    stage.work();
    assert!(
        stage.complete("a") && stage.up_to_date("a"),
        "{:?}",
        stage.reasons("a")
    );
}

/// The host of `a` lost more commits than one batch undoes, and an operator accepts
/// its state. The first batch of the adoption is written.
fn large_adoption_under_way() -> Stage {
    let mut stage = Stage::one_host();
    stage.run.mirror.rules.settings.on_rollback = OnRollback::Hold;
    for _ in 0..20 {
        stage.commit("a");
    }
    stage.deliver();
    stage.run.world.roll_back(0, 20);
    stage.pass(1_000);
    stage.sweep();
    let id = stage.id("a");
    stage.run.mirror.accept_rollback(&stage.run.world, id);
    stage.work_until("a", "write on");
    stage
}

#[test]
fn r10b_a_large_adoption_is_no_state_until_its_last_batch() {
    let mut stage = large_adoption_under_way();
    let repo = stage.repo("a");
    let target = stage.truth("a").head;
    assert_eq!(repo.held, Held::Applying { target, from: None });
    assert_eq!(repo.lineage, 1);
    assert_eq!(
        repo.debt.fetch.map(|owed| owed.why),
        Some(DebtReason::Interrupted),
        "a crash now would leave it to a later fetch"
    );
    let fetches = stage.fetches("a");
    stage.finish_work();
    assert!(stage.up_to_date("a"));
    assert!(stage.complete("a"), "{:?}", stage.reasons("a"));
    assert_eq!(stage.repo("a").lineage, 1);
    assert_eq!(stage.fetches("a"), fetches);
}

#[test]
fn r10b_a_large_adoption_that_a_crash_cuts_off_is_fetched_again() {
    let mut stage = large_adoption_under_way();
    stage.sync();
    stage.crash(0);
    assert!(stage.reasons("a").contains(&"applying"));
    stage.pass(60);
    stage.settle();
    assert!(stage.up_to_date("a"));
    assert!(stage.complete("a"), "{:?}", stage.reasons("a"));
    assert_eq!(stage.repo("a").lineage, 1);
}

#[test]
fn r10b_many_behind_at_once_are_no_accident() {
    let mut stage = Stage::new(1, &[0; 5]);
    stage.follow(FIRST);
    for name in ["a", "b", "c", "d", "e"] {
        stage.commit(name);
    }
    stage.settle();
    for name in ["a", "b", "c", "d", "e"] {
        stage.commit(name);
    }
    stage.deliver();
    let held = stage.repo("a").held;
    for owner in 0..5 {
        stage.run.world.roll_back(owner, 1);
    }
    for _ in 0..4 {
        stage.pass(1_000);
        stage.sweep();
        stage.work();
    }
    assert_eq!(stage.repo("a").held, held, "held, not adopted");
    assert!(stage.reasons("a").contains(&"host_behind"));
}

#[test]
fn t54_two_relays_and_the_host_each_with_its_own_epochs() {
    let mut stage = Stage::new(1, &[0, 0]);
    stage.run.world.add_relay();
    stage.run.world.add_relay();
    stage.follow(Place::Relay(0));
    stage.follow(Place::Relay(1));
    for _ in 0..3 {
        stage.commit("a");
        stage.settle();
    }
    assert!(
        stage.complete("a"),
        "{:?} {:?}",
        stage.reasons("a"),
        stage.repo("a")
    );
    let cover = stage.repo("a").cover;
    assert_eq!(cover, Some(stage.upstream(Place::Relay(0))));
    // The cover loses something; the other relay and its events do not heal it.
    stage.lose(Place::Relay(0));
    let frames = stage.run.world.relays[0].log.entries.len();
    stage.force(Fault::Omitted);
    stage.commit("a");
    stage.run.world.relay_rollback(0, frames);
    stage.run.world.relays[0].log.seq = 0;
    stage.read();
    stage.commit("b");
    stage.deliver();
    stage.pass(11);
    assert!(!stage.complete("a"));
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    // A host's own stream, once followed, speaks for it, and begins with nothing.
    stage.follow(FIRST);
    stage.connect();
    assert!(!stage.complete("a"));
    stage.settle();
    assert!(stage.complete("a"));
    assert_eq!(stage.repo("a").cover, Some(stage.upstream(FIRST)));
    // And when it is followed no longer, the relay has to show itself again.
    let id = stage.upstream(FIRST);
    stage.run.mirror.unfollow(id);
    assert!(!stage.complete("a"));
    stage.pass(900);
    stage.settle();
    assert!(stage.complete("a"));
}

#[test]
fn a_relay_that_skips_without_a_word_is_seen_at_the_next_connection() {
    let mut stage = Stage::relay();
    let place = Place::Relay(0);
    stage.lose(place);
    stage.commit("a");
    stage.connect_relays();
    stage.run.world.forget(place, 0);
    stage.commit("b");
    stage.deliver();
    assert!(!stage.complete("a"), "{:?}", stage.reasons("a"));
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn r8_s11_a_signed_newer_commit_on_a_wrong_host_is_a_gap() {
    let mut stage = Stage::two_hosts();
    stage.force(Fault::Omitted);
    stage.commit("a");
    let commit = std::sync::Arc::new(stage.truth("a"));
    let body = gapless_sim::world::Body::Commit {
        ops: commit.ops.clone(),
        commit,
        proved: true,
        too_big: false,
    };
    let frame = stage.run.world.frame(0, body);
    stage.run.world.pds[1].log.push(frame);
    stage.deliver();
    assert!(!stage.up_to_date("a"), "not applied from there");
    assert!(stage.reasons("a").contains(&"newer_commit_known"));
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

/// `a` lives on the second host, and no directory has said so yet. A commit of `a`
/// that came from the first host waits for the key.
fn unresolved_from_another_host() -> Stage {
    let mut stage = Stage::new(2, &[1]);
    stage.follow(FIRST);
    stage.follow(SECOND);
    stage.connect();
    stage.pass(6);
    stage.force(Fault::Omitted);
    stage.commit("a");
    let commit = std::sync::Arc::new(stage.truth("a"));
    let body = gapless_sim::world::Body::Commit {
        ops: commit.ops.clone(),
        commit,
        proved: true,
        too_big: false,
    };
    let frame = stage.run.world.frame(0, body);
    stage.run.world.pds[0].log.push(frame);
    stage.force(Fault::DirectoryFailure);
    stage.deliver();
    assert_eq!(stage.repo("a").host, None);
    assert_eq!(stage.parked("a"), 1);
    stage
}

#[test]
fn r7_a_frame_of_another_host_does_not_outlast_the_answer_of_the_directory() {
    let mut stage = unresolved_from_another_host();
    let (rev, why) = (stage.truth("a").head.rev, DropReason::OtherHost);
    stage.resolve("a");
    assert_eq!(stage.parked("a"), 0);
    let dropped = Notice::ParkedDropped { rev, why };
    assert!(stage.run.mirror.notices.contains(&dropped));
    assert_eq!(stage.repo("a").first_rev_since_reset, None);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn r7_nor_is_it_applied_once_its_stream_is_followed_no_longer() {
    let mut stage = unresolved_from_another_host();
    let id = stage.upstream(FIRST);
    stage.run.mirror.unfollow(id);
    stage.resolve("a");
    assert_eq!(stage.repo("a").held, Held::Nothing);
    assert_eq!(stage.parked("a"), 0);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn r2_an_event_from_another_source_is_applied_and_raises_nothing() {
    let mut stage = Stage::one_host();
    stage.run.world.add_relay();
    let relay = stage.follow(Place::Relay(0));
    stage.connect();
    stage.pass(6);
    let marker = stage.repo("a").marker;
    stage.lose(FIRST);
    stage.commit("a");
    stage.connect_relays();
    while stage.run.mirror.read(&mut stage.run.world, relay) {}
    stage.process();
    assert!(stage.up_to_date("a"), "it chains, whoever brings it");
    assert_eq!(stage.repo("a").marker, marker);
    stage.deliver();
    assert!(stage.complete("a"));
}
