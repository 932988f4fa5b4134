//! Tests R11: a difference (`getRepo` with `since`) is an optimisation, and counts only if it
//! leads to the signed root.

use gapless_core::ledger::diff::{self, DiffVerdict, RecomputedRoot, RepoRequest};
use gapless_core::ledger::event::Event;
use gapless_core::ledger::fetch::{self, Note, SnapshotDecision};
use gapless_core::ledger::*;

use crate::scenario::*;

/// A scenario in which five are held while the host names seven, and the note of the work.
fn owing() -> (Scenario, Note) {
    let mut scenario = Scenario::holding(5);
    let note = scenario.note();
    scenario.told(&note, fetch::HeadAnswer::Head(named(7)));
    assert_eq!(scenario.reasons(), ["fetch_owed"]);
    (scenario, note)
}

fn ask(scenario: &Scenario, note: &Note) -> RepoRequest {
    diff::choose_request(&scenario.settings, &scenario.repo, note, false, None)
}

/// What is held is `over`, and with the difference it hashes to the n-th root.
fn recomputed(over: u64, n: u64) -> Option<RecomputedRoot> {
    Some(RecomputedRoot {
        over: head(over).commit,
        root: root(n),
    })
}

#[test]
fn from_one_signed_state_only_what_is_new_is_asked_for() {
    let (scenario, note) = owing();
    assert_eq!(ask(&scenario, &note), RepoRequest::Since(rev(5)));
}

#[test]
fn without_one_signed_state_the_whole_is_asked_for() {
    let (mut scenario, note) = owing();
    scenario.repo.held = Held::Damaged { from: Some(rev(5)) };
    assert_eq!(ask(&scenario, &note), RepoRequest::InFull);
    let now = scenario.now();
    fetch::begin_snapshot(now, &mut scenario.repo, &snapshot(7));
    assert_eq!(ask(&scenario, &note), RepoRequest::InFull);
    let mut empty = Scenario::new();
    let note = empty.note();
    empty.told(&note, fetch::HeadAnswer::Head(named(7)));
    assert_eq!(ask(&empty, &note), RepoRequest::InFull);
}

#[test]
fn what_is_owed_for_the_contents_no_difference_brings() {
    for why in [
        DebtReason::Operator,
        DebtReason::StoreRepaired,
        DebtReason::Interrupted,
    ] {
        let (mut scenario, note) = owing();
        let now = scenario.now();
        debt::owe_fetch(now, &mut scenario.repo, why);
        assert_eq!(ask(&scenario, &note), RepoRequest::InFull, "{why:?}");
    }
}

#[test]
fn under_a_wider_filter_the_whole_is_asked_for_whatever_the_reason_is_called() {
    let (mut scenario, _) = owing();
    scenario.settings.filter = FilterGen(1);
    let note = scenario.note();
    assert_eq!(scenario.repo.debt.fetch.unwrap().why, DebtReason::NewerHead);
    assert_eq!(ask(&scenario, &note), RepoRequest::InFull);
}

#[test]
fn without_all_keys_no_root_could_be_recomputed() {
    let (mut scenario, note) = owing();
    scenario.settings.wanted_keys_only = true;
    assert_eq!(ask(&scenario, &note), RepoRequest::InFull);
}

#[test]
fn an_older_state_is_taken_over_whole() {
    let (scenario, note) = owing();
    let ask = diff::choose_request(&scenario.settings, &scenario.repo, &note, true, None);
    assert_eq!(ask, RepoRequest::InFull);
}

#[test]
fn from_one_state_a_difference_is_asked_for_once() {
    let (mut scenario, note) = owing();
    let tried = Some(rev(5));
    let ask = |scenario: &Scenario| {
        diff::choose_request(&scenario.settings, &scenario.repo, &note, false, tried)
    };
    assert_eq!(ask(&scenario), RepoRequest::InFull);
    scenario.event(PDS, &commit(6));
    assert_eq!(
        ask(&scenario),
        RepoRequest::Since(rev(6)),
        "from another state, again"
    );
}

#[test]
fn a_difference_that_leads_to_the_signed_root_is_a_snapshot_like_any_other() {
    let (mut scenario, note) = owing();
    let verdict = diff::judge_difference(&scenario.repo, &note, &head(7), recomputed(5, 7));
    assert_eq!(verdict, DiffVerdict::Snapshot);
    assert_eq!(scenario.apply(&note, 7, 7), SnapshotDecision::Write);
    assert!(scenario.head_is(7) && scenario.complete());
}

#[test]
fn a_difference_with_a_wrong_root_is_fetched_in_full_without_a_failure() {
    let (scenario, note) = owing();
    let before = scenario.repo.clone();
    // An operation is left out; nothing came; it does not even fit.
    for recomputed in [recomputed(5, 6), recomputed(5, 5), None] {
        let verdict = diff::judge_difference(&scenario.repo, &note, &head(7), recomputed);
        assert_eq!(verdict, DiffVerdict::InFull);
    }
    assert_eq!(
        scenario.repo, before,
        "no try is counted, nothing is put off"
    );
}

#[test]
fn a_head_that_moved_meanwhile_is_no_obstacle_if_the_root_comes_out_right() {
    let (mut scenario, note) = owing();
    assert_eq!(ask(&scenario, &note), RepoRequest::Since(rev(5)));
    scenario.event(PDS, &commit(6));
    let verdict = diff::judge_difference(&scenario.repo, &note, &head(7), recomputed(6, 7));
    assert_eq!(verdict, DiffVerdict::Snapshot);
    let verdict = diff::judge_difference(&scenario.repo, &note, &head(7), recomputed(6, 8));
    assert_eq!(verdict, DiffVerdict::InFull);
    // Right, but over what is not held any more: it would not be right now.
    let verdict = diff::judge_difference(&scenario.repo, &note, &head(7), recomputed(5, 7));
    assert_eq!(verdict, DiffVerdict::InFull);
}

#[test]
fn a_difference_that_live_commits_have_passed_fetches_nothing_more() {
    let (mut scenario, note) = owing();
    for n in 6..=8 {
        scenario.event(PDS, &commit(n));
    }
    assert!(scenario.complete(), "the stream brought it");
    let verdict = diff::judge_difference(&scenario.repo, &note, &head(7), recomputed(8, 9));
    assert_eq!(verdict, DiffVerdict::Passed);
    let verdict = diff::judge_difference(&scenario.repo, &note, &head(8), recomputed(8, 8));
    assert_eq!(verdict, DiffVerdict::Snapshot, "what is held is not passed");
}

#[test]
fn without_a_state_to_lay_it_over_a_difference_is_nothing() {
    let (mut scenario, note) = owing();
    let now = scenario.now();
    fetch::begin_snapshot(now, &mut scenario.repo, &snapshot(6));
    let verdict = diff::judge_difference(&scenario.repo, &note, &head(7), recomputed(5, 7));
    assert_eq!(verdict, DiffVerdict::InFull);
}

#[test]
fn a_difference_over_what_an_older_filter_left_does_not_widen_it() {
    let mut scenario = Scenario::holding(5);
    let old = scenario.note();
    scenario.settings.filter = FilterGen(1);
    let wide = scenario.note();
    scenario.apply(&wide, 5, 5);
    assert_eq!(ask(&scenario, &wide), RepoRequest::Since(rev(5)));
    // Work that began under the old filter ends last.
    scenario.apply(&old, 6, 6);
    let verdict = diff::judge_difference(&scenario.repo, &wide, &head(7), recomputed(6, 7));
    assert_eq!(verdict, DiffVerdict::InFull);
}

#[test]
fn an_older_difference_than_the_named_head_is_progress_and_the_debt_stays() {
    let (mut scenario, note) = owing();
    let verdict = diff::judge_difference(&scenario.repo, &note, &head(6), recomputed(5, 6));
    assert_eq!(verdict, DiffVerdict::Snapshot);
    scenario.apply(&note, 7, 6);
    assert!(scenario.head_is(6));
    assert_eq!(scenario.reasons(), ["fetch_owed"]);
    // Nor does a right one restore what was unset meanwhile.
    let note = scenario.note();
    scenario.event(PDS, &Event::Unsigned);
    scenario.apply(&note, 7, 7);
    assert_eq!(scenario.reasons(), ["not_compared", "compare_owed"]);
}
