//! Tests the order of the row transaction: finish a snapshot, write its records, apply parked
//! frames, then settle. Log entries come before what depends on them.

use gapless_atp::cid::Cid;
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::{Debt, Notice};
use gapless_sim::script::Stage;
use gapless_sim::world::commit::value;
use gapless_sim::world::{Body, Fault, Op, Place};
use gapless_store::table::log::LogKind;

const PDS: Place = Place::Pds(0);

/// The kinds of log rows of `a` that follow the first `before` ones.
fn log_since(stage: &Stage, before: usize) -> Vec<LogKind> {
    let rows = stage.log("a").into_iter().skip(before);
    rows.map(|row| row.kind).collect()
}

#[test]
fn a_snapshot_is_written_then_parked_frames_follow_then_it_is_settled() {
    let mut stage = Stage::one_host();
    let (log, fetches) = (stage.log("a").len(), stage.fetches("a"));
    // Owed for a reason that no commit pays: only the settled snapshot does.
    let id = stage.id("a");
    stage.run.mirror.owe_fetch(&stage.run.world, id);
    stage.force(Fault::Omitted);
    stage.commit("a");
    stage.work_until("a", "fetched");
    stage.commit("a");
    stage.deliver();
    assert_eq!(stage.parked("a"), 1, "it follows on the snapshot");
    stage.finish_work();
    assert_eq!(log_since(&stage, log), [LogKind::Repair, LogKind::Live]);
    assert_eq!(stage.parked("a"), 0);
    assert_eq!(stage.repo("a").debt, Debt::default());
    assert!(stage.complete("a") && stage.up_to_date("a"));
    assert_eq!(stage.fetches("a"), fetches + 1);
}

#[test]
fn parked_frames_follow_the_last_chunk_of_a_large_snapshot() {
    let mut stage = Stage::new(1, &[0]);
    for _ in 0..30 {
        stage.commit("a");
    }
    stage.follow(PDS);
    stage.connect();
    stage.pass(6);
    stage.sweep();
    stage.work_until("a", "write on");
    stage.commit("a");
    stage.deliver();
    assert_eq!(stage.parked("a"), 1, "nothing is applied on half a state");
    stage.finish_work();
    assert_eq!(stage.parked("a"), 0);
    let kinds = log_since(&stage, 0).into_iter();
    let kinds: Vec<LogKind> = kinds
        .filter(|kind| !matches!(kind, LogKind::Account(_) | LogKind::Identity))
        .collect();
    assert_eq!(
        kinds,
        [LogKind::Backfill, LogKind::Repair, LogKind::Live],
        "both chunks first"
    );
    assert!(stage.up_to_date("a"));
}

#[test]
fn frames_of_another_host_are_dropped_once_the_hosts_own_state_is_written() {
    let mut stage = Stage::two_hosts();
    stage.force(Fault::TooBig);
    stage.commit("a");
    stage.deliver();
    stage.work_until("a", "fetched");
    // A commit that another host's stream alone tells.
    stage.force(Fault::Omitted);
    stage.commit("a");
    let commit = std::sync::Arc::new(stage.truth("a"));
    let (rev, why) = (commit.head.rev, DropReason::OtherHost);
    let body = Body::Commit {
        ops: commit.ops.clone(),
        commit,
        proved: true,
        too_big: false,
    };
    let frame = stage.run.world.frame(0, body);
    stage.run.world.pds[1].log.push(frame);
    stage.deliver();
    assert_eq!(stage.parked("a"), 2);
    stage.finish_work();
    assert_eq!(stage.parked("a"), 0);
    let dropped = Notice::ParkedDropped { rev, why };
    assert!(stage.run.mirror.notices.contains(&dropped));
    assert!(stage.reasons("a").contains(&"newer_commit_known"));
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn operations_of_a_frame_that_proves_nothing_are_not_written() {
    let mut stage = Stage::one_host();
    let before = stage.run.mirror.book.records(stage.id("a"));
    stage.force(Fault::EmptyCommit);
    stage.force(Fault::Omitted);
    stage.commit("a");
    let op = Op {
        path: "org.other/forged".to_owned(),
        before: None,
        after: Some(Cid::dag_cbor(&value(0))),
    };
    let body = Body::Commit {
        commit: std::sync::Arc::new(stage.truth("a")),
        ops: [op].into(),
        proved: true,
        too_big: false,
    };
    let frame = stage.run.world.frame(0, body);
    stage.run.world.pds[0].log.push(frame);
    stage.deliver();
    assert!(stage.up_to_date("a"), "it signs the held root again");
    assert_eq!(stage.run.mirror.book.records(stage.id("a")), before);
}
