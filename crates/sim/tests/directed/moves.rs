//! Tests moves that the mirror learns of late: from a listing, or from a directory that lags.

use gapless_core::ledger::Account;
use gapless_sim::script::Stage;
use gapless_sim::world::{Body, Fault, Place};

const FIRST: Place = Place::Pds(0);
const SECOND: Place = Place::Pds(1);

/// An account moves from the first host to the second. The old host takes one more write
/// and keeps the account, and nothing that the new host sends is read.
fn move_unheard(stage: &mut Stage, name: &str) {
    stage.lose(SECOND);
    stage.force(Fault::LateWrite);
    let owner = stage.owner(name);
    stage.run.world.migrate(owner, 1);
    keep_at_the_old_host(stage, name);
    stage.run.world.forget(SECOND, 0);
    stage.deliver();
}

/// The first host serves an account that has left as if nothing had happened.
fn keep_at_the_old_host(stage: &mut Stage, name: &str) {
    let owner = stage.owner(name);
    let old = &mut stage.run.world.pds[0];
    old.repos.get_mut(&owner).expect("still there").account = Account::Active;
    old.log
        .entries
        .retain(|entry| !matches!(entry.frame.body, Body::Account(_)));
}

#[test]
fn an_unannounced_move_is_found_within_a_day_by_the_new_hosts_listing() {
    let mut stage = Stage::two_hosts();
    // Only the old host's last write reaches us.
    move_unheard(&mut stage, "a");
    for _ in 0..100 {
        stage.pass(900);
        stage.settle();
    }
    assert!(
        stage.complete("a") && stage.up_to_date("a"),
        "{:?}",
        stage.reasons("a")
    );
}

#[test]
fn an_unannounced_move_is_found_although_the_old_host_is_asked_first() {
    // `d` comes last on the second host, so the page of the first one is read before.
    let mut stage = Stage::new(2, &[1, 1, 1, 0]);
    stage.follow(FIRST);
    stage.follow(SECOND);
    for name in ["a", "b", "c", "d"] {
        stage.commit(name);
    }
    stage.settle();
    assert!(stage.complete("d"));
    move_unheard(&mut stage, "d");
    for _ in 0..100 {
        stage.pass(900);
        stage.settle();
    }
    assert!(
        stage.complete("d") && stage.up_to_date("d"),
        "{:?}",
        stage.reasons("d")
    );
}

#[test]
fn r8_that_another_host_has_closed_the_account_reports_no_move() {
    let mut stage = Stage::two_hosts();
    stage.force(Fault::DirectoryStale);
    stage.run.world.migrate(0, 1);
    keep_at_the_old_host(&mut stage, "a");
    stage.settle();
    assert!(
        stage.complete("a"),
        "by the document that the directory has"
    );
    stage.run.world.owners[0].lags = false;
    stage.run.world.set_account(0, Account::Deleted);
    stage.deliver();
    assert!(stage.complete("a"), "{:?}", stage.reasons("a"));
    // Anything else that the new host sends is a hint.
    stage.run.world.emit(1, 0, Body::Identity);
    stage.deliver();
    assert_eq!(stage.reasons("a"), ["resolve_owed"]);
    stage.settle();
    assert_eq!(stage.repo("a").account, Account::Deleted);
}
