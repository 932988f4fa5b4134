//! Tests what an operator and the disk do to a repository: another filter, an imported file, a
//! damaged frame.

use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::{DebtReason, Notice};
use gapless_sim::script::Stage;
use gapless_sim::world::pds::Served;
use gapless_sim::world::{Fault, Place};
use gapless_store::table::log::LogKind;

const PDS: Place = Place::Pds(0);

/// The true state of `a`, as a file.
fn file(stage: &Stage) -> Served {
    let commit = std::sync::Arc::new(stage.truth("a"));
    let records = commit.records.clone();
    Served { commit, records }
}

fn import(stage: &mut Stage, file: &Served) -> Option<bool> {
    stage.run.mirror.import(&mut stage.run.world, file)
}

/// Whether bytes are missing that the filter wants.
fn lacks_bytes(stage: &Stage) -> bool {
    let lacking = stage.run.mirror.lacks_bytes(stage.id("a")).next();
    lacking.is_some()
}

/// Owes what the filter wants, and asks.
fn compare_with_filter(stage: &mut Stage) {
    stage.sweep();
    stage.work();
    stage.work();
}

#[test]
fn r15_a_wider_filter_is_paid_by_a_walk_where_everything_is_held() {
    let mut stage = Stage::one_host();
    let (fetches, log) = (stage.fetches("a"), stage.log("a").len());
    stage.run.mirror.change_filter(&["app.test.post"]);
    assert_eq!(stage.reasons("a"), ["filter_changed"]);
    compare_with_filter(&mut stage);
    assert!(stage.complete("a"));
    assert_eq!(stage.fetches("a"), fetches, "nothing is missing");
    assert_eq!(stage.log("a").len(), log);
    assert_eq!(stage.run.mirror.counts.walked, 2, "a and b");
}

#[test]
fn r15_what_a_wider_filter_lacks_is_fetched() {
    let mut stage = Stage::new(1, &[0]);
    stage.run.mirror.change_filter(&["com.example.nothing"]);
    stage.follow(PDS);
    stage.settle();
    for _ in 0..4 {
        stage.commit("a");
    }
    stage.settle();
    assert!(stage.complete("a"));
    stage.run.mirror.change_filter(&[]);
    assert!(lacks_bytes(&stage), "keys alone are held");
    let fetches = stage.fetches("a");
    compare_with_filter(&mut stage);
    assert!(stage.complete("a") && !lacks_bytes(&stage));
    assert_eq!(stage.fetches("a"), fetches + 1);
    assert_eq!(stage.run.mirror.counts.walked, 0);
}

#[test]
fn r15_a_walk_says_nothing_of_a_head_that_moved_meanwhile() {
    let mut stage = Stage::one_host();
    stage.run.mirror.change_filter(&["app.test.post"]);
    stage.sweep();
    stage.work_until("a", "walked");
    stage.commit("a");
    stage.deliver();
    stage.finish_work();
    assert!(stage.run.mirror.counts.walked <= 1, "b alone");
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn r15_a_walk_does_not_pay_for_a_newer_commit_that_is_known() {
    let mut stage = Stage::one_host();
    stage.run.mirror.change_filter(&["app.test.post"]);
    stage.sweep();
    stage.work_until("a", "walked");
    // Its predecessor never came: it is parked, behind the debt for the filter.
    stage.force(Fault::Omitted);
    stage.commit("a");
    stage.commit("a");
    stage.deliver();
    assert_eq!(stage.parked("a"), 1);
    stage.step_work("a");
    assert!(stage.reasons("a").contains(&"fetch_owed"));
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn an_imported_state_is_written_and_vouches_for_nothing() {
    let mut stage = Stage::one_host();
    stage.force(Fault::Omitted);
    stage.commit("a");
    let (log, file) = (stage.log("a").len(), file(&stage));
    assert_eq!(import(&mut stage, &file), Some(true));
    stage.finish_work();
    assert!(stage.up_to_date("a"));
    assert_eq!(stage.reasons("a"), ["compare_owed"]);
    assert_eq!(
        stage.repo("a").debt.compare.map(|owed| owed.why),
        Some(DebtReason::Operator)
    );
    let kinds: Vec<LogKind> = stage
        .log("a")
        .iter()
        .skip(log)
        .map(|row| row.kind)
        .collect();
    assert_eq!(kinds, [LogKind::Repair]);
    stage.work();
    assert!(stage.complete("a"));
    assert_eq!(import(&mut stage, &file), None, "held already");
}

#[test]
fn an_import_is_not_laid_over_a_state_that_moved_on() {
    let mut stage = Stage::one_host();
    stage.commit("a");
    let file = file(&stage);
    assert_eq!(import(&mut stage, &file), Some(true));
    // The stream brings the same commit, and one more.
    stage.commit("a");
    stage.deliver();
    let log = stage.log("a").len();
    stage.finish_work();
    assert_eq!(stage.log("a").len(), log, "nothing is written");
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

#[test]
fn a_file_that_its_owner_did_not_sign_is_not_imported() {
    let mut stage = Stage::one_host();
    stage.force(Fault::Omitted);
    stage.commit("a");
    let mut commit = stage.truth("a");
    commit.key = None;
    let records = commit.records.clone();
    let commit = std::sync::Arc::new(commit);
    let file = Served { commit, records };
    assert_eq!(import(&mut stage, &file), Some(false));
    assert!(!stage.up_to_date("a"));
}

#[test]
fn a_damaged_frame_is_dropped_and_what_is_owed_for_it_stays() {
    let mut stage = Stage::one_host();
    // The second of two commits waits for the first one, which comes by a fetch.
    stage.force(Fault::Omitted);
    stage.commit("a");
    stage.commit("a");
    stage.deliver();
    assert_eq!(stage.parked("a"), 1);
    let (id, rev) = (stage.id("a"), stage.truth("a").head.rev);
    stage.run.mirror.damage_parked(id, rev);
    stage.force(Fault::StaleRepo);
    stage.work();
    assert_eq!(stage.parked("a"), 0);
    let why = DropReason::Forged;
    let dropped = Notice::ParkedDropped { rev, why };
    assert!(stage.run.mirror.notices.contains(&dropped));
    assert!(!stage.up_to_date("a"));
    assert!(stage.reasons("a").contains(&"fetch_owed"));
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
}
