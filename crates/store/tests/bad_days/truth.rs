//! Compares a store with everything that was acknowledged to its writers, and runs the whole
//! check.

use std::path::Path;

use gapless_store::check::{CheckReport, check_with_frames};
use gapless_store::table::log::LogKind;
use gapless_store::{Settings, Store};

use crate::load::{UPSTREAM, frame, row_hash};
use crate::writer::{Memory, settings};

/// Opens a store as the next start would, and checks it.
pub(crate) fn verify(folder: &Path, memory: &Memory) -> CheckReport {
    let store = Store::open(folder, &settings()).expect("the store opens");
    let report = verify_open(&store, memory);
    store.close().expect("it closes");
    report
}

pub(crate) fn verify_open(store: &Store, memory: &Memory) -> CheckReport {
    let report = clean(store);
    let view = store.view();
    let cursor = view
        .cursor(UPSTREAM)
        .unwrap()
        .map_or(0, |cursor| cursor.seq);
    let (mut found, mut matched) = (0, 0);
    for row in view.log_from(1).unwrap() {
        let (first, row) = row.unwrap();
        let Some(source) = row.source else {
            continue;
        };
        found += 1;
        assert_eq!(
            source.seq, found,
            "every event is in the log, once, and in order"
        );
        let Some(told) = memory.events.get(&source.seq) else {
            continue;
        };
        matched += 1;
        // The state alone may have told more, in a row of its own.
        assert!(told.end_seq >= first + row.numbers());
        assert_eq!(
            (first, row_hash(&row)),
            (told.first_seq, told.ops),
            "event {} has the numbers and the content that were acknowledged",
            told.event
        );
    }
    assert_eq!(
        matched,
        memory.events.len(),
        "nothing acknowledged is missing"
    );
    // Effects and cursor are in one batch: neither is ahead of the other.
    assert_eq!(cursor, found, "the cursor is at the last event in the log");
    frames(store, memory);
    report
}

/// Every acknowledged event has its frame.
fn frames(store: &Store, memory: &Memory) {
    let reader = store.frames().expect("a store on disk has frames");
    let end = store.durable_head().next_seq;
    assert!(reader.oldest_seq() <= 1, "nothing is old enough to go");
    let (mut next, mut frames) = (1, std::collections::HashMap::new());
    while next < end {
        let page = reader.read(next, end, 1 << 20).expect("frames can be read");
        assert!(page.damaged.is_empty(), "{:?}", page.damaged);
        for frame in page.frames {
            frames.insert(frame.seq, frame.bytes.expect("nothing is redacted"));
        }
        next = page.next_seq;
    }
    for told in memory.events.values().filter(|told| told.has_frame) {
        assert_eq!(
            frames.get(&told.first_seq),
            Some(&frame(told.event, told.ops)),
            "event {} has the frame that was acknowledged",
            told.event
        );
    }
}

/// The whole check, which must find nothing.
pub(crate) fn clean(store: &Store) -> CheckReport {
    let frames = store.frames().expect("a store on disk has frames");
    let report = check_with_frames(&store.view(), frames, &mut |_| {}).expect("it can be read");
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(
        report.is_clean(),
        "{} findings: {findings:#?}",
        report.found
    );
    report
}

/// How many log numbers are covered by `lost` rows.
pub(crate) fn lost_numbers(store: &Store) -> u64 {
    let view = store.view();
    let rows = view.log_from(1).unwrap().map(Result::unwrap);
    rows.map(|(_, row)| match row.kind {
        LogKind::Lost(count) => count,
        _ => 0,
    })
    .sum()
}

pub(crate) fn open(folder: &Path) -> Result<Store, gapless_store::error::StoreError> {
    Store::open(folder, &settings())
}

pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = settings();
    change(&mut settings);
    settings
}
