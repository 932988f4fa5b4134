//! Tests the ledger against attacks: sequences in which two pieces of work, a clock or a
//! stranger act at the wrong moment. Nearly all of the sequences once succeeded.

use std::time::Duration;

use gapless_core::ledger::account;
use gapless_core::ledger::event::Event;
use gapless_core::ledger::fetch::{self, HeadAnswer, Next};
use gapless_core::ledger::identity::{self, Document};
use gapless_core::ledger::notice::ResetReason;
use gapless_core::ledger::rollback;
use gapless_core::ledger::sweep::{self, ListingEntry, ListingVerdict};
use gapless_core::ledger::*;

use crate::scenario::*;

/// The n-th commit as the host's own line has it, which goes on from five.
fn on_the_hosts_line(n: u64) -> Event {
    Event::Signed {
        head: head(n),
        before: PriorState::Root(root(5)),
        bytes: 9,
    }
}

fn owe(scenario: &mut Scenario, why: DebtReason) {
    let now = scenario.now();
    debt::owe_fetch(now, &mut scenario.repo, why);
}

fn again_behind(scenario: &mut Scenario) -> fetch::Note {
    assert_eq!(scenario.compared(5), Next::Done);
    scenario.pass(scenario.settings.sweep_every);
    scenario.note()
}

#[test]
fn a_commit_that_comes_while_an_older_state_is_fetched_is_not_given_up_with_it() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(6));
    let note = again_behind(&mut scenario);
    assert_eq!(
        scenario.told(&note, HeadAnswer::Head(named(5))),
        Next::Adopt(named(5))
    );
    // The host writes again, while five is on its way to us.
    scenario.event(PDS, &on_the_hosts_line(10));
    let five = snapshot(5);
    assert!(!rollback::is_adoptable(
        &scenario.repo,
        &note,
        &named(5),
        &five
    ));
    assert_eq!(scenario.compared(10), Next::Fetch(named(10)));
    scenario.fetched(10, 10);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
}

#[test]
fn a_commit_that_comes_while_the_host_is_asked_is_not_given_up_with_an_older_one() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(9));
    let note = again_behind(&mut scenario);
    scenario.event(PDS, &sync(10));
    assert_eq!(scenario.told(&note, HeadAnswer::Head(named(5))), Next::Done);
    assert!(!scenario.complete(), "the owner signed ten after we asked");
    assert_eq!(scenario.repo.abandoned, None);
}

#[test]
fn a_head_named_while_a_large_snapshot_is_on_its_way_is_still_owed() {
    let mut scenario = Scenario::holding(5);
    let first = scenario.note();
    scenario.told(&first, HeadAnswer::Head(named(7)));
    let second = scenario.note();
    assert_eq!(
        scenario.told(&second, HeadAnswer::Head(named(9))),
        Next::Fetch(named(9))
    );
    let now = scenario.now();
    fetch::begin_snapshot(now, &mut scenario.repo, &snapshot(7));
    let now = scenario.now();
    fetch::finish_snapshot(now, &mut scenario.repo, &first, &snapshot(7));
    scenario.settle(&first, 7, 7);
    assert_eq!(scenario.reasons(), ["fetch_owed"], "the host has nine");
    scenario.fetched(9, 9);
    assert!(scenario.complete());
}

#[test]
fn a_sweep_says_nothing_of_what_had_no_head_to_compare() {
    let mut scenario = Scenario::new();
    let note = scenario.note();
    scenario.told(&note, HeadAnswer::Head(named(6)));
    // An unreadable frame: it is the seventh commit.
    let now = scenario.now();
    let source = scenario.covers.get_mut(PDS).unwrap();
    source.stream.unreadable_frame(now, &mut source.row);
    // A sweep goes through meanwhile. It lists the seventh.
    let page = scenario.with_context(|context, _| sweep::take_page_note(context, HOST));
    let entry = ListingEntry {
        named: named(7),
        account: Account::Active,
    };
    let listed =
        scenario.with_context(|context, repo| sweep::judge_entry(context, repo, &page, &entry));
    assert_eq!(listed, ListingVerdict::Owed);
    let began = Now {
        tick: page.at,
        time: scenario.time,
        lived: Lived::default(),
    };
    sweep::finish(&mut scenario.host, began);
    scenario.apply(&note, 6, 6);
    assert!(
        !scenario.complete(),
        "nobody compared the sixth with anything"
    );
    scenario.fetched(7, 7);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
}

#[test]
fn a_clock_that_goes_back_does_not_keep_a_lost_stream_alive() {
    let mut scenario = Scenario::holding(5);
    scenario.lost(PDS);
    scenario.time = Time(scenario.time.0 - 3_600_000_000);
    scenario.pass(Duration::from_secs(120));
    assert_eq!(scenario.reasons(), ["cover_down"]);
}

#[test]
fn hidden_once_more_is_not_shown_by_an_answer_of_before() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &Event::Account(Account::Deactivated));
    let note = scenario.note();
    scenario.event(PDS, &Event::Account(Account::Deactivated));
    scenario.told(&note, HeadAnswer::Head(named(5)));
    assert_eq!(scenario.repo.account, Account::Deactivated);
}

#[test]
fn a_fetch_for_the_contents_is_not_paid_by_equal_heads_because_a_chain_broke_meanwhile() {
    for why in [DebtReason::Operator, DebtReason::StoreRepaired] {
        let mut scenario = Scenario::holding(5);
        owe(&mut scenario, why);
        scenario.event(PDS, &commit(7));
        scenario.event(RELAY, &commit(6));
        scenario.event(RELAY, &commit(7));
        assert!(scenario.head_is(7));
        assert_eq!(scenario.compared(7), Next::Fetch(named(7)));
        assert_eq!(scenario.reasons(), ["fetch_owed"]);
        scenario.fetched(7, 7);
        assert!(scenario.complete(), "{:?}", scenario.reasons());
    }
}

#[test]
fn account_events_of_another_relay_cost_a_bounded_number_of_questions() {
    let mut scenario = Scenario::holding(5);
    let mut asked = 0;
    for _ in 0..100 {
        scenario.event(RELAY, &Event::Account(Account::Deactivated));
        let now = scenario.now();
        if debt::plan_work(now.time, &scenario.repo).is_some() {
            debt::begin_attempt(now, &mut scenario.repo);
            scenario.compared(5);
            asked += 1;
        }
    }
    assert!((1..=4).contains(&asked), "{asked} questions");
    assert!(scenario.complete(), "a flood keeps nobody incomplete");
}

#[test]
fn a_fork_that_is_replayed_costs_a_bounded_number_of_questions() {
    let mut scenario = Scenario::holding(5);
    let mut other = head(5);
    other.commit = cid("another");
    let fork = Event::Signed {
        head: other,
        before: PriorState::Untold,
        bytes: 9,
    };
    let mut asked = 0;
    for _ in 0..100 {
        scenario.event(RELAY, &fork);
        let now = scenario.now();
        if debt::plan_work(now.time, &scenario.repo).is_some() {
            debt::begin_attempt(now, &mut scenario.repo);
            scenario.compared(5);
            asked += 1;
        }
    }
    assert!((1..=4).contains(&asked), "{asked} questions");
}

#[test]
fn an_equal_commit_is_equal_whatever_rev_the_host_gives_it() {
    let mut scenario = Scenario::holding(5);
    let note = scenario.note();
    let odd = NamedHead {
        rev: rev(3),
        commit: head(5).commit,
    };
    assert_eq!(scenario.told(&note, HeadAnswer::Head(odd)), Next::Done);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
}

#[test]
fn no_epoch_comes_twice_whatever_the_clock_says() {
    let mut scenario = Scenario::new();
    let mut seen = vec![scenario.epoch(PDS)];
    for time in [u64::MAX, u64::MAX, 0, START, u64::MAX] {
        let mut now = scenario.now();
        now.time = Time(time);
        let source = scenario.covers.get_mut(PDS).unwrap();
        stream::begin_epoch(
            now,
            &mut source.row,
            ResetReason::Overflow,
            &mut scenario.notices,
        );
        assert!(scenario.epoch(PDS) > *seen.last().unwrap());
        seen.push(scenario.epoch(PDS));
    }
}

#[test]
fn a_tombstone_that_was_taken_back_purges_nothing() {
    let mut scenario = Scenario::holding(5);
    for (version, tombstoned) in [(2, true), (3, false)] {
        let now = scenario.now();
        let document = Document {
            key: None,
            handle: None,
            host: Some(HOST),
            version,
            tombstoned,
        };
        let repo = &mut scenario.repo;
        let notices = &mut scenario.notices;
        identity::resolved(now, repo, &scenario.covers, now.tick, &document, notices);
    }
    let grace = Duration::from_secs(3600);
    scenario.pass(grace * 2);
    let now = scenario.now();
    assert!(!account::is_purge_due(now, &scenario.repo, grace));
    scenario.compared(5);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
}

#[test]
fn an_answer_that_an_adoption_overtook_is_asked_for_again() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(6));
    let note = again_behind(&mut scenario);
    scenario.told(&note, HeadAnswer::Head(named(5)));
    let later = scenario.note();
    let mut notices = Vec::new();
    scenario.with_context(|context, repo| {
        rollback::adopt_snapshot(context, repo, &note, &snapshot(5), &mut notices)
    });
    scenario.told(&later, HeadAnswer::Head(named(8)));
    assert_eq!(scenario.reasons(), ["compare_owed"], "the host has eight");
}

#[test]
fn a_sweep_is_due_when_the_last_one_is_from_the_future() {
    let mut scenario = Scenario::holding(5);
    let now = scenario.now();
    scenario.time = scenario.time.after(Duration::from_secs(86_400 * 365));
    let later = scenario.now();
    sweep::finish(&mut scenario.host, later);
    scenario.time = now.time;
    let host = scenario.host.clone();
    assert!(scenario.with_context(|context, _| sweep::is_due(context, HOST, &host)));
}

#[test]
fn a_debt_tried_by_a_clock_that_ran_ahead_does_not_rest_until_then() {
    let mut scenario = Scenario::holding(5);
    owe(&mut scenario, DebtReason::Operator);
    let right = scenario.time;
    scenario.time = scenario.time.after(Duration::from_secs(86_400 * 365));
    let now = scenario.now();
    debt::begin_attempt(now, &mut scenario.repo);
    debt::attempt_failed(now, &mut scenario.repo, Some(Duration::MAX));
    scenario.time = right.after(Duration::from_secs(3600));
    assert!(debt::plan_work(scenario.time, &scenario.repo).is_some());
}

#[test]
fn a_stranger_who_spent_the_questions_of_a_wrong_clock_does_not_silence_us_for_years() {
    let mut scenario = Scenario::holding(5);
    let right = scenario.time;
    scenario.time = scenario.time.after(Duration::from_secs(86_400 * 365));
    for _ in 0..4 {
        scenario.event(RELAY, &Event::Unsigned);
        let now = scenario.now();
        debt::begin_attempt(now, &mut scenario.repo);
        scenario.compared(5);
    }
    scenario.time = right;
    scenario.event(PDS, &Event::Unsigned);
    scenario.pass(Duration::from_secs(3600));
    assert!(debt::plan_work(scenario.time, &scenario.repo).is_some());
}

#[test]
fn a_clock_that_goes_back_does_not_stop_the_wait_for_the_event_at_our_cursor() {
    let mut scenario = Scenario::new();
    scenario.lost(PDS);
    scenario.connect(PDS, None);
    let epoch = scenario.epoch(PDS);
    scenario.time = Time(scenario.time.0 - 3_600_000_000);
    for _ in 0..2 {
        scenario.pass(Duration::from_secs(11));
        let now = scenario.now();
        let source = scenario.covers.get_mut(PDS).unwrap();
        source
            .stream
            .check_deadlines(now, &mut source.row, &mut scenario.notices);
    }
    assert!(scenario.epoch(PDS) > epoch, "silence is a reset");
}

#[test]
fn a_commit_during_every_large_fetch_does_not_keep_a_wider_filter_owed() {
    let mut scenario = Scenario::holding(5);
    scenario.settings.filter = FilterGen(1);
    let note = scenario.note();
    assert_eq!(
        scenario.told(&note, HeadAnswer::Head(named(5))),
        Next::Fetch(named(5))
    );
    let now = scenario.now();
    fetch::begin_snapshot(now, &mut scenario.repo, &snapshot(5));
    scenario.event(PDS, &commit(6));
    let now = scenario.now();
    fetch::finish_snapshot(now, &mut scenario.repo, &note, &snapshot(5));
    let six = Parked {
        head: head(6),
        before: PriorState::Root(root(5)),
        origin: Some(HOST),
        bytes: 100,
    };
    parked::apply(&mut scenario.repo, &six);
    scenario.settle(&note, 5, 5);
    assert!(scenario.complete(), "{:?}", scenario.reasons());
}

/// An upstream that covers nothing says something every minute, and everything that
/// becomes due is done at once. Returns in how many of six hundred minutes the
/// repository is complete.
fn told_every_minute(mut scenario: Scenario, event: &Event) -> u32 {
    let n = (1..20).find(|n| scenario.head_is(*n)).expect("it is held");
    let mut complete = 0;
    for _ in 0..600 {
        scenario.event(RELAY, event);
        while let Some(work) = debt::plan_work(scenario.time, &scenario.repo) {
            let now = scenario.now();
            debt::begin_attempt(now, &mut scenario.repo);
            scenario.pass(Duration::from_secs(1));
            match work {
                debt::Work::Resolve => scenario.resolved(HOST, 1),
                _ => assert_eq!(scenario.compared(n), Next::Done),
            }
        }
        scenario.pass(Duration::from_secs(59));
        complete += u32::from(scenario.complete());
    }
    complete
}

#[test]
fn an_upstream_that_covers_nothing_cannot_keep_a_repository_incomplete() {
    let fork = Event::Signed {
        head: Head {
            commit: cid("a fork"),
            ..head(5)
        },
        before: PriorState::Root(root(4)),
        bytes: 9,
    };
    let unresolved = Event::Unresolved {
        claimed: head(6),
        bytes: 9,
    };
    for event in [Event::Identity, Event::Unsigned, unresolved, fork] {
        let mut scenario = Scenario::holding(5);
        scenario.resolved(HOST, 1);
        assert!(scenario.complete(), "{:?}", scenario.reasons());
        let complete = told_every_minute(scenario, &event);
        assert!(complete > 500, "{complete} of 600 minutes, {event:?}");
    }
}

#[test]
fn nor_by_what_was_given_up() {
    let mut scenario = Scenario::holding(5);
    scenario.event(PDS, &commit(6));
    let note = again_behind(&mut scenario);
    assert_eq!(
        scenario.told(&note, HeadAnswer::Head(named(5))),
        Next::Adopt(named(5))
    );
    scenario.with_context(|context, repo| {
        rollback::adopt_snapshot(context, repo, &note, &snapshot(5), &mut Vec::new());
    });
    assert!(scenario.complete(), "{:?}", scenario.reasons());
    let complete = told_every_minute(scenario, &commit(6));
    assert!(complete > 500, "{complete} of 600 minutes");
}
