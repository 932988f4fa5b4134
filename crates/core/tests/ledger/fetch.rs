//! Tests R10 and R15: heads that a host names, and snapshots.

use gapless_core::ledger::event::{Context, Event};
use gapless_core::ledger::fetch::{self, HeadAnswer, Next, SnapshotDecision};
use gapless_core::ledger::sweep;
use gapless_core::ledger::*;

use crate::scenario::*;

#[test]
fn a_snapshot_of_the_named_head_makes_it_complete() {
    let mut scenario = Scenario::new();
    scenario.fetched(5, 5);
    assert!(scenario.complete());
    assert_eq!(scenario.repo.last_indexed_rev, Some(rev(5)));
    assert_eq!(scenario.repo.first_rev_since_reset, Some(rev(5)));
}

#[test]
fn an_older_snapshot_than_the_named_head_is_progress_and_the_debt_stays() {
    let mut scenario = Scenario::new();
    scenario.fetched(7, 5);
    assert!(scenario.head_is(5), "better than nothing");
    assert!(!scenario.complete());
    assert!(scenario.notices.contains(&Notice::SnapshotStale));
    assert!(scenario.repo.debt.fetch.is_some());
    assert_eq!(scenario.repo.marker, None);
    scenario.fetched(7, 7);
    assert!(scenario.complete());
}

#[test]
fn a_newer_snapshot_than_the_named_head_counts() {
    let mut scenario = Scenario::new();
    scenario.fetched(5, 6);
    assert!(scenario.head_is(6));
    assert!(scenario.complete());
}

#[test]
fn a_snapshot_of_the_named_commit_counts_whatever_rev_the_host_gives_it() {
    let mut scenario = Scenario::new();
    let note = scenario.note();
    let imported = NamedHead {
        rev: rev(9),
        ..named(5)
    };
    scenario.told(&note, HeadAnswer::Head(imported));
    assert_eq!(scenario.consider(&note, 5), SnapshotDecision::Write);
    let now = scenario.now();
    fetch::finish_snapshot(now, &mut scenario.repo, &note, &snapshot(5));
    let context = Context {
        now,
        covers: &scenario.covers,
        settings: &scenario.settings,
    };
    let (repo, notices) = (&mut scenario.repo, &mut scenario.notices);
    fetch::settle_snapshot(context, repo, &note, &imported, &snapshot(5), notices);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
}

#[test]
fn the_epoch_is_the_one_noted_before_the_first_question() {
    let mut scenario = Scenario::new();
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::Head(named(5)));
    scenario.reset(PDS);
    scenario.apply(&note, 5, 5);
    assert!(scenario.head_is(5), "the state is exact all the same");
    assert_eq!(scenario.reasons(), ["epoch_changed", "compare_owed"]);
}

#[test]
fn a_reset_while_a_snapshot_is_written_leaves_the_question_owed() {
    let mut scenario = Scenario::new();
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::Head(named(5)));
    let now = scenario.now();
    fetch::begin_snapshot(now, &mut scenario.repo, &snapshot(5));
    scenario.reset(PDS);
    // The sweep that the reset asks for comes while nothing exact is held.
    let page = scenario.with_context(|context, _| sweep::take_page_note(context, HOST));
    let entry = sweep::ListingEntry {
        named: named(5),
        account: Account::Active,
    };
    scenario.with_context(|context, repo| sweep::judge_entry(context, repo, &page, &entry));
    let began = Now {
        tick: page.at,
        time: scenario.time,
        lived: Lived::default(),
    };
    sweep::finish(&mut scenario.host, began);
    let now = scenario.now();
    fetch::finish_snapshot(now, &mut scenario.repo, &note, &snapshot(5));
    scenario.settle(&note, 5, 5);
    assert_eq!(scenario.reasons(), ["epoch_changed", "compare_owed"]);
    scenario.compared(5);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
    let swept = scenario
        .answer()
        .evidence
        .swept
        .expect("it was asked about");
    assert_eq!(swept.by, SweepSource::Head);
}

#[test]
fn a_fetch_that_ends_before_the_epoch_opens_owes_nothing_more() {
    let mut scenario = Scenario::new();
    scenario
        .covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    scenario.connect(PDS, None);
    scenario.fetched(5, 5);
    assert!(scenario.owes_nothing(), "a sweep follows the opening");
}

#[test]
fn what_a_host_said_is_about_the_time_at_which_it_was_asked() {
    let mut scenario = Scenario::new();
    let note = scenario.note();
    let asked = scenario.time;
    scenario.told(&note, HeadAnswer::Head(named(5)));
    scenario.pass(std::time::Duration::from_secs(600));
    scenario.apply(&note, 5, 5);
    assert!(scenario.complete());
    assert_eq!(
        scenario.answer().evidence.swept.map(|swept| swept.at),
        Some(asked)
    );
}

#[test]
fn an_answer_that_live_commits_have_passed_is_asked_for_again_while_nothing_vouches() {
    let mut scenario = Scenario::holding(5);
    scenario.reset(PDS);
    let note = scenario.note();
    scenario.event(RELAY, &commit(6));
    scenario.event(RELAY, &commit(7));
    assert_eq!(scenario.told(&note, HeadAnswer::Head(named(6))), Next::Done);
    assert_eq!(scenario.reasons(), ["epoch_changed", "compare_owed"]);
    scenario.compared(7);
    assert!(scenario.complete());
    let note = scenario.note();
    scenario.event(PDS, &commit(8));
    scenario.event(PDS, &commit(9));
    scenario.told(&note, HeadAnswer::Head(named(8)));
    assert!(scenario.complete(), "its own stream has brought them");
}

#[test]
fn what_began_while_no_epoch_was_open_raises_nothing() {
    let mut scenario = Scenario::new();
    scenario
        .covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    scenario.connect(PDS, None);
    let note = scenario.note();
    assert_eq!(note.cover, None);
    scenario.told(&note, HeadAnswer::Head(named(5)));
    scenario.frame(PDS, 1, 1);
    scenario.apply(&note, 5, 5);
    assert_eq!(scenario.reasons(), ["not_compared", "compare_owed"]);
}

#[test]
fn a_marker_unset_meanwhile_stays_unset() {
    for fetched in [false, true] {
        let mut scenario = Scenario::holding(5);
        let note = scenario.note();
        scenario.event(PDS, &Event::Unsigned);
        if fetched {
            scenario.apply(&note, 5, 5);
        } else {
            scenario.told(&note, HeadAnswer::Head(named(5)));
        }
        assert_eq!(scenario.repo.marker, None);
        assert_eq!(scenario.reasons(), ["not_compared", "compare_owed"]);
    }
}

#[test]
fn a_snapshot_that_live_commits_have_passed_is_discarded() {
    let mut scenario = Scenario::holding(5);
    let note = scenario.note();
    scenario.event(PDS, &commit(6));
    assert_eq!(scenario.apply(&note, 5, 5), SnapshotDecision::Discard);
    assert!(scenario.head_is(6));
    assert!(scenario.complete());
}

#[test]
fn an_equal_snapshot_is_written_all_the_same_and_another_of_its_rev_is_not() {
    let mut scenario = Scenario::holding(5);
    let note = scenario.note();
    assert_eq!(scenario.consider(&note, 5), SnapshotDecision::Write);
    let mut fork = head(5);
    fork.commit = cid("another");
    scenario.repo.held = Held::Exactly(fork);
    assert_eq!(scenario.consider(&note, 5), SnapshotDecision::Discard);
}

#[test]
fn a_snapshot_of_a_host_it_has_left_is_discarded() {
    let mut scenario = Scenario::holding(5);
    let note = scenario.note();
    scenario.resolved(OTHER_HOST, 2);
    assert_eq!(scenario.consider(&note, 7), SnapshotDecision::Discard);
    let next = scenario.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(next, Next::Done);
    assert!(!scenario.complete());
}

#[test]
fn a_snapshot_from_the_future_is_discarded() {
    let mut scenario = Scenario::new();
    let note = scenario.note();
    scenario.time = Time(head(9).rev.micros() - 6 * 60 * 1_000_000);
    assert_eq!(scenario.consider(&note, 9), SnapshotDecision::Discard);
}

#[test]
fn the_host_names_our_head_and_nothing_is_fetched() {
    let mut scenario = Scenario::holding(5);
    scenario.reset(PDS);
    assert_eq!(scenario.compared(5), Next::Done);
    assert!(scenario.complete());
    let evidence = scenario.answer().evidence;
    assert_eq!(evidence.swept.unwrap().by, SweepSource::Head);
}

#[test]
fn the_host_names_a_newer_head_and_until_it_is_fetched_it_is_owed() {
    let mut scenario = Scenario::holding(5);
    assert_eq!(scenario.compared(7), Next::Fetch(named(7)));
    assert_eq!(scenario.reasons(), ["fetch_owed"]);
    // Not even an older commit that chains meanwhile changes that.
    scenario.event(PDS, &commit(6));
    assert_eq!(scenario.reasons(), ["fetch_owed"]);
    scenario.event(PDS, &commit(7));
    assert!(scenario.complete(), "the stream brought what was named");
}

#[test]
fn an_answer_that_live_commits_have_passed_is_asked_for_again() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Unsigned);
    let note = scenario.note();
    scenario.event(PDS, &commit(6));
    scenario.event(PDS, &commit(7));
    assert_eq!(scenario.told(&note, HeadAnswer::Head(named(6))), Next::Done);
    assert_eq!(scenario.reasons(), ["compare_owed"]);
    assert_eq!(scenario.repo.behind, None, "the host is not behind");
    assert!(
        debt::plan_work(scenario.time, &scenario.repo).is_some(),
        "at once"
    );
}

#[test]
fn a_large_snapshot_is_no_state_until_its_last_batch() {
    let mut scenario = Scenario::holding(5);
    let note = scenario.note();
    let now = scenario.now();
    fetch::begin_snapshot(now, &mut scenario.repo, &snapshot(7));
    assert!(scenario.reasons().contains(&"applying"));
    assert_eq!(scenario.repo.head(), None);
    // A crash here: the row says so, and the fetch is owed.
    assert_eq!(
        scenario.repo.debt.fetch.unwrap().why,
        DebtReason::Interrupted
    );
    let now = scenario.now();
    fetch::finish_snapshot(now, &mut scenario.repo, &note, &snapshot(7));
    scenario.settle(&note, 7, 7);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
}

#[test]
fn an_interrupted_snapshot_is_fetched_again_and_not_from_before_the_last_state() {
    let mut scenario = Scenario::holding(5);
    let note = scenario.note();
    let now = scenario.now();
    fetch::begin_snapshot(now, &mut scenario.repo, &snapshot(7));
    assert_eq!(scenario.consider(&note, 4), SnapshotDecision::Discard);
    assert_eq!(
        scenario.consider(&note, 5),
        SnapshotDecision::Write,
        "an exact state again"
    );
    assert_eq!(scenario.apply(&note, 7, 6), SnapshotDecision::Write);
    assert_eq!(
        scenario.reasons(),
        ["newer_commit_known", "fetch_owed"],
        "seven was signed"
    );
    scenario.fetched(7, 7);
    assert!(scenario.complete());
}

#[test]
fn what_the_disk_lost_is_fetched_even_when_the_heads_are_equal() {
    let mut scenario = Scenario::holding(5);
    scenario.repo.held = Held::Damaged { from: Some(rev(5)) };
    assert_eq!(scenario.reasons(), ["damaged"]);
    scenario.fetched(5, 5);
    assert!(scenario.complete());
}

#[test]
fn a_wider_filter_owes_a_fetch_that_equal_heads_do_not_pay() {
    let mut scenario = Scenario::holding(5);
    scenario.settings.filter = FilterGen(1);
    assert_eq!(scenario.reasons(), ["filter_changed"]);
    assert_eq!(scenario.compared(5), Next::Fetch(named(5)));
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::Head(named(5)));
    scenario.apply(&note, 5, 5);
    assert!(scenario.complete());
}

#[test]
fn a_walk_pays_for_a_filter_unless_a_newer_commit_is_known() {
    let walked = |newer: bool| {
        let mut scenario = Scenario::holding(5);
        scenario.settings.filter = FilterGen(2);
        scenario.note();
        let note = scenario.note();
        if newer {
            // Hidden behind the debt for the filter, which outlasts it.
            scenario.event(PDS, &commit(9));
        }
        let now = scenario.now();
        let paid = fetch::filter_walked(now, &mut scenario.repo, &note, head(5).commit);
        assert_eq!(scenario.owes_nothing(), paid);
        paid
    };
    assert!(walked(false));
    assert!(!walked(true), "nothing else would fetch it");
}

#[test]
fn a_filter_changed_during_a_fetch_is_owed_still() {
    let mut scenario = Scenario::new();
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::Head(named(5)));
    scenario.settings.filter = FilterGen(1);
    scenario.apply(&note, 5, 5);
    assert_eq!(scenario.reasons(), ["filter_changed"]);
}

#[test]
fn a_commit_known_from_elsewhere_and_not_to_the_host_is_not_forgotten() {
    let mut scenario = Scenario::holding(5);
    scenario.event(OTHER, &commit(9));
    scenario.resolved(HOST, 1);
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::Head(named(7)));
    assert!(scenario.repo.behind.is_some(), "the owner signed nine");
    assert!(!scenario.complete());
}

#[test]
fn a_snapshot_signed_with_a_former_key_says_so() {
    let mut scenario = Scenario::new();
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::Head(named(5)));
    let old = fetch::CheckedHead {
        head: head(5),
        key: SignerKey::Previous,
    };
    let now = scenario.now();
    fetch::finish_snapshot(now, &mut scenario.repo, &note, &old);
    scenario.settle(&note, 5, 5);
    assert!(scenario.complete());
    assert_eq!(scenario.answer().evidence.key, SignerKey::Previous);
    scenario.event(PDS, &commit(6));
    assert_eq!(scenario.answer().evidence.key, SignerKey::Present);
}

#[test]
fn revs_never_go_back_within_one_lineage() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(6));
    let note = scenario.note();
    let now = scenario.now();
    fetch::finish_snapshot(now, &mut scenario.repo, &note, &snapshot(7));
    assert_eq!(scenario.repo.last_indexed_rev, Some(rev(7)));
    fetch::finish_snapshot(now, &mut scenario.repo, &note, &snapshot(7));
    assert_eq!(scenario.repo.last_indexed_rev, Some(rev(7)));
    assert_eq!(scenario.repo.last_firehose_rev, Some(rev(6)));
}

#[test]
fn another_commit_of_the_named_rev_is_not_the_named_head() {
    let mut scenario = Scenario::new();
    let note = scenario.note();
    let fork = NamedHead {
        rev: rev(5),
        commit: cid("another"),
    };
    scenario.told(&note, HeadAnswer::Head(fork));
    let now = scenario.now();
    fetch::finish_snapshot(now, &mut scenario.repo, &note, &snapshot(5));
    let mut notices = Vec::new();
    scenario.with_context(|context, repo| {
        fetch::settle_snapshot(context, repo, &note, &fork, &snapshot(5), &mut notices)
    });
    assert!(!scenario.complete());
    assert!(
        scenario.repo.debt.fetch.is_some(),
        "the host is asked again"
    );
}

#[test]
fn what_is_fetched_anew_is_not_what_was_proven() {
    let mut scenario = Scenario::holding(5);
    scenario.repo.proven = Some(RootProof {
        rev: named(5).rev,
        at: scenario.time,
    });
    let note = scenario.note();
    assert_eq!(scenario.apply(&note, 5, 5), fetch::SnapshotDecision::Write);
    assert_eq!(scenario.repo.proven, None);
}

#[test]
fn an_imported_state_is_held_and_proves_nothing_about_being_the_newest() {
    let mut scenario = Scenario::holding(5);
    assert!(scenario.complete());
    let (note, marker) = (scenario.note(), scenario.repo.marker);
    let now = scenario.now();
    assert_eq!(fetch::may_import(now, &scenario.repo, &head(7)), Ok(()));
    fetch::finish_snapshot(now, &mut scenario.repo, &note, &snapshot(7));
    scenario.with_context(fetch::import_written);
    assert!(scenario.head_is(7));
    assert_eq!(scenario.repo.marker, marker, "no marker is raised");
    assert_eq!(scenario.reasons(), ["compare_owed"]);
    // What was asked before it came does not vouch for it.
    scenario.told(&note, HeadAnswer::Head(named(7)));
    assert!(!scenario.complete());
    scenario.compared(7);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
}

#[test]
fn an_import_only_goes_forward_and_never_into_what_is_hidden() {
    use fetch::ImportRefusal;
    let mut scenario = Scenario::holding(5);
    let now = scenario.now();
    let judged = |n: u64, change: &dyn Fn(&mut Repo)| {
        let mut repo = scenario.repo.clone();
        change(&mut repo);
        fetch::may_import(now, &repo, &head(n))
    };
    let as_it_is = |_: &mut Repo| {};
    assert_eq!(judged(6, &as_it_is), Ok(()));
    assert_eq!(judged(5, &as_it_is), Err(ImportRefusal::Held));
    assert_eq!(judged(4, &as_it_is), Err(ImportRefusal::Older));
    for state in [Account::Deactivated, Account::Deleted, Account::NotFound] {
        let hide = |repo: &mut Repo| repo.account = state;
        assert_eq!(judged(6, &hide), Err(ImportRefusal::Hidden));
    }
    let applying = |repo: &mut Repo| {
        repo.held = Held::Applying {
            target: head(6),
            from: None,
        };
    };
    assert_eq!(judged(7, &applying), Err(ImportRefusal::BeingWritten));
    let damaged = |repo: &mut Repo| repo.held = Held::Damaged { from: Some(rev(5)) };
    assert_eq!(judged(5, &damaged), Ok(()), "it brings back what was lost");
    assert_eq!(judged(4, &damaged), Err(ImportRefusal::Older));
    let nothing = |repo: &mut Repo| repo.held = Held::Nothing;
    assert_eq!(judged(1, &nothing), Ok(()));
    let abandoned = |repo: &mut Repo| repo.abandoned = Some(rev(8));
    assert_eq!(judged(7, &abandoned), Err(ImportRefusal::Abandoned));
}
