//! Tests races between two tasks of the mirror: a request that is cancelled by a move, the
//! stored places to look for a repository, a debt that is reloaded while it changes.

use std::path::PathBuf;
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::{Debt, DebtReason};
use gapless_harness::{PDS, World, condition, network};
use gapless_mirror::desk::RepoTurn;
use gapless_mirror::repair::reload;
use gapless_store::space::pretended;
use gapless_testnet::faults::Part;
use gapless_testnet::{Config as NetConfig, Fault, Place, Spec};

const FULL: &str = "nothing is written until there is room on the disk";
const LATER: Duration = Duration::from_secs(600);

fn listed(repos: usize, hosts: usize) -> NetConfig {
    NetConfig {
        did_web: false,
        ..network(repos, hosts)
    }
}

fn data(world: &World) -> PathBuf {
    world.folder.path().join("data")
}

/// A mirror of one repository alone, that lives on the first host.
async fn tracked() -> (World, Did) {
    let mut world = World::network(listed(8, 2)).await;
    let did = world.account(0, 0);
    world.name(&[&did]);
    world.begin().await;
    world.until_complete(&did).await;
    (world, did)
}

fn moves(world: &World, did: &Did) {
    let (to, import) = (Some(1), false);
    world.inject(Spec::new(Fault::Migrate { to, import }).of(did));
}

/// Owes a question, now or after a while.
fn owe(turn: &mut RepoTurn<'_>, wait: Duration) {
    let now = turn.services.clock.now();
    let repo = &mut turn.tx.as_mut().expect("it is known").repo;
    debt::owe(now, repo, DebtKind::Compare, DebtReason::Operator);
    repo.debt.attempts = 3;
    repo.debt.next_try = now.time.after(wait);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_called_off_by_a_move_that_is_refused_is_no_answer() {
    let mut world = World::settled(listed(8, 2)).await;
    let (did, other) = (world.account(0, 0), world.account(0, 1));
    let held = world.stall(0, "getLatestCommit", Some(&did));
    let swept = world.swept();
    // A sweep of all is due, and asks about both.
    let second = world.stall(0, "getLatestCommit", Some(&other));
    world.lose_commit(&other);
    let part = Part::Payload;
    world.inject(Spec::new(Fault::Undecodable { part }).of(&did).times(1));
    world.post(&did);
    world.until_incomplete(&did, "unreadable_frame").await;
    world.until_fired("stall", 2).await;
    // It moves, as far as its desk knows; the store does not take that.
    let elsewhere = world
        .mirror()
        .services()
        .hosts
        .find(&world.net.urls().pds[1]);
    world.expect(FULL);
    pretended::set(&data(&world), Some(0));
    let moved = world.mirror().desks().with_repo(&did, move |turn| {
        let now = turn.services.clock.now();
        let repo = &mut turn.tx.as_mut().expect("it is known").repo;
        (repo.host, repo.host_since) = (elsewhere, now.tick);
    });
    moved.await.expect_err("there is no room");
    pretended::set(&data(&world), None);
    world.clear(second).await;
    // It was not asked about: the question is owed, and no sweep vouches for it.
    world
        .until("it is owed", async |world: &World| {
            let answer = world.answer(&did).await;
            assert!(!answer.complete, "a commit is missing: {answer:?}");
            condition(answer.reasons.contains(&"compare_owed".to_owned()), &answer)
        })
        .await;
    world.clear(held).await;
    world.until_complete(&did).await;
    assert!(world.swept() >= swept);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_to_look_for_a_repository_survives_a_restart() {
    let (mut world, did) = tracked().await;
    let down = world.inject(Spec::new(Fault::PlcDown {}));
    moves(&world, &did);
    world.until_fired("plc-down", 1).await;
    world.until_caught_up(PDS).await;
    world.stop().await;
    world.clear(down).await;
    world.begin().await;
    world.try_now(&did).await;
    world.until_complete(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_to_look_for_a_repository_survives_a_full_disk() {
    let (mut world, did) = tracked().await;
    let (ms, route) = (None, None);
    let directory = world.inject(Spec::new(Fault::Stall { ms, route }).on(Place::Plc));
    moves(&world, &did);
    world.until_fired("stall", 1).await;
    world.until_caught_up(PDS).await;
    world.expect(FULL);
    world.expect("the result of a repair could not be written");
    // The new host has a number already: only what is learned of the repository is
    // refused.
    let name = world.net.urls().pds[1].clone();
    let named = world.mirror().services().hosts.register(&name).await;
    named.expect("there is room");
    pretended::set(&data(&world), Some(0));
    world.clear(directory).await;
    world
        .until("it is refused", async |world: &World| {
            let lack = world.mirror().services().disk.shortage();
            condition(lack.is_some(), &lack)
        })
        .await;
    pretended::set(&data(&world), None);
    world.until_complete(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_that_is_read_from_the_store_does_not_put_off_what_is_due() {
    let mut world = World::quiet(listed(4, 1)).await;
    world.adjust = |config| config.mirror.fetch.concurrency = 1;
    world.begin().await;
    world.settle().await;
    let (did, other) = (world.did(0), world.did(1));
    let services = world.mirror().services().clone();
    let change = world
        .mirror()
        .desks()
        .with_repo(&did, |turn| owe(turn, LATER));
    change.await.expect("it is written");
    // The only place is taken.
    let held = world.stall(0, "getLatestCommit", Some(&other));
    let change = world.mirror().desks().with_repo(&other, |turn| {
        owe(turn, Duration::ZERO);
    });
    change.await.expect("it is written");
    world.until_fired("stall", 1).await;
    let hold = world.block_store().await;
    let (desks, again) = (world.mirror().desks().clone(), did.clone());
    let again = tokio::spawn(async move {
        let change = desks.with_repo(&again, |turn| {
            let now = turn.services.clock.now();
            debt::retry_soon(now, &mut turn.tx.as_mut().expect("it is known").repo);
        });
        change.await.expect("it is written");
    });
    let due = services.clock.time();
    world
        .until("its desk has noted it", async |world: &World| {
            let next = world.mirror().services().schedule.next_due();
            condition(next.is_some_and(|next| next <= due.after(LATER / 2)), &next)
        })
        .await;
    // The store does not have it yet.
    reload::read_debts(&services).expect("it can be read");
    let next = services.schedule.next_due();
    assert!(next.is_some_and(|next| next <= due.after(LATER / 2)));
    drop(hold);
    again.await.expect("no panic");
    world.clear(held).await;
    world.until_complete(&other).await;
    world.until_complete(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_that_was_paid_when_it_was_read_leaves_the_next_one_alone() {
    let mut world = World::settled(listed(4, 1)).await;
    let did = world.did(0);
    let services = world.mirror().services().clone();
    let paid = services.store.view().repo_by_did(&did);
    let (_, paid) = paid.expect("it can be read").expect("it is known");
    assert_eq!(paid.debt, Debt::default());
    let change = world
        .mirror()
        .desks()
        .with_repo(&did, |turn| owe(turn, LATER));
    change.await.expect("it is written");
    // As a reader finds it who looked before that.
    services
        .schedule
        .note_reloaded(services.clock.time(), &paid);
    assert_eq!(services.schedule.len(), 1);
    world.try_now(&did).await;
    world.until_complete(&did).await;
    world.stop().await;
}
