//! Tests event frames: every type encoded and decoded again, and every kind of frame that is
//! altered or made up on its way.

mod common;

use gapless_atp::cbor::{CborError, Reader, Writer};
use gapless_atp::cid::Cid;
use gapless_atp::frame::{
    AccountEvent, Action, CommitEvent, Event, FrameError, IdentityEvent, InfoEvent, PayloadError,
    RawOp, SyncEvent, decode, encode_account, encode_commit, encode_error, encode_identity,
    encode_info, encode_sync, envelope, renumber,
};
use gapless_atp::limits;
use gapless_atp::syntax::Did;
use proptest::prelude::*;

const DID: &str = "did:plc:abcdefghijklmnopqrstuvwx";
const TIME: &str = "2026-02-01T00:00:00.000Z";
const REV: &str = "3mdvhqvvzs22c";

fn commit(ops: usize) -> CommitEvent<'static> {
    let cid = Cid::dag_cbor(b"record");
    let op = |at: usize| match at % 3 {
        0 => (Action::Create, Some(cid), None),
        1 => (Action::Update, Some(cid), Some(Cid::raw(b"before"))),
        _ => (Action::Delete, None, Some(cid)),
    };
    let op = |at: usize| {
        let (action, cid, prev) = op(at);
        let path = "com.example.a/1";
        RawOp {
            action,
            path,
            cid,
            prev,
        }
    };
    CommitEvent {
        seq: 7,
        repo: DID,
        time: TIME,
        rev: REV,
        since: Some("3mdvhqvvzs22b"),
        commit: Some(Cid::dag_cbor(b"commit")),
        blocks: b"blocks",
        ops: (0..ops).map(op).collect(),
        too_big: false,
        prev_data: Some(Cid::dag_cbor(b"data")),
    }
}

/// A frame of every type, with the event it holds.
fn samples() -> Vec<(Vec<u8>, Event<'static>)> {
    let first = CommitEvent {
        since: None,
        prev_data: None,
        too_big: true,
        ..commit(0)
    };
    let sync = SyncEvent {
        seq: (1 << 53) - 1,
        did: DID,
        time: TIME,
        rev: REV,
        blocks: b"blocks",
    };
    let identity = |handle| IdentityEvent {
        seq: 1,
        did: DID,
        time: TIME,
        handle,
    };
    let account = |active, status| AccountEvent {
        seq: 24,
        did: DID,
        time: TIME,
        active,
        status,
    };
    let info = |name, message| InfoEvent { name, message };
    let error = |error, message| Event::Error { error, message };
    vec![
        (encode_commit(&commit(3)), Event::Commit(commit(3))),
        (encode_commit(&first), Event::Commit(first.clone())),
        (encode_sync(&sync), Event::Sync(sync.clone())),
        (
            encode_identity(&identity(Some("a.test"))),
            Event::Identity(identity(Some("a.test"))),
        ),
        (
            encode_identity(&identity(None)),
            Event::Identity(identity(None)),
        ),
        (
            encode_account(&account(true, None)),
            Event::Account(account(true, None)),
        ),
        (
            encode_account(&account(false, Some("takendown"))),
            Event::Account(account(false, Some("takendown"))),
        ),
        (
            encode_info("OutdatedCursor", Some("gone")),
            Event::Info(info("OutdatedCursor", Some("gone"))),
        ),
        (encode_info("Other", None), Event::Info(info("Other", None))),
        (
            encode_error("FutureCursor", Some("wait")),
            error("FutureCursor", Some("wait")),
        ),
        (
            encode_error("ConsumerTooSlow", None),
            error("ConsumerTooSlow", None),
        ),
    ]
}

#[test]
fn every_type_is_read_as_it_was_written() {
    for (frame, event) in samples() {
        assert_eq!(decode(&frame).as_ref(), Ok(&event));
        let numbered = !matches!(event, Event::Info(_) | Event::Error { .. });
        assert_eq!(event.seq().is_some(), numbered, "{event:?}");
        // Both halves are canonical.
        let mut reader = Reader::new(&frame);
        assert_eq!((reader.skip(), reader.skip()), (Ok(()), Ok(())));
        assert_eq!(reader.finish(), Ok(()));
    }
}

#[test]
fn a_frame_cut_at_any_byte_is_refused() {
    for (frame, event) in samples() {
        for end in 0..frame.len() {
            let cut = decode(&frame[..end]);
            assert!(cut.is_err(), "{event:?} cut at {end}: {cut:?}");
        }
        let longer = [&frame[..], &[0xf6]].concat();
        let trailing = PayloadError::Cbor(CborError::Trailing);
        match decode(&longer) {
            Err(FrameError::Payload { error, seq, .. }) => {
                assert_eq!((error, seq), (trailing, event.seq()));
            }
            other => panic!("{other:?}"),
        }
    }
}

type Field = (String, Vec<u8>);

/// Takes a map apart.
fn split(reader: &mut Reader<'_>) -> Vec<Field> {
    let pairs = reader.map().expect("a map");
    let mut fields = Vec::new();
    for _ in 0..pairs {
        let key = reader.key().expect("a key").to_owned();
        let from = reader.rest();
        reader.skip().expect("a value");
        let value = &from[..from.len() - reader.rest().len()];
        fields.push((key, value.to_vec()));
    }
    fields
}

fn join(header: &[Field], payload: &[Field]) -> Vec<u8> {
    let mut writer = Writer::new();
    for fields in [header, payload] {
        writer.map(fields.len());
        for (key, value) in fields {
            writer.text(key).verbatim(value);
        }
    }
    writer.into_bytes()
}

fn halves(frame: &[u8]) -> (Vec<Field>, Vec<Field>) {
    let mut reader = Reader::new(frame);
    let header = split(&mut reader);
    (header, split(&mut reader))
}

fn field(key: &str, value: &[u8]) -> Field {
    (key.to_owned(), value.to_vec())
}

/// What went wrong with a payload, and the number that was found all the same.
fn payload_error(frame: &[u8]) -> (PayloadError, Option<u64>) {
    match decode(frame) {
        Err(FrameError::Payload { error, seq, .. }) => (error, seq),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unknown_fields_and_any_order_are_legal() {
    for (frame, event) in samples() {
        let (mut header, mut payload) = halves(&frame);
        header.insert(0, field("more", &[0x82, 0x01, 0x02]));
        header.reverse();
        payload.insert(1, field("zzz", &[0xa1, 0x61, 0x61, 0xf6]));
        payload.push(field("", &[0x00]));
        payload.reverse();
        assert_eq!(decode(&join(&header, &payload)), Ok(event));
    }
    // What they hold must still be strict.
    for (frame, event) in samples() {
        let (header, mut payload) = halves(&frame);
        payload.push(field("zzz", &[0xf9, 0x3c, 0x00]));
        let (error, seq) = payload_error(&join(&header, &payload));
        assert_eq!(error, PayloadError::Cbor(CborError::Float));
        assert_eq!(seq, event.seq());
    }
}

#[test]
fn a_known_field_stands_once() {
    let known = "ops rev seq repo time since blocks commit tooBig prevData did handle active status \
        name message error";
    let known: Vec<&str> = known.split_whitespace().collect();
    let mut seen = std::collections::BTreeSet::new();
    for (frame, event) in samples() {
        let (header, payload) = halves(&frame);
        for at in 0..payload.len() {
            let mut twice = payload.clone();
            twice.push(payload[at].clone());
            let frame = join(&header, &twice);
            let name = payload[at].0.as_str();
            if !known.contains(&name) {
                assert!(decode(&frame).is_ok(), "{name}");
                continue;
            }
            let (error, _) = payload_error(&frame);
            let stated = known.iter().find(|known| **known == name).expect("known");
            assert_eq!(error, PayloadError::Twice(stated), "{event:?}");
            seen.insert(name.to_owned());
        }
    }
    assert_eq!(seen.len(), known.len(), "{seen:?}");
    let (mut header, payload) = halves(&samples()[0].0);
    header.push(header[0].clone());
    let twice = decode(&join(&header, &payload)).map(drop);
    assert_eq!(twice, Err(FrameError::HeaderTwice("t")));
    header[2] = header[1].clone();
    let twice = decode(&join(&header, &payload)).map(drop);
    assert_eq!(twice, Err(FrameError::HeaderTwice("op")));
}

#[test]
fn required_fields_are_required() {
    let required = [
        (0, "seq repo rev commit blocks ops"),
        (2, "seq did rev blocks"),
        (3, "seq did"),
        (5, "seq did active"),
        (7, "name"),
        (9, "error"),
    ];
    let samples = samples();
    for (sample, names) in required {
        let (header, payload) = halves(&samples[sample].0);
        for at in 0..payload.len() {
            let mut fewer = payload.clone();
            let (name, _) = fewer.remove(at);
            let read = decode(&join(&header, &fewer)).map(drop);
            let needed = names.split(' ').any(|needed| needed == name);
            let missing = matches!(
                &read,
                Err(FrameError::Payload { error: PayloadError::Missing(missing), .. })
                    if *missing == name
            );
            assert!(
                missing == needed && read.is_ok() != needed,
                "{name}: {read:?}"
            );
        }
    }
}

/// The frame of a commit in which one field has another value.
fn commit_with(key: &str, value: &[u8]) -> Vec<u8> {
    let (header, mut payload) = halves(&encode_commit(&commit(1)));
    let place = payload.iter_mut().find(|(name, _)| name == key);
    place.expect("a field of that name").1 = value.to_vec();
    join(&header, &payload)
}

#[test]
fn null_stands_for_nothing_where_it_may() {
    let null = &[0xf6];
    let (header, mut payload) = halves(&encode_commit(&commit(1)));
    for (key, value) in &mut payload {
        if matches!(key.as_str(), "ops" | "since" | "commit" | "prevData") {
            *value = null.to_vec();
        }
    }
    let bare = CommitEvent {
        ops: Vec::new(),
        since: None,
        commit: None,
        prev_data: None,
        ..commit(0)
    };
    assert_eq!(decode(&join(&header, &payload)), Ok(Event::Commit(bare)));
    for key in ["seq", "repo", "time", "rev", "blocks", "tooBig"] {
        let (error, _) = payload_error(&commit_with(key, null));
        let unexpected = matches!(error, PayloadError::Cbor(CborError::Unexpected { .. }));
        assert!(unexpected, "{key}: {error:?}");
    }
}

#[test]
fn numbers_are_positive_and_below_2_to_the_53rd() {
    let with = |seq: u64| {
        let mut writer = Writer::new();
        writer.uint(seq);
        commit_with("seq", &writer.into_bytes())
    };
    for seq in [1, 23, 1 << 32, (1 << 53) - 1] {
        assert_eq!(decode(&with(seq)).map(|event| event.seq()), Ok(Some(seq)));
    }
    for seq in [0, 1 << 53, i64::MAX as u64] {
        // A number that is none is not reported as one either.
        assert_eq!(payload_error(&with(seq)), (PayloadError::Seq(seq), None));
    }
    let range = PayloadError::Cbor(CborError::IntegerRange);
    assert_eq!(payload_error(&with(u64::MAX)), (range, None));
}

#[test]
fn a_bad_payload_still_tells_its_number() {
    for (key, value) in [
        ("rev", &[0x00][..]),
        ("repo", &[0x41, 0x00]),
        ("commit", &[0x61, 0x61]),
        ("ops", &[0x81, 0xa0]),
        ("tooBig", &[0x61, 0x61]),
    ] {
        let (_, seq) = payload_error(&commit_with(key, value));
        assert_eq!(seq, Some(7), "{key}");
    }
    // What stands before the number must at least be CBOR.
    let (error, seq) = payload_error(&commit_with("ops", &[0xfb, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(error, PayloadError::Cbor(CborError::Float));
    assert_eq!(seq, None);
    let (header, _) = halves(&encode_commit(&commit(1)));
    let mut empty = join(&header, &[]);
    assert_eq!(payload_error(&empty), (PayloadError::Missing("seq"), None));
    empty.pop();
    empty.push(0x80);
    assert_eq!(payload_error(&empty).1, None);
}

#[test]
fn operations_are_few_and_known() {
    let most = limits::COMMIT_OPS;
    assert!(decode(&encode_commit(&commit(most))).is_ok());
    let (error, seq) = payload_error(&encode_commit(&commit(most + 1)));
    assert_eq!((error, seq), (PayloadError::Ops, Some(7)));

    let op = |action: &str, more: &dyn Fn(&mut Writer) -> usize| {
        let mut fields = Writer::new();
        let count = 2 + more(&mut fields);
        let mut writer = Writer::new();
        writer.array(1).map(count).verbatim(&fields.into_bytes());
        writer.text("path").text("com.example.a/1");
        writer.text("action").text(action);
        commit_with("ops", &writer.into_bytes())
    };
    let nothing = |_: &mut Writer| 0;
    let unknown = |writer: &mut Writer| {
        writer.text("new").array(0);
        1
    };
    let twice = |writer: &mut Writer| {
        writer.text("cid").null().text("cid").null();
        2
    };
    for (frame, ok) in [
        (op("create", &nothing), true),
        (op("update", &unknown), true),
        (op("delete", &nothing), true),
        (op("create", &twice), false),
        (op("merge", &nothing), false),
        (op("", &nothing), false),
    ] {
        assert_eq!(decode(&frame).is_ok(), ok);
    }
    let (error, _) = payload_error(&op("create", &twice));
    assert_eq!(error, PayloadError::Twice("cid"));
    let (error, _) = payload_error(&op(&"x".repeat(100), &nothing));
    assert_eq!(error, PayloadError::Action("x".repeat(40)));
}

#[test]
fn types_and_operations_from_the_future_are_skipped() {
    let frame = |op: i64, kind: Option<&str>, payload: &[u8]| {
        let mut writer = Writer::new();
        writer.map(1 + usize::from(kind.is_some()));
        if let Some(kind) = kind {
            writer.text("t").text(kind);
        }
        writer.text("op").int(op).verbatim(payload);
        writer.into_bytes()
    };
    for (op, kind) in [
        (1, Some("#tombstone")),
        (1, Some("")),
        (1, Some("#COMMIT")),
        (2, Some("#commit")),
        (0, None),
        (-2, None),
        (i64::MIN, Some("#info")),
    ] {
        // What it carries is not checked.
        for payload in [&[0xa0][..], &[], &[0xff, 0xff]] {
            let unknown = Ok(Event::Unknown { op, kind });
            assert_eq!(decode(&frame(op, kind, payload)), unknown);
        }
    }
    let header = |frame: &[u8]| decode(frame).map(drop);
    let no_type = Err(FrameError::HeaderField("t"));
    assert_eq!(header(&frame(1, None, &[0xa0])), no_type);
    let no_op = Err(FrameError::HeaderField("op"));
    assert_eq!(header(&[0xa0, 0xa0]), no_op);
    assert_eq!(header(&[0xa1, 0x61, b't', 0x60, 0xa0]), no_op);
    for broken in [
        &[][..],
        &[0x80, 0xa0],
        &[0xa1, 0x62, b'o', b'p', 0x61, b'1'],
        &[0xa1, 0x62, b'o', b'p', 0xf9, 0x3c, 0x00],
        &[0xa1, 0x61, b't', 0x01],
        &[0xa1, 0x00, 0x00],
        &[0xbf, 0xff],
    ] {
        let read = header(broken);
        assert!(matches!(read, Err(FrameError::Header(_))), "{read:?}");
    }
}

#[test]
fn a_frame_has_a_greatest_size() {
    let blocks = vec![0; limits::FRAME_BYTES];
    let event = |len: usize| CommitEvent {
        blocks: Box::leak(blocks[..len].to_vec().into_boxed_slice()),
        ..commit(1)
    };
    let overhead = encode_commit(&event(1 << 20)).len() - (1 << 20);
    let fits = encode_commit(&event(limits::FRAME_BYTES - overhead));
    assert_eq!(fits.len(), limits::FRAME_BYTES);
    assert!(decode(&fits).is_ok());
    let over = encode_commit(&event(limits::FRAME_BYTES - overhead + 1));
    let size = FrameError::Size(limits::FRAME_BYTES + 1);
    assert_eq!(decode(&over), Err(size));
}

/// The number and the DID that decoding the whole frame brings to light, of a broken
/// payload too.
fn decoded_envelope(frame: &[u8]) -> Option<(u64, String)> {
    let (seq, name) = match decode(frame) {
        Ok(Event::Commit(event)) => (event.seq, event.repo.to_owned()),
        Ok(Event::Sync(event)) => (event.seq, event.did.to_owned()),
        Ok(Event::Identity(event)) => (event.seq, event.did.to_owned()),
        Ok(Event::Account(event)) => (event.seq, event.did.to_owned()),
        Err(FrameError::Payload { seq, repo, .. }) => (seq?, repo?),
        Ok(_) | Err(_) => return None,
    };
    Did::parse(&name).ok().map(|_| (seq, name))
}

fn agrees_with_decode(frame: &[u8]) {
    if let Some(read) = envelope(frame) {
        let decoded = decoded_envelope(frame);
        assert_eq!(Some((read.seq, read.did.to_string())), decoded);
    }
}

#[test]
fn the_envelope_of_every_event_is_read() {
    for (frame, event) in samples() {
        let read = envelope(&frame).map(|read| (read.seq, read.did.to_string()));
        assert_eq!(read, decoded_envelope(&frame), "{event:?}");
        assert_eq!(read.is_some(), event.seq().is_some(), "{event:?}");
    }
}

#[test]
fn a_frame_that_names_the_repository_by_another_field_has_no_envelope() {
    let mut payload = Writer::new();
    payload.map(2).text("seq").uint(7).text("did").text(DID);
    let payload = payload.into_bytes();
    for (kind, has_one) in [("#sync", true), ("#commit", false)] {
        let mut frame = Writer::new();
        frame.map(2).text("t").text(kind).text("op").uint(1);
        let frame = [frame.into_bytes(), payload.clone()].concat();
        assert_eq!(envelope(&frame).is_some(), has_one, "{kind}");
        agrees_with_decode(&frame);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_changed_frame_never_brings_the_reader_down(
        sample in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let samples = samples();
        let (mut frame, _) = samples[sample.index(samples.len())].clone();
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        agrees_with_decode(&frame);
        match decode(&frame) {
            Ok(read) => prop_assert!(read.seq().is_none_or(|seq| (1..1 << 53).contains(&seq))),
            Err(FrameError::Payload { seq: Some(seq), .. }) => {
                prop_assert!((1..1 << 53).contains(&seq));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_frame(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(!matches!(decode(&bytes), Ok(Event::Commit(_) | Event::Sync(_))));
    }
}

/// The event with its number left out, so that two can be compared in the rest.
fn without_seq(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Commit(event) => Event::Commit(CommitEvent { seq: 1, ..event }),
        Event::Sync(event) => Event::Sync(SyncEvent { seq: 1, ..event }),
        Event::Identity(event) => Event::Identity(IdentityEvent { seq: 1, ..event }),
        Event::Account(event) => Event::Account(AccountEvent { seq: 1, ..event }),
        other => other,
    }
}

#[test]
fn a_frame_under_another_number_is_the_same_in_everything_else() {
    for (frame, event) in samples() {
        let Some(old) = event.seq() else {
            assert!(renumber(&frame, 9).is_err(), "it has no number: {event:?}");
            continue;
        };
        for seq in [1, 23, 24, 255, 256, 65_536, 1 << 32, (1 << 53) - 1] {
            let other = renumber(&frame, seq).expect("it has a number");
            let bytes = other.to_vec();
            assert_eq!(bytes.len(), other.len());
            let decoded = decode(&bytes).expect("it is a frame");
            assert_eq!(decoded.seq(), Some(seq));
            assert_eq!(without_seq(decoded), without_seq(event.clone()));
            let back = renumber(&bytes, old).expect("it has a number").to_vec();
            assert_eq!(back, frame, "and back, byte for byte");
        }
    }
}

#[test]
fn fields_in_another_order_are_passed_over() {
    let mut writer = Writer::new();
    writer.map(2).text("op").uint(1).text("t").text("#account");
    writer.map(4);
    writer.text("active").bool(true);
    writer.text("zz").map(2);
    writer.text("later").uint(1).text("b").uint(2);
    writer.text("seq").uint(5);
    writer.text("did").text(DID);
    let frame = writer.into_bytes();
    let bytes = renumber(&frame, 70_000).expect("it has a number").to_vec();
    let Ok(Event::Account(event)) = decode(&bytes) else {
        // A map of an unknown type is checked when it is decoded.
        assert_eq!(renumber(&bytes, 5).expect("a number").to_vec(), frame);
        return;
    };
    assert_eq!((event.seq, event.did), (70_000, DID));
}

proptest! {
    #[test]
    fn any_bytes_end_in_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(other) = renumber(&bytes, 77) {
            prop_assert_eq!(other.to_vec().len(), other.len());
        }
    }
}
