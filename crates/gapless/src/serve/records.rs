//! Returns records as JSON: one record, or a collection page by page.

use gapless_atp::cbor::{Value, to_json};
use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, split_path_bytes};
use gapless_store::error::StoreError;
use gapless_store::table::record::Record;
use serde::Serialize;
use serde_json::Value as Json;

use crate::serve::Serving;
use crate::serve::limits::{COLLECTION_SEEKS, MAX_COLLECTIONS, RECORDS_PAGE_BYTES};
use crate::serve::lookup::ServedState;
use crate::serve::refuse::ServeError;
use gapless_core::filter::Keep;

/// Sorts after every path of a record.
const AFTER_ALL_PATHS: [u8; 1] = [u8::MAX];

/// A record in the form of the lexicons.
#[derive(Debug, Serialize)]
pub(crate) struct RecordOutput {
    pub(crate) uri: String,
    pub(crate) cid: String,
    pub(crate) value: Json,
}

/// The output of `listRecords`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ListRecordsOutput {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
    pub(crate) records: Vec<RecordOutput>,
}

/// Selects a page of a collection.
pub(crate) struct RecordsQuery {
    pub(crate) collection: String,
    pub(crate) limit: usize,
    /// The last record key of the previous page.
    pub(crate) cursor: Option<String>,
    /// Ascending record keys; otherwise descending.
    pub(crate) reverse: bool,
}

impl Serving {
    /// The record at a path; with `version`, only if it has this CID.
    pub(crate) fn record(
        &self,
        did: &Did,
        path: &str,
        version: Option<&Cid>,
    ) -> Result<(ServedState, RecordOutput), ServeError> {
        let state = self.served_state(did)?;
        self.require_records_of(path)?;
        let record = state.view.record(state.id, path.as_bytes())?;
        let record = record.filter(|record| version.is_none_or(|cid| record.cid == *cid));
        let output = record
            .as_ref()
            .and_then(|record| record_output(did, path, record));
        match output {
            Some(output) => Ok((state, output)),
            None => Err(ServeError::RecordNotFound(format!(
                "Could not locate record: at://{did}/{path}"
            ))),
        }
    }

    /// One page of a collection. A page ends early after `RECORDS_PAGE_BYTES`.
    pub(crate) fn records(
        &self,
        did: &Did,
        query: &RecordsQuery,
    ) -> Result<(ServedState, ListRecordsOutput), ServeError> {
        let state = self.served_state(did)?;
        self.require_records_of(&format!("{}/", query.collection))?;
        // `0` is the byte after the slash, so the range has this collection alone.
        let (low, high) = (
            format!("{}/", query.collection),
            format!("{}0", query.collection),
        );
        let at = query.cursor.as_ref().map(|key| format!("{low}{key}"));
        let rows: Box<dyn Iterator<Item = Result<Record, StoreError>>> = if query.reverse {
            // The least path above the cursor.
            let from = at.map_or(low, |at| format!("{at}\0"));
            Box::new(
                state
                    .view
                    .records_between(state.id, from.as_bytes(), high.as_bytes()),
            )
        } else {
            let to = at.unwrap_or(high);
            let rows = state
                .view
                .records_between(state.id, low.as_bytes(), to.as_bytes());
            Box::new(rows.rev())
        };
        let mut page = ListRecordsOutput::default();
        let mut bytes = 0;
        for record in rows {
            let record = record?;
            // A tree may hold keys that are not paths of records.
            let Ok((_, key)) = split_path_bytes(record.path()) else {
                continue;
            };
            let path = format!("{}/{key}", query.collection);
            let Some(output) = record_output(did, &path, &record) else {
                return Err(ServeError::Internal(format!(
                    "the bytes of at://{did}/{path} are not held"
                )));
            };
            bytes += record.bytes().map_or(0, <[u8]>::len);
            page.records.push(output);
            if page.records.len() == query.limit || bytes > RECORDS_PAGE_BYTES {
                page.cursor = Some(key.to_owned());
                break;
            }
        }
        Ok((state, page))
    }

    /// The collections of which the mirror holds records of this repository.
    pub(crate) fn collections(&self, state: &ServedState) -> Result<Vec<String>, ServeError> {
        let (mut found, mut from) = (Vec::new(), Vec::new());
        // One seek per collection: from a collection straight to the next one.
        for _ in 0..COLLECTION_SEEKS {
            let mut rows = state
                .view
                .records_between(state.id, &from, &AFTER_ALL_PATHS);
            let Some(record) = rows.next().transpose()? else {
                break;
            };
            if let Ok((collection, _)) = split_path_bytes(record.path()) {
                found.push(collection.to_owned());
            }
            if found.len() == MAX_COLLECTIONS {
                break;
            }
            from = after_collection(record.path());
        }
        // A collection is found again if some of its keys are not paths of records.
        found.dedup();
        Ok(found)
    }

    /// Fails if the filter does not keep these records, instead of reporting them missing.
    fn require_records_of(&self, path: &str) -> Result<(), ServeError> {
        match self.services.rules.filter.keep(path.as_bytes()) {
            Keep::Record => Ok(()),
            Keep::Key | Keep::Nothing => Err(ServeError::invalid(format!(
                "{}, and {path} is none of that",
                self.describe_filter()
            ))),
        }
    }
}

/// The end of the paths that share the collection of this path; for a path without a
/// collection, the next path.
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

/// The record as JSON; `None` if its bytes are not held. Bytes that do not decode are
/// shown as bytes.
fn record_output(did: &Did, path: &str, record: &Record) -> Option<RecordOutput> {
    let bytes = record.bytes().filter(|bytes| record.cid.matches(bytes))?;
    let value = match Value::decode(bytes) {
        Ok((value, _)) => to_json(&value),
        Err(_) => to_json(&Value::Bytes(bytes.into())),
    };
    Some(RecordOutput {
        uri: format!("at://{did}/{path}"),
        cid: record.cid.to_string(),
        value,
    })
}
