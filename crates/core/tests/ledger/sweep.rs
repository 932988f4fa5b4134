//! Tests R12: what the listing of a host shows, and which repositories a sweep owes for.

use std::time::Duration;

use gapless_core::ledger::event::Event;
use gapless_core::ledger::fetch::{self, Next};
use gapless_core::ledger::settings::SUSPECT_PATIENCE;
use gapless_core::ledger::sweep::{
    self, ListingEntry, ListingVerdict, PageNote, Suspect, SuspectDecision,
};
use gapless_core::ledger::*;

use crate::scenario::*;

fn page(scenario: &mut Scenario) -> PageNote {
    scenario.with_context(|context, _| sweep::take_page_note(context, HOST))
}

fn listed(scenario: &mut Scenario, page: &PageNote, n: u64) -> ListingVerdict {
    listed_as(scenario, page, n, Account::Active)
}

fn listed_as(scenario: &mut Scenario, page: &PageNote, n: u64, account: Account) -> ListingVerdict {
    let entry = ListingEntry {
        named: named(n),
        account,
    };
    scenario.with_context(|context, repo| sweep::judge_entry(context, repo, page, &entry))
}

fn suspect(scenario: &mut Scenario, n: u64) -> Suspect {
    let page = page(scenario);
    match listed(scenario, &page, n) {
        ListingVerdict::Suspect(suspect) => suspect,
        other => panic!("not suspect: {other:?}"),
    }
}

/// As if the page had been the first of a sweep.
fn began(scenario: &Scenario, page: &PageNote) -> Now {
    Now {
        tick: page.at,
        time: scenario.time,
        lived: Lived::default(),
    }
}

fn durable(seq: u64) -> Option<(u32, Cursor)> {
    let cursor = Cursor {
        seq,
        event: [0; 16],
    };
    Some((0, cursor))
}

fn look(scenario: &mut Scenario, suspect: &Suspect, seq: u64) -> SuspectDecision {
    scenario
        .with_context(|context, repo| sweep::review_suspect(context, repo, suspect, durable(seq)))
}

#[test]
fn an_equal_listing_heals_a_reset_without_an_event_and_without_a_fetch() {
    let mut scenario = Scenario::holding(5);
    scenario.reset(PDS);
    let page = page(&mut scenario);
    assert!(matches!(
        listed(&mut scenario, &page, 5),
        ListingVerdict::Equal { .. }
    ));
    assert!(scenario.complete());
    assert_eq!(
        scenario.answer().evidence.swept.unwrap().by,
        SweepSource::Listing,
        "and it says by what"
    );
}

#[test]
fn a_listing_of_before_a_reset_does_not_heal_it() {
    let mut scenario = Scenario::holding(5);
    let page = page(&mut scenario);
    scenario.reset(PDS);
    listed(&mut scenario, &page, 5);
    assert_eq!(scenario.reasons(), ["epoch_changed"]);
}

#[test]
fn a_listing_of_before_the_epoch_was_open_does_not_count() {
    let mut scenario = Scenario::holding(5);
    scenario
        .covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    scenario.connect(PDS, None);
    let page = page(&mut scenario);
    scenario.frame(PDS, 1, 1);
    listed(&mut scenario, &page, 5);
    assert_eq!(scenario.reasons(), ["epoch_changed"]);
}

#[test]
fn a_listing_of_before_the_marker_was_unset_does_not_restore_it() {
    let mut scenario = Scenario::holding(5);
    let page = page(&mut scenario);
    scenario.event(PDS, &Event::Unsigned);
    listed(&mut scenario, &page, 5);
    assert_eq!(scenario.repo.marker, None);
}

#[test]
fn a_listing_pays_no_debt() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Unsigned);
    let page = page(&mut scenario);
    listed(&mut scenario, &page, 5);
    assert_eq!(
        scenario.reasons(),
        ["compare_owed"],
        "a listing may be stale"
    );
}

#[test]
fn an_unchanged_repository_is_swept_without_a_write() {
    let mut scenario = Scenario::holding(5);
    let before = scenario.repo.clone();
    let page = page(&mut scenario);
    listed(&mut scenario, &page, 5);
    assert_eq!(scenario.repo, before);
    // What the sweep found is kept once, with the host.
    let began = began(&scenario, &page);
    scenario.pass(Duration::from_secs(60));
    sweep::finish(&mut scenario.host, began);
    let swept = sweep::last_sweep(&scenario.repo, Some(&scenario.host)).unwrap();
    assert_eq!(
        (swept.tick, swept.at),
        (page.at, began.time),
        "about the time at which it began"
    );
}

#[test]
fn a_hosts_sweep_does_not_speak_for_who_came_later_or_owes_something() {
    let mut scenario = Scenario::holding(5);
    let page = page(&mut scenario);
    let began = began(&scenario, &page);
    sweep::finish(&mut scenario.host, began);
    let tick = |scenario: &Scenario| {
        sweep::last_sweep(&scenario.repo, Some(&scenario.host))
            .unwrap()
            .tick
    };
    assert_eq!(tick(&scenario), page.at);
    scenario.repo.host_since = page.at;
    assert!(tick(&scenario) < page.at);
    scenario.repo.host_since = Tick(0);
    scenario.event(PDS, &sync(8));
    assert!(tick(&scenario) < page.at);
}

#[test]
fn another_head_is_only_suspect_until_our_stream_has_no_excuse() {
    let mut scenario = Scenario::holding(5);
    scenario.frame(PDS, 200, 1);
    let suspect = suspect(&mut scenario, 6);
    assert!(!suspect.older);
    assert!(scenario.complete(), "a listing runs ahead of our queue");
    assert_eq!(look(&mut scenario, &suspect, 199), SuspectDecision::Wait);
    assert_eq!(look(&mut scenario, &suspect, 200), SuspectDecision::Ask);
    scenario.pass(SUSPECT_PATIENCE);
    let patience = look(&mut scenario, &suspect, 199);
    assert_eq!(patience, SuspectDecision::Ask, "or after a while");
    scenario.event(PDS, &commit(6));
    assert_eq!(look(&mut scenario, &suspect, 199), SuspectDecision::Cleared);
}

#[test]
fn a_suspect_that_the_stream_has_passed_needs_no_question() {
    let mut scenario = Scenario::holding(5);
    scenario.frame(PDS, 200, 1);
    let suspect = suspect(&mut scenario, 6);
    scenario.event(PDS, &commit(6));
    scenario.event(PDS, &commit(7));
    assert_eq!(look(&mut scenario, &suspect, 200), SuspectDecision::Cleared);
    // Under a marker that is not valid the host is asked all the same.
    scenario.reset(PDS);
    assert_eq!(look(&mut scenario, &suspect, 200), SuspectDecision::Ask);
}

#[test]
fn an_older_listing_is_asked_about_unless_our_head_has_moved_since() {
    let mut scenario = Scenario::holding(5);
    scenario.frame(PDS, 200, 1);
    let suspect = suspect(&mut scenario, 3);
    assert!(suspect.older);
    let look_at = look(&mut scenario, &suspect, 200);
    assert_eq!(look_at, SuspectDecision::Ask, "the host may have gone back");
    scenario.event(PDS, &commit(6));
    let look_at = look(&mut scenario, &suspect, 200);
    assert_eq!(look_at, SuspectDecision::Cleared, "it wrote on top of ours");
}

#[test]
fn a_suspect_that_the_stream_brought_counts_as_listed() {
    let mut scenario = Scenario::holding(5);
    scenario.reset(PDS);
    let page = page(&mut scenario);
    let ListingVerdict::Suspect(suspect) = listed(&mut scenario, &page, 6) else {
        panic!("not suspect");
    };
    scenario.event(RELAY, &commit(6));
    assert_eq!(scenario.reasons(), ["epoch_changed"]);
    scenario.with_context(|context, repo| sweep::suspect_cleared(context, repo, &page, &suspect));
    assert!(scenario.complete());
}

#[test]
fn the_hosts_own_answer_decides_about_a_suspect() {
    let mut scenario = Scenario::holding(5);
    let suspect = suspect(&mut scenario, 7);
    assert_eq!(scenario.compared(7), Next::Fetch(named(7)));
    let now = scenario.now();
    sweep::suspect_answered(now, &mut scenario.repo, &suspect, Some(named(7)));
    assert_eq!(scenario.repo.stale_listing, None);
    assert_eq!(scenario.reasons(), ["fetch_owed"]);
}

#[test]
fn a_stale_listed_value_is_remembered_and_not_asked_about_again() {
    let mut scenario = Scenario::holding(5);
    let suspect = suspect(&mut scenario, 3);
    assert_eq!(scenario.compared(5), Next::Done);
    let now = scenario.now();
    sweep::suspect_answered(now, &mut scenario.repo, &suspect, Some(named(5)));
    let next = page(&mut scenario);
    assert!(matches!(
        listed(&mut scenario, &next, 3),
        ListingVerdict::Equal { .. }
    ));
    assert!(matches!(
        listed(&mut scenario, &next, 4),
        ListingVerdict::Suspect(_)
    ));
}

#[test]
fn a_value_that_is_known_to_be_stale_heals_nothing() {
    let stale = || {
        let mut scenario = Scenario::holding(5);
        scenario.repo.stale_listing = Some(tag(&named(3).commit));
        scenario
    };
    let mut scenario = stale();
    scenario.reset(PDS);
    let after_reset = page(&mut scenario);
    assert!(matches!(
        listed(&mut scenario, &after_reset, 3),
        ListingVerdict::Suspect(_)
    ));
    assert_eq!(scenario.reasons(), ["epoch_changed"]);
    let mut scenario = stale();
    let now = scenario.now();
    let source = scenario.covers.get_mut(PDS).unwrap();
    source.stream.unreadable_frame(now, &mut source.row);
    let after_frame = page(&mut scenario);
    assert!(matches!(
        listed(&mut scenario, &after_frame, 3),
        ListingVerdict::Suspect(_)
    ));
}

#[test]
fn a_suspect_without_an_answer_is_owed() {
    let mut scenario = Scenario::holding(5);
    let suspect = suspect(&mut scenario, 7);
    let now = scenario.now();
    sweep::suspect_answered(now, &mut scenario.repo, &suspect, None);
    assert_eq!(scenario.reasons(), ["compare_owed"]);
}

#[test]
fn who_is_asked_about_singly_and_without_an_answer_is_owed() {
    let mut scenario = Scenario::holding(5);
    let began = scenario.now();
    let now = scenario.now();
    sweep::question_unanswered(now, &mut scenario.repo, began.tick);
    sweep::finish(&mut scenario.host, began);
    assert_eq!(scenario.reasons(), ["compare_owed"]);
    let swept = scenario.answer().evidence.swept.unwrap();
    assert!(swept.tick < began.tick, "the sweep does not speak for it");
    // What is owed for that waits as it was told to.
    scenario.repo.debt.next_try = Time(START * 2);
    let owed = scenario.repo.debt;
    let now = scenario.now();
    sweep::question_unanswered(now, &mut scenario.repo, began.tick);
    assert_eq!(scenario.repo.debt, owed);
    // A question of before the sweep is not that question.
    let next = scenario.now();
    let now = scenario.now();
    sweep::question_unanswered(now, &mut scenario.repo, next.tick);
    assert_eq!(scenario.repo.debt.compare.unwrap().at, now.tick);
    scenario.repo.debt = Default::default();
    scenario.repo.account = Account::Takendown;
    let now = scenario.now();
    sweep::question_unanswered(now, &mut scenario.repo, began.tick);
    assert!(scenario.owes_nothing(), "hidden, and not complete as it is");
}

#[test]
fn a_hosts_sweep_does_not_speak_for_what_was_not_held_then() {
    let mut scenario = Scenario::new();
    let note = scenario.note();
    scenario.told(&note, fetch::HeadAnswer::Head(named(5)));
    let page = page(&mut scenario);
    let began = began(&scenario, &page);
    sweep::finish(&mut scenario.host, began);
    scenario.apply(&note, 5, 5);
    let swept = scenario.answer().evidence.swept.unwrap();
    assert_eq!((swept.tick, swept.by), (note.at, SweepSource::Head));
}

#[test]
fn only_what_is_shown_and_lived_there_counts_as_lost() {
    let mut scenario = Scenario::holding(5);
    let began = scenario.now().tick;
    assert!(sweep::counts_as_vanished(&scenario.repo, began));
    scenario.repo.account = Account::NotFound;
    assert!(
        !sweep::counts_as_vanished(&scenario.repo, began),
        "lost before"
    );
    scenario.repo.account = Account::Active;
    scenario.repo.host_since = began;
    assert!(
        !sweep::counts_as_vanished(&scenario.repo, began),
        "it came meanwhile"
    );
}

#[test]
fn a_listed_state_that_differs_is_asked_about_in_both_directions() {
    let mut scenario = Scenario::holding(5);
    let first = page(&mut scenario);
    listed_as(&mut scenario, &first, 5, Account::Takendown);
    assert_eq!(
        scenario.repo.account,
        Account::Active,
        "the host itself decides"
    );
    assert_eq!(scenario.reasons(), ["compare_owed"]);
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deactivated));
    scenario.resolved(HOST, 2);
    let second = page(&mut scenario);
    listed(&mut scenario, &second, 5);
    assert!(scenario.reasons().contains(&"compare_owed"));
    scenario.compared(5);
    assert!(scenario.complete(), "a lost reactivation is found");
}

#[test]
fn a_repository_that_is_listed_where_it_does_not_live_is_not_believed() {
    let mut scenario = Scenario::holding(5);
    scenario.repo.host = Some(OTHER_HOST);
    cover::update_cover(&mut scenario.repo, &scenario.covers);
    let page = page(&mut scenario);
    assert_eq!(listed(&mut scenario, &page, 6), ListingVerdict::Owed);
    assert_eq!(scenario.repo.marker, None);
    assert!(scenario.reasons().contains(&"resolve_owed"));
}

#[test]
fn what_is_listed_and_not_held_is_fetched() {
    let mut scenario = Scenario::new();
    let page = page(&mut scenario);
    assert_eq!(listed(&mut scenario, &page, 5), ListingVerdict::Owed);
    assert_eq!(
        debt::plan_work(scenario.time, &scenario.repo),
        Some(debt::Work::Fetch)
    );
    assert_eq!(
        scenario.repo.first_rev_since_reset, None,
        "a listing signs nothing"
    );
}

#[test]
fn the_head_itself_is_asked_for_once_a_day_at_its_own_time() {
    let mut scenario = Scenario::holding(5);
    let every = scenario.settings.confirm_every;
    let mut confirmed = 0;
    for _ in 0..4 * 24 {
        let page = page(&mut scenario);
        if listed(&mut scenario, &page, 5) == (ListingVerdict::Equal { confirm: true }) {
            confirmed += 1;
            scenario.compared(5);
        }
        scenario.pass(every / 24);
    }
    assert!((3..=5).contains(&confirmed), "{confirmed} in four days");
}

#[test]
fn an_absent_repository_is_asked_about_not_hidden() {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now();
    sweep::owe_absent(now, &mut scenario.repo);
    assert_eq!(scenario.repo.account, Account::Active);
    assert_eq!(scenario.reasons(), ["compare_owed"]);
}

#[test]
fn an_unreadable_frame_makes_all_repositories_incomplete_until_a_sweep() {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now();
    let source = scenario.covers.get_mut(PDS).unwrap();
    source.stream.unreadable_frame(now, &mut source.row);
    assert_eq!(scenario.reasons(), ["unreadable_frame"]);
    assert!(scenario.with_context(|context, _| sweep::is_due(
        context,
        HOST,
        &Host {
            swept: Some(HostSweep {
                tick: Tick(1),
                at: context.now.time
            }),
            ..Host::default()
        }
    )));
    let page = page(&mut scenario);
    let began = began(&scenario, &page);
    sweep::finish(&mut scenario.host, began);
    assert!(scenario.complete());
}

#[test]
fn a_sweep_is_due_by_time_and_after_a_reset() {
    let mut scenario = Scenario::holding(5);
    let host = |scenario: &Scenario, tick| Host {
        swept: Some(HostSweep {
            tick,
            at: scenario.time,
        }),
        ..Host::default()
    };
    let now = scenario.now();
    let row = host(&scenario, now.tick);
    let due = |scenario: &mut Scenario, row: &Host| {
        scenario.with_context(|context, _| sweep::is_due(context, HOST, row))
    };
    assert!(due(&mut scenario, &Host::default()), "never swept");
    assert!(!due(&mut scenario, &row));
    scenario.reset(OTHER);
    assert!(!due(&mut scenario, &row), "another host's stream");
    scenario.reset(PDS);
    assert!(due(&mut scenario, &row));
    let now = scenario.now();
    let row = host(&scenario, now.tick);
    scenario.pass(scenario.settings.sweep_every - Duration::from_secs(1));
    assert!(!due(&mut scenario, &row));
    scenario.pass(Duration::from_secs(2));
    assert!(due(&mut scenario, &row));
}

#[test]
fn the_host_it_left_may_go_on_listing_it() {
    let mut scenario = Scenario::holding(5);
    scenario.resolved(OTHER_HOST, 2);
    scenario.compared(5);
    assert!(scenario.complete());
    for n in [4, 5] {
        let page = page(&mut scenario);
        listed(&mut scenario, &page, n);
        assert!(scenario.complete(), "old news");
    }
    let page = page(&mut scenario);
    listed(&mut scenario, &page, 6);
    assert_eq!(scenario.reasons(), ["resolve_owed"], "news");
}

#[test]
fn a_listing_that_turned_out_right_is_not_remembered_as_stale() {
    let mut scenario = Scenario::holding(5);
    let suspect = suspect(&mut scenario, 6);
    scenario.event(PDS, &commit(6));
    let now = scenario.now();
    sweep::suspect_answered(now, &mut scenario.repo, &suspect, Some(named(6)));
    assert_eq!(scenario.repo.stale_listing, None);
}
