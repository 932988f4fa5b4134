//! What only a relay calls deleted.

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::account;
use gapless_core::ledger::deletion::{self, AwaitedEvidence, Residents};
use gapless_core::ledger::event::Event;
use gapless_core::ledger::fetch::HeadAnswer;
use gapless_core::ledger::*;

use crate::desk::*;

const GRACE: Duration = Duration::from_secs(3600);

/// Behind a relay alone; its host has it.
fn behind_a_relay() -> Desk {
    let mut desk = Desk::holding(5);
    let now = desk.now().tick;
    desk.covers.remove(now, PDS);
    desk
}

/// And the relay calls it deleted, and its host does not have it.
fn denied() -> Desk {
    let mut desk = behind_a_relay();
    desk.event(RELAY, &Event::Account(Account::Deleted));
    desk.resolved(HOST, 0);
    let note = desk.note();
    desk.told(&note, HeadAnswer::State(Account::NotFound));
    desk
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
fn missed(desk: &mut Desk, host: HostId, residents: &Residents) -> bool {
    let began = desk.now().tick;
    missed_since(desk, host, began, residents)
}

fn missed_since(desk: &mut Desk, host: HostId, began: Tick, residents: &Residents) -> bool {
    let now = desk.now();
    let row = desk.host.clone();
    deletion::sweep_missed(now, &mut desk.repo, (host, &row), began, residents)
}

fn purge_due(desk: &mut Desk) -> bool {
    desk.pass(GRACE);
    account::is_purge_due(desk.time, &desk.repo, GRACE)
}

#[test]
fn a_relays_word_its_hosts_answer_and_a_whole_sweep_together_are_a_deletion() {
    let mut desk = behind_a_relay();
    desk.event(RELAY, &Event::Account(Account::Deleted));
    assert_eq!(
        deletion::awaited_evidence(&desk.repo),
        Some(AwaitedEvidence::Answer)
    );
    desk.resolved(HOST, 0);
    let note = desk.note();
    desk.told(&note, HeadAnswer::State(Account::NotFound));
    assert_eq!(desk.repo.account, Account::Deleted);
    assert_eq!(
        deletion::awaited_evidence(&desk.repo),
        Some(AwaitedEvidence::Sweep)
    );
    assert!(desk.owes_nothing() && desk.notices.len() == 1, "no alarm");
    assert!(!purge_due(&mut desk), "its host may have lost everything");
    assert!(missed(&mut desk, HOST, &beside(1, Tick(0), 0)));
    assert_eq!(deletion::awaited_evidence(&desk.repo), None);
    assert!(purge_due(&mut desk), "after the grace");
    // And it may come back.
    desk.event(RELAY, &Event::Account(Account::Active));
    assert!(!purge_due(&mut desk));
}

#[test]
fn whichever_of_the_three_is_missing_nothing_is_purged() {
    let others = beside(100, Tick(0), 0);
    // Nobody has called it deleted.
    let mut desk = behind_a_relay();
    let note = desk.note();
    desk.told(&note, HeadAnswer::State(Account::NotFound));
    assert_eq!(desk.repo.account, Account::NotFound);
    assert!(!missed(&mut desk, HOST, &others) && !purge_due(&mut desk));
    // Its host was not asked, or before that.
    let mut desk = behind_a_relay();
    let note = desk.note();
    desk.event(RELAY, &Event::Account(Account::Deleted));
    assert!(!missed(&mut desk, HOST, &others) && !purge_due(&mut desk));
    desk.told(&note, HeadAnswer::State(Account::NotFound));
    assert_eq!(
        deletion::awaited_evidence(&desk.repo),
        Some(AwaitedEvidence::Answer)
    );
    assert!(!missed(&mut desk, HOST, &others) && !purge_due(&mut desk));
    // The sweep is another host's, or began before the relay's word.
    let mut desk = behind_a_relay();
    let before = desk.now().tick;
    desk.event(RELAY, &Event::Account(Account::Deleted));
    desk.resolved(HOST, 0);
    let note = desk.note();
    desk.told(&note, HeadAnswer::State(Account::NotFound));
    assert!(!missed(&mut desk, OTHER_HOST, &others));
    assert!(!missed_since(&mut desk, HOST, before, &others));
    assert!(!purge_due(&mut desk));
    assert!(missed(&mut desk, HOST, &others));
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
        let mut desk = denied();
        let residents = beside(found, since, missing);
        assert_eq!(missed(&mut desk, HOST, &residents), confirms, "{what}");
        assert_eq!(purge_due(&mut desk), confirms, "{what}");
    }
    // Whom it lost before, and whose loss an operator confirmed, it still lacks.
    let mut lost = Repo::new(Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID"));
    lost.account = Account::NotFound;
    let mut residents = beside(9, seen, 0);
    residents.add(&lost, Tick(u64::MAX), false);
    let mut desk = denied();
    assert!(!missed(&mut desk, HOST, &residents.counted()));
    // And one that is doubted says nothing at all.
    let mut desk = denied();
    desk.host.hiding_suspended = true;
    assert!(!missed(&mut desk, HOST, &beside(1000, seen, 0)));
    assert!(!purge_due(&mut desk));
}

#[test]
fn who_came_after_the_sweep_began_and_who_is_hidden_is_not_counted() {
    let mut desk = denied();
    let mut repo = desk.repo.clone();
    let began = desk.now().tick;
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
        assert!(!missed(&mut desk, HOST, &residents), "{account:?}");
    }
}

#[test]
fn a_directory_that_takes_its_word_back_leaves_no_hearsay() {
    let mut desk = behind_a_relay();
    let asked = desk.now().tick;
    let now = desk.now();
    let gone = identity::Document {
        key: None,
        host: None,
        version: 2,
        tombstoned: true,
    };
    let covers = desk.covers.clone();
    identity::resolved(now, &mut desk.repo, &covers, asked, &gone, &mut Vec::new());
    desk.event(RELAY, &Event::Account(Account::Deleted));
    desk.resolved(HOST, 3);
    let note = desk.note();
    desk.told(&note, HeadAnswer::State(Account::NotFound));
    assert!(!missed(&mut desk, HOST, &beside(1000, Tick(0), 0)));
    assert!(!purge_due(&mut desk));
}
