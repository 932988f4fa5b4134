//! Records as JSON: one, or a collection page by page, newest record key first.

use gapless_atp::cbor::{Value, to_json};
use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, split_path_bytes};
use gapless_store::error::StoreError;
use gapless_store::table::record::Record;
use serde::Serialize;
use serde_json::Value as Json;

use crate::serve::Serving;
use crate::serve::limits::{COLLECTIONS, LOOKED_AT, RECORDS_BYTES};
use crate::serve::lookup::Exact;
use crate::serve::refuse::Refusal;
use gapless_core::filter::Keep;

/// Above every path that names a record.
const BEYOND: [u8; 1] = [u8::MAX];

/// A record, as the lexicons show it.
#[derive(Debug, Serialize)]
pub struct Shown {
    pub uri: String,
    pub cid: String,
    pub value: Json,
}

#[derive(Debug, Default, Serialize)]
pub struct RecordsPage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    pub records: Vec<Shown>,
}

/// Which page of a collection.
pub struct Asked {
    pub collection: String,
    pub limit: usize,
    /// The last record key of the page before.
    pub cursor: Option<String>,
    /// Oldest record key first.
    pub reverse: bool,
}

impl Serving {
    /// The record at a path, if it is this version of it.
    pub fn record(
        &self,
        did: &Did,
        path: &str,
        version: Option<&Cid>,
    ) -> Result<(Exact, Shown), Refusal> {
        let exact = self.exact(did)?;
        self.needs_records_of(path)?;
        let record = exact.view.record(exact.id, path.as_bytes())?;
        let record = record.filter(|record| version.is_none_or(|cid| record.cid == *cid));
        let shown = record.as_ref().and_then(|record| show(did, path, record));
        match shown {
            Some(shown) => Ok((exact, shown)),
            None => Err(Refusal::RecordNotFound(format!(
                "Could not locate record: at://{did}/{path}"
            ))),
        }
    }

    /// One page of a collection. It ends early when its records are large.
    pub fn records(&self, did: &Did, asked: &Asked) -> Result<(Exact, RecordsPage), Refusal> {
        let exact = self.exact(did)?;
        self.needs_records_of(&format!("{}/", asked.collection))?;
        // The byte after the slash, so that the range has this collection alone.
        let (low, high) = (
            format!("{}/", asked.collection),
            format!("{}0", asked.collection),
        );
        let at = asked.cursor.as_ref().map(|key| format!("{low}{key}"));
        let rows: Box<dyn Iterator<Item = Result<Record, StoreError>>> = if asked.reverse {
            // The least path above the cursor.
            let from = at.map_or(low, |at| format!("{at}\0"));
            Box::new(
                exact
                    .view
                    .records_between(exact.id, from.as_bytes(), high.as_bytes()),
            )
        } else {
            let to = at.unwrap_or(high);
            let rows = exact
                .view
                .records_between(exact.id, low.as_bytes(), to.as_bytes());
            Box::new(rows.rev())
        };
        let mut page = RecordsPage::default();
        let mut bytes = 0;
        for record in rows {
            let record = record?;
            // A tree may hold keys that name no record.
            let Ok((_, key)) = split_path_bytes(record.path()) else {
                continue;
            };
            let path = format!("{}/{key}", asked.collection);
            let Some(shown) = show(did, &path, &record) else {
                return Err(Refusal::Internal(format!(
                    "the bytes of at://{did}/{path} are not held"
                )));
            };
            bytes += record.bytes().map_or(0, <[u8]>::len);
            page.records.push(shown);
            if page.records.len() == asked.limit || bytes > RECORDS_BYTES {
                page.cursor = Some(key.to_owned());
                break;
            }
        }
        Ok((exact, page))
    }

    /// The collections that a repository has records in, of those that are known here.
    pub fn collections(&self, exact: &Exact) -> Result<Vec<String>, Refusal> {
        let (mut found, mut from) = (Vec::new(), Vec::new());
        // One look for each: from a collection straight to what follows it.
        for _ in 0..LOOKED_AT {
            let mut rows = exact.view.records_between(exact.id, &from, &BEYOND);
            let Some(record) = rows.next().transpose()? else {
                break;
            };
            if let Ok((collection, _)) = split_path_bytes(record.path()) {
                found.push(collection.to_owned());
            }
            if found.len() == COLLECTIONS {
                break;
            }
            from = after_collection(record.path());
        }
        // Of what begins alike, some keys may name no record and others do.
        found.dedup();
        Ok(found)
    }

    /// Refuses what is not kept, rather than to say that it is not there.
    fn needs_records_of(&self, path: &str) -> Result<(), Refusal> {
        match self.services.rules.filter.keep(path.as_bytes()) {
            Keep::Record => Ok(()),
            Keep::Key | Keep::Nothing => Err(Refusal::invalid(format!(
                "{}, and {path} is none of that",
                self.keeps_only()
            ))),
        }
    }
}

/// Where the paths end that have the collection of this one; without a collection,
/// the next path.
fn after_collection(path: &[u8]) -> Vec<u8> {
    let slash = path.iter().position(|byte| *byte == b'/');
    let mut from = match slash {
        Some(slash) => path[..slash].to_vec(),
        None => path.to_vec(),
    };
    from.push(match slash {
        Some(_) => b'/' + 1,
        None => 0,
    });
    from
}

/// A record as JSON; none if its bytes are not held. Bytes that are no value are
/// shown as bytes.
fn show(did: &Did, path: &str, record: &Record) -> Option<Shown> {
    let bytes = record.bytes().filter(|bytes| record.cid.matches(bytes))?;
    let value = match Value::decode(bytes) {
        Ok((value, _)) => to_json(&value),
        Err(_) => to_json(&Value::Bytes(bytes.into())),
    };
    Some(Shown {
        uri: format!("at://{did}/{path}"),
        cid: record.cid.to_string(),
        value,
    })
}
