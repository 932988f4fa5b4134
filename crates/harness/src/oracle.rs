//! What a mirror says of a repository, held against the truth. Every helper that
//! sees an answer comes here first: nothing is believed because it says complete.

use gapless::config::Flags;
use gapless_atp::syntax::{Did, Rev};
use gapless_mirror::api::RepoAnswer;
use gapless_testnet::{Records, Truth};

/// Which records a mirror was told to keep.
#[derive(Debug, Clone)]
pub struct Scope {
    patterns: Vec<String>,
    all_keys: bool,
}

impl Scope {
    pub fn of(flags: &Flags) -> Scope {
        let patterns = flags.collections.as_deref().unwrap_or_default();
        Scope {
            patterns: patterns
                .split(',')
                .filter(|one| !one.is_empty())
                .map(str::to_owned)
                .collect(),
            all_keys: flags.keep_keys.as_deref() != Some("wanted"),
        }
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

    /// Whether at least its key is to be kept.
    pub fn keeps_key(&self, path: &str) -> bool {
        self.all_keys || self.wants(path)
    }
}

/// What is said to be held is what the owner signed at that rev: its commit, its
/// root, so many records. Returns the truth's records at that rev, if there is one.
pub fn agrees(truth: &Truth, scope: &Scope, answer: &RepoAnswer) -> Option<Records> {
    let Some(rev) = &answer.rev else {
        assert!(!answer.complete, "complete with nothing held: {answer:?}");
        return None;
    };
    assert_eq!(answer.complete, answer.reasons.is_empty(), "{answer:?}");
    let did = Did::parse(&answer.did).expect("a DID");
    let rev: Rev = rev.parse().expect("a rev");
    let commits = truth.commits(&did).expect("history is kept");
    let signed = commits.iter().find(|commit| commit.rev == rev);
    let signed = signed.unwrap_or_else(|| panic!("nobody signed this: {answer:?}"));
    assert_eq!(answer.data, Some(signed.data.to_string()), "{answer:?}");
    assert_eq!(answer.commit, Some(signed.commit.to_string()), "{answer:?}");
    let records = truth.records_at(&did, rev).expect("it was signed");
    let keys = records.keys().filter(|path| scope.keeps_key(path)).count();
    // Records are counted a moment after the row was read.
    if answer.complete && truth.head(&did).is_some_and(|head| head.rev == rev) {
        assert_eq!(answer.records, Some(keys as u64), "{answer:?}");
    }
    Some(records)
}
