//! Tests the order of the committer's steps on the way to the disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use gapless_core::ledger::{Account, RepoId, Time};
use gapless_store::Store;
use gapless_store::change::{
    Ack, Change, EntryContent, LogEntry, Redaction, RepoChange, Subject, Upkeep,
};
use gapless_store::engine::{Engine, EngineError, MemoryEngine, RawBatch, View};
use gapless_store::error::StoreError;
use gapless_store::queue::GroupLimits;
use gapless_store::table::Table;

use crate::event;
use crate::recorder::{Recorder, Step};

#[test]
fn frames_then_batch_then_head_then_the_answer() {
    let recorder = Recorder::new();
    let store = recorder.store();
    let (seen, open) = recorder.gate();
    let (tell, told) = sync_channel(9);
    store.submit(event(1), move |answer| tell.send(answer).unwrap());
    seen.recv().unwrap();
    assert_eq!(recorder.steps(), [Step::Room, Step::Frames(1)]);
    assert!(
        told.try_recv().is_err(),
        "not answered while it is not durable"
    );
    assert_eq!(store.durable_head().next_seq, 1);
    assert_eq!(store.view().counters().unwrap().next_seq, 1);
    open.send(()).unwrap();
    let ack = told.recv().unwrap().unwrap();
    assert_eq!(ack.numbers, Some(1..2));
    let all = [Step::Room, Step::Frames(1), Step::Commit, Step::Head(2)];
    assert_eq!(recorder.steps(), all);
    assert_eq!(
        store.durable_head().next_seq,
        2,
        "published before it is answered"
    );
    assert_eq!(store.view().counters().unwrap().next_seq, 2);
    store.close().unwrap();
    assert_eq!(recorder.steps().last(), Some(&Step::Close));
}

#[test]
fn frames_are_redacted_before_the_batch_that_says_so() {
    let recorder = Recorder::new();
    let store = recorder.store();
    store.write(event(1)).unwrap();
    let id = store.view().repos(RepoId(0)).next().unwrap().unwrap().0;
    let mut row = store.view().repo(id).unwrap().unwrap();
    row.account = Account::Deleted;
    row.purging = true;
    let purge = LogEntry {
        at: Time(2),
        source: None,
        what: EntryContent::Purge,
        frame: None,
    };
    let purged = store
        .write(Change {
            repo: Some(RepoChange {
                entry: Some(purge),
                ..RepoChange::row(Subject::Id(id), row)
            }),
            ..Change::default()
        })
        .unwrap();
    let before = recorder.steps().len();
    store
        .write(Change {
            upkeep: Some(Upkeep::Redact(Redaction {
                purge: purged.numbers.unwrap().start,
                frames: vec![1],
                ..Redaction::default()
            })),
            ..Change::default()
        })
        .unwrap();
    let steps = recorder.steps().split_off(before);
    let all = [Step::Room, Step::Redact(1), Step::Commit, Step::Head(3)];
    assert_eq!(steps, all);
}

#[test]
fn what_is_in_the_engine_is_not_visible_before_the_head_is_written() {
    let recorder = Recorder::new();
    let store = recorder.store();
    store.write(event(1)).unwrap();
    recorder.fail_at("head");
    assert!(store.write(event(2)).unwrap_err().is_final());
    let within = recorder
        .memory
        .get(Table::Log, &2u64.to_be_bytes())
        .unwrap();
    assert!(within.is_some(), "the engine has it");
    assert_eq!(store.durable_head().next_seq, 2, "and nobody is told");
    assert_eq!(store.view().log_from(0).unwrap().count(), 1);
}

#[test]
fn a_failure_at_any_step_is_final_and_told_to_all() {
    for failing in ["frames", "commit", "head"] {
        let recorder = Recorder::new();
        let store = recorder.store();
        store.write(event(1)).unwrap();
        let (seen, open) = recorder.gate();
        let (tell, told) = sync_channel(9);
        let submit = |who| {
            let tell = tell.clone();
            store.submit(event(who), move |answer| tell.send(answer).unwrap());
        };
        // One is in the middle of its commit, the others wait behind it.
        submit(0);
        seen.recv().unwrap();
        (1..4).for_each(submit);
        recorder.fail_at(failing);
        open.send(()).unwrap();
        let mut answers: Vec<_> = told.iter().take(4).collect();
        if failing == "frames" {
            answers.remove(0).expect("its frames were written before");
        }
        for answer in answers {
            let error = answer.unwrap_err();
            assert!(error.is_final());
            assert!(error.to_string().contains(failing), "{error}");
        }
        recorder.shared.lock().unwrap().fail = None;
        let steps = recorder.steps().len();
        assert!(store.write(event(9)).is_err(), "it stays so");
        assert_eq!(recorder.steps().len(), steps, "and nothing is tried");
        assert!(store.close().is_err());
    }
}

#[test]
fn after_a_failure_the_end_is_not_in_good_order_and_says_so() {
    for failing in ["frames", "commit", "head"] {
        let recorder = Recorder::new();
        let store = recorder.store();
        recorder.fail_at(failing);
        assert!(store.write(event(1)).is_err());
        let error = store.close().unwrap_err();
        assert!(error.to_string().contains(failing), "{error}");
        assert!(!recorder.steps().contains(&Step::Close));
    }
}

#[test]
fn a_full_disk_stops_writing_and_lets_go_by_itself() {
    let recorder = Recorder::new();
    let store = recorder.store();
    store.write(event(1)).unwrap();
    recorder.set_full(true);
    let refused = store.write(event(2)).unwrap_err();
    assert!(!refused.is_final());
    let text = refused.to_string();
    for part in ["5 bytes free", "10", "reading continues"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(store.view().log_from(0).unwrap().count(), 1);
    recorder.set_full(false);
    assert_eq!(store.write(event(2)).unwrap().numbers, Some(2..3));
    store.close().unwrap();
}

/// One group is at the disk, which waits at the gate; one was applied behind it.
struct TwoOnTheirWay {
    recorder: Recorder,
    store: Store,
    told: Receiver<Result<Ack, StoreError>>,
    open: SyncSender<()>,
    /// Room that the first one takes.
    first: u64,
}

fn two_on_their_way(second: Change) -> TwoOnTheirWay {
    let recorder = Recorder::new();
    let store = recorder.store();
    let (seen, open) = recorder.gate();
    let (tell, told) = sync_channel(9);
    let submit = |change| {
        let tell = tell.clone();
        store.submit(change, move |answer| tell.send(answer).unwrap());
    };
    submit(event(1));
    seen.recv().unwrap();
    let first = recorder.shared.lock().unwrap().taken;
    submit(second);
    while store.queue_depth().0 > 0 {
        std::thread::yield_now();
    }
    TwoOnTheirWay {
        recorder,
        store,
        told,
        open,
        first,
    }
}

#[test]
fn a_group_is_applied_while_the_disk_works_and_stands_on_the_one_before() {
    let TwoOnTheirWay {
        recorder,
        store,
        told,
        open,
        first,
    } = two_on_their_way(event(1));
    while recorder.shared.lock().unwrap().taken == first {
        std::thread::yield_now();
    }
    // Of the second, no more than that was done.
    let all = [Step::Room, Step::Frames(1), Step::Room];
    assert_eq!(recorder.steps(), all);
    assert!(told.try_recv().is_err());
    assert_eq!(store.durable_head().next_seq, 1);
    open.send(()).unwrap();
    let acks: Vec<Ack> = told.iter().take(2).map(Result::unwrap).collect();
    assert_eq!(acks[0].repo, acks[1].repo, "named by the first");
    assert_eq!(acks[0].numbers, Some(1..2));
    assert_eq!(acks[1].numbers, Some(2..3));
    assert_eq!((acks[0].batch, acks[1].batch), (1, 2));
    assert_eq!(store.view().counters().unwrap().next_repo, 2);
    store.close().unwrap();
}

#[test]
fn a_group_that_stands_on_one_that_failed_fails_with_it() {
    for failing in ["commit", "head"] {
        let two = two_on_their_way(event(2));
        two.recorder.fail_at(failing);
        two.open.send(()).unwrap();
        for answer in two.told.iter().take(2) {
            let error = answer.unwrap_err();
            assert!(error.is_final());
            assert!(error.to_string().contains(failing), "{error}");
        }
        assert_eq!(two.store.durable_head().next_seq, 1);
        let steps = two.recorder.steps();
        assert!(!steps.contains(&Step::Frames(2)), "{steps:?}");
        assert!(two.store.close().is_err());
    }
}

#[test]
fn an_empty_change_waits_for_the_changes_before_it() {
    let two = two_on_their_way(Change::default());
    while two.recorder.count(Step::Room) < 2 {
        std::thread::yield_now();
    }
    assert!(two.told.try_recv().is_err());
    two.recorder.fail_at("head");
    two.open.send(()).unwrap();
    assert!(two.told.iter().take(2).all(|answer| answer.is_err()));
}

/// A fault of our own in the one thread that writes.
struct Panics(MemoryEngine);

impl Engine for Panics {
    fn commit(&mut self, _: &RawBatch) -> Result<(), EngineError> {
        panic!("a test wants to see what happens");
    }

    fn snapshot(&self) -> Arc<dyn View> {
        self.0.snapshot()
    }
}

#[test]
fn no_write_waits_for_a_committer_that_is_gone() {
    let engine = Box::new(Panics(MemoryEngine::new()));
    let beside = Box::new(gapless_store::sync_writer::NoSidecar);
    let store = Store::start(engine, beside, GroupLimits::default()).unwrap();
    let answer = store.write(event(1));
    assert!(
        matches!(answer, Err(StoreError::CommitterGone)),
        "{answer:?}"
    );
    let later = store.write(event(1)).unwrap_err();
    assert!(later.is_final());
    assert!(matches!(store.close(), Err(StoreError::CommitterGone)));
}
