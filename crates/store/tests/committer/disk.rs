//! Tests the committer on a data folder: opened again, opened twice, behind its head, without
//! disk space.

use gapless_store::error::StoreError;
use gapless_store::head::{AcknowledgedHead, HeadFile};
use gapless_store::{Settings, Store};

use crate::event;

pub(crate) fn settings() -> Settings {
    let mut settings = Settings {
        min_free_disk_bytes: 0,
        ..Settings::default()
    };
    settings.engine.cache_bytes = 8 << 20;
    settings
}

#[test]
fn everything_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("not/there/yet");
    let store = Store::open(&data, &settings()).unwrap();
    for who in 0..10 {
        store.write(event(who)).unwrap();
    }
    let head = store.durable_head();
    let view = store.view();
    store.close().unwrap();
    assert_eq!(
        view.log_from(0).unwrap().count(),
        10,
        "views outlive the end"
    );
    drop((store, view));
    for _ in 0..2 {
        let store = Store::open(&data, &settings()).unwrap();
        assert_eq!(store.durable_head(), head, "opening writes nothing");
        let frames = store.frames().unwrap();
        let page = frames.read(1, head.next_seq, 1 << 20).unwrap();
        let third = page.frames.iter().find(|frame| frame.seq == 3).unwrap();
        assert_eq!(third.bytes.as_deref(), Some(&b"frame of 2"[..]));
        assert_eq!(page.frames.len(), 10);
    }
}

#[test]
fn a_second_opener_is_refused_and_the_first_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &settings()).unwrap();
    let refused = Store::open(folder.path(), &settings()).err().unwrap();
    assert!(matches!(refused, StoreError::Lock(_)), "{refused}");
    store.write(event(1)).unwrap();
    store.close().unwrap();
    let still = Store::open(folder.path(), &settings()).err();
    assert!(still.is_some(), "until it is gone, it may be read");
    drop(store);
    Store::open(folder.path(), &settings()).unwrap();
}

#[test]
fn a_store_behind_its_acknowledged_head_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &settings()).unwrap();
    store.write(event(1)).unwrap();
    let head = store.durable_head();
    drop(store);
    let ahead = [
        (head.batch + 1, head.next_seq),
        (head.batch, head.next_seq + 1),
    ];
    for (batch, next_seq) in ahead {
        HeadFile::replace(folder.path(), AcknowledgedHead { batch, next_seq }).unwrap();
        let refused = Store::open(folder.path(), &settings()).err().unwrap();
        assert!(matches!(refused, StoreError::Lost { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("gapless store repair"), "{text}");
    }
    let told = AcknowledgedHead {
        batch: head.batch,
        next_seq: head.next_seq,
    };
    HeadFile::replace(folder.path(), told).unwrap();
    let store = Store::open(folder.path(), &settings()).unwrap();
    assert_eq!(store.durable_head(), head);
}

#[test]
fn too_little_room_is_said_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &settings()).unwrap();
    store.write(event(1)).unwrap();
    drop(store);
    let greedy = Settings {
        min_free_disk_bytes: u64::MAX,
        ..settings()
    };
    let store = Store::open(folder.path(), &greedy).unwrap();
    let full = store.write(event(2)).unwrap_err();
    assert!(matches!(full, StoreError::Full(_)), "{full}");
    assert_eq!(store.view().log_from(0).unwrap().count(), 1);
    store.close().unwrap();
}
