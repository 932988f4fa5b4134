//! Tests the harness itself: a test must fail if a fault never fires, if the mirror logs an
//! unexpected warning, or if an answer is not true.

use std::io::Write as _;

use gapless_harness::oracle;
use gapless_harness::{LOG, PDS, World, network};
use gapless_testnet::{Fault, Spec};

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "never fired")]
async fn a_fault_that_never_fired_fails_its_test() {
    let world = World::network(network(1, 1)).await;
    let set = world.inject(Spec::new(Fault::CarCut {}).on(PDS));
    world.drop_fault(set);
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "said: WARN somewhere in the mirror")]
async fn an_unexpected_warning_of_the_mirror_fails_its_test() {
    let _world = World::network(network(1, 1)).await;
    let said = tokio::spawn(async { tracing::warn!(target: "gapless", "somewhere in the mirror") });
    said.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "said: ERROR at a desk")]
async fn an_unexpected_error_at_a_desk_fails_its_test() {
    let mut world = World::start(network(1, 1)).await;
    let did = world.did(0);
    let said = world.mirror().desks().with_repo(&did, |_| {
        tracing::error!(target: "gapless", "at a desk");
    });
    said.await.expect("it is said");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "no such thing was expected")]
async fn an_unexpected_warning_of_the_program_fails_its_test() {
    let world = World::network(network(1, 1)).await;
    let log = std::fs::File::create(world.folder.path().join(LOG));
    let line = "2026-01-01T00:00:00.000000Z  WARN gapless: no such thing was expected\n";
    let written = log.and_then(|mut log| log.write_all(line.as_bytes()));
    written.expect("a file");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expected_or_explained_warning_fails_no_test() {
    let world = World::network(network(1, 1)).await;
    world.expect("this very");
    tracing::warn!(target: "gapless", "this very thing");
    world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
    tracing::warn!(target: "gapless", "not connected; dials again after the wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_true_at_its_rev_is_found() {
    let mut world = World::start(network(2, 1)).await;
    world.until_all_complete().await;
    let (truth, scope) = (world.net.truth(), world.scope());
    let right = world.answer(&world.did(0)).await;
    let other = world.answer(&world.did(1)).await;
    let mut wrong = [right.clone(), right.clone(), right.clone(), right.clone()];
    wrong[0].rev = other.rev;
    wrong[1].data = other.data;
    wrong[2].commit = None;
    wrong[3].records = right.records.map(|records| records + 1);
    for answer in wrong {
        let judged = oracle::compare(&truth, &scope, &answer, None).expect("no store is read");
        assert!(!judged.different.is_empty(), "it was believed: {answer:?}");
    }
    let judged = oracle::compare(&truth, &scope, &right, None).expect("no store is read");
    assert!(judged.stated && judged.different.is_empty(), "{judged:?}");
    world.stop().await;
}
