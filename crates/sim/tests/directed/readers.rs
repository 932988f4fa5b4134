//! Tests readers of the log beside purges in parts, damage, lost numbers, trims and holds: each ends
//! equal to the store.

use std::time::Duration;

use gapless_atp::syntax::Rev;
use gapless_core::ledger::Account;
use gapless_core::retain::{ConsumerNeeds, Hold};
use gapless_sim::readers::kinds::LogRowKind;
use gapless_sim::readers::reader::{BeginBy, Effects};
use gapless_sim::script::Stage;
use gapless_sim::world::{Body, Fault, Place, Records};
use gapless_store::table::log::{LogKind, ROW_OPS};

fn add(stage: &mut Stage, effects: Effects, begin_by: BeginBy, hold: Hold) -> usize {
    let needs = ConsumerNeeds::LogAndVersions;
    stage.run.readers.add(effects, begin_by, needs, hold)
}

fn step(stage: &mut Stage, reader: usize) {
    let run = &mut stage.run;
    let step = run.readers.step(&run.world, &mut run.mirror, reader);
    if let Err(broken) = step {
        panic!("{}", stage.run.failure(&broken).text);
    }
}

/// Lets a reader read everything and compares it with the store.
fn catch_up(stage: &mut Stage, reader: usize) {
    let run = &mut stage.run;
    let before = run.readers.reader(reader).compared;
    let caught_up = run.readers.catch_up(&run.world, &mut run.mirror, reader);
    if let Err(broken) = caught_up {
        panic!("{}", stage.run.failure(&broken).text);
    }
    assert!(stage.run.readers.reader(reader).compared > before);
}

fn catch_up_all(stage: &mut Stage, readers: &[usize]) {
    for reader in readers {
        catch_up(stage, *reader);
    }
}

/// One host with `a` and `b`, and a reader from the first number on of each sort.
fn read_from_the_beginning() -> (Stage, [usize; 2]) {
    let mut stage = Stage::one_host();
    let effects = [Effects::InStore, Effects::Elsewhere];
    let readers = effects.map(|effects| {
        let reader = add(&mut stage, effects, BeginBy::FirstNumber, Hold::Always);
        catch_up(&mut stage, reader);
        reader
    });
    (stage, readers)
}

/// `a` signs these records, and its host sends the commit.
fn commit_records(stage: &mut Stage, records: Records) {
    send_commit(stage, records, false);
}

/// `a` signs these records, and its host sends a commit that is too big for its operations.
fn commit_without_operations(stage: &mut Stage, records: Records) {
    send_commit(stage, records, true);
}

fn send_commit(stage: &mut Stage, records: Records, too_big: bool) {
    let before = stage.truth("a").records;
    let next = stage.run.world.commit_of(0, &before, records);
    stage.run.world.keep(0, next.clone());
    let body = Body::Commit {
        ops: if too_big {
            Default::default()
        } else {
            next.ops.clone()
        },
        commit: next,
        proved: true,
        too_big,
    };
    let frame = stage.run.world.frame(0, body);
    stage.run.world.pds[0].log.push(frame);
}

/// The numbers of operations in the log rows of `a` that purged it.
fn purged(stage: &Stage) -> Vec<u64> {
    let rows = stage.log("a").into_iter();
    let purged = rows.filter_map(|row| match row.kind {
        LogKind::Purged(count) => Some(count),
        _ => None,
    });
    purged.collect()
}

/// Deletes `a` and lets the grace period pass.
fn delete(stage: &mut Stage) {
    stage.run.world.set_account(0, Account::Deleted);
    stage.settle();
    stage.pass(3_601);
}

/// Begins to purge `a`, and goes no further.
fn begin_purge(stage: &mut Stage) -> u64 {
    stage.run.mirror.purges_pause = true;
    assert_eq!(stage.run.mirror.purge(&stage.run.world), [stage.id("a")]);
    stage.run.mirror.purges_under_way()[0].0
}

fn continue_purge(stage: &mut Stage, purge: u64) {
    stage.run.mirror.continue_purge(&stage.run.world, purge);
}

fn is_under_way(stage: &Stage) -> bool {
    !stage.run.mirror.purges_under_way().is_empty()
}

fn assert_sound(stage: &Stage) {
    let view = stage.run.mirror.book.view();
    let report = gapless_store::check::check(&view, &mut |_| {});
    let report = report.expect("the double does not fail");
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn a_purge_that_a_crash_interrupts_between_two_parts_goes_on_after_the_start() {
    let (mut stage, [in_store, elsewhere]) = read_from_the_beginning();
    let mut records = Records::clone(&stage.truth("a").records);
    let some = *records.values().next().expect("a wrote");
    for commit in 0..3 {
        let many = (0..ROW_OPS - 100).map(|n| (format!("app.test.many{commit}/{n:05}"), some));
        records.extend(many);
        commit_records(&mut stage, records.clone());
    }
    let held = records.len();
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    catch_up(&mut stage, elsewhere);
    delete(&mut stage);
    let purge = begin_purge(&mut stage);
    continue_purge(&mut stage, purge);
    stage.sync();
    let left = held - ROW_OPS;
    let id = stage.id("a");
    assert_eq!(stage.run.mirror.book.records(id).len(), left);
    // A reader that begins now sees nothing of the repository.
    let late = add(&mut stage, Effects::Elsewhere, BeginBy::Walk, Hold::Always);
    catch_up_all(&mut stage, &[in_store, elsewhere, late]);
    continue_purge(&mut stage, purge);
    stage.crash(0);
    assert_eq!(stage.run.mirror.book.records(id).len(), left, "it is lost");
    assert!(is_under_way(&stage));
    assert_sound(&stage);
    stage.run.mirror.finish_purges(&stage.run.world);
    assert!(!is_under_way(&stage) && stage.run.mirror.book.records(id).is_empty());
    let parts = [ROW_OPS, ROW_OPS, held - 2 * ROW_OPS].map(|part| part as u64);
    assert_eq!(purged(&stage), parts, "each part once");
    catch_up_all(&mut stage, &[in_store, elsewhere, late]);
    assert_sound(&stage);
}

#[test]
fn an_account_that_comes_back_during_its_purge_is_complete_again_afterwards() {
    let (mut stage, readers) = read_from_the_beginning();
    delete(&mut stage);
    let purge = begin_purge(&mut stage);
    continue_purge(&mut stage, purge);
    stage.run.world.set_account(0, Account::Active);
    stage.commit("a");
    stage.settle();
    assert_eq!(stage.repo("a").account, Account::Active);
    assert!(stage.repo("a").purging && !stage.complete("a"));
    assert!(stage.repo("a").debt.fetch.is_some(), "it stays owed");
    catch_up_all(&mut stage, &readers);
    stage.run.mirror.finish_purges(&stage.run.world);
    stage.pass(600);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    catch_up_all(&mut stage, &readers);
    // The rows of before the purge go, and nothing of what came back.
    while stage.run.mirror.clean_up_purge(&stage.run.world, false) {}
    let late = add(
        &mut stage,
        Effects::InStore,
        BeginBy::FirstNumber,
        Hold::Always,
    );
    catch_up_all(&mut stage, &[readers[0], readers[1], late]);
    assert!(stage.run.readers.kinds.times(LogRowKind::Redacted) > 0);
    assert_sound(&stage);
}

#[test]
fn a_cleanup_that_is_faster_than_the_end_of_the_purge_does_not_keep_it_from_ending() {
    let (mut stage, readers) = read_from_the_beginning();
    delete(&mut stage);
    let purge = begin_purge(&mut stage);
    continue_purge(&mut stage, purge);
    continue_purge(&mut stage, purge);
    catch_up_all(&mut stage, &readers);
    while stage.run.mirror.clean_up_purge(&stage.run.world, false) {}
    assert!(is_under_way(&stage), "it has not ended");
    stage.run.world.set_account(0, Account::Active);
    stage.run.mirror.finish_purges(&stage.run.world);
    stage.pass(600);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    catch_up_all(&mut stage, &readers);
}

#[test]
fn a_second_purge_ends_although_the_first_one_is_not_cleaned_up() {
    let (mut stage, readers) = read_from_the_beginning();
    for _ in 0..2 {
        delete(&mut stage);
        let purge = begin_purge(&mut stage);
        while is_under_way(&stage) {
            let last = stage.run.mirror.purges_under_way()[0].0;
            assert!(last >= purge);
            continue_purge(&mut stage, last);
        }
        stage.run.world.set_account(0, Account::Active);
        stage.settle();
        assert!(stage.complete("a") && stage.up_to_date("a"));
    }
    assert_eq!(purged(&stage).len(), 2);
    catch_up_all(&mut stage, &readers);
    assert_sound(&stage);
}

#[test]
fn a_reader_that_stops_for_longer_than_its_hold_comes_back_by_a_walk_and_ends_equal() {
    let mut stage = Stage::one_host();
    let hold = Hold::For(Duration::from_secs(600));
    let reader = add(&mut stage, Effects::Elsewhere, BeginBy::FirstNumber, hold);
    catch_up(&mut stage, reader);
    let mirror = &mut stage.run.mirror;
    let row = stage.run.readers.reader(reader).row(mirror);
    let stopped_at = row.expect("it is registered").next;
    for _ in 0..8 {
        stage.commit("a");
        stage.commit("b");
    }
    stage.settle();
    let (world, mirror) = (&stage.run.world, &mut stage.run.mirror);
    let head = mirror.book.counters().next_seq;
    assert!(head > stopped_at + 8);
    assert_eq!(mirror.review_consumers(world), 0);
    assert!(mirror.trim_log(world, head) <= stopped_at, "it is held");
    let (_, left) = mirror.expire_versions(world, head);
    assert!(left > 0, "they are held");
    stage.pass(601);
    let (world, mirror) = (&stage.run.world, &mut stage.run.mirror);
    assert_eq!(mirror.review_consumers(world), 1);
    assert_eq!(mirror.trim_log(world, head), head);
    assert_eq!(mirror.expire_versions(world, head).1, 0);
    assert_eq!(stage.run.readers.reader(reader).restarts, 0);
    catch_up(&mut stage, reader);
    assert_eq!(stage.run.readers.reader(reader).restarts, 1);
    let row = stage.run.readers.reader(reader).row(&stage.run.mirror);
    assert!(row.is_some_and(|row| !row.overrun && row.next >= head));
    stage.commit("a");
    stage.settle();
    catch_up(&mut stage, reader);
    assert_sound(&stage);
}

#[test]
fn a_record_that_the_disk_lost_and_its_owner_deleted_is_deleted_by_readers() {
    let (mut stage, readers) = read_from_the_beginning();
    let mut records = Records::clone(&stage.truth("a").records);
    let some = *records.values().next().expect("a wrote");
    records.insert("app.test.a/first".to_owned(), some);
    commit_records(&mut stage, records.clone());
    stage.settle();
    assert!(stage.up_to_date("a"));
    catch_up_all(&mut stage, &readers);
    let id = stage.id("a");
    assert!(stage.run.mirror.damage_record(&stage.run.world, id, 0));
    records.remove("app.test.a/first");
    commit_records(&mut stage, records);
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    // No operation of the log deletes the record.
    let rows = stage.log("a").into_iter();
    let deleted = rows
        .flat_map(|row| row.ops)
        .any(|op| op.path == b"app.test.a/first" && op.cid.is_none());
    assert!(!deleted);
    assert_eq!(
        stage.log("a").last().map(|row| row.kind),
        Some(LogKind::Restated)
    );
    catch_up_all(&mut stage, &readers);
}

#[test]
fn readers_of_an_interrupted_snapshot_that_another_one_replaced_end_equal() {
    let (mut stage, readers) = read_from_the_beginning();
    let before = stage.truth("a").records;
    let some = *before.values().next().expect("a wrote");
    let many = (0..8).map(|n| (format!("app.test.many/{n}"), some));
    let mut records = Records::clone(&before);
    records.extend(many);
    commit_without_operations(&mut stage, records);
    stage.deliver();
    stage.work_until("a", "write on");
    stage.sync();
    catch_up_all(&mut stage, &readers);
    let late = add(&mut stage, Effects::InStore, BeginBy::Walk, Hold::Always);
    catch_up(&mut stage, late);
    stage.crash(0);
    commit_without_operations(&mut stage, Records::clone(&before));
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a"));
    catch_up_all(&mut stage, &[readers[0], readers[1], late]);
    assert!(stage.run.readers.kinds.times(LogRowKind::Restated) > 0);
}

#[test]
fn a_reader_that_has_read_lost_numbers_compares_everything() {
    let (mut stage, [_, elsewhere]) = read_from_the_beginning();
    stage.sync();
    stage.force(Fault::EmptyCommit);
    stage.commit("b");
    stage.commit("a");
    stage.deliver();
    let head = stage.run.mirror.book.counters().next_seq;
    // The disk acknowledges what it has not written.
    stage.run.mirror.book.publish();
    for _ in 0..20 {
        step(&mut stage, elsewhere);
    }
    assert_eq!(stage.run.readers.reader(elsewhere).next(), head);
    stage.crash(0);
    let after = stage.run.mirror.book.counters().next_seq;
    assert_eq!(after, head + 1, "no number is given again");
    catch_up(&mut stage, elsewhere);
    stage.settle();
    catch_up(&mut stage, elsewhere);
    assert!(stage.run.readers.kinds.times(LogRowKind::Lost) > 0);
    assert!(stage.complete("a") && stage.up_to_date("a"));
}

/// The revs of the claims that are kept about `a`.
fn claims(stage: &Stage) -> Vec<Rev> {
    let rows = stage.run.mirror.book.view().claims(stage.id("a"));
    let rows = rows.map(|row| row.expect("the double does not fail").1);
    rows.map(|row| row.claim.rev).collect()
}

#[test]
fn a_claim_that_gave_way_is_withdrawn_although_all_others_came_true() {
    let (mut stage, readers) = read_from_the_beginning();
    stage.lose(Place::Pds(0));
    stage.commit("a");
    let newest = stage.truth("a").head.rev;
    let never_signed = Rev::from_micros(newest.micros() + 500, 9);
    let claim = |stage: &mut Stage, rev| {
        stage.pass(600);
        stage.run.mirror.claimed(&stage.run.world, 0, rev);
        catch_up_all(stage, &readers);
    };
    claim(&mut stage, never_signed);
    assert!(claims(&stage).contains(&never_signed));
    for _ in 0..20 {
        if claims(&stage).contains(&never_signed) {
            claim(&mut stage, newest);
        }
    }
    assert!(!claims(&stage).contains(&never_signed), "they gave way");
    assert!(!claims(&stage).is_empty());
    stage.settle();
    assert!(stage.complete("a") && stage.up_to_date("a") && claims(&stage).is_empty());
    catch_up_all(&mut stage, &readers);
    assert!(stage.run.readers.kinds.times(LogRowKind::Unclaimed) > 0);
}
