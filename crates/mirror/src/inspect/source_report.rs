//! Compares the upstreams with each other, and lists what unproven upstreams claim, for
//! answers and for Prometheus.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use gapless_core::ledger::{RepoId, UpstreamId};

use crate::api::{ApiError, ClaimsAnswer, RepoAnswer, SourceAnswer, UpstreamAnswer, timestamp};
use crate::inspect::repo::upstream_url;
use crate::metrics::head;
use crate::services::Services;

/// The level of evidence of a repository that is known by claims alone.
const CLAIMED: &str = "claimed";

/// Adds the unproven claims about a repository to its answer.
pub(crate) fn add_claims(
    services: &Services,
    id: RepoId,
    told: &mut RepoAnswer,
) -> Result<(), ApiError> {
    let (mut count, mut newest, mut by) = (0, None, BTreeSet::new());
    for row in services.store.view().claims(id) {
        let (_, claim) = row?;
        count += 1;
        newest = newest.max(Some(claim.rev));
        by.insert(claim.upstream);
    }
    if count == 0 {
        return Ok(());
    }
    if told.rev.is_none() {
        told.evidence.level = CLAIMED.to_owned();
    }
    let named = |id: UpstreamId| upstream_url(services, id).unwrap_or_else(|| "left".to_owned());
    told.claims = Some(ClaimsAnswer {
        count,
        rev: newest.map(|rev| rev.to_string()),
        upstreams: by.into_iter().map(named).collect(),
    });
    Ok(())
}

/// The comparison of an upstream with the others; `None` if there has never been another.
pub(crate) fn source_answer(services: &Services, id: UpstreamId) -> Option<SourceAnswer> {
    let sources = &services.upstreams.sources;
    let figures = sources.figures(id)?;
    let counted = figures.first + figures.late + figures.missed > 0;
    (counted || sources.has_several()).then(|| SourceAnswer {
        first: figures.first,
        late: figures.late,
        missed: figures.missed,
        lossy_since: figures.missed_first.and_then(timestamp),
        last_missed: figures.missed_last.and_then(timestamp),
        late_mean_seconds: figures.late_mean.as_ref().map(Duration::as_secs_f64),
        late_p99_seconds: figures.late_p99.as_ref().map(Duration::as_secs_f64),
        late_max_seconds: figures.late_max.as_ref().map(Duration::as_secs_f64),
    })
}

/// Appends the metrics that compare the upstreams with each other.
pub(crate) fn source_metrics(services: &Services, out: &mut String, upstreams: &[UpstreamAnswer]) {
    type SourceColumn = fn(&SourceAnswer) -> Option<f64>;
    let figures: [(&str, &str, &str, SourceColumn); 4] = [
        (
            "gapless_upstream_first_total",
            "counter",
            "Commits that the upstream brought before all other upstreams.",
            |one| Some(one.first as f64),
        ),
        (
            "gapless_upstream_late_total",
            "counter",
            "Commits that the upstream brought after another upstream.",
            |one| Some(one.late as f64),
        ),
        (
            "gapless_upstream_missed_total",
            "counter",
            "Commits that other upstreams brought and this upstream did not bring within a minute.",
            |one| Some(one.missed as f64),
        ),
        (
            "gapless_upstream_late_p99_seconds",
            "gauge",
            "99th percentile of the delay of late commits of the upstream.",
            |one| one.late_p99_seconds,
        ),
    ];
    for (name, kind, help, read) in figures {
        head(out, name, kind, help);
        for one in upstreams {
            if let Some(value) = one.source.as_ref().and_then(read) {
                let _ = writeln!(out, "{name}{{upstream=\"{}\"}} {value}", one.url);
            }
        }
    }
    let name = "gapless_sources_unjudged_total";
    let help = "Commits evicted before Gapless could tell which upstreams had missed them.";
    head(out, name, "counter", help);
    let _ = writeln!(out, "{name} {}", services.upstreams.sources.unjudged());
}
