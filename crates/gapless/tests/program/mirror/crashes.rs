//! Tests kills at random moments: the data on disk is exact and numbered, and no repository is
//! called complete without proof.

use std::path::PathBuf;
use std::time::Duration;

use gapless_harness::audit::{Audit, Chance};
use gapless_harness::{PDS, Program, World, network};
use gapless_mirror::api::Status;
use gapless_testnet::{Fault, Spec};

use crate::EXE;

/// Commits per second while the program is killed.
const LOAD: f64 = 150.0;

fn data(world: &World) -> PathBuf {
    world.folder.path().join("data")
}

/// Starts, kills and audits the program `times` times, at random moments.
async fn kill_often(
    world: &World,
    audit: &mut Audit,
    chance: &mut Chance,
    times: u32,
    longest: Duration,
) {
    for _ in 0..times {
        let mut program = Program::start(world, EXE);
        program.until_status("it answers", |_| true).await;
        chance.wait(longest).await;
        program.kill();
        audit.check_data(&data(world), &world.net);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t07_info_then_a_crash_then_info_is_never_no_epoch() {
    let mut world = World::quiet(network(3, 1)).await;
    let mut chance = Chance::new();
    let a = world.did(0);
    let mut program = Program::start(&world, EXE);
    program
        .until_upstream("connected", |upstream| upstream.connected)
        .await;
    world.post(&a);
    let mut status = program.until_all_complete().await;
    let listing = world.guard("listRepos");
    for _ in 0..6 {
        program.kill();
        let before = status.upstreams[0].epoch;
        // A commit that no stream will bring: the host's window has passed it.
        world.inject(Spec::new(Fault::Window { events: 50_000 }).on(PDS));
        world.post(&a);
        world.inject(Spec::new(Fault::Window { events: 0 }).on(PDS));
        program = Program::start(&world, EXE);
        // Before, during or after the first #info, at random.
        chance.wait(Duration::from_millis(250)).await;
        program.kill();
        program = Program::start(&world, EXE);
        status = program
            .until_upstream("connected", |upstream| upstream.open)
            .await;
        assert!(
            status.upstreams[0].epoch > before,
            "{status:?}, {before} before the gap"
        );
        let answer = program.repo(&a).await.expect("it is known");
        assert!(!answer.complete, "a commit is missing: {answer:?}");
        assert_eq!(answer.reasons, ["epoch_changed"]);
        assert_eq!(status.repos.complete, 0);
    }
    assert!(world.fired("window") >= 12);
    program.kill();
    Audit::default().check_data(&data(&world), &world.net);
    world.clear(listing).await;
    world.begin().await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t26_a_thirty_kills_under_load_leave_every_root_with_its_records() {
    let mut world = World::start(network(12, 2)).await;
    world.until_all_complete().await;
    world.stop().await;
    let (mut audit, mut chance) = (Audit::default(), Chance::new());
    world.net.set_rate(LOAD).expect("a rate");
    let longest = Duration::from_millis(400);
    kill_often(&world, &mut audit, &mut chance, 30, longest).await;
    world.net.set_rate(0.0).expect("a rate");
    assert!(audit.exact >= 30 * 12, "{}", audit.exact);
    world.begin().await;
    world.until_all_complete().await;
    assert_eq!(world.metrics().damaged.get(), 0);
    world.stop().await;
    audit.check_data(&data(&world), &world.net);
}

#[tokio::test(flavor = "multi_thread")]
async fn t26_b_events_that_were_read_and_not_written_are_read_again_and_never_fetched() {
    // Neither listings nor snapshots help: only the cursor brings what is missing.
    let mut world = World::quiet(network(6, 1)).await;
    world.begin().await;
    world.settle().await;
    world.stop().await;
    let (mut audit, mut chance) = (Audit::default(), Chance::new());
    world.guard("listRepos");
    world.guard("getRepo");
    world.net.set_rate(LOAD).expect("a rate");
    let longest = Duration::from_millis(300);
    kill_often(&world, &mut audit, &mut chance, 10, longest).await;
    world.net.set_rate(0.0).expect("a rate");
    world.begin().await;
    world.until_all_complete().await;
    assert_eq!(world.metrics().snapshots_written.get(), 0);
    assert_eq!(
        world.metrics().resets.get(),
        0,
        "the event at our cursor came"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t36_a_a_kill_before_the_first_cursor_makes_the_restart_one_without_a_cursor() {
    let mut world = World::quiet(network(3, 1)).await;
    let a = world.did(0);
    let mut program = Program::start(&world, EXE);
    // The host says nothing: everything is fetched, and there is no cursor.
    let status = program.until_all_complete().await;
    assert_eq!(status.upstreams[0].cursor, None);
    program.kill();
    let listing = world.guard("listRepos");
    let missed = world.post(&a);
    let mut program = Program::start(&world, EXE);
    let again = program
        .until_upstream("the subscription is in force", |upstream| upstream.open)
        .await;
    assert!(again.upstreams[0].epoch > status.upstreams[0].epoch);
    assert_eq!(again.repos.complete, 0, "nothing was swept since");
    let answer = program.repo(&a).await.expect("it is known");
    assert!(!answer.complete && answer.rev != Some(missed.rev.to_string()));
    assert_eq!(answer.reasons, ["epoch_changed"]);
    world.clear(listing).await;
    program.until_all_complete().await;
    program.kill();
    world.begin().await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t36_b_kills_during_the_very_first_moments_claim_nothing() {
    let mut world = World::quiet(network(20, 2)).await;
    world.flags.sweep_every = Some("2s".to_owned());
    world.net.set_rate(LOAD).expect("a rate");
    let (mut audit, mut chance) = (Audit::default(), Chance::new());
    for _ in 0..12 {
        let program = Program::start(&world, EXE);
        chance.wait(Duration::from_millis(500)).await;
        program.kill();
        // It may not have come to make the folder.
        if data(&world).join("format").exists() {
            audit.check_data(&data(&world), &world.net);
        }
    }
    world.net.set_rate(0.0).expect("a rate");
    world.begin().await;
    world.until_all_complete().await;
    world.stop().await;
    audit.check_data(&data(&world), &world.net);
}

#[tokio::test(flavor = "multi_thread")]
async fn t39_a_log_number_that_was_shown_is_there_after_the_kill_and_names_the_same() {
    let mut world = World::start(network(6, 1)).await;
    world.until_all_complete().await;
    world.stop().await;
    let (mut audit, mut chance) = (Audit::default(), Chance::new());
    audit.check_data(&data(&world), &world.net);
    world.net.set_rate(LOAD).expect("a rate");
    let mut grew = 0;
    for round in 0..20 {
        let mut program = Program::start(&world, EXE);
        let before = audit.log_next;
        // Every other time in the midst of it, and not at any moment.
        program
            .until_status("it answers, and writes", |status| {
                round % 2 == 0 || status.log.head.is_some_and(|head| head >= before)
            })
            .await;
        chance.wait(Duration::from_millis(300)).await;
        // What a consumer was told last, a moment before the end.
        let shown = program.status().await.expect("it answers").log.head;
        program.kill();
        audit.check_data(&data(&world), &world.net);
        let shown = shown.expect("there is one");
        assert!(shown < audit.log_next, "{shown} was shown, and is lost");
        grew += u32::from(audit.log_next > before);
    }
    world.net.set_rate(0.0).expect("a rate");
    assert!(grew >= 10, "the log grew between kills: {grew}");
    world.begin().await;
    world.until_all_complete().await;
    world.stop().await;
    audit.check_data(&data(&world), &world.net);
}

#[tokio::test(flavor = "multi_thread")]
async fn t44_a_root_is_never_durable_before_the_records_of_a_large_snapshot() {
    // Larger than one batch: written in pieces.
    const RECORDS: usize = 12_000;
    let mut world = World::quiet(network(3, 1)).await;
    let a = world.did(0);
    let records = RECORDS;
    world.inject(Spec::new(Fault::HugeRepo { records }).of(&a));
    assert_eq!(world.fired("huge-repo"), 1);
    world.flags.sweep_every = Some("2s".to_owned());
    let mut chance = Chance::new();
    let (mut half, mut exact) = (0, 0);
    for kill in 0..20 {
        // From nothing every time, and killed once so much of it is durable.
        let folder = world.folder.path().join(format!("data{kill}"));
        world.flags.data = Some(folder.display().to_string());
        let enough = chance.below(RECORDS as u64);
        let mut program = Program::start(&world, EXE);
        let wanted = |status: &Status| status.log.head >= Some(enough);
        program.until_status("some of it is written", wanted).await;
        program.kill();
        let mut audit = Audit::default();
        audit.check_data(&folder, &world.net);
        assert!(audit.log_next > enough, "{enough} was shown");
        half += audit.applying;
        exact += audit.exact;
    }
    assert!(half >= 3, "half written {half} times, {exact} exact states");
    // The last one goes on from where it was killed.
    world.begin().await;
    world.until_all_complete().await;
    world.stop().await;
}
