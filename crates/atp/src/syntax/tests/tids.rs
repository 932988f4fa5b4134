//! Tests TIDs: their text, bits, order and time.

use crate::limits::REV_FUTURE_MICROS;
use crate::syntax::{Rev, Tid, TidFault};

#[test]
fn legal_tids() {
    let legal = [
        ("2222222222222", 0),
        ("2222222222223", 1),
        ("222222222222z", 31),
        ("2222222222232", 32),
        ("2222222222322", 1024),
        ("jzzzzzzzzzzzz", u64::MAX),
        ("bzzzzzzzzzzzz", u64::MAX >> 1),
        ("c222222222222", 1 << 63),
    ];
    for (text, bits) in legal {
        assert_eq!(Tid::parse(text), Ok(Tid::from_bits(bits)), "{text}");
        assert_eq!(Tid::from_bits(bits).to_string(), text);
    }
    for text in [
        "3jzfcijpj2z2a",
        "7777777777777",
        "3zzzzzzzzzzzz",
        "3kao2cl6lyj2p",
    ] {
        assert_eq!(Tid::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn refused_tids() {
    let refused = [
        ("", TidFault::Length),
        ("222", TidFault::Length),
        ("3jzfcijpj2z2", TidFault::Length),
        ("3jzfcijpj2z2aa", TidFault::Length),
        ("3jzf-cij-pj2z-2a", TidFault::Length),
        ("3jzfcijpj2z21", TidFault::Character),
        ("3jzfcijpj2z20", TidFault::Character),
        ("3jzfcijpj2z28", TidFault::Character),
        ("3jzfcijpj2z29", TidFault::Character),
        ("0000000000000", TidFault::Character),
        ("3JZFCIJPJ2Z2A", TidFault::Character),
        ("3jzfcijpj2z2 ", TidFault::Character),
        ("3jzfcijpj2zé", TidFault::Character),
        ("3jzfcijpj2z2-", TidFault::Character),
        ("zzzzzzzzzzzzz", TidFault::First),
        ("kjzfcijpj2z2a", TidFault::First),
        ("k222222222222", TidFault::First),
    ];
    for (text, fault) in refused {
        assert_eq!(Tid::parse(text).unwrap_err().fault, fault, "{text}");
    }
}

#[test]
fn a_tid_is_a_time_and_a_clock() {
    // 2023-06-01T00:00:00Z, clock 7; the text was worked out with another program.
    let micros = 1_685_577_600_000_000;
    let tid = Tid::from_micros(micros, 7);
    assert_eq!((tid.micros(), tid.clock_id()), (micros, 7));
    assert_eq!(tid.to_bits(), micros * 1024 + 7);
    assert_eq!(tid.to_string(), "3jx2sj3hs222b");
    assert!(Tid::from_micros(micros, 8) > tid);
    assert!(Tid::from_micros(micros + 1, 0) > tid);
    let last = Tid::from_micros((1 << 53) - 1, 1023);
    assert_eq!(last.to_string(), "bzzzzzzzzzzzz");
}

#[test]
fn a_rev_may_be_five_minutes_ahead_and_no_more() {
    let now = 1_700_000_000_000_000;
    let at = |micros: u64| -> Rev { Tid::from_micros(micros, 1023) };
    assert!(!at(0).is_future(now));
    assert!(!at(now).is_future(now));
    assert!(!at(now + REV_FUTURE_MICROS).is_future(now));
    assert!(at(now + REV_FUTURE_MICROS + 1).is_future(now));
    // The bit that should be zero makes it later, not earlier.
    assert!(Tid::parse("jzzzzzzzzzzzz").unwrap().is_future(now));
    assert!(Tid::parse("c222222222222").unwrap().is_future(now));
    assert!(!at(now).is_future(u64::MAX));
}
