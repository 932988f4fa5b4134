//! Tests account states on the simulator: repositories that are hidden, shown, purged, lost and
//! found again.

use std::time::Duration;

use gapless_core::ledger::Account;
use gapless_sim::script::Stage;
use gapless_sim::world::{Fault, Place};

const PDS: Place = Place::Pds(0);

#[test]
fn t27_t43_active_again_is_compared_before_it_is_complete() {
    let mut stage = Stage::one_host();
    for state in [Account::Deactivated, Account::Suspended, Account::Takendown] {
        stage.run.world.set_account(0, state);
        stage.deliver();
        assert!(stage.reasons("a").contains(&"inactive"));
        stage.run.world.set_account(0, Account::Active);
        stage.deliver();
        assert!(!stage.complete("a"), "T43");
        assert!(stage.repo("a").marker.is_none());
        assert!(stage.reasons("a").contains(&"compare_owed"));
        stage.work();
        assert!(stage.complete("a"));
    }
}

#[test]
fn an_answer_asked_for_before_it_was_hidden_does_not_show_it() {
    let mut stage = Stage::one_host();
    stage.force(Fault::Garbage);
    stage.commit("a");
    stage.deliver();
    stage.work_until("a", "heard");
    stage.run.world.set_account(0, Account::Takendown);
    stage.deliver();
    stage.step_work("a");
    assert_eq!(stage.repo("a").account, Account::Takendown);
    assert!(!stage.complete("a"));
    stage.settle();
    assert_eq!(stage.repo("a").account, Account::Takendown);
}

#[test]
fn t40_t57_lost_account_events_are_found_by_the_sweep_in_both_directions() {
    let mut stage = Stage::one_host();
    stage.force(Fault::AccountLost);
    stage.run.world.set_account(0, Account::Deactivated);
    stage.sweep();
    stage.work();
    assert_eq!(stage.repo("a").account, Account::Deactivated);
    stage.force(Fault::AccountLost);
    stage.run.world.set_account(0, Account::Active);
    stage.pass(900);
    stage.sweep();
    stage.work();
    assert!(stage.complete("a"), "T57: {:?}", stage.reasons("a"));
}

#[test]
fn t40_a_deleted_account_is_missing_from_the_listing() {
    let mut stage = Stage::one_host();
    stage.force(Fault::AccountLost);
    stage.run.world.set_account(0, Account::Deleted);
    stage.sweep();
    stage.work();
    assert_eq!(stage.repo("a").account, Account::Deleted);
    assert!(stage.up_to_date("a"), "hidden, and still there");
    stage.pass(3_601);
    assert_eq!(stage.run.mirror.purge(&stage.run.world).len(), 1);
    assert!(stage.run.mirror.book.records(stage.id("a")).is_empty());
}

#[test]
fn t53_purged_and_then_active_again_with_the_same_head() {
    let mut stage = Stage::one_host();
    stage.run.world.set_account(0, Account::Deleted);
    stage.deliver();
    stage.work();
    stage.pass(3_601);
    stage.run.mirror.purge(&stage.run.world);
    assert!(stage.reasons("a").contains(&"no_snapshot"));
    stage.run.world.set_account(0, Account::Active);
    stage.deliver();
    assert!(!stage.complete("a"));
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn commits_that_come_while_inactive_are_not_applied_and_not_forgotten() {
    let mut stage = Stage::one_host();
    stage.run.world.set_account(0, Account::Deactivated);
    stage.deliver();
    let held = stage.repo("a").held;
    // The state comes out of order: the commit was before it.
    stage.run.world.pds[0]
        .repos
        .get_mut(&0)
        .expect("there")
        .account = Account::Active;
    stage.commit("a");
    stage.deliver();
    assert_eq!(stage.repo("a").held, held);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn t28_every_state_that_forbids_a_fetch_is_a_state_and_no_failure() {
    for state in [
        Account::Deactivated,
        Account::Suspended,
        Account::Takendown,
        Account::Deleted,
    ] {
        let mut stage = Stage::one_host();
        stage.force(Fault::TooBig);
        stage.commit("a");
        stage.deliver();
        stage.work_until("a", "fetch ");
        stage.force(Fault::AccountLost);
        stage.run.world.set_account(0, state);
        stage.finish_work();
        assert_eq!(stage.repo("a").account, state);
        let debt = stage.repo("a").debt;
        let retried = debt.compare.or(debt.fetch);
        assert_eq!(retried, None, "only where it lives is asked");
        stage.work();
        assert!(stage.repo("a").debt.is_empty(), "nothing to retry");
    }
}

#[test]
fn t28_a_repository_that_is_not_found_is_hidden_and_never_purged() {
    let mut stage = Stage::one_host();
    stage.run.world.set_vanished(0, true);
    stage.sweep();
    stage.work();
    assert_eq!(stage.repo("a").account, Account::NotFound);
    stage.pass(1_000_000);
    assert!(stage.run.mirror.purge(&stage.run.world).is_empty());
    stage.run.world.set_vanished(0, false);
    stage.settle();
    stage.sweep();
    stage.work();
    assert!(stage.complete("a"));
}

#[test]
fn t52_a_wiped_host_does_not_wipe_its_mirror() {
    let mut stage = Stage::new(1, &[0; 12]);
    stage.follow(PDS);
    stage.settle();
    assert!(
        stage.complete("a") && stage.complete("l"),
        "{:?} {:?}",
        stage.reasons("a"),
        stage.reasons("l")
    );
    stage.run.world.wipe(0);
    stage.deliver();
    stage.pass(11);
    assert!(
        !stage.complete("a"),
        "another numbering, and nothing is known"
    );
    stage.sweep();
    stage.work();
    assert_eq!(stage.repo("a").account, Account::Active, "not hidden");
    assert!(!stage.complete("a"), "and not complete");
    let host = stage.repo("a").host.expect("it lives there");
    stage.run.mirror.confirm_loss(&stage.run.world, host);
    // Before any repository was asked about, the next sweep doubts nothing again.
    stage.pass(4_000);
    stage.sweep();
    stage.work();
    for name in ["a", "l"] {
        assert_eq!(stage.repo(name).account, Account::NotFound);
    }
}

/// Twelve accounts on one host, which loses them all for a while: hiding is suspended.
fn wiped_and_restored() -> Stage {
    let mut stage = Stage::new(1, &[0; 12]);
    stage.follow(PDS);
    stage.settle();
    stage.run.world.wipe(0);
    stage.deliver();
    stage.pass(11);
    stage.sweep();
    stage.work();
    assert!(hiding_suspended(&stage));
    stage.run.world.unwipe(0);
    stage
}

fn hiding_suspended(stage: &Stage) -> bool {
    let mut hosts = stage.run.mirror.book.hosts();
    hosts.any(|(_, host)| host.hiding_suspended)
}

#[test]
fn r12_a_host_that_lists_everything_again_is_not_doubted_any_more() {
    let mut stage = wiped_and_restored();
    stage.pass(900);
    stage.sweep();
    assert!(!hiding_suspended(&stage));
    stage.pass(3_600);
    stage.settle();
    assert!(stage.complete("a") && stage.complete("l"));
}

#[test]
fn r12_while_the_host_is_doubted_an_unreported_deletion_waits_for_an_operator() {
    let mut stage = wiped_and_restored();
    stage.force(Fault::Forgotten);
    stage.force(Fault::AccountLost);
    stage.run.world.set_account(0, Account::Deleted);
    for _ in 0..3 {
        stage.pass(3_600);
        stage.sweep();
        stage.settle();
        assert!(hiding_suspended(&stage));
        assert_eq!(stage.repo("a").account, Account::Active, "not hidden");
        assert!(!stage.complete("a"), "and not complete");
    }
    assert!(stage.complete("l"));
    let host = stage.repo("a").host.expect("it lived there");
    stage.run.mirror.confirm_loss(&stage.run.world, host);
    stage.pass(3_600);
    stage.sweep();
    stage.settle();
    assert!(!hiding_suspended(&stage));
    assert_eq!(stage.repo("a").account, Account::NotFound);
    assert!(stage.complete("l"));
}

#[test]
fn an_account_event_that_is_not_from_the_cover_is_a_question() {
    let mut stage = Stage::two_hosts();
    let body = gapless_sim::world::Body::Account(Account::Deleted);
    let frame = stage.run.world.frame(0, body);
    stage.run.world.pds[1].log.push(frame);
    stage.deliver();
    assert_eq!(stage.repo("a").account, Account::Active);
    stage.settle();
    assert!(stage.complete("a"));
}

/// `a`, `b` and `c` on one host, heard of by way of a relay; `a` is deleted, and its host
/// knows it no more, as the reference PDS does.
fn deleted_behind_a_relay() -> Stage {
    let mut stage = Stage::new(1, &[0, 0, 0]);
    stage.run.world.add_relay();
    stage.follow(Place::Relay(0));
    for name in ["a", "b", "c"] {
        stage.commit(name);
    }
    stage.settle();
    // Heads are asked for once more, after all three are known.
    stage.run.mirror.rules.settings.confirm_every = Duration::from_secs(1);
    stage.pass(60);
    stage.sweep();
    stage.settle();
    assert!(stage.complete("a") && stage.complete("b") && stage.complete("c"));
    stage.force(Fault::Forgotten);
    stage.run.world.set_account(0, Account::Deleted);
    stage.settle();
    assert_eq!(stage.repo("a").account, Account::Deleted);
    assert!(stage.repo("a").hearsay.is_some_and(|word| word.denied));
    stage
}

#[test]
fn deleted_behind_a_relay_is_purged_once_its_host_shows_that_it_has_the_others() {
    let mut stage = deleted_behind_a_relay();
    stage.pass(3_601);
    assert!(stage.run.mirror.purge(&stage.run.world).is_empty());
    stage.sweep();
    stage.settle();
    assert!(stage.repo("a").deleted_at.is_some());
    stage.pass(3_601);
    assert_eq!(stage.run.mirror.purge(&stage.run.world).len(), 1);
}

#[test]
fn a_wiped_host_and_a_relay_that_is_wrong_purge_no_repository() {
    let mut stage = deleted_behind_a_relay();
    stage.run.world.wipe(0);
    for _ in 0..3 {
        stage.pass(3_601);
        stage.sweep();
        stage.settle();
        assert_eq!(stage.repo("a").account, Account::Deleted, "hidden");
        assert!(stage.run.mirror.purge(&stage.run.world).is_empty());
    }
    // Restored, it shows that it has all but this one.
    stage.run.world.unwipe(0);
    stage.pass(3_601);
    for _ in 0..2 {
        stage.settle();
        stage.pass(3_601);
        stage.sweep();
    }
    assert!(stage.repo("a").deleted_at.is_some());
}
