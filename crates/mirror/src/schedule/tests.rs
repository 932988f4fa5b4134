//! Tests the schedule of repair: which task comes next, which debts wait, and that no payee
//! delays the others.

use std::future::Future as _;

use super::*;
use gapless_core::ledger::debt::DebtKind;
use gapless_core::ledger::{DebtReason, Lived, Now, Tick};

const MANY: SlotLimits = SlotLimits {
    directory: 9,
    web: 9,
    asks: 9,
    fetches: 9,
    per_host: 9,
};

fn did(number: u32) -> Did {
    Did::parse(&format!("did:web:r{number}.test")).unwrap()
}

fn owing(number: u32, host: Option<u32>, what: DebtKind, at: u64) -> Repo {
    let mut repo = Repo::new(did(number));
    repo.host = host.map(HostId);
    let now = Now {
        time: Time(at),
        tick: Tick(1),
        lived: Lived::default(),
    };
    debt::owe(now, &mut repo, what, DebtReason::Operator);
    repo
}

#[test]
fn cheap_debts_come_first_payees_take_turns_and_no_debt_is_taken_twice() {
    let schedule = Schedule::default();
    for (number, host, what) in [
        (1, Some(1), DebtKind::Fetch),
        (2, Some(1), DebtKind::Compare),
        (3, Some(2), DebtKind::Fetch),
        (4, None, DebtKind::Resolve),
    ] {
        schedule.note(Time(10), &owing(number, host, what, 10));
    }
    assert_eq!(schedule.take(Time(9), &MANY), None, "not yet");
    let mut taken = Vec::new();
    while let Some(Task { did, .. }) = schedule.take(Time(10), &MANY) {
        taken.push(did);
    }
    assert_eq!(taken, [did(4), did(2), did(3), did(1)]);
    assert_eq!(schedule.at_work(), 4);
    schedule.release(&did(2), Payee::Host(HostId(1)));
    assert_eq!(schedule.take(Time(10), &MANY).unwrap().did, did(2));
}

#[test]
fn a_payee_has_no_more_at_work_than_it_may() {
    let schedule = Schedule::default();
    for number in 0..5 {
        schedule.note(Time(10), &owing(number, Some(1), DebtKind::Compare, 10));
    }
    let slots = SlotLimits {
        per_host: 2,
        ..MANY
    };
    assert!(schedule.take(Time(10), &slots).is_some());
    assert!(schedule.take(Time(10), &slots).is_some());
    assert_eq!(schedule.take(Time(10), &slots), None);
    schedule.release(&did(0), Payee::Host(HostId(1)));
    assert!(schedule.take(Time(10), &slots).is_some());
}

#[test]
fn what_is_paid_is_forgotten_and_what_is_put_off_waits() {
    let schedule = Schedule::default();
    let mut repo = owing(1, Some(1), DebtKind::Compare, 10);
    schedule.note(Time(10), &repo);
    repo.debt.next_try = Time(500);
    schedule.note(Time(10), &repo);
    assert_eq!(schedule.take(Time(100), &MANY), None);
    assert_eq!(schedule.next_due(), Some(Time(500)));
    repo.debt = Default::default();
    schedule.note(Time(10), &repo);
    assert!(schedule.is_empty() && schedule.take(Time(900), &MANY).is_none());
}

#[test]
fn slow_hosts_leave_places_to_others_and_to_the_directory() {
    let schedule = Schedule::default();
    let slots = SlotLimits {
        fetches: 8,
        per_host: 4,
        ..MANY
    };
    for number in 0..20 {
        schedule.note(
            Time(10),
            &owing(number, Some(number % 2), DebtKind::Fetch, 10),
        );
    }
    let mut taken = 0;
    while schedule.take(Time(10), &slots).is_some() {
        taken += 1;
    }
    assert_eq!(taken, 6, "two hosts have six of the eight places");
    for (number, host) in [(30, Some(7)), (31, Some(7)), (32, Some(8)), (33, Some(9))] {
        schedule.note(Time(10), &owing(number, host, DebtKind::Fetch, 10));
    }
    let taken = || schedule.take(Time(10), &slots).map(|task| task.payee);
    assert_eq!(taken(), Some(Payee::Host(HostId(7))));
    assert_eq!(taken(), None, "the last is for one that served well");
    schedule.record_result(HostId(9), true);
    schedule.record_result(HostId(8), true);
    schedule.record_result(HostId(8), false);
    assert_eq!(taken(), Some(Payee::Host(HostId(9))));
    assert_eq!(taken(), None);
    schedule.note(Time(10), &owing(34, Some(1), DebtKind::Compare, 10));
    assert_eq!(taken(), Some(Payee::Host(HostId(1))), "it is only asked");
    schedule.note(Time(10), &owing(40, None, DebtKind::Resolve, 10));
    let resolved = schedule.take(Time(10), &slots).expect("a place of its own");
    assert_eq!(resolved.payee, Payee::Web);
}

#[test]
fn a_comparison_goes_on_as_a_fetch_if_a_slot_is_free() {
    let schedule = Schedule::default();
    let slots = SlotLimits { fetches: 1, ..MANY };
    for number in 1..=2 {
        let asked = owing(number, Some(number), DebtKind::Compare, 10);
        schedule.note(Time(10), &asked);
        assert!(schedule.take(Time(10), &slots).is_some());
    }
    assert!(schedule.try_start_fetch(&did(1), &slots));
    assert!(schedule.try_start_fetch(&did(1), &slots), "it does already");
    assert!(!schedule.try_start_fetch(&did(2), &slots));
    schedule.release(&did(1), Payee::Host(HostId(1)));
    assert!(schedule.try_start_fetch(&did(2), &slots));
    assert!(!schedule.try_start_fetch(&did(3), &slots), "nobody asked");
    schedule.release(&did(2), Payee::Host(HostId(2)));
    assert_eq!(schedule.at_work(), 0);
}

#[test]
fn unknown_names_do_not_delay_held_repositories() {
    let schedule = Schedule::default();
    for number in 0..50 {
        schedule.note(Time(10), &owing(number, None, DebtKind::Resolve, 10));
    }
    let mut held = owing(60, Some(1), DebtKind::Resolve, 20);
    let commit = gapless_atp::mst::empty_root();
    held.held = gapless_core::ledger::Held::Exactly(gapless_core::ledger::Head {
        rev: gapless_atp::syntax::Rev::from_bits(1 << 20),
        data: commit,
        commit,
    });
    schedule.note(Time(20), &held);
    let first = schedule.take(Time(20), &MANY).expect("they are due");
    assert_eq!(first.did, did(60));
}

#[test]
fn slow_hosts_of_documents_leave_the_directory_its_places() {
    let schedule = Schedule::default();
    for number in 0..20 {
        schedule.note(Time(10), &owing(number, None, DebtKind::Resolve, 10));
        schedule.refresh(&did(100 + number));
    }
    let mut taken = 0;
    while schedule.take(Time(10), &MANY).is_some() {
        taken += 1;
    }
    assert_eq!(taken, MANY.web, "all that did:web has");
    let plc = |letter: &str| Did::parse(&format!("did:plc:{}", letter.repeat(24))).unwrap();
    let mut listed = owing(0, None, DebtKind::Resolve, 10);
    listed.did = plc("a");
    schedule.note(Time(10), &listed);
    schedule.refresh(&plc("b"));
    for expected in [plc("a"), plc("b")] {
        let task = schedule.take(Time(10), &MANY).expect("a place of its own");
        assert_eq!((task.did, task.payee), (expected, Payee::Directory));
    }
}

#[test]
fn who_moves_does_not_wait_for_the_old_host() {
    let schedule = Schedule::default();
    let mut repo = owing(1, Some(1), DebtKind::Fetch, 10);
    schedule.note(Time(10), &repo);
    let fetch = schedule.take(Time(10), &MANY).expect("it is due");
    let now = Now {
        time: Time(11),
        tick: Tick(2),
        lived: Lived::default(),
    };
    debt::owe(now, &mut repo, DebtKind::Resolve, DebtReason::Operator);
    schedule.note(Time(11), &repo);
    let resolve = schedule.take(Time(11), &MANY).expect("it is asked for");
    assert_eq!((&resolve.did, resolve.payee), (&fetch.did, Payee::Web));
    assert_eq!(schedule.take(Time(11), &MANY), None, "and once");
    assert!(!schedule.begin(&fetch.did, HostId(1)));
    repo.host = Some(HostId(2));
    repo.debt.resolve = None;
    schedule.note(Time(12), &repo);
    let mut moved = std::pin::pin!(schedule.moved_away(&fetch.did));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(moved.as_mut().poll(&mut context).is_ready());
    schedule.release(&resolve.did, resolve.payee);
    assert_eq!(schedule.take(Time(12), &MANY), None, "the old host first");
    schedule.release(&fetch.did, fetch.payee);
    let again = schedule.take(Time(12), &MANY).expect("the new one");
    assert_eq!(again.payee, Payee::Host(HostId(2)));
}

#[test]
fn an_old_document_is_asked_for_once_and_after_a_failure_later() {
    const HOUR: u64 = 3_600_000_000;
    let schedule = Schedule::default();
    let mut at = Vec::new();
    for now in (0..2 * HOUR).step_by(100_000) {
        // With every event.
        schedule.refresh(&did(1));
        if let Some(task) = schedule.take(Time(now), &MANY) {
            assert!(task.refresh && task.did == did(1));
            schedule.refresh(&did(1));
            assert_eq!(schedule.take(Time(now), &MANY), None, "nobody twice");
            schedule.release(&task.did, task.payee);
            at.push(now);
        }
    }
    let waits: Vec<u64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((3..40).contains(&waits.len()), "{waits:?}");
    assert!(waits.last() > waits.first(), "{waits:?}");
    schedule.refreshed(&did(1));
    assert_eq!(
        schedule.take(Time(9 * HOUR), &MANY),
        None,
        "it was answered"
    );
    schedule.refresh(&did(1));
    assert!(schedule.take(Time(9 * HOUR), &MANY).is_some(), "old again");
}

#[test]
fn of_a_host_that_is_gone_each_repository_is_not_tried_by_itself() {
    let schedule = Schedule::default();
    for number in 0..200 {
        schedule.note(Time(10), &owing(number, Some(1), DebtKind::Fetch, 10));
    }
    schedule.note(Time(10), &owing(900, Some(2), DebtKind::Fetch, 10));
    let (mut asked, mut others) = (0, 0);
    while let Some(Task { did, payee, .. }) = schedule.take(Time(10), &MANY) {
        if payee == Payee::Host(HostId(1)) {
            asked += 1;
            schedule.unreachable(Time(10), HostId(1));
        } else {
            others += 1
        }
        // What was tried waits for longer.
        schedule.note(Time(10), &Repo::new(did.clone()));
        schedule.release(&did, payee);
    }
    assert!(asked < 50, "{asked} of 200 were tried");
    assert_eq!(others, 1, "another host keeps nobody waiting");
    // It is back: all of them are worked for.
    schedule.reached(HostId(1));
    assert!(schedule.take(Time(10), &MANY).is_some());
    assert!(schedule.take(Time(10), &MANY).is_some());
}
