//! The oracle compares a mirror's answers and stored records with the truth of the test network.
//!
//! A mirrored repository may be behind; the mirror must then say so. The mirror may never hold
//! anything but the records that the owner signed at the rev that the mirror states. [`compare`]
//! checks this record by record and byte by byte, whether the repository is complete or not. The
//! demonstration and all tests of the program use the oracle.

use std::collections::BTreeMap;

use gapless_atp::syntax::{Did, Rev};
use gapless_mirror::api::RepoAnswer;
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use gapless_store::table::record::Record;
use gapless_testnet::{Records, Truth};

use crate::config::Flags;

/// The records that a mirror is configured to keep.
#[derive(Debug, Clone, Default)]
pub struct RecordScope {
    /// Patterns of collections; an empty list means all.
    patterns: Vec<String>,
    /// Whether the mirror keeps no keys of records outside the patterns.
    wanted_keys_only: bool,
    /// Whether the filter was narrower before. Until a repository is complete under the present
    /// filter, the mirror may hold fewer records than the filter wants.
    widened: bool,
}

impl RecordScope {
    /// The scope that the flags of `gapless run` choose.
    pub fn of(flags: &Flags) -> RecordScope {
        let patterns = flags.collections.as_deref().unwrap_or_default();
        RecordScope {
            patterns: patterns
                .split(',')
                .filter(|one| !one.is_empty())
                .map(str::to_owned)
                .collect(),
            wanted_keys_only: flags.keep_keys.as_deref() == Some("wanted"),
            widened: false,
        }
    }

    /// Sets whether the filter was narrower before.
    pub fn widened(self, widened: bool) -> RecordScope {
        RecordScope { widened, ..self }
    }

    /// Whether the record at a path is to be kept.
    pub fn wants(&self, path: &str) -> bool {
        let collection = path.split('/').next().unwrap_or(path);
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => collection.starts_with(beginning),
            None => collection == pattern,
        };
        self.patterns.is_empty() || self.patterns.iter().any(matches)
    }

    /// Whether at least the key of the record at a path is to be kept.
    pub(crate) fn keeps_key(&self, path: &str) -> bool {
        !self.wanted_keys_only || self.wants(path)
    }
}

/// The comparison of one repository with the truth.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Whether the mirror states a rev, so that there was something to compare.
    pub stated: bool,
    /// Whether the mirror calls the repository complete.
    pub complete: bool,
    /// Records that were compared byte by byte.
    pub records: u64,
    /// A description of each difference; empty if there is none.
    pub different: Vec<String>,
}

impl Comparison {
    /// Returns the comparison, for a caller for whom a difference is a failure.
    ///
    /// # Panics
    /// If anything differs.
    pub fn expect_true(self) -> Comparison {
        assert!(self.different.is_empty(), "{}", self.different.join("\n"));
        self
    }
}

/// The bytes of each record by path; `None` for a record of which only the key is kept.
pub type HeldRecords = BTreeMap<String, Option<Vec<u8>>>;

/// Compares an answer about a repository with the truth at the rev that the answer states: the
/// commit, the root, and the number of records of a complete repository. With a view of the store
/// taken after the answer, compares every record too, unless the repository has moved on in
/// between.
pub fn compare(
    truth: &Truth,
    scope: &RecordScope,
    answer: &RepoAnswer,
    view: Option<&ReadView>,
) -> Result<Comparison, StoreError> {
    let mut comparison = Comparison {
        stated: answer.rev.is_some(),
        complete: answer.complete,
        ..Comparison::default()
    };
    let different = &mut comparison.different;
    let (Ok(did), rev) = (Did::parse(&answer.did), answer.rev.as_deref()) else {
        different.push(format!("{}: no DID", answer.did));
        return Ok(comparison);
    };
    if answer.complete != answer.reasons.is_empty() {
        different.push(format!("{did}: complete or not? {answer:?}"));
    }
    let Some(rev) = rev else {
        if answer.complete {
            different.push(format!("{did}: complete, and nothing is held"));
        }
        return Ok(comparison);
    };
    let Ok(rev) = rev.parse::<Rev>() else {
        different.push(format!("{did}: {rev} is no rev"));
        return Ok(comparison);
    };
    let Some(signed) = compare_head(truth, scope, answer, &did, rev, different) else {
        return Ok(comparison);
    };
    if let Some(view) = view {
        let held = held_at(view, &did, rev, different)?;
        if let Some(held) = held {
            comparison.records = held.len() as u64;
            compare_records(&did, rev, scope, answer.complete, &held, &signed, different);
        }
    }
    Ok(comparison)
}

/// Compares the commit of an answer. Returns the records that the owner signed at its rev.
fn compare_head(
    truth: &Truth,
    scope: &RecordScope,
    answer: &RepoAnswer,
    did: &Did,
    rev: Rev,
    different: &mut Vec<String>,
) -> Option<Records> {
    let commits = truth.commits(did).unwrap_or_default();
    let signed = commits.iter().find(|commit| commit.rev == rev);
    match signed {
        Some(signed)
            if answer.commit == Some(signed.commit.to_string())
                && answer.data == Some(signed.data.to_string()) => {}
        Some(_) => different.push(format!("{did} at {rev}: another commit than was signed")),
        None => different.push(format!("{did}: the owner never signed {rev}")),
    }
    let signed = truth.records_at(did, rev)?;
    let keys = signed.keys().filter(|path| scope.keeps_key(path)).count() as u64;
    // The mirror counts the records after it has read the row, so the number is certain only
    // at the head.
    let at_head = truth.head(did).is_some_and(|head| head.rev == rev);
    if answer.complete && at_head && answer.records != Some(keys) {
        let counted = answer.records;
        different.push(format!("{did} at {rev}: {counted:?} records of {keys}"));
    }
    Some(signed)
}

/// The records that a view holds; `None` if the repository is at another rev there.
fn held_at(
    view: &ReadView,
    did: &Did,
    rev: Rev,
    different: &mut Vec<String>,
) -> Result<Option<HeldRecords>, StoreError> {
    let Some((id, repo)) = view.repo_by_did(did)? else {
        different.push(format!("{did}: stated and not in the store"));
        return Ok(None);
    };
    if repo.head().map(|head| head.rev) != Some(rev) {
        return Ok(None);
    }
    let held = view.records(id).map(|record| record.map(path_and_bytes));
    held.collect::<Result<HeldRecords, StoreError>>().map(Some)
}

fn path_and_bytes(record: Record) -> (String, Option<Vec<u8>>) {
    let path = String::from_utf8_lossy(record.path()).into_owned();
    (path, record.bytes().map(<[u8]>::to_vec))
}

/// Compares held records with those of the signed records that the filter keeps.
fn compare_records(
    did: &Did,
    rev: Rev,
    scope: &RecordScope,
    complete: bool,
    held: &HeldRecords,
    signed: &Records,
    different: &mut Vec<String>,
) {
    let wanted = |(path, (_, bytes)): (&String, &(_, bytes::Bytes))| {
        let bytes = scope.wants(path).then(|| bytes.to_vec());
        (path.clone(), bytes)
    };
    let kept = signed.iter().filter(|(path, _)| scope.keeps_key(path));
    let mut wanted: HeldRecords = kept.map(wanted).collect();
    if scope.widened && !complete {
        // Records that both have must have the signed bytes; a held key may lack its bytes.
        let mut both = held.clone();
        both.retain(|path, _| wanted.contains_key(path));
        wanted.retain(|path, _| held.contains_key(path));
        for (path, bytes) in &mut wanted {
            *bytes = bytes.take().filter(|_| held[path].is_some());
        }
        differing(did, rev, &both, &wanted, different);
    } else {
        differing(did, rev, held, &wanted, different);
    }
}

/// Names every record that is missing, extra, or has other bytes than in the truth.
pub fn differing(
    did: &Did,
    rev: Rev,
    held: &HeldRecords,
    truth: &HeldRecords,
    different: &mut Vec<String>,
) {
    for (path, bytes) in truth {
        let words = match held.get(path) {
            None => "is missing",
            Some(own) if own != bytes => "has other bytes",
            Some(_) => continue,
        };
        different.push(format!("{did} at {rev}: {path} {words}"));
    }
    for path in held.keys() {
        if !truth.contains_key(path) {
            different.push(format!("{did} at {rev}: {path} is held and was not signed"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_extra_or_other_is_found() {
        let did = Did::parse("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").unwrap();
        let rev: Rev = "3l6oveex3ii2l".parse().unwrap();
        let of = |(path, bytes): (&str, &[u8; 1])| (path.to_owned(), Some(bytes.to_vec()));
        let truth: HeldRecords = [("a/same", b"1"), ("a/other", b"2"), ("a/gone", b"3")]
            .map(of)
            .into();
        let held: HeldRecords = [("a/same", b"1"), ("a/other", b"9"), ("a/extra", b"4")]
            .map(of)
            .into();
        let mut found = Vec::new();
        differing(&did, rev, &held, &truth, &mut found);
        let all = found.join("\n");
        assert_eq!(found.len(), 3, "{all}");
        assert!(all.contains("a/gone is missing") && all.contains("a/other has other bytes"));
        assert!(all.contains("a/extra is held and was not signed"));
    }
}
