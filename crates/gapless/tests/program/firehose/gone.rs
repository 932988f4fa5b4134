//! Tests the firehose and the disk for data that is gone: frames that the disk lost, a window
//! that has passed, and purged repositories, of which no byte may remain.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::Time;
use gapless_harness::{Program, World, condition, network, record};
use gapless_mirror::api::PurgesPage;
use gapless_store::engine::DiskSettings;
use gapless_store::repair::{self, RepairMode, RepairReport};
use gapless_store::table::log::{FIRST_SEQ, LogKind};
use gapless_testnet::faults::Part;
use gapless_testnet::{Fault, Spec, Status, Write};

use crate::EXE;
use crate::firehose::strict::{Served, Strict};

const KILLED: i32 = 9;

fn data(world: &World) -> PathBuf {
    world.folder.path().join("data")
}

/// Files of a folder that have these bytes, each with how often.
fn files_with(folder: &Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder).expect("a folder") {
        let path = file.expect("a file").path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
            continue;
        }
        // The engine may drop a file while we look.
        let content = std::fs::read(&path).unwrap_or_default();
        let times = content
            .windows(bytes.len())
            .filter(|window| *window == bytes)
            .count();
        if times > 0 {
            found.push(format!("{times} in {}", path.display()));
        }
    }
    found
}

/// A text that no compression shortens, for one thing to be looked for.
fn secret(seed: u64) -> String {
    let mut state = seed | 1;
    let letters = (0..96).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + (state % 90) as u8)
    });
    letters.filter(|letter| !"\"\\".contains(*letter)).collect()
}

/// Writes a record, and replaces it: the first is superseded, both are secrets.
fn write_secrets(world: &World, did: &Did) -> (String, [String; 2]) {
    let key = "secretrkey7731";
    let path = format!("app.bsky.feed.post/{key}");
    let secrets = [secret(71), secret(1_000_003)];
    let first = record(&secrets[0]);
    let second = record(&secrets[1]);
    world.write(
        did,
        &[Write::Create {
            path: path.clone(),
            record: first,
        }],
    );
    world.write(
        did,
        &[Write::Update {
            path,
            record: second,
        }],
    );
    (key.to_owned(), secrets)
}

/// A mirror that has everything, and purges what was deleted a second ago.
async fn purging(accounts: usize) -> World {
    let mut world = World::quiet(network(accounts, 1)).await;
    world.adjust = |config| config.mirror.purge_grace = Duration::from_secs(1);
    world.begin().await;
    world.settle().await;
    world
}

fn delete(world: &World, did: &Did) {
    let set = world.net.set_status(did, Status::Deleted);
    set.expect("it is active");
}

/// Puts what is held into tables, as what is old is: otherwise it is in a journal alone,
/// and no table has to be written anew.
async fn flush(world: &World) {
    let scourer = world.mirror().services().store.scourer().expect("on disk");
    let flushed = tokio::task::spawn_blocking(move || scourer.flush()).await;
    assert!(flushed.expect("no panic").expect("it is flushed"));
}

/// Waits until there were so many purges, and all of them are over.
async fn purged(world: &World, count: usize) {
    world
        .until("the purge is over", async |world: &World| {
            let all = world.purges().await;
            let over = all.iter().filter(|one| one.state == "finished").count();
            condition(all.len() == count && over == count, &all)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_takes_every_byte_off_the_disk_and_leaves_a_word() {
    let mut world = purging(3).await;
    let (gone, kept) = (world.did(1), world.did(0));
    let (key, secrets) = write_secrets(&world, &gone);
    world.until_complete(&gone).await;
    let kept_secret = secret(42);
    let path = "app.bsky.feed.post/kept".to_owned();
    let record = record(&kept_secret);
    world.write(&kept, &[Write::Create { path, record }]);
    world.until_complete(&kept).await;
    let folder = data(&world);
    flush(&world).await;
    for secret in &secrets {
        let found = files_with(&folder, secret.as_bytes());
        assert!(found.len() >= 2, "in a frame and in the store: {found:?}");
        let tables = files_with(&folder.join("engine"), secret.as_bytes());
        let in_table = tables.iter().any(|file| !file.ends_with(".jnl"));
        assert!(in_table, "in a table: {tables:?}");
    }
    let view = world.mirror().services().store.view();
    let (id, _) = view.repo_by_did(&gone).expect("read").expect("known");
    drop(view);
    delete(&world, &gone);
    purged(&world, 1).await;
    for secret in &secrets {
        let found = files_with(&folder, secret.as_bytes());
        assert!(found.is_empty(), "{found:?}");
    }
    let found = files_with(&folder, kept_secret.as_bytes());
    assert!(!found.is_empty(), "only what was purged goes");
    let audit = world.purges().await.remove(0);
    assert_eq!(audit.did, gone.to_string());
    assert_eq!(audit.host, Some(world.net.urls().pds[0].clone()));
    assert!(audit.compacted && audit.deleted_at < audit.purged_at);
    assert!(audit.purged_at <= audit.finished_at, "{audit:?}");
    assert!(audit.records > 0 && audit.bytes > 0, "{audit:?}");
    assert!(audit.frames_redacted >= 3, "{audit:?}");
    assert!(
        audit.log_rows_redacted >= audit.frames_redacted,
        "{audit:?}"
    );
    // The numbers stay dense; what they said is gone but for what was deleted.
    let view = world.mirror().services().store.view();
    let mut next = FIRST_SEQ;
    let mut redacted = 0;
    for row in view.log_from(FIRST_SEQ).expect("read") {
        let (first, row) = row.expect("read");
        assert_eq!(first, next);
        next += row.numbers();
        if row.repo == Some(id) {
            let emptied = matches!(row.kind, LogKind::Redacted(_) | LogKind::Purged(_));
            redacted += u64::from(emptied);
            let names = row.ops.iter().any(|op| op.path.ends_with(key.as_bytes()));
            assert!(!names, "{first}: {row:?}");
        }
    }
    drop(view);
    assert_eq!(redacted, audit.log_rows_redacted);
    // And the firehose has nothing of it any more.
    let served = Served::start(&world).await;
    let mut strict = Strict::new(&world);
    strict.connect(served.address, Some(0)).await;
    world.post(&kept);
    let truth = world.net.truth();
    strict
        .until("caught up", |seen| seen.agrees(&truth, &kept))
        .await;
    {
        let seen = strict.seen();
        assert!(!seen.held.contains_key(gone.as_str()));
        let deleted = Some("deleted".to_owned());
        let told = (gone.to_string(), false, deleted);
        assert!(seen.accounts.contains(&told), "{:?}", seen.accounts);
    }
    assert_eq!(world.metrics().firehose_frames_missing.get(), 0);
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_waits_of_a_deleted_account_goes_off_the_disk_too() {
    let mut world = purging(2).await;
    let gone = world.did(1);
    delete(&world, &gone);
    purged(&world, 1).await;
    // A commit arrives for a repository of which nothing is held, and stays parked.
    let parked = world.metrics().events_parked.get();
    let text = secret(91);
    let dead = Fault::DeadWrite { text: text.clone() };
    world.inject(Spec::new(dead).of(&gone));
    purged(&world, 2).await;
    assert_eq!(world.metrics().events_parked.get(), parked + 1);
    let found = files_with(&data(&world), text.as_bytes());
    assert!(found.is_empty(), "{found:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_of_a_purged_account_loses_what_it_holds() {
    let mut world = purging(2).await;
    let gone = world.did(1);
    let part = Part::Rest;
    world.inject(Spec::new(Fault::Undecodable { part }).of(&gone).times(1));
    world.post(&gone);
    let letters = |world: &World| -> Vec<usize> {
        let rows = world.mirror().services().store.view().dead_letters();
        rows.map(|row| row.expect("read").1.payload.len()).collect()
    };
    world
        .until("it is a letter", async |world: &World| {
            let held = letters(world);
            condition(matches!(held[..], [bytes] if bytes > 0), &held)
        })
        .await;
    world.until_complete(&gone).await;
    delete(&world, &gone);
    purged(&world, 1).await;
    assert_eq!(letters(&world), [0]);
    assert_eq!(world.purges().await[0].dead_letters_redacted, 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_is_not_finished_while_a_reader_holds_the_old_data() {
    let mut world = purging(2).await;
    let gone = world.did(1);
    let (_, secrets) = write_secrets(&world, &gone);
    world.until_complete(&gone).await;
    flush(&world).await;
    let reader = world.mirror().services().store.view();
    delete(&world, &gone);
    world
        .until("it is put off", async |world: &World| {
            let all = world.purges().await;
            let over = all.iter().any(|one| one.state == "finished");
            assert!(!over, "while it is read: {all:?}");
            condition(world.metrics().purges_put_off.get() > 0, &all)
        })
        .await;
    let engine = data(&world).join("engine");
    let found = files_with(&engine, secrets[1].as_bytes());
    assert!(!found.is_empty(), "the reader has it");
    let (id, _) = reader.repo_by_did(&gone).expect("read").expect("known");
    assert!(reader.records(id).next().is_some());
    drop(reader);
    world
        .until("the purge is over", async |world: &World| {
            let all = world.purges().await;
            let over = matches!(&all[..], [one] if one.state == "finished" && one.compacted);
            condition(over, &all)
        })
        .await;
    for secret in &secrets {
        let found = files_with(&data(&world), secret.as_bytes());
        assert!(found.is_empty(), "{found:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_came_back_is_purged_again_before_the_first_purge_is_over() {
    let mut world = purging(2).await;
    let gone = world.did(1);
    flush(&world).await;
    // While it reads, no purge is over.
    let reader = world.mirror().services().store.view();
    for purges in 1..3 {
        delete(&world, &gone);
        world
            .until("its records are deleted", async |world: &World| {
                let all = world.purges().await;
                let deleted = all.iter().all(|one| one.state != "deleting");
                let view = world.mirror().services().store.view();
                let row = view.repo_by_did(&gone).expect("it can be read");
                let ended = row.is_some_and(|(_, repo)| !repo.purging);
                condition(all.len() == purges && deleted && ended, &all)
            })
            .await;
        let all = world.purges().await;
        assert!(
            all.iter()
                .all(|one| one.state != "finished" && one.records > 0)
        );
        if purges == 1 {
            let set = world.net.set_status(&gone, Status::Active);
            set.expect("it is deleted");
            world.until_complete(&gone).await;
        }
    }
    drop(reader);
    purged(&world, 2).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_was_cut_short_is_finished_at_the_next_start() {
    for point in [
        "purge.between",
        "purge.unfollowed",
        "purge.redacting",
        "purge.redacted",
    ] {
        let mut world = World::quiet(network(2, 1)).await;
        world.toml = format!("purge_grace = \"1s\"\n{}", world.toml);
        let gone = world.did(1);
        let at = format!("{point}:1");
        let mut program = Program::start_with(&world, EXE, &[("STOP_POINT", &at)]);
        program.until_all_complete().await;
        let (_, secrets) = write_secrets(&world, &gone);
        program.until_complete(&gone).await;
        world
            .net
            .set_status(&gone, Status::Deleted)
            .expect("it is active");
        let ended = program.until_ended(Duration::from_secs(60)).await;
        assert_eq!(ended.signal(), Some(KILLED), "{point}: {}", program.log());
        let left = secrets
            .iter()
            .map(|secret| files_with(&data(&world), secret.as_bytes()).len())
            .sum::<usize>();
        assert!(left > 0, "{point}: it was not cut short");
        let program = Program::start(&world, EXE);
        let began = std::time::Instant::now();
        loop {
            let told = match program.ask("/v1/purges").await {
                Some((200, told)) => told,
                other => serde_json::json!({ "none": other.map(|(status, _)| status) }),
            };
            let page: PurgesPage = serde_json::from_value(told.clone()).unwrap_or_default();
            if matches!(&page.purges[..], [one] if one.state == "finished") {
                break;
            }
            assert!(
                began.elapsed() < gapless_harness::PATIENCE,
                "{point}: {told}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for secret in &secrets {
            let found = files_with(&data(&world), secret.as_bytes());
            assert!(found.is_empty(), "{point}: {found:?}");
        }
        let told = program.run_command(&["purges"]).await;
        assert!(
            told.contains(gone.as_str()) && told.contains("finished"),
            "{told}"
        );
        program.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_the_disk_lost_is_made_good_by_a_word() {
    made_good(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_a_repair_took_out_is_made_good_by_a_word() {
    made_good(true).await;
}

/// Repairs the store while no mirror has it open.
fn repair(world: &World) -> RepairReport {
    let settings = DiskSettings::default();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = Time(now.expect("a clock").as_micros() as u64);
    let done = repair::repair(
        &data(world),
        &settings,
        RepairMode::Repair,
        now,
        &mut |_| {},
    );
    done.expect("it can be repaired")
}

async fn made_good(repaired: bool) {
    let mut world = World::settled(network(2, 1)).await;
    let did = world.did(0);
    let mark = secret(5);
    let record = record(&mark);
    let path = "app.bsky.feed.post/lost".to_owned();
    world.write(&did, &[Write::Create { path, record }]);
    world.post(&did);
    world.until_complete(&did).await;
    world.stop().await;
    // One byte of the frame that brought it.
    let frames = data(&world).join("frames");
    let mut damaged = 0;
    for file in std::fs::read_dir(&frames).expect("a folder") {
        let path = file.expect("a file").path();
        let mut bytes = std::fs::read(&path).expect("a file");
        let found = bytes
            .windows(mark.len())
            .position(|window| window == mark.as_bytes());
        if let Some(at) = found {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).expect("it is written");
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    if repaired {
        let done = repair(&world);
        assert_eq!(done.damaged_frames, 1, "{done:?}");
        assert!(repair(&world).found_nothing(), "and nothing is left");
    }
    world.begin().await;
    world.until_all_complete().await;
    let served = Served::start(&world).await;
    let mut strict = Strict::new(&world);
    strict.connect(served.address, Some(0)).await;
    strict.until_true().await;
    assert_eq!(world.metrics().firehose_frames_missing.get(), 1);
    assert_eq!(strict.seen().stale, 1, "the commit after it was announced");
    world.post(&did);
    strict.until_true().await;
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_begins_later_is_said() {
    let mut world = World::settled(network(2, 1)).await;
    let did = world.did(0);
    world.post(&did);
    world.until_complete(&did).await;
    let mut strict = Strict::new(&world);
    let served = Served::start(&world).await;
    strict.connect(served.address, Some(0)).await;
    strict.until_true().await;
    let first = *strict.seen().frames.keys().next().expect("it has read");
    served.stop().await;
    strict.ended().await;
    world.stop().await;
    // As if everything in it was too old.
    std::fs::remove_dir_all(data(&world).join("frames")).expect("it was there");
    world.begin().await;
    world.until_all_complete().await;
    let served = Served::start(&world).await;
    let next = world.log_next();
    strict.connect(served.address, Some(first)).await;
    strict
        .until("it is told", |seen| {
            condition(!seen.infos.is_empty(), &seen.infos)
        })
        .await;
    assert_eq!(strict.seen().infos, ["OutdatedCursor"]);
    world.post(&did);
    strict.until_true().await;
    let last = strict.seen().cursor().expect("it has read");
    assert!(last >= next, "only what came after");
    // A consumer that has everything is told nothing.
    let mut current = Strict::new(&world);
    current.seen().held = strict.seen().held.clone();
    current.connect(served.address, Some(last)).await;
    world.post(&did);
    current
        .until("the next", |seen| {
            condition(seen.commits == 1, &seen.commits)
        })
        .await;
    assert!(current.seen().infos.is_empty());
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn superseded_records_go_after_their_time() {
    let mut world = World::quiet(network(2, 1)).await;
    world.adjust = |config| config.mirror.keep_versions = Duration::from_secs(3);
    world.begin().await;
    world.settle().await;
    let did = world.did(0);
    write_secrets(&world, &did);
    world.until_complete(&did).await;
    let versions = |world: &World| {
        let counts = world.mirror().services().store.view().counts();
        counts.expect("read").versions
    };
    world
        .until("they are gone", async |world: &World| {
            // Counted when they are gone already.
            let expired = world.metrics().versions_expired.get();
            let left = versions(world);
            condition(left == 0 && expired >= 1, &(left, expired))
        })
        .await;
    world.stop().await;
}
