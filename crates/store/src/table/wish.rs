//! Rows of `meta` for what the operator wants: the DIDs that are tracked by name, and the
//! collections that are kept.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{FilterGen, Time};

use crate::codec::{RowFault, RowReader, RowWriter, read_row};

const VERSION: u8 = 1;
/// Version 2 added the collection by which a repository was found.
const TRACKED_VERSION: u8 = 2;

/// The key of the filter.
pub const FILTER_KEY: &[u8] = b"filter";

/// The prefix of the key of a tracked DID.
pub(crate) const TRACKED_PREFIX: &[u8] = b"tracked/";

/// The most patterns in one filter.
const MAX_PATTERNS: usize = 100_000;

/// The row of the filter: the collections that are kept.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FilterRow {
    pub generation: FilterGen,
    /// The patterns of the collections that are kept; empty means all collections.
    pub patterns: Vec<String>,
    /// Whether not even the keys of other collections are kept.
    pub wanted_keys_only: bool,
}

/// The row of a repository that is tracked by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedRow {
    pub since: Time,
    /// The collection by which the repository was found; `None` if an operator named it.
    pub found: Option<String>,
}

pub(crate) fn tracked_key(did: &Did) -> Vec<u8> {
    [TRACKED_PREFIX, did.as_str().as_bytes()].concat()
}

pub(crate) fn read_tracked_key(key: &[u8]) -> Result<Did, RowFault> {
    let did = key.strip_prefix(TRACKED_PREFIX);
    let did = did.and_then(|did| std::str::from_utf8(did).ok());
    did.and_then(|did| Did::parse(did).ok())
        .ok_or(RowFault::Value("DID"))
}

pub(crate) fn encode_tracked(tracked: &TrackedRow) -> Vec<u8> {
    let TrackedRow { since, found } = tracked;
    let mut row = RowWriter::new(TRACKED_VERSION, 40);
    row.time(*since);
    row.maybe(found.as_deref(), |row, found| {
        row.text(found);
    });
    row.finish()
}

pub(crate) fn decode_tracked(bytes: &[u8]) -> Result<TrackedRow, RowFault> {
    read_row(bytes, TRACKED_VERSION, |row, version| {
        Ok(TrackedRow {
            since: row.time()?,
            found: match version {
                1 => None,
                _ => row.maybe(|row| row.text().map(str::to_owned))?,
            },
        })
    })
}

pub(crate) fn encode_filter(filter: &FilterRow) -> Vec<u8> {
    let FilterRow {
        generation,
        patterns,
        wanted_keys_only,
    } = filter;
    let mut row = RowWriter::new(VERSION, 32);
    row.number(generation.0.into()).flag(*wanted_keys_only);
    row.number(patterns.len() as u64);
    for pattern in patterns {
        row.text(pattern);
    }
    row.finish()
}

pub(crate) fn decode_filter(bytes: &[u8]) -> Result<FilterRow, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        let generation = FilterGen(row.small()?);
        let wanted_keys_only = row.flag()?;
        let count = row.number()? as usize;
        if count > MAX_PATTERNS {
            return Err(RowFault::Value("patterns"));
        }
        let patterns = (0..count).map(|_| RowReader::text(row).map(str::to_owned));
        Ok(FilterRow {
            generation,
            patterns: patterns.collect::<Result<_, _>>()?,
            wanted_keys_only,
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary::{did, time};
    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            did in did(),
            since in time(),
            found in prop::option::of("[a-z.*]{1,20}"),
            generation in any::<u32>().prop_map(FilterGen),
            patterns in prop::collection::vec("[a-z.*]{0,20}", 0..5),
            wanted_keys_only in any::<bool>(),
        ) {
            prop_assert_eq!(read_tracked_key(&tracked_key(&did)), Ok(did));
            let tracked = TrackedRow { since, found };
            prop_assert_eq!(decode_tracked(&encode_tracked(&tracked)), Ok(tracked));
            let filter = FilterRow { generation, patterns, wanted_keys_only };
            prop_assert_eq!(decode_filter(&encode_filter(&filter)), Ok(filter));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (decode_tracked(&bytes), decode_filter(&bytes), read_tracked_key(&bytes));
        }
    }
}
