//! The text of the header `gapless-evidence`, which says how well a state is proven:
//! `complete; level=proven; as_of=…`, or
//! `incomplete; reasons=cover_down,…; level=chained; as_of=…`.

use std::fmt::Write;

use gapless_core::ledger::Repo;

use gapless_mirror::api::timestamp;
use gapless_mirror::services::Services;

/// Describes the current evidence for a repository.
pub(crate) fn describe(services: &Services, repo: &Repo) -> String {
    let answer = services.completeness(repo);
    let mut words = if answer.complete() {
        "complete".to_owned()
    } else {
        let reasons: Vec<&str> = answer.reasons.iter().map(|one| one.as_str()).collect();
        format!("incomplete; reasons={}", reasons.join(","))
    };
    // Writing into a string does not fail.
    let _ = write!(words, "; level={}", answer.evidence.level.as_str());
    if let Some(as_of) = answer.as_of.and_then(timestamp) {
        let _ = write!(words, "; as_of={as_of}");
    }
    words
}
