//! Tests the DAG-CBOR decoder: what it reads, what it refuses, and what it reads with a flaw.
//!
//! The tables go through the rules of the strict form one by one. `oracles.rs` compares the
//! decoder with other decoders on arbitrary bytes.

mod common;

use common::values::{bytes_like_cbor, strict_value};
use data_encoding::HEXLOWER;
use gapless_atp::cbor::{
    CborError, Flaws, JsonError, Kind, Reader, Value, check_record, from_json, to_json,
};
use gapless_atp::cid::{Cid, CidError};
use gapless_atp::limits;
use proptest::prelude::*;
use serde_json::json;

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    HEXLOWER.decode(digits.as_bytes()).expect("hex")
}

/// Reads one whole value with the cursor.
fn skipped(bytes: &[u8]) -> Result<(), CborError> {
    let mut reader = Reader::new(bytes);
    reader.skip()?;
    reader.finish()
}

fn text(text: &str) -> Value<'_> {
    Value::Text(text.into())
}

const LINK: &str = "d82a582500 01711220 \
    65062a5a5a00fc16d73c6944237ccbc15b1c4a7234489336891d091741a239d0";

#[test]
fn strict_values_are_read_and_written_the_same() {
    let link = "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a";
    let link: Cid = link.parse().expect("a CID");
    for (bytes, value) in [
        ("00", Value::Int(0)),
        ("17", Value::Int(23)),
        ("1818", Value::Int(24)),
        ("18ff", Value::Int(255)),
        ("190100", Value::Int(256)),
        ("19ffff", Value::Int(65_535)),
        ("1a00010000", Value::Int(65_536)),
        ("1affffffff", Value::Int(4_294_967_295)),
        ("1b0000000100000000", Value::Int(4_294_967_296)),
        ("1b7fffffffffffffff", Value::Int(i64::MAX.into())),
        ("20", Value::Int(-1)),
        ("37", Value::Int(-24)),
        ("3818", Value::Int(-25)),
        ("3b7fffffffffffffff", Value::Int(i64::MIN.into())),
        ("40", Value::Bytes(b"".into())),
        ("420102", Value::Bytes((&[1, 2]).into())),
        ("60", text("")),
        ("62c3bc", text("ü")),
        ("64f09f9880", text("😀")),
        ("80", Value::Array(vec![])),
        ("8200f6", Value::Array(vec![Value::Int(0), Value::Null])),
        ("a0", Value::Map(vec![])),
        ("a1616101", Value::Map(vec![("a".into(), Value::Int(1))])),
        ("a16000", Value::Map(vec![("".into(), Value::Int(0))])),
        ("f4", Value::Bool(false)),
        ("f5", Value::Bool(true)),
        ("f6", Value::Null),
        (LINK, Value::Link(link)),
    ] {
        let bytes = hex(bytes);
        assert_eq!(skipped(&bytes), Ok(()), "{value:?}");
        assert_eq!(Value::decode_strict(&bytes), Ok(value.clone()));
        assert_eq!(check_record(&bytes), Ok(Flaws::NONE));
        assert_eq!(value.encode(), Some(bytes));
    }
}

/// Bytes, the error of the strict form, and the flaw with which the bytes are kept as a record,
/// or `None` if they cannot be read.
fn refused() -> Vec<(&'static str, CborError, Option<Flaws>)> {
    let truncated = CborError::Truncated;
    let tag = |number| CborError::Tag(number);
    let link = |error| CborError::Link(error);
    vec![
        // Nothing, or not all of it.
        ("", truncated.clone(), None),
        ("18", truncated.clone(), None),
        ("1900", truncated.clone(), None),
        ("1b00000001000000", truncated.clone(), None),
        ("4201", truncated.clone(), None),
        ("6261", truncated.clone(), None),
        ("81", truncated.clone(), None),
        ("a1", truncated.clone(), None),
        ("a16161", truncated.clone(), None),
        ("d82a", truncated.clone(), None),
        ("d82a5825000171", truncated.clone(), None),
        ("5b7fffffffffffffff", truncated.clone(), None),
        ("7b7fffffffffffffff00", truncated.clone(), None),
        // Too much.
        ("0000", CborError::Trailing, None),
        ("a0a0", CborError::Trailing, None),
        // Heads that could be shorter.
        ("1817", CborError::NotShortest, Some(Flaws::NOT_SHORTEST)),
        ("1900ff", CborError::NotShortest, Some(Flaws::NOT_SHORTEST)),
        (
            "1a0000ffff",
            CborError::NotShortest,
            Some(Flaws::NOT_SHORTEST),
        ),
        (
            "1b00000000ffffffff",
            CborError::NotShortest,
            Some(Flaws::NOT_SHORTEST),
        ),
        ("3800", CborError::NotShortest, Some(Flaws::NOT_SHORTEST)),
        ("580101", CborError::NotShortest, Some(Flaws::NOT_SHORTEST)),
        ("780161", CborError::NotShortest, Some(Flaws::NOT_SHORTEST)),
        ("9800", CborError::NotShortest, Some(Flaws::NOT_SHORTEST)),
        ("b800", CborError::NotShortest, Some(Flaws::NOT_SHORTEST)),
        (
            "a178016100",
            CborError::NotShortest,
            Some(Flaws::NOT_SHORTEST),
        ),
        // Map keys: shorter first, then by bytes, each once, text only.
        (
            "a2616201616102",
            CborError::KeyOrder,
            Some(Flaws::KEY_ORDER),
        ),
        (
            "a262616101616102",
            CborError::KeyOrder,
            Some(Flaws::KEY_ORDER),
        ),
        (
            "a2616101616102",
            CborError::KeyOrder,
            Some(Flaws::KEY_ORDER),
        ),
        ("a10000", CborError::KeyType, None),
        ("a1416100", CborError::KeyType, None),
        ("a1f600", CborError::KeyType, None),
        // Numbers outside 64 bits with sign.
        (
            "1b8000000000000000",
            CborError::IntegerRange,
            Some(Flaws::INTEGER_RANGE),
        ),
        (
            "1bffffffffffffffff",
            CborError::IntegerRange,
            Some(Flaws::INTEGER_RANGE),
        ),
        (
            "3b8000000000000000",
            CborError::IntegerRange,
            Some(Flaws::INTEGER_RANGE),
        ),
        (
            "3bffffffffffffffff",
            CborError::IntegerRange,
            Some(Flaws::INTEGER_RANGE),
        ),
        // Floats of all widths.
        ("f93c00", CborError::Float, Some(Flaws::FLOAT)),
        ("fa3f800000", CborError::Float, Some(Flaws::FLOAT)),
        ("fb3ff0000000000000", CborError::Float, Some(Flaws::FLOAT)),
        ("fb7ff8000000000000", CborError::Float, Some(Flaws::FLOAT)),
        ("f93c", CborError::Float, None),
        // Simple values.
        ("f7", CborError::Simple(23), Some(Flaws::UNDEFINED)),
        ("e0", CborError::Simple(0), None),
        ("f3", CborError::Simple(19), None),
        ("f8ff", CborError::Simple(24), None),
        ("f814", CborError::Simple(24), None),
        ("fc", CborError::Simple(28), None),
        // Indefinite lengths and the break that ends them.
        ("5f4101ff", CborError::Indefinite, None),
        ("7f6161ff", CborError::Indefinite, None),
        ("9f00ff", CborError::Indefinite, None),
        ("bf616100ff", CborError::Indefinite, None),
        ("a17f6161ff00", CborError::Indefinite, None),
        ("ff", CborError::Indefinite, None),
        // Heads that mean nothing.
        ("1c", CborError::Reserved(28), None),
        ("5d", CborError::Reserved(29), None),
        ("be", CborError::Reserved(30), None),
        // Tags.
        ("c000", tag(0), None),
        ("c249010000000000000000", tag(2), None),
        ("d82b00", tag(43), None),
        ("d9d9f700", tag(55_799), None),
        ("d9002a582500", CborError::NotShortest, None),
        // Links that are none.
        ("d82a00", wrong_kind(Kind::Bytes, Kind::Unsigned), None),
        ("d82a6161", wrong_kind(Kind::Bytes, Kind::Text), None),
        ("d82a40", link(CidError::Length(0)), None),
        ("d82a4100", link(CidError::Length(0)), None),
        ("d82a4101", link(CidError::Length(1)), None),
        // Text that is not UTF-8: an overlong slash, half a surrogate, a stray byte.
        ("62c0af", CborError::Utf8, Some(Flaws::UTF8)),
        ("63eda080", CborError::Utf8, Some(Flaws::UTF8)),
        ("61ff", CborError::Utf8, Some(Flaws::UTF8)),
        ("a161ff00", CborError::Utf8, Some(Flaws::UTF8)),
        // The same inside of something.
        ("81f7", CborError::Simple(23), Some(Flaws::UNDEFINED)),
        (
            "a16161fb3ff0000000000000",
            CborError::Float,
            Some(Flaws::FLOAT),
        ),
        (
            "8181a2616101616101",
            CborError::KeyOrder,
            Some(Flaws::KEY_ORDER),
        ),
    ]
}

fn wrong_kind(wanted: Kind, found: Kind) -> CborError {
    CborError::Unexpected { wanted, found }
}

#[test]
fn every_rule_of_the_strict_form_refuses() {
    for (text, error, flaw) in refused() {
        let bytes = hex(text);
        assert_eq!(skipped(&bytes), Err(error.clone()), "{text}");
        assert_eq!(Value::decode_strict(&bytes), Err(error), "{text}");
        let kept = check_record(&bytes);
        match flaw {
            Some(flaw) => assert_eq!(kept, Ok(flaw), "{text}"),
            None => assert!(kept.is_err(), "{text}: {kept:?}"),
        }
    }
}

#[test]
fn links_of_other_kinds_are_refused() {
    let good = hex(LINK);
    for (at, byte, error) in [
        (4, 1, CidError::Length(37)),
        (5, 0, CidError::Version(0)),
        (5, 2, CidError::Version(2)),
        (6, 0x80, CidError::Codec(0x80)),
        (7, 0x13, CidError::Hash(0x13, 0x20)),
        (8, 0x40, CidError::Hash(0x12, 0x40)),
    ] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert_eq!(skipped(&bytes), Err(CborError::Link(error.clone())));
        assert_eq!(check_record(&bytes), Err(CborError::Link(error)));
    }
    // A raw link is as good as any.
    let mut raw = good.clone();
    raw[6] = 0x55;
    assert_eq!(skipped(&raw), Ok(()));
}

#[test]
fn nesting_ends_at_its_limit() {
    let nested = |open: &[u8], depth: usize, end: &[u8]| {
        let mut bytes = open.repeat(depth);
        bytes.extend_from_slice(end);
        bytes
    };
    for open in [&[0x81][..], &[0xa1, 0x61, 0x61]] {
        let fits = nested(open, limits::NESTING, &[0x00]);
        assert_eq!(skipped(&fits), Ok(()));
        assert!(Value::decode_strict(&fits).is_ok());
        let json = to_json(&Value::decode_strict(&fits).unwrap());
        if open.len() > 1 {
            assert!(from_json(&json).is_ok());
        }
        let over = nested(open, limits::NESTING + 1, &[0x00]);
        assert_eq!(skipped(&over), Err(CborError::Nesting));
        assert_eq!(check_record(&over), Err(CborError::Nesting));
        let endless = nested(open, 1_000_000, &[]);
        assert_eq!(skipped(&endless), Err(CborError::Nesting));
        assert_eq!(check_record(&endless), Err(CborError::Nesting));
    }
    let deeper = (0..limits::NESTING).fold(json!({}), |inner, _| json!({ "a": inner }));
    assert_eq!(from_json(&deeper), Err(JsonError::Nesting));
}

#[test]
fn containers_have_a_limit_and_no_credit() {
    let items = limits::CONTAINER_ITEMS;
    let array = |count: usize| {
        let mut bytes = vec![0x9a];
        bytes.extend_from_slice(&(count as u32).to_be_bytes());
        bytes.resize(5 + count, 0xf6);
        bytes
    };
    assert_eq!(skipped(&array(items)), Ok(()));
    assert_eq!(check_record(&array(items)), Ok(Flaws::NONE));
    assert_eq!(skipped(&array(items + 1)), Err(CborError::Items));
    assert_eq!(check_record(&array(items + 1)), Err(CborError::Items));
    // A count that the bytes cannot hold is not believed.
    for (bytes, error) in [
        ("9a00010000f6", CborError::Truncated),
        ("ba00010000616100", CborError::Truncated),
        ("9bffffffffffffffff", CborError::Items),
        ("bb7fffffffffffffff", CborError::Items),
    ] {
        assert_eq!(skipped(&hex(bytes)), Err(error.clone()), "{bytes}");
        assert_eq!(check_record(&hex(bytes)), Err(error), "{bytes}");
    }
}

#[test]
fn a_typed_reader_says_what_it_wanted() {
    let reader = |text: &str| Box::leak(hex(text).into_boxed_slice()) as &[u8];
    let mut all = Reader::new(reader("a2 616118ff 6162 83 f5f620"));
    assert_eq!(all.peek(), Ok(Kind::Map));
    assert_eq!(all.map(), Ok(2));
    assert_eq!(all.expect_key("a"), Ok(()));
    assert_eq!(all.uint(), Ok(255));
    assert_eq!(all.key(), Ok("b"));
    assert_eq!(all.array(), Ok(3));
    assert!(!all.null());
    assert_eq!(all.bool(), Ok(true));
    assert!(all.null());
    assert_eq!(all.clone().finish(), Err(CborError::Trailing));
    assert_eq!(all.int(), Ok(-1));
    assert_eq!(all.rest(), b"");
    assert_eq!(all.peek(), Err(CborError::Truncated));
    assert_eq!(all.finish(), Ok(()));

    let missing = Err(CborError::MissingKey("data"));
    for other in [
        "6464617461",
        "6464617462",
        "636461 74",
        "656461746161",
        "00",
    ] {
        let mut reader = Reader::new(reader(other));
        let expected = if other == "6464617461" {
            Ok(())
        } else {
            missing.clone()
        };
        assert_eq!(reader.expect_key("data"), expected, "{other}");
    }
    let at = |text| Reader::new(reader(text));
    assert_eq!(
        at("20").uint(),
        Err(wrong_kind(Kind::Unsigned, Kind::Negative))
    );
    assert_eq!(
        at("6161").int(),
        Err(wrong_kind(Kind::Unsigned, Kind::Text))
    );
    assert_eq!(at("6161").bytes(), Err(wrong_kind(Kind::Bytes, Kind::Text)));
    assert_eq!(at("4161").text(), Err(wrong_kind(Kind::Text, Kind::Bytes)));
    assert_eq!(at("80").map(), Err(wrong_kind(Kind::Map, Kind::Array)));
    assert_eq!(at("a0").array(), Err(wrong_kind(Kind::Array, Kind::Map)));
    assert_eq!(at("00").bool(), Err(wrong_kind(Kind::Bool, Kind::Unsigned)));
    assert_eq!(at("f4").cid(), Err(wrong_kind(Kind::Tag, Kind::Bool)));
    assert_eq!(at("f6").cid_or_null(), Ok(None));
    assert_eq!(at("f93c00").uint(), Err(CborError::Float));
    assert_eq!(at("f7").bool(), Err(CborError::Simple(23)));
}

#[test]
fn a_flawed_record_is_read_as_well_as_it_can_be() {
    // Wide integers, three widths of float, a key twice, undefined, a bad byte.
    let bytes = hex(
        "a7 6161 1bffffffffffffffff 6162 f93e00 6163 fa3fc00000 6164 fb3ff8000000000000 \
        6164 f7 6165 62 61ff 6162 3bffffffffffffffff",
    );
    let (value, flaws) = Value::decode(&bytes).expect("readable");
    for flaw in [
        Flaws::FLOAT,
        Flaws::KEY_ORDER,
        Flaws::INTEGER_RANGE,
        Flaws::UTF8,
        Flaws::UNDEFINED,
    ] {
        assert!(flaws.contains(flaw), "{flaw} in {flaws}");
    }
    assert!(!flaws.contains(Flaws::NOT_SHORTEST));
    let all = "float,key_order,integer_range,utf8,undefined";
    assert_eq!(flaws.to_string(), all);
    assert_eq!(Flaws::NONE.to_string(), "");
    assert_eq!(value.get("a"), Some(&Value::Int(u64::MAX.into())));
    assert_eq!(value.get("b"), Some(&Value::Float(1.5)));
    assert_eq!(value.get("c"), Some(&Value::Float(1.5)));
    assert_eq!(value.get("e").and_then(Value::as_text), Some("a\u{fffd}"));
    assert_eq!(value.encode(), None);
    let shown = to_json(&value);
    assert_eq!(shown["b"], json!(null), "-2^64 is no JSON number here");
    assert_eq!(shown["a"], json!(u64::MAX));
    assert_eq!(shown["c"], json!(1.5));
    assert_eq!(shown["d"], json!(null));
}

#[test]
fn half_floats_are_numbers() {
    for (bits, value) in [
        ("f90000", 0.0),
        ("f93c00", 1.0),
        ("f9c000", -2.0),
        ("f97bff", 65_504.0),
        ("f90400", 0.000_061_035_156_25),
        ("f90001", 0.000_000_059_604_644_775_390_63),
        ("f97c00", f64::INFINITY),
        ("f9fc00", f64::NEG_INFINITY),
    ] {
        let bytes = hex(bits);
        let (read, _) = Value::decode(&bytes).expect("a float");
        assert_eq!(read, Value::Float(value), "{bits}");
    }
    let bytes = hex("f97e00");
    let (nan, flaws) = Value::decode(&bytes).expect("a float");
    assert!(matches!(nan, Value::Float(nan) if nan.is_nan()));
    assert_eq!(flaws, Flaws::FLOAT);
    assert_eq!(to_json(&nan), json!(null));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_encoded_decodes_to_itself(value in strict_value()) {
        let bytes = value.encode().expect("strict");
        prop_assert_eq!(skipped(&bytes), Ok(()));
        prop_assert_eq!(&Value::decode_strict(&bytes), &Ok(value));
        // Cut short anywhere, it is not read.
        for end in 0..bytes.len() {
            prop_assert!(skipped(&bytes[..end]).is_err());
            prop_assert!(check_record(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn no_flaws_means_strict(bytes in bytes_like_cbor()) {
        let strict = skipped(&bytes).is_ok();
        prop_assert_eq!(check_record(&bytes) == Ok(Flaws::NONE), strict);
        let lenient = Value::decode(&bytes);
        prop_assert_eq!(matches!(lenient, Ok((_, Flaws::NONE))), strict);
        prop_assert_eq!(Value::decode_strict(&bytes).is_ok(), strict);
        if let Ok((value, flaws)) = lenient {
            to_json(&value);
            // There is one strict form: a value that is read without flaw has
            // no other bytes, one with a flaw never has these.
            let encoded = value.encode();
            prop_assert_eq!(encoded.as_deref() == Some(&bytes[..]), flaws.is_empty());
        }
    }
}
