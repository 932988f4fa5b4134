//! R11: a difference is an optimisation, and counts when the root comes out right.

use gapless_core::ledger::diff::{self, DiffVerdict, RecomputedRoot, RepoRequest};
use gapless_core::ledger::event::Event;
use gapless_core::ledger::fetch::{self, Note, SnapshotDecision};
use gapless_core::ledger::*;

use crate::desk::*;

/// A desk that holds five while the host names seven, and the note of the work.
fn owing() -> (Desk, Note) {
    let mut desk = Desk::holding(5);
    let note = desk.note();
    desk.told(&note, fetch::HeadAnswer::Head(named(7)));
    assert_eq!(desk.reasons(), ["fetch_owed"]);
    (desk, note)
}

fn ask(desk: &Desk, note: &Note) -> RepoRequest {
    diff::choose_request(&desk.settings, &desk.repo, note, false, None)
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
    let (desk, note) = owing();
    assert_eq!(ask(&desk, &note), RepoRequest::Since(rev(5)));
}

#[test]
fn without_one_signed_state_the_whole_is_asked_for() {
    let (mut desk, note) = owing();
    desk.repo.held = Held::Damaged { from: Some(rev(5)) };
    assert_eq!(ask(&desk, &note), RepoRequest::InFull);
    let now = desk.now();
    fetch::begin_snapshot(now, &mut desk.repo, &snapshot(7));
    assert_eq!(ask(&desk, &note), RepoRequest::InFull);
    let mut empty = Desk::new();
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
        let (mut desk, note) = owing();
        let now = desk.now();
        debt::owe_fetch(now, &mut desk.repo, why);
        assert_eq!(ask(&desk, &note), RepoRequest::InFull, "{why:?}");
    }
}

#[test]
fn under_a_wider_filter_the_whole_is_asked_for_whatever_the_reason_is_called() {
    let (mut desk, _) = owing();
    desk.settings.filter = FilterGen(1);
    let note = desk.note();
    assert_eq!(desk.repo.debt.fetch.unwrap().why, DebtReason::NewerHead);
    assert_eq!(ask(&desk, &note), RepoRequest::InFull);
}

#[test]
fn without_all_keys_no_root_could_be_recomputed() {
    let (mut desk, note) = owing();
    desk.settings.wanted_keys_only = true;
    assert_eq!(ask(&desk, &note), RepoRequest::InFull);
}

#[test]
fn an_older_state_is_taken_over_whole() {
    let (desk, note) = owing();
    let ask = diff::choose_request(&desk.settings, &desk.repo, &note, true, None);
    assert_eq!(ask, RepoRequest::InFull);
}

#[test]
fn from_one_state_a_difference_is_asked_for_once() {
    let (mut desk, note) = owing();
    let tried = Some(rev(5));
    let ask = |desk: &Desk| diff::choose_request(&desk.settings, &desk.repo, &note, false, tried);
    assert_eq!(ask(&desk), RepoRequest::InFull);
    desk.event(PDS, &commit(6));
    assert_eq!(
        ask(&desk),
        RepoRequest::Since(rev(6)),
        "from another state, again"
    );
}

#[test]
fn a_difference_that_leads_to_the_signed_root_is_a_snapshot_like_any_other() {
    let (mut desk, note) = owing();
    let verdict = diff::judge_difference(&desk.repo, &note, &head(7), recomputed(5, 7));
    assert_eq!(verdict, DiffVerdict::Snapshot);
    assert_eq!(desk.apply(&note, 7, 7), SnapshotDecision::Write);
    assert!(desk.head_is(7) && desk.complete());
}

#[test]
fn a_difference_that_leads_elsewhere_is_asked_for_in_full_and_is_nobodys_failure() {
    let (desk, note) = owing();
    let before = desk.repo.clone();
    // An operation is left out; nothing came; it does not even fit.
    for recomputed in [recomputed(5, 6), recomputed(5, 5), None] {
        let verdict = diff::judge_difference(&desk.repo, &note, &head(7), recomputed);
        assert_eq!(verdict, DiffVerdict::InFull);
    }
    assert_eq!(desk.repo, before, "no try is counted, nothing is put off");
}

#[test]
fn a_head_that_moved_meanwhile_is_no_obstacle_if_the_root_comes_out_right() {
    let (mut desk, note) = owing();
    assert_eq!(ask(&desk, &note), RepoRequest::Since(rev(5)));
    desk.event(PDS, &commit(6));
    let verdict = diff::judge_difference(&desk.repo, &note, &head(7), recomputed(6, 7));
    assert_eq!(verdict, DiffVerdict::Snapshot);
    let verdict = diff::judge_difference(&desk.repo, &note, &head(7), recomputed(6, 8));
    assert_eq!(verdict, DiffVerdict::InFull);
    // Right, but over what is not held any more: it would not be right now.
    let verdict = diff::judge_difference(&desk.repo, &note, &head(7), recomputed(5, 7));
    assert_eq!(verdict, DiffVerdict::InFull);
}

#[test]
fn a_difference_that_live_commits_have_passed_fetches_nothing_more() {
    let (mut desk, note) = owing();
    for n in 6..=8 {
        desk.event(PDS, &commit(n));
    }
    assert!(desk.complete(), "the stream brought it");
    let verdict = diff::judge_difference(&desk.repo, &note, &head(7), recomputed(8, 9));
    assert_eq!(verdict, DiffVerdict::Passed);
    let verdict = diff::judge_difference(&desk.repo, &note, &head(8), recomputed(8, 8));
    assert_eq!(verdict, DiffVerdict::Snapshot, "what is held is not passed");
}

#[test]
fn without_a_state_to_lay_it_over_a_difference_is_nothing() {
    let (mut desk, note) = owing();
    let now = desk.now();
    fetch::begin_snapshot(now, &mut desk.repo, &snapshot(6));
    let verdict = diff::judge_difference(&desk.repo, &note, &head(7), recomputed(5, 7));
    assert_eq!(verdict, DiffVerdict::InFull);
}

#[test]
fn a_difference_over_what_an_older_filter_left_does_not_widen_it() {
    let mut desk = Desk::holding(5);
    let old = desk.note();
    desk.settings.filter = FilterGen(1);
    let wide = desk.note();
    desk.apply(&wide, 5, 5);
    assert_eq!(ask(&desk, &wide), RepoRequest::Since(rev(5)));
    // Work that began under the old filter ends last.
    desk.apply(&old, 6, 6);
    let verdict = diff::judge_difference(&desk.repo, &wide, &head(7), recomputed(6, 7));
    assert_eq!(verdict, DiffVerdict::InFull);
}

#[test]
fn an_older_difference_than_the_named_head_is_progress_and_the_debt_stays() {
    let (mut desk, note) = owing();
    let verdict = diff::judge_difference(&desk.repo, &note, &head(6), recomputed(5, 6));
    assert_eq!(verdict, DiffVerdict::Snapshot);
    desk.apply(&note, 7, 6);
    assert!(desk.head_is(6));
    assert_eq!(desk.reasons(), ["fetch_owed"]);
    // Nor does a right one restore what was unset meanwhile.
    let note = desk.note();
    desk.event(PDS, &Event::Unsigned);
    desk.apply(&note, 7, 7);
    assert_eq!(desk.reasons(), ["not_compared", "compare_owed"]);
}
