//! Reads JSON from untrusted sources and keeps only the wanted parts.
//!
//! A hostile JSON text can take a hundred times its size in memory once parsed. A reader
//! therefore says first which fields it wants and how many items of a list; everything
//! else is skipped and never held. A wanted field whose value has another type counts as
//! `null`, so a reader that asks for text finds none. If a field is repeated, the last
//! value counts.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The part of a JSON value that a reader keeps.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// Text or a boolean.
    Word,
    /// The named fields of an object.
    Fields(&'static [(&'static str, Wanted)]),
    /// Every item of a list. A list with more than this number of items is an error.
    Items(&'static Wanted, usize),
}

impl Wanted {
    /// Reads a whole JSON text and returns the wanted part.
    pub fn read(&self, json: &[u8]) -> Result<Value, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let value = self.deserialize(&mut reader)?;
        reader.end()?;
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for &Wanted {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Wanted {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("any JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(match self {
            Wanted::Word => Value::Bool(value),
            Wanted::Fields(_) | Wanted::Items(..) => Value::Null,
        })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(match self {
            Wanted::Word => Value::String(text.to_owned()),
            Wanted::Fields(_) | Wanted::Items(..) => Value::Null,
        })
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let Wanted::Fields(wanted) = self else {
            while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut kept = Map::new();
        while let Some(field) = fields.next_key_seed(Name(wanted))? {
            match field {
                Some((name, wanted)) => {
                    kept.insert((*name).to_owned(), fields.next_value_seed(wanted)?);
                }
                None => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(kept))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Wanted::Items(wanted, most) = self else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut kept = Vec::new();
        while let Some(item) = items.next_element_seed(*wanted)? {
            if kept.len() == *most {
                let what = format_args!("a list has more than {most} items");
                return Err(A::Error::custom(what));
            }
            kept.push(item);
        }
        Ok(Value::Array(kept))
    }
}

/// Looks up the name of a field among the wanted ones.
struct Name(&'static [(&'static str, Wanted)]);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static (&'static str, Wanted)>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static (&'static str, Wanted)>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|(wanted, _)| *wanted == name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WANTED: Wanted = Wanted::Fields(&[
        ("name", Wanted::Word),
        ("good", Wanted::Word),
        ("deep", Wanted::Fields(&[("name", Wanted::Word)])),
        ("list", Wanted::Items(&ITEM, 3)),
    ]);
    const ITEM: Wanted = Wanted::Fields(&[("id", Wanted::Word)]);

    fn read(json: &str) -> Value {
        WANTED.read(json.as_bytes()).unwrap()
    }

    #[test]
    fn fields_that_were_not_asked_for_are_dropped() {
        let told = json!({
            "name": "a\n\u{e9}", "good": true, "": {"name": [1, {"deep": "x"}]}, "more": [[[]]],
            "deep": {"name": "b", "id": "c"},
            "list": [{"id": "d", "name": "e"}, {}],
        });
        let kept = json!({
            "name": "a\n\u{e9}", "good": true, "deep": {"name": "b"}, "list": [{"id": "d"}, {}],
        });
        assert_eq!(read(&told.to_string()), kept);
        assert_eq!(read(r#"{"n\u0061me":"a"}"#), json!({"name": "a"}));
    }

    #[test]
    fn another_kind_is_null_and_the_last_of_two_counts() {
        for other in ["null", "5", "-5", "0.5", "[1]", r#"{"name":1}"#] {
            let value = read(&format!(r#"{{"name":{other}}}"#));
            assert_eq!(value, json!({"name": null}), "{other}");
        }
        for other in ["\"x\"", "true", "[{}]", "7"] {
            assert_eq!(
                read(&format!(r#"{{"deep":{other}}}"#)),
                json!({"deep": null})
            );
            assert_eq!(read(other), Value::Null);
        }
        assert_eq!(read(r#"{"list":{"id":"a"}}"#), json!({"list": null}));
        assert_eq!(read(r#"{"list":[1,"x"]}"#), json!({"list": [null, null]}));
        assert_eq!(read(r#"{"name":"a","name":"b"}"#), json!({"name": "b"}));
        assert_eq!(read(r#"{"name":"a","name":1}"#), json!({"name": null}));
    }

    #[test]
    fn a_list_with_an_item_too_many_is_an_error_that_names_the_bound() {
        assert_eq!(read(r#"{"list":[{},{},{}]}"#)["list"], json!([{}, {}, {}]));
        let error = WANTED.read(br#"{"list":[{},{},{},{}]}"#).unwrap_err();
        assert!(error.to_string().contains("more than 3 items"), "{error}");
    }

    #[test]
    fn what_is_no_json_is_an_error_wherever_it_stands() {
        for broken in [
            "",
            "{",
            "{\"a\":}",
            "{\"a\":[1,]}",
            "{} x",
            "{\"a\":{\"b\"}}",
            "[1",
            "nul",
        ] {
            assert!(WANTED.read(broken.as_bytes()).is_err(), "{broken}");
        }
        assert!(WANTED.read(b"{\"name\":\"\xff\"}").is_err());
        // Depth costs nothing where nothing is kept.
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(9_999), "]".repeat(9_999));
        assert_eq!(read(&deep), json!({}));
    }
}
