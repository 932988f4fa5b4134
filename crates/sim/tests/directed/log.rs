//! Tests which log entries account states and identities cause, and in which order.

use gapless_core::ledger::Account;
use gapless_sim::script::Stage;
use gapless_sim::world::{Body, Fault, Place};
use gapless_store::table::log::{LogKind, SourceEvent};

/// The kinds of log rows of `a` that follow the first `before` ones.
fn log_since(stage: &Stage, before: usize) -> Vec<LogKind> {
    let rows = stage.log("a").into_iter().skip(before);
    rows.map(|row| row.kind).collect()
}

/// The host of `a` tells of an account state, whatever it has.
fn tell_account(stage: &mut Stage, state: Account) {
    let frame = stage.run.world.frame(0, Body::Account(state));
    stage.run.world.pds[0].log.push(frame);
}

#[test]
fn a_new_account_state_is_logged_and_what_is_shown_again_with_its_head() {
    let mut stage = Stage::one_host();
    let before = stage.log("a").len();
    tell_account(&mut stage, Account::Deactivated);
    tell_account(&mut stage, Account::Deactivated);
    stage.deliver();
    tell_account(&mut stage, Account::Takendown);
    stage.deliver();
    tell_account(&mut stage, Account::Active);
    stage.deliver();
    assert_eq!(
        log_since(&stage, before),
        [
            LogKind::Account(Account::Deactivated),
            LogKind::Account(Account::Takendown),
            LogKind::Account(Account::Active),
            LogKind::Repair,
        ]
    );
}

#[test]
fn an_account_state_that_an_answer_of_the_host_tells_is_logged() {
    let mut stage = Stage::one_host();
    let before = stage.log("a").len();
    stage.lose(Place::Pds(0));
    stage.run.world.set_account(0, Account::Suspended);
    stage.pass(1_000);
    stage.sweep();
    stage.work();
    assert_eq!(
        log_since(&stage, before),
        [LogKind::Account(Account::Suspended)]
    );
}

#[test]
fn a_new_host_and_a_new_key_are_logged() {
    let mut stage = Stage::two_hosts();
    let (id, before) = (stage.id("a"), stage.log("a").len());
    stage.run.world.change_key(0);
    stage.run.mirror.resolve_now(&mut stage.run.world, id);
    assert_eq!(log_since(&stage, before), [LogKind::Identity]);
    stage.run.world.migrate(0, 1);
    stage.run.mirror.resolve_now(&mut stage.run.world, id);
    // The new host has not said yet what the account is: the log does not either.
    assert_eq!(
        log_since(&stage, before),
        [LogKind::Identity, LogKind::Identity]
    );
    stage.run.mirror.resolve_now(&mut stage.run.world, id);
    assert_eq!(log_since(&stage, before).len(), 2, "the same document");
}

#[test]
fn a_new_host_shows_what_the_old_host_hid() {
    let mut stage = Stage::two_hosts();
    tell_account(&mut stage, Account::Deactivated);
    stage.deliver();
    let before = stage.log("a").len();
    stage.run.world.migrate(0, 1);
    let id = stage.id("a");
    stage.run.mirror.resolve_now(&mut stage.run.world, id);
    assert_eq!(
        log_since(&stage, before),
        [
            LogKind::Account(Account::Unknown),
            LogKind::Repair,
            LogKind::Identity,
        ]
    );
}

#[test]
fn frames_that_waited_for_a_key_follow_the_entry_that_tells_of_it() {
    let mut stage = Stage::one_host();
    let before = stage.log("a").len();
    // The host signs the head once more, with the new key.
    stage.run.world.change_key(0);
    stage.deliver();
    assert_eq!(stage.parked("a"), 1, "the key is not known");
    stage.work();
    assert!(stage.up_to_date("a"));
    assert_eq!(
        log_since(&stage, before),
        [LogKind::Identity, LogKind::Live]
    );
}

#[test]
fn frames_that_waited_while_hidden_follow_the_entry_that_shows_the_repository() {
    let mut stage = Stage::one_host();
    let before = stage.log("a").len();
    tell_account(&mut stage, Account::Deactivated);
    stage.commit("a");
    stage.deliver();
    assert_eq!(stage.parked("a"), 1, "it is hidden");
    tell_account(&mut stage, Account::Active);
    stage.deliver();
    assert!(stage.up_to_date("a"));
    assert_eq!(
        log_since(&stage, before),
        [
            LogKind::Account(Account::Deactivated),
            LogKind::Account(Account::Active),
            LogKind::Repair,
            LogKind::Live,
        ]
    );
}

#[test]
fn entries_name_the_events_that_they_come_from() {
    let mut stage = Stage::one_host();
    let before = stage.log("a").len();
    let upstream = stage.upstream(Place::Pds(0));
    let first = stage.run.world.pds[0].log.seq;
    stage.commit("a");
    tell_account(&mut stage, Account::Deactivated);
    stage.commit("a");
    tell_account(&mut stage, Account::Active);
    stage.deliver();
    assert_eq!(
        log_since(&stage, before),
        [
            LogKind::Live,
            LogKind::Account(Account::Deactivated),
            LogKind::Account(Account::Active),
            LogKind::Repair,
            LogKind::Live,
        ]
    );
    let source = |after: u64| {
        let seq = first + after;
        Some(SourceEvent { upstream, seq })
    };
    let rows = stage.log("a").into_iter().skip(before);
    let sources: Vec<_> = rows.map(|row| row.source).collect();
    // The last commit waited, and keeps its own number.
    let events = [1, 2, 4, 4, 3];
    assert_eq!(sources, events.map(source));
    stage.force(Fault::TooBig);
    stage.commit("a");
    stage.deliver();
    stage.work();
    let last = stage.log("a").pop().expect("it was fetched");
    assert_eq!((last.kind, last.source), (LogKind::Repair, None));
}
