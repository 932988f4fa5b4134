//! Tests repositories that a relay calls deleted and their hosts have not confirmed as deleted.

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::account;
use gapless_core::ledger::deletion::{self, AwaitedEvidence, Residents};
use gapless_core::ledger::event::Event;
use gapless_core::ledger::fetch::HeadAnswer;
use gapless_core::ledger::*;

use crate::scenario::*;

const GRACE: Duration = Duration::from_secs(3600);

/// Behind a relay alone; its host has it.
fn behind_a_relay() -> Scenario {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now().tick;
    scenario.covers.remove(now, PDS);
    scenario
}

/// And the relay calls it deleted, and its host does not have it.
fn denied() -> Scenario {
    let mut scenario = behind_a_relay();
    scenario.event(RELAY, &Event::Account(Account::Deleted));
    scenario.resolved(HOST, 0);
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::State(Account::NotFound));
    scenario
}

/// Others that are known on the host: so many that it has, since that tick, and so many
/// that it has not.
fn beside(found: usize, since: Tick, missing: usize) -> Residents {
    let mut repo = Repo::new(Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID"));
    (repo.account, repo.host_since) = (Account::Active, since);
    let mut residents = Residents::default();
    for number in 0..found + missing {
        residents.add(&repo, Tick(u64::MAX), number < found);
    }
    residents.counted()
}

/// A sweep of a host begins and ends, and the repository is not found.
fn missed(scenario: &mut Scenario, host: HostId, residents: &Residents) -> bool {
    let began = scenario.now().tick;
    missed_since(scenario, host, began, residents)
}

fn missed_since(scenario: &mut Scenario, host: HostId, began: Tick, residents: &Residents) -> bool {
    let now = scenario.now();
    let row = scenario.host.clone();
    deletion::sweep_missed(now, &mut scenario.repo, (host, &row), began, residents)
}

fn purge_due(scenario: &mut Scenario) -> bool {
    scenario.pass(GRACE);
    let now = scenario.now();
    account::is_purge_due(now, &scenario.repo, GRACE)
}

#[test]
fn a_relays_word_its_hosts_answer_and_a_whole_sweep_together_are_a_deletion() {
    let mut scenario = behind_a_relay();
    scenario.event(RELAY, &Event::Account(Account::Deleted));
    assert_eq!(
        deletion::awaited_evidence(&scenario.repo),
        Some(AwaitedEvidence::Answer)
    );
    scenario.resolved(HOST, 0);
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::State(Account::NotFound));
    assert_eq!(scenario.repo.account, Account::Deleted);
    assert_eq!(
        deletion::awaited_evidence(&scenario.repo),
        Some(AwaitedEvidence::Sweep)
    );
    assert!(
        scenario.owes_nothing() && scenario.notices.len() == 1,
        "no alarm"
    );
    assert!(
        !purge_due(&mut scenario),
        "its host may have lost everything"
    );
    assert!(missed(&mut scenario, HOST, &beside(1, Tick(0), 0)));
    assert_eq!(deletion::awaited_evidence(&scenario.repo), None);
    assert!(purge_due(&mut scenario), "after the grace");
    // And it may come back.
    scenario.event(RELAY, &Event::Account(Account::Active));
    assert!(!purge_due(&mut scenario));
}

#[test]
fn whichever_of_the_three_is_missing_nothing_is_purged() {
    let others = beside(100, Tick(0), 0);
    // No source has called it deleted.
    let mut scenario = behind_a_relay();
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::State(Account::NotFound));
    assert_eq!(scenario.repo.account, Account::NotFound);
    assert!(!missed(&mut scenario, HOST, &others) && !purge_due(&mut scenario));
    // Its host was not asked, or before that.
    let mut scenario = behind_a_relay();
    let note = scenario.note();
    scenario.event(RELAY, &Event::Account(Account::Deleted));
    assert!(!missed(&mut scenario, HOST, &others) && !purge_due(&mut scenario));
    scenario.told(&note, HeadAnswer::State(Account::NotFound));
    assert_eq!(
        deletion::awaited_evidence(&scenario.repo),
        Some(AwaitedEvidence::Answer)
    );
    assert!(!missed(&mut scenario, HOST, &others) && !purge_due(&mut scenario));
    // The sweep is another host's, or began before the relay's word.
    let mut scenario = behind_a_relay();
    let before = scenario.now().tick;
    scenario.event(RELAY, &Event::Account(Account::Deleted));
    scenario.resolved(HOST, 0);
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::State(Account::NotFound));
    assert!(!missed(&mut scenario, OTHER_HOST, &others));
    assert!(!missed_since(&mut scenario, HOST, before, &others));
    assert!(!purge_due(&mut scenario));
    assert!(missed(&mut scenario, HOST, &others));
}

#[test]
fn a_host_that_may_have_been_wiped_confirms_nothing() {
    let seen = denied().repo.swept.expect("it was compared").tick;
    let later = Tick(seen.0 + 1);
    for (what, found, since, missing, confirms) in [
        ("it has nobody", 0, seen, 0, false),
        ("it has one who lived beside it", 1, seen, 0, true),
        ("it has one who came later", 1, later, 0, false),
        ("it has a thousand who came later", 1000, later, 0, false),
        ("it lacks one of few", 9, seen, 1, false),
        ("it lacks one of ten", 10, seen, 1, true),
        ("it lacks one of many", 900, seen, 9, true),
        ("it lacks more than a hundredth", 900, seen, 10, false),
        ("it lacks ten of very many", 1000, seen, 10, true),
    ] {
        let mut scenario = denied();
        let residents = beside(found, since, missing);
        assert_eq!(missed(&mut scenario, HOST, &residents), confirms, "{what}");
        assert_eq!(purge_due(&mut scenario), confirms, "{what}");
    }
    // Whom it lost before, and whose loss an operator confirmed, it still lacks.
    let mut lost = Repo::new(Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID"));
    lost.account = Account::NotFound;
    let mut residents = beside(9, seen, 0);
    residents.add(&lost, Tick(u64::MAX), false);
    let mut scenario = denied();
    assert!(!missed(&mut scenario, HOST, &residents.counted()));
    // And one that is doubted says nothing at all.
    let mut scenario = denied();
    scenario.host.hiding_suspended = true;
    assert!(!missed(&mut scenario, HOST, &beside(1000, seen, 0)));
    assert!(!purge_due(&mut scenario));
}

#[test]
fn who_came_after_the_sweep_began_and_who_is_hidden_is_not_counted() {
    let mut scenario = denied();
    let mut repo = scenario.repo.clone();
    let began = scenario.now().tick;
    for (account, since) in [
        (Account::Active, began),
        (Account::Deactivated, Tick(0)),
        (Account::Deleted, Tick(0)),
        (Account::Unknown, Tick(0)),
    ] {
        (repo.account, repo.host_since) = (account, since);
        let mut residents = Residents::default();
        residents.add(&repo, began, true);
        let residents = residents.counted();
        assert!(!missed(&mut scenario, HOST, &residents), "{account:?}");
    }
}

#[test]
fn a_directory_that_takes_its_word_back_leaves_no_hearsay() {
    let mut scenario = behind_a_relay();
    let asked = scenario.now().tick;
    let now = scenario.now();
    let gone = identity::Document {
        key: None,
        handle: None,
        host: None,
        version: 2,
        tombstoned: true,
    };
    let covers = scenario.covers.clone();
    identity::resolved(
        now,
        &mut scenario.repo,
        &covers,
        asked,
        &gone,
        &mut Vec::new(),
    );
    scenario.event(RELAY, &Event::Account(Account::Deleted));
    scenario.resolved(HOST, 3);
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::State(Account::NotFound));
    assert!(!missed(&mut scenario, HOST, &beside(1000, Tick(0), 0)));
    assert!(!purge_due(&mut scenario));
}
