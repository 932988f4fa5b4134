//! Tests how the committer shuts down: which calls wait for it, and what a panic in a callback
//! does.

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use gapless_store::error::StoreError;

use crate::event;
use crate::recorder::{Recorder, Step};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn the_last_handle_may_go_in_an_answer() {
    let recorder = Recorder::new();
    let store = Arc::new(recorder.store());
    let (seen, open) = recorder.gate();
    let (tell, told) = sync_channel(1);
    let held = store.clone();
    store.submit(event(1), move |answer| {
        assert_eq!(held.durable_head().next_seq, 2);
        assert!(held.close().is_ok(), "asked for, not waited for");
        drop(held);
        tell.send(answer.is_ok()).unwrap();
    });
    seen.recv().unwrap();
    drop(store);
    open.send(()).unwrap();
    assert_eq!(told.recv_timeout(SOON), Ok(true));
    while recorder.count(Step::Close) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn the_end_waits_for_the_disk_even_when_the_committer_is_gone() {
    let recorder = Recorder::new();
    let store = recorder.store();
    let (seen, open) = recorder.gate();
    store.submit(event(1), |_| {});
    seen.recv().unwrap();
    recorder.set_full(true);
    let (tell, told) = sync_channel(1);
    store.submit(event(2), move |answer| {
        tell.send(()).unwrap();
        answer.expect("a fault of our own, on the committer's thread");
    });
    told.recv_timeout(SOON).unwrap();
    let (ended, end) = sync_channel(1);
    let seen = recorder.clone();
    std::thread::spawn(move || {
        let closed = store.close();
        drop(store);
        let commits = seen.count(Step::Commit);
        ended.send((closed.is_err(), commits)).unwrap();
    });
    let early = end.recv_timeout(Duration::from_millis(300));
    assert!(early.is_err(), "ended while the disk is at work: {early:?}");
    open.send(()).unwrap();
    assert_eq!(end.recv_timeout(SOON), Ok((true, 1)));
}

#[test]
fn a_second_close_waits_too_and_gets_the_same_result() {
    let recorder = Recorder::new();
    let store = Arc::new(recorder.store());
    let (seen, open) = recorder.gate();
    store.submit(event(1), |_| {});
    seen.recv().unwrap();
    let (tell, told) = sync_channel(2);
    for _ in 0..2 {
        let (store, tell, seen) = (store.clone(), tell.clone(), recorder.clone());
        std::thread::spawn(move || {
            let closed = store.close();
            let commits = seen.count(Step::Commit);
            tell.send((closed.is_ok(), commits)).unwrap();
        });
    }
    open.send(()).unwrap();
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(SOON), Ok((true, 1)));
    }
    assert!(store.close().is_ok());
}

#[test]
fn a_failure_is_told_at_every_end() {
    let recorder = Recorder::new();
    let store = recorder.store();
    recorder.memory.fail("no more disk");
    assert!(store.write(event(1)).is_err());
    for _ in 0..2 {
        let error = store.close().unwrap_err();
        assert!(error.to_string().contains("no more disk"), "{error}");
    }
}

/// Every durable change is acknowledged, even if the callback of another change panics.
#[test]
fn a_panic_in_one_answer_loses_no_other_answer() {
    let recorder = Recorder::new();
    let store = recorder.store();
    let (seen, open) = recorder.gate();
    store.submit(event(1), |_| {});
    seen.recv().unwrap();
    // One more is applied behind it; the rest is one group.
    store.submit(event(2), |_| {});
    while store.queue_depth().0 > 0 {
        std::thread::yield_now();
    }
    let (tell, told) = sync_channel(9);
    store.submit(event(3), |_| panic!("a test wants to see what happens"));
    store.submit(event(4), move |answer| tell.send(answer.is_ok()).unwrap());
    open.send(()).unwrap();
    let answered = told.recv_timeout(SOON).unwrap();
    assert!(matches!(store.close(), Err(StoreError::CommitterGone)));
    let durable = store.view().counters().unwrap().next_seq == 5;
    assert!(
        answered && durable,
        "answered {answered}, durable {durable}"
    );
}

const CHILD: &str = "GAPLESS_TEST_PANICS";

/// Two panics at once would end the process: so the second is held back.
#[test]
fn many_panics_in_answers_do_not_end_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let recorder = Recorder::new();
        let store = recorder.store();
        let (seen, open) = recorder.gate();
        store.submit(event(1), |_| {});
        seen.recv().unwrap();
        for who in 2..6 {
            store.submit(event(who), |answer| {
                answer.expect("it is durable, or not");
                panic!("a test wants to see what happens");
            });
        }
        open.send(()).unwrap();
        assert!(store.close().is_err());
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let name = "shutdown::many_panics_in_answers_do_not_end_the_process";
    let ended = child.args(["--exact", name]).env(CHILD, "1").output();
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{}", ended.status);
}
