//! DAG-CBOR in the strict form that repositories use (DRISL).
//!
//! `read` is a cursor over borrowed bytes for typed decoding, `write` its
//! counterpart. `value` decodes a whole value, either strictly or, for records that are
//! kept verbatim although they break a rule, leniently. `json` converts records to and
//! from JSON with `$link` and `$bytes`.

mod json;
mod read;
mod value;
mod write;

pub use json::{JsonError, from_json, to_json};
pub use read::{CborError, Kind, Reader};
pub use value::{Flaws, Value, check_record};
pub use write::Writer;
