#![no_main]
//! Frames of any bytes: a decoded event is the same after it is encoded and decoded
//! again, and an envelope agrees with the decoded event.

use gapless_atp::frame::{
    Event, FrameError, decode, encode_account, encode_commit, encode_error, encode_identity,
    encode_info, encode_sync, envelope,
};
use libfuzzer_sys::fuzz_target;

/// The header of each type; the fuzzer's bytes follow as the payload.
const HEADERS: [&[u8]; 6] = [
    b"\xa2atg#commitbop\x01",
    b"\xa2ate#syncbop\x01",
    b"\xa2ati#identitybop\x01",
    b"\xa2ath#accountbop\x01",
    b"\xa2ate#infobop\x01",
    b"\xa1bop\x20",
];

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    if let Some((choice, payload)) = bytes.split_first() {
        let header = HEADERS[usize::from(*choice) % HEADERS.len()];
        check(&[header, payload].concat());
    }
});

fn check(bytes: &[u8]) {
    let outside = envelope(bytes);
    let event = match decode(bytes) {
        Ok(event) => event,
        Err(FrameError::Payload { seq, repo, .. }) => {
            assert!(seq.is_none_or(|seq| seq > 0 && seq < 1 << 53));
            if let Some(outside) = outside {
                let read = (Some(outside.seq), Some(outside.did.to_string()));
                assert_eq!(read, (seq, repo));
            }
            return;
        }
        Err(_) => return assert_eq!(outside, None),
    };
    let did = match &event {
        Event::Commit(event) => Some(event.repo),
        Event::Sync(event) => Some(event.did),
        Event::Identity(event) => Some(event.did),
        Event::Account(event) => Some(event.did),
        Event::Info(_) | Event::Error { .. } | Event::Unknown { .. } => None,
    };
    if let Some(outside) = outside {
        let read = (Some(outside.seq), Some(outside.did.as_str()));
        assert_eq!(read, (event.seq(), did));
    }
    assert!(event.seq().is_none_or(|seq| seq > 0 && seq < 1 << 53));
    let again = match &event {
        Event::Commit(event) => encode_commit(event),
        Event::Sync(event) => encode_sync(event),
        Event::Identity(event) => encode_identity(event),
        Event::Account(event) => encode_account(event),
        Event::Info(event) => encode_info(event.name, event.message),
        Event::Error { error, message } => encode_error(error, *message),
        Event::Unknown { .. } => return,
    };
    // Omitted fields are written with their defaults, so the frame may become too large.
    match decode(&again) {
        Ok(read) => assert_eq!(read, event),
        Err(FrameError::Size(_)) => {}
        Err(error) => panic!("{error}"),
    }
}
