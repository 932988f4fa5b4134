//! R12: listings.

use std::time::Duration;

use gapless_core::ledger::event::Event;
use gapless_core::ledger::fetch::{self, Next};
use gapless_core::ledger::settings::SUSPECT_PATIENCE;
use gapless_core::ledger::sweep::{
    self, ListingEntry, ListingVerdict, PageNote, Suspect, SuspectDecision,
};
use gapless_core::ledger::*;

use crate::desk::*;

fn page(desk: &mut Desk) -> PageNote {
    desk.with_context(|context, _| sweep::take_page_note(context, HOST))
}

fn listed(desk: &mut Desk, page: &PageNote, n: u64) -> ListingVerdict {
    listed_as(desk, page, n, Account::Active)
}

fn listed_as(desk: &mut Desk, page: &PageNote, n: u64, account: Account) -> ListingVerdict {
    let entry = ListingEntry {
        named: named(n),
        account,
    };
    desk.with_context(|context, repo| sweep::judge_entry(context, repo, page, &entry))
}

fn suspect(desk: &mut Desk, n: u64) -> Suspect {
    let page = page(desk);
    match listed(desk, &page, n) {
        ListingVerdict::Suspect(suspect) => suspect,
        other => panic!("not suspect: {other:?}"),
    }
}

/// As if the page had been the first of a sweep.
fn began(desk: &Desk, page: &PageNote) -> Now {
    Now {
        tick: page.at,
        time: desk.time,
    }
}

fn durable(seq: u64) -> Option<(u32, Cursor)> {
    let cursor = Cursor {
        seq,
        event: [0; 16],
    };
    Some((0, cursor))
}

fn look(desk: &mut Desk, suspect: &Suspect, seq: u64) -> SuspectDecision {
    desk.with_context(|context, repo| sweep::review_suspect(context, repo, suspect, durable(seq)))
}

#[test]
fn an_equal_listing_heals_a_reset_without_an_event_and_without_a_fetch() {
    let mut desk = Desk::holding(5);
    desk.reset(PDS);
    let page = page(&mut desk);
    assert!(matches!(
        listed(&mut desk, &page, 5),
        ListingVerdict::Equal { .. }
    ));
    assert!(desk.complete());
    assert_eq!(
        desk.answer().evidence.swept.unwrap().by,
        SweepSource::Listing,
        "and it says by what"
    );
}

#[test]
fn a_listing_of_before_a_reset_does_not_heal_it() {
    let mut desk = Desk::holding(5);
    let page = page(&mut desk);
    desk.reset(PDS);
    listed(&mut desk, &page, 5);
    assert_eq!(desk.reasons(), ["epoch_changed"]);
}

#[test]
fn a_listing_of_before_the_epoch_was_open_does_not_count() {
    let mut desk = Desk::holding(5);
    desk.covers
        .add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
    desk.connect(PDS, None);
    let page = page(&mut desk);
    desk.frame(PDS, 1, 1);
    listed(&mut desk, &page, 5);
    assert_eq!(desk.reasons(), ["epoch_changed"]);
}

#[test]
fn a_listing_of_before_the_marker_was_unset_does_not_restore_it() {
    let mut desk = Desk::holding(5);
    let page = page(&mut desk);
    desk.event(PDS, &Event::Unsigned);
    listed(&mut desk, &page, 5);
    assert_eq!(desk.repo.marker, None);
}

#[test]
fn a_listing_pays_no_debt() {
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Unsigned);
    let page = page(&mut desk);
    listed(&mut desk, &page, 5);
    assert_eq!(desk.reasons(), ["compare_owed"], "a listing may be stale");
}

#[test]
fn an_unchanged_repository_is_swept_without_a_write() {
    let mut desk = Desk::holding(5);
    let before = desk.repo.clone();
    let page = page(&mut desk);
    listed(&mut desk, &page, 5);
    assert_eq!(desk.repo, before);
    // What the sweep found is kept once, with the host.
    let began = began(&desk, &page);
    desk.pass(Duration::from_secs(60));
    sweep::finish(&mut desk.host, began);
    let swept = sweep::last_sweep(&desk.repo, Some(&desk.host)).unwrap();
    assert_eq!(
        (swept.tick, swept.at),
        (page.at, began.time),
        "about the time at which it began"
    );
}

#[test]
fn a_hosts_sweep_does_not_speak_for_who_came_later_or_owes_something() {
    let mut desk = Desk::holding(5);
    let page = page(&mut desk);
    let began = began(&desk, &page);
    sweep::finish(&mut desk.host, began);
    let tick = |desk: &Desk| {
        sweep::last_sweep(&desk.repo, Some(&desk.host))
            .unwrap()
            .tick
    };
    assert_eq!(tick(&desk), page.at);
    desk.repo.host_since = page.at;
    assert!(tick(&desk) < page.at);
    desk.repo.host_since = Tick(0);
    desk.event(PDS, &sync(8));
    assert!(tick(&desk) < page.at);
}

#[test]
fn another_head_is_only_suspect_until_our_stream_has_no_excuse() {
    let mut desk = Desk::holding(5);
    desk.frame(PDS, 200, 1);
    let suspect = suspect(&mut desk, 6);
    assert!(!suspect.older);
    assert!(desk.complete(), "a listing runs ahead of our queue");
    assert_eq!(look(&mut desk, &suspect, 199), SuspectDecision::Wait);
    assert_eq!(look(&mut desk, &suspect, 200), SuspectDecision::Ask);
    desk.pass(SUSPECT_PATIENCE);
    let patience = look(&mut desk, &suspect, 199);
    assert_eq!(patience, SuspectDecision::Ask, "or after a while");
    desk.event(PDS, &commit(6));
    assert_eq!(look(&mut desk, &suspect, 199), SuspectDecision::Cleared);
}

#[test]
fn a_suspect_that_the_stream_has_passed_needs_no_question() {
    let mut desk = Desk::holding(5);
    desk.frame(PDS, 200, 1);
    let suspect = suspect(&mut desk, 6);
    desk.event(PDS, &commit(6));
    desk.event(PDS, &commit(7));
    assert_eq!(look(&mut desk, &suspect, 200), SuspectDecision::Cleared);
    // Under a marker that is not valid the host is asked all the same.
    desk.reset(PDS);
    assert_eq!(look(&mut desk, &suspect, 200), SuspectDecision::Ask);
}

#[test]
fn an_older_listing_is_asked_about_unless_our_head_has_moved_since() {
    let mut desk = Desk::holding(5);
    desk.frame(PDS, 200, 1);
    let suspect = suspect(&mut desk, 3);
    assert!(suspect.older);
    let look_at = look(&mut desk, &suspect, 200);
    assert_eq!(look_at, SuspectDecision::Ask, "the host may have gone back");
    desk.event(PDS, &commit(6));
    let look_at = look(&mut desk, &suspect, 200);
    assert_eq!(look_at, SuspectDecision::Cleared, "it wrote on top of ours");
}

#[test]
fn a_suspect_that_the_stream_brought_counts_as_listed() {
    let mut desk = Desk::holding(5);
    desk.reset(PDS);
    let page = page(&mut desk);
    let ListingVerdict::Suspect(suspect) = listed(&mut desk, &page, 6) else {
        panic!("not suspect");
    };
    desk.event(RELAY, &commit(6));
    assert_eq!(desk.reasons(), ["epoch_changed"]);
    desk.with_context(|context, repo| sweep::suspect_cleared(context, repo, &page, &suspect));
    assert!(desk.complete());
}

#[test]
fn the_hosts_own_answer_decides_about_a_suspect() {
    let mut desk = Desk::holding(5);
    let suspect = suspect(&mut desk, 7);
    assert_eq!(desk.compared(7), Next::Fetch(named(7)));
    let now = desk.now();
    sweep::suspect_answered(now, &mut desk.repo, &suspect, Some(named(7)));
    assert_eq!(desk.repo.stale_listing, None);
    assert_eq!(desk.reasons(), ["fetch_owed"]);
}

#[test]
fn a_stale_listed_value_is_remembered_and_not_asked_about_again() {
    let mut desk = Desk::holding(5);
    let suspect = suspect(&mut desk, 3);
    assert_eq!(desk.compared(5), Next::Done);
    let now = desk.now();
    sweep::suspect_answered(now, &mut desk.repo, &suspect, Some(named(5)));
    let next = page(&mut desk);
    assert!(matches!(
        listed(&mut desk, &next, 3),
        ListingVerdict::Equal { .. }
    ));
    assert!(matches!(
        listed(&mut desk, &next, 4),
        ListingVerdict::Suspect(_)
    ));
}

#[test]
fn a_value_that_is_known_to_be_stale_heals_nothing() {
    let stale = || {
        let mut desk = Desk::holding(5);
        desk.repo.stale_listing = Some(tag(&named(3).commit));
        desk
    };
    let mut desk = stale();
    desk.reset(PDS);
    let after_reset = page(&mut desk);
    assert!(matches!(
        listed(&mut desk, &after_reset, 3),
        ListingVerdict::Suspect(_)
    ));
    assert_eq!(desk.reasons(), ["epoch_changed"]);
    let mut desk = stale();
    let now = desk.now();
    let source = desk.covers.get_mut(PDS).unwrap();
    source.stream.unreadable_frame(now, &mut source.row);
    let after_frame = page(&mut desk);
    assert!(matches!(
        listed(&mut desk, &after_frame, 3),
        ListingVerdict::Suspect(_)
    ));
}

#[test]
fn a_suspect_without_an_answer_is_owed() {
    let mut desk = Desk::holding(5);
    let suspect = suspect(&mut desk, 7);
    let now = desk.now();
    sweep::suspect_answered(now, &mut desk.repo, &suspect, None);
    assert_eq!(desk.reasons(), ["compare_owed"]);
}

#[test]
fn who_is_asked_about_singly_and_without_an_answer_is_owed() {
    let mut desk = Desk::holding(5);
    let began = desk.now();
    let now = desk.now();
    sweep::question_unanswered(now, &mut desk.repo, began.tick);
    sweep::finish(&mut desk.host, began);
    assert_eq!(desk.reasons(), ["compare_owed"]);
    let swept = desk.answer().evidence.swept.unwrap();
    assert!(swept.tick < began.tick, "the sweep does not speak for it");
    // What is owed for that waits as it was told to.
    desk.repo.debt.next_try = Time(START * 2);
    let owed = desk.repo.debt;
    let now = desk.now();
    sweep::question_unanswered(now, &mut desk.repo, began.tick);
    assert_eq!(desk.repo.debt, owed);
    // A question of before the sweep is not that question.
    let next = desk.now();
    let now = desk.now();
    sweep::question_unanswered(now, &mut desk.repo, next.tick);
    assert_eq!(desk.repo.debt.compare.unwrap().at, now.tick);
    desk.repo.debt = Default::default();
    desk.repo.account = Account::Takendown;
    let now = desk.now();
    sweep::question_unanswered(now, &mut desk.repo, began.tick);
    assert!(desk.owes_nothing(), "hidden, and not complete as it is");
}

#[test]
fn a_hosts_sweep_does_not_speak_for_what_was_not_held_then() {
    let mut desk = Desk::new();
    let note = desk.note();
    desk.told(&note, fetch::HeadAnswer::Head(named(5)));
    let page = page(&mut desk);
    let began = began(&desk, &page);
    sweep::finish(&mut desk.host, began);
    desk.apply(&note, 5, 5);
    let swept = desk.answer().evidence.swept.unwrap();
    assert_eq!((swept.tick, swept.by), (note.at, SweepSource::Head));
}

#[test]
fn only_what_is_shown_and_lived_there_counts_as_lost() {
    let mut desk = Desk::holding(5);
    let began = desk.now().tick;
    assert!(sweep::counts_as_vanished(&desk.repo, began));
    desk.repo.account = Account::NotFound;
    assert!(!sweep::counts_as_vanished(&desk.repo, began), "lost before");
    desk.repo.account = Account::Active;
    desk.repo.host_since = began;
    assert!(
        !sweep::counts_as_vanished(&desk.repo, began),
        "it came meanwhile"
    );
}

#[test]
fn a_listed_state_that_differs_is_asked_about_in_both_directions() {
    let mut desk = Desk::holding(5);
    let first = page(&mut desk);
    listed_as(&mut desk, &first, 5, Account::Takendown);
    assert_eq!(
        desk.repo.account,
        Account::Active,
        "the host itself decides"
    );
    assert_eq!(desk.reasons(), ["compare_owed"]);
    let mut desk = Desk::holding(5);
    desk.event(PDS, &Event::Account(Account::Deactivated));
    desk.resolved(HOST, 2);
    let second = page(&mut desk);
    listed(&mut desk, &second, 5);
    assert!(desk.reasons().contains(&"compare_owed"));
    desk.compared(5);
    assert!(desk.complete(), "a lost reactivation is found");
}

#[test]
fn a_repository_that_is_listed_where_it_does_not_live_is_not_believed() {
    let mut desk = Desk::holding(5);
    desk.repo.host = Some(OTHER_HOST);
    cover::update_cover(&mut desk.repo, &desk.covers);
    let page = page(&mut desk);
    assert_eq!(listed(&mut desk, &page, 6), ListingVerdict::Owed);
    assert_eq!(desk.repo.marker, None);
    assert!(desk.reasons().contains(&"resolve_owed"));
}

#[test]
fn what_is_listed_and_not_held_is_fetched() {
    let mut desk = Desk::new();
    let page = page(&mut desk);
    assert_eq!(listed(&mut desk, &page, 5), ListingVerdict::Owed);
    assert_eq!(
        debt::plan_work(desk.time, &desk.repo),
        Some(debt::Work::Fetch)
    );
    assert_eq!(
        desk.repo.first_rev_since_reset, None,
        "a listing signs nothing"
    );
}

#[test]
fn the_head_itself_is_asked_for_once_a_day_at_its_own_time() {
    let mut desk = Desk::holding(5);
    let every = desk.settings.confirm_every;
    let mut confirmed = 0;
    for _ in 0..4 * 24 {
        let page = page(&mut desk);
        if listed(&mut desk, &page, 5) == (ListingVerdict::Equal { confirm: true }) {
            confirmed += 1;
            desk.compared(5);
        }
        desk.pass(every / 24);
    }
    assert!((3..=5).contains(&confirmed), "{confirmed} in four days");
}

#[test]
fn an_absent_repository_is_asked_about_not_hidden() {
    let mut desk = Desk::holding(5);
    let now = desk.now();
    sweep::owe_absent(now, &mut desk.repo);
    assert_eq!(desk.repo.account, Account::Active);
    assert_eq!(desk.reasons(), ["compare_owed"]);
}

#[test]
fn an_unreadable_frame_counts_against_everybody_until_a_sweep() {
    let mut desk = Desk::holding(5);
    let now = desk.now();
    let source = desk.covers.get_mut(PDS).unwrap();
    source.stream.unreadable_frame(now, &mut source.row);
    assert_eq!(desk.reasons(), ["unreadable_frame"]);
    assert!(desk.with_context(|context, _| sweep::is_due(
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
    let page = page(&mut desk);
    let began = began(&desk, &page);
    sweep::finish(&mut desk.host, began);
    assert!(desk.complete());
}

#[test]
fn a_sweep_is_due_by_time_and_after_a_reset() {
    let mut desk = Desk::holding(5);
    let host = |desk: &Desk, tick| Host {
        swept: Some(HostSweep {
            tick,
            at: desk.time,
        }),
        ..Host::default()
    };
    let now = desk.now();
    let row = host(&desk, now.tick);
    let due = |desk: &mut Desk, row: &Host| {
        desk.with_context(|context, _| sweep::is_due(context, HOST, row))
    };
    assert!(due(&mut desk, &Host::default()), "never swept");
    assert!(!due(&mut desk, &row));
    desk.reset(OTHER);
    assert!(!due(&mut desk, &row), "another host's stream");
    desk.reset(PDS);
    assert!(due(&mut desk, &row));
    let now = desk.now();
    let row = host(&desk, now.tick);
    desk.pass(desk.settings.sweep_every - Duration::from_secs(1));
    assert!(!due(&mut desk, &row));
    desk.pass(Duration::from_secs(2));
    assert!(due(&mut desk, &row));
}

#[test]
fn the_host_it_left_may_go_on_listing_it() {
    let mut desk = Desk::holding(5);
    desk.resolved(OTHER_HOST, 2);
    desk.compared(5);
    assert!(desk.complete());
    for n in [4, 5] {
        let page = page(&mut desk);
        listed(&mut desk, &page, n);
        assert!(desk.complete(), "old news");
    }
    let page = page(&mut desk);
    listed(&mut desk, &page, 6);
    assert_eq!(desk.reasons(), ["resolve_owed"], "news");
}

#[test]
fn a_listing_that_turned_out_right_is_not_remembered_as_stale() {
    let mut desk = Desk::holding(5);
    let suspect = suspect(&mut desk, 6);
    desk.event(PDS, &commit(6));
    let now = desk.now();
    sweep::suspect_answered(now, &mut desk.repo, &suspect, Some(named(6)));
    assert_eq!(desk.repo.stale_listing, None);
}
