//! Tests a Jetstream that lies, repeats lines or sends invalid ones: proven state stays
//! unchanged, the stream goes on, and a signed state ends every lie.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};
use gapless_harness::fake_jetstream::FakeJetstream;
use gapless_harness::{World, condition, new_path};
use gapless_mirror::api::RepoAnswer;
use gapless_store::table::log::LogKind;
use serde_json::{Value as Json, json};

use crate::mirror::jetstream::{
    claims, follow, now_us, passed, put, rev_after, told, until_claims,
};

/// By how much a lie is ahead of what was written, in microseconds.
const LIE_AHEAD: u64 = 20_000_000;

async fn until_passed(world: &World, reason: &str, count: u64) {
    world
        .until(reason, async |world: &World| {
            let passed = passed(world, reason);
            condition(passed >= count, &passed)
        })
        .await;
    assert_eq!(passed(world, reason), count, "{reason}");
}

/// A mirror that hears of the first repository by a lie: it is fetched, and the truth
/// is held; the lie is above it, and gone with the host's answer.
async fn lied_to() -> (World, FakeJetstream, Did, Json) {
    let mut world = World::network(told(2)).await;
    let jetstream = FakeJetstream::start().await;
    follow(&mut world, &jetstream.url).await;
    let did = world.did(0);
    let held = world.stall(0, "getLatestCommit", None);
    let (forged, cid) = put(&rev_after(LIE_AHEAD), &new_path(), "never written");
    jetstream.say_commit(now_us(), did.as_str(), &forged);
    until_claims(&world, &did, 1).await;
    let kept = claims(&world, &did)[0].1.record.clone();
    assert_eq!(kept.map(|(cid, _)| cid), Some::<Cid>(cid));
    world.clear(held).await;
    until_held(&world, &did).await;
    assert_eq!(claims(&world, &did), [], "the host knows of no such commit");
    (world, jetstream, did, forged)
}

/// Waits until the truth is held and nothing is owed.
async fn until_held(world: &World, did: &Did) {
    world
        .until("the truth is held", async |world: &World| {
            let answer = world.answer(did).await;
            let head = world.net.truth().head(did).expect("it exists");
            let there = answer.rev == Some(head.rev.to_string());
            condition(there && answer.debt.is_none(), &answer)
        })
        .await;
}

/// Nothing has changed since, and nothing was claimed or applied.
async fn assert_unmoved(world: &World, did: &Did, before: &RepoAnswer, log: u64) {
    let after = world.answer(did).await;
    assert_eq!((&after.rev, &after.account), (&before.rev, &before.account));
    assert_eq!(after.claims, before.claims);
    assert!(!after.complete);
    let view = world.mirror().services().store.view();
    for row in view.log_from(log).expect("it can be read") {
        let (_, row) = row.expect("it can be read");
        let passed = !matches!(row.kind, LogKind::Claimed(_) | LogKind::Live);
        assert!(
            passed || view.repo_id(did).expect("it reads") != row.repo,
            "{row:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forged_stale_or_no_record_changes_nothing_that_is_proven() {
    let (mut world, jetstream, did, forged) = lied_to().await;
    let (before, log) = (world.answer(&did).await, world.log_next());
    let say = |commit: &Json| jetstream.say_commit(now_us(), did.as_str(), commit);
    // A record that is not what its CID names.
    let (mut wrong, _) = put(&rev_after(LIE_AHEAD + 1), &new_path(), "one");
    wrong["record"]["text"] = "another".into();
    say(&wrong);
    until_passed(&world, "cid", 1).await;
    // Revs that are not newer than what is held, for what is held.
    let head = world.net.truth().head(&did).expect("it exists").rev;
    let held = world.some_path(&did);
    say(&put(&head.to_string(), &held, "replaced").0);
    until_passed(&world, "old", 1).await;
    let (collection, rkey) = held.split_once('/').expect("a path");
    say(&json!({
        "rev": "3jzfcijpj2z2a", "operation": "delete", "collection": collection, "rkey": rkey,
    }));
    until_passed(&world, "old", 2).await;
    // From tomorrow; and what is no record.
    say(&put(&rev_after(3_600_000_000), &new_path(), "tomorrow").0);
    until_passed(&world, "future", 1).await;
    let (mut float, _) = put(&rev_after(LIE_AHEAD + 2), &new_path(), "x");
    float["record"]["ratio"] = json!(1.5);
    say(&float);
    until_passed(&world, "record", 1).await;
    assert_unmoved(&world, &did, &before, log).await;
    // The same lie once more is asked about once more, and gone with the answer.
    say(&forged);
    world
        .until("it is claimed again", async |world: &World| {
            let kept = world.metrics().claims_kept.get();
            condition(kept == 2, &kept)
        })
        .await;
    until_held(&world, &did).await;
    assert_eq!(claims(&world, &did), []);
    assert_eq!(world.answer(&did).await.rev, before.rev);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_become_dead_letters_and_hints_hide_no_repository() {
    let (mut world, jetstream, did, _) = lied_to().await;
    let (before, log) = (world.answer(&did).await, world.log_next());
    let letters = world.metrics().dead_letters.get();
    let deep = format!(
        "{{\"did\":\"{did}\",\"time_us\":1,\"x\":{}",
        "[".repeat(5_000)
    );
    let twice = format!("{{\"did\":\"{did}\",\"did\":\"{did}\",\"time_us\":1}}");
    let types = format!("{{\"did\":\"{did}\",\"time_us\":\"{}\"}}", now_us());
    let no_rev =
        json!({"did": did.as_str(), "time_us": now_us(), "kind": "commit", "commit": {"rev": 1}});
    let no_rev = no_rev.to_string();
    for text in ["", "null", "\u{0}", &deep, &twice, &types, &no_rev] {
        jetstream.say(now_us(), text);
    }
    world
        .until("they are buried", async |world: &World| {
            let now = world.metrics().dead_letters.get();
            condition(now == letters + 7, &(now, letters))
        })
        .await;
    let deleted = json!({"did": did.as_str(), "active": false, "status": "deleted", "seq": 1});
    let renamed = json!({"did": did.as_str(), "handle": "x.test", "seq": 2});
    for (kind, body) in [("account", deleted), ("identity", renamed)] {
        let line = json!({"did": did.as_str(), "time_us": now_us(), "kind": kind, kind: body});
        jetstream.say(now_us(), line.to_string());
    }
    // The last line is about an unknown repository, which is then fetched.
    let other = world.did(1);
    let line =
        json!({"did": other.as_str(), "time_us": now_us(), "kind": "identity", "identity": {}});
    jetstream.say(now_us(), line.to_string());
    world
        .until("the last one is known", async |world: &World| {
            let answer = world.repo(&other).await;
            condition(
                answer.as_ref().is_some_and(|one| one.rev.is_some()),
                &answer,
            )
        })
        .await;
    assert_eq!(world.answer(&did).await.account, "active");
    assert_unmoved(&world, &did, &before, log).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_the_owner_signed_later_ends_the_lie() {
    let (mut world, jetstream, did, forged) = lied_to().await;
    let lie = forged["rev"].as_str().expect("text");
    let lie: Rev = lie.parse().expect("a rev");
    world
        .until("later than the lie", async |world: &World| {
            let written = world.post(&did).rev;
            condition(written > lie, &written)
        })
        .await;
    // Whatever else it says: that there is something newer is true.
    let (hint, _) = put(&rev_after(0), &new_path(), "something was written");
    jetstream.say_commit(now_us(), did.as_str(), &hint);
    until_held(&world, &did).await;
    assert_eq!(claims(&world, &did), []);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn few_made_up_dids_are_written_down_and_a_real_one_is_fetched() {
    const FEW: usize = 3;
    let mut world = World::network(told(2)).await;
    world.adjust = |config| config.mirror.newcomers = FEW;
    let jetstream = FakeJetstream::start().await;
    follow(&mut world, &jetstream.url).await;
    let made_up = (b'a'..=b't').map(|letter| {
        let name = (letter as char).to_string().repeat(24);
        Did::parse(&format!("did:plc:{name}")).expect("a DID")
    });
    let made_up: Vec<Did> = made_up.collect();
    for did in &made_up {
        let (commit, _) = put(&rev_after(0), &new_path(), "nobody wrote it");
        jetstream.say_commit(now_us(), did.as_str(), &commit);
    }
    let passed = (made_up.len() - FEW) as u64;
    world
        .until("the others are passed over", async |world: &World| {
            let now = world.metrics().newcomers_passed.get();
            condition(now == passed, &now)
        })
        .await;
    let did = world.did(0);
    let (commit, _) = put(&rev_after(0), &new_path(), "somebody wrote something");
    jetstream.say_commit(now_us(), did.as_str(), &commit);
    world
        .until("somebody is known", async |world: &World| {
            let answer = world.repo(&did).await;
            condition(answer.is_some(), &answer)
        })
        .await;
    until_held(&world, &did).await;
    assert_eq!(world.metrics().newcomers_passed.get(), passed + 1);
    assert_eq!(world.metrics().newcomers_known.get(), 1);
    let view = world.mirror().services().store.view();
    let known = |did: &&Did| view.repo_id(did).expect("it reads").is_some();
    assert_eq!(made_up.iter().filter(known).count(), FEW);
    drop(view);
    world.stop().await;
}
