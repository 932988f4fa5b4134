//! Tests R3: completeness is computed from the rows, and the reasons against it are named.

use std::time::Duration;

use gapless_core::ledger::complete::Level;
use gapless_core::ledger::event::Event;
use gapless_core::ledger::*;

use crate::scenario::*;

#[test]
fn anything_unset_means_not_complete() {
    let mut scenario = Scenario::holding(5);
    type Unset = fn(&mut Repo);
    let unset: [(Unset, &str); 8] = [
        (|repo| repo.held = Held::Nothing, "no_snapshot"),
        (|repo| repo.marker = None, "not_compared"),
        (|repo| repo.first_rev_since_reset = None, "not_compared"),
        (|repo| repo.account = Account::Unknown, "not_compared"),
        (|repo| repo.host = None, "not_compared"),
        (
            |repo| repo.first_rev_since_reset = Some(rev(6)),
            "newer_commit_known",
        ),
        (|repo| repo.held = Held::Damaged { from: None }, "damaged"),
        (
            |repo| {
                repo.behind = Some(Behind {
                    named: named(4),
                    since: Time(0),
                    times: 1,
                    counted_at: Time(0),
                })
            },
            "host_behind",
        ),
    ];
    let whole = scenario.repo.clone();
    for (change, reason) in unset {
        scenario.repo = whole.clone();
        assert!(scenario.complete());
        change(&mut scenario.repo);
        assert!(scenario.reasons().contains(&reason), "{reason}");
    }
}

#[test]
fn a_new_repository_is_complete_in_no_respect() {
    let mut scenario = Scenario::holding(5);
    scenario.repo = Repo::new(scenario.repo.did.clone());
    assert!(!scenario.complete());
    assert_eq!(scenario.answer().evidence.level, Level::Unknown);
}

#[test]
fn a_cover_that_goes_down_makes_all_incomplete_with_no_write() {
    let mut scenario = Scenario::holding(5);
    let row = scenario.repo.clone();
    scenario.lost(PDS);
    assert!(scenario.complete(), "within the grace");
    scenario.pass(scenario.settings.live_grace + Duration::from_secs(1));
    assert_eq!(scenario.reasons(), ["cover_down"]);
    assert_eq!(scenario.repo, row);
    scenario.connect(PDS, None);
    assert_eq!(
        scenario.reasons(),
        ["cover_down"],
        "continuity is not shown yet"
    );
    scenario.frame(PDS, 100, 0);
    assert!(scenario.complete());
}

#[test]
fn a_reset_makes_all_incomplete_with_one_row() {
    let mut scenario = Scenario::holding(5);
    let row = scenario.repo.clone();
    scenario.reset(PDS);
    assert_eq!(scenario.reasons(), ["epoch_changed"]);
    assert_eq!(scenario.repo, row);
}

#[test]
fn no_cover_is_a_reason() {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now().tick;
    scenario.covers.remove(now, PDS);
    let now = scenario.now().tick;
    scenario.covers.remove(now, RELAY);
    assert_eq!(scenario.reasons(), ["no_cover"]);
}

#[test]
fn the_answer_is_as_of_the_older_of_stream_and_sweep() {
    let mut scenario = Scenario::holding(5);
    let swept = scenario.repo.swept.unwrap().at;
    scenario.pass(Duration::from_secs(40));
    scenario.frame(PDS, 900, 1);
    let heard = scenario.time;
    assert_eq!(scenario.answer().as_of, Some(swept));
    scenario.pass(Duration::from_secs(40));
    scenario.compared(5);
    assert_eq!(scenario.answer().as_of, Some(heard));
    let now = scenario.now();
    scenario.covers.get_mut(PDS).unwrap().stream.pong(now);
    let answer = scenario.answer();
    assert_eq!(answer.as_of, Some(heard), "what was read is on its way");
    scenario.settled(PDS, 899);
    assert_eq!(scenario.answer().as_of, Some(heard));
    scenario.settled(PDS, 900);
    assert!(scenario.answer().as_of > Some(heard), "a pong is news too");
}

#[test]
fn evidence_says_how_we_know() {
    let mut scenario = Scenario::holding(5);
    assert_eq!(scenario.answer().evidence.level, Level::Chained);
    assert_eq!(scenario.answer().evidence.via, Some(PDS));
    scenario.repo.proven = Some(RootProof {
        rev: rev(5),
        at: Time(7),
    });
    assert_eq!(scenario.answer().evidence.level, Level::Proven);
    scenario.event(PDS, &commit(6));
    let evidence = scenario.answer().evidence;
    assert_eq!(evidence.level, Level::Chained, "proven was another state");
    assert_eq!(evidence.proven_at, Some(Time(7)));
}

#[test]
fn reasons_have_names_that_do_not_change() {
    use gapless_core::ledger::complete::Reason::*;
    let names = [
        (NoSnapshot, "no_snapshot"),
        (Applying, "applying"),
        (Damaged, "damaged"),
        (NoCover, "no_cover"),
        (CoverDown, "cover_down"),
        (EpochChanged, "epoch_changed"),
        (UnreadableFrame, "unreadable_frame"),
        (NotCompared, "not_compared"),
        (NewerCommitKnown, "newer_commit_known"),
        (HostBehind, "host_behind"),
        (Inactive, "inactive"),
        (ResolveOwed, "resolve_owed"),
        (CompareOwed, "compare_owed"),
        (FetchOwed, "fetch_owed"),
        (FilterChanged, "filter_changed"),
    ];
    for (reason, name) in names {
        assert_eq!(reason.to_string(), name);
    }
}

#[test]
fn several_reasons_are_all_named() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &sync(8));
    scenario.event(PDS, &Event::Unsigned);
    scenario.event(PDS, &Event::Account(Account::Takendown));
    scenario.settings.filter = FilterGen(4);
    assert_eq!(
        scenario.reasons(),
        [
            "inactive",
            "not_compared",
            "newer_commit_known",
            "resolve_owed",
            "compare_owed",
            "fetch_owed",
            "filter_changed"
        ]
    );
}

#[test]
fn a_reason_is_named_once() {
    let mut scenario = Scenario::holding(5);
    scenario.repo.account = Account::Unknown;
    scenario.repo.marker = None;
    scenario.repo.first_rev_since_reset = None;
    assert_eq!(scenario.reasons(), ["not_compared"]);
}
