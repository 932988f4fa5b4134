#![no_main]
//! CBOR: the strict and the lenient reader agree with each other and with another
//! library.

use gapless_atp::cbor::{CborError, Flaws, Reader, Value, check_record, to_json};
use ipld_core::ipld::Ipld;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = Reader::new(bytes);
    let skipped = reader.skip().and_then(|()| reader.finish());
    let strict = Value::decode_strict(bytes);
    assert_eq!(strict.as_ref().map(drop), skipped.as_ref().copied());
    assert_eq!(check_record(bytes) == Ok(Flaws::NONE), strict.is_ok());
    if let Ok((value, flaws)) = Value::decode(bytes) {
        to_json(&value);
        assert_eq!(flaws.is_empty(), strict.is_ok());
        assert_eq!(value.encode().as_deref() == Some(bytes), flaws.is_empty());
    }
    let ipld = serde_ipld_dagcbor::from_slice::<Ipld>(bytes);
    match strict {
        Ok(_) => {
            let again = serde_ipld_dagcbor::to_vec(&ipld.expect("strict bytes"));
            assert_eq!(again.expect("a value"), bytes);
        }
        // No floats, signed 64 bits, links of one kind, and the limits of this crate.
        Err(
            CborError::Float
            | CborError::IntegerRange
            | CborError::Link(_)
            | CborError::Nesting
            | CborError::Items,
        ) => {}
        Err(error) => assert!(ipld.is_err(), "{error}"),
    }
});
