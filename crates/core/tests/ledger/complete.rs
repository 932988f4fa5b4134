//! R3: completeness as a computed answer.

use std::time::Duration;

use gapless_core::ledger::complete::Level;
use gapless_core::ledger::event::Event;
use gapless_core::ledger::*;

use crate::desk::*;

#[test]
fn anything_unset_means_not_complete() {
    let mut desk = Desk::holding(5);
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
    let whole = desk.repo.clone();
    for (change, reason) in unset {
        desk.repo = whole.clone();
        assert!(desk.complete());
        change(&mut desk.repo);
        assert!(desk.reasons().contains(&reason), "{reason}");
    }
}

#[test]
fn a_new_repository_is_complete_in_no_respect() {
    let mut desk = Desk::holding(5);
    desk.repo = Repo::new(desk.repo.did.clone());
    assert!(!desk.complete());
    assert_eq!(desk.answer().evidence.level, Level::Unknown);
}

#[test]
fn a_cover_that_goes_down_makes_all_incomplete_with_no_write() {
    let mut desk = Desk::holding(5);
    let row = desk.repo.clone();
    desk.lost(PDS);
    assert!(desk.complete(), "within the grace");
    desk.pass(desk.settings.live_grace + Duration::from_secs(1));
    assert_eq!(desk.reasons(), ["cover_down"]);
    assert_eq!(desk.repo, row);
    desk.connect(PDS, None);
    assert_eq!(
        desk.reasons(),
        ["cover_down"],
        "continuity is not shown yet"
    );
    desk.frame(PDS, 100, 0);
    assert!(desk.complete());
}

#[test]
fn a_reset_makes_all_incomplete_with_one_row() {
    let mut desk = Desk::holding(5);
    let row = desk.repo.clone();
    desk.reset(PDS);
    assert_eq!(desk.reasons(), ["epoch_changed"]);
    assert_eq!(desk.repo, row);
}

#[test]
fn no_cover_is_a_reason() {
    let mut desk = Desk::holding(5);
    let now = desk.now().tick;
    desk.covers.remove(now, PDS);
    let now = desk.now().tick;
    desk.covers.remove(now, RELAY);
    assert_eq!(desk.reasons(), ["no_cover"]);
}

#[test]
fn the_answer_is_as_of_the_older_of_stream_and_sweep() {
    let mut desk = Desk::holding(5);
    let swept = desk.repo.swept.unwrap().at;
    desk.pass(Duration::from_secs(40));
    desk.frame(PDS, 900, 1);
    let heard = desk.time;
    assert_eq!(desk.answer().as_of, Some(swept));
    desk.pass(Duration::from_secs(40));
    desk.compared(5);
    assert_eq!(desk.answer().as_of, Some(heard));
    let now = desk.now();
    desk.covers.get_mut(PDS).unwrap().stream.pong(now);
    let answer = desk.answer();
    assert_eq!(answer.as_of, Some(heard), "what was read is on its way");
    desk.settled(PDS, 899);
    assert_eq!(desk.answer().as_of, Some(heard));
    desk.settled(PDS, 900);
    assert!(desk.answer().as_of > Some(heard), "a pong is news too");
}

#[test]
fn evidence_says_how_we_know() {
    let mut desk = Desk::holding(5);
    assert_eq!(desk.answer().evidence.level, Level::Chained);
    assert_eq!(desk.answer().evidence.via, Some(PDS));
    desk.repo.proven = Some(RootProof {
        rev: rev(5),
        at: Time(7),
    });
    assert_eq!(desk.answer().evidence.level, Level::Proven);
    desk.event(PDS, &commit(6));
    let evidence = desk.answer().evidence;
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
    let mut desk = Desk::holding(5);
    desk.event(PDS, &sync(8));
    desk.event(PDS, &Event::Unsigned);
    desk.event(PDS, &Event::Account(Account::Takendown));
    desk.settings.filter = FilterGen(4);
    assert_eq!(
        desk.reasons(),
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
    let mut desk = Desk::holding(5);
    desk.repo.account = Account::Unknown;
    desk.repo.marker = None;
    desk.repo.first_rev_since_reset = None;
    assert_eq!(desk.reasons(), ["not_compared"]);
}
