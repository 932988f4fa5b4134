//! Tests kills between every two stages of the mirror's work: the data on disk is exact, no
//! repository is called complete that is not, and a restart makes every repository complete.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use gapless_harness::audit::Audit;
use gapless_harness::{PATIENCE, Program, World, network};
use gapless_testnet::{Config as NetConfig, Fault, Place, Spec};

use crate::EXE;

/// Commits per second while the program runs and dies.
const LOAD: f64 = 40.0;
/// A repository of so many records is written in several batches.
const LARGE: usize = 2_600;
const KILLED: i32 = 9;

/// A host that lists in several pages, and has one large repository.
async fn several() -> World {
    let mut world = World::quiet(NetConfig {
        list_page: 3,
        ..network(8, 1)
    })
    .await;
    let records = LARGE;
    world.inject(Spec::new(Fault::HugeRepo { records }).of(&world.did(1)));
    world.flags.sweep_every = Some("1s".to_owned());
    world
}

/// Fails unless `gapless store check` finds no damage in the folder of a stopped program.
fn sound(data: &Path, at: &str) {
    let checked = Command::new(EXE)
        .args(["store", "check", "--data"])
        .arg(data)
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{at}: {told}");
}

/// Runs until it is killed at the point, looks at what is left, and runs again
/// until everything is complete and true.
async fn killed_at(world: &mut World, point: &str, passing: u64) {
    let at = format!("{point}:{passing}");
    let data = world.folder.path().join(at.replace([':', '.'], "-"));
    world.flags.data = Some(data.display().to_string());
    world.net.set_rate(LOAD).expect("a rate");
    let mut program = Program::start_with(world, EXE, &[("STOP_POINT", &at)]);
    let began = std::time::Instant::now();
    let ended = loop {
        // Whatever it says before it dies is true.
        for did in world.net.truth().dids() {
            program.repo(&did).await;
        }
        if let Some(ended) = program.ended() {
            break ended;
        }
        assert!(began.elapsed() < PATIENCE, "{at} was never reached");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(ended.signal(), Some(KILLED), "{at}: {}", program.log());
    let mut audit = Audit::default();
    // It may not have come to make the folder.
    assert!(data.join("format").exists(), "{at}: died before it began");
    audit.check_data(&data, &world.net);
    sound(&data, &at);
    let mut program = Program::start(world, EXE);
    program
        .until_upstream("connected", |upstream| upstream.connected)
        .await;
    world.net.set_rate(0.0).expect("a rate");
    // The last word of the host: its stream is open at once.
    world.post(&world.did(0));
    program.until_all_complete().await;
    let last = world.net.last_seq(Place::Pds(0));
    program
        .until_upstream("caught up", |upstream| upstream.cursor == last)
        .await;
    program.kill();
    audit.check_data(&data, &world.net);
    sound(&data, &at);
}

async fn killed_at_each(points: &[(&str, u64)]) {
    let mut world = several().await;
    for (point, passing) in points {
        killed_at(&mut world, point, *passing).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_the_stages_of_an_event() {
    killed_at_each(&[
        ("frame.read", 1),
        ("frame.read", 9),
        ("event.decided", 1),
        ("event.decided", 12),
        ("event.durable", 1),
        ("event.durable", 25),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_the_stages_of_an_upstreams_row() {
    killed_at_each(&[
        ("upstream.decided", 1),
        ("upstream.decided", 2),
        ("upstream.durable", 1),
        ("upstream.durable", 2),
        ("sweep.page", 1),
        ("sweep.page", 4),
        ("sweep.done", 1),
        ("sweep.done", 2),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_the_stages_of_a_fetch() {
    killed_at_each(&[
        ("fetch.asked", 1),
        ("fetch.asked", 5),
        ("fetch.downloaded", 1),
        ("fetch.downloaded", 4),
        ("fetch.checked", 1),
        ("fetch.checked", 6),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_the_batches_of_a_snapshot() {
    killed_at_each(&[
        ("fetch.between", 1),
        ("fetch.between", 2),
        ("fetch.unsettled", 1),
        ("fetch.unsettled", 8),
        ("fetch.written", 1),
        ("fetch.written", 8),
    ])
    .await;
}
