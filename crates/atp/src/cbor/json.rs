//! The JSON form of records, in both directions.
//!
//! A link is `{"$link": "bafy…"}`, bytes are `{"$bytes": "<base64>"}`, and a blob is an
//! ordinary map with `$type: "blob"`. [`from_json`] holds JSON from outside to the rules
//! of the data model. [`to_json`] shows CBOR that is already held as well as JSON can: a
//! float that is not a finite number becomes `null`, and of a repeated key the last value
//! is kept.

use std::borrow::Cow;

use data_encoding::BASE64_NOPAD;
use serde_json::{Map, Number, Value as Json};

use super::value::Value;
use crate::cid::{Cid, CidError};
use crate::limits;

/// Why a JSON value is not the JSON form of a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("a record must be an object")]
    NotAnObject,
    #[error("floating-point numbers are not allowed")]
    Float,
    #[error("an integer is out of range (64 bits with sign)")]
    IntegerRange,
    #[error("values are nested more than {} deep", limits::NESTING)]
    Nesting,
    #[error("'$link' must be the only field and hold a CID as text")]
    LinkShape,
    #[error("'$link' does not hold a valid CID: {0}")]
    Link(CidError),
    #[error("'$bytes' must be the only field and hold base64 as text")]
    Bytes,
    #[error("'$type' must be non-empty text")]
    Type,
    #[error("a blob must have a link 'ref', a text 'mimeType' and an integer 'size'")]
    Blob,
}

/// Converts a value to JSON.
pub fn to_json(value: &Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Number::from_i128(*value).map_or(Json::Null, Json::Number),
        Value::Float(value) => Number::from_f64(*value).map_or(Json::Null, Json::Number),
        Value::Bytes(bytes) => single("$bytes", BASE64_NOPAD.encode(bytes)),
        Value::Text(text) => Json::String(text.to_string()),
        Value::Link(cid) => single("$link", cid.to_string()),
        Value::Array(items) => Json::Array(items.iter().map(to_json).collect()),
        Value::Map(pairs) => Json::Object(
            pairs
                .iter()
                .map(|(key, value)| (key.to_string(), to_json(value)))
                .collect(),
        ),
    }
}

fn single(key: &str, text: String) -> Json {
    let mut map = Map::new();
    map.insert(key.to_owned(), Json::String(text));
    Json::Object(map)
}

/// Reads the JSON form of a record.
pub fn from_json(json: &Json) -> Result<Value<'static>, JsonError> {
    match read(json, limits::NESTING)? {
        record @ Value::Map(_) => Ok(record),
        _ => Err(JsonError::NotAnObject),
    }
}

fn read(json: &Json, depth: usize) -> Result<Value<'static>, JsonError> {
    match json {
        Json::Null => Ok(Value::Null),
        Json::Bool(value) => Ok(Value::Bool(*value)),
        Json::Number(number) => read_number(number),
        Json::String(text) => Ok(Value::Text(Cow::Owned(text.clone()))),
        Json::Array(items) => {
            let deeper = depth.checked_sub(1).ok_or(JsonError::Nesting)?;
            let items = items.iter().map(|item| read(item, deeper));
            Ok(Value::Array(items.collect::<Result<_, _>>()?))
        }
        Json::Object(map) => read_map(map, depth),
    }
}

fn read_number(number: &Number) -> Result<Value<'static>, JsonError> {
    if let Some(value) = number.as_i64() {
        return Ok(Value::Int(i128::from(value)));
    }
    if number.is_u64() {
        return Err(JsonError::IntegerRange);
    }
    // A float with no fraction is the same number as the integer: 123.0 is 123.
    match number.as_f64() {
        Some(value) if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 => {
            Ok(Value::Int(value as i128))
        }
        _ => Err(JsonError::Float),
    }
}

fn read_map(map: &Map<String, Json>, depth: usize) -> Result<Value<'static>, JsonError> {
    if let Some(link) = map.get("$link") {
        let Json::String(text) = link else {
            return Err(JsonError::LinkShape);
        };
        if map.len() != 1 {
            return Err(JsonError::LinkShape);
        }
        return text
            .parse::<Cid>()
            .map(Value::Link)
            .map_err(JsonError::Link);
    }
    if let Some(bytes) = map.get("$bytes") {
        let Json::String(text) = bytes else {
            return Err(JsonError::Bytes);
        };
        if map.len() != 1 {
            return Err(JsonError::Bytes);
        }
        // Padding is optional in JSON from other software.
        let bytes = BASE64_NOPAD
            .decode(text.trim_end_matches('=').as_bytes())
            .map_err(|_| JsonError::Bytes)?;
        return Ok(Value::Bytes(Cow::Owned(bytes)));
    }
    let deeper = depth.checked_sub(1).ok_or(JsonError::Nesting)?;
    let mut pairs = Vec::with_capacity(map.len());
    for (key, item) in map {
        pairs.push((Cow::Owned(key.clone()), read(item, deeper)?));
    }
    let value = Value::Map(pairs);
    check_type(&value)?;
    Ok(value)
}

fn check_type(value: &Value<'_>) -> Result<(), JsonError> {
    match value.get("$type") {
        None => Ok(()),
        Some(Value::Text(name)) if name == "blob" => {
            match (value.get("ref"), value.get("mimeType"), value.get("size")) {
                (Some(Value::Link(_)), Some(Value::Text(_)), Some(Value::Int(size)))
                    if *size >= 0 =>
                {
                    Ok(())
                }
                _ => Err(JsonError::Blob),
            }
        }
        Some(Value::Text(name)) if !name.is_empty() => Ok(()),
        Some(_) => Err(JsonError::Type),
    }
}
